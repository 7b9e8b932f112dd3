"""Functions by mpmath, integers by Python's own, both rounded once.

Functions are computed in binary64: f16, bf16 and f32 get one unit in the last place, f64 eight. lgamma and digamma also get
steps at 1, for their zeros.
"""

import mpmath
import numpy as np

from .core import (
    ANY_ZERO,
    EXACT,
    FLOATS,
    INTS,
    LARGEST,
    NUMPY,
    Real,
    any_bits,
    array,
    denormals,
    narrow,
    random,
    rng_of,
    sample,
    special_values,
    ulps,
    unit,
)

NAN, INF = mpmath.nan, mpmath.inf


def real(v):
    """An mpmath number as an extended real."""
    if mpmath.isnan(v):
        return Real(np.nan)
    if mpmath.isinf(v):
        return Real(np.inf if v > 0 else -np.inf)
    return Real(mpmath.nstr(v, 30))


def by_mpmath(function, *operands):
    """function on every element; a result that is not real is NaN. A zero result keeps the sign that `function` gives."""
    wide = np.broadcast_arrays(*[np.asarray(x, np.float64) for x in operands])
    out = np.empty(wide[0].shape, Real)
    for i in np.ndindex(out.shape):
        args = [float(x[i]) for x in wide]
        if any(np.isnan(args)):
            out[i] = np.nan
            continue
        y = function(*args)
        if isinstance(y, float):
            out[i] = y
        else:
            out[i] = np.nan if isinstance(y, mpmath.mpc) and y.imag != 0 else real(mpmath.re(y))
    return out


def mp(function, inside=lambda x: True, limits=None):
    """A function of finite reals in its domain, with its values at the infinities."""
    low, high = limits or (np.nan, np.nan)

    def one(x):
        if np.isinf(x):
            return float(high if x > 0 else low)
        return function(mpmath.mpf(x)) if inside(x) else np.nan

    return one


def lgamma(x):
    if x <= 0 and x == int(x):
        return float("inf")
    return mpmath.log(abs(mpmath.gamma(x))) if abs(x) < 1e4 else mpmath.re(mpmath.loggamma(x))


def polygamma(n):
    def one(x):
        if x == 0:
            return float(np.copysign(np.inf, -float(x))) if n == 0 else np.inf
        if x < 0 and x == int(x):
            return np.nan if n % 2 == 0 else np.inf
        return mpmath.psi(n, x)

    return one


def digamma(x):  # mpmath has no signed zero
    if x == 0:
        return float(np.copysign(np.inf, -x))
    return np.nan if x == -np.inf else mp(polygamma(0), limits=(np.nan, np.inf))(x)


def erfinv(x):
    return float(np.copysign(np.inf, float(x))) if abs(x) == 1 else mpmath.erfinv(x)


def logistic_pdf(x):
    e = mpmath.exp(-abs(mpmath.mpf(x)))
    return e / (1 + e) ** 2


def atanh(x):
    return float(np.copysign(np.inf, float(x))) if abs(x) == 1 else mpmath.atanh(x)


def log(base):
    def one(x):
        return -np.inf if x == 0 else np.nan if x < 0 else mpmath.log(x) / mpmath.log(base)

    return one


def cbrt(x):
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


def sinc(x):
    return 1.0 if x == 0 else mpmath.sinpi(x) / (mpmath.pi * x)


inside_unit = lambda x: abs(x) <= 1  # noqa: E731

