"""Writes tests/golden/slopes.txt: exact first and second derivatives of elementwise functions, by mpmath.

    python tests/golden/slopes.py        # needs mpmath only; the same bytes on every machine

The functions are those of ulps.py, differentiated numerically with so many digits that 53 correct bits remain of a derivative of
1e-308. Arguments are binary32 numbers: both signs of 1e-30 .. 1e30, denser from 1e-3 to 200, and a part of the points where ulps.py
says that something turns. `ulps_test` reads the file and states how far, in units in the last place, derivatives may lie from
these values.

The first line names the version and the seed; then come sections

    op NAME {attributes} by x [x]
    <argument> [<argument>] <value> [<scale>]

by whichever of the arguments x and y it is differentiated. As in ulps.txt, a scale stands where the error is measured against
something larger than the value: a sum whose terms cancel where the derivative is zero (of the absolute values of its terms), or
a rounded exponent u (|u| times the value). Where a derivative could be stated without such a sum there is no scale.
"""

import pathlib
import random

import mpmath
import ulps
from mpmath import mpf
from ulps import SEED, density, f32, gelu_inner, logistic, number, phi, short, sigmoid, softplus

mpmath.mp.dps = 340


def grid():
    rng = random.Random(SEED + 2)
    magnitudes = [10 ** (2 * e + rng.uniform(-0.8, 0.8)) for e in range(-15, 16)]
    magnitudes += [10 ** (-3 + 5.3 * (i + rng.random()) / 46) for i in range(46)]
    return [f32(s * m) for m in sorted(magnitudes) for s in (1, -1)]


GRID = grid()


def sech_squared(x):
    return 4 * logistic(2 * x)


def sinc(x):
    return ulps.ONE["sinc"](x) if x else mpf(1)


def cos_pi(x):
    n = mpmath.nint(x)
    return mpmath.cos((x - n) * mpmath.pi) * (-1 if int(n) % 2 else 1)


def polygamma(n, x):
    return None if x <= 0 and x == int(x) else mpmath.psi(n, x)


def sinc_slope(x):
    return (cos_pi(x) - sinc(x)) / x


# Derivatives that are stated: those declared, and those of functions that take long or that mpmath rounds.
STATED = {
    "round_straight_through": (lambda x: mpf(1), None),
    "nan_to_num": (lambda x: mpf(1), None),
    "frac": (lambda x: mpf(1), None),
    "lgamma": (lambda x: polygamma(0, x), lambda x: polygamma(1, x)),
    "digamma": (lambda x: polygamma(1, x), lambda x: polygamma(2, x)),
    "erfinv": (
        lambda x: mpmath.exp(mpmath.erfinv(x) ** 2) * mpmath.sqrt(mpmath.pi) / 2 if abs(x) < 1 else None,
        lambda x: mpmath.erfinv(x) * mpmath.exp(2 * mpmath.erfinv(x) ** 2) * mpmath.pi / 2 if abs(x) < 1 else None,
    ),
    "sinc": (sinc_slope, lambda x: -(mpmath.pi**2) * sinc(x) - 2 * sinc_slope(x) / x),
}
for n in (1, 2, 5):
    STATED[f"polygamma {{n={n}}}"] = (
        lambda x, n=n: polygamma(n + 1, x),
        lambda x, n=n: polygamma(n + 2, x),
    )

