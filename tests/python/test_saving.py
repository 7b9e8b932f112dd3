"""rlx.save and rlx.load: every sort of tree comes back, every file that is broken raises, C++ reads and writes the same
files (optim_test has the other half: tests/formats/tree.ckpt and step.ckpt are written by one and read by both)."""

import collections
import dataclasses
import json
import math
import os
import pathlib
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import _saving

FORMATS = pathlib.Path(__file__).parents[1] / "formats"
DTYPES = [
    "float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "bool",
    "complex64", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


@dataclasses.dataclass
class Model:
    w: Any
    parts: list
    act: Any = rlx.static_field(default=rlx.tanh)


Point = collections.namedtuple("Point", "x y")


def bits(x):
    assert isinstance(x, rlx.Array), x
    return x.dtype.name, x.shape, x.numpy().tobytes()


def same(a, b):
    assert rlx.tree_structure(a) == rlx.tree_structure(b)
    for x, y in zip(rlx.tree_leaves(a), rlx.tree_leaves(b)):
        if isinstance(x, (rlx.Array, np.ndarray, np.generic)):
            assert bits(rlx.asarray(x)) == bits(y)
        else:
            assert type(x) is type(y) and (x == y or x != x and y != y), (x, y)
            assert not isinstance(x, float) or math.copysign(1, x) == math.copysign(1, y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 130), (1, 2, 0, 4)], ids=str)
def test_arrays_of_all_dtypes(tmp_path, dtype, shape):
    values = np.random.default_rng(1).normal(size=shape) * 3
    x = rlx.array(values > 0 if dtype == "bool" else values).astype(dtype)
    rlx.save(tmp_path / "x", {"x": x})
    same({"x": x}, rlx.load(tmp_path / "x"))
    rlx.save(tmp_path / "x", x)
    same(x, rlx.load(tmp_path / "x"))


def test_special_bits(tmp_path):
    words = np.array([0x7FC00001, 0xFFC0BEEF, 0x80000000, 0x7F800000, 1], np.uint32).view(np.float32)
    rlx.save(tmp_path / "x", [words])
    assert rlx.load(tmp_path / "x")[0].numpy().tobytes() == words.tobytes()


TREES = [
    {}, [], (), None, {"a": None}, 3, 1 / 3,
    -(2**70), 2**20000, True, 1.5, math.inf, -math.inf, math.nan, -0.0, 0.1, 5e-324,
    1e308, 1 + 2j, complex(math.nan, -math.inf), "", "text\0 \u00fc \U0001f600", {"n": 1}, [1, [2.0, (3, ())], {}],
    {1: "a", None: "b", 2.5: "c", False: "d", "1": "e"}, {"a": {"b": rlx.ones(2)}, "c": [rlx.zeros(1), 7, None]},
    (rlx.ones(3),), [[rlx.ones(1)], [rlx.ones(2)]], {"x.y": rlx.ones(1)}, {3: rlx.ones(1)}, {"a b/c": [rlx.ones(1)]},
    {"params": [{"w": rlx.ones((2, 2)), "b": rlx.zeros(2)}, None], "step": rlx.array(3, "int32"), "rate": 1e-3},
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=map(str, range(len(TREES))))
def test_trees_come_back(tmp_path, tree):
    rlx.save(tmp_path / "t", tree)
    same(tree, rlx.load(tmp_path / "t"))
    if tree is not None and not (isinstance(tree, dict) and 1 in tree):
        same(tree, rlx.load(tmp_path / "t", like=tree))


def test_numpy_comes_back_as_arrays(tmp_path):
    rlx.save(str(tmp_path / "t"), {"a": [np.float32(2), np.arange(4)[::2]]})
    back = rlx.load(str(tmp_path / "t"))
    assert bits(back["a"][0])[:2] == ("f32", ()) and back["a"][1].tolist() == [0, 2]


def test_classes_need_a_likeness(tmp_path):
    m = Model(rlx.ones((2, 3)), [Point(rlx.zeros(1), 2.5), collections.OrderedDict(b=rlx.ones(1), a="x")], rlx.relu)
    rlx.save(tmp_path / "m", {"model": m, "n": 1})
    like = Model(rlx.zeros((2, 3)), [Point(rlx.ones(1), 0.0), collections.OrderedDict(b=rlx.zeros(1), a="")], rlx.relu)
    back = rlx.load(tmp_path / "m", like={"model": like, "n": 0})
    same({"model": m, "n": 1}, back)
    assert type(back["model"]) is Model and list(back["model"].parts[1]) == ["b", "a"]
    with pytest.raises(rlx.Error, match="holds a Model at 'model'; like= must") as e:
        rlx.load(tmp_path / "m")
    assert e.value.code == "tree-like"


