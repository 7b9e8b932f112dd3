"""Reductions, running sums and order, named as in NumPy and with NumPy's arguments.

Where the table has an op of the same name, `rlx.op.<name>` is that op; its keywords are taken here, too. Without an
axis all elements are folded. Sums and products of bools and integers are int64; means of integers are float32, computed
in float64.
"""

import builtins
import math

import numpy as np

from rlx import op
from rlx._array import Array, asarray
from rlx._dtypes import dtype as as_dtype
from rlx._dims import at_most
from rlx._errors import UserError, UserIndexError

_FLOAT, _DOUBLE, _INT = as_dtype("float32"), as_dtype("float64"), as_dtype("int64")


def axes_of(x, axis):
    """The axes counted from 0; all for None."""
    n = x.ndim
    axes = range(n) if axis is None else axis if isinstance(axis, (tuple, list, range)) else (axis,)
    for a in axes:
        if isinstance(a, (bool, np.bool_)):
            raise TypeError(f"an axis is an integer, not {a}")
        if not -n <= a < n:
            raise UserIndexError("axis-range", f"axis {a} is out of range for {x._type}")
    return [a % n for a in axes]


def _given(name, axis, axes):
    if axis is not None and axes is not None:
        raise TypeError(f"{name}: give axis or axes, not both")
    return axis if axes is None else axes


def _widened(x, dtype):
    """x in the dtype of its sums."""
    x = asarray(x)
    if dtype is not None:
        return x.astype(dtype)
    return x.astype(_INT) if x.dtype.kind in ("bool", "integer") else x


def _averaged(fold, x, dtype):
    """fold, a mean of some sort, of x in a dtype; of integers by way of float64."""
    x = asarray(x)
    if dtype is not None:
        return fold(x.astype(dtype))
    return fold(x) if x.dtype.kind in ("floating", "complex") else fold(x.astype(_DOUBLE)).astype(_FLOAT)


def sum(x, /, axis=None, dtype=None, *, keepdims=False):
    """The sum along the axes, or of all elements."""
    x = _widened(x, dtype)
    return op.reduce_sum(x, axes=axes_of(x, axis), keepdims=keepdims)


def prod(x, /, axis=None, dtype=None, *, keepdims=False):
    """The product along the axes, or of all elements."""
    x = _widened(x, dtype)
    return op.reduce_prod(x, axes=axes_of(x, axis), keepdims=keepdims)


def mean(x, /, axis=None, dtype=None, *, keepdims=False):
    """The mean along the axes, or of all elements."""
    return _averaged(lambda v: op.reduce_mean(v, axes=axes_of(v, axis), keepdims=keepdims), x, dtype)


def _extreme(name, of_bools):
    fold = op.FUNCTIONS[name]

    def f(x, axis, keepdims):
        x = asarray(x)
        axes = axes_of(x, axis)
        if builtins.any(at_most(x.shape[a], 0) for a in axes):
            raise UserError("empty-reduction", f"{name[7:]}: of no elements, along the axes {axes} of {x._type}")
        return of_bools(x, axis, keepdims=keepdims) if x.dtype == "bool" else fold(x, axes=axes, keepdims=keepdims)

    return f


def any(x, /, axis=None, *, keepdims=False, axes=None):
    """Whether any element along the axes is not 0."""
    x = asarray(x)
    return op.any(x, axes=axes_of(x, _given("any", axis, axes)), keepdims=keepdims)


def all(x, /, axis=None, *, keepdims=False, axes=None):
    """Whether all elements along the axes are not 0."""
    x = asarray(x)
    return op.all(x, axes=axes_of(x, _given("all", axis, axes)), keepdims=keepdims)


_max, _min = _extreme("reduce_max", any), _extreme("reduce_min", all)


def max(x, /, axis=None, *, keepdims=False):
    """The largest element along the axes; NaN if there is one."""
    return _max(x, axis, keepdims)


def min(x, /, axis=None, *, keepdims=False):
    """The smallest element along the axes; NaN if there is one."""
    return _min(x, axis, keepdims)


def _spread(name, x, axis, dtype, keepdims, correction):
    def fold(v):
        if v.dtype.kind == "complex":
            away = op.complex_norm_sq(v - mean(v, axis, keepdims=True))
            count = math.prod(v.shape[a] for a in axes_of(v, axis))
            y = sum(away, axis, keepdims=keepdims) / builtins.max(count - correction, 0)
            return op.sqrt(y) if name == "std" else y
        return op.FUNCTIONS[name](v, axes=axes_of(v, axis), keepdims=keepdims, correction=float(correction))

    return _averaged(fold, x, dtype)


def var(x, /, axis=None, dtype=None, *, ddof=0, keepdims=False, correction=None):
    """The variance along the axes, or of all elements; the sum of squares is divided by the count less ddof."""
    return _spread("variance", x, axis, dtype, keepdims, ddof if correction is None else correction)


def std(x, /, axis=None, dtype=None, *, ddof=0, keepdims=False, correction=None, axes=None):
    """The square root of the variance."""
    correction = ddof if correction is None else correction
    return _spread("std", x, _given("std", axis, axes), dtype, keepdims, correction)


def count_nonzero(x, /, axis=None, *, keepdims=False, axes=None):
    """How many elements along the axes are not 0."""
    x = asarray(x)
    return op.count_nonzero(x, axes=axes_of(x, _given("count_nonzero", axis, axes)), keepdims=keepdims)


def _without_nan(z):
    """(complex numbers with 0 where either part is NaN, which are not)."""
    there = op.logical_not(op.logical_or(op.is_nan(z.real), op.is_nan(z.imag)))
    return op.select(there, z, 0), there


