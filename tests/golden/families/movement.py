"""Data movement: every dtype, compared bit for bit; scatter_add, which sums."""

import numpy as np

from .core import (
    ALL,
    EXACT,
    NUMBERS,
    any_bits,
    array,
    narrow,
    random,
    rng_of,
    sample,
    sum_tolerance,
    wide,
    whole,
)

# case -> (operand shape, attributes, result by NumPy, note)
VIEWS = {
    "broadcast": [
        ((3,), {"shape": [2, 3]}, "new leading axis"),
        ((2, 1), {"shape": [4, 2, 3]}, "size-1 axis repeats"),
        ((), {"shape": [5]}, "from rank 0"),
        ((), {"shape": []}, "rank 0 to rank 0"),
        ((1, 3), {"shape": [0, 3]}, "to an empty shape"),
    ],
    "reshape": [
        ((2, 6), {"shape": [3, 4]}, "same elements"),
        ((2, 3, 4), {"shape": [6, -1]}, "one size is inferred"),
        ((1, 1), {"shape": []}, "to rank 0"),
        ((), {"shape": [1, 1]}, "from rank 0"),
        ((0, 3), {"shape": [3, 0, 2]}, "no elements"),
    ],
    "transpose": [
        ((5, 7), {"perm": [1, 0]}, "matrix"),
        ((2, 3, 4), {"perm": [2, 0, 1]}, "rotation of axes"),
        ((2, 3, 4, 2), {"perm": [0, 2, 1, 3]}, "inner axes, last one kept"),
        ((), {"perm": []}, "rank 0"),
        ((0, 3), {"perm": [1, 0]}, "no elements"),
        ((3, 5), {"perm": [-1, -2]}, "negative axes"),
    ],
    "slice": [
        ((6, 5), {"start": [1, 0], "limit": [4, 5], "stride": [1, 1]}, "rows"),
        ((6, 9), {"start": [0, 1], "limit": [6, 8], "stride": [2, 3]}, "strides"),
        ((4, 3), {"start": [2, 1], "limit": [2, 3], "stride": [1, 1]}, "empty range"),
        ((), {"start": [], "limit": [], "stride": []}, "rank 0"),
        ((7,), {"start": [6], "limit": [7], "stride": [5]}, "one element, stride beyond the end"),
    ],
    "reverse": [
        ((7,), {"axes": [0]}, "vector"),
        ((3, 4, 2), {"axes": [0, -1]}, "two axes, one negative"),
        ((2, 3), {"axes": []}, "no axis"),
        ((0, 3), {"axes": [0, 1]}, "no elements"),
    ],
}


def view(op, x, attrs):
    if op == "broadcast":
        return np.broadcast_to(x, attrs["shape"]).copy()
    if op == "reshape":
        return x.reshape(attrs["shape"])
    if op == "transpose":
        return x.transpose(attrs["perm"])
    if op == "slice":
        return (
            x[tuple(slice(*t) for t in zip(attrs["start"], attrs["limit"], attrs["stride"]))].copy()
            if x.ndim
            else x
        )
    return np.flip(x, attrs["axes"]).copy() if attrs["axes"] else x


def views():
    for op, cases in VIEWS.items():
        for dtype in ALL:
            for n, (shape, attrs, note) in enumerate(cases):
                name = f"{op}/{dtype}/case-{n}"
                x = any_bits(rng_of(name), dtype, shape)
                yield sample(name, [x], view(op, x, attrs), EXACT, note, **attrs)


CONCATS = [
    ([(2, 3), (1, 3)], 0, "rows"),
    ([(2, 3), (2, 1), (2, 2)], 1, "columns"),
    ([(4,)], -1, "one operand, negative axis"),
    ([(2, 0), (2, 3), (2, 0)], 1, "empty operands"),
    ([(2, 3, 2), (2, 1, 2)], -2, "middle axis"),
]
PADS = [
    ((2, 3), [1, 0], [0, 2], "grows"),
    ((4, 4), [-1, 1], [0, -2], "negative amounts crop"),
    ((), [], [], "rank 0"),
    ((0, 2), [1, 0], [2, 1], "from no elements"),
    ((3,), [-3], [2], "crops all, then fills"),
    ((3,), [-2], [-1], "to no elements"),
]


def pad(x, value, low, high):
    out = np.full([max(0, s + a + b) for s, a, b in zip(x.shape, low, high)], value, x.dtype)
    source, target = [], []
    for size, a, b in zip(x.shape, low, high):
        first, last = max(0, -a), min(size, size + b)
        last = max(first, last)
        source.append(slice(first, last)), target.append(slice(first + a, last + a))
    out[tuple(target)] = x[tuple(source)]
    return out


