"""Functions of one operand, select and clamp."""

import mpmath
import numpy as np

from .core import (
    ALL,
    ANY_ZERO,
    EXACT,
    FLOATS,
    INEXACT,
    LARGEST,
    NAMES,
    NUMBERS,
    REALS,
    Real,
    array,
    denormals,
    any_bits,
    exact,
    narrow,
    random,
    rng_of,
    sample,
    special_values,
    ulps,
    wide,
)


def erf(x):
    def one(v):
        if not np.isfinite(v):
            return Real(np.nan) if np.isnan(v) else np.sign(v)
        high = float(v)  # operands are binary64 at most, so this is exact
        return Real(mpmath.nstr(mpmath.erf(mpmath.mpf(high)), 30))

    return np.array([one(v) for v in np.ravel(x)], Real).reshape(np.shape(x))


def softplus(x):
    return np.where(np.isnan(x), x, np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def sign(x):
    return np.where(x > 0, 1, np.where(x < 0, -1, x))


# Exact results: name -> (dtypes, function of exact operands). -0 is kept apart from +0 except in relu.
EXACT_OPS = {
    "neg": (NUMBERS, lambda x: -x),
    "abs": (REALS, np.abs),
    "sign": (REALS, sign),
    "sqrt": (FLOATS, np.sqrt),
    "square": (REALS, lambda x: x * x),
    "reciprocal": (FLOATS, lambda x: 1 / x),
    "relu": (REALS, lambda x: np.where(np.isnan(x) | (x > 0), x, 0)),
    "floor": (FLOATS, np.floor),
    "ceil": (FLOATS, np.ceil),
    "round": (FLOATS, np.rint),
    "round_straight_through": (FLOATS, np.rint),
    "trunc": (FLOATS, np.trunc),
}

# Functions: name -> (dtypes, function of wide operands, units in the last place, range of the basic case).
# 4 units for what is one function, 8 for what is usually composed of two or three.
FUNCTIONS = {
    "exp": (INEXACT, np.exp, 4, (-8, 8)),
    "log": (INEXACT, np.log, 4, (0.01, 20)),
    "log1p": (FLOATS, np.log1p, 8, (-0.9, 5)),
    "expm1": (FLOATS, np.expm1, 8, (-3, 3)),
    "sqrt": (["c64"], np.sqrt, 4, (-4, 4)),
    "rsqrt": (FLOATS, lambda x: 1 / np.sqrt(x), 2, (0.01, 20)),
    "square": (["c64"], lambda x: x * x, 4, (-4, 4)),
    "reciprocal": (["c64"], lambda x: 1 / x, 4, (-4, 4)),
    "sin": (INEXACT, np.sin, 4, (-7, 7)),
    "cos": (INEXACT, np.cos, 4, (-7, 7)),
    "tan": (FLOATS, np.tan, 8, (-1.4, 1.4)),
    "atan": (FLOATS, np.arctan, 4, (-5, 5)),
    "tanh": (INEXACT, np.tanh, 4, (-3, 3)),
    "sigmoid": (FLOATS, lambda x: 1 / (1 + np.exp(-x)), 8, (-10, 10)),
    "erf": (FLOATS, erf, 4, (-3, 3)),
    "softplus": (FLOATS, softplus, 8, (-12, 12)),
    "softsign": (FLOATS, lambda x: x / (1 + np.abs(x)), 4, (-10, 10)),
}

PREDICATES = {"is_nan": np.isnan, "is_inf": np.isinf, "is_finite": np.isfinite}

# Arguments near 0, where log1p and friends must keep relative accuracy, and near the ends of the finite results.
NEAR_ZERO = [1e-3, -1e-3, 1e-4, -2e-5, 3e-7, -1e-7]
EXTREME = {
    "exp": {
        "f16": [11.0, -16.5, 11.5],
        "bf16": [88.0, -87.0, 90.0],
        "f32": [88.7, -87.3, 88.73, -103.0, -120.0],
        "f64": [709.7, -708.3, 709.8, -740.0, -800.0],
    },
    "expm1": {"f32": [88.7, 88.73, -20.0, -120.0], "f64": [709.7, 709.8, -40.0]},
    "log": {d: [LARGEST[d], LARGEST[d] / 3, 1.0, 0.9990234375, 1.0078125] for d in FLOATS},
    "log1p": {d: [LARGEST[d], LARGEST[d] / 3, -0.99609375] for d in FLOATS},
    "sigmoid": {
        "f16": [-16.0, 20.0],
        "bf16": [-87.0, 100.0],
        "f32": [-87.0, -90.0, 100.0],
        "f64": [-708.0, -720.0, 800.0],
    },
    "tanh": {
        "f16": [9.0, -9.0],
        "bf16": [9.0, -9.0],
        "f32": [9.1, -9.1, 44.0, -90.0],
        "f64": [19.1, -22.0, 750.0],
    },
    "softplus": {"f32": [88.0, -87.0, 100.0, -100.0, 1e30], "f64": [709.0, -708.0, 800.0, 1e300]},
    "erf": {"f32": [3.9, -4.1, 20.0, 0.84375, 1.25], "f64": [5.9, -6.1, 30.0]},
    "rsqrt": {d: [LARGEST[d], 1.0, 4.0] for d in FLOATS},
    "atan": {d: [LARGEST[d], -LARGEST[d], 2.4, 0.66] for d in FLOATS},
    "sin": {
        "f32": [3.14159274, 6.2831855, 1.57079637, 100.0, 1000.5, -12345.678],
        "f64": [3.141592653589793, 1e5, -1e6],
    },
    "cos": {
        "f32": [3.14159274, 4.712389, 1.57079637, 100.0, 1000.5, -12345.678],
        "f64": [1.5707963267948966, 1e5, -1e6],
    },
}
HUGE = {
    "f32": [1e5, 3.3e6, -1e7, 2e9, 1e15, -3e22, 1e30, 3e38],
    "f64": [1e7, 2e9, -1e15, 3e22, 1e100, -1e300],
    "f16": [60000.0, -1234.0],
    "bf16": [1e6, -1e10, 1e30],
}


def function_tolerance(name, dtype, units):
    if name in ("sin", "cos") and dtype != "c64":
        return ulps(dtype, units, unit_circle(dtype))
    return ulps(dtype, units)


def unit_circle(dtype):
    """sin and cos near their zeros: half a unit of 1, the price of a reduction by a few-part pi."""
    return 2.0**-53 if dtype == "f64" else 2.0**-24


def basic_operand(identifier, dtype, low, high, shape=(5, 7)):
    return random(rng_of(identifier), dtype, shape, low, high)


def apply(function, x, widen):
    with np.errstate(all="ignore"):
        return narrow(NAMES[x.dtype], function(widen(x)))


def unary(name, dtype, case, x, function, widen, tol, note):
    return sample(f"{name}/{dtype}/{case}", [x], apply(function, x, widen), tol, note)


def shape_cases(name, dtype, function, widen, tol, low, high):
    for case, shape, note in [("rank0", (), "rank 0"), ("empty", (2, 0, 3), "no elements")]:
        x = basic_operand(f"{name}/{dtype}/{case}", dtype, low, high, shape)
        yield unary(name, dtype, case, x, function, widen, tol, note)


def exact_unary():
    for name, (dtypes, function) in EXACT_OPS.items():
        tol = ANY_ZERO if name == "relu" else EXACT
        low = 0.1 if name == "sqrt" else -9
        for dtype in dtypes:
            x = basic_operand(f"{name}/{dtype}/basic", dtype, low, 9)
            yield unary(name, dtype, "basic", x, function, exact, tol, "ordinary values")
            yield from shape_cases(name, dtype, function, exact, tol, low, 9)
            if dtype == "c64":
                continue
            x = array(dtype, special_values(dtype))
            yield unary(
                name,
                dtype,
                "special",
                x,
                function,
                exact,
                tol,
                "NaN, infinities, signed zeros, or integer limits",
            )
            if dtype in FLOATS:
                yield unary(
                    name,
                    dtype,
                    "denormal",
                    denormals(dtype),
                    function,
                    exact,
                    tol,
                    "denormals are kept",
                )
    halves = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, -0.49, 3.5, 1024.5, 7.0, -0.2]
    for name in ("floor", "ceil", "round", "round_straight_through", "trunc"):
        for dtype in FLOATS:
            yield unary(
                name,
                dtype,
                "halves",
                array(dtype, halves),
                EXACT_OPS[name][1],
                exact,
                EXACT,
                "halves go to even; results between -1 and 0 are -0",
            )


