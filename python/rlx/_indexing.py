"""x[index] with NumPy's rules.

A concrete array in memory of the host is indexed by NumPy itself, so nothing is compiled for it. A traced one, or one
that lies elsewhere, becomes slices, reversals and a gather. Masks would make the size of a traced result depend on
values and are refused; those of an array that lies elsewhere are NumPy's, on a copy.
"""

import numpy as np

from rlx import _core, op
from rlx._backend import use_backend
from rlx._dims import at_most, is_dim, less, pin, same
from rlx._errors import UserError, UserIndexError

_INT64 = [name for name, *_ in _core.dtypes()].index("i64")


def get(x, index):
    items = index if isinstance(index, tuple) else (index,)
    traced = x._traced or any(map(_is_unknown, items))
    if not traced and not x._on_host() and not any(map(_is_mask, items)):
        with use_backend(x.device):
            return _get_traced(x, items)
    if not traced:
        items = tuple(i.numpy() if isinstance(i, _core.ArrayBase) else i for i in items)
        try:
            return x._from_raw(x._raw()[items], x.dtype).to_device(x.device)
        except IndexError as e:
            raise UserIndexError("index-range", str(e)) from None
    return _get_traced(x, items)


def _is_unknown(i):
    """Whether an index is a value or a size of a program that is being traced, or has one."""
    if isinstance(i, slice):
        return is_dim(i.start) or is_dim(i.stop) or is_dim(i.step)
    return is_dim(i) or (isinstance(i, _core.ArrayBase) and i._traced) or (type(i) is list and any(map(_is_unknown, i)))


def _same(a, b):
    return len(a) == len(b) and all(map(same, a, b))


def _is_array(i):
    return isinstance(i, (_core.ArrayBase, np.ndarray, list)) or (isinstance(i, np.generic) and not np.isscalar(i))


def _is_mask(i):
    return isinstance(i, (bool, np.bool_)) or (_is_array(i) and np.asarray(i).dtype == bool)


def _is_truth(i):
    return isinstance(i, (bool, np.bool_)) or (
        _is_array(i) and not isinstance(i, list) and i.ndim == 0 and i.dtype == bool
    )


def _by_truth(x, items):
    """x[True] has a further axis of size 1, x[False] one of size 0, as in NumPy."""
    if len(items) > 1:
        raise UserError("index-dtype", "a traced array takes a bool as its only index; use None for a new axis")
    if isinstance(items[0], _core.ArrayBase) and items[0]._traced:
        raise UserError("index-dtype", "a traced bool cannot be an index: the size of the result depends on it")
    y = op.reshape(x, shape=(1, *x.shape))
    return y if items[0] else y[:0]


def _filled(x, items):
    """The items with the ellipsis written out, one per axis (and None for new axes)."""
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    if used > x.ndim:
        raise UserIndexError("index-range", f"{used} indices for an array of rank {x.ndim}")
    if sum(1 for i in items if i is Ellipsis) > 1:
        raise UserIndexError("index-range", "an index can have one ellipsis only")
    rest = [slice(None)] * (x.ndim - used)
    at = next((k for k, i in enumerate(items) if i is Ellipsis), len(items))
    return [*items[:at], *rest, *items[at + 1 :]]


def _get_traced(x, items):
    if any(map(_is_truth, items)):
        return _by_truth(x, items)
    if any(map(_is_array, items)):  # then numbers count as arrays, which decides where the result's axes are
        items = [_core.scalar(i, _INT64) if is_dim(i) else np.asarray(i) if _is_place(i) else i for i in items]
    starts, limits, strides, flipped, shape = [], [], [], [], []
    arrays = []  # (axis of the sliced and reshaped array, indices from its beginning)
    axis = 0
    for i in _filled(x, items):
        if i is None:
            shape.append(1)
            continue
        size = x.shape[axis]
        if isinstance(i, slice):
            start, limit, step, count = _range(i, size)
            if step < 0:
                flipped.append(axis)
            shape.append(count)
        elif _is_array(i):
            arrays.append((len(shape), check_places(i, size, axis)))
            start, limit, step = 0, size, 1
            shape.append(size)
        else:
            start, limit, step = _place(i, size, axis)
        starts.append(start), limits.append(limit), strides.append(abs(step))
        axis += 1
    whole = _same(starts, [0] * x.ndim) and _same(limits, x.shape) and strides == [1] * x.ndim
    y = x if whole else op.slice(x, start=starts, limit=limits, stride=strides)
    if flipped:
        y = op.reverse(y, axes=flipped)
    if not _same(shape, y.shape):
        y = op.reshape(y, shape=shape)
    return _gathered(y, arrays) if arrays else y