# name -> function of a float, steps at 1 of absolute error, range of the basic case, more points
FUNCTIONS = {
    "exp2": (mp(lambda x: mpmath.mpf(2) ** x, limits=(0, np.inf)), 0, (-8, 8), [15, -20, 120, -140]),
    "log2": (mp(log(2), limits=(np.nan, np.inf)), 0, (0.01, 20), [8, 1024, 1.0009765625]),
    "log10": (mp(log(10), limits=(np.nan, np.inf)), 0, (0.01, 20), [10, 1000, 1.0009765625]),
    "sinh": (mp(mpmath.sinh, limits=(-np.inf, np.inf)), 0, (-5, 5), [1e-3, 12, -21.5, 89, 710.25]),
    "cosh": (mp(mpmath.cosh, limits=(np.inf, np.inf)), 0, (-5, 5), [1e-3, 12, -21.5, 89, 710.25]),
    "asinh": (mp(mpmath.asinh, limits=(-np.inf, np.inf)), 0, (-9, 9), [1e-3, -1e4, 1e9, 1e30]),
    "acosh": (
        mp(mpmath.acosh, lambda x: x >= 1, (np.nan, np.inf)),
        0,
        (1, 9),
        [1, 1.0009765625, 1e4, 1e9, 1e30, 0.5],
    ),
    "atanh": (mp(atanh, inside_unit), 0, (-0.95, 0.95), [1e-3, 0.998046875, 1.5]),
    "asin": (mp(mpmath.asin, inside_unit), 0, (-1, 1), [1e-3, 0.998046875, 1.5]),
    "acos": (mp(mpmath.acos, inside_unit), 0, (-1, 1), [1e-3, 0.998046875, -0.998046875, 1.5]),
    "erfc": (mp(mpmath.erfc, limits=(2, 0)), 0, (-3, 6), [0.4, 0.3984375, 9, 20, 26.5, 40, -9]),
    "normal_cdf": (mp(mpmath.ncdf, limits=(0, 1)), 0, (-6, 4), [-4, -9, -13.5, -20, -38, 5, 9]),
    "normal_pdf": (mp(mpmath.npdf, limits=(0, 0)), 0, (-6, 6), [4, 9, 13.5, 20, 38, -9]),
    "logistic_pdf": (mp(logistic_pdf, limits=(0, 0)), 0, (-9, 9), [17, 30, 88, 100, 700, -30]),
    "erfinv": (mp(erfinv, inside_unit), 0, (-1, 1), [1e-3, 0.998046875, 0.5, 0.49951171875, 1.5]),
    "lgamma": (
        mp(lgamma, limits=(np.inf, np.inf)),
        4,
        (-4.9, 12),
        [1, 2, 3, 1.0009765625, 2.001953125, 7.9375, 8, 30, 1e4, 1e30, -0.0009765625, -3],
    ),
    "digamma": (digamma, 8, (-4.9, 12), [1, 1.4619140625, 10, 30, 1e4, -0.0009765625, -3]),
    "sinc": (mp(sinc, limits=(0, 0)), 0, (-4, 4), [1e-3, 1, -2, 2.0009765625, 0.5]),
    "cbrt": (mp(cbrt, limits=(-np.inf, np.inf)), 0, (-9, 9), [8, -27, 1e-3, 1e30]),
    "deg2rad": (mp(lambda x: x * mpmath.pi / 180, limits=(-np.inf, np.inf)), 0, (-720, 720), []),
    "rad2deg": (mp(lambda x: x * 180 / mpmath.pi, limits=(-np.inf, np.inf)), 0, (-9, 9), []),
}
EVEN = {"exp2", "cosh", "acos", "erfc", "normal_cdf", "normal_pdf", "logistic_pdf", "lgamma", "digamma", "sinc", "log2", "log10", "acosh"}
TINY = {  # where |x| below the smallest normal number of f32 gives what ordinary arguments do not
    "log2",
    "log10",
    "sinh",
    "asinh",
    "atanh",
    "asin",
    "erfinv",
    "lgamma",
    "cbrt",
    "sinc",
}