@pytest.mark.parametrize(
    "part, like",
    [
        ("'a' of .* is \\[2, 3\\] f32, in like it is \\[3, 2\\] f32", {"a": rlx.ones((3, 2)), "b": [1, rlx.ones(1)]}),
        ("'a' of .* is \\[2, 3\\] f32, in like it is \\[2, 3\\] f64", {"a": np.ones((2, 3)), "b": [1, rlx.ones(1)]}),
        ("'a' of .* is \\[2, 3\\] f32, in like it is a int", {"a": 1, "b": [1, rlx.ones(1)]}),
        ("'b.0' of .* is a int, in like it is a float", {"a": rlx.ones((2, 3)), "b": [1.0, rlx.ones(1)]}),
        ("has no 'b.2'; like is \\{'a': \\*", {"a": rlx.ones((2, 3)), "b": [1, rlx.ones(1), rlx.ones(1)]}),
        ("has 'b.1', like has not", {"a": rlx.ones((2, 3)), "b": [1]}),
        ("two leaves of like are called '1'", {"1": 2, 1: 3}),
    ],
    ids=str,
)
def test_likenesses_that_differ(tmp_path, part, like):
    rlx.save(tmp_path / "t", {"a": rlx.ones((2, 3)), "b": [1, rlx.ones(1)]})
    with pytest.raises(rlx.Error, match=part) as e:
        rlx.load(tmp_path / "t", like=like)
    assert e.value.code == "tree-like"


def test_what_cannot_be_saved(tmp_path):
    deep = rlx.ones(1)
    for _ in range(101):
        deep = [deep]
    deeper = rlx.ones(1)
    for _ in range(400):
        deeper = [deeper]
    for code, part, tree in (
        ("array-like", "a.1: cannot make an array of <built-in function print>", {"a": [1, print]}),
        ("array-like", "b'bytes'", [b"bytes"]),
        ("tree-name", 'two arrays of the tree would be called "a.b"', {"a": {"b": rlx.ones(1)}, "a.b": rlx.ones(1)}),
        ("tree-name", "'#tree' is no name", {"#tree": rlx.ones(1)}),
        ("tree-name", "'' is no name", {"": rlx.ones(1)}),
        ("tree-name", "the key (1, 2)", {(1, 2): rlx.ones(1)}),
        ("tree-name", "is not Unicode text", {"\ud800": rlx.ones(1)}),
        ("tree-depth", "101 levels; 100 are allowed", deep),
        ("tree-depth", "400 levels; 100 are allowed", deeper),
    ):
        with pytest.raises(rlx.Error) as e:
            rlx.save(tmp_path / "t", tree)
        assert e.value.code == code and part in e.value.message, e.value
        assert not os.listdir(tmp_path)
    with pytest.raises(rlx.Error) as e:
        rlx.jit(lambda x: rlx.save(tmp_path / "t", {"x": x}))(1.0)
    assert e.value.code == "trace-value"
    with pytest.raises(rlx.Error) as e:
        rlx.save(tmp_path / "none" / "t", {"x": rlx.ones(1)})
    assert e.value.code == "file-open"
    same(deep[0], (rlx.save(tmp_path / "t", deep[0]), rlx.load(tmp_path / "t"))[1])


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "t"
    rlx.save(path, {"x": rlx.ones(3)})
    before = path.read_bytes()
    with pytest.raises(rlx.Error):
        rlx.save(path, {"x": rlx.ones(3), "y": print})
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["t"]
    rlx.save(path, {"x": rlx.zeros(3)})
    assert path.read_bytes() != before and os.listdir(tmp_path) == ["t"]


# ---- what C++ writes and reads


def formats_tree():
    """What tests/formats/tree.ckpt holds."""
    return {"params": [{"w": rlx.array([[1.0, 2.0], [3.0, 4.0]]), "b": rlx.array([0.5, -0.5], "bfloat16")}, None],
            "step": rlx.array(7, "int32"), "rate": 1e-3, "name": "run 1"}  # fmt: skip


def test_the_file_that_cpp_reads(tmp_path):
    if os.environ.get("RLX_UPDATE_TEXT"):
        rlx.save(FORMATS / "tree.ckpt", formats_tree())
    same(formats_tree(), rlx.load(FORMATS / "tree.ckpt"))
    rlx.save(tmp_path / "t", formats_tree())
    assert (tmp_path / "t").read_bytes() == (FORMATS / "tree.ckpt").read_bytes()


def test_a_file_of_cpp(tmp_path):
    state = rlx.load(FORMATS / "step.ckpt")
    assert list(state) == ["step", "w", "w.m", "w.v"] and int(state["step"]) == 2
    assert state["w"].tolist() == [[1, 2, 3], [4, 5, 6]] and state["w.v"].dtype == "float32"
    rlx.save(tmp_path / "t", state)  # a flat dict is such a file
    assert (tmp_path / "t").read_bytes() == (FORMATS / "step.ckpt").read_bytes()
    like = {"w": rlx.zeros((2, 3)), "w.m": rlx.zeros((2, 3)), "w.v": rlx.zeros((2, 3)), "step": rlx.array(0, "int32")}
    assert int(rlx.load(FORMATS / "step.ckpt", like=like)["step"]) == 2
    assert rlx.load(FORMATS / "tree.ckpt", like=formats_tree())["params"][0]["b"].tolist() == [0.5, -0.5]


# ---- hostile files