def joins():
    for dtype in ALL:
        for n, (shapes, axis, note) in enumerate(CONCATS):
            name = f"concat/{dtype}/case-{n}"
            rng = rng_of(name)
            xs = [any_bits(rng, dtype, s) for s in shapes]
            yield sample(name, xs, np.concatenate(xs, axis), EXACT, note, axis=axis)
        for n, (shape, low, high, note) in enumerate(PADS):
            name = f"pad/{dtype}/case-{n}"
            rng = rng_of(name)
            x, value = any_bits(rng, dtype, shape), random(rng, dtype, (), 1, 3)
            yield sample(
                name,
                [x, array(dtype, value)],
                pad(x, value, low, high),
                EXACT,
                note,
                low=low,
                high=high,
            )


GATHERS = [
    ((5, 3), (4,), "i64", 0, "rows of a table"),
    ((2, 4, 3), (2, 3), "i32", 1, "middle axis, matrix of indices"),
    ((2, 4), (), "i64", -1, "one index of rank 0, negative axis"),
    ((5, 3), (4,), "f32", 0, "f32-encoded indices"),
    ((9,), (6,), "u8", 0, "u8 indices"),
    ((4, 2), (0,), "i64", 0, "no indices"),
    ((3, 0), (2,), "i32", 0, "rows without elements"),
]
# updates, indices, index dtype, axis, size
SCATTERS = [
    ((6, 3), (6,), "i64", 0, 4, "rows, with duplicates"),
    ((2, 5, 3), (5,), "i32", 1, 4, "middle axis"),
    ((2, 3, 2), (2, 3), "i64", 0, 5, "matrix of indices"),
    ((4, 2), (4,), "f32", 0, 6, "f32-encoded indices; rows nobody writes are 0"),
    ((0, 2), (0,), "i64", 0, 3, "no updates"),
    ((3, 4), (4,), "u32", -1, 3, "last axis"),
]


def scatter_add(updates, index, axis, size):
    """The transpose of numpy.take along the axis."""
    axis %= updates.ndim - index.ndim + 1
    values = wide(updates)
    inner = updates.shape[axis + index.ndim :]
    flat = (
        values.reshape(*updates.shape[:axis], -1, *inner)
        if updates.size
        else values.reshape(*updates.shape[:axis], index.size, *inner)
    )
    out = np.zeros((*updates.shape[:axis], size, *inner), values.dtype)
    where = (slice(None),) * axis
    for u, target in enumerate(index.ravel().astype(np.int64)):
        out[where + (target,)] += flat[where + (u,)]
    return out


def by_index():
    for dtype in ALL:
        for n, (shape, index_shape, index_dtype, axis, note) in enumerate(GATHERS):
            name = f"gather/{dtype}/case-{n}"
            rng = rng_of(name)
            x = any_bits(rng, dtype, shape)
            index = rng.integers(0, shape[axis], index_shape)
            yield sample(
                name,
                [x, array(index_dtype, index)],
                np.asarray(np.take(x, index, axis)),
                EXACT,
                note,
                axis=axis,
            )
    for dtype in NUMBERS:
        for n, (shape, index_shape, index_dtype, axis, size, note) in enumerate(SCATTERS):
            for values in ("whole", "random"):
                name = f"scatter_add/{dtype}/case-{n}-{values}"
                rng = rng_of(name)
                x = whole(rng, dtype, shape) if values == "whole" else random(rng, dtype, shape)
                index = array(index_dtype, rng.integers(0, size, index_shape))
                out = scatter_add(x, index, axis, size)
                magnitude = np.abs(
                    scatter_add(
                        np.abs(x.astype(np.complex64)).astype(np.float32), index, axis, size
                    )
                ).max(initial=0)
                tol = EXACT if values == "whole" else sum_tolerance(dtype, index.size, magnitude)
                yield sample(name, [x, index], narrow(dtype, out), tol, note, axis=axis, size=size)


def dim_sizes():
    for dtype in NUMBERS:
        if dtype != "c64":
            for size in (0, 7, 100):
                out = array(dtype, np.array(size))
                yield sample(f"dim_size/{dtype}/{size}", [], out, EXACT, f"size {size}", size=size, dtype=dtype)


def iotas():
    for dtype in NUMBERS:
        for n, (shape, axis) in enumerate(
            [((5,), 0), ((2, 3), 1), ((3, 2, 2), 0), ((2, 0), 0), ((2, 3), -1)]
        ):
            out = np.broadcast_to(
                np.arange(shape[axis]).reshape(
                    [-1 if i == axis % len(shape) else 1 for i in range(len(shape))]
                ),
                shape,
            )
            yield sample(
                f"iota/{dtype}/case-{n}",
                [],
                array(dtype, out),
                EXACT,
                f"shape {shape}, axis {axis}",
                dtype=dtype,
                shape=shape,
                axis=axis,
            )


def samples():
    yield from views()
    yield from joins()
    yield from by_index()
    yield from iotas()
    yield from dim_sizes()
