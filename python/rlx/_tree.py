"""Trees: nested tuples, lists, dicts and None with arrays at the leaves.

    leaves, tree = flatten({"w": w, "b": (b1, b2)})
    same = unflatten(tree, leaves)

A tree's structure is a hashable value. Dicts are ordered by key where the keys can be ordered; named tuples and classes
derived from dict, list and tuple keep their class.
"""

from collections import OrderedDict, defaultdict

LEAF = "*"


def _keys(d):
    """The keys in the order of the leaves: sorted where they can be, but the order of an OrderedDict is part of it."""
    if isinstance(d, OrderedDict):
        return tuple(d)
    try:
        return tuple(sorted(d))
    except TypeError:
        return tuple(d)


def _flatten(tree, leaves):
    cls = type(tree)
    if cls is tuple or cls is list:
        return (cls, tuple([_flatten(x, leaves) for x in tree]))
    if tree is None:
        return None
    if isinstance(tree, dict):
        keys = _keys(tree) if tree else ()
        children = tuple([_flatten(tree[k], leaves) for k in keys])
        return (cls, children, keys, tree.default_factory) if issubclass(cls, defaultdict) else (cls, children, keys)
    if isinstance(tree, (tuple, list)):
        return (cls, tuple([_flatten(x, leaves) for x in tree]))
    leaves.append(tree)
    return LEAF


def flatten(tree):
    """(the leaves in order, the structure)."""
    leaves = []
    return leaves, _flatten(tree, leaves)


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
    if issubclass(cls, dict):
        made = cls(structure[3]) if len(structure) > 3 else cls()
        made.update(zip(structure[2], values))
        return made
    return cls(*values) if hasattr(cls, "_fields") else cls(values)


def described(structure):
    """A structure as a reader knows it: (*, [*], {"a": *}), where * is an array."""
    if structure == LEAF or structure is None:
        return str(structure)
    cls, parts = structure[0], [described(c) for c in structure[1]]
    name = "" if cls in (tuple, list, dict) else cls.__name__
    if issubclass(cls, dict):
        return name + "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(structure[2], parts)) + "}"
    if hasattr(cls, "_fields"):
        return f"{name}({', '.join(f'{n}={p}' for n, p in zip(cls._fields, parts))})"
    inside = ", ".join(parts)
    return f"{name}[{inside}]" if issubclass(cls, list) else f"{name}({inside}{',' * (len(parts) == 1)})"


def unflatten(structure, leaves):
    """The tree of that structure with these leaves."""
    return _unflatten(structure, iter(leaves))


def tree_map(f, tree, *rest):
    """f on each leaf (and the leaves of equally built trees beside it)."""
    leaves, structure = flatten(tree)
    others = []
    for r in rest:
        more, same = flatten(r)
        if same != structure:
            raise ValueError(f"tree_map: the trees differ: {described(structure)} and {described(same)}")
        others.append(more)
    return unflatten(structure, [f(*xs) for xs in zip(leaves, *others)])


def spread(prefix, tree):
    """A value per leaf of the tree, from a tree of values that may stop early: a number stands for all below it.

    None is a value here.
    """
    if isinstance(prefix, (tuple, list)) and isinstance(tree, (tuple, list)) and len(prefix) == len(tree):
        return [v for p, t in zip(prefix, tree) for v in spread(p, t)]
    if isinstance(prefix, dict) and isinstance(tree, dict) and prefix.keys() == tree.keys():
        return [v for k in _keys(tree) for v in spread(prefix[k], tree[k])]
    if isinstance(prefix, (tuple, list, dict)):
        raise ValueError(f"the axes {prefix!r} do not fit the arguments' structure")
    return [prefix] * len(flatten(tree)[0])