def test_broken_bytes(tmp_path):
    good = (FORMATS / "tree.ckpt").read_bytes()
    path = tmp_path / "t"
    rng = np.random.default_rng(5)
    cases = [good[:n] for n in range(0, len(good), 7)] + [good + b"\0"]
    for _ in range(200):
        broken = bytearray(good)
        broken[rng.integers(len(good))] ^= 1 << rng.integers(8)
        cases.append(bytes(broken))
    for bytes_ in cases:
        path.write_bytes(bytes_)
        with pytest.raises(rlx.Error) as e:
            rlx.load(path)
        assert e.value.kind == "data", e.value
    with pytest.raises(rlx.Error) as e:
        rlx.load(tmp_path / "nothing")
    assert e.value.code == "file-open"


def nested(depth):
    return "[" * depth + "]" * depth


def wrapped(node, version=1):
    return json.dumps({"version": version, "tree": node})


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "3", '{"version": 1}', wrapped(None, 2), wrapped(None, True), wrapped(None, 1.0),
        wrapped(None), wrapped({"array": "y"}), wrapped({"list": [{"array": "x"}, {"array": "x"}]}), wrapped({}),
        wrapped({"array": 3}), wrapped({"array": ["x"]}), wrapped({"pickle": "x"}), wrapped([{"array": "x"}]),
        wrapped("x"),
        wrapped({"list": {"array": "x"}}), wrapped({"array": "x", "list": []}), wrapped({"class": "M", "fields": 3}),
        wrapped({"class": "M", "fields": [[1, {"array": "x"}]]}), wrapped({"dict": [["a", {"array": "x"}]]}),
        wrapped({"dict": [[{"str": "a"}, {"array": "x"}, None]]}), wrapped({"dict": [{"str": "a"}]}),
        wrapped({"dict": [[{"int": "1"}, {"array": "x"}], [{"float": "0x1p+0"}, None]]}),
        wrapped({"list": [{"array": "x"}, {"int": "1e5"}]}), wrapped({"list": [{"array": "x"}, {"int": 5}]}),
        wrapped({"list": [{"array": "x"}, {"int": "9" * 5000}]}), wrapped({"list": [{"array": "x"}, {"float": "one"}]}),
        wrapped({"list": [{"array": "x"}, {"float": "0x1p+99999"}]}),
        wrapped({"list": [{"array": "x"}, {"bool": "yes"}]}),
        wrapped({"list": [{"array": "x"}, {"complex": "0x1p+0"}]}),
        wrapped({"list": [{"array": "x"}, {"str": "\ud800"}]}),
        wrapped({"list": [{"array": "x"}, {"complex": "0x1p+0 1 2"}]}), '{"version": 1, "tree": NaN}',
        '{"version": 1, "version": 1, "tree": {"array": "x"}}', '{"version": 1, "tree": {"array": "x"}} more',
        '{"version": 1, "tree": ' + '{"list": [' * 102 + '{"array": "x"}' + "]}" * 102 + "}", nested(100000),
        '{"version": 1, "tree": {"list": [{"array": "x"}, {"dict": [[{"list": []}, null]]}]}}',
    ],
    ids=lambda t: t[:40],
)  # fmt: skip
def test_records_that_are_broken(tmp_path, text):
    record = np.frombuffer(text.encode() or b"", np.uint8)
    rlx._core.save_checkpoint(str(tmp_path / "t"), {"x": rlx.ones(2), "#tree": rlx.array(record)})
    for like in (None, [rlx.ones(2)]):
        with pytest.raises(rlx.Error) as e:
            rlx.load(tmp_path / "t", like=like)
        assert (e.value.kind, e.value.code) == ("data", "tree-record"), e.value
        assert "t: the record of the tree" in e.value.message


def test_records_that_are_no_text(tmp_path):
    for record in (rlx.array([1.0]), rlx.array([[1]], "uint8"), rlx.array([255, 254], "uint8")):
        rlx._core.save_checkpoint(str(tmp_path / "t"), {"x": rlx.ones(2), "#tree": record})
        with pytest.raises(rlx.Error) as e:
            rlx.load(tmp_path / "t")
        assert e.value.code == "tree-record"


def test_random_records_end_in_a_tree_or_an_error():
    good = wrapped(
        {"dict": [[{"str": "a"}, {"array": "x"}], [{"int": "3"}, {"tuple": [None, {"float": "0x1p+0"}]}]]}
    ).encode()
    rng, loaded = np.random.default_rng(9), 0
    for _ in range(2000):
        text = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(text))
            if rng.integers(2):
                text[at] = rng.choice(list(b'{}[]",:0123456789ntfabxrwe')) if rng.integers(2) else rng.integers(256)
            else:
                del text[at]
        arrays = {"x": rlx.ones(2)}
        try:
            node = _saving._read_record("t", rlx.array(np.frombuffer(bytes(text), np.uint8)), arrays)
            _saving._made("t", node, arrays, "")
            loaded += 1
        except rlx.Error as e:
            assert e.code in ("tree-record", "tree-like"), e
    assert 0 < loaded < 2000