# Step functions, which have no derivative, and functions that are straight lines between points: they have no second one.
STEPS = {"sign", "floor", "ceil", "trunc", "round", "round_away", "stop_gradient"}
LINES = {
    *("neg", "abs", "relu", "relu6", "leaky_relu", "prelu", "hard_sigmoid", "hard_tanh", "softshrink", "hardshrink"),
    *("threshold", "thresholded_relu", "deg2rad", "rad2deg", "round_straight_through", "nan_to_num", "frac"),
}
# Where a derivative passes through 0 or one formula takes over from another, beside those of ulps.py.
POINTS = {
    "elu": [-i * 1.5 for i in range(1, 70)],
    "selu": [-i * 1.5 for i in range(1, 70)],
    "celu": [-i * 1.5 for i in range(1, 70)],
    "expm1": [-i * 1.5 for i in range(1, 70)],
    "tanh": [i / 2 for i in range(1, 90)],
    "sigmoid": [f32(s * i * 1.3) for i in range(1, 80) for s in (1, -1)],
    "logistic_pdf": [f32(s * i * 1.3) for i in range(1, 80) for s in (1, -1)],
    "softplus": [f32(s * i * 1.3) for i in range(1, 80) for s in (1, -1)],
    "log_sigmoid": [f32(s * i * 1.3) for i in range(1, 80) for s in (1, -1)],
    "silu": [f32(s * i * 1.3) for i in range(1, 80) for s in (1, -1)],
    "mish": [f32(s * i * 1.3) for i in range(1, 80) for s in (1, -1)],
    "erf": [f32(i / 3) for i in range(1, 81)],
    "erfc": [f32(i / 3) for i in range(1, 81)],
    "sinc": [f32(s * (i + 0.37) / 40) for i in range(80) for s in (1, -1)] + [f32(10.0**k + 0.25) for k in range(1, 9)],
    **{k: ulps.POINTS[k] for k in ("acosh", "atanh", "asin", "acos", "logit", "erfinv", "log1p", "tanhshrink", "lgamma")},
    "gelu": [-i / 2 for i in range(1, 80)],
    "gelu_tanh": [-i / 2 for i in range(1, 30)],
    "normal_cdf": [-i / 2 for i in range(1, 80)],
    "normal_pdf": [-i / 2 for i in range(1, 80)],
}


def gelu_tanh_terms(x):
    u, v, w = 2 * gelu_inner(x), 2 * mpmath.diff(gelu_inner, x), 2 * mpmath.diff(gelu_inner, x, 2)
    p, most = logistic(u), max(1, abs(u))
    return (sigmoid(u) + abs(x * v) * p) * most, (2 * v + abs(x * w) + abs(x) * v * v) * p * most


def mish_terms(x):
    u, s = softplus(x), sigmoid(x)
    t, q = mpmath.tanh(u), sech_squared(u)
    return t + abs(x) * q * s, (2 * q * s + abs(x) * (2 * t * q * s * s + q * logistic(x))) * max(1, 2 * u)


def quick_gelu_terms(x):
    k = mpf("1.702")
    p, most = logistic(k * x), max(1, k * abs(x))
    return (sigmoid(k * x) + k * abs(x) * p) * most, k * p * (2 + k * abs(x)) * most


def reflected(n):
    """The scale of polygamma: two terms of the reflection formula cancel for x < 0; digamma has a zero."""

    def scale(x, v):
        least = 1 if n == 0 else 0
        return max(abs(v), least) + (0 if x > 0 else 2 * abs(mpmath.psi(n, 1 - x)))

    return scale


SCALED = {
    "silu": (
        lambda x, v: sigmoid(x) + abs(x) * logistic(x),
        lambda x, v: logistic(x) * (2 + abs(x)),
    ),
    "gelu": (lambda x, v: phi(x) + abs(x) * density(x), lambda x, v: density(x) * (2 + x * x)),
    "gelu_tanh": (lambda x, v: gelu_tanh_terms(x)[0], lambda x, v: gelu_tanh_terms(x)[1]),
    "mish": (lambda x, v: mish_terms(x)[0], lambda x, v: mish_terms(x)[1]),
    "quick_gelu": (lambda x, v: quick_gelu_terms(x)[0], lambda x, v: quick_gelu_terms(x)[1]),
    "hard_swish": (lambda x, v: abs(x) / 3 + mpf(0.5) if abs(x) < 3 else abs(v), None),
    "normal_pdf": (None, lambda x, v: density(x) * (1 + x * x)),
    "logistic_pdf": (None, lambda x, v: logistic(x)),  # p (tanh^2(x / 2) - 2 p)
    "sinc": (
        lambda x, v: (1 + abs(sinc(x))) / abs(x) if abs(x) > 0.5 else abs(v),  # the angle is rounded
        lambda x, v: mpmath.pi**2 * abs(sinc(x)) + 2 * abs(sinc_slope(x) / x) if abs(x) > 0.5 else abs(v),
    ),
    "lgamma": (reflected(0), reflected(1)),
    "digamma": (reflected(1), reflected(2)),
    # From the rounded result w: an error of w^2 is one of exp(w^2).
    "erfinv": (
        lambda x, v: abs(v) * (1 + 2 * mpmath.erfinv(x) ** 2),
        lambda x, v: abs(v) * (1 + 4 * mpmath.erfinv(x) ** 2),
    ),
    **{f"polygamma {{n={n}}}": (reflected(n + 1), reflected(n + 2)) for n in (1, 2, 5)},
}


