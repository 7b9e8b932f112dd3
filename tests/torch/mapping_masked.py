"""torch.masked.*: what the mask leaves out becomes the neutral element, then our op. Part of mapping_nn.py's table."""

import math

import numpy as np
import rlx
from helpers import axes_of, floats, reduction, summed

_INF = math.inf


def _lowest(x, sign=-1):
    """-inf (or inf) and for integers the end of their range."""
    if x.dtype.kind != "integer":
        return sign * _INF
    limits = np.iinfo(x.dtype.dtype)
    return int(limits.min if sign < 0 else limits.max)


def _fill(x, mask, value):
    return x if mask is None else rlx.where(mask, x, rlx.array(value).astype(x.dtype))


def _cast(x, dtype):
    return x if dtype is None else x.astype(str(dtype).removeprefix("torch."))


def _reduce(f, neutral, prepare=lambda x: x):
    """A reduction of what the mask leaves; neutral is a number or a function of x."""

    def call(x, dim=None, keepdim=False, dtype=None, mask=None):
        x = prepare(_cast(x, dtype))
        y = _fill(x, mask, neutral(x) if callable(neutral) else neutral)
        return _kept(f, y, dim, keepdim)

    return call


def _kept(f, x, dim, keepdim):
    return f(x, axes=axes_of(x, dim), keepdims=keepdim) if x.ndim else reduction(f)(x)


def _count(x, dim, keepdim, mask):
    ones = rlx.broadcast(rlx.array(1.0).astype(x.dtype), shape=x.shape)
    return _kept(rlx.reduce_sum, _fill(ones, mask, 0), dim, keepdim)


def _mean(x, dim=None, keepdim=False, dtype=None, mask=None):
    x = _cast(x, dtype)
    return _kept(rlx.reduce_sum, _fill(x, mask, 0), dim, keepdim) / _count(x, dim, keepdim, mask)


def _variance(x, dim=None, unbiased=None, keepdim=False, dtype=None, mask=None, correction=None):
    correction = correction if correction is not None else int(unbiased is not False)
    x = floats(lambda v: v)(_cast(x, dtype))
    gap = _fill(x - _mean(x, dim, True, mask=mask), mask, 0)
    count = _count(x, dim, keepdim, mask)
    return _kept(rlx.reduce_sum, gap * gap, dim, keepdim) / rlx.relu(count - correction)


def _norm(x, ord=2.0, dim=None, keepdim=False, dtype=None, mask=None):
    y = _fill(_cast(x, dtype), mask, _INF if ord == -_INF else 0)
    return _kept(lambda v, axes, keepdims: rlx.op.norm(v, axes=axes, keepdims=keepdims, ord=ord), y, dim, keepdim)


def _normalize(x, ord, dim, eps=1e-12, dtype=None, mask=None):
    return _fill(x, mask, 0) / rlx.maximum(_norm(x, ord, dim, True, dtype, mask), eps)


def _argument(f, sign):
    def call(x, dim=None, keepdim=False, dtype=None, mask=None):
        y = _fill(x, mask, _lowest(x, sign))
        if dim is None or x.ndim == 0:
            found = f(y.reshape(-1), axis=0).reshape([1] * x.ndim if keepdim else [])
        else:
            found = f(y, axis=dim, keepdims=keepdim)
        return found.astype(x.dtype)  # PyTorch gives the positions in x's dtype

    return call


def _median(x, dim=-1, keepdim=False, dtype=None, mask=None):
    """The lower one of the middle two, as PyTorch's: by position in the sorted line, NaN (what is left out) last."""
    if x.ndim == 0:
        return x if mask is None else _fill(x, mask, math.nan)
    line = rlx.op.sort(_fill(x, mask, math.nan), axis=dim)
    count = rlx.reduce_sum(rlx.op.logical_not(rlx.is_nan(line)).astype("i64"), axes=[dim], keepdims=True)
    y = rlx.take_along_axis(line, rlx.maximum(rlx.div(count - 1, 2), 0), axis=dim)
    return y if keepdim else y.squeeze(dim)


def _along(f, neutral, prepare=lambda x: x):
    def call(x, dim, dtype=None, mask=None):
        x = prepare(_cast(x, dtype))
        return f(_fill(x, mask, neutral), axis=dim) if x.ndim else f(_fill(x, mask, neutral).reshape(1)).reshape(())

    return call


def _logaddexp(x, y, dtype=None, input_mask=None, other_mask=None):
    return rlx.logaddexp(_fill(x, input_mask, -_INF), _fill(y, other_mask, -_INF))


def _logsumexp(x, **options):
    return floats(rlx.logsumexp)(x, **options).astype(x.dtype)  # integers too, in PyTorch


_wide = summed(lambda x: x)

MAPPING = {
    "masked.sum": _reduce(rlx.reduce_sum, 0, _wide),
    "masked.prod": _reduce(rlx.reduce_prod, 1, _wide),
    "masked.amax": _reduce(rlx.reduce_max, _lowest),
    "masked.amin": _reduce(rlx.reduce_min, lambda x: _lowest(x, 1)),
    "masked.logsumexp": _reduce(_logsumexp, _lowest),
    "masked.argmax": _argument(rlx.op.argmax, -1),
    "masked.argmin": _argument(rlx.op.argmin, 1),
    "masked.mean": _mean,
    "masked.median": _median,
    "masked.norm": _norm,
    "masked.normalize": _normalize,
    "masked.var": _variance,
    "masked.std": lambda *args, **kwargs: rlx.sqrt(_variance(*args, **kwargs)),
    "masked.softmax": _along(rlx.softmax, -_INF),
    "masked.log_softmax": _along(rlx.log_softmax, -_INF),
    "masked.softmin": _along(lambda x, axis=-1: rlx.softmax(-x, axis=axis), _INF),
    "masked.cumsum": _along(rlx.op.cumsum, 0),
    "masked.cumprod": _along(rlx.op.cumprod, 1),
    "masked.logaddexp": _logaddexp,
}
