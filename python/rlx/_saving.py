"""save and load: trees in checkpoints, the files that the C++ library and the tool read and write.

Arrays are tensors of the checkpoint under their paths ("params.layers.0.w"). What a flat dict of arrays does not say
(lists, tuples, nesting, numbers, strings, None) stands in one more tensor, "#tree", bytes of JSON:

    {"version": 1, "tree": node}    node: null | {"array": path} | {"bool" | "int" | "float" | "complex" | "str": text}
                                        | {"list" | "tuple": [node..]} | {"dict": [[key node, node]..]}
                                        | {"class": name, "fields": [[name, node]..]}

So a checkpoint of C++ is a flat dict here, and a flat dict of arrays is a checkpoint without "#tree". No class is ever
looked up by its name: nodes of classes take theirs from `like`.
"""

import collections
import json
import os

import numpy as np

from rlx import _core
from rlx._array import Array, asarray
from rlx._dims import is_dim
from rlx._errors import DataError, UserError, file_name
from rlx._tree import LEAF, _names, described, flatten, paths, unflatten

RECORD = "#tree"
VERSION = 1
DEPTH = 100  # levels that a file's tree may have
_NUMBERS = {"bool": bool, "int": int, "float": float, "complex": complex, "str": str}
_KEYS = ("bool", "int", "float", "str")  # what keys of dicts may be, besides None


def save(path, tree) -> None:
    """Writes a tree of arrays, numbers, strings and None to a file, whole or not at all: a file that is there stays
    until the new one is complete. Arrays of all dtypes come back with their bits. `load` reads it, so does C++'s
    load_checkpoint: arrays are called by their paths, "params.layers.0.w".
    """
    leaves, structure = flatten(tree)
    depth = _depth(structure)
    if depth > DEPTH:
        raise UserError("tree-depth", f"save: a tree of {depth} levels; {DEPTH} are allowed")
    arrays, nodes = {}, []
    for place, leaf in zip(paths(structure), leaves):
        text = _text(leaf)
        if text is not None:
            nodes.append(text)
            continue
        try:
            array = asarray(leaf)
        except UserError as e:
            raise UserError(e.code, f"save: {place or 'the tree'}: {e.message}") from None
        array._check_concrete()
        name = place or "value"
        if not place and structure != LEAF or name.startswith("#"):
            raise UserError("tree-name", f"save: {place!r} is no name for an array of a file")
        if name in arrays:
            raise UserError("tree-name", f'save: two arrays of the tree would be called "{name}"')
        arrays[name] = array
        nodes.append({"array": name})
    if not _is_flat(structure, arrays):
        node = _node(structure, iter(nodes))
        text = json.dumps({"version": VERSION, "tree": node}, ensure_ascii=False, separators=(",", ":"))
        arrays[RECORD] = asarray(np.frombuffer(_utf8(text), np.uint8))
    for name in arrays:
        _utf8(name)
    _core.save_checkpoint(file_name(path), arrays)


def load(path, like=None):
    """The tree that `save` wrote, or what a C++ program saved: a dict of arrays by name.

    With `like`, a tree, the result is built like it: needed for dataclasses and other classes, whose static fields come
    from there. Names, shapes and dtypes of its arrays must be those of the file; what of the file it does not name is
    an error, too.
    """
    arrays = _core.load_checkpoint(file_name(path))
    record = arrays.pop(RECORD, None)
    where = os.fspath(path)
    node = None if record is None else _read_record(where, record, arrays)
    if like is not None:
        return _like(where, like, node, arrays)
    return arrays if record is None else _made(where, node, arrays, "")


# ---- writing


def _text(leaf):
    """A number of Python or a string as a node; None: an array."""
    if is_dim(leaf):
        raise UserError("unbound-dim", f"save: the size {leaf} is not known")
    for name, cls in _NUMBERS.items():
        if type(leaf) is cls:
            return {name: _number_text(leaf)}
    return None


def _number_text(x):
    if isinstance(x, float):
        return x.hex() if x == x and abs(x) != float("inf") else repr(x)
    if isinstance(x, complex):
        return f"{_number_text(x.real)} {_number_text(x.imag)}"
    if type(x) is int and x.bit_length() > 64:
        return hex(x)  # of any length, where Python limits decimals
    return x if isinstance(x, str) else str(x)


def _utf8(text):
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UserError("tree-name", f"save: {text[:40]!r} is not Unicode text") from None


