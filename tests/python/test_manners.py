"""What a newcomer from NumPy types first: the same answer as NumPy's, or an error that says what to do."""

import collections
import pathlib
import pickle

import numpy as np
import pytest

import rlx


@pytest.fixture(autouse=True)
def on_the_reference():
    """Manners do not depend on the backend, and this one compiles nothing."""
    with rlx.use_backend("reference"):
        yield


def same(got, expected):
    assert isinstance(got, rlx.Array) and got.shape == np.shape(expected), (got, expected)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@pytest.mark.parametrize("sign", OPERATORS)
def test_lists_are_operands(sign):
    f = OPERATORS[sign]
    for values in (np.array(2), np.array([3, 1, 2]), np.array(2.0, np.float32), np.array([3, 1, 2], np.float32)):
        for other in ([1, 2, 3], (1, 2, 3), [1.5, 2.0, 3.0], range(1, 4), [[1], [2]]):
            x = rlx.array(values)
            same(f(x, other), f(values, np.asarray(other)))
            same(f(other, x), f(np.asarray(other), values))
            same(rlx.jit(lambda x: f(other, x))(x), f(np.asarray(other), values))  # noqa: B023
    same(OPERATORS["+"](rlx.array([1, 2]), [rlx.array(1.5), 2]), np.array([2.5, 4]))


def test_lists_and_matrices_bits_and_dtypes():
    same(rlx.array([[1.0, 2.0]]) @ [3, 4], np.array([11.0]))
    same([3, 4] @ rlx.array([[1.0], [2.0]]), np.array([11.0]))
    same(rlx.array([True, False]) | [False, False], np.array([True, False]))
    same([6, 5] & rlx.array([3, 3]), np.array([2, 1]))
    assert (rlx.array([1.0]) + [1]).dtype == "float32" and (rlx.array([1], "int8") + [1]).dtype == "int64"
    assert (rlx.array([1], "int8") * [1.5]).dtype == "float32"
    got = [1, 2, 3]
    got *= rlx.array(2)
    same(got, np.array([2, 4, 6]))


@pytest.mark.parametrize(
    "other", ["ab", b"ab", bytearray(b"ab"), collections.deque([1])], ids=lambda o: type(o).__name__
)
@pytest.mark.parametrize("x", [2, 2.0, [2], True], ids=str)
def test_sequences_are_never_repeated(other, x):
    for f in (lambda: other * rlx.array(x), lambda: rlx.array(x) * other, lambda: other + rlx.array(x)):
        with pytest.raises(TypeError, match=type(other).__name__):
            f()


def test_only_a_whole_number_is_an_index():
    assert "abc"[rlx.array(1)] == "b" and list(range(rlx.array(3))) == [0, 1, 2]
    for wrong in (rlx.array([1]), rlx.array([1, 2]), rlx.array(1.0), rlx.array(True), rlx.array([[1]])):
        with pytest.raises(TypeError, match="rank 0 of integers"):
            "abc"[wrong]
        with pytest.raises(TypeError, match="rank 0 of integers"):
            range(wrong)


def test_equality_is_by_element():
    x = rlx.array([3.0, 1.0])
    same(x == [3, 1], np.array([True, True]))
    same(x != (3, 2), np.array([False, True]))
    for other in (None, "a", b"a"):
        same(x == other, np.array([False, False]))
        same(x != other, np.array([True, True]))
        same(rlx.jit(lambda x: x == other)(x), np.array([False, False]))  # noqa: B023
        assert other not in x
    with pytest.raises(rlx.Error):
        x == [1, 2, 3]  # noqa: B015

    class Any:
        def __eq__(self, other):
            return "mine"

    assert (x == Any()) == "mine"


def test_stack_of_one_array():
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axis in (0, 1, 2, -1):
        for given in (a, rlx.array(a)):
            same(rlx.stack(given, axis=axis), np.stack(a, axis=axis))
            same(rlx.stack(given, axis), np.stack(a, axis))
    same(rlx.jit(lambda x: rlx.stack(x, axis=1))(a), np.stack(a, axis=1))
    same(rlx.stack(rlx.array(a), rlx.array(a), axis=1), np.stack([a, a], axis=1))
    with pytest.raises(TypeError, match="stack"):
        rlx.stack(rlx.array(1.0))


