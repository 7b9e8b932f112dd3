"""Arithmetic, functions of elements, products and arrays from nothing: part of mapping.py's table, which see."""

import math

import rlx
from helpers import bools, dtype_of, floats, is_array, shape_of, summed, whole


def _scaled(f):
    """add and sub with alpha."""
    return lambda x, y, alpha=1: f(x, y if alpha == 1 else y * alpha)


def _div(x, y, rounding_mode=None):
    if rounding_mode == "floor":
        return x // y
    if rounding_mode == "trunc":
        return rlx.op.trunc(x / y) if x.dtype.is_floating else rlx.div(x, y)
    return x / y if is_array(y) and y.dtype.kind == "floating" else floats(rlx.div)(x, y)


def _clamp(x, low=None, high=None, *, min=None, max=None):
    low, high = low if low is not None else min, high if high is not None else max
    x = x if low is None else rlx.maximum(x, low)
    return x if high is None else rlx.minimum(x, high)


def _product(f):
    """beta * c + alpha * f(a, b); with beta 0 not even the NaN of c counts."""

    def call(c, a, b, beta=1, alpha=1):
        y = f(a, b)
        y = y if alpha == 1 else y * alpha
        c = rlx.zeros_like(c) if beta == 0 else c if beta == 1 else c * beta
        return c + y

    return call


def _addc(f):
    return lambda x, a, b, value=1: x + (f(a, b) if value == 1 else f(a, b) * value)


def _ignoring_nan(f):
    """fmax and fmin."""

    def call(x, y):
        if not x.dtype.is_floating:
            return f(x, y)
        return rlx.where(rlx.is_nan(x), y, rlx.where(rlx.is_nan(y), x, f(x, y)))

    return call


def _round(x, decimals=0):
    if not x.dtype.is_floating:
        return x
    return rlx.op.round(x * 10**decimals) / 10**decimals if decimals >= 0 else _round(x / 10**-decimals) * 10**-decimals


def _isclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=False):
    if not x.dtype.is_floating:
        x, y = x.astype("f64"), y.astype("f64")
    near = rlx.op.abs(x - y) <= atol + rlx.op.abs(y * rtol)
    same = (x == y) | (rlx.is_finite(y) & near)
    return same | (rlx.is_nan(x) & rlx.is_nan(y)) if equal_nan else same


def _nan_to_num(x, nan=None, posinf=None, neginf=None):
    return rlx.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf) if x.dtype.is_floating else x


def _signbit(x):
    return rlx.copysign(rlx.full(x.shape, 1, x.dtype), x) < 0 if x.dtype.is_floating else x < 0


def _mvlgamma(x, p):
    x = floats(lambda x: x)(x)
    return sum(rlx.lgamma(x - j / 2) for j in range(p)) + p * (p - 1) / 4 * math.log(math.pi)


def _logit(x, eps=None):
    """x first brought into [eps, 1 - eps]; where that is empty the lower end comes first."""
    return rlx.logit(x if eps is None else rlx.where(x < eps, eps, rlx.minimum(x, 1 - eps)))


def _entr(x):
    return rlx.where(x < 0, -math.inf, -rlx.xlogy(x, x))


def _angle(x):
    return rlx.complex_angle(x) if x.dtype.kind == "complex" else rlx.atan2(rlx.zeros_like(x), x)


def _tensordot(x, y, dims):
    if isinstance(dims, int):
        dims = range(x.ndim - dims, x.ndim), range(dims)
    return rlx.op.tensordot(x, y, axes_a=list(dims[0]), axes_b=list(dims[1]))


def _cross(x, y, dim=None):
    return rlx.op.cross(x, y, axis=x.shape.index(3) if dim is None else dim)


def _cdist(x, y, p=2.0, compute_mode=None):
    return rlx.op.norm(x.expand_dims(-2) - y.expand_dims(-3), axes=[-1], ord=p)


def _number(x):
    return x.item() if is_array(x) else x


def _arange(start, end=None, step=1, *, dtype=None, device=None):
    start, end = (0, start) if end is None else (start, end)
    whole = all(isinstance(v, int) for v in (start, end, step))
    dtype = dtype_of(dtype) if dtype else "i64" if whole else "f32"
    return rlx.op.arange(start=start, stop=end, step=step, dtype=dtype)


