"""Sorting, the k largest, search and order statistics. NumPy sorts NaN last; descending is the stable sort of the negated order."""

import numpy as np

from .core import (
    EXACT,
    F8,
    FLOATS,
    INTS,
    REALS,
    any_bits,
    array,
    random,
    rng_of,
    round_float,
    sample,
    ulps,
    NUMPY,
)

ORDERED = REALS + ["bool"]


def comparable(x):
    """Wide enough to be exact, with NumPy's order: NaN last."""
    return x.astype(np.float64) if x.dtype.kind in "fV" else x.astype(np.int64)


def order(x, axis, descending):
    """Stable positions; descending sorts ranks from the other end, so that equals keep their order."""
    values = comparable(x)
    if not descending:
        return np.argsort(values, axis=axis, kind="stable")
    back = np.argsort(np.flip(values, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - back, axis)


CASES = [
    ((3, 7), -1, False, "rows"),
    ((6, 4), 0, True, "columns, descending"),
    ((2, 5, 3), 1, False, "middle axis"),
    ((300,), 0, False, "many"),
    ((2, 0, 3), 1, True, "nothing to sort"),
    ((3, 1), 1, True, "one element per line"),
]
SPECIAL = [
    [np.nan, 1, -np.inf, np.inf, -0.0, 0.0, np.nan, -1],
    [0.0, -0.0, 0.0, -0.0, 5, 5, -5, 5],
]


def operands():
    for dtype in ORDERED:
        for n, (shape, axis, descending, note) in enumerate(CASES):
            x = random(rng_of(f"sort/{dtype}/{n}"), dtype, shape, -20, 20)
            yield dtype, f"case-{n}", x, axis, descending, note
        if dtype in FLOATS:
            for descending in (False, True):
                label = "special-descending" if descending else "special"
                yield dtype, label, array(
                    dtype, SPECIAL
                ), -1, descending, "NaN largest, zeros equal"
        if dtype in INTS:
            x = any_bits(rng_of(f"sort/{dtype}/limits"), dtype, (4, 6))
            yield dtype, "limits", x, 1, False, "the whole range"


def sorts():
    for dtype, label, x, axis, descending, note in operands():
        where = order(x, axis, descending)
        attrs = {"axis": axis, "descending": descending}
        out = np.take_along_axis(x, where, axis)
        yield sample(f"argsort/{dtype}/{label}", [x], where, EXACT, note, **attrs)
        yield sample(f"sort/{dtype}/{label}", [x], out, EXACT, note, **attrs)
        if x.size < 100:
            other = any_bits(rng_of(f"sort_by_key/{dtype}/{label}"), "c64", x.shape)
            yield sample(
                f"sort_by_key/{dtype}/{label}",
                [x, other],
                [out, np.take_along_axis(other, where, axis)],
                EXACT,
                note,
                **attrs,
            )
    for dtype in ORDERED:
        rng = rng_of(f"sort_by_key/{dtype}/three")
        x = random(rng, dtype, (2, 5), -20, 20)
        others = [any_bits(rng, dtype, x.shape) for _ in range(2)]
        where = order(x, -1, True)
        outs = [np.take_along_axis(v, where, -1) for v in (x, *others)]
        yield sample(f"sort_by_key/{dtype}/three", [x, *others], outs, EXACT, "two followers", descending=True)
        where = order(x, 0, False)
        out = np.take_along_axis(x, where, 0)
        yield sample(f"sort_by_key/{dtype}/alone", [x], out, EXACT, "keys alone", axis=0)
    for dtype in F8:
        rng = rng_of(f"sort_by_key/i32/{dtype}")
        x, others = random(rng, "i32", (2, 5), -20, 20), [any_bits(rng, dtype, (2, 5)) for _ in range(2)]
        outs = [np.take_along_axis(v, order(x, -1, False), -1) for v in (x, *others)]
        yield sample(f"sort_by_key/i32/{dtype}", [x, *others], outs, EXACT, "followers that have no order")


def tops():
    for dtype, label, x, axis, largest, note in operands():
        n = x.shape[axis]
        for k in sorted({min(2, n), n}):
            where = np.take(order(x, axis, largest), range(k), axis)
            index_dtype = "f32" if k == 2 else "i64"
            yield sample(
                f"topk/{dtype}/{label}-{k}",
                [x],
                [np.take_along_axis(x, where, axis), where.astype(NUMPY[index_dtype])],
                EXACT,
                note,
                k=k,
                axis=axis,
                largest=largest,
                index_dtype=index_dtype,
            )
        if n and not largest:
            k = (n + 1) // 2
            out = np.take(np.take_along_axis(x, order(x, axis, False), axis), k - 1, axis)
            yield sample(
                f"kth_value/{dtype}/{label}", [x], np.asarray(out), EXACT, note, k=k, axis=axis
            )
    for dtype in ORDERED:
        x = random(rng_of(f"topk/{dtype}/indices"), dtype, (2, 4), -20, 20)
        where = order(x, -1, True)[:, :3]
        top = np.take_along_axis(x, where, -1)
        for index_dtype in INTS + ["f32", "f64"]:
            outs = [top, where.astype(NUMPY[index_dtype])]
            name = f"topk/{dtype}/indices-{index_dtype}"
            yield sample(name, [x], outs, EXACT, "positions as asked", k=3, index_dtype=index_dtype)
        out = np.sort(comparable(x), axis=0)[1:2].astype(x.dtype)
        yield sample(f"kth_value/{dtype}/kept", [x], out, EXACT, "axis kept", k=2, axis=0, keepdims=True)


def searches():
    for dtype in REALS:
        for right in (False, True):
            side = "right" if right else "left"
            name = f"searchsorted/{dtype}/{side}"
            rng = rng_of(name)
            line = np.sort(random(rng, dtype, 9, -5, 5))
            values = np.concatenate([random(rng, dtype, 6, -6, 6), line[:6]]).reshape(3, 4)
            out = np.searchsorted(comparable(line), comparable(values), side)
            yield sample(name, [line, values], out, EXACT, "one line", right=right)
            lines = np.sort(random(rng, dtype, (3, 5), -3, 3), axis=1)
            rows = [
                np.searchsorted(comparable(a), comparable(v), side) for a, v in zip(lines, values)
            ]
            yield sample(
                f"{name}-lines", [lines, values], np.stack(rows), EXACT, "a line each", right=right
            )
            empty, one = line[:0], np.asarray(line[3])
            yield sample(
                f"{name}-empty", [empty, one], np.int64(0), EXACT, "an empty line", right=right
            )
    for dtype in FLOATS:
        line = array(dtype, [-np.inf, -1, 0, 0, 2, np.inf, np.nan, np.nan])
        values = array(dtype, [-np.inf, -0.0, 0.0, np.inf, np.nan, 1])
        for right in (False, True):
            side = "right" if right else "left"
            out = np.searchsorted(comparable(line), comparable(values), side)
            yield sample(
                f"searchsorted/{dtype}/special-{side}",
                [line, values],
                out,
                EXACT,
                "NaN",
                right=right,
            )


def statistics():
    for dtype in FLOATS:
        for n, (shape, axis, keepdims) in enumerate(
            [((3, 7), -1, False), ((6, 4), 0, True), ((5,), 0, False)]
        ):
            name = f"quantile/{dtype}/case-{n}"
            x = random(rng_of(name), dtype, shape, -20, 20)
            wide = x.astype(np.float64)
            for q in (0.0, 0.3, 0.5, 1.0):
                for method in ("linear", "lower", "higher", "nearest", "midpoint"):
                    out = np.quantile(wide, q, axis=axis, keepdims=keepdims, method=method)
                    yield sample(
                        f"{name}-{q}-{method}",
                        [x],
                        round_float(dtype, out),
                        # Interpolation cancels where the neighbours have other signs: units of their size.
                        ulps(dtype, 4, 20 * 4 * (2.0**-52 if dtype == "f64" else 2.0**-23)),
                        method,
                        q=q,
                        axis=axis,
                        keepdims=keepdims,
                        interpolation=method,
                    )
            out = np.median(wide, axis=axis, keepdims=keepdims)
            yield sample(
                f"median/{dtype}/case-{n}",
                [x],
                round_float(dtype, out),
                ulps(dtype, 2),
                "",
                axis=axis,
                keepdims=keepdims,
            )
        x = array(dtype, [[1, np.nan, 3], [4, np.inf, 6]])
        yield sample(
            f"median/{dtype}/special",
            [x],
            array(dtype, [np.nan, 6]),
            EXACT,
            "NaN propagates",
            axis=1,
        )


def samples():
    for group in (sorts, tops, searches, statistics):
        yield from group()
