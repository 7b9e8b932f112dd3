"""Names that NumPy's users type, for what the table or this package calls otherwise: one table, ALIASES.

Each is called like NumPy's function of that name.
"""

import math

from rlx import op
from rlx._array import Array, _divide, _power, asarray, floating
from rlx._functions import abs as absolute
from rlx._functions import full, matmul, tensordot, zeros
from rlx._indexing import check_places
from rlx._reductions import axes_of
from rlx._shaping import concatenate


def _of_floats(name):
    """The op of that name on floats; nothing in integers and bools is NaN or infinite."""
    test = op.FUNCTIONS[name]

    def f(x, /):
        x = asarray(x)
        return test(x) if x.dtype.kind == "floating" else _parts(x) if x.dtype.kind == "complex" else test(floating(x))

    def _parts(x):
        both = op.logical_and if name == "is_finite" else op.logical_or
        return both(test(x.real), test(x.imag))

    f.__doc__ = test.__doc__
    return f


isnan, isfinite, isinf = _of_floats("is_nan"), _of_floats("is_finite"), _of_floats("is_inf")


def broadcast_to(x, /, shape):
    """x repeated along new leading axes and axes of size 1, to a shape."""
    return op.broadcast(asarray(x), shape=(shape,) if hasattr(shape, "__index__") else tuple(shape))


def moveaxis(x, /, source, destination):
    """x with the source axes at the destinations; the others stay in order."""
    x = asarray(x)
    return op.move_axis(x, source=axes_of(x, source), destination=axes_of(x, destination))


def swapaxes(x, /, axis1, axis2):
    """x with two axes swapped."""
    return asarray(x).swapaxes(axis1, axis2)


def ravel(x, /):
    """The elements in a row."""
    return asarray(x).reshape(-1)


def full_like(x, /, fill_value, dtype=None):
    """An array of one value with x's shape and dtype, or of another dtype."""
    x = asarray(x)
    return full(x.shape, fill_value, dtype or x.dtype)


def ones_like(x, /, dtype=None):
    """Ones of x's shape and dtype, or of another dtype."""
    return full_like(x, 1, dtype)


def flip(x, /, axis=None):
    """x with the order of elements reversed along the axes, or along all."""
    x = asarray(x)
    return op.reverse(x, axes=axes_of(x, axis))


def dot(x, y, /):
    """The product of matrices and vectors; of more axes, sums over the last of x and the last but one of y."""
    x, y = asarray(x), asarray(y)
    if x.ndim == 0 or y.ndim == 0:
        return op.mul(x, y)
    if x.ndim <= 2 and y.ndim <= 2:
        return matmul(x, y)
    return tensordot(x, y, ([x.ndim - 1], [max(y.ndim - 2, 0)]))


def take(x, indices, /, axis=None):
    """The elements at the indices along an axis, or of all in a row; negative ones count from the end."""
    x = asarray(x)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axes_of(x, axis)[0])
    return op.gather(x, check_places(indices, x.shape[axis], axis), axis=axis)


def take_along_axis(x, indices, /, axis=-1):
    """Each element of x whose place is that of the index, but along the axis where the index says; negative ones count
    from the end."""
    x = asarray(x)
    x, (along,) = (x.reshape(-1), (0,)) if axis is None else (x, axes_of(x, axis))
    return op.take_along_axis(x, check_places(indices, x.shape[along], along), axis=along)


def vstack(arrays, /):
    """Arrays one after the other along the first axis; vectors are rows."""
    parts = [asarray(a) for a in arrays]
    return concatenate([p.reshape(1, -1) if p.ndim < 2 else p for p in parts])


def hstack(arrays, /):
    """Arrays one after the other along the second axis; vectors along their only one."""
    parts = [asarray(a) for a in arrays]
    parts = [p.reshape(1) if p.ndim == 0 else p for p in parts]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1)


def empty(shape, dtype="float32"):
    """An array of zeros: no array holds what happened to be in memory."""
    return zeros(shape, dtype)


ALIASES = {
    "isnan": isnan, "isfinite": isfinite, "isinf": isinf,
    "broadcast_to": broadcast_to, "moveaxis": moveaxis, "swapaxes": swapaxes, "ravel": ravel, "flip": flip,
    "ones_like": ones_like, "full_like": full_like, "empty": empty, "vstack": vstack, "hstack": hstack, "dot": dot,
    "take": take, "take_along_axis": take_along_axis, "absolute": absolute, "negative": op.neg, "power": _power,
    "multiply": op.mul, "subtract": op.sub, "divide": _divide, "true_divide": _divide, "floor_divide": op.floor_div,
    "remainder": op.mod, "equal": op.eq, "not_equal": op.ne, "less": op.lt, "less_equal": op.le, "greater": op.gt,
    "greater_equal": op.ge, "pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None,
}  # fmt: skip
METHODS = (dot, take, take_along_axis)
for _method in METHODS:
    setattr(Array, _method.__name__, _method)
