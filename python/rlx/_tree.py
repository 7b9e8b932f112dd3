"""Trees: nested tuples, lists, dicts, dataclasses, classes of your own and None, with arrays at the leaves.

    leaves, tree = flatten({"w": w, "b": (b1, b2)})
    same = unflatten(tree, leaves)

A tree's structure is a hashable value. Dicts are ordered by key where the keys can be ordered; named tuples and classes
derived from dict, list and tuple keep their class. A dataclass is a node: its fields are its children, but for those
made by `static_field()`, whose values are part of the structure. `register_tree` makes nodes of other classes.

The path of a leaf is made of the keys, indices and fields that lead to it: "layers.0.w".
"""

import dataclasses
import numbers
import weakref
from collections import OrderedDict, defaultdict

from rlx._errors import UserError

LEAF = "*"
LEAF_TYPES = {int, float, bool, complex, str}  # classes that are leaves for certain; arrays add theirs
_REGISTERED = {}  # class: (flatten, unflatten)
_FIELDS = weakref.WeakKeyDictionary()  # dataclass: (names of its children, names of its static fields)


class _BadNode(ValueError):
    """A node that cannot be taken apart; the caller finds out where it stands."""


class Static:
    """What is not a leaf of a node: part of the structure. 1, 1.0 and True are equal but make different programs, so do
    0.0 and -0.0."""

    __slots__ = ("_hash", "_key", "value")

    def __init__(self, value):
        self.value, self._key = value, typed(value)
        self._hash = hash(self._key)

    def __eq__(self, other):
        return isinstance(other, Static) and self._key == other._key

    def __hash__(self):
        return self._hash

    def __repr__(self):
        return repr(self.value)


