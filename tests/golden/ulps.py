"""Writes tests/golden/ulps.txt: exact values of elementwise functions over a logarithmic grid of magnitudes, by mpmath.

    python tests/golden/ulps.py          # needs mpmath only; the same bytes on every machine

Arguments are binary32 numbers, so one value serves f32 and f64. The grid has both signs of 1e-30 .. 1e30, is denser from 1e-3 to
200, and has the points where the implementation of an op or its result turns (POINTS). `ulps_test` reads the file and states how
far, in units in the last place, results may lie from these values.

The first line names the version and the seed; then come sections

    op NAME {attributes}
    <argument> [<argument>] <value> [<scale>]

in hexadecimal floating point. A value has the 53 bits of binary64, rounded once. A scale stands where the error is measured against
something larger than the value; SCALED says why. Points where the function has no value are left out.
"""

import pathlib
import random
import struct

import mpmath
from mpmath import mpf

SEED = 20240607
mpmath.mp.dps = 200


def f32(v):
    return struct.unpack("f", struct.pack("f", v))[0]


def grid():
    rng = random.Random(SEED)
    magnitudes = [10 ** (e / 2 + rng.uniform(-0.2, 0.2)) for e in range(-60, 61)]
    magnitudes += [10 ** (-3 + 5.3 * (i + rng.random()) / 110) for i in range(110)]
    return [f32(s * m) for m in sorted(magnitudes) for s in (1, -1)]


GRID = grid()


def around(*points):
    """The numbers at, just below and just above each point."""
    out = []
    for p in points:
        for sign in (1, -1):
            for step in (0, -(2.0**-20), 2.0**-20):
                out.append(f32(sign * p * (1 + step)))
    return out


# ---- functions


