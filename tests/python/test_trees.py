"""Dataclasses and classes of one's own as trees, paths of leaves, and what is wrong with a tree, by its path."""

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest

import rlx


@dataclasses.dataclass(frozen=True)
class Layer:
    w: Any
    b: Any
    activation: Any = rlx.static_field(default=rlx.tanh)

    def __call__(self, x):
        return self.activation(x @ self.w + self.b)


@dataclasses.dataclass
class Model:
    layers: list
    scale: Any
    name: str = rlx.static_field(default="model", repr=False)


class Pair:
    """A class of one's own."""

    def __init__(self, first, second, label):
        self.first, self.second, self.label = first, second, label


rlx.register_tree(Pair, lambda p: ((p.first, p.second), p.label), lambda label, children: Pair(*children, label))


class Named:
    def __init__(self, a, b):
        self.a, self.b = a, b


rlx.register_tree(Named, lambda n: ({"a": n.a, "b": n.b}, None), lambda _, children: Named(*children))

Point = collections.namedtuple("Point", "x y")


def model():
    return Model(
        [Layer(rlx.ones((2, 3)), rlx.zeros(3)), Layer(rlx.ones((3, 1)), rlx.zeros(1), rlx.relu)], rlx.array(2.0)
    )


def value(m, x):
    for layer in m.layers:
        x = layer(x)
    return (x * m.scale).sum()


def test_dataclasses_go_through_all_transforms():
    m, x = model(), rlx.array([[1.0, -0.5]])
    expected = 2 * 3 * np.tanh(0.5)
    for f in (value, rlx.jit(value)):
        np.testing.assert_allclose(f(m, x), expected, rtol=1e-6)
    g = rlx.jit(rlx.grad(value))(m, x)
    assert type(g) is Model and type(g.layers[0]) is Layer and g.name == "model"
    assert g.layers[1].activation is rlx.relu
    np.testing.assert_allclose(g.scale, expected / 2, rtol=1e-6)
    np.testing.assert_allclose(g.layers[1].w, 2 * np.full((3, 1), np.tanh(0.5)), rtol=1e-6)
    many = rlx.vmap(value, in_axes=(Model([None, None], 0), None))(
        dataclasses.replace(m, scale=rlx.array([1.0, 2.0])), x
    )
    np.testing.assert_allclose(many, [expected / 2, expected], rtol=1e-6)
    carry, _ = rlx.scan(lambda c, _: (dataclasses.replace(c, scale=c.scale * 2), None), m, length=3)
    assert type(carry) is Model and float(carry.scale) == 16
    picked = rlx.cond(rlx.array(True), lambda m: m, lambda m: rlx.tree_map(lambda t: -t, m), m)
    assert float(picked.scale) == 2 and picked.layers[0].activation is rlx.tanh
    moved = rlx.jvp(lambda m: value(m, x), (m,), (rlx.tree_map(rlx.zeros_like, m),))
    assert float(moved[1]) == 0


def test_static_fields_are_part_of_the_program():
    traces = []

    @dataclasses.dataclass
    class Power:
        x: Any
        n: Any = rlx.static_field()

    @rlx.jit
    def f(p):
        traces.append(p.n)
        return p.x**p.n if not isinstance(p.n, bool) else p.x * 0

    x = rlx.array([3.0])
    assert [f(Power(x, n)).tolist() for n in (1, 2, 1, True, 1.0)] == [[3], [9], [3], [0], [3]]
    assert [(type(n), n) for n in traces] == [(int, 1), (int, 2), (bool, True), (float, 1.0)]
    assert rlx.tree_structure(Power(x, 1)) != rlx.tree_structure(Power(x, True))
    assert hash(rlx.tree_structure(Power(x, 1))) == hash(rlx.tree_structure(Power(x * 2, 1)))


def test_unflatten_makes_no_calls():
    calls = []

    @dataclasses.dataclass(frozen=True)
    class Checked:
        x: Any
        twice: Any = dataclasses.field(init=False)

        def __post_init__(self):
            calls.append(1)
            object.__setattr__(self, "twice", self.x * 2)

    c = Checked(rlx.ones(2))
    leaves, structure = rlx.tree_flatten(c)
    again = rlx.tree_unflatten(structure, ["a", None])
    assert (again.x, again.twice) == ("a", None) and len(leaves) == 2 and len(calls) == 1


def test_classes_of_ones_own():
    p = Pair(rlx.ones(2), [rlx.zeros(3), None], "here")
    q = rlx.jit(lambda p: rlx.tree_map(lambda x: x + 1, p))(p)
    assert type(q) is Pair and q.label == "here" and q.first.tolist() == [2, 2] and q.second[1] is None
    assert [path for path, _ in rlx.tree_flatten_with_path(p)[0]] == ["0", "1.0"]
    n = rlx.grad(lambda n: (n.a * n.b).sum())(Named(rlx.array([2.0]), rlx.array([3.0])))
    assert type(n) is Named and n.a.tolist() == [3] and n.b.tolist() == [2]
    assert [path for path, _ in rlx.tree_flatten_with_path({"n": n})[0]] == ["n.a", "n.b"]


