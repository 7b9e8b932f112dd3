"""Trees: nested tuples, lists, dicts and None with arrays at the leaves.

    leaves, tree = flatten({"w": w, "b": (b1, b2)})
    same = unflatten(tree, leaves)

A tree's structure is a hashable value. Dicts are ordered by key where the keys can be ordered; named tuples keep their
class.
"""

LEAF = "*"


def _sorted_keys(d):
    try:
        return tuple(sorted(d))
    except TypeError:
        return tuple(d)


def _flatten(tree, leaves):
    cls = type(tree)
    if cls is tuple or cls is list:
        return (cls, tuple([_flatten(x, leaves) for x in tree]))
    if cls is dict:
        keys = _sorted_keys(tree) if tree else ()
        return (dict, tuple([_flatten(tree[k], leaves) for k in keys]), keys)
    if tree is None:
        return None
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
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
    if cls is dict:
        return dict(zip(structure[2], values))
    return tuple(values) if cls is tuple else cls(*values)


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
            raise ValueError(f"tree_map: the trees differ: {structure} and {same}")
        others.append(more)
    return unflatten(structure, [f(*xs) for xs in zip(leaves, *others)])


def spread(prefix, tree):
    """A value per leaf of the tree, from a tree of values that may stop early: a number stands for all below it.

    None is a value here.
    """
    if isinstance(prefix, (tuple, list)) and isinstance(tree, (tuple, list)) and len(prefix) == len(tree):
        return [v for p, t in zip(prefix, tree) for v in spread(p, t)]
    if isinstance(prefix, dict) and isinstance(tree, dict) and prefix.keys() == tree.keys():
        return [v for k in _sorted_keys(tree) for v in spread(prefix[k], tree[k])]
    if isinstance(prefix, (tuple, list, dict)):
        raise ValueError(f"the axes {prefix!r} do not fit the arguments' structure")
    return [prefix] * len(flatten(tree)[0])
