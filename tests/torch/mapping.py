"""PyTorch's ops in terms of ours: OpInfo name (with its variant, "div:floor_rounding") to a function of the sample.

The functions take rlx arrays where PyTorch's take tensors. To add an op, add a line. nn.functional.*, signal and masked
ops stand in mapping_nn.py, linear algebra and Fourier transforms in mapping_linalg.py.
"""

import math

import mapping_linalg
import mapping_nn
import rlx
from helpers import along, bools, dtype_of, floats, is_array, reduction, shape_of, summed, whole


def _scaled(f):
    """add and sub with alpha."""
    return lambda x, y, alpha=1: f(x, y if alpha == 1 else y * alpha)


def _div(x, y, rounding_mode=None):
    if rounding_mode == "floor":
        return x // y
    if rounding_mode == "trunc":
        return rlx.trunc(x / y) if x.dtype.is_floating else rlx.div(x, y)
    return x / y if is_array(y) and y.dtype.kind == "floating" else floats(rlx.div)(x, y)


def _clamp(x, low=None, high=None, *, min=None, max=None):
    low, high = low if low is not None else min, high if high is not None else max
    x = x if low is None else rlx.maximum(x, low)
    return x if high is None else rlx.minimum(x, high)


def _cat(xs, dim=0):
    return rlx.concat(*([x for x in xs if x.shape != (0,)] or xs), axis=dim)  # [0] goes with any shape


def _expand(x, *shape):
    shape = shape_of(*shape)
    pad = len(shape) - x.ndim
    return rlx.broadcast(x, shape=[x.shape[i - pad] if s == -1 else s for i, s in enumerate(shape)])


def _transpose(x, a, b):
    return x.swapaxes(a, b) if x.ndim else x


def _permute(x, *dims):
    return x.transpose(shape_of(*dims))


def _flatten(x, start_dim=0, end_dim=-1):
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape([*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]])


def _narrow(x, dim, start, length):
    start = start.item() if is_array(start) else start
    dim %= x.ndim
    start %= x.shape[dim] or 1
    return x[(slice(None),) * dim + (slice(start, start + length),)]


def _cumsum(x, dim, dtype=None):
    if dtype is not None:
        x = x.astype(dtype_of(dtype))
    elif x.dtype.kind in ("integer", "bool"):
        x = x.astype("i64")
    return rlx.cumsum(x.reshape(1), axis=0).reshape(()) if x.ndim == 0 else rlx.cumsum(x, axis=dim)


UNARY = ["abs", "neg", "sign", "square"]
ROUNDING = ["ceil", "floor", "round", "trunc"]
LOGICAL = ["logical_not", "logical_and", "logical_or", "logical_xor"]
UNARY_FLOATS = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "digamma", "erf", "erfc", "erfinv", "exp", "exp2",
    "expm1", "lgamma", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan",
    "tanh",
]  # fmt: skip
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum"]

MAPPING = {
    **mapping_nn.MAPPING,
    **mapping_linalg.MAPPING,
    **{n: getattr(rlx, n) for n in UNARY + COMPARISONS if hasattr(rlx, n)},
    **{n: floats(getattr(rlx, n)) for n in UNARY_FLOATS if hasattr(rlx, n)},
    **{n: whole(getattr(rlx, n)) for n in ROUNDING},
    **{n: bools(getattr(rlx, n)) for n in LOGICAL},
    "isnan": floats(rlx.is_nan),
    "isinf": floats(rlx.is_inf),
    "isfinite": floats(rlx.is_finite),
    "add": _scaled(lambda x, y: x + y),
    "sub": _scaled(lambda x, y: x - y),
    "rsub": lambda x, y, alpha=1: y - (x if alpha == 1 else x * alpha),
    "mul": lambda x, y: x * y,
    "div:no_rounding_mode": _div,
    "div:floor_rounding": _div,
    "div:trunc_rounding": _div,
    "true_divide": _div,
    "floor_divide": lambda x, y: x // y,
    "remainder": lambda x, y: x % y,
    "fmod": rlx.rem,
    "pow": lambda x, y: x**y,
    "clamp": _clamp,
    "clamp_min": lambda x, low: rlx.maximum(x, low),
    "clamp_max": lambda x, high: rlx.minimum(x, high),
    "where": lambda x, c, y: rlx.where(c, x, y),
    "sum": reduction(summed(rlx.reduce_sum)),
    "mean": reduction(rlx.reduce_mean),
    "prod": reduction(summed(rlx.reduce_prod)),
    "amax": reduction(rlx.reduce_max),
    "amin": reduction(rlx.reduce_min),
    "argmax": lambda x, dim=None, keepdim=False: (
        x.reshape(-1).argmax(0) if dim is None or x.ndim == 0 else x.argmax(dim, keepdim)
    ),
    "cumsum": _cumsum,
    "softmax": along(rlx.softmax),
    "log_softmax": along(rlx.log_softmax),
    "mm": rlx.matmul,
    "bmm": rlx.matmul,
    "matmul": rlx.matmul,
    "mv": rlx.matmul,
    "dot": rlx.matmul,
    "addmm": lambda c, a, b, beta=1, alpha=1: c * beta + (a @ b) * alpha,
    "outer": lambda a, b: a.expand_dims(1) * b,
    "cat": _cat,
    "stack": lambda xs, dim=0: rlx.stack(xs, dim % (xs[0].ndim + 1)),
    "reshape": lambda x, *s: x.reshape(shape_of(*s)),
    "view": lambda x, *s: x.reshape(shape_of(*s)),
    "expand": _expand,
    "broadcast_to": _expand,
    "permute": _permute,
    "transpose": _transpose,
    "t": lambda x: x.T,
    "flatten": _flatten,
    "ravel": lambda x: x.reshape(-1),
    "unsqueeze": lambda x, dim: x.expand_dims(dim),
    "squeeze": lambda x, dim=None: x if x.ndim == 0 or (dim is not None and x.shape[dim] != 1) else x.squeeze(dim),
    "flip": lambda x, dims: rlx.reverse(x, axes=list(dims)) if x.ndim else x,
    "narrow": _narrow,
    "select": lambda x, dim, index: x[(slice(None),) * (dim % x.ndim) + (index,)],
    "index_select": lambda x, dim, index: rlx.gather(x, index, axis=dim) if x.ndim else x,
}