def test_paths():
    tree = {"p": Point(1, [2, (3,)]), "m": Model([Layer(4, 5)], 6), 7: None, "d": {"x.y": 8}}
    tree.pop(7)
    pairs, structure = rlx.tree_flatten_with_path(tree)
    assert dict(pairs) == {
        "d.x.y": 8, "m.layers.0.w": 4, "m.layers.0.b": 5, "m.scale": 6, "p.x": 1, "p.y.0": 2, "p.y.1.0": 3,
    }  # fmt: skip
    assert structure == rlx.tree_structure(tree) and rlx.tree_leaves(tree) == [x for _, x in pairs]
    shown = rlx.tree_map_with_path(lambda path, a, b: f"{path}={a + b}", tree, tree)
    assert shown["m"].layers[0].b == "m.layers.0.b=10" and shown["p"].y[1] == ("p.y.1.0=6",)
    assert rlx.tree_flatten_with_path(5)[0] == [("", 5)] and rlx.tree_leaves(None) == []
    with pytest.raises(ValueError, match="tree_map_with_path: the trees differ"):
        rlx.tree_map_with_path(lambda *a: 0, [1], [1, 2])


def test_structures_are_described():
    with pytest.raises(rlx.Error, match=r"the carry is Layer\(w=\*, b=\*, activation=.*relu.* and the body returns \*"):
        rlx.while_loop(lambda c: rlx.array(False), lambda c: c.w, Layer(rlx.ones(1), rlx.ones(1), rlx.relu))


@dataclasses.dataclass
class Sized:
    x: Any
    sizes: Any = rlx.static_field()


@dataclasses.dataclass
class Late:
    x: Any = dataclasses.field(init=False)


@pytest.mark.parametrize(
    "part, tree",
    [
        ("layers.1: the static field sizes of Sized must be hashable, not \\[1\\]", {"layers": [1, Sized(2, [1])]}),
        ("a.0: a Late without a value of its field: .*'x'", {"a": (Late(),)}),
        ("b: the rest of Pair must be hashable", {"a": 1, "b": Pair(1, 2, {})}),
    ],
)
def test_bad_nodes_are_named_by_their_path(part, tree):
    for f in (rlx.tree_flatten, rlx.jit(lambda t: 0), lambda t: rlx.tree_map(lambda x: x, t)):
        with pytest.raises(rlx.Error, match=part) as e:
            f(tree)
        assert e.value.code == "tree-node"


def test_bad_leaves_are_named_by_their_path():
    bad = {"layers": [Layer(rlx.ones(1), print)]}
    message = "argument 1.layers.0.b: cannot make an array of <built-in function print>.*static_field"
    for f in (
        rlx.jit(lambda x, m: x), lambda x, m: rlx.grad(lambda x, m: x)(x, m), rlx.vmap(lambda x, m: x, (None, None)),
        lambda x, m: rlx.vjp(lambda x, m: x, x, m),
    ):  # fmt: skip
        with pytest.raises(rlx.Error, match=message) as e:
            f(rlx.array(1.0), bad)
        assert e.value.code == "array-like"
    with pytest.raises(rlx.Error, match="argument m.layers.0.b: "):
        rlx.jit(lambda *, m: 0)(m=bad)
    with pytest.raises(rlx.Error, match="argument 0: cannot make an array of 'text', a str"):
        rlx.jit(lambda x: x)("text")
    with pytest.raises(rlx.Error, match="result a.1: cannot make an array of 'text'"):
        rlx.jit(lambda x: {"a": [x, "text"]})(1.0)


def test_trees_that_hold_themselves():
    a = []
    a.append(a)
    with pytest.raises(rlx.Error, match="nested too deeply") as e:
        rlx.tree_flatten(a)
    assert e.value.code == "tree-node"


def test_what_cannot_be_registered():
    for cls in (tuple, dict, int, rlx.Array, Pair):
        with pytest.raises(rlx.Error) as e:
            rlx.register_tree(cls, lambda x: ((), None), lambda r, c: None)
        assert e.value.code == "tree-node"
    for cls, f in ((3, lambda x: x), (Point, None)):
        with pytest.raises(TypeError):
            rlx.register_tree(cls, f, f)

    class Odd:
        pass

    rlx.register_tree(Odd, lambda o: [1, 2, 3], lambda r, c: Odd())
    with pytest.raises(rlx.Error, match="x: flatten of Odd must give \\(children, rest\\)"):
        rlx.tree_flatten({"x": Odd()})