def _depth(structure):
    """Levels of nodes; level by level, for there may be more than Python nests calls."""
    depth, level = 0, [structure]
    while level := [s for s in level if isinstance(s, tuple)]:
        depth, level = depth + 1, [child for s in level for child in s[1]]
    return depth


def _is_flat(structure, arrays):
    """Whether a dict of the arrays by name is the tree."""
    return (
        isinstance(structure, tuple)
        and structure[0] is dict
        and all(c == LEAF for c in structure[1])
        and len(arrays) == len(structure[2])
        and all(isinstance(k, str) for k in structure[2])
    )


def _key_node(key):
    if key is None:
        return None
    for name in _KEYS:
        if type(key) is _NUMBERS[name]:
            return {name: _number_text(key)}
    raise UserError("tree-name", f"save: the key {key!r} of a dict must be a string, a number, a bool or None")


def _node(structure, leaves):
    if structure is None:
        return None
    if structure == LEAF:
        return next(leaves)
    cls, children = structure[0], [_node(c, leaves) for c in structure[1]]
    if cls in (list, tuple):
        return {cls.__name__: children}
    if cls is dict:
        return {"dict": [[_key_node(k), c] for k, c in zip(structure[2], children)]}
    names = _names(cls, len(children), structure[2:])
    return {"class": cls.__qualname__, "fields": [[str(n), c] for n, c in zip(names, children)]}


# ---- reading: the bytes are not trusted


def _bad(where, what):
    return DataError("tree-record", f"{where}: the record of the tree {what}")


def _read_record(where, record, arrays):
    """The node of the file's tree, of which all is checked: each array of the file stands in it once."""
    if record.dtype != "uint8" or record.ndim != 1:
        raise _bad(where, f"is {record._type}, not bytes")
    try:
        text = record.numpy().tobytes().decode()
        top = json.loads(text, object_pairs_hook=_pairs, parse_constant=_refused, parse_float=_refused)
    except (ValueError, RecursionError) as e:
        raise _bad(where, f"cannot be read: {e}") from None
    if not isinstance(top, dict) or top.keys() != {"version", "tree"}:
        raise _bad(where, "has other parts than a version and a tree")
    if type(top["version"]) is not int or top["version"] != VERSION:
        raise _bad(where, f"has the version {top['version']!r}; this program reads {VERSION}")
    seen = set()
    _check(where, top["tree"], arrays, seen)
    if seen != arrays.keys():
        raise _bad(where, f"does not have the array {min(arrays.keys() - seen)!r}")
    return top["tree"]


def _pairs(pairs):
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key comes twice")
    return made


def _refused(text):
    raise ValueError(f"{text} is no part of it")


def _check(where, root, arrays, seen):
    """Raises unless the node is one; without recursion."""
    todo = [(root, 0)]
    while todo:
        node, depth = todo.pop()
        if depth > DEPTH:
            raise _bad(where, f"has more than {DEPTH} levels")
        if node is None:
            continue
        if not isinstance(node, dict):
            raise _bad(where, f"has {str(node)[:40]!r} where a node should be")
        if node.keys() == {"class", "fields"}:
            pairs = node["fields"]
            if not _is_pairs(pairs) or not all(isinstance(n, str) for n, _ in pairs):
                raise _bad(where, "has a class without fields")
            todo += [(child, depth + 1) for _, child in pairs]
            continue
        if len(node) != 1:
            raise _bad(where, f"has a node of {len(node)} parts")
        ((kind, value),) = node.items()
        if kind == "array":
            if not isinstance(value, str) or value not in arrays or value in seen:
                raise _bad(where, f"names the array {str(value)[:40]!r} twice, or it is not there")
            seen.add(value)
        elif kind in _NUMBERS:
            _number(where, kind, value)
        elif kind in ("list", "tuple"):
            if not isinstance(value, list):
                raise _bad(where, f"has a {kind} without items")
            todo += [(child, depth + 1) for child in value]
        elif kind == "dict":
            _check_keys(where, value)
            todo += [(child, depth + 1) for _, child in value]
        else:
            raise _bad(where, f"has a node of the unknown kind {kind[:40]!r}")


def _is_pairs(pairs):
    return isinstance(pairs, list) and all(isinstance(p, list) and len(p) == 2 for p in pairs)