# ---- two arguments


def pairs():
    """Independent magnitudes, near magnitudes and moderate numbers."""
    out = ulps.pairs()[::3]
    rng = random.Random(SEED + 3)
    for _ in range(60):
        a = rng.choice((1, -1)) * 10 ** rng.uniform(-3, 2)
        out.append((f32(a), f32(rng.choice((1, -1)) * abs(a) * 10 ** rng.uniform(-6, 6))))
    return out


def distance(x, y):
    return abs(x - y)


def hypot_square(x, y):
    return x * x + y * y


BY = ("x", "y", "x x", "x y", "y y")
# The scale of each of BY; None where it is the value.
SCALED_TWO = {
    # The difference of the arguments is rounded before its exponential.
    "logaddexp": dict.fromkeys(BY, lambda x, y, v: abs(v) * max(1, distance(x, y))),
    # (y^2 - x^2) / (x^2 + y^2)^2
    "atan2": {"x y": lambda x, y, v: 1 / hypot_square(x, y)},
    # The exponent less 1 or 2 is rounded before the power; x^(y-1) (1 + y log x).
    "pow": {
        "x": lambda x, y, v: abs(v) * max(1, abs(mpmath.log(abs(x)))),
        "x x": lambda x, y, v: abs(v) * max(1, 2 * abs(mpmath.log(abs(x)))),
        "x y": lambda x, y, v: abs(x ** (y - 1)) * (1 + abs(y * mpmath.log(x))) * max(1, abs(mpmath.log(x))),
    },
    "swiglu": {
        "x": lambda x, y, v: abs(y) * (sigmoid(x) + abs(x) * logistic(x)),
        "x x": lambda x, y, v: abs(y) * logistic(x) * (2 + abs(x)),
        "x y": lambda x, y, v: sigmoid(x) + abs(x) * logistic(x),
    },
}


def power_slope(x, y, by):
    """Of x^y; by y for positive x only."""
    if abs(y * mpmath.log(abs(x))) > 1e4 or x < 0 and (y != int(y) or "y" in by):
        return None
    whole = lambda e: mpmath.power(x, int(e)) if x < 0 else mpmath.exp(e * mpmath.log(x))
    log = mpmath.log(x) if x > 0 else None
    return {
        "x": lambda: y * whole(y - 1),
        "y": lambda: whole(y) * log,
        "x x": lambda: y * (y - 1) * whole(y - 2),
        "x y": lambda: whole(y - 1) * (1 + y * log),
        "y y": lambda: whole(y) * log * log,
    }[by]()


def slope_of_two(name, x, y, by):
    if name == "pow":
        return power_slope(x, y, by)
    f = ulps.TWO[name]
    if f(x, y) is None:
        return None
    return mpmath.diff(f, (x, y), (by.count("x"), by.count("y")))


def slope_of_one(name, x, order):
    stated = STATED.get(name)
    if stated:
        return stated[order - 1](x)
    f = ulps.ONE[name]
    return None if f(x) is None or name == "acosh" and x == 1 else mpmath.diff(f, x, order)


def rows(points, value, scale):
    for point in points:
        arguments = [mpf(p) for p in point]
        v = value(*arguments)
        if v is None or not mpmath.isfinite(v):
            continue
        row = [*map(short, point), number(v)]
        if scale:
            row.append(number(scale(*arguments, v)))
        yield " ".join(row)


def main():
    lines = [f"# mpmath {mpmath.__version__}, seed {SEED}"]
    for name in ulps.ONE:
        if name in STEPS:
            continue
        points = [(x,) for x in dict.fromkeys(GRID + POINTS.get(name.split()[0], [])) if x]
        for order in (1, 2) if name not in LINES else (1,):
            lines.append(f"op {name} by {' '.join('x' * order)}")
            scale = SCALED.get(name, (None, None))[order - 1]
            lines += rows(points, lambda x: slope_of_one(name, x, order), scale)
    for name in ulps.TWO:
        for by in BY if name not in LINES else BY[:2]:
            lines.append(f"op {name} by {by}")
            scale = SCALED_TWO.get(name, {}).get(by)
            lines += rows(dict.fromkeys(pairs()), lambda x, y: slope_of_two(name, x, y, by), scale)
    path = pathlib.Path(__file__).with_name("slopes.txt")
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} lines, {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
