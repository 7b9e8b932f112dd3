"""Reductions, running sums, argmax."""

import numpy as np

from .core import (
    ANY_ZERO,
    EXACT,
    FLOATS,
    INEXACT,
    INTS,
    NUMBERS,
    NUMPY,
    REALS,
    Real,
    array,
    narrow,
    random,
    rng_of,
    sample,
    special_values,
    sum_tolerance,
    ulps,
    whole,
    wide,
)

# shape, axes, keepdims, note
CASES = [
    ((4, 5), [1], False, "rows"),
    ((4, 5), [0], True, "columns, kept as size 1"),
    ((2, 3, 4), [0, 2], False, "outer and inner axis"),
    ((2, 3, 4), [-1, -2], True, "negative axes"),
    ((3, 70), [1], False, "several vectors and a tail"),
    ((2, 3), [], False, "no axis: a copy"),
    ((), [], False, "rank 0"),
    ((3, 1), [1], False, "one element per row"),
    ((5, 6), [0, 1], False, "everything"),
]
EMPTY_CASES = [
    ((0, 3), [0], False, "nothing to reduce: the neutral element"),
    ((0, 3), [1], False, "no results"),
]


def total(x, axes, keepdims):
    return x.sum(axis=tuple(axes), keepdims=keepdims) if axes else x


def product(x, axes, keepdims):
    return x.prod(axis=tuple(axes), keepdims=keepdims) if axes else x


def count(shape, axes):
    return int(np.prod([shape[a] for a in axes], dtype=np.int64))


def neutral(op, dtype):
    """What loses to every value of the dtype."""
    if dtype in FLOATS:
        return -np.inf if op == "reduce_max" else np.inf
    info = np.iinfo(NUMPY[dtype])
    return info.min if op == "reduce_max" else info.max


def extremum(op, x, dtype, axes, keepdims):
    if not axes:
        return x
    values = x.astype(np.float64) if dtype in FLOATS else x
    function = np.max if op == "reduce_max" else np.min
    out = function(values, axis=tuple(axes), keepdims=keepdims, initial=neutral(op, dtype))
    return array(dtype, out)


def magnitude(x, axes):
    return (
        float(total(np.abs(wide(x)), axes, False).max(initial=0))
        if np.isfinite(np.abs(wide(x))).all()
        else 0.0
    )


def sums():
    for dtype in NUMBERS:
        for n, (shape, axes, keepdims, note) in enumerate(CASES + EMPTY_CASES):
            for values in ("whole", "random"):
                name = f"reduce_sum/{dtype}/case-{n}-{values}"
                x = (whole if values == "whole" else random)(rng_of(name), dtype, shape)
                tol = (
                    EXACT
                    if values == "whole"
                    else sum_tolerance(dtype, count(shape, axes), magnitude(x, axes))
                )
                yield sample(
                    name,
                    [x],
                    narrow(dtype, total(wide(x), axes, keepdims)),
                    tol,
                    note,
                    axes=axes,
                    keepdims=keepdims,
                )
    for dtype in INTS:
        x = np.full((3, 4), np.iinfo(array(dtype, 0).dtype).max, array(dtype, 0).dtype)
        out = x.sum(axis=1, dtype=x.dtype)
        yield sample(
            f"reduce_sum/{dtype}/wrap", [x], out, EXACT, "integers wrap", axes=[1], keepdims=False
        )
    x = array("f16", np.full((1, 4096), 1.0))
    yield sample(
        "reduce_sum/f16/accumulate",
        [x],
        array("f16", [4096.0]),
        EXACT,
        "accumulates in f32, else it stops at 2048",
        axes=[1],
        keepdims=False,
    )
    x = array("bf16", np.full((1, 1000), 1.0))
    yield sample(
        "reduce_sum/bf16/accumulate",
        [x],
        array("bf16", [1000.0]),
        EXACT,
        "accumulates in f32, else it stops at 256",
        axes=[1],
        keepdims=False,
    )


def means():
    for dtype in INEXACT:
        for n, (shape, axes, keepdims, note) in enumerate(CASES):
            name = f"reduce_mean/{dtype}/case-{n}"
            x = random(rng_of(name), dtype, shape)
            items = count(shape, axes)
            tol = sum_tolerance(dtype, items, magnitude(x, axes) / items)
            out = narrow(dtype, total(wide(x), axes, keepdims) / items)
            yield sample(
                name, [x], out, ulps(dtype, 2, tol["abs"]), note, axes=axes, keepdims=keepdims
            )
    for dtype in FLOATS:
        x = array(dtype, np.zeros((0, 3)))
        yield sample(
            f"reduce_mean/{dtype}/empty",
            [x],
            array(dtype, np.full(3, np.nan)),
            EXACT,
            "0 / 0 is NaN",
            axes=[0],
            keepdims=False,
        )


def products():
    for dtype in NUMBERS:
        for n, (shape, axes, keepdims, note) in enumerate(CASES[:4] + CASES[5:8] + EMPTY_CASES):
            name = f"reduce_prod/{dtype}/case-{n}"
            x = random(rng_of(name), dtype, shape, 0.5, 2)
            units = 2 * max(1, count(shape, axes)) * (2 if dtype == "c64" else 1)
            tol = EXACT if dtype in INTS else ulps(dtype, units)
            yield sample(
                name,
                [x],
                narrow(dtype, product(wide(x), axes, keepdims)),
                tol,
                note,
                axes=axes,
                keepdims=keepdims,
            )


