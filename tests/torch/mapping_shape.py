"""Shapes, parts and indices: part of mapping.py's table, which see."""

import itertools
import math

import numpy as np
import rlx
from helpers import floats, is_array, shape_of, summed


def _cat(xs, dim=0):
    return rlx.op.concat(*([x for x in xs if x.shape != (0,)] or xs), axis=dim)  # [0] goes with any shape


def _at_least(rank):
    """atleast_1d and its kin: axes in front, the third behind."""

    def one(x):
        x = x.reshape(1) if x.ndim == 0 and rank > 0 else x
        x = x.expand_dims(0) if x.ndim == 1 and rank > 1 else x
        return x.expand_dims(-1) if x.ndim == 2 and rank > 2 else x

    return lambda *xs: [one(x) for x in (xs[0] if isinstance(xs[0], (list, tuple)) else xs)]


def _joined(rank, axis):
    """hstack and its kin."""

    def call(xs):
        xs = _at_least(rank)(xs)
        return rlx.op.concat(*xs, axis=min(axis, xs[0].ndim - 1))

    return call


def _column_stack(xs):
    return rlx.op.concat(*[x.reshape(-1, 1) if x.ndim < 2 else x for x in xs], axis=1)


def _block_diagonal(*xs):
    xs = [x.reshape((1,) * (2 - x.ndim) + tuple(x.shape)) for x in xs]
    width, at, rows = sum(x.shape[1] for x in xs), 0, []
    for x in xs:
        rows.append(rlx.op.pad(x, rlx.zeros((), x.dtype), low=[0, at], high=[0, width - at - x.shape[1]]))
        at += x.shape[1]
    return rlx.op.concat(*rows, axis=0)


def _cartesian(*xs):
    return rlx.stack([g.reshape(-1) for g in rlx.op.meshgrid(*xs, xy=False)], -1) if len(xs) > 1 else xs[0]


def _meshgrid(*xs, indexing="ij"):
    xs = xs[0] if isinstance(xs[0], (list, tuple)) else xs
    return rlx.op.meshgrid(*[x.reshape(-1) for x in xs], xy=indexing == "xy")


def _reshape(x, *shape):
    return rlx.op.reshape(x, shape=shape_of(*shape))


def _expand(x, *shape):
    shape = shape_of(*shape)
    pad = len(shape) - x.ndim
    return rlx.broadcast(x, shape=[x.shape[i - pad] if s == -1 else s for i, s in enumerate(shape)])


def _broadcast_tensors(*xs):
    shape = np.broadcast_shapes(*[x.shape for x in xs])
    return [rlx.broadcast(x, shape=shape) for x in xs]


def _transpose(x, a, b):
    return rlx.swap_axes(x, axis1=a, axis2=b) if x.ndim else x


def _permute(x, *dims):
    return x.transpose(shape_of(*dims))


def _move(x, source, destination):
    return rlx.move_axis(x, source=source, destination=destination)


def _flatten(x, start_dim=0, end_dim=-1):
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start_dim % x.ndim, end_dim % x.ndim
    return _reshape(x, *x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])