def function_cases(name, dtype, function, tol, low, high, points, **attrs):
    def one(case, x, note):
        with np.errstate(all="ignore"):
            y = narrow(dtype, by_mpmath(function, x))
        if name not in EVEN:  # odd functions keep the sign of a zero; mpmath has none
            y = np.where(y == 0, np.copysign(y, x.astype(np.float64)).astype(y.dtype), y)
        return sample(f"{name}/{dtype}/{case}", [x], y, tol, note, **attrs)

    for case, shape, note in [
        ("basic", (5, 7), "ordinary values"),
        ("rank0", (), "rank 0"),
        ("empty", (2, 0), "no elements"),
    ]:
        x = random(rng_of(f"{name}/{dtype}/{case}{attrs}"), dtype, shape, low, high)
        suffix = "".join(f"-{v}" for v in attrs.values())
        yield one(case + suffix, x, note)
    suffix = "".join(f"-{v}" for v in attrs.values())
    yield one("special" + suffix, array(dtype, special_values(dtype)), "NaN, infinities, zeros")
    points = [p for p in points if abs(p) <= LARGEST[dtype]]
    if points:
        yield one("points" + suffix, array(dtype, points), "ends, zeros and joints")
    if name in TINY:
        yield one("denormal" + suffix, denormals(dtype), "denormal arguments")
    if dtype == "f64" and name in ("asinh", "acosh", "lgamma", "cbrt", "log2"):
        yield one("huge" + suffix, array(dtype, [1e150, 1e300, 3e305]), "near overflow")


def functions():
    for name, (function, steps, (low, high), points) in FUNCTIONS.items():
        for dtype in FLOATS:
            tol = ulps(dtype, 8, steps * unit(dtype))
            yield from function_cases(name, dtype, function, tol, low, high, points)
    for n in (0, 1, 2, 5):
        for dtype in FLOATS:
            function = digamma if n == 0 else mp(polygamma(n), lambda x: x != 0, (np.nan, 0))
            tol = ulps(dtype, 16, 8 * unit(dtype))
            x = random(rng_of(f"polygamma/{dtype}/{n}"), dtype, (4, 5), 0.25, 15)
            y = narrow(dtype, by_mpmath(function, x))
            yield sample(f"polygamma/{dtype}/basic-{n}", [x], y, tol, f"order {n}", n=n)
            x = array(dtype, [-0.25, -0.5, -1.375, -2.625, 20.0, 100.0])
            y = narrow(dtype, by_mpmath(function, x))
            yield sample(f"polygamma/{dtype}/negative-{n}", [x], y, tol, "reflected", n=n)


def atan2(y, x):
    return float(np.arctan2(y, x)) if 0 in (y, x) or np.isinf([y, x]).any() else mpmath.atan2(y, x)


def logaddexp(x, y):
    if np.isinf(x) or np.isinf(y):
        return float(np.logaddexp(x, y))
    return mpmath.log(mpmath.exp(x) + mpmath.exp(y))


def hypot(x, y):
    return np.inf if np.isinf(x) or np.isinf(y) else mpmath.hypot(x, y)


def xlogy(x, y):
    if x == 0:
        return 0.0
    if y <= 0:
        return float(np.copysign(np.inf, -x)) if y == 0 else np.nan
    return float(x * np.log(y)) if np.isinf([x, y]).any() else x * mpmath.log(y)


TWO = {
    "atan2": (atan2, (-4, 4), (-4, 4)),
    "logaddexp": (logaddexp, (-9, 9), (-9, 9)),
    "hypot": (hypot, (-9, 9), (-9, 9)),
    "xlogy": (xlogy, (-3, 3), (0.01, 9)),
}
SHAPES = [((4, 5), (4, 5)), ((4, 1), (5,)), ((), (3,)), ((0, 3), (3,))]