def nansum(x, /, axis=None, dtype=None, *, keepdims=False, axes=None):
    """The sum of the elements that are not NaN."""
    x = _widened(x, dtype)
    axis = _given("nansum", axis, axes)
    if x.dtype.kind != "floating":
        return sum(_without_nan(x)[0] if x.dtype.kind == "complex" else x, axis, keepdims=keepdims)
    return op.nansum(x, axes=axes_of(x, axis), keepdims=keepdims)


def nanmean(x, /, axis=None, dtype=None, *, keepdims=False, axes=None):
    """The mean of the elements that are not NaN."""
    axis = _given("nanmean", axis, axes)

    def fold(v):
        if v.dtype.kind == "complex":
            y, there = _without_nan(v)
            return sum(y, axis, keepdims=keepdims) / sum(there, axis, keepdims=keepdims)
        return op.nanmean(v, axes=axes_of(v, axis), keepdims=keepdims)

    return _averaged(fold, x, dtype)


# ---- positions


def _position(name):
    find = op.FUNCTIONS[name]

    def f(x, axis, keepdims, select_last):
        x = asarray(x)
        if axis is None:
            y = find(x.reshape(-1), axis=0, select_last=select_last)
            return y.reshape([1] * x.ndim) if keepdims else y
        return find(x, axis=axis, keepdims=keepdims, select_last=select_last)

    return f


_argmax, _argmin = _position("argmax"), _position("argmin")


def argmax(x, /, axis=None, *, keepdims=False, select_last=False):
    """Where the largest element along an axis is, or of all elements in a row; of equals the first."""
    return _argmax(x, axis, keepdims, select_last)


def argmin(x, /, axis=None, *, keepdims=False, select_last=False):
    """Where the smallest element along an axis is, or of all elements in a row; of equals the first."""
    return _argmin(x, axis, keepdims, select_last)


# ---- order


def _line(x, axis):
    x = asarray(x)
    return (x.reshape(-1), 0) if axis is None else (x, axis)


def sort(x, /, axis=-1, *, descending=False):
    """The elements along an axis in ascending order; of all elements for axis None. NaN is the largest."""
    x, axis = _line(x, axis)
    return op.sort(x, axis=axis, descending=descending)


def argsort(x, /, axis=-1, *, descending=False):
    """The positions that sort x; equals stay in their order."""
    x, axis = _line(x, axis)
    return op.argsort(x, axis=axis, descending=descending)


def searchsorted(x, y, /, side="left", *, right=None):
    """Where each y can be inserted into the sorted x: before its equals, or behind them with side "right"."""
    if side not in ("left", "right"):
        raise UserError("attribute", f'searchsorted: the side is "left" or "right", not {side!r}')
    return op.searchsorted(x, y, right=side == "right" if right is None else right)


def _gathered(x, axis):
    """(x with these axes as one, the last; the shape with keepdims)."""
    axes = axes_of(x, axis)
    rest = [a for a in range(x.ndim) if a not in axes]
    kept = [1 if a in axes else s for a, s in enumerate(x.shape)]
    y = x if rest + axes == list(range(x.ndim)) else op.transpose(x, perm=rest + axes)
    return y.reshape([*(x.shape[a] for a in rest), math.prod(x.shape[a] for a in axes)]), kept


def _ordered(fold, x, axis, keepdims):
    """fold of x along the axes as one; of integers in float64."""
    x = asarray(x)
    line, kept = _gathered(x.astype(_DOUBLE) if x.dtype.kind in ("bool", "integer") else x, axis)
    y = fold(line)
    return y.reshape(kept) if keepdims else y


def median(x, /, axis=None, *, keepdims=False):
    """The middle element along the axes, or of all, or the mean of the middle two."""
    x = asarray(x)
    y = _ordered(lambda line: op.median(line, axis=-1), x, axis, keepdims)
    return y if x.dtype.is_floating else y.astype(_FLOAT)


def quantile(x, q=0.5, /, axis=None, *, method="linear", keepdims=False, interpolation=None):
    """The value at q of the way from the smallest to the largest along the axes, or of all; for several q one after
    the other along new leading axes."""
    how = interpolation or method
    q = np.asarray(q)
    if q.ndim:
        parts = [quantile(x, v, axis, method=how, keepdims=keepdims) for v in q.reshape(-1).tolist()]
        return op.stack(*parts, axis=0).reshape([*q.shape, *parts[0].shape])
    x = asarray(x)
    y = _ordered(lambda line: op.quantile(line, q=float(q), axis=-1, interpolation=how), x, axis, keepdims)
    return y if x.dtype.is_floating else y.astype(x.dtype if how in ("lower", "higher", "nearest") else _FLOAT)


# ---- running


def cumsum(x, /, axis=None, dtype=None, *, exclusive=False, reverse=False):
    """The sums of the elements up to each along an axis, or of all elements in a row."""
    x, axis = _line(_widened(x, dtype), axis)
    return op.cumsum(x, axis=axis, exclusive=exclusive, reverse=reverse)


def cumprod(x, /, axis=None, dtype=None, *, exclusive=False, reverse=False):
    """The products of the elements up to each along an axis, or of all elements in a row."""
    x, axis = _line(_widened(x, dtype), axis)
    return op.cumprod(x, axis=axis, exclusive=exclusive, reverse=reverse)


def trace(x, /, offset=0, axis1=0, axis2=1, dtype=None):
    """The sum of a diagonal of the matrices along two axes."""
    from rlx._shaping import diagonal

    return sum(diagonal(x, offset, axis1, axis2), -1, dtype)


METHODS = (
    sum, prod, mean, max, min, any, all, var, std, count_nonzero, nansum, nanmean, argmax, argmin, sort, argsort,
    searchsorted, median, quantile, cumsum, cumprod, trace,
)  # fmt: skip
for _method in METHODS:
    setattr(Array, _method.__name__, _method)