def _unflatten(x, dim, sizes):
    dim %= x.ndim
    return _reshape(x, *x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def _squeeze(x, dim=None):
    """Axes of another size than 1 stay."""
    if x.ndim == 0:
        return x
    axes = range(x.ndim) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
    axes = [a % x.ndim for a in axes if x.shape[a] == 1]
    return rlx.op.squeeze(x, axes=axes) if axes else x


def _sum_to_size(x, *shape):
    shape = shape_of(*shape)
    added = x.ndim - len(shape)
    axes = [a for a in range(x.ndim) if a < added or (shape[a - added] == 1 and x.shape[a] != 1)]
    return summed(rlx.reduce_sum)(x, axes=axes).reshape(shape) if axes or not shape else x


def _part(x, dim, start, limit, step=1):
    """x[start:limit:step] along one axis, by the slice op."""
    dim %= x.ndim
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[dim], limits[dim], strides[dim] = start, limit, step
    return rlx.slice(x, start=starts, limit=limits, stride=strides)


def _narrow(x, dim, start, length):
    start = start.item() if is_array(start) else start
    start %= x.shape[dim] or 1
    return _part(x, dim, start, start + length)


def _slice(x, dim=0, start=None, end=None, step=1):
    start, limit, step = slice(start, end, step).indices(x.shape[dim])
    return _part(x, dim, start, max(start, limit), step)


def _select(x, dim, index):
    return rlx.op.squeeze(_narrow(x, dim, index, 1), axes=[dim])


def _split(x, size, dim=0):
    n = x.shape[dim]
    if isinstance(size, (list, tuple)):
        return rlx.op.split(x, axis=dim, sizes=list(size))
    return rlx.op.split(x, axis=dim, sizes=[min(size, n - at) for at in range(0, n, size)])


def _chunk(x, chunks, dim=0):
    return _split(x, -(-x.shape[dim] // chunks), dim)


def _tensor_split(x, where, dim=0):
    n = x.shape[dim]
    where = where.tolist() if is_array(where) else where
    if isinstance(where, int):
        return rlx.op.split(x, axis=dim, sizes=[n // where + (i < n % where) for i in range(where)])
    cuts = [0, *[min(w, n) for w in where], n]
    return rlx.op.split(x, axis=dim, sizes=[b - a for a, b in itertools.pairwise(cuts)])


def _diff(x, n=1, dim=-1, prepend=None, append=None):
    if n:
        x = rlx.op.concat(*[y for y in (prepend, x, append) if y is not None], axis=dim)
    for _ in range(n):
        size = x.shape[dim]
        x = rlx.sub(_part(x, dim, min(1, size), size), _part(x, dim, 0, max(size - 1, 0)))
    return x


def _areas(y, x=None, dx=1, dim=-1):
    """Twice the areas between neighbours."""
    n = y.shape[dim]
    heights = _part(y, dim, 1, n) + _part(y, dim, 0, n - 1)
    return heights * (dx if x is None else _diff(x, 1, dim))


def _trapezoid(f):
    """The areas, summed or summed up."""

    def call(y, x=None, dx=1, dim=-1):
        y = y if x is not None or isinstance(dx, int) else floats(lambda y: y)(y)
        return floats(rlx.div)(f(_areas(y, x, dx, dim), dim), 2)

    return call


def _roll(x, shifts, dims=None):
    if dims is None:
        return rlx.op.roll(x.reshape(-1), shifts=[shifts], axes=[0]).reshape(x.shape)
    return rlx.op.roll(x, shifts=shape_of(shifts), axes=shape_of(dims)) if x.ndim else x


def _rot90(x, k=1, dims=(0, 1)):
    a, b = dims
    if k % 4 == 2:
        return rlx.reverse(x, axes=[a, b])
    if k % 4 == 1:
        return rlx.swap_axes(rlx.reverse(x, axes=[b]), axis1=a, axis2=b)
    return rlx.reverse(rlx.swap_axes(x, axis1=a, axis2=b), axes=[b]) if k % 4 == 3 else x


def _diagonal(x, offset=0, dim1=0, dim2=1):
    return rlx.op.diagonal(x, offset=offset, axis1=dim1, axis2=dim2)


def _diag(x, diagonal=0):
    return rlx.diag_embed(x, offset=diagonal) if x.ndim == 1 else _diagonal(x, diagonal)


def _diag_embed(x, offset=0, dim1=-2, dim2=-1):
    return rlx.move_axis(rlx.diag_embed(x, offset=offset), source=[-2, -1], destination=[dim1, dim2])


def _unfold(x, dim, size, step):
    if x.ndim == 0:
        return x.reshape(1)
    dim %= x.ndim
    places = np.arange(0, x.shape[dim] - size + 1, step)[:, None] + np.arange(size)
    return rlx.move_axis(rlx.gather(x, places, axis=dim), source=[dim + 1], destination=[-1])


def _repeat(x, *repeats):
    repeats = shape_of(*repeats)
    return rlx.op.tile(x, repeats=[1] * (x.ndim - len(repeats)) + repeats)


def _repeat_interleave(x, repeats, dim=None, output_size=None):
    x, dim = (x.reshape(-1), 0) if dim is None else (x, dim)
    if is_array(repeats) and repeats.ndim:
        return rlx.gather(x, np.repeat(np.arange(x.shape[dim]), repeats.tolist()), axis=dim)
    return rlx.op.repeat(x, repeats=int(repeats), axis=dim)


def _wrapped(index, n):
    """Negative indices count from the end."""
    return rlx.where(index < 0, index + n, index)


def _take(x, index):
    return rlx.gather(x.reshape(-1), _wrapped(index, x.size), axis=0)


def _put(x, index, source, accumulate=False):
    index = _wrapped(index, x.size).reshape(-1)
    mode = "add" if accumulate else "set"
    return rlx.scatter(x.reshape(-1), index, source.reshape(-1), axis=0, mode=mode).reshape(x.shape)


def _ranked(f):
    """An op by indices along an axis, of which rank 0 has one."""

    def call(x, dim, index, *args, **kwargs):
        if x.ndim:
            return f(x, dim % x.ndim, index, *args, **kwargs)
        args = [a.reshape(-1) if is_array(a) and a.ndim == 0 else a for a in args]
        return f(x.reshape(1), 0, index.reshape(-1), *args, **kwargs).reshape(())

    return call


def _corner(x, index, dim):
    """The part of x beside which the index stands: PyTorch's may be smaller along the other axes."""
    return rlx.slice(x, limit=[n if a == dim else i for a, (n, i) in enumerate(zip(x.shape, index.shape))])


def _gather(x, dim, index, sparse_grad=False):
    if index.size == 0:
        return rlx.zeros(index.shape, x.dtype)
    if x.ndim == 0:
        return rlx.gather(x.reshape(1), index, axis=0)
    return rlx.take_along_axis(_corner(x, index, dim % x.ndim), index, axis=dim)


def _take_along(x, index, dim=None):
    if dim is None:
        return _take(x, index.reshape(-1))
    dim %= x.ndim
    index = _wrapped(index, x.shape[dim])
    sizes = np.broadcast_shapes(*[(*s[:dim], 1, *s[dim + 1 :]) for s in (x.shape, index.shape)])
    full = lambda y: rlx.broadcast(y, shape=[*sizes[:dim], y.shape[dim], *sizes[dim + 1 :]])
    return rlx.take_along_axis(full(x), full(index), axis=dim)


def _scatter_into(x, dim, index, source, mode):
    """scatter_elements into the part of x that the index covers."""
    if index.size == 0:
        return x
    part = _corner(x, index, dim)
    source = rlx.slice(source, limit=list(index.shape))
    made = rlx.scatter_elements(part, index, source, axis=dim, mode=mode)
    if part.shape == x.shape:
        return made
    return rlx.dynamic_update_slice(x, made, rlx.zeros(x.ndim, "i64"))


def _whole_slices(x, dim, index, source, mode):
    return rlx.scatter(x, index, source, axis=dim, mode=mode)


def _source(x, index, value):
    return value if is_array(value) and value.ndim else rlx.broadcast(rlx.asarray(value, x.dtype), shape=index.shape)


def _scatter(x, dim, index, source=None, value=None, reduce=None):
    source = _source(x, index, value if source is None else source)
    return _scatter_into(x, dim, index, source, {None: "set", "add": "add", "multiply": "mul"}[reduce])


MODES = {"sum": "add", "mean": "add", "prod": "mul", "amin": "min", "amax": "max"}


def _neutral(dtype, mode):
    if mode in ("add", "mul"):
        return int(mode == "mul")
    if dtype.is_floating:
        return math.inf if mode == "min" else -math.inf
    if dtype == "bool":
        return mode == "min"
    limits = np.iinfo(dtype.dtype)
    return int(limits.max if mode == "min" else limits.min)


def _reduced(scatter):
    """scatter_reduce and index_reduce; the mean is a sum divided by a count."""

    def call(x, dim, index, source, reduce, include_self=True):
        mode = MODES[reduce]
        start = x
        if not include_self:
            blank = rlx.full(source.shape, _neutral(x.dtype, mode), x.dtype)
            start = scatter(x, dim, index, blank, "set")
        y = scatter(start, dim, index, source, mode)
        if reduce != "mean":
            return y
        ones = rlx.full(x.shape, 1, x.dtype)
        base = ones if include_self else scatter(ones, dim, index, rlx.zeros(source.shape, x.dtype), "set")
        count = rlx.maximum(scatter(base, dim, index, rlx.full(source.shape, 1, x.dtype), "add"), 1)
        return y / count if x.dtype.is_floating else y // count

    return _ranked(call)


def _index_fill(x, dim, index, value):
    shape = [*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]]
    value = value.reshape(()) if is_array(value) else rlx.asarray(value, x.dtype)
    return rlx.scatter(x, index, rlx.broadcast(value, shape=shape), axis=dim)


def _index_add(x, dim, index, source, alpha=1):
    return rlx.scatter(x, index, source * alpha, axis=dim, mode="add")


def _index_put(x, indices, values, accumulate=False):
    (index,) = indices
    index = np.flatnonzero(index.tolist()) if index.dtype == "bool" else _wrapped(index, x.shape[0])
    values = rlx.broadcast(values, shape=[*index.shape, *x.shape[1:]])
    return rlx.scatter(x, index, values, axis=0, mode="add" if accumulate else "set")


def _select_scatter(x, source, dim, index):
    return rlx.scatter(x, rlx.asarray([index % x.shape[dim]]), source.expand_dims(dim % x.ndim), axis=dim)


def _slice_scatter(x, source, dim=0, start=None, end=None, step=1):
    places = np.arange(x.shape[dim])[start:end:step]
    return rlx.scatter(x, places, source, axis=dim)


def _getitem(x, index):
    """x[index] of a traced array, which is made of our ops. A mask names the places where it is true."""
    index = index if isinstance(index, tuple) else (index,)
    masks = [np.nonzero(np.asarray(i)) if is_array(i) and i.dtype == "bool" else (i,) for i in index]
    return rlx.jit(lambda x: x[tuple(i for m in masks for i in m)])(x)


def _triangle(f):
    return lambda x, diagonal=0: f(x, k=diagonal)


MAPPING = {
    "cat": _cat,
    "stack": lambda xs, dim=0: rlx.stack(xs, dim % (xs[0].ndim + 1)),
    "hstack": _joined(1, 1),
    "vstack": _joined(2, 0),
    "dstack": _joined(3, 2),
    "column_stack": _column_stack,
    "block_diag": _block_diagonal,
    "cartesian_prod": _cartesian,
    "meshgrid:variadic_tensors": _meshgrid,
    "meshgrid:list_of_tensors": _meshgrid,
    "atleast_1d": _at_least(1),
    "atleast_2d": _at_least(2),
    "atleast_3d": _at_least(3),
    "reshape": _reshape,
    "reshape_as": lambda x, y: _reshape(x, *y.shape),
    "view": _reshape,
    "view_as": lambda x, y: _reshape(x, *y.shape),
    "view_copy": _reshape,
    "expand": _expand,
    "expand_as": lambda x, y: _expand(x, *y.shape),
    "expand_copy": _expand,
    "broadcast_to": _expand,
    "broadcast_tensors": _broadcast_tensors,
    "permute": _permute,
    "permute_copy": _permute,
    "transpose": _transpose,
    "transpose_copy": _transpose,
    "movedim": _move,
    "t": lambda x: x.T,
    "t_copy": lambda x: x.T,
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "H": lambda x: rlx.conj(x.T),
    "mH": lambda x: rlx.conj(x.mT),
    "flatten": _flatten,
    "unflatten": _unflatten,
    "ravel": lambda x: _reshape(x, -1),
    "unsqueeze": lambda x, dim: rlx.op.expand_dims(x, axes=[dim]),
    "unsqueeze_copy": lambda x, dim: rlx.op.expand_dims(x, axes=[dim]),
    "squeeze": _squeeze,
    "squeeze_copy": _squeeze,
    "squeeze:multiple": _squeeze,
    "sum_to_size": _sum_to_size,
    "flip": lambda x, dims: rlx.reverse(x, axes=list(dims)) if x.ndim else x,
    "fliplr": lambda x: rlx.reverse(x, axes=[1]),
    "flipud": lambda x: rlx.reverse(x, axes=[0]),
    "roll": _roll,
    "rot90": _rot90,
    "narrow": _narrow,
    "narrow_copy": _narrow,
    "slice": _slice,
    "select": _select,
    "split": _split,
    "split:list_args": _split,
    "split_with_sizes": _split,
    "split_with_sizes_copy": _split,
    "unsafe_split": _split,
    "chunk": _chunk,
    "unsafe_chunk": _chunk,
    "tensor_split": _tensor_split,
    "hsplit": lambda x, where: _tensor_split(x, where, min(1, x.ndim - 1)),
    "vsplit": lambda x, where: _tensor_split(x, where, 0),
    "dsplit": lambda x, where: _tensor_split(x, where, 2),
    "unbind": lambda x, dim=0: rlx.unstack(x, axis=dim),
    "unbind_copy": lambda x, dim=0: rlx.unstack(x, axis=dim),
    "unfold": _unfold,
    "unfold_copy": _unfold,
    "repeat": _repeat,
    "tile": _repeat,
    "repeat_interleave": _repeat_interleave,
    "diff": _diff,
    "trapz": _trapezoid(lambda x, dim: summed(rlx.reduce_sum)(x, axes=[dim])),
    "trapezoid": _trapezoid(lambda x, dim: summed(rlx.reduce_sum)(x, axes=[dim])),
    "cumulative_trapezoid": _trapezoid(lambda x, dim: summed(rlx.op.cumsum)(x, axis=dim)),
    "diag": _diag,
    "diag_embed": _diag_embed,
    "diagflat": lambda x, offset=0: rlx.diag_embed(x.reshape(-1), offset=offset),
    "diagonal": _diagonal,
    "diagonal_copy": _diagonal,
    "tril": _triangle(rlx.op.tril),
    "triu": _triangle(rlx.op.triu),
    "index_select": _ranked(lambda x, dim, index: rlx.gather(x, index, axis=dim)),
    "gather": _gather,
    "take": _take,
    "take_along_dim": _take_along,
    "put": _put,
    "scatter": _ranked(_scatter),
    "scatter_add": _ranked(lambda x, dim, index, source: _scatter_into(x, dim, index, source, "add")),
    **{f"scatter_reduce:{mode}": _reduced(_scatter_into) for mode in MODES},
    "index_fill": _ranked(_index_fill),
    "index_copy": _ranked(lambda x, dim, index, source: rlx.scatter(x, index, source, axis=dim)),
    "index_add": _ranked(_index_add),
    "index_put": _index_put,
    **{f"index_reduce:{mode}": _reduced(_whole_slices) for mode in MODES if mode != "sum"},
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "__getitem__": _getitem,
}