def extrema():
    for op in ("reduce_max", "reduce_min"):
        for dtype in REALS:
            for n, (shape, axes, keepdims, note) in enumerate(CASES + EMPTY_CASES):
                name = f"{op}/{dtype}/case-{n}"
                x = random(rng_of(name), dtype, shape, -50, 50)
                yield sample(
                    name,
                    [x],
                    extremum(op, x, dtype, axes, keepdims),
                    ANY_ZERO,
                    note,
                    axes=axes,
                    keepdims=keepdims,
                )
            if dtype in INTS:
                x = array(dtype, special_values(dtype), (2, 3))
                yield sample(
                    f"{op}/{dtype}/special",
                    [x],
                    extremum(op, x, dtype, [1], False),
                    EXACT,
                    "integer limits",
                    axes=[1],
                    keepdims=False,
                )


def special_sums():
    nan, inf = np.nan, np.inf
    rows = [
        [1, nan, 2],
        [inf, 1, -2],
        [-inf, 3, 1],
        [inf, -inf, 0],
        [nan, inf, 1],
        [-0.0, -0.0, -0.0],
        [0.0, -0.0, 1],
    ]
    for dtype in FLOATS:
        x = array(dtype, rows)
        for op, function in (
            ("reduce_sum", np.sum),
            ("reduce_prod", np.prod),
            ("reduce_max", np.max),
            ("reduce_min", np.min),
        ):
            with np.errstate(all="ignore"):
                out = array(dtype, function(x.astype(np.float64), axis=1))
            yield sample(
                f"{op}/{dtype}/special",
                [x],
                out,
                ANY_ZERO,
                "NaN and infinities propagate",
                axes=[1],
                keepdims=False,
            )


def running(x, axis, exclusive, reverse):
    values = np.flip(x, axis) if reverse else x
    sums = np.cumsum(values, axis=axis, dtype=values.dtype)
    if exclusive:
        sums = sums - values
    return np.flip(sums, axis) if reverse else sums


def cumsums():
    shapes = [((5,), 0), ((2, 9), -1), ((4, 3), 0), ((2, 3, 4), 1), ((0, 3), 0), ((3, 0), 1)]
    for dtype in NUMBERS:
        for n, (shape, axis) in enumerate(shapes):
            for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True)):
                name = f"cumsum/{dtype}/case-{n}{'-exclusive' * exclusive}{'-reverse' * reverse}"
                x = (whole if n % 2 == 0 else random)(rng_of(name), dtype, shape)
                size = shape[axis]
                tol = EXACT if n % 2 == 0 else sum_tolerance(dtype, size, magnitude(x, [axis]))
                yield sample(
                    name,
                    [x],
                    narrow(dtype, running(wide(x), axis, exclusive, reverse)),
                    tol,
                    f"shape {shape}",
                    axis=axis,
                    exclusive=exclusive,
                    reverse=reverse,
                )


def positions(op, x, axis, keepdims, last):
    """argmax and argmin; NumPy takes the first, so the last is found from the other end."""
    function = np.argmax if op == "argmax" else np.argmin
    if not last:
        return np.asarray(function(x, axis=axis, keepdims=keepdims), np.int64)
    back = function(np.flip(x, axis), axis=axis, keepdims=keepdims)
    return np.asarray(x.shape[axis] - 1 - back, np.int64)


def argmaxes():
    for op in ("argmax", "argmin"):
        for dtype in REALS + ["bool"]:
            for n, (shape, axis, keepdims, last) in enumerate(
                [
                    ((4, 5), -1, False, False),
                    ((4, 5), 0, True, False),
                    ((2, 3, 4), 1, False, False),
                    ((40,), 0, False, False),
                    ((3, 1), 1, False, False),
                    ((4, 9), 1, False, True),
                    ((9, 2), 0, True, True),
                ]
            ):
                name = f"{op}/{dtype}/case-{n}"
                x = random(rng_of(name), dtype, shape, -3, 3)
                yield sample(
                    name,
                    [x],
                    positions(op, x.astype(Real), axis, keepdims, last),
                    EXACT,
                    "the last of equals" if last else "the first of equals",
                    axis=axis,
                    keepdims=keepdims,
                    select_last=last,
                )
        rows = [
            [1, np.nan, 2, np.nan],
            [np.inf, np.inf, 0, 1],
            [-np.inf, -np.inf, -np.inf, -np.inf],
            [-0.0, 0.0, -1, 0],
            [2, 7, 7, 1],
        ]
        for dtype in FLOATS:
            x = array(dtype, rows)
            for last in (False, True):
                yield sample(
                    f"{op}/{dtype}/special-{'last' if last else 'first'}",
                    [x],
                    positions(op, x.astype(np.float64), 1, False, last),
                    EXACT,
                    "NaN wins; first or last of equals",
                    axis=1,
                    keepdims=False,
                    select_last=last,
                )


def samples():
    for group in (sums, means, products, extrema, special_sums, cumsums, argmaxes):
        yield from group()
