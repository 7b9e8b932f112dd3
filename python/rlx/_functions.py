"""Arrays from nothing and a few functions named as in NumPy. Like all of the package, they take traced arrays."""

import numpy as np

from rlx import op
from rlx._array import asarray
from rlx._dtypes import dtype as as_dtype


def full(shape, value, dtype="f32"):
    """An array of one value."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    value = asarray(value, dtype)
    if value._traced:
        return op.broadcast(value, shape=shape)
    return value._from_raw(np.full(shape, value._raw()), value.dtype)


def zeros(shape, dtype="f32"):
    """An array of zeros."""
    return full(shape, 0, dtype)


def ones(shape, dtype="f32"):
    """An array of ones."""
    return full(shape, 1, dtype)


def arange(start, stop=None, step=1, dtype=None):
    """start, start + step, .. below stop; with one argument from 0 to it. Integers are int64, floats float32."""
    start, stop = (0, start) if stop is None else (start, stop)
    whole = all(isinstance(v, int) for v in (start, stop, step))
    values = np.arange(start, stop, step)
    to = as_dtype(dtype or ("i64" if whole else "f32"))
    return (
        asarray(values.tolist() if values.size else values, to)
        if to.name == "bf16"
        else asarray(values.astype(to.dtype))
    )


def eye(n, m=None, dtype="f32"):
    """Ones on the diagonal."""
    return asarray(np.eye(n, m, dtype=np.float32)).astype(dtype)


def where(condition, x, y):
    """x where the condition holds, else y."""
    condition = asarray(condition)
    return op.select(condition if condition.dtype == "bool" else condition.astype("bool"), x, y)


def concatenate(arrays, axis=0):
    """Arrays one after the other along an axis."""
    return op.concat(*arrays, axis=axis)


def stack(arrays, axis=0):
    """Arrays side by side along a new axis."""
    return op.concat(*[asarray(a).expand_dims(axis) for a in arrays], axis=axis)


def key(seed):
    """A key for the random ops, u32[2], from a seed of up to 64 bits."""
    return asarray(np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], dtype=np.uint32))
