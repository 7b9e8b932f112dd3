"""Elementwise ops at NaN, infinities, signed zeros, denormals and the largest numbers: every value, and for two operands every
pair. The other families hold ordinary values and single corners; here the sign of a zero counts, and denormal results.

By NumPy in extended precision, SciPy and PyTorch in binary64, rounded once. Where they differ among each other or from the
standards, IEEE 754 and C99's Annexes F and G hold, and the place below says so.
"""

import numpy as np
import scipy
import scipy.special
import torch
import torch.nn.functional as F

from .core import (
    EXACT,
    FLOATS,
    LARGEST,
    MIN_EXPONENT,
    PRECISION,
    Real,
    array,
    exact,
    narrow,
    sample,
    wide,
)
from .core import ANY_ZERO

FAMILY = "special_values"
LIBRARIES = {"scipy": scipy.__version__, "torch": torch.__version__}


def grid(dtype):
    low, bits = MIN_EXPONENT[dtype], PRECISION[dtype]
    tiny, normal = 2.0 ** (low - bits + 1), 2.0**low
    positive = [0.0, tiny, 0.625 * normal, normal, 1.0, LARGEST[dtype], np.inf]
    return array(dtype, [np.nan] + positive + [-v for v in positive])


def strict(dtype, units):
    """Units in the last place, denormals included, and a zero has its sign. f16 and bf16 are rounded from f32: one."""
    rel = 2.0 ** (1 - PRECISION[dtype]) * (units if dtype in ("f32", "f64") else 1)
    tiny = 2.0 ** (MIN_EXPONENT[dtype] - PRECISION[dtype] + 1)
    return {"rel": rel, "abs": min(units, 2) * tiny, "signed_zero": True}


# ---- one operand

# Correctly rounded from binary64.
EXACT_OPS = {
    "neg": lambda x: -x,
    "abs": np.abs,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),  # NumPy's sign(-0) is +0; ours keeps it
    "sqrt": np.sqrt,
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "round_straight_through": np.rint,
    "trunc": np.trunc,
    "round_away": lambda x: np.copysign(
        np.trunc(np.abs(x) + np.where(np.abs(x) < 1e15, 0.5, 0)), x
    ),
    "conj": np.conj,
    "stop_gradient": lambda x: x,
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "is_finite": np.isfinite,
    "is_pos_inf": np.isposinf,
    "is_neg_inf": np.isneginf,
}

# In extended precision: function, units.
EXTENDED = {
    "exp": (np.exp, 4),
    "log": (np.log, 4),
    "log1p": (np.log1p, 8),
    "expm1": (np.expm1, 8),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "sin": (np.sin, 4),
    "cos": (np.cos, 4),
    "tan": (np.tan, 8),
    "atan": (np.arctan, 4),
    "tanh": (np.tanh, 4),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 8),
    "softplus": (lambda x: np.logaddexp(Real(0), x), 8),
    "softsign": (lambda x: x / (1 + np.abs(x)), 4),  # inf / inf as in PyTorch and JAX
    "exp2": (np.exp2, 8),
    "log2": (np.log2, 8),
    "log10": (np.log10, 8),
    "sinh": (np.sinh, 8),
    "cosh": (np.cosh, 8),
    "asinh": (np.arcsinh, 8),
    "acosh": (np.arccosh, 8),
    "atanh": (np.arctanh, 8),
    "asin": (np.arcsin, 8),
    "acos": (np.arccos, 8),
    "cbrt": (np.cbrt, 8),
    "deg2rad": (np.deg2rad, 8),
    "rad2deg": (np.rad2deg, 8),
    # 0 at whole numbers, where NumPy has sin of a rounded pi, and at infinity, where it has NaN
    "sinc": (lambda x: np.where((x != 0) & (np.rint(x) == x), 0, np.sinc(x)), 8),
}


def by_torch(function):
    def run(*operands):
        return function(*(torch.from_numpy(np.array(x, np.float64)) for x in operands)).numpy()

    return run