def _linspace(start, end, steps, *, dtype=None, device=None):
    return rlx.op.linspace(start=_number(start), stop=_number(end), count=steps, dtype=dtype_of(dtype or "float32"))


def _logspace(start, end, steps, base=10.0, *, dtype=None, device=None):
    start, end, dtype = _number(start), _number(end), rlx.dtype(dtype_of(dtype or "float32"))
    if dtype.kind == "integer":  # PyTorch truncates both ends before the powers
        start, end = int(start), int(end)
    exponents = rlx.op.linspace(start=start, stop=end, count=steps, dtype="f64")
    return (rlx.full((), base, "f64") ** exponents).astype(dtype)


def _filled(shape, value, dtype):
    if isinstance(value, complex):  # the op's value is real
        return rlx.broadcast(rlx.asarray(value, dtype), shape=shape)
    return rlx.op.full(shape=shape, value=value, dtype=dtype)


def _full(shape, value, dtype=None, **options):
    return _filled(shape_of(shape), value, dtype_of(dtype) if dtype else rlx.asarray(value).dtype)


def _like(value=None):
    """An array of one value, of the dtype of x or another."""

    def call(x, *args, dtype=None, **options):
        shape, rest = (args[0], args[1:]) if args and isinstance(args[0], (list, tuple)) else (x.shape, args)
        fill = rest[0] if rest else options.get("value", value)
        return _filled(list(shape), fill, dtype_of(dtype) if dtype else x.dtype)

    return call


def _eye(n, m=None, *, dtype=None, **options):
    return rlx.op.eye(rows=n, columns=n if m is None else m, dtype=dtype_of(dtype))


def _to(x, *args, **options):
    target = next(a for a in args if not isinstance(a, (bool, str)))
    return x.astype(target.dtype if is_array(target) else dtype_of(target))


UNARY = ["abs", "neg", "sign", "square"]
ROUNDING = ["ceil", "floor", "round", "trunc"]
LOGICAL = ["logical_not", "logical_and", "logical_or", "logical_xor"]
FLOATS = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cos", "cosh", "deg2rad", "digamma", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "hypot", "lgamma", "log", "log10", "log1p", "log2", "logaddexp",
    "rad2deg", "reciprocal", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "tan", "tanh", "xlogy",
]  # fmt: skip
BINARY = [
    "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ge", "gt", "heaviside", "inner", "kron", "le", "lerp", "lt",
    "maximum", "minimum", "ne", "vdot",
]  # fmt: skip
CASTS = {
    "bfloat16": "bf16", "bool": "bool", "byte": "uint8", "cfloat": "c64", "char": "int8", "double": "f64", "float": "f32",
    "half": "float16", "int": "i32", "long": "i64", "short": "i16",
}  # fmt: skip

