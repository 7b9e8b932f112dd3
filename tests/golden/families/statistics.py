"""Reductions made of others: logsumexp, tests and counts, variance, norms."""

import numpy as np
import scipy.special

from .core import (
    ALL,
    EXACT,
    FLOATS,
    NUMBERS,
    REALS,
    Real,
    array,
    narrow,
    random,
    rng_of,
    sample,
    sum_tolerance,
    ulps,
    unit,
    whole,
    wide,
)

# shape, axes, keepdims, note
CASES = [
    ((4, 5), [1], False, "rows"),
    ((4, 5), [0], True, "columns, kept as size 1"),
    ((2, 3, 4), [0, 2], False, "outer and inner axis"),
    ((2, 3, 4), [-1, -2], True, "negative axes"),
    ((3, 1), [1], False, "one element per row"),
    ((2, 3), [], False, "no axis"),
    ((), [], False, "rank 0"),
]
EMPTY = ((0, 3), [0], False, "nothing to reduce")


def over(axes):
    return tuple(axes)


def truths():
    functions = {
        "any": lambda x, a, k: np.any(x != 0, axis=over(a), keepdims=k),
        "all": lambda x, a, k: np.all(x != 0, axis=over(a), keepdims=k),
        "count_nonzero": lambda x, a, k: np.sum(x != 0, axis=over(a), keepdims=k, dtype=np.int64),
        "reduce_xor": lambda x, a, k: np.logical_xor.reduce(x, axis=over(a), keepdims=k),
    }
    for op, function in functions.items():
        for dtype in ["bool"] if op == "reduce_xor" else ALL:
            for n, (shape, axes, keepdims, note) in enumerate(CASES + [EMPTY]):
                name = f"{op}/{dtype}/case-{n}"
                rng = rng_of(name)
                x = whole(rng, dtype, shape, 1) if dtype != "bool" else random(rng, dtype, shape)
                out = np.asarray(function(x, axes, keepdims)) if axes or op != "reduce_xor" else x
                yield sample(name, [x], out, EXACT, note, axes=axes, keepdims=keepdims)
    for dtype in FLOATS:
        x = array(dtype, [[np.nan, 0], [0, -0.0]])
        for op in ("any", "all", "count_nonzero"):
            out = functions[op](x, [1], False)
            yield sample(f"{op}/{dtype}/special", [x], out, EXACT, "NaN is not 0", axes=[1])


def sums():
    functions = {
        "reduce_l1": (REALS, lambda x: np.abs(x)),
        "reduce_sum_square": (NUMBERS, lambda x: x * x),
    }
    for op, (dtypes, term) in functions.items():
        for dtype in dtypes:
            for n, (shape, axes, keepdims, note) in enumerate(CASES + [EMPTY]):
                name = f"{op}/{dtype}/case-{n}"
                x = random(rng_of(name), dtype, shape)
                terms = term(wide(x))
                out = terms.sum(axis=over(axes), keepdims=keepdims)
                size = float(np.abs(terms).sum(axis=over(axes)).max(initial=0))
                # The terms round too.
                tol = (
                    EXACT
                    if dtype in REALS and dtype not in FLOATS
                    else sum_tolerance(dtype, 40, size)
                )
                yield sample(name, [x], narrow(dtype, out), tol, note, axes=axes, keepdims=keepdims)


def two_norm(x, a, k):
    return np.sqrt((x * x).sum(axis=over(a), keepdims=k))


def norm(order):
    def function(x, a, k):
        if not a:
            return np.abs(x) if order != 0 else (x != 0).astype(Real)
        if order == 0:
            return (x != 0).sum(axis=over(a), keepdims=k).astype(Real)
        if np.isinf(order):
            fold = np.max if order > 0 else np.min
            return fold(np.abs(x), axis=over(a), keepdims=k)
        return (np.abs(x) ** Real(order)).sum(axis=over(a), keepdims=k) ** (1 / Real(order))

    return function