# In binary64.
DOUBLE = {
    "erf": (scipy.special.erf, 4),
    "erfc": (scipy.special.erfc, 8),
    "normal_cdf": (scipy.special.ndtr, 8),
    "normal_pdf": (lambda x: np.exp(-x * x / 2) / np.sqrt(2 * np.pi), 8),
    "logistic_pdf": (lambda x: scipy.special.expit(x) * scipy.special.expit(-x), 8),
    "digamma": (scipy.special.digamma, 8),
    # PyTorch: SciPy's erfinv(-0) is +0 though erf is odd, its gammaln(-inf) -inf where C99 has inf, and it overflows at 5e-324.
    "erfinv": (by_torch(torch.special.erfinv), 8),
    "lgamma": (by_torch(torch.lgamma), 8),
    "frac": (by_torch(torch.frac), 1),
}


ACTIVATIONS = {
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "hard_sigmoid": F.hardsigmoid,
    "hard_tanh": F.hardtanh,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "tanhshrink": F.tanhshrink,
    "log_sigmoid": F.logsigmoid,
    "logit": torch.special.logit,
    "hard_swish": lambda x: x * F.hardsigmoid(x),  # F.hardswish overflows on the way
    "mish": F.mish,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "threshold": lambda x: F.threshold(x, 0.0, 0.0),
    "thresholded_relu": lambda x: F.threshold(x, 1.0, 0.0),
}
# Zeros of either sign: clamped at +0 or -0, or a difference of equals.
EITHER_ZERO = {
    "relu",
    "relu6",
    "softshrink",
    "hardshrink",
    "tanhshrink",
    "hard_sigmoid",
    "log_sigmoid",
    "frac",
    "sinc",
}


def one_operand():
    cases = [(name, f, exact, None) for name, f in EXACT_OPS.items()]
    cases += [(name, f, wide, units) for name, (f, units) in EXTENDED.items()]
    cases += [(name, f, exact, units) for name, (f, units) in DOUBLE.items()]
    cases += [(name, by_torch(f), exact, 16) for name, f in ACTIVATIONS.items()]
    cases += [("relu", by_torch(F.relu), exact, None)]
    for name, function, widen, units in cases:
        for dtype in FLOATS:
            x = grid(dtype)
            with np.errstate(all="ignore"):
                y = function(widen(x))
            y = y if y.dtype == np.bool_ else narrow(dtype, y)
            tol = EXACT if units is None else strict(dtype, units)
            if name in EITHER_ZERO:
                tol = ANY_ZERO if units is None else tol | {"signed_zero": False}
            yield sample(f"{name}/{dtype}/grid", [x], y, tol, "every special value")
    for dtype in FLOATS:
        x, limit = grid(dtype), LARGEST[dtype]
        y = narrow(dtype, np.nan_to_num(exact(x), nan=0.0, posinf=limit, neginf=-limit))
        yield sample(f"nan_to_num/{dtype}/grid", [x], y, EXACT, "every special value")
        y = narrow(dtype, scipy.special.polygamma(1, exact(np.abs(x))))
        yield sample(
            f"polygamma/{dtype}/grid", [np.abs(x)], y, strict(dtype, 16), "every special value", n=1
        )


# ---- two operands


# function, how operands are widened, units; None: correctly rounded.
BINARY = {
    "add": (np.add, exact, None),
    "sub": (np.subtract, exact, None),
    "mul": (np.multiply, exact, None),
    "div": (np.divide, exact, None),
    "rem": (np.fmod, exact, None),
    "pow": (np.power, wide, 16),
    "maximum": (np.maximum, exact, None),
    "minimum": (np.minimum, exact, None),
    "copysign": (np.copysign, exact, None),
    "atan2": (np.arctan2, wide, 8),
    "hypot": (np.hypot, wide, 8),
    "logaddexp": (np.logaddexp, wide, 8),
    "xlogy": (scipy.special.xlogy, exact, 8),
    "heaviside": (np.heaviside, exact, None),
    "floor_div": (np.floor_divide, exact, None),
    "mod": (np.mod, exact, None),
    "prelu": (by_torch(lambda x, slope: torch.where(x > 0, x, x * slope)), exact, None),
    "swiglu": (by_torch(lambda gate, up: F.silu(gate) * up), exact, 16),
    "eq": (np.equal, exact, None),
    "ne": (np.not_equal, exact, None),
    "lt": (np.less, exact, None),
    "le": (np.less_equal, exact, None),
    "gt": (np.greater, exact, None),
    "ge": (np.greater_equal, exact, None),
}


