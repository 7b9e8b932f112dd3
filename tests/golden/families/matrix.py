"""Functions of matrices, by mpmath with 40 digits; tolerances as in factor.py."""

import mpmath
import numpy as np

from .core import EXACT, INTS, NUMPY, any_bits, array, narrow, random, rng_of, sample, sum_tolerance, wide
from .factor import TYPES, condition, exact, over_batch, plain, result, shaped, svd, tolerance

SHAPES = [((4, 4), "plain"), ((2, 3, 3), "batched"), ((1, 1), "1 x 1")]
NORMS = ["fro", "nuc", "one", "inf", "two"]


def det(a):
    return np.array(complex(mpmath.det(exact(a))))


def slogdet(a):
    d = mpmath.det(exact(a))
    return np.array(complex(d / abs(d))), np.array(float(mpmath.log(abs(d))))


def power(a, n):
    return plain(exact(a) ** n) if n >= 0 else plain(mpmath.inverse(exact(a)) ** -n)


def frechet(ms):
    """The derivative of exp at the upper of two matrices along the lower one: the limit of a quotient, with 120 digits."""
    n = len(ms) // 2
    with mpmath.workdps(120):
        a, e, h = exact(ms[:n]), exact(ms[n:]), mpmath.mpf(10) ** -40
        return plain((mpmath.expm(a + h * e) - mpmath.expm(a - h * e)) / (2 * h))


def pinv(a, rtol=0.0):
    u, s, vh = svd(a)
    inverse = np.array([1 / x if x > rtol * s[0] else 0 for x in s])
    return np.conj(vh.T) * inverse @ np.conj(u.T)


def norm(a, ord):
    if ord in ("nuc", "two"):
        s = svd(a)[1]
        return np.array(s.sum() if ord == "nuc" else s.max())
    size = np.abs(a.astype(np.clongdouble))
    if ord == "fro":
        return np.sqrt((size**2).sum())
    return size.sum(0 if ord == "one" else 1).max()


def determinants(dtype):
    for n, (shape, note) in enumerate(SHAPES):
        a = shaped(rng_of(f"determinant/{dtype}/{n}"), dtype, "invertible", shape)
        grow, size = condition(a), shape[-1]
        d = result(dtype, over_batch(det, 1, a)[0])
        yield sample(f"determinant/{dtype}/case-{n}", [a], d, tolerance(dtype, d, grow, size), note)
        sign, log = over_batch(slogdet, 2, a)
        out = [result(dtype, sign), result(dtype, log, True)]
        tol = tolerance(dtype, 1 + np.abs(log), grow, size)
        yield sample(f"slogdet/{dtype}/case-{n}", [a], out, tol, note)
        b = shaped(rng_of(f"logdet/{dtype}/{n}"), dtype, "spd", shape)
        sign, log = over_batch(slogdet, 2, b)
        out = result(dtype, np.log(sign.astype(complex)) + log)
        yield sample(f"logdet/{dtype}/case-{n}", [b], out, tolerance(dtype, 1 + np.abs(log), condition(b), size), note)
        t = random(rng_of(f"trace/{dtype}/{n}"), dtype, shape)
        out = result(dtype, np.trace(t.astype(np.clongdouble), axis1=-2, axis2=-1))
        yield sample(f"trace/{dtype}/case-{n}", [t], out, tolerance(dtype, 3 * np.ones(1), 1, size), note)
    singular = array(dtype, [[1, 2], [2, 4]])
    empty = np.zeros((0, 0), NUMPY[dtype])
    real = NUMPY["f64" if dtype == "f64" else "f32"]
    one, zero = np.array(1, NUMPY[dtype]), np.array(0, NUMPY[dtype])
    any_zero = {"rel": 0, "abs": 0, "any_zero": True}
    yield sample(f"determinant/{dtype}/singular", [singular], zero, any_zero if dtype != "c64" else {"rel": 0, "abs": 1e-30}, "0")
    yield sample(f"determinant/{dtype}/empty", [empty], one, EXACT, "1 for 0 x 0")
    yield sample(f"trace/{dtype}/empty", [empty], zero, EXACT, "0 for 0 x 0")
    for rows, columns in ((2, 5), (4, 3)):
        t = random(rng_of(f"trace/{dtype}/{rows}x{columns}"), dtype, (2, rows, columns))
        out = result(dtype, np.trace(t.astype(np.clongdouble), axis1=-2, axis2=-1))
        yield sample(f"trace/{dtype}/{rows}x{columns}", [t], out, tolerance(dtype, 3 * np.ones(1), 1, 4), "not square")
    loss = {"rel": 0, "abs": 1e-30}
    yield sample(f"slogdet/{dtype}/singular", [singular], [zero, np.array(-np.inf, real)], [loss, EXACT], "0 and -infinity")
    if dtype != "c64":
        yield sample(f"logdet/{dtype}/singular", [singular], np.array(-np.inf, NUMPY[dtype]), EXACT, "-infinity")
        negative = array(dtype, [[0, 1], [1, 0]])
        yield sample(f"logdet/{dtype}/negative", [negative], np.array(np.nan, NUMPY[dtype]), EXACT, "NaN")