def test_numbers_must_fit():
    nan, inf = float("nan"), float("inf")
    for values in ([nan], nan, [1.0, inf], -inf, [[0.0], [1e19]]):
        for dtype in (int, "int64", "uint8"):
            with pytest.raises(ValueError, match="does not fit"):
                rlx.array(values, dtype=dtype)
    for value, dtype in (
        (1e10, "i4"),
        (2**31, "int32"),
        (2147483648.0, "int32"),
        (-1, "uint8"),
        (-1.0, "uint8"),
        (256.0, "uint8"),
        (2.0**63, "int64"),
        (2**63, "int64"),
        (-(2**31) - 1.0, "int32"),
    ):
        for values in (value, [value], [0, [value][0]]):
            with pytest.raises(ValueError, match="does not fit"):
                rlx.array(values, dtype=dtype)
            with pytest.raises(ValueError, match="does not fit"):
                rlx.full(2, value, dtype)
    with pytest.raises(ValueError, match="does not fit in 64 bits"):
        rlx.array([2**63, -1])
    for value, dtype, kept in (
        (2147483647.0, "int32", 2147483647),
        (255.9, "uint8", 255),
        (-0.9, "uint8", 0),
        (-1.9, int, -1),
        (-(2.0**63), "int64", -(2**63)),
        (True, "int8", 1),
        (1, "int8", 1),
    ):
        assert rlx.array([value], dtype).tolist() == [kept] == np.array([value], dtype).tolist()
    assert rlx.array([], int).shape == (0,)
    big = rlx.array(np.array([np.nan, 1e10]), "int32")  # of NumPy's arrays: as astype
    assert big.tolist() == rlx.array(np.array([np.nan, 1e10])).astype("int32").tolist()


