"""Reductions, scans, sorting and searching: part of mapping.py's table, which see."""

import rlx
import torch
from helpers import Both, along, as_list, axes_of, dtype_of, floats, is_array, reduction, summed


def _whole_or_along(f):
    """f(x, axis=, keepdims=) of the flat array, or along `dim`."""

    def call(x, dim=None, keepdim=False):
        if dim is None or x.ndim == 0:
            return f(x.reshape(-1), axis=0)
        return f(x, axis=dim, keepdims=keepdim)

    return call


def _with_index(value, index):
    """max and min with dim: the extreme and its position."""

    def call(x, dim=None, keepdim=False):
        y = reduction(value)(x, dim, keepdim)
        return y if dim is None else (y, _whole_or_along(index)(x, dim, keepdim))

    return call


def _moment(f, root=False):
    """var and std: the divisor is n - 1 unless told otherwise."""

    def call(x, dim=None, unbiased=None, keepdim=False, correction=None):
        if isinstance(dim, bool):  # var(x, unbiased)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        if x.ndim == 0:
            return f(x.reshape(1), axes=[0], correction=correction)
        return f(x, axes=axes_of(x, dim), keepdims=keepdim, correction=correction)

    return call


def _with_mean(f):
    def call(x, dim=None, unbiased=None, keepdim=False, correction=None):
        first = _moment(f)(x, dim, unbiased, keepdim, correction)
        return first, reduction(rlx.reduce_mean)(x, None if isinstance(dim, bool) else dim, keepdim)

    return call


def _scan(f):
    """A running value along `dim`, of integers in int64."""

    def call(x, dim, dtype=None):
        if dtype is not None:
            x = x.astype(dtype_of(dtype))
        elif x.dtype.kind in ("integer", "bool"):
            x = x.astype("i64")
        return f(x.reshape(1), axis=0).reshape(()) if x.ndim == 0 else f(x, axis=dim)

    return call


def _scan_with_index(f):
    def call(x, dim):
        if x.ndim == 0:
            return tuple(y.reshape(()) for y in f(x.reshape(1), axis=0))
        return f(x, axis=dim)

    return call


def _values(f):
    """Values only: which of equal elements an index names is left open by PyTorch."""
    return Both(f, lambda op, *args, **kwargs: as_list(op(*args, **kwargs))[0])


def _kth(x, k, dim=-1, keepdim=False):
    if x.ndim == 0:
        return rlx.kth_value(x.reshape(1), k=k, axis=0).reshape(())
    return rlx.kth_value(x, k=k, axis=dim, keepdims=keepdim)