MAPPING = {
    **{n: getattr(rlx.op, n) for n in UNARY + BINARY},
    **{n: floats(getattr(rlx.op, n)) for n in FLOATS},
    **{n: whole(getattr(rlx.op, n)) for n in ROUNDING},
    **{n: bools(getattr(rlx.op, n)) for n in LOGICAL},
    **{n: (lambda to: lambda x, **options: x.astype(to))(to) for n, to in CASTS.items()},
    "to": _to,
    "isnan": floats(rlx.is_nan),
    "isinf": floats(rlx.is_inf),
    "isfinite": floats(rlx.is_finite),
    "isposinf": floats(rlx.is_pos_inf),
    "isneginf": floats(rlx.is_neg_inf),
    "isreal": lambda x: rlx.eq(x.imag, 0),
    "isclose": _isclose,
    "isin": lambda x, y: rlx.op.any(rlx.eq(x.expand_dims(-1), y), axes=[-1]),
    "signbit": _signbit,
    "sgn": rlx.sign,
    "positive": lambda x: +x,
    "frac": rlx.frac,
    "nan_to_num": _nan_to_num,
    "round:decimals_0": _round,
    "round:decimals_3": _round,
    "round:decimals_neg_3": _round,
    "logit": floats(_logit),
    "special.entr": floats(_entr),
    "special.ndtr": floats(lambda x: rlx.erfc(x * -math.sqrt(0.5)) * 0.5),
    "special.polygamma:special_polygamma_n_0": lambda x, n: floats(rlx.polygamma)(x, n=n),
    **{f"polygamma:polygamma_n_{n}": lambda x, n: floats(rlx.polygamma)(x, n=n) for n in range(5)},
    **{f"mvlgamma:mvlgamma_p_{n}": _mvlgamma for n in (1, 3, 5)},
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
    "float_power": lambda x, y: x.astype("f64") ** y,
    "ldexp": floats(lambda x, y: x * rlx.exp2(y)),
    "logaddexp2": lambda x, y: rlx.logaddexp(x * math.log(2), y * math.log(2)) * math.log2(math.e),
    "__radd__": lambda x, y: y + x,
    "__rsub__": lambda x, y: y - x,
    "__rmul__": lambda x, y: y * x,
    "__rdiv__": floats(lambda x, y: y / x),
    "__rmod__": lambda x, y: y % x,
    "__rpow__": lambda x, y: y**x,
    "__rand__": lambda x, y: y & x,
    "__ror__": lambda x, y: y | x,
    "__rxor__": lambda x, y: y ^ x,
    "__rmatmul__": lambda x, y: y @ x,
    "bitwise_not": lambda x: ~x,
    "bitwise_left_shift": rlx.shift_left,
    "bitwise_right_shift": rlx.shift_right,
    "clamp": _clamp,
    "clamp_min": lambda x, low: rlx.maximum(x, low),
    "clamp_max": lambda x, high: rlx.minimum(x, high),
    "max:binary": rlx.maximum,
    "min:binary": rlx.minimum,
    "fmax": _ignoring_nan(rlx.maximum),
    "fmin": _ignoring_nan(rlx.minimum),
    "where": lambda x, c, y: rlx.where(c, x, y),
    "masked_fill": lambda x, mask, v: rlx.masked_fill(x, mask, v if is_array(v) else rlx.full((), v, x.dtype)),
    "complex": rlx.complex,
    "polar": rlx.polar,
    "real": lambda x: x.real,
    "imag": rlx.op.imag,
    "angle": floats(_angle),
    "conj": rlx.conj,
    "conj_physical": rlx.conj,
    "view_as_real": lambda z: rlx.stack([rlx.op.real(z), rlx.op.imag(z)], -1),
    "view_as_complex": lambda x: rlx.complex(x[..., 0], x[..., 1]),
    "mm": rlx.matmul,
    "bmm": rlx.matmul,
    "matmul": rlx.matmul,
    "mv": rlx.matmul,
    "dot": rlx.matmul,
    "outer": rlx.op.outer,
    "addmm": _product(rlx.matmul),
    "addmm:decomposed": _product(rlx.matmul),
    "addmv": _product(lambda a, b: a @ b),
    "addr": _product(rlx.op.outer),
    "addbmm": _product(lambda a, b: rlx.reduce_sum(a @ b, axes=[0])),
    "baddbmm": _product(rlx.matmul),
    "addcmul": _addc(rlx.mul),
    "addcdiv": _addc(rlx.div),
    "einsum": lambda xs, equation: rlx.op.einsum(*xs, equation=equation),
    "tensordot": _tensordot,
    "cross": _cross,
    "trace": summed(rlx.op.trace),
    "cdist": _cdist,
    "dist": lambda x, y, p=2: rlx.op.norm(x - y, axes=list(range(max(x.ndim, y.ndim))), ord=p),
    "arange": _arange,
    "linspace": _linspace,
    "linspace:tensor_overload": _linspace,
    "logspace": _logspace,
    "logspace:tensor_overload": _logspace,
    "eye": _eye,
    "full": _full,
    "zeros": lambda shape, **options: _full(shape, 0, **options),
    "ones": lambda shape, **options: _full(shape, 1, **options),
    "scalar_tensor": lambda value, **options: _full((), value, **options),
    "fill": _like(),
    "full_like": _like(),
    "new_full": _like(),
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "new_zeros": _like(0),
    "new_ones": _like(1),
}