def _check_keys(where, pairs):
    if not _is_pairs(pairs):
        raise _bad(where, "has a dict without pairs")
    keys = [_key(where, k) for k, _ in pairs]
    if len(set(keys)) != len(keys):
        raise _bad(where, "has a key of a dict twice")


def _key(where, node):
    if node is None:
        return None
    if not isinstance(node, dict) or len(node) != 1 or next(iter(node)) not in _KEYS:
        raise _bad(where, f"has {str(node)[:40]!r} for a key")
    return _number(where, *next(iter(node.items())))


def _number(where, kind, text):
    if not isinstance(text, str):
        raise _bad(where, f"has {str(text)[:40]!r} for a {kind}")
    try:
        if kind == "bool":
            return {"True": True, "False": False}[text]
        if kind == "float":
            return float.fromhex(text)
        if kind == "complex":
            real, imag = map(float.fromhex, text.split(" "))
            return complex(real, imag)
        if kind == "int":
            return int(text, 0)
        text.encode()  # no half of a surrogate pair
        return text
    except (ValueError, KeyError, OverflowError):
        raise _bad(where, f"has {text[:40]!r} for a {kind}") from None


def _made(where, node, arrays, path):
    """The tree of a checked node."""
    if node is None:
        return None
    if "class" in node:
        at = f" at {path!r}" if path else ""
        name = node["class"]
        raise UserError("tree-like", f"load: {where} holds a {name}{at}; like= must have a tree that is built like it")
    ((kind, value),) = node.items()
    if kind == "array":
        return arrays[value]
    if kind in _NUMBERS:
        return _number(where, kind, value)
    if kind == "dict":
        keys = [_key(where, k) for k, _ in value]
        return {k: _made(where, c, arrays, f"{path}.{k}" if path else str(k)) for k, (_, c) in zip(keys, value)}
    made = [_made(where, c, arrays, f"{path}.{i}" if path else str(i)) for i, c in enumerate(value)]
    return made if kind == "list" else tuple(made)


# ---- reading into a given structure


def _leaves_of(where, node, path):
    """[(path, node of an array or a number)] of a checked node, in order."""
    if node is None:
        return []
    if "class" in node:
        children = node["fields"]
    elif "dict" in node:
        children = [(_key(where, k), c) for k, c in node["dict"]]
    elif "list" in node or "tuple" in node:
        children = enumerate(next(iter(node.values())))
    else:
        return [(path, node)]
    return [leaf for name, c in children for leaf in _leaves_of(where, c, f"{path}.{name}" if path else str(name))]


def _like(where, like, node, arrays):
    leaves, structure = flatten(like)
    if node is None and arrays:
        there = {name: {"array": name} for name in arrays}
        if structure == LEAF:
            there = {"" if name == "value" else name: n for name, n in there.items()}
    else:
        found = _leaves_of(where, node, "")
        _check_unique(where, [path for path, _ in found])
        there = dict(found)
    wanted = paths(structure)
    _check_unique("like", wanted)
    for path in wanted:
        if path not in there:
            raise UserError("tree-like", f"load: {where} has no {path!r}; like is {_short(described(structure))}")
    unused = sorted(there.keys() - set(wanted))
    if unused:
        raise UserError("tree-like", f"load: {where} has {unused[0]!r}, like has not")
    return unflatten(structure, [_leaf(where, p, x, there[p], arrays) for p, x in zip(wanted, leaves)])


def _check_unique(where, names):
    twice = [n for n, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise UserError("tree-like", f"load: two leaves of {where} are called {twice[0]!r}: they cannot be told apart")


def _short(text):
    return text if len(text) <= 200 else text[:197] + "..."


def _leaf(where, path, like, node, arrays):
    ((kind, value),) = node.items()
    if kind != "array":
        if type(like) is not _NUMBERS[kind]:
            raise UserError(
                "tree-like", f"load: {path!r} of {where} is a {kind}, in like it is a {type(like).__name__}"
            )
        return _number(where, kind, value)
    got = arrays[value]
    if type(like) in _NUMBERS.values() and not isinstance(like, np.generic):
        raise UserError("tree-like", f"load: {path!r} of {where} is {got._type}, in like it is a {type(like).__name__}")
    same = like if isinstance(like, Array) else asarray(like)
    if same.dtype is not got.dtype or tuple(same.shape) != tuple(got.shape):
        raise UserError("tree-like", f"load: {path!r} of {where} is {got._type}, in like it is {same._type}")
    return got