def _median(x, dim=None, keepdim=False):
    """The lower one of the two in the middle."""
    x, dim, keepdim = (x.reshape(-1), 0, False) if dim is None or x.ndim == 0 else (x, dim, keepdim)
    return _kth(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def _quantile(x, q, dim=None, keepdim=False, interpolation="linear"):
    if dim is None or x.ndim == 0:
        flat, dim = x.reshape(-1), 0
        shape = [1] * x.ndim if keepdim else []
    else:
        flat, shape = x, None
    values = q.tolist() if is_array(q) else [q]
    ys = [rlx.op.quantile(flat, q=v, axis=dim, keepdims=keepdim, interpolation=interpolation) for v in values]
    ys = ys if shape is None else [y.reshape(shape) for y in ys]
    return rlx.stack(ys) if is_array(q) and q.ndim else ys[0]


def _topk(x, k, dim=-1, largest=True, sorted=True):
    if x.ndim == 0:
        return x, x
    values, places = rlx.topk(x, k=k, axis=dim, largest=largest)
    return values, rlx.take_along_axis(x, places, axis=dim)


def _named_values(op, x, k, dim=-1, *options):
    """The values, and those that the positions name: of equal elements PyTorch names any."""
    values, places = op(x, k, dim, *options)
    return values, x.gather(dim, places)


def _sort(x, dim=-1, descending=False, stable=False):
    if x.ndim == 0:
        return x, rlx.zeros((), "i64")
    return rlx.op.sort(x, axis=dim, descending=descending), rlx.op.argsort(x, axis=dim, descending=descending)


def _stable(op, x, dim=-1, descending=False, stable=False):
    """Equal elements in their order, so that the positions are determined."""
    return op(x, dim=dim, descending=descending, stable=True)


def _searchsorted(line, values, *, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None:
        line = rlx.take_along_axis(line, sorter, axis=-1)
    values = values if is_array(values) else rlx.asarray(values, line.dtype)
    at = rlx.op.searchsorted(line, values, right=right or side == "right")
    return at.astype("i32") if out_int32 else at


def _bincount(x, weights=None, minlength=0):
    if weights is None:
        weights = rlx.ones(x.shape, "i64")
    elif weights.dtype != "f32":
        weights = weights.astype("f64")
    size = max(minlength, max(x.tolist(), default=-1) + 1)
    return rlx.scatter_add(weights, x, axis=0, size=size)


def _truth(f):
    """all and any; of bytes PyTorch makes a byte."""
    return lambda x, dim=None, keepdim=False: reduction(f)(x, dim, keepdim).astype("uint8" if x.dtype == "uint8" else "bool")


def _counts(x, dim=None):
    return reduction(rlx.op.count_nonzero)(x, dim)


MAPPING = {
    "sum": reduction(summed(rlx.reduce_sum)),
    "nansum": reduction(lambda x, **k: (rlx.op.nansum if x.dtype.is_floating else summed(rlx.reduce_sum))(x, **k)),
    "mean": reduction(rlx.reduce_mean),
    "nanmean": reduction(rlx.op.nanmean),
    "prod": reduction(summed(rlx.reduce_prod)),
    "amax": reduction(rlx.reduce_max),
    "amin": reduction(rlx.reduce_min),
    "aminmax": lambda x, dim=None, keepdim=False: [
        reduction(f)(x, dim, keepdim) for f in (rlx.reduce_min, rlx.reduce_max)
    ],
    "max:reduction_no_dim": reduction(rlx.reduce_max),
    "min:reduction_no_dim": reduction(rlx.reduce_min),
    "max:reduction_with_dim": _with_index(rlx.reduce_max, rlx.op.argmax),
    "min:reduction_with_dim": _with_index(rlx.reduce_min, rlx.op.argmin),
    "argmax": _whole_or_along(rlx.op.argmax),
    "argmin": _whole_or_along(rlx.op.argmin),
    "all": _truth(rlx.op.all),
    "any": _truth(rlx.op.any),
    "count_nonzero": _counts,
    "logsumexp": floats(reduction(rlx.logsumexp)),
    "std": _moment(rlx.op.std),
    "var": _moment(rlx.variance),
    "std:unbiased": _moment(rlx.op.std),
    "var:unbiased": _moment(rlx.variance),
    "std_mean": _with_mean(rlx.op.std),
    "var_mean": _with_mean(rlx.variance),
    "std_mean:unbiased": _with_mean(rlx.op.std),
    "var_mean:unbiased": _with_mean(rlx.variance),
    "cumsum": _scan(rlx.op.cumsum),
    "cumprod": _scan(rlx.op.cumprod),
    "cummax": _scan_with_index(rlx.cummax),
    "cummin": _scan_with_index(rlx.cummin),
    "logcumsumexp": _scan(rlx.cumlogsumexp),
    "softmax": along(rlx.softmax),
    "softmax:with_dtype": along(rlx.softmax),
    "log_softmax": along(rlx.log_softmax),
    "log_softmax:with_dtype": along(rlx.log_softmax),
    "sort": Both(_sort, _stable),
    "argsort": Both(lambda *args, **kwargs: _sort(*args, **kwargs)[1], _stable),
    "msort": Both(lambda x: rlx.op.sort(x, axis=0), lambda op, x: torch.sort(x, dim=0, stable=True).values),
    "topk": Both(_topk, _named_values),
    "kthvalue": _values(_kth),
    "median": _values(_median),
    "quantile": Both(_quantile, lambda op, *args, **kwargs: op(*args, **kwargs), wrt=1),
    "searchsorted": _searchsorted,
    "bucketize": lambda x, line, **options: _searchsorted(line, x, **options),
    "bincount": _bincount,
}
