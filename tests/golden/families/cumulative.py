"""Running products, extrema and logsumexp, linear recurrences."""

import numpy as np

from .core import (
    EXACT,
    FLOATS,
    NUMBERS,
    NUMPY,
    REALS,
    Real,
    array,
    narrow,
    random,
    rng_of,
    sample,
    ulps,
    unit,
    whole,
    wide,
)

CASES = [
    ((3, 6), -1, False, False, "rows"),
    ((6, 3), 0, True, False, "columns, exclusive"),
    ((2, 4, 3), 1, False, True, "middle axis, from the end"),
    ((2, 5), 1, True, True, "exclusive from the end"),
    ((0, 3), 0, False, False, "nothing"),
    ((3, 1), 1, False, False, "one element per line"),
]


def scan(x, axis, exclusive, reverse, neutral, step):
    """Line by line; step(so_far, element) is the next."""
    x = np.moveaxis(x, axis, 0)
    out = np.empty_like(x)
    so_far = np.full(x.shape[1:], neutral, x.dtype)
    for i in reversed(range(len(x))) if reverse else range(len(x)):
        following = step(so_far, x[i])
        out[i] = so_far if exclusive else following
        so_far = following
    return np.moveaxis(out, 0, axis)


def products():
    for dtype in NUMBERS:
        for n, (shape, axis, exclusive, reverse, note) in enumerate(CASES):
            for kind in ("whole", "random"):
                name = f"cumprod/{dtype}/case-{n}-{kind}"
                rng = rng_of(name)
                x = (
                    whole(rng, dtype, shape, 2)
                    if kind == "whole"
                    else random(rng, dtype, shape, 0.5, 2)
                )
                exact = kind == "whole" or dtype in REALS and dtype not in FLOATS
                out = scan(wide(x), axis, exclusive, reverse, 1, np.multiply)
                tol = EXACT if exact else ulps(dtype, 16)
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                yield sample(name, [x], narrow(dtype, out), tol, note, **attrs)


def extremum(x, axis, exclusive, reverse, sign):
    """Values and positions; of equals the one met last, NaN wins."""
    values = np.moveaxis(x, axis, 0)
    best = np.empty_like(values)
    where = np.empty(values.shape, np.int64)
    kind = x.dtype.kind
    worst = (
        -sign * np.inf
        if kind == "f"
        else (np.iinfo(x.dtype).min if sign > 0 else np.iinfo(x.dtype).max)
    )
    for line in np.ndindex(values.shape[1:]):
        so_far, found = worst, -1
        for i in reversed(range(len(values))) if reverse else range(len(values)):
            v = values[(i, *line)]
            before = so_far, found
            if v != v or (v >= so_far if sign > 0 else v <= so_far):
                so_far, found = v, i
            best[(i, *line)], where[(i, *line)] = before if exclusive else (so_far, found)
    return np.moveaxis(best, 0, axis), np.moveaxis(where, 0, axis)


def extrema():
    for op, sign in (("cummax", 1), ("cummin", -1)):
        for dtype in REALS:
            cases = [
                (random(rng_of(f"{op}/{dtype}/{n}"), dtype, c[0], -4, 4), *c[1:])
                for n, c in enumerate(CASES)
            ]
            if dtype in FLOATS:
                x = array(
                    dtype, [[1, 3, 3, np.nan, 5, np.nan], [-np.inf, 0.0, -0.0, np.inf, np.inf, 1]]
                )
                cases += [(x, 1, False, False, "NaN wins"), (x, 1, True, True, "NaN wins")]
            for n, (x, axis, exclusive, reverse, note) in enumerate(cases):
                values = x.astype(np.float64) if dtype in FLOATS else x
                best, where = extremum(values, axis, exclusive, reverse, sign)
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                outs = [best.astype(NUMPY[dtype]), where]
                yield sample(f"{op}/{dtype}/case-{n}", [x], outs, EXACT, note, **attrs)


def logsumexps():
    for dtype in FLOATS:
        cases = [
            (random(rng_of(f"cumlogsumexp/{dtype}/{n}"), dtype, c[0], -4, 4), *c[1:])
            for n, c in enumerate(CASES)
        ]
        far = [
            [1000, 999, -1000, 1001],
            [-np.inf, -np.inf, 2, np.inf],
            [1, np.nan, 2, 3],
            [np.inf, np.inf, -np.inf, 0],
        ]
        cases += [
            (array(dtype, far), 1, e, r, "no overflow; infinities; NaN")
            for e, r in ((False, False), (True, True))
        ]
        for n, (x, axis, exclusive, reverse, note) in enumerate(cases):
            out = scan(
                x.astype(np.float64).astype(Real), axis, exclusive, reverse, -np.inf, np.logaddexp
            )
            # Every step rounds the sum so far, relative to the largest exponent.
            tol = ulps(dtype, 16, 16 * unit(dtype))
            attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
            yield sample(
                f"cumlogsumexp/{dtype}/case-{n}", [x], narrow(dtype, out), tol, note, **attrs
            )


def recurrences():
    for dtype in (*FLOATS, "c64"):
        for n, (shape, axis, exclusive, reverse, note) in enumerate(CASES):
            for kind in ("whole", "random"):
                name = f"linear_recurrence/{dtype}/case-{n}-{kind}"
                rng = rng_of(name)
                a, u = (
                    whole(rng, dtype, shape, 2)
                    if kind == "whole"
                    else random(rng, dtype, shape, 0.5, 2)
                    for _ in range(2)
                )
                pairs = np.stack([wide(a), wide(u)], -1)

                def step(so_far, pair):
                    h = pair[..., 0] * so_far[..., 0] + pair[..., 1]
                    return np.stack([h, h], -1)

                out = scan(pairs, axis % len(shape), exclusive, reverse, 0, step)[..., 0]
                tol = EXACT if kind == "whole" else ulps(dtype, 16)
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                yield sample(name, [a, u], narrow(dtype, out), tol, note, **attrs)


def samples():
    for group in (products, extrema, logsumexps, recurrences):
        yield from group()