def functions(dtype):
    for n, (shape, note) in enumerate(SHAPES):
        a = shaped(rng_of(f"inverse/{dtype}/{n}"), dtype, "invertible", shape)
        out = result(dtype, over_batch(lambda x: plain(mpmath.inverse(exact(x))), 1, a)[0])
        yield sample(f"inverse/{dtype}/case-{n}", [a], out, tolerance(dtype, out, condition(a), shape[-1]), note)
        for scale in (0.1, 1, 8):  # none, some and many squarings
            a = random(rng_of(f"expm/{dtype}/{n}-{scale}"), dtype, shape, -scale, scale)
            out = result(dtype, over_batch(lambda x: plain(mpmath.expm(exact(x))), 1, a)[0])
            growth = 4 * (1 + np.max(np.linalg.norm(a.astype(complex), 1, (-2, -1))))  # of the exponential
            yield sample(f"expm/{dtype}/case-{n}-{scale}", [a], out, tolerance(dtype, out, growth, shape[-1]), note)
        for scale in (0.1, 1, 8):
            identifier = f"expm_frechet/{dtype}/{n}-{scale}"
            a, e = (random(rng_of(f"{identifier}/{x}"), dtype, shape, -s, s) for x, s in (("a", scale), ("e", 3)))
            ms = np.concatenate([a, e], -2)  # one above the other
            out = result(dtype, over_batch(frechet, 1, ms)[0])
            growth = 4 * (1 + np.max(np.linalg.norm(a.astype(complex), 1, (-2, -1))))
            tol = tolerance(dtype, out, growth, 2 * shape[-1])
            yield sample(f"expm_frechet/{dtype}/case-{n}-{scale}", [a, e], out, tol, note)
        for p in (0, 1, 2, 5, -1, -3):
            a = shaped(rng_of(f"matrix_power/{dtype}/{n}-{p}"), dtype, "invertible", shape)
            out = result(dtype, over_batch(lambda x: power(x, p), 1, a)[0])
            grow = (abs(p) + 1) * condition(a) ** max(abs(p), 1)
            yield sample(f"matrix_power/{dtype}/case-{n}-{p}", [a], out, tolerance(dtype, out, grow, shape[-1]), note, n=p)
    bad = array(dtype, [[1, np.nan], [0, 1]])
    nan = complex(np.nan, np.nan) if dtype == "c64" else np.nan
    nans = np.full((2, 2), nan).astype(NUMPY[dtype])
    yield sample(f"expm/{dtype}/special", [bad], nans, EXACT, "NaN")
    good = array(dtype, [[1, 2], [0, 1]])
    infinite = array(dtype, [[1, np.inf], [0, 1]])
    for name, operands in (("a", [bad, good]), ("e", [good, bad]), ("infinity", [good, infinite])):
        yield sample(f"expm_frechet/{dtype}/special-{name}", operands, nans, EXACT, "NaN")


