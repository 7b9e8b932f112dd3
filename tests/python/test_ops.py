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
        keywords = {p.name: p.default for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
        operands = [] if op.arity < 0 else rlx.op._s.operand_names(op)
        keywords = {n: d for n, d in keywords.items() if n not in operands}
        names = {n for n, _, _ in rlx.op._s.attributes(op)}
        assert keywords.keys() == names | ({"axis"} if "axes" in names else set())
        assert all(d is not inspect.Parameter.empty for d in keywords.values())
        assert hasattr(rlx, f.__name__)


def test_type_stubs_are_python():
    folder = pathlib.Path(rlx.op.__file__).absolute().parent
    folder = folder if (folder / "op.pyi").exists() else pathlib.Path(_core.__file__).parent
    tree = ast.parse((folder / "op.pyi").read_text())
    assert {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} == set(rlx.ops())
    ast.parse((folder / "__init__.pyi").read_text())
    assert (pathlib.Path(rlx.__file__).parent / "py.typed").exists()


def test_type_stubs_are_true():
    folder = pathlib.Path(_core.__file__).parent
    stubs = {n.name: n for n in ast.parse((folder / "op.pyi").read_text()).body if isinstance(n, ast.FunctionDef)}
    for name, f in rlx.op.FUNCTIONS.items():
        text = "lambda " + ast.unparse(without_annotations(stubs[name].args)) + ": 0"
        assert inspect.signature(f) == inspect.signature(eval(text)), name
    taken = {
        a.asname
        for n in ast.parse((folder / "__init__.pyi").read_text()).body
        if isinstance(n, ast.ImportFrom)
        for a in n.names
    }
    missing = {
        n for n, v in vars(rlx).items() if callable(v) and not n.startswith("_") and not isinstance(v, rlx.DType)
    }
    assert missing - taken == {"ops"}


def test_type_checkers_see_the_methods_that_are_set():
    source = pathlib.Path(rlx._array.__file__).read_text()
    array = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == "Array")
    seen = {a.name for n in ast.walk(array.body[1]) if isinstance(n, ast.ImportFrom) for a in n.names}
    modules = (rlx._aliases, rlx._functions, rlx._reductions, rlx._shaping, rlx._spectral)
    assert seen == {f.__name__ for m in modules for f in m.METHODS}
    assert all(getattr(rlx.Array, f.__name__) is f for m in modules for f in m.METHODS)


def without_annotations(arguments):
    for a in ast.walk(arguments):
        if isinstance(a, ast.arg):
            a.annotation = None
    return arguments


def test_where_a_stub_says_int_one_number_serves_all_spatial_axes():
    image, kernel = rlx.ones((1, 2, 6, 6)), rlx.ones((3, 2, 3, 3))
    pairs = {
        "conv": (lambda f, two, one: f(image, kernel, stride=two(2), dilation=two(1), low=two(1), high=two(1))),
        "conv_transpose": (lambda f, two, one: f(image, rlx.ones((2, 3, 3, 3)), stride=two(2), output_padding=two(1))),
        "pool": (lambda f, two, one: f(image, kernel=two(2), stride=two(2), low=two(0))),
        "max_pool_with_indices": (lambda f, two, one: f(image, kernel=two(2), stride=two(2))),
        "lp_pool": (lambda f, two, one: f(image, kernel=two(3), stride=two(1))),
        "unfold": (lambda f, two, one: f(image, kernel=two(2), stride=two(2))),
        "adaptive_avg_pool": (lambda f, two, one: f(image, size=two(3))),
        "adaptive_max_pool": (lambda f, two, one: f(image, size=two(2))),
    }
    for name, call in pairs.items():
        f = getattr(rlx, name)
        short, long = call(f, lambda n: n, None), call(f, lambda n: [n, n], None)
        for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (short, long))):
            assert a.shape == b.shape and a.tolist() == b.tolist(), name
    windowed = {op.name for op in TABLE if op.kind != "leaf" and rlx.op._s.per_spatial_axis(op)}
    assert {"conv", "q_conv2d", "pool", "fold", "conv_backward_weight"} <= windowed and "slice" not in windowed
    g = rlx.Graph("g")
    assert g.conv(g.input("x", (1, 2, 6, 6)), g.input("w", (3, 2, 3, 3)), stride=2).shape == (1, 3, 2, 2)