def typed(value):
    """A key for a value in which 1, 1.0 and True differ, 0.0 and -0.0 too, and NaN is NaN."""
    if isinstance(value, tuple):
        return (type(value), tuple(map(typed, value)))
    if isinstance(value, frozenset):
        return (type(value), frozenset(map(typed, value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = tuple([typed(getattr(value, f.name)) for f in dataclasses.fields(value) if f.compare])
        try:
            hash(fields)
        except TypeError:  # a class that says itself what its values are compared by
            return (type(value), value)
        return (type(value), value, fields)
    inexact = isinstance(value, numbers.Complex) and not isinstance(value, int)
    return (type(value), repr(value) if inexact else value)


# ---- nodes


def static_field(**options):
    """A field of a dataclass whose value (hashable) is part of the tree's structure, not a child: sizes, names,
    functions. Takes what dataclasses.field takes.

        @dataclasses.dataclass
        class Model:
            w: rlx.Array
            activation: Callable = rlx.static_field(default=rlx.tanh)
    """
    metadata = {**(options.pop("metadata", None) or {}), "static": True}
    return dataclasses.field(metadata=metadata, **options)


def register_tree(cls, flatten, unflatten):
    """Makes nodes of the instances of cls, everywhere where trees are taken; returns cls.

    flatten(x) gives (children, rest): a sequence of children or a dict of them by name, and what else x consists of, a
    hashable value. unflatten(rest, children) gives x back, from the children in order; they may be anything, also no
    arrays.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_tree: takes a class, not {cls!r}")
    if cls in (tuple, list, dict, type(None)) or cls in LEAF_TYPES:
        raise UserError("tree-node", f"register_tree: what {cls.__name__} is cannot be changed")
    if cls in _REGISTERED:
        raise UserError("tree-node", f"register_tree: {cls.__name__} is a node already")
    if not callable(flatten) or not callable(unflatten):
        raise TypeError(f"register_tree: {cls.__name__} needs two functions, flatten and unflatten")
    _REGISTERED[cls] = (flatten, unflatten)
    return cls


def _fields_of(cls):
    known = _FIELDS.get(cls)
    if known is None:
        fields = dataclasses.fields(cls)
        static = tuple(f.name for f in fields if f.metadata.get("static"))
        known = _FIELDS[cls] = (tuple(f.name for f in fields if f.name not in static), static)
    return known


def _keys(d):
    """The keys in the order of the leaves: sorted where they can be, but the order of an OrderedDict is part of it."""
    keys = tuple(d)
    if not isinstance(d, OrderedDict):
        try:
            keys = tuple(sorted(keys))
        except TypeError:
            pass
    return _typed_keys(keys)


class _TypedKeys(tuple):
    """Keys that are not all strings: as Static, of them."""

    __slots__ = ()

    def __eq__(self, other):
        return isinstance(other, _TypedKeys) and typed(tuple(self)) == typed(tuple(other))

    def __hash__(self):
        return hash(typed(tuple(self)))


def _typed_keys(keys):
    return keys if {*map(type, keys)} <= {str} else _TypedKeys(keys)


def _static(value, what):
    try:
        return Static(value)
    except TypeError:
        raise _BadNode(f"{what} must be hashable, not {value!r}") from None


def _parts(tree):
    """(children, what comes behind them in the structure) of a node; None of a leaf, also of None."""
    cls = type(tree)
    if cls in LEAF_TYPES or tree is None:
        return None
    if cls in _REGISTERED:
        return _registered_parts(cls, tree)
    if isinstance(tree, dict):
        keys = _keys(tree) if tree else ()
        rest = (keys, tree.default_factory) if issubclass(cls, defaultdict) else (keys,)
        return [tree[k] for k in keys], rest
    if isinstance(tree, (tuple, list)):
        return tree, ()
    if hasattr(cls, "__dataclass_fields__"):
        names, static = _fields_of(cls)
        try:
            children = [getattr(tree, n) for n in names]
            values = tuple([getattr(tree, n) for n in static])
        except AttributeError as e:
            raise _BadNode(f"a {cls.__name__} without a value of its field: {e}") from None
        for n, v in zip(static, values):
            _static(v, f"the static field {n} of {cls.__name__}")
        return children, (names, Static(values))
    return None


def _registered_parts(cls, tree):
    parts = _REGISTERED[cls][0](tree)
    if not isinstance(parts, tuple) or len(parts) != 2 or not isinstance(parts[0], (tuple, list, dict)):
        raise _BadNode(f"flatten of {cls.__name__} must give (children, rest), not {parts!r}")
    children, rest = parts
    names = _typed_keys(tuple(children)) if isinstance(children, dict) else tuple(range(len(children)))
    values = list(children.values()) if isinstance(children, dict) else list(children)
    return values, (names, _static(rest, f"the rest of {cls.__name__}"))


def _flatten(tree, leaves):
    cls = type(tree)
    if cls is tuple or cls is list:
        return (cls, tuple([_flatten(x, leaves) for x in tree]))
    if tree is None:
        return None
    parts = None if cls in LEAF_TYPES else _parts(tree)
    if parts is None:
        leaves.append(tree)
        return LEAF
    return (cls, tuple([_flatten(x, leaves) for x in parts[0]]), *parts[1])


def flatten(tree):
    """(the leaves in order, the structure)."""
    leaves = []
    try:
        return leaves, _flatten(tree, leaves)
    except _BadNode as e:
        raise UserError("tree-node", f"{_place(_find_bad(tree, ''))}{e}") from None
    except RecursionError:
        raise UserError("tree-node", "a tree is nested too deeply to be taken apart, or holds itself") from None


def _find_bad(tree, path):
    """The path of the first node that cannot be taken apart; None: there is none."""
    try:
        parts = _parts(tree)
    except _BadNode:
        return path
    if parts is None:
        return None
    for name, child in zip(_names(type(tree), len(parts[0]), parts[1]), parts[0]):
        found = _find_bad(child, _join(path, name))
        if found is not None:
            return found
    return None


def _unflatten(structure, leaves):
    if structure == LEAF:
        return next(leaves)
    if structure is None:
        return None
    cls, children = structure[:2]
    values = [_unflatten(c, leaves) for c in children]
    if cls is list:
        return values
    if cls is tuple:
        return tuple(values)
    if cls in _REGISTERED:
        return _REGISTERED[cls][1](structure[3].value, tuple(values))
    if issubclass(cls, dict):
        made = cls(structure[3]) if len(structure) > 3 else cls()
        made.update(zip(structure[2], values))
        return made
    if hasattr(cls, "__dataclass_fields__") and len(structure) > 3:
        made = object.__new__(cls)  # neither __init__ nor __post_init__: leaves need not be arrays
        for name, value in (*zip(structure[2], values), *zip(_fields_of(cls)[1], structure[3].value)):
            object.__setattr__(made, name, value)
        return made
    return cls(*values) if hasattr(cls, "_fields") else cls(values)


def unflatten(structure, leaves):
    """The tree of that structure with these leaves."""
    return _unflatten(structure, iter(leaves))


# ---- what a structure says


def described(structure):
    """A structure as a reader knows it: (*, [*], {"a": *}), where * is an array."""
    if structure == LEAF or structure is None:
        return str(structure)
    cls, parts = structure[0], [described(c) for c in structure[1]]
    name = "" if cls in (tuple, list, dict) else cls.__name__
    if len(structure) > 3 and isinstance(structure[3], Static):
        shown = [f"{n}={p}" for n, p in zip(structure[2], parts)]
        static = _fields_of(cls)[1] if cls not in _REGISTERED else ()
        shown += [f"{n}={v!r}" for n, v in zip(static, structure[3].value)]
        return f"{name}({', '.join(shown)})"
    if issubclass(cls, dict):
        return name + "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(structure[2], parts)) + "}"
    if hasattr(cls, "_fields"):
        return f"{name}({', '.join(f'{n}={p}' for n, p in zip(cls._fields, parts))})"
    inside = ", ".join(parts)
    return f"{name}[{inside}]" if issubclass(cls, list) else f"{name}({inside}{',' * (len(parts) == 1)})"


def _names(cls, count, rest):
    """What leads to each child of a node."""
    return rest[0] if rest else getattr(cls, "_fields", range(count))


def _join(path, name):
    return f"{path}.{name}" if path else str(name)


def paths(structure, path=""):
    """The path of each leaf, in order."""
    if structure == LEAF:
        return [path]
    if structure is None:
        return []
    names = _names(structure[0], len(structure[1]), structure[2:])
    return [p for name, child in zip(names, structure[1]) for p in paths(child, _join(path, name))]


def _place(path):
    return f"{path}: " if path else ""


def converted(leaves, structure, convert, what):
    """convert(leaf) of each leaf; an error says where in `what`, "argument" or "result", the leaf stands."""
    try:
        return [convert(x) for x in leaves]
    except UserError as error:
        for path, x in zip(paths(structure), leaves):
            try:
                convert(x)
            except UserError:
                if what == "argument":  # the structure is that of (args, kwargs)
                    path = path.partition(".")[2]
                hint = "; a field that is none may be an rlx.static_field()" if error.code == "array-like" else ""
                where = f"{what} {path}" if path else what
                raise type(error)(error.code, f"{where}: {error.message}{hint}", error.where) from None
        raise


# ---- for users


def tree_leaves(tree):
    """The leaves in order."""
    return flatten(tree)[0]


def tree_structure(tree):
    """The structure: a hashable value, equal for trees that are built alike."""
    return flatten(tree)[1]


def tree_flatten_with_path(tree):
    """([(path, leaf)], the structure), where a path is a string such as "layers.0.w"."""
    leaves, structure = flatten(tree)
    return list(zip(paths(structure), leaves)), structure


def _equal_leaves(what, structure, rest):
    others = []
    for r in rest:
        more, same = flatten(r)
        if same != structure:
            raise ValueError(f"{what}: the trees differ: {described(structure)} and {described(same)}")
        others.append(more)
    return others


def tree_map(f, tree, *rest):
    """f on each leaf (and the leaves of equally built trees beside it)."""
    leaves, structure = flatten(tree)
    others = _equal_leaves("tree_map", structure, rest)
    return unflatten(structure, [f(*xs) for xs in zip(leaves, *others)])


def tree_map_with_path(f, tree, *rest):
    """f(path, leaf, ..) on each leaf (and the leaves of equally built trees beside it); a path is a string such as
    "layers.0.w"."""
    leaves, structure = flatten(tree)
    others = _equal_leaves("tree_map_with_path", structure, rest)
    return unflatten(structure, [f(*xs) for xs in zip(paths(structure), leaves, *others)])


def spread(prefix, tree):
    """A value per leaf of the tree, from a tree of values that may stop early: a number stands for all below it.

    None is a value here.
    """
    if isinstance(prefix, (tuple, list)) and isinstance(tree, (tuple, list)) and len(prefix) == len(tree):
        return [v for p, t in zip(prefix, tree) for v in spread(p, t)]
    if isinstance(prefix, dict) and isinstance(tree, dict) and prefix.keys() == tree.keys():
        return [v for k in _keys(tree) for v in spread(prefix[k], tree[k])]
    parts = _parts(prefix)
    if parts is None:
        return [prefix] * len(flatten(tree)[0])
    if type(prefix) is type(tree) and not isinstance(prefix, (tuple, list, dict)):
        return [v for p, t in zip(parts[0], _parts(tree)[0]) for v in spread(p, t)]
    raise ValueError(f"the axes {prefix!r} do not fit the arguments' structure")
