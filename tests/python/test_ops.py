"""The functions that are generated from the op table."""

import ast
import inspect
import pathlib
import threading

import numpy as np
import pytest

import rlx
from rlx import _core

TABLE = [op for op, _ in _core.op_table()]


def test_every_op_is_a_function_with_its_attributes():
    assert len(rlx.ops()) == sum(op.kind != "leaf" for op in TABLE)
    for op in TABLE:
        if op.kind == "leaf":
            continue
        f = rlx.op.FUNCTIONS[rlx.op._s.python_name(op.name)]
        assert op.doc in f.__doc__ and f.__name__ == rlx.op._s.python_name(op.name)
        parameters = inspect.signature(f).parameters.values()
        keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        assert keywords.keys() == {n for n, _, _ in rlx.op._s.attributes(op)}
        assert all(d is not inspect.Parameter.empty for d in keywords.values())
        assert hasattr(rlx, f.__name__)


def test_type_stubs_are_python():
    folder = pathlib.Path(rlx.op.__file__).absolute().parent
    folder = folder if (folder / "op.pyi").exists() else pathlib.Path(_core.__file__).parent
    tree = ast.parse((folder / "op.pyi").read_text())
    assert {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} == set(rlx.ops())
    ast.parse((folder / "__init__.pyi").read_text())
    assert (pathlib.Path(rlx.__file__).parent / "py.typed").exists()


def test_defaults_are_the_tables():
    x = rlx.array([[1.0, 2.0], [3.0, 5.0]])
    for op in TABLE:  # None stands for the default, so both spellings are one program
        if op.arity == 1 and op.attributes and op.kind == "composite":
            f = rlx.op.FUNCTIONS[op.name]
            try:
                plain = f(x)
            except rlx.Error:
                continue
            nones = f(x, **{n: None for n, _, _ in op.attributes})
            for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (plain, nones))):
                np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("backend", rlx.backends())
def test_values(backend):
    a = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    with rlx.use_backend(backend):
        assert rlx.get_backend() == backend
        x = rlx.array(a)
        np.testing.assert_allclose(rlx.exp(x), np.exp(a), rtol=1e-6)
        np.testing.assert_allclose(rlx.tanh(a), np.tanh(a), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(rlx.maximum(x, 0.5), np.maximum(a, np.float32(0.5)))
        np.testing.assert_allclose(rlx.reduce_sum(x, axes=[1]), a.sum(1), rtol=1e-5)
        np.testing.assert_allclose(rlx.reduce_sum(x, axes=1, keepdims=True), a.sum(1, keepdims=True), rtol=1e-5)
        np.testing.assert_array_equal(rlx.concat(x, x, axis=1), np.concatenate([a, a], 1))
        np.testing.assert_array_equal(rlx.concat([x, x], axis=0), np.concatenate([a, a]))
        np.testing.assert_array_equal(rlx.gather(x, [1, 0, 3], axis=0), a[[1, 0, 3]])
        np.testing.assert_array_equal(rlx.iota(shape=(2, 3), axis=1, dtype="i32"), np.array([[0, 1, 2]] * 2))
        np.testing.assert_array_equal(rlx.pad(x, 0.0, low=(1, 0), high=(0, 2)), np.pad(a, ((1, 0), (0, 2))))
        e = np.exp(a - a.max(-1, keepdims=True))
        np.testing.assert_allclose(rlx.softmax(x), e / e.sum(-1, keepdims=True), rtol=1e-5)
        with pytest.raises(IndexError) as error:
            rlx.gather(x, [4], axis=0)
        assert error.value.code == "index-range"


def test_use_backend():
    before = rlx.get_backend()
    with pytest.raises(rlx.Error, match="there is no backend"):
        rlx.use_backend("abacus")
    chosen = rlx.use_backend("reference")
    assert rlx.get_backend() == "reference"
    chosen.__exit__(None, None, None)
    assert rlx.get_backend() == before
    seen = []
    with rlx.use_backend("reference"):  # other threads keep theirs
        thread = threading.Thread(target=lambda: seen.append(rlx.get_backend()))
        thread.start()
        thread.join()
    assert seen == [before]


def test_errors():
    x = rlx.ones((2, 3))
    cases = {
        "axis-range": lambda: rlx.softmax(x, axis=2),
        "attribute": lambda: rlx.softmax(x, axis="last"),
        "dtype": lambda: rlx.softmax(rlx.ones(3, "i32")),
        "item-size": lambda: x.item(),
        "scalar-range": lambda: rlx.ones(3, "i8") + 300,
    }
    for code, f in cases.items():
        with pytest.raises(rlx.Error) as e:
            f()
        assert e.value.code == code and e.value.kind == "user" and e.value.message in str(e.value)
        assert isinstance(e.value, ValueError)
    with pytest.raises(rlx.Error, match="softmax: attribute axis takes int, given is 1.5"):
        rlx.softmax(x, axis=1.5)
    with pytest.raises(rlx.Error, match="add"):
        rlx.add(rlx.ones(2), rlx.ones(3))
    with pytest.raises(TypeError):
        rlx.softmax(x, axes=1)
    with pytest.raises(TypeError):
        rlx.softmax()
    with pytest.raises(rlx.Error, match="cannot make an array"):
        rlx.exp(None)
    with pytest.raises(rlx.DataError) as e:
        rlx.parse("graph @x {\n  %0 = nothing() : [] f32\n}")
    assert e.value.code == "parse" and e.value.where.startswith("2:")


def test_random():
    k = rlx.key(42)
    assert k.shape == (2,) and k.dtype == "u32"
    u = rlx.random_uniform(k, shape=(1000,))
    u = np.asarray(u[0] if isinstance(u, tuple) else u)
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.05
    np.testing.assert_array_equal(u, np.asarray(rlx.random_uniform(k, shape=(1000,))))


def test_threads_share_compiled_ops():
    x = rlx.array(np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))
    expected = np.asarray(rlx.softmax(x @ x))
    failures = []

    def work():
        for _ in range(50):
            if not np.array_equal(np.asarray(rlx.softmax(x @ x)), expected):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