def phi(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def density(x):
    return mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def logistic(x):
    e = mpmath.exp(-abs(x))
    return e / (1 + e) ** 2


def softplus(x):
    return mpmath.log1p(mpmath.exp(x))


def gelu_inner(x):
    return mpmath.sqrt(2 / mpmath.pi) * (x + mpf("0.044715") * x**3)


def clip(x, low, high):
    return min(max(x, mpf(low)), mpf(high))


def hard_sigmoid(x):
    return clip(x / 6 + mpf(0.5), 0, 1)


def tail(x, alpha=mpf(1)):
    return x if x > 0 else alpha * mpmath.expm1(x)


def rounded(x):
    return mpf(round(float(x)))  # Python's round has halves to even


SELU_ALPHA = mpf("1.6732632423543772848170429916717")
SELU_SCALE = mpf("1.0507009873554804934193349852946")

# Coordinates of one argument. None where there is no value.
ONE = {
    "neg": lambda x: -x,
    "abs": abs,
    "sign": mpmath.sign,
    "exp": mpmath.exp,
    "log": lambda x: mpmath.log(x) if x > 0 else None,
    "log1p": lambda x: mpmath.log1p(x) if x > -1 else None,
    "expm1": mpmath.expm1,
    "sqrt": lambda x: mpmath.sqrt(x) if x >= 0 else None,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x) if x > 0 else None,
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "atan": mpmath.atan,
    "tanh": mpmath.tanh,
    "sigmoid": sigmoid,
    "relu": lambda x: max(x, mpf(0)),
    "erf": mpmath.erf,
    "softplus": softplus,
    "softsign": lambda x: x / (1 + abs(x)),
    "floor": mpmath.floor,
    "ceil": mpmath.ceil,
    "trunc": lambda x: mpf(int(x)),
    "round": rounded,
    "round_straight_through": rounded,
    "round_away": lambda x: mpmath.sign(x) * mpmath.floor(abs(x) + mpf(0.5)),
    "stop_gradient": lambda x: x,
    "exp2": lambda x: mpmath.exp(x * mpmath.log(2)),
    "log2": lambda x: mpmath.log(x) / mpmath.log(2) if x > 0 else None,
    "log10": lambda x: mpmath.log(x) / mpmath.log(10) if x > 0 else None,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "asinh": mpmath.asinh,
    "acosh": lambda x: mpmath.acosh(x) if x >= 1 else None,
    "atanh": lambda x: mpmath.atanh(x) if abs(x) < 1 else None,
    "asin": lambda x: mpmath.asin(x) if abs(x) <= 1 else None,
    "acos": lambda x: mpmath.acos(x) if abs(x) <= 1 else None,
    "erfc": mpmath.erfc,
    "erfinv": lambda x: mpmath.erfinv(x) if abs(x) < 1 else None,
    "normal_cdf": phi,
    "normal_pdf": density,
    "logistic_pdf": logistic,
    "lgamma": lambda x: None if x <= 0 and x == int(x) else mpmath.re(mpmath.loggamma(x)),
    "digamma": lambda x: None if x <= 0 and x == int(x) else mpmath.digamma(x),
    "sinc": lambda x: mpf(0) if x == int(x) else mpmath.sin(mpmath.pi * x) / (mpmath.pi * x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "frac": lambda x: x - int(x),
    "deg2rad": lambda x: x * mpmath.pi / 180,
    "rad2deg": lambda x: x * 180 / mpmath.pi,
    "nan_to_num": lambda x: x,
    "relu6": lambda x: clip(x, 0, 6),
    "leaky_relu": lambda x: x if x > 0 else x * mpf(0.01),
    "elu": tail,
    "celu": tail,
    "selu": lambda x: SELU_SCALE * tail(x, SELU_ALPHA),
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": lambda x: x * hard_sigmoid(x),
    "hard_tanh": lambda x: clip(x, -1, 1),
    "mish": lambda x: x * mpmath.tanh(softplus(x)),
    "softshrink": lambda x: mpf(0) if abs(x) <= 0.5 else x - mpmath.sign(x) / 2,
    "hardshrink": lambda x: mpf(0) if abs(x) <= 0.5 else x,
    "tanhshrink": lambda x: x - mpmath.tanh(x),
    "threshold": lambda x: x if x > 0 else mpf(0),
    "thresholded_relu": lambda x: x if x > 1 else mpf(0),
    "quick_gelu": lambda x: x * sigmoid(mpf("1.702") * x),
    "log_sigmoid": lambda x: -softplus(-x),
    "logit": lambda x: mpmath.log(x / (1 - x)) if 0 < x < 1 else None,
    "gelu": lambda x: x * phi(x),
    "gelu_tanh": lambda x: x * sigmoid(2 * gelu_inner(x)),
    "silu": lambda x: x * sigmoid(x),
}
for order in (1, 2, 5):
    ONE[f"polygamma {{n={order}}}"] = (
        lambda x, n=order: None if x <= 0 and x == int(x) else mpmath.psi(n, x)
    )

# Where a formula changes, a result under- or overflows, or a function has a zero.
POINTS = {
    "exp": around(87.33, 88.72, 103.9, 708.4),
    "exp2": around(126, 127.9, 149, 1022),
    "log": around(1, 0.5, 0.70710678),
    "log1p": around(0.5, 0.29289, 0.41421, 1) + [f32(-0.999999), f32(-0.9999)],
    "expm1": around(0.5, 0.34657, 0.69315, 17, 37),
    "sin": around(1.5707964, 3.1415927, 32768, 16777216),
    "cos": around(1.5707964, 3.1415927, 32768, 16777216),
    "tan": around(1.5707964, 3.1415927, 0.7853982),
    "tanh": around(0.625, 9, 19),
    "erf": around(1, 4, 6),
    "erfc": around(0.4, 1, 4, 9.2, 10, 26.5),
    "erfinv": around(0.5, 0.9999, 0.99999994),
    "normal_cdf": around(4, 5, 13, 14, 37.5, 38) + [-i / 4 for i in range(160)],
    "normal_pdf": around(4, 5, 13, 14, 37.5, 38),
    "logistic_pdf": around(17, 37, 88, 104),
    "gelu": around(4, 5, 13, 14, 37.5, 38) + [-i / 4 for i in range(1, 160)],
    "gelu_tanh": [-i / 4 for i in range(1, 60)],
    "silu": around(88, 90, 104),
    "mish": around(88, 90, 104, 20),
    "softplus": around(17, 37, 88, 104),
    "log_sigmoid": around(17, 37, 88, 104),
    "sinh": around(22, 0.3, 89, 88.7),
    "cosh": around(22, 89, 88.7),
    "asinh": around(1e8, 1),
    "acosh": [f32(1 + 2.0**-k) for k in range(1, 24)],
    "atanh": around(0.5) + [s * f32(1 - 2.0**-k) for k in range(1, 25) for s in (1, -1)],
    "asin": around(0.5) + [s * f32(1 - 2.0**-k) for k in range(1, 25) for s in (1, -1)],
    "acos": around(0.5) + [s * f32(1 - 2.0**-k) for k in range(1, 25) for s in (1, -1)],
    "lgamma": around(0.5, 1, 1.5, 2, 2.5, 8),
    "digamma": around(0.5, 1, 2, 10),
    "tanhshrink": around(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.625, 1),
    "logit": around(0.25, 0.5, 0.75) + [f32(1 - 2.0**-k) for k in range(1, 25)],
}

SCALED = {
    # The exponent u is rounded before the exponential, whose relative error that is, times |u|.
    "gelu_tanh": lambda x, y: abs(y) * max(1, 2 * abs(gelu_inner(x))),
    "quick_gelu": lambda x, y: abs(y) * max(1, abs(mpf("1.702") * x)),
    # Zeros where two terms of the sum (the reflection formula for x < 0) cancel.
    "lgamma": lambda x, y: abs(y) if x > 0 else abs(y) + abs(mpmath.loggamma(1 - x)) + 1,
    "digamma": lambda x, y: max(abs(y), 1) + (0 if x > 0 else abs(mpmath.digamma(1 - x))),
    "polygamma": lambda x, y, n: abs(y) if x > 0 else abs(y) + 2 * abs(mpmath.psi(n, 1 - x)),
    # alpha x + beta cancels at x = -3.
    "hard_sigmoid": lambda x, y: max(abs(y), mpf(0.5)) if y else mpf(0),
    "hard_swish": lambda x, y: max(abs(y), abs(x) / 2) if y else mpf(0),
}


# ---- two arguments


def pairs():
    """Independent magnitudes, near magnitudes, equal numbers, opposite numbers."""
    rng = random.Random(SEED + 1)
    out = []
    for i in range(360):
        a = rng.choice((1, -1)) * 10 ** rng.uniform(-30, 30) if i % 3 else rng.uniform(-60, 60)
        kind = i % 4
        if kind == 0:
            b = rng.choice((1, -1)) * 10 ** rng.uniform(-30, 30)
        elif kind == 1:
            b = a * (1 + rng.uniform(-1e-3, 1e-3))
        elif kind == 2:
            b = rng.uniform(-60, 60)
        else:
            b = rng.choice((1, -1)) * a
        out.append((f32(a), f32(b)))
    return out


def power(x, y):
    if x < 0 and y != int(y):
        return None
    if abs(y * mpmath.log(abs(x))) > 1e4:  # far beyond both formats
        return None
    return mpmath.power(x, int(y)) if x < 0 else mpmath.exp(y * mpmath.log(x))


TWO = {
    "div": lambda x, y: x / y,
    "pow": power,
    "hypot": lambda x, y: mpmath.hypot(x, y),
    "atan2": mpmath.atan2,
    "logaddexp": lambda x, y: max(x, y) + softplus(-abs(x - y)),
    "xlogy": lambda x, y: x * mpmath.log(y) if y > 0 else None,
    "swiglu": lambda x, y: x * sigmoid(x) * y,
    "prelu": lambda x, y: x if x > 0 else y * x,
}
MORE_PAIRS = {
    "logaddexp": [(-f32(v), -f32(w)) for v in (1e-30, 1e-6, 0.5, 40, 87, 1e3) for w in (1e-30, 1e-6, 1, 40, 88)],
    "pow": [(f32(1 + s * 2.0**-k), f32(2.0**j)) for k in (3, 10, 20) for j in range(24) for s in (1, -1)]
    + [(f32(b), f32(e)) for b in (0.1, 2, 10, 1e-30) for e in (0.5, -0.5, 0.333, 3, -4)],
}
# Terms of opposite sign: max(x, y) and the logarithm.
SCALED_TWO = {"logaddexp": lambda x, y, v: max(abs(v), abs(max(x, y)))}


def short(v):
    s = float(v).hex()
    mantissa, exponent = s.split("p")
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent if "." in mantissa else s


def number(v):
    v = mpf(v)
    if v == 0:
        return "0"
    if abs(v) >= mpf(2) ** 1024 - mpf(2) ** 970:
        return "inf" if v > 0 else "-inf"
    return short(v)


def main():
    lines = [f"# mpmath {mpmath.__version__}, seed {SEED}"]
    for name, function in ONE.items():
        lines.append(f"op {name}")
        base = name.split()[0]
        for x in dict.fromkeys(GRID + POINTS.get(base, [])):
            y = function(mpf(x))
            if y is None:
                continue
            row = [short(x), number(y)]
            if base in SCALED:
                order = [int(name[-2])] if base == "polygamma" else []
                row.append(number(SCALED[base](mpf(x), y, *order)))
            lines.append(" ".join(row))
    for name, function in TWO.items():
        lines.append(f"op {name}")
        for x, y in dict.fromkeys(pairs() + MORE_PAIRS.get(name, [])):
            v = function(mpf(x), mpf(y))
            if v is None:
                continue
            row = [short(x), short(y), number(v)]
            if name in SCALED_TWO:
                row.append(number(SCALED_TWO[name](mpf(x), mpf(y), v)))
            lines.append(" ".join(row))
    path = pathlib.Path(__file__).with_name("ulps.txt")
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} lines, {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