def test_one_result_of_many_is_a_tuple():
    x = rlx.ones((1, 3))
    for results in (
        rlx.unstack(x),
        rlx.split(x, 1),
        rlx.split(x, axis=0, sizes=[1]),
        rlx.meshgrid(x[0]),
        rlx.sort_by_key(x),
    ):
        assert isinstance(results, tuple) and len(results) == 1
    traced = rlx.jit(lambda x: (isinstance(rlx.unstack(x), tuple), isinstance(rlx.split(x, 1), tuple)))(x)
    assert [t.item() for t in traced] == [True, True]
    g = rlx.Graph("g")
    assert isinstance(g.unstack(g.input("x", (1, 3))), tuple)
    assert {op.name for op in TABLE if op.variadic_results} >= {
        "unstack",
        "split",
        "meshgrid",
        "sort_by_key",
        "scan",
        "cond",
    }
    assert isinstance(rlx.softmax(x), rlx.Array) and len(rlx.topk(x)) == 2


def test_axes_by_place_and_under_either_name():
    a = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    x = rlx.array(a)
    np.testing.assert_array_equal(rlx.softmax(x, 0), rlx.softmax(x, axis=0))
    np.testing.assert_array_equal(rlx.gather(x, [1], 1), a[:, [1]])
    np.testing.assert_array_equal(rlx.reverse(x, 1), a[:, ::-1])
    np.testing.assert_array_equal(rlx.reverse(x, axis=0), a[::-1])
    np.testing.assert_array_equal(rlx.op.squeeze(x.reshape(1, 2, 3), axis=0), a)
    for op in TABLE:
        if op.kind != "leaf" and rlx.op._s.has_axes(op):
            f = rlx.op.FUNCTIONS[rlx.op._s.python_name(op.name)]
            assert "axis" in inspect.signature(f).parameters
            with pytest.raises(TypeError, match="axis or axes"):
                f(x, axes=0, axis=0)
    np.testing.assert_array_equal(rlx.einsum("ij,kj->ik", x, x), a @ a.T)
    np.testing.assert_array_equal(rlx.einsum(x, x, equation="ij,kj->ik"), a @ a.T)
    with pytest.raises(TypeError):
        rlx.einsum("ij->i", x, equation="ij->j")


def test_operands_by_name():
    logits, labels = rlx.array([[1.0, 2.0, 4.0], [0.0, 1.0, 0.0]]), rlx.array([2, 0])
    wanted = rlx.softmax_cross_entropy(logits, labels)
    for got in (
        rlx.softmax_cross_entropy(logits=logits, labels=labels),
        rlx.softmax_cross_entropy(labels=labels, logits=logits),
        rlx.softmax_cross_entropy(logits, labels=labels),
        rlx.jit(lambda a, b: rlx.softmax_cross_entropy(labels=b, logits=a))(logits, labels),
    ):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
    x, gamma, beta = rlx.array([[1.0, 3.0]]), rlx.array([2.0, 2.0]), rlx.array([5.0, 7.0])
    np.testing.assert_allclose(rlx.op.layer_norm(beta=beta, x=x, gamma=gamma), [[3, 9]], atol=1e-4)
    assert rlx.op.sub(b=rlx.array(1.0), a=rlx.array(3.0)).item() == 2
    g = rlx.Graph("g")
    assert g.sub(b=g.input("b", (2,)), a=g.input("a", (2,))).shape == (2,)
    with pytest.raises(TypeError, match="logit"):
        rlx.softmax_cross_entropy(logit=logits, labels=labels)
    for op in TABLE:  # every operand of every op
        if op.kind != "leaf" and op.arity > 0:
            parameters = inspect.signature(rlx.op.FUNCTIONS[rlx.op._s.python_name(op.name)]).parameters
            assert list(parameters)[: op.arity] == [rlx.op._s.python_name(name) for name, _ in op.operands]
            assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in list(parameters.values())[: op.arity])


