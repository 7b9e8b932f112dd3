"""Functions that arrange elements, named as in NumPy and with NumPy's arguments.

Where the table has an op of the same name, `rlx.op.<name>` is that op; its keywords are taken here, too.
"""

import operator

import numpy as np

from rlx import op
from rlx._array import Array, asarray
from rlx._dims import at_most, is_dim, same
from rlx._errors import UserError
from rlx._reductions import _given, axes_of


def reshape(x, /, shape):
    """The same elements under another shape; one size may be -1."""
    return asarray(x).reshape(shape)


def transpose(x, /, axes=None, *, perm=None):
    """The axes in another order; without axes: reversed."""
    axes = perm if axes is None else axes
    return asarray(x).transpose() if axes is None else asarray(x).transpose(tuple(axes))


def squeeze(x, /, axis=None, *, axes=None):
    """Without the axes of size 1, or without the given ones."""
    x, axis = asarray(x), _given("squeeze", axis, axes)
    if axis is None:
        return x.reshape([s for s in x.shape if s != 1])
    drop = axes_of(x, axis)
    for a in drop:
        if x.shape[a] != 1:
            raise UserError("squeeze-dim", f"squeeze: axis {a} of {x._type} is not of size 1")
    return x.reshape([s for i, s in enumerate(x.shape) if i not in drop])


def expand_dims(x, /, axis=None, *, axes=None):
    """With new axes of size 1 at the given places of the result."""
    axis = _given("expand_dims", axis, axes)
    if axis is None:
        raise TypeError("expand_dims: say at which axis")
    return op.expand_dims(x, axes=axis)


def concatenate(arrays, /, axis=0):
    """Arrays one after the other along an axis; in a row as they are for None."""
    parts = list(arrays)
    if axis is None:
        parts, axis = [asarray(p).reshape(-1) for p in parts], 0
    return op.concat(*parts, axis=axis)


def concat(*arrays, axis=0):
    """Arrays one after the other along an axis: a list of them, or each as an argument."""
    if len(arrays) == 2 and isinstance(arrays[0], (list, tuple)) and (arrays[1] is None or isinstance(arrays[1], int)):
        arrays, axis = arrays[:1], arrays[1]
    one = len(arrays) == 1 and isinstance(arrays[0], (list, tuple))
    return concatenate(arrays[0] if one else arrays, axis)


def stack(arrays, /, *more, axis=0):
    """Arrays side by side along a new axis: a list of them, the slices of one array, or each as an argument."""
    several = isinstance(arrays, (list, tuple)) or np.ndim(arrays) > 0
    if several and len(more) == 1 and isinstance(more[0], int) and not isinstance(more[0], bool):
        more, axis = (), more[0]
    if more:
        return op.stack(arrays, *more, axis=axis)
    if not several:
        raise TypeError("stack: takes several arrays, or one of rank 1 or more")
    return op.stack(*arrays, axis=axis)