def floats():
    functions = {
        "logsumexp": (
            {},
            lambda x, a, k: (
                scipy.special.logsumexp(x.astype(np.float64), axis=over(a), keepdims=k) if a else x
            ),
        ),
        "reduce_l2": ({}, two_norm),
        "reduce_log_sum": ({}, lambda x, a, k: np.log(x.sum(axis=over(a), keepdims=k))),
        "nansum": ({}, lambda x, a, k: np.nansum(x, axis=over(a), keepdims=k)),
        "nanmean": ({}, lambda x, a, k: np.nanmean(x, axis=over(a), keepdims=k) if a else x),
    }
    yield from (("variance", {"correction": c}, variance(c)) for c in (0.0, 1.0))
    yield from (("std", {"correction": c}, deviation(c)) for c in (0.0, 1.0))
    yield from (
        ("norm", {"ord": p}, norm(p)) for p in (1.0, 2.0, 3.0, 0.5, -2.0, 0.0, np.inf, -np.inf)
    )
    yield from ((op, attrs, f) for op, (attrs, f) in functions.items())


def variance(correction):
    def function(x, a, k):
        if not a:
            return np.zeros_like(x) / Real(max(1 - correction, 0))
        return np.var(x, axis=over(a), keepdims=k, ddof=correction)

    return function


def deviation(correction):
    return lambda x, a, k: np.sqrt(variance(correction)(x, a, k))


def reals():
    with np.errstate(all="ignore"):
        for op, attrs, function in floats():
            for dtype in FLOATS:
                for n, (shape, axes, keepdims, note) in enumerate(CASES):
                    name = f"{op}/{dtype}/case-{n}" + "".join(f"-{v:g}" for v in attrs.values())
                    low = 0.25 if op == "reduce_log_sum" or attrs.get("ord", 1) < 1 else -3
                    x = random(rng_of(name), dtype, shape, low, 3)
                    out = narrow(dtype, function(wide(x), axes, keepdims))
                    # A few dozen terms near 3, their functions and their mean: 64 roundings.
                    tol = ulps(dtype, 64, 64 * unit(dtype))
                    named = {
                        k: "inf" if v == np.inf else "-inf" if v == -np.inf else v
                        for k, v in attrs.items()
                    }
                    yield sample(name, [x], out, tol, note, axes=axes, keepdims=keepdims, **named)


def special():
    nan, inf = np.nan, np.inf
    rows = [[1000, 1001], [-inf, -inf], [inf, 1], [nan, 1], [-inf, 2], [nan, nan]]
    for dtype in FLOATS:
        x = array(dtype, rows)
        wide_rows = x.astype(np.float64)
        with np.errstate(all="ignore"):
            out = scipy.special.logsumexp(wide_rows, axis=1)
            tol = ulps(dtype, 2)
            yield sample(
                f"logsumexp/{dtype}/special", [x], narrow(dtype, out), tol, "no overflow", axes=[1]
            )
            tol = ulps(dtype, 2)
            yield sample(
                f"nansum/{dtype}/special",
                [x],
                narrow(dtype, np.nansum(wide_rows, axis=1)),
                tol,
                "NaN is left out",
                axes=[1],
            )
            mean = np.array([np.nanmean(r) if not np.isnan(r).all() else nan for r in wide_rows])
            yield sample(
                f"nanmean/{dtype}/special",
                [x],
                narrow(dtype, mean),
                tol,
                "NaN is left out",
                axes=[1],
            )
        empty = array(dtype, np.zeros((2, 0)))
        yield sample(
            f"logsumexp/{dtype}/empty",
            [empty],
            array(dtype, [-inf, -inf]),
            EXACT,
            "of nothing",
            axes=[1],
        )
        yield sample(
            f"variance/{dtype}/empty",
            [empty],
            array(dtype, [nan, nan]),
            EXACT,
            "of nothing",
            axes=[1],
        )
        if dtype in ("f32", "f64"):
            base = 2.0**20 if dtype == "f32" else 2.0**40
            x = array(dtype, [[base, base + 1, base + 2, base + 3]])
            yield sample(
                f"variance/{dtype}/offset",
                [x],
                array(dtype, [1.25]),
                EXACT,
                "two passes: no cancellation",
                axes=[1],
            )


def samples():
    for group in (truths, sums, reals, special):
        yield from group()