def test_attention_places_queries_at_the_end_of_longer_keys():
    q, k, v = rlx.ones((1, 1, 2, 4)), rlx.ones((1, 1, 5, 4)), rlx.array(np.eye(5, dtype=np.float32)[None, None])
    v4 = v[..., :4]
    weights, _ = rlx.attention(q, k, v4, num_heads=1, mask="causal")
    seen = np.asarray(weights)[0, 0] > 0  # the last value has no column of its own
    assert seen.tolist() == [[True] * 4, [True] * 4] and weights[0, 0, 0].tolist() == [0.25] * 4
    assert np.allclose(np.asarray(weights)[0, 0, 1], 0.2)
    weights, _ = rlx.attention(k, q, v4[:, :, :2], num_heads=1, mask="causal")  # more queries than keys
    assert np.allclose(np.asarray(weights)[0, 0, :, :2], [[1, 0]] + [[0.5, 0.5]] * 4)


def test_defaults_are_the_tables():
    x = rlx.array([[1.0, 2.0], [3.0, 5.0]])
    for op in TABLE:  # None stands for the default, so both spellings are one program
        if op.arity == 1 and op.attributes and op.kind == "composite":
            f = rlx.op.FUNCTIONS[op.name]
            try:
                plain = f(x)
            except rlx.Error:
                continue
            nones = f(x, **{n: None for n, _, _ in op.attributes})  # of reductions: all axes
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
    with pytest.raises(rlx.Error, match="abacus is not available here; there is"):
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
        "scalar-range": lambda: rlx.ones(3, "int8") + 300,
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


def test_a_zero_point_without_the_one_in_front_of_it():
    a, b = np.arange(6, dtype="i1").reshape(2, 3), np.arange(6, dtype="i1").reshape(3, 2)
    want = a.astype(int) @ (b.astype(int) - 2)
    for b_zero in (2, rlx.array(2, dtype="int8")):
        np.testing.assert_array_equal(rlx.matmul_integer(a, b, b_zero_point=b_zero), want)
    np.testing.assert_array_equal(rlx.matmul_integer(a, b, None, 2), want)
    np.testing.assert_array_equal(rlx.matmul_integer(a, b, 2), (a.astype(int) - 2) @ b.astype(int))
    x, w = np.arange(16, dtype="i1").reshape(1, 1, 4, 4), np.arange(4, dtype="i1").reshape(1, 1, 2, 2)
    windows = np.lib.stride_tricks.sliding_window_view(x[0, 0].astype(int), (2, 2))
    got = rlx.conv_integer(x, w, w_zero_point=rlx.array(1, dtype="int8"))
    np.testing.assert_array_equal(got[0, 0], (windows * (w[0, 0].astype(int) - 1)).sum((2, 3)))
    g = rlx.Graph("g")
    z = g.input("z", (), "int8")
    g.outputs = [g.matmul_integer(g.input("a", (2, 3), "int8"), g.input("b", (3, 2), "int8"), b_zero_point=z)]
    (y,) = rlx.compile(g).run({"a": a, "b": b, "z": np.int8(2)})
    np.testing.assert_array_equal(y, want)


def test_an_operand_without_the_one_in_front_of_it():
    w, zero = np.zeros((4, 32), "u1"), np.zeros((4, 1), "f4")
    with pytest.raises(rlx.UserError, match="zero_point is given without scale") as e:
        rlx.dequant_matmul(np.zeros((2, 32), "f4"), w, zero_point=zero, scheme="int8_block/32")
    assert e.value.code == "operands"