def pairs(dtype):
    values = grid(dtype)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def two_operands():
    for name, (function, widen, units) in BINARY.items():
        for dtype in FLOATS:
            a, b = pairs(dtype)
            if name == "copysign":  # NaN has a sign, but not one to rely on
                keep = ~np.isnan(exact(b))
                a, b = a[keep], b[keep]
            if name == "swiglu":  # half of the smallest number is rounded before it is multiplied
                keep = ~(np.abs(exact(a)) == exact(grid(dtype))[2])
                a, b = a[keep], b[keep]
            with np.errstate(all="ignore"):
                y = function(widen(a), widen(b))
            y = y if y.dtype == np.bool_ else narrow(dtype, y)
            tol = ANY_ZERO if name in ("maximum", "minimum") else EXACT
            if units is not None:
                tol = strict(dtype, units)
            yield sample(f"{name}/{dtype}/grid", [a, b], y, tol, "every pair of special values")


# ---- three operands


def three_operands():
    for dtype in FLOATS:
        few = array(
            dtype,
            [np.nan, -np.inf, -1, -0.0, 0.0, 2.0**-133 if dtype == "bf16" else 2.0**-24, 1, np.inf],
        )
        x, low, high = (v.ravel() for v in np.meshgrid(grid(dtype), few, few))
        y = narrow(dtype, np.minimum(np.maximum(exact(x), exact(low)), exact(high)))
        yield sample(
            f"clamp/{dtype}/grid", [x, low, high], y, ANY_ZERO, "every triple of special values"
        )
        weight = array(dtype, [0.0, 1.0, 0.25])
        a, b, w = (v.ravel() for v in np.meshgrid(few, few, weight))
        y = narrow(dtype, by_torch(torch.lerp)(exact(a), exact(b), exact(w)))
        tol = strict(dtype, 8) | {"signed_zero": False}
        yield sample(
            f"lerp/{dtype}/grid", [a, b, w], y, tol, "special ends, weights 0, 1 and between"
        )
        a, b = pairs(dtype)
        for cond in (False, True):
            conds = np.full(a.shape, cond)
            name = f"select/{dtype}/grid-{cond}".lower()
            yield sample(name, [conds, a, b], a if cond else b, EXACT, "the other side is not seen")


# ---- complex numbers


def complex_grid():
    parts = [np.nan, 0.0, -0.0, 1.0, -1.0, np.inf, -np.inf]
    z = np.array([complex(re, im) for re in parts for im in parts], np.complex128)
    return z.astype(np.complex64)


# Functions only: neither NumPy's nor PyTorch's complex products and quotients keep Annex G.
COMPLEX = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "complex_abs": np.abs,
    "complex_angle": np.angle,
}


def complex_functions():
    re, im = pairs("f32")
    z = np.empty(re.shape, np.complex64)
    z.real, z.imag = re, im
    yield sample("complex/f32/grid", [re, im], z, EXACT, "every pair of special parts")
    for name, function in COMPLEX.items():
        z = complex_grid()
        with np.errstate(all="ignore"):
            y = function(z.astype(np.complex128))
        y = narrow("f32" if y.dtype == np.float64 else "c64", y)
        tol = {"rel": 4 * 2.0**-23, "abs": 0, "signed_zero": True}
        yield sample(f"{name}/c64/grid", [z], y, tol, "every pair of special parts, by Annex G")


def samples():
    yield from one_operand()
    yield from two_operands()
    yield from three_operands()
    yield from complex_functions()