def split(x, indices_or_sections=None, /, axis=0, *, sizes=None):
    """x cut along an axis into a number of equal parts, before the given indices, or into parts of the given sizes; a
    tuple."""
    x = asarray(x)
    (along,) = axes_of(x, axis)
    n, cut = x.shape[along], indices_or_sections
    if sizes is None and cut is None:
        raise TypeError("split: say into how many parts, before which indices or into which sizes")
    if sizes is None and hasattr(cut, "__len__"):
        bounds = [0, *(c if is_dim(c) else operator.index(c) for c in cut), n]
        return tuple(x[(slice(None),) * along + (slice(a, b),)] for a, b in zip(bounds, bounds[1:]))
    if sizes is None:
        count = operator.index(cut)
        if count < 1 or not at_most(n % count, 0):
            raise UserError("split-sizes", f"split: {n} elements cannot be cut into {count} equal parts")
        sizes = [n // count] * count
    return op.split(x, axis=along, sizes=sizes)


def tile(x, repeats=None, /, *, reps=None):
    """x as a whole, repeats[i] times along axis i; fewer entries belong to the last axes."""
    x = asarray(x)
    repeats = reps if repeats is None else repeats
    repeats = list(repeats) if hasattr(repeats, "__len__") else [repeats]
    return op.tile(x, repeats=[1] * (x.ndim - len(repeats)) + repeats)


def repeat(x, repeats, /, axis=None):
    """Each element along an axis, or of all in a row, several times; a number per place may be given."""
    x = asarray(x)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    if hasattr(repeats, "__len__"):
        (along,) = axes_of(x, axis)
        return op.gather(x, np.repeat(np.arange(x.shape[along]), np.asarray(repeats)), axis=along)
    return op.repeat(x, repeats=repeats, axis=axis)


def roll(x, shift=None, /, axis=None, *, shifts=None, axes=None):
    """x moved along axes, or all elements in a row; what leaves at one end enters at the other."""
    x, axis = asarray(x), _given("roll", axis, axes)
    shift = shifts if shift is None else shift
    if axis is None:
        return op.roll(x.reshape(-1), shifts=[shift], axes=[0]).reshape(x.shape)
    shift, axis = (list(v) if hasattr(v, "__len__") else [v] for v in (shift, axis))
    count = max(len(shift), len(axis))
    shift, axis = (v * count if len(v) == 1 else v for v in (shift, axis))
    return op.roll(x, shifts=shift, axes=axis)


def meshgrid(*xs, indexing="xy", xy=None):
    """For vectors of sizes n_i, arrays of the shape of all sizes that repeat vector i along axis i; the first two axes
    are swapped with indexing "xy". A tuple."""
    if indexing not in ("xy", "ij"):
        raise UserError("attribute", f'meshgrid: the indexing is "xy" or "ij", not {indexing!r}')
    xs = xs[0] if len(xs) == 1 and isinstance(xs[0], (list, tuple)) and xy is not None else xs
    arrays = [asarray(x) for x in xs]
    if len({a.dtype for a in arrays}) < 2:
        return op.meshgrid(*arrays, xy=indexing == "xy" if xy is None else xy)
    places = op.meshgrid(*[np.arange(a.size) for a in arrays], xy=indexing == "xy" if xy is None else xy)
    return tuple(op.gather(a.reshape(-1), at, axis=0) for a, at in zip(arrays, places))


def _matrices(x):
    """x; a vector as the rows of a square matrix."""
    x = asarray(x)
    return op.broadcast(x, shape=(*x.shape, *x.shape)) if x.ndim == 1 else x


def tril(x, /, k=0):
    """The elements on and below the diagonal k; zeros above. A vector stands for each row of a square matrix."""
    return op.tril(_matrices(x), k=k)


def triu(x, /, k=0):
    """The elements on and above the diagonal k; zeros below. A vector stands for each row of a square matrix."""
    return op.triu(_matrices(x), k=k)


def diagonal(x, /, offset=0, axis1=0, axis2=1):
    """A diagonal of the matrices along two axes, as the last axis."""
    x = asarray(x)
    if any(is_dim(s) for s in x.shape) and -x.ndim <= min(axis1, axis2) and max(axis1, axis2) < x.ndim:
        # What of the two axes the diagonal reaches: a square, whichever is the longer one.
        axes = [axis1 % x.ndim, axis2 % x.ndim]
        begin = [max(-offset, 0), max(offset, 0)]
        rows, columns = (x.shape[a] - b for a, b in zip(axes, begin))
        if axes[0] != axes[1] and not same(rows, columns) and at_most(1, rows) and at_most(1, columns):
            length = rows if at_most(rows, columns) else columns
            start, limit = [0] * x.ndim, list(x.shape)
            for a, b in zip(axes, begin):
                start[a], limit[a] = b, length + b
            x, offset = op.slice(x, start=start, limit=limit, stride=[1] * x.ndim), 0
    return op.diagonal(x, offset=offset, axis1=axis1, axis2=axis2)


def _pad_pairs(width, rank):
    """(before, behind) of each axis; NumPy's rules, for sizes too."""
    pairs = [width] if not isinstance(width, (list, tuple)) else list(width)
    if not any(is_dim(n) for p in pairs for n in (p if isinstance(p, (list, tuple)) else [p])):
        return np.broadcast_to(np.asarray(width), (rank, 2)).tolist()
    if not any(isinstance(p, (list, tuple)) for p in pairs):  # for all axes
        pairs = [pairs]
    pairs = [tuple(p) * 2 if len(p) == 1 else tuple(p) for p in pairs]
    pairs = pairs * rank if len(pairs) == 1 else pairs
    if len(pairs) != rank or any(len(p) != 2 for p in pairs):
        raise ValueError(f"pad: {width!r} is no pair of widths for each of {rank} axes")
    return pairs


_PAD_MODES = ("edge", "reflect", "symmetric", "wrap")


def pad(x, pad_width=None, /, mode="constant", *, constant_values=0, low=None, high=None):
    """x with further elements around it.

    pad_width is a number, a pair (before, behind) for all axes, or a pair for each. The mode is "constant", with
    constant_values, or one of edge, reflect, symmetric, wrap. With low and high it is the op: pad(x, value, low, high).
    """
    x = asarray(x)
    if low is not None or high is not None:
        return op.pad(x, 0 if pad_width is None else pad_width, low=low, high=high)
    if pad_width is None:
        raise TypeError("pad: say how many elements to add")
    pairs = _pad_pairs(pad_width, x.ndim)
    low, high = [before for before, _ in pairs], [behind for _, behind in pairs]
    if any(at_most(n, -1) for n in low + high):
        raise UserError("pad-width", f"pad: the widths must not be negative, got {pad_width!r}")
    if mode == "constant":
        if hasattr(constant_values, "__len__"):
            raise UserError("attribute", "pad: constant_values must be one number")
        return op.pad(x, asarray(constant_values).astype(x.dtype), low=low, high=high)
    if mode not in _PAD_MODES:
        raise UserError("attribute", f"pad: the mode is constant or one of {', '.join(_PAD_MODES)}, not {mode!r}")
    return op.pad_mode(x, low=low, high=high, mode=mode)


METHODS = (squeeze, expand_dims, split, tile, repeat, roll, tril, triu, diagonal, pad)
for _method in METHODS:
    setattr(Array, _method.__name__, _method)