def _is_place(i):
    return hasattr(i, "__index__") and not _is_array(i)


def _place(i, size, axis):
    """start, limit, step of one place."""
    if is_dim(i):
        i = i + size if at_most(i, -1) else i
        return i, i + 1, 1
    try:
        i = i.__index__()
    except (AttributeError, TypeError):
        raise UserIndexError("index-range", f"{i!r} is not an index") from None
    if isinstance(size, int):
        if not -size <= i < size:
            raise UserIndexError("index-range", f"index {i} is out of range for axis {axis} of size {size}")
        i %= size
    elif i < 0:
        i = size + i
    return i, i + 1, 1


def _range(s, size):
    """start, limit, step (of the slice op; a negative step means: then reversed) and number of places."""
    if is_dim(size) or _is_unknown(s):
        return _symbolic_range(s, size)
    start, stop, step = s.indices(size)
    count = len(range(start, stop, step))
    if count == 0:
        return 0, 0, 1, 0
    last = start + (count - 1) * step
    return (start, last + 1, step, count) if step > 0 else (last, start + 1, step, count)


def _symbolic_range(s, size):
    """As _range, where sizes are symbols."""
    step = 1 if s.step is None else pin("the step of a slice", s.step) if is_dim(s.step) else s.step.__index__()
    if step == 0:
        raise ValueError("slice step cannot be zero")
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def bound(place, default):
        if place is None:
            return default
        place = place if is_dim(place) else place.__index__()
        place = place + size if at_most(place, -1) else place
        return low if less(place, low) else high if less(high, place) else place

    start, stop = (bound(s.start, low), bound(s.stop, high)) if step > 0 else (bound(s.start, high), bound(s.stop, low))
    first, behind = (start, stop) if step > 0 else (stop, start)
    if less(behind, first):
        return 0, 0, 1, 0
    count = (behind - first + abs(step) - 1) // abs(step)
    if step > 0:
        return start, stop, step, count
    return start + (count - 1) * step, start + 1, step, count


def check_places(i, size, axis):
    """Indices along an axis, counted from its beginning; those that are known now must lie in it."""
    from rlx._array import asarray

    i = asarray(i, "int64") if isinstance(i, list) and np.size(i) == 0 else asarray(i)
    if i.dtype.kind != "integer":
        raise UserError(
            "index-dtype",
            f"indices of an axis are integers, got {i.dtype}; a traced array takes no mask: use rlx.where",
        )
    if i._traced or not isinstance(size, int):
        i = i.astype("int64")
        return op.select(op.lt(i, 0), op.add(i, size), i)
    places = i.numpy().astype(np.int64)
    wrong = places[(places < -size) | (places >= size)]
    if wrong.size:
        raise UserIndexError("index-range", f"index {wrong[0]} is out of range for axis {axis} of size {size}")
    return asarray(np.where(places < 0, places + size, places))


def _outside(i, n):
    return op.logical_or(op.ge(i, n), op.lt(i, 0))


def _gathered(y, arrays):
    """y with the axes of integer arrays replaced: next to each other their place is kept, else it is in front."""
    axes, indices = [a for a, _ in arrays], [i for _, i in arrays]
    if len(axes) == 1:
        return op.gather(y, indices[0], axis=axes[0])
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    place = axes[0] if adjacent else 0
    rest = [a for a in range(y.ndim) if a not in axes]
    order = rest[:place] + axes + rest[place:]
    y = op.transpose(y, perm=order)
    sizes = [y.shape[place + k] for k in range(len(axes))]
    flat, outside = indices[0], _outside(indices[0], sizes[0])
    for i, n in zip(indices[1:], sizes[1:]):
        flat = op.add(op.mul(flat, n), i)
        outside = op.logical_or(outside, _outside(i, n))
    flat = op.select(outside, -1, flat)  # raises when run
    shape = list(y.shape)
    merged = 1
    for n in sizes:
        merged *= n
    y = op.reshape(y, shape=[*shape[:place], merged, *shape[place + len(axes) :]])
    return op.gather(y, flat, axis=place)