def two_operands():
    for name, (function, first, second) in TWO.items():
        for dtype in FLOATS:
            # a sum near zero, and a product with a logarithm near zero, are good to a step at 1
            tol = ulps(dtype, 8, 2 * unit(dtype) if name == "logaddexp" else 0)
            for n, (a, b) in enumerate(SHAPES):
                identifier = f"{name}/{dtype}/broadcast-{n}"
                rng = rng_of(identifier)
                x, y = random(rng, dtype, a, *first), random(rng, dtype, b, *second)
                out = narrow(dtype, by_mpmath(function, x, y))
                yield sample(identifier, [x, y], out, tol, f"shapes {a}, {b}")
            values = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
            x, y = np.meshgrid(values, values)
            with np.errstate(all="ignore"):
                out = by_mpmath(function, x, y)
                if name == "hypot":  # infinite beside NaN, too
                    out = np.where(np.isinf(x) | np.isinf(y), np.inf, out)
            out = narrow(dtype, out)
            operands = [array(dtype, x), array(dtype, y)]
            yield sample(f"{name}/{dtype}/special", operands, out, tol, "all pairs of specials")
            if name == "hypot":
                big, tiny = LARGEST[dtype] / 4, float(denormals(dtype)[5])
                x, y = array(dtype, [big, tiny, big]), array(dtype, [big, tiny, tiny])
                out = narrow(dtype, by_mpmath(function, x, y))
                yield sample(f"{name}/{dtype}/extreme", [x, y], out, tol, "no overflow")


def round_away(x):
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def exact_floats():
    halves = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, -0.49, 3.5, 7.0, -0.2, 0.0, -0.0]
    for dtype in FLOATS:
        x = array(dtype, halves + [np.nan, np.inf, -np.inf, LARGEST[dtype]])
        wide = x.astype(np.float64)
        with np.errstate(all="ignore"):
            out = narrow(dtype, round_away(wide))
            yield sample(f"round_away/{dtype}/halves", [x], out, EXACT, "halves away from zero")
            below = np.nextafter(NUMPY[dtype].type(0.5), NUMPY[dtype].type(0))
            y = np.array([below, -below], NUMPY[dtype])
            zeros = array(dtype, [0.0, -0.0])
            yield sample(f"round_away/{dtype}/below", [y], zeros, EXACT, "just below a half")
            out = narrow(dtype, wide - np.trunc(wide))
            yield sample(f"frac/{dtype}/halves", [x], out, ANY_ZERO, "the sign of x")
        yield sample(f"is_pos_inf/{dtype}/special", [x], np.isposinf(wide), EXACT, "specials")
        yield sample(f"is_neg_inf/{dtype}/special", [x], np.isneginf(wide), EXACT, "specials")
        low, high = -LARGEST[dtype], LARGEST[dtype]
        out = narrow(dtype, np.nan_to_num(wide, nan=0.0, posinf=high, neginf=low))
        yield sample(f"nan_to_num/{dtype}/default", [x], out, EXACT, "the finite limits")
        out = narrow(dtype, np.nan_to_num(wide, nan=-1.0, posinf=2.0, neginf=-3.0))
        attrs = {"nan": -1.0, "posinf": 2.0, "neginf": -3.0}
        yield sample(f"nan_to_num/{dtype}/given", [x], out, EXACT, "given numbers", **attrs)
        out = narrow(dtype, np.nan_to_num(wide, nan=8.0, posinf=high, neginf=0.5))
        attrs = {"nan": 8.0, "neginf": 0.5}
        yield sample(f"nan_to_num/{dtype}/neginf", [x], out, EXACT, "one of them given", **attrs)
        out = narrow(dtype, np.nan_to_num(wide, nan=0.0, posinf=-0.25, neginf=low))
        yield sample(f"nan_to_num/{dtype}/posinf", [x], out, EXACT, "the other", posinf=-0.25)
        x, y = [array(dtype, v) for v in np.meshgrid(special_values(dtype), special_values(dtype))]
        finite = ~np.isnan(y.astype(np.float64))  # NaN has a sign, but not one to rely on
        x, y = x[finite], y[finite]
        out = narrow(dtype, np.copysign(x.astype(np.float64), y.astype(np.float64)))
        yield sample(f"copysign/{dtype}/special", [x, y], out, EXACT, "signs of zeros")
        rng = rng_of(f"lerp/{dtype}")
        a, b, w = (random(rng, dtype, (4, 5), -3, 3) for _ in range(3))
        wide = [v.astype(np.float64).astype(Real) for v in (a, b, w)]
        out = narrow(dtype, wide[0] + wide[2] * (wide[1] - wide[0]))
        tol = ulps(dtype, 4, 32 * unit(dtype))
        yield sample(f"lerp/{dtype}/basic", [a, b, w], out, tol, "also outside [0, 1]")
        ends = array(dtype, [0.0, 1.0])
        a, b = array(dtype, [0.1, 0.1]), array(dtype, [0.7, 0.7])
        out = np.stack([a[0], b[1]])
        yield sample(f"lerp/{dtype}/ends", [a, b, ends], out, EXACT, "both ends are exact")