def singular_values(dtype):
    for n, (shape, note) in enumerate([((4, 4), "square"), ((4, 2), "tall"), ((2, 2, 3), "wide, batched")]):
        a = shaped(rng_of(f"pinv/{dtype}/{n}"), dtype, "spectrum", shape)
        grow, size = condition(a), max(shape)
        out = result(dtype, over_batch(pinv, 1, a)[0])
        yield sample(f"pinv/{dtype}/case-{n}", [a], out, tolerance(dtype, out, grow**2, size), note)
        out = result(dtype, over_batch(lambda x: pinv(x, 0.6), 1, a)[0])
        yield sample(f"pinv/{dtype}/rtol-{n}", [a], out, tolerance(dtype, out, grow**2, size), note, rtol=0.6)
        out = result(dtype, over_batch(lambda x: pinv(x, 1e-9), 1, a)[0])
        yield sample(f"pinv/{dtype}/small-rtol-{n}", [a], out, tolerance(dtype, out, grow**2, size), note, rtol=1e-9)
        b = random(rng_of(f"lstsq/{dtype}/{n}"), dtype, (*shape[:-1], 2), -1, 1)
        out = result(dtype, over_batch(pinv, 1, a)[0] @ b.astype(complex))
        yield sample(f"lstsq/{dtype}/case-{n}", [a, b], out, tolerance(dtype, 1 + np.abs(out), grow**2, size), note)
        for rtol in (0.6, 1e-9):
            out = result(dtype, over_batch(lambda x: pinv(x, rtol), 1, a)[0] @ b.astype(complex))
            tol = tolerance(dtype, 1 + np.abs(out), grow**2, size)
            yield sample(f"lstsq/{dtype}/rtol-{n}-{rtol}", [a, b], out, tol, note, rtol=rtol)
        s = over_batch(lambda x: svd(x)[1], 1, a)[0]
        for rtol in (None, 0.6, 1e-9):
            rank = (s > (rtol or 0) * s.max(-1, keepdims=True)).sum(-1).astype(np.int64)
            attrs = {} if rtol is None else {"rtol": rtol}
            yield sample(f"matrix_rank/{dtype}/case-{n}-{rtol}", [a], rank, EXACT, note, **attrs)
        for ord in NORMS:
            for keepdims in (False, True):
                out = result(dtype, over_batch(lambda x: norm(x, ord), 1, a)[0], True)
                out = out[..., None, None] if keepdims else out
                attrs = {"ord": ord, "keepdims": keepdims}
                yield sample(f"matrix_norm/{dtype}/case-{n}-{ord}-{int(keepdims)}", [a], out, tolerance(dtype, out, 2, size), note, **attrs)
    ones = np.ones((3, 3), NUMPY[dtype])
    yield sample(f"matrix_rank/{dtype}/one", [ones], np.array(1, np.int64), EXACT, "equal rows")
    out = np.full((3, 3), 1 / 9).astype(NUMPY[dtype])
    yield sample(f"pinv/{dtype}/one", [ones], out, tolerance(dtype, out, 4, 3), "equal rows")


def other_traces():
    """f16 and bf16, summed wider; integers, which wrap."""
    for dtype in ["f16", "bf16", *INTS]:
        for n, (shape, note) in enumerate(SHAPES):
            rng = rng_of(f"trace/{dtype}/{n}")
            t = any_bits(rng, dtype, shape) if dtype in INTS else random(rng, dtype, shape)
            out = narrow(dtype, np.trace(wide(t), axis1=-2, axis2=-1))
            yield sample(f"trace/{dtype}/case-{n}", [t], out, sum_tolerance(dtype, shape[-1], 3 * shape[-1]), note)


def samples():
    yield from other_traces()
    for dtype in TYPES:
        for family in (determinants, functions, singular_values):
            yield from family(dtype)
    whole = array("i32", [[1, 2, 3], [4, -5, 6]])
    yield sample("trace/i32/basic", [whole], np.array(-4, np.int32), EXACT, "integers")
