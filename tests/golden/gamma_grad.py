"""Writes tests/golden/gamma_grad.txt: how a gamma number x moves with alpha at its place in the distribution, by mpmath.

    python tests/golden/gamma_grad.py        # needs mpmath only

The first line names the version; then lines `alpha x value` in hexadecimal floating point, alpha and x being binary32 numbers.

The value is -(dP/dalpha) / (dP/dx) of the regularised incomplete gamma function P(alpha, x). Where mpmath differentiates P itself
(alpha and x up to 300) that is the value; elsewhere the integral

    x * integral over v > 0 of (v + side * (psi(alpha) - log x)) exp(-|alpha - x| v - x (exp(-side v) - 1 + side v))

with side 1 for x <= alpha and -1 above (the integral of dP/dalpha, substituted t = x exp(-side v)). Both agree to 20 digits where
both are computed.
"""

import math
import pathlib
import struct

import mpmath
from mpmath import mpf

mpmath.mp.dps = 60


def f32(v):
    return struct.unpack("f", struct.pack("f", v))[0]


def by_integral(alpha, x):
    side = 1 if x <= alpha else -1
    delta = side * (mpmath.digamma(alpha) - mpmath.log(x))
    away = abs(alpha - x)

    def exponent(v):
        return away * v + x * (mpmath.exp(-side * v) - 1 + side * v)

    width = 1 / (away + mpmath.sqrt(x / 2))
    while exponent(width) < 1:
        width *= 2
    while exponent(width) > 2:
        width /= 2
    cuts = [0] + [width * c for c in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)]
    with mpmath.workdps(110):  # exp(-v) - 1 + v cancels for v as small as 1e-15
        return x * mpmath.quad(lambda v: (v + delta) * mpmath.exp(-exponent(v)), cuts)


def by_derivative(alpha, x):
    with mpmath.workdps(80):
        if x <= alpha:
            slope = mpmath.diff(lambda a: mpmath.gammainc(a, 0, x, regularized=True), alpha)
        else:  # of 1 - P
            slope = -mpmath.diff(lambda a: mpmath.gammainc(a, x, mpmath.inf, regularized=True), alpha)
        density = mpmath.exp((alpha - 1) * mpmath.log(x) - x - mpmath.loggamma(alpha))
        return -slope / density


def value(alpha, x):
    if x == 0:
        return mpf(0)
    alpha, x = mpf(alpha), mpf(x)
    if 0.01 <= alpha <= 300 and 0.01 <= x <= 300:
        exact = by_derivative(alpha, x)
        other = by_integral(alpha, x)
        assert abs(exact - other) < abs(exact) * mpf("1e-20"), (alpha, x, exact, other)
        return exact
    return by_integral(alpha, x)


def main():
    powers = [10.0**e for e in range(-30, 31, 6)]
    alphas = powers + [0.03, 0.3, 1.0, 2.5, 9.75, 10.25, 40.0, 99.0, 101.0, 1e3, 3e4, 1e6]
    points = []
    for alpha in alphas:
        xs = [0.0] + powers + [0.01, 0.49, 0.51, 1.0, 3.0, 20.0, 99.5, 100.5, 250.0, 1e4, 1e6]
        for k in (-8, -3, -1, -0.1, 0, 0.1, 1, 3, 8):  # in standard deviations from the mean
            xs.append(alpha + k * math.sqrt(alpha))
        points += [(f32(alpha), f32(x)) for x in xs if x >= 0]
    lines = [f"# mpmath {mpmath.__version__}"]
    for alpha, x in dict.fromkeys(points):
        lines.append(f"{alpha.hex()} {x.hex()} {float(value(alpha, x)).hex()}")
    pathlib.Path(__file__).with_name("gamma_grad.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} lines")


if __name__ == "__main__":
    main()