def divisions():
    for dtype in FLOATS:
        rng = rng_of(f"floor_div/{dtype}")
        x, y = random(rng, dtype, (6, 7), -9, 9), random(rng, dtype, (7,), -3, 3)
        a, b = x.astype(np.float64), y.astype(np.float64)
        with np.errstate(all="ignore"):
            # exact: operands of 24 bits or fewer have an exact remainder in binary64
            q, m = narrow(dtype, np.floor_divide(a, b)), narrow(dtype, np.mod(a, b))
            one = ulps(dtype, 1)
            yield sample(f"floor_div/{dtype}/basic", [x, y], q, EXACT, "both signs")
            yield sample(f"mod/{dtype}/basic", [x, y], m, one, "the sign of b")
            specials = [5.0, -5.0, 0.0, -0.0, np.inf, np.nan, 6.0, -6.0]
            x, y = np.meshgrid(specials, [2.0, -3.0, 0.0, np.nan, 0.5])
            q, m = narrow(dtype, np.floor_divide(x, y)), narrow(dtype, np.mod(x, y))
            x, y = array(dtype, x), array(dtype, y)
            yield sample(f"floor_div/{dtype}/special", [x, y], q, EXACT, "zeros, infinities")
            yield sample(f"mod/{dtype}/special", [x, y], m, EXACT, "a zero has the sign of b")
    for dtype in INTS:
        info = np.iinfo(NUMPY[dtype])
        rng = rng_of(f"floor_div/{dtype}")
        x = any_bits(rng, dtype, (6, 6))
        y = array(dtype, [[1], [2], [3], [7], [0], [info.max]])
        if info.min < 0:
            y = np.concatenate([y, array(dtype, [[-1], [-2], [-3], [info.min]])])
            x = np.concatenate([x, any_bits(rng, dtype, (4, 6))])
        pairs = [(int(a), int(b)) for a, b in zip(x.ravel(), np.broadcast_to(y, x.shape).ravel())]
        wrap = (1 << info.bits) - 1

        def wrapped(values):
            low = [int(v) & wrap for v in values]
            signed = [v - (1 << info.bits) if info.min < 0 and v >> (info.bits - 1) else v for v in low]
            return np.array(signed, NUMPY[dtype]).reshape(x.shape)

        q = wrapped([0 if b == 0 else a // b for a, b in pairs])
        m = wrapped([0 if b == 0 else a % b for a, b in pairs])
        yield sample(f"floor_div/{dtype}/limits", [x, y], q, EXACT, "the whole range; x / 0 is 0")
        yield sample(f"mod/{dtype}/limits", [x, y], m, EXACT, "the whole range; x mod 0 is 0")


def bits():
    x = np.array([[True, False], [False, True]])
    y = np.array([True, False])
    for name, function in (
        ("bitwise_and", np.bitwise_and),
        ("bitwise_or", np.bitwise_or),
        ("bitwise_xor", np.bitwise_xor),
    ):
        yield sample(f"{name}/bool/basic", [x, y], function(x, y), EXACT, "logical")
        for dtype in INTS:
            rng = rng_of(f"{name}/{dtype}")
            a, b = any_bits(rng, dtype, (5, 7)), any_bits(rng, dtype, (7,))
            yield sample(f"{name}/{dtype}/basic", [a, b], function(a, b), EXACT, "any bits")
    yield sample("bitwise_not/bool/basic", [x], ~x, EXACT, "logical")
    for dtype in INTS:
        width = np.iinfo(NUMPY[dtype]).bits
        rng = rng_of(f"bits/{dtype}")
        a = any_bits(rng, dtype, (3, 11))
        yield sample(f"bitwise_not/{dtype}/basic", [a], ~a, EXACT, "any bits")
        low = [int(v) & ((1 << width) - 1) for v in a.ravel()]
        counts = array(dtype, [v.bit_count() for v in low], a.shape)
        yield sample(f"population_count/{dtype}/basic", [a], counts, EXACT, "any bits")
        powers = [1 << k for k in range(width)] + [0]
        p = np.array(powers, np.uint64).astype(NUMPY[dtype])
        zeros = array(dtype, [width - v.bit_length() for v in powers])
        yield sample(f"count_leading_zeros/{dtype}/powers", [p], zeros, EXACT, "all powers and 0")
        zeros = array(dtype, [width - v.bit_length() for v in low], a.shape)
        yield sample(f"count_leading_zeros/{dtype}/basic", [a], zeros, EXACT, "any bits")
        by = [0, 1, 2, width // 2, width - 1, width, width + 1, 100]
        by += [-1, -width, -100] if np.iinfo(NUMPY[dtype]).min < 0 else [17, 3, 120]
        by = array(dtype, by)
        moved = {"shift_left": [], "shift_right": [], "shift_right_logical": []}
        for v, n in zip(a.ravel(), np.broadcast_to(by, a.shape).ravel()):
            v, n = int(v), int(n)
            n = n if 0 <= n < width else 2 * width
            moved["shift_left"].append(v << n)
            moved["shift_right"].append(v >> n)
            moved["shift_right_logical"].append((v & ((1 << width) - 1)) >> n)
        for name, values in moved.items():
            out = [v & ((1 << width) - 1) for v in values]
            out = np.array(out, np.uint64).astype(NUMPY[dtype]).reshape(a.shape)
            note = "amounts inside, at and beyond the width, and negative ones"
            yield sample(f"{name}/{dtype}/amounts", [a, by], out, EXACT, note)


def heavisides():
    for dtype in INTS + FLOATS:
        x = array(dtype, [0, 1, 2, 3])
        h = array(dtype, [5, 6, 7, 8])
        out = array(dtype, [5, 1, 1, 1])
        yield sample(f"heaviside/{dtype}/basic", [x, h], out, EXACT, "b where a is 0")
    for dtype in FLOATS:
        x = array(dtype, [-0.0, 0.0, -2.0, np.inf, -np.inf, np.nan])
        out = array(dtype, [0.5, 0.5, 0.0, 1.0, 0.0, np.nan])
        h = array(dtype, 0.5)
        yield sample(f"heaviside/{dtype}/special", [x, h], out, EXACT, "zeros, NaN")


def complex_functions():
    points = [0.5 + 0.25j, -0.5 + 0.75j, 2 + 3j, -2 - 3j, 0.5j, 1.5 - 0.125j, -3 + 0.5j]
    x = array("c64", points)
    for name in ("sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos"):
        function = getattr(mpmath, name)
        out = np.array([complex(function(mpmath.mpmathify(complex(v)))) for v in x])
        tol = ulps("c64", 4)
        yield sample(f"{name}/c64/points", [x], out.astype(NUMPY["c64"]), tol, "off the cuts")


def samples():
    for group in (
        functions,
        two_operands,
        exact_floats,
        divisions,
        bits,
        heavisides,
        complex_functions,
    ):
        yield from group()