def functions():
    for name, (dtypes, function, units, (low, high)) in FUNCTIONS.items():
        for dtype in dtypes:
            tol = function_tolerance(name, dtype, units)
            x = basic_operand(f"{name}/{dtype}/basic", dtype, low, high)
            yield unary(name, dtype, "basic", x, function, wide, tol, "ordinary values")
            yield from shape_cases(name, dtype, function, wide, tol, low, high)
            if dtype == "c64":
                continue
            x = array(dtype, special_values(dtype))
            yield unary(
                name,
                dtype,
                "special",
                x,
                function,
                wide,
                tol,
                "NaN, infinities, zeros, outside the domain",
            )
            yield unary(
                name, dtype, "denormal", denormals(dtype), function, wide, tol, "denormal arguments"
            )
            x = array(dtype, NEAR_ZERO + [1 + v for v in NEAR_ZERO])
            yield unary(name, dtype, "near", x, function, wide, tol, "near 0 and near 1")
            if dtype in EXTREME.get(name, {}):
                x = array(dtype, EXTREME[name][dtype])
                yield unary(
                    name,
                    dtype,
                    "extreme",
                    x,
                    function,
                    wide,
                    tol,
                    "near overflow, underflow or saturation",
                )
            if dtype == "f32":
                x = basic_operand(f"{name}/{dtype}/long", dtype, low, high, (131,))
                yield unary(
                    name, dtype, "long", x, function, wide, tol, "several vectors and a tail"
                )
            if name in ("sin", "cos"):
                yield unary(
                    name,
                    dtype,
                    "huge",
                    array(dtype, HUGE[dtype]),
                    function,
                    wide,
                    tol,
                    "arguments far beyond 2 pi",
                )