def test_a_bool_is_no_axis():
    x = rlx.ones((2, 3))
    calls = [
        lambda a: x.sum(axis=a),
        lambda a: rlx.max(x, (0, a)),
        lambda a: rlx.softmax(x, axis=a),
        lambda a: rlx.sort(x, a),
        lambda a: rlx.argmax(x, a),
        lambda a: rlx.op.reduce_sum(x, axes=[a]),
        lambda a: rlx.squeeze(x, a),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call(True)
        with pytest.raises((TypeError, rlx.Error)):
            call(np.True_)


def test_small_differences_from_numpy():
    same(rlx.zeros(np.int64(3)), np.zeros(3))
    same(rlx.array(range(4)), np.arange(4))
    same(rlx.array([range(2), range(2)]), np.array([[0, 1], [0, 1]]))
    for args in ((0, 1, 5), (0, 10, 4), (-3.5, 3.5, 6), (5, 0, 4)):
        for endpoint in (True, False):
            got = rlx.linspace(*args, endpoint=endpoint, dtype=int)
            same(got, np.linspace(*args, endpoint=endpoint, dtype=int))
            assert got.dtype == "int64"
    a, b = np.array([[1, 2], [3, 4], [5, 7]], np.float32), np.array([1, 2, 4], np.float32)
    for f in (rlx.lstsq, rlx.jit(rlx.lstsq), rlx.Array.lstsq):
        np.testing.assert_allclose(f(rlx.array(a), rlx.array(b)), np.linalg.lstsq(a, b, rcond=None)[0], atol=1e-4)
        assert f(rlx.array(a), rlx.array(b[:, None])).shape == (2, 1)
    for k in (-1, 0, 1):
        same(rlx.tril(b, k), np.tril(b, k))
        same(rlx.triu(b, k), np.triu(b, k))
    for x in (np.array([7, -7]), np.array([7.5, -7.5], np.float32)):
        for pair in (divmod(rlx.array(x), 2), rlx.jit(lambda x: divmod(x, 2))(x)):
            for got, expected in zip(pair, divmod(x, 2)):
                same(got, expected)
        for got, expected in zip(divmod(20, rlx.array(x)), divmod(20, x)):
            same(got, expected)


def test_an_array_does_not_change():
    x = rlx.ones(3)
    with pytest.raises(TypeError, match="where.*dynamic_update_slice.*scatter"):
        x[0] = 1
    assert x.copy() is not x and x.copy().tolist() == x.tolist()


def test_index_errors_name_the_index_and_the_size():
    x = rlx.ones((2, 3))
    places = rlx.array([[5], [1]])
    for f in (
        lambda: x[:, 5],
        lambda: rlx.jit(lambda x: x[:, 5])(x),
        lambda: rlx.jit(lambda x: x[:, [0, 5]])(x),
        lambda: rlx.jit(lambda x: x[[0, 1], [0, 5]])(x),
        lambda: rlx.take(x, 5, 1),
        lambda: rlx.take_along_axis(x, places, 1),
    ):
        with pytest.raises(IndexError, match="index 5.*axis 1.*size 3"):
            f()
    with rlx.use_backend("cpu"):  # an index that is known at run time only: the sizes
        with pytest.raises(IndexError, match=r"\[2, 3\] f32"):
            rlx.jit(lambda x, i: x[i])(x, rlx.array(7))


def test_take_along_axis_counts_from_the_end():
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    places = np.array([[-1], [1], [-4]])
    for f in (rlx.take_along_axis, rlx.jit(rlx.take_along_axis, static_argnums=2), rlx.Array.take_along_axis):
        same(f(rlx.array(a), places, 1), np.take_along_axis(a, places, 1))
    same(rlx.take_along_axis(a, np.array([-1, 3]), None), np.take_along_axis(a, np.array([-1, 3]), None))


def test_a_name_that_is_not_there():
    for wrong, near in (("reduce_summ", "reduce_sum"), ("softmaxx", "softmax"), ("argmaximum", "argmax")):
        with pytest.raises(AttributeError, match=f"did you mean.*{near}"):
            getattr(rlx, wrong)
    with pytest.raises(AttributeError, match="numpy.unique takes an rlx.Array"):
        rlx.unique  # noqa: B018
    assert np.unique(rlx.array([2, 1, 2])).tolist() == [1, 2]
    with pytest.raises(AttributeError, match="rlx.ops"):
        rlx.qqqqqq  # noqa: B018
    assert not hasattr(rlx, "__path_of_nothing__")


# ---- trees

Pair = collections.namedtuple("Pair", "first second")


class Settings(dict):
    pass


class Row(list):
    pass


class Record(Pair):
    pass


def trees():
    a, b = rlx.array([1.0, 2.0]), rlx.array(3.0)
    counted = collections.defaultdict(list, w=a, b=b)
    return [
        collections.OrderedDict([("w", a), ("b", b)]),
        counted,
        Settings(w=a, b=b),
        Pair(a, b),
        Record(a, b),
        Row([a, b]),
        collections.OrderedDict(z=Pair(a, None), a=[Settings(q=b)]),
    ]


@pytest.mark.parametrize("tree", trees(), ids=lambda t: type(t).__name__)
def test_trees_of_derived_classes(tree):
    out = rlx.jit(lambda t: t)(tree)
    leaves, structure = rlx.tree_flatten(tree)
    got, again = rlx.tree_flatten(out)
    assert type(out) is type(tree) and structure == again and hash(structure) == hash(again)
    assert [x.tolist() for x in got] == [x.tolist() for x in leaves]
    if isinstance(tree, dict):
        assert set(out) == set(tree)
    if isinstance(tree, collections.OrderedDict):
        assert list(out) == list(tree)
    if isinstance(tree, collections.defaultdict):
        assert out.default_factory is list
    doubled = rlx.vmap(lambda t: rlx.tree_map(lambda x: x * 2, t), in_axes=(None,), out_axes=None)
    with pytest.raises(rlx.Error):  # nothing to slice, but the structure is understood
        doubled(tree)
    slope = rlx.grad(lambda t: sum((x * x).sum() for x in rlx.tree_flatten(t)[0]))(tree)
    assert type(slope) is type(tree)
    assert [x.tolist() for x in rlx.tree_flatten(slope)[0]] == [(2 * x).tolist() for x in leaves]


def test_structures_are_readable():
    x = rlx.array(1.0)
    wrong = [
        (lambda c, _: ((c, c), None), x, r"the carry is \* and the body returns \(\*, \*\)"),
        (lambda c, _: (c[0], None), (x,), r"the carry is \(\*,\) and the body returns \*"),
        (lambda c, _: ({"b": x}, None), {"a": x}, r"the carry is \{'a': \*\} and the body returns \{'b': \*\}"),
        (lambda c, _: ([x, None], None), Pair(x, x), r"the carry is Pair\(first=\*, second=\*\) .* \[\*, None\]"),
        (lambda c, _: (Row([x]), None), Settings(k=x), r"the carry is Settings\{'k': \*\} .* Row\[\*\]"),
    ]
    for body, init, text in wrong:
        with pytest.raises(rlx.Error, match=text):
            rlx.scan(body, init, length=2)
    with pytest.raises(rlx.Error, match=r"one body returns \*, the other \(\*, \*\)"):
        rlx.cond(True, lambda: x, lambda: (x, x))
    with pytest.raises(rlx.Error, match=r"\(\*, \*\) are not built like the results \*"):
        rlx.vjp(lambda x: x, x)[1]((x, x))


# ---- programs that stand alone


def test_the_graph_of_a_function_runs_alone():
    w, b = rlx.array(np.arange(6, dtype=np.float32).reshape(2, 3)), rlx.array([1.0, 2.0, 3.0])

    @rlx.jit
    def f(x, scale):
        return {"y": x @ w * scale + b, "b": b}

    x = rlx.array([[1.0, 2.0]])
    g = f.graph(x, 2.0)
    assert [name for name, _, _ in g.inputs] == ["x0", "x1"] and g.params == []
    for again in (g, rlx.parse(str(g)), rlx.from_bytes(g.to_bytes())):
        b_out, y = rlx.compile(again).run({"x0": x, "x1": np.float64(2)})
        same(y, (f(x, 2.0)["y"]).numpy())
        same(b_out, b.numpy())
    alone = rlx.jit(lambda: w + 1).graph()
    assert alone.inputs == []
    same(rlx.compile(rlx.parse(str(alone))).run({})[0], w.numpy() + 1)
    with pytest.raises(rlx.Error, match="traced around it"):
        rlx.jit(lambda x: rlx.jit(lambda y: x + y).graph(w).inputs and x)(w)


def test_stubs_know_the_aliases():
    from rlx import _aliases, _core

    stub = (pathlib.Path(_core.__file__).parent / "__init__.pyi").read_text()
    for name in _aliases.ALIASES:
        assert f" as {name}\n" in stub or f"\n{name}: Any\n" in stub, name


def test_names_that_the_library_does_not_take():
    x = rlx.ones(2)
    for call in (
        lambda: rlx.save("x\0y.ckpt", {"x": x}),
        lambda: rlx.load("x\0y.ckpt"),
        lambda: rlx.load_graph("x\0y.rlx"),
        lambda: rlx.jit(lambda x: x).graph(x).save("x\0y.rlx"),
    ):
        with pytest.raises(rlx.UserError, match="file-open"):
            call()
    for name in ("\udc80", b"g", 3):
        with pytest.raises(rlx.UserError):
            rlx.Graph(name)
    with pytest.raises(rlx.UserError, match="takes bytes, not str"):
        rlx.from_bytes("abc")
    g = rlx.Graph("g")
    g.outputs = [g.input("a\0b", (2,))]
    with pytest.raises(rlx.Error, match="utf8"):
        pickle.dumps(g)
    with pytest.raises(rlx.Error, match="json"):
        rlx.HirModule.from_json('{"format":"rlx.hir","version":' + "[" * 80000 + "]" * 80000 + "}")