def complex_points():
    """Quadrants and axes for the complex functions, off the branch cuts' lower side."""
    points = [1 + 0j, 1j, -4 + 0j, -1j, 3 + 4j, -3 + 4j, -3 - 4j, 0.5 - 0.25j, 1e-3 + 1e-3j]
    for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "reciprocal", "square"):
        _, function, units, _ = FUNCTIONS[name]
        yield unary(
            name,
            "c64",
            "points",
            array("c64", points),
            function,
            wide,
            ulps("c64", units, 1e-9),
            "axes and quadrants",
        )
    z = random(rng_of("conj/c64"), "c64", (3, 4))
    yield sample("conj/c64/basic", [z], np.conj(z), EXACT, "conjugate")
    for dtype in REALS:
        x = array(dtype, special_values(dtype))
        yield sample(f"conj/{dtype}/special", [x], x, EXACT, "a real number is its own")
    for dtype in ALL:
        for shape in ((3, 4), (), (0, 2)):
            name = f"stop_gradient/{dtype}/rank{len(shape)}{'-empty' if 0 in shape else ''}"
            x = any_bits(rng_of(name), dtype, shape)
            yield sample(name, [x], x, EXACT, "the operand itself")
    whole = array("i32", [-3, 0, 7])
    yield sample("conj/i32/basic", [whole], whole, EXACT, "integers as they are")
    yield sample("real/c64/basic", [z], z.real, EXACT, "real part")
    yield sample("imag/c64/basic", [z], z.imag, EXACT, "imaginary part")


def predicates():
    for name, function in PREDICATES.items():
        for dtype in FLOATS:
            x = array(dtype, special_values(dtype) + [LARGEST[dtype], -LARGEST[dtype]])
            yield sample(
                f"{name}/{dtype}/special",
                [x],
                function(x.astype(np.float64)),
                EXACT,
                "NaN, infinities, finite values",
            )
            x = denormals(dtype)
            yield sample(
                f"{name}/{dtype}/denormal",
                [x],
                function(x.astype(np.float64)),
                EXACT,
                "denormals are finite",
            )
    x = np.array([[True, False], [False, True]])
    yield sample("logical_not/bool/basic", [x], ~x, EXACT, "both values")
    yield sample("logical_not/bool/rank0", [np.array(False)], np.array(True), EXACT, "rank 0")


SELECT_SHAPES = [
    ((4, 5), (4, 5), (4, 5)),
    ((4, 1), (5,), ()),
    ((), (2, 3), (2, 3)),
    ((3,), (2, 1), (1, 3)),
    ((0, 2), (2,), (1, 2)),
]


def selects():
    for dtype in ALL:
        for n, shapes in enumerate(SELECT_SHAPES):
            name = f"select/{dtype}/broadcast-{n}"
            rng = rng_of(name)
            cond = rng.random(shapes[0]) < 0.5
            a, b = any_bits(rng, dtype, shapes[1]), any_bits(rng, dtype, shapes[2])
            yield sample(
                name, [cond, a, b], np.where(cond, a, b).astype(a.dtype), EXACT, f"shapes {shapes}"
            )


def clamp(x, low, high):
    return np.minimum(np.maximum(x, low), high)  # NumPy's propagate NaN


def clamps():
    for dtype in REALS:
        for n, shapes in enumerate(
            [((4, 5), (), ()), ((4, 5), (5,), (4, 1)), ((), (), ()), ((0, 3), (3,), ())]
        ):
            name = f"clamp/{dtype}/broadcast-{n}"
            rng = rng_of(name)
            x = random(rng, dtype, shapes[0], -6, 6)
            low, high = random(rng, dtype, shapes[1], -3, 0), random(rng, dtype, shapes[2], 1, 4)
            yield sample(name, [x, low, high], clamp(x, low, high), ANY_ZERO, f"shapes {shapes}")
        if dtype in FLOATS:
            x = array(dtype, special_values(dtype))
            low, high = array(dtype, -1.5), array(dtype, 0.75)
            yield sample(
                f"clamp/{dtype}/special",
                [x, low, high],
                clamp(x, low, high),
                ANY_ZERO,
                "NaN stays NaN",
            )


def samples():
    yield from exact_unary()
    yield from functions()
    yield from complex_points()
    yield from predicates()
    yield from selects()
    yield from clamps()
