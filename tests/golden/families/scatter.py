"""Gather and scatter by element, by n-dimensional index and along an axis; windows; one-hot vectors.

Movement is compared bit for bit. NumPy's ufunc.at takes updates one after the other, in order, as the ops do.
"""

import numpy as np

from .core import (
    ALL,
    EXACT,
    FLOATS,
    INTS,
    NUMBERS,
    NUMPY,
    REALS,
    any_bits,
    array,
    narrow,
    rng_of,
    sample,
    sum_tolerance,
    ulps,
    whole,
    random,
    wide,
)

MODES = {"set": ALL, "add": NUMBERS, "mul": NUMBERS, "min": REALS, "max": REALS}


def combine(mode, target, where, updates):
    if mode == "set":
        for place, update in zip(zip(*[np.asarray(w).ravel() for w in where]), updates.reshape(-1)):
            target[place] = update
    else:
        ufunc = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[mode]
        ufunc.at(target, where, updates)


def scattered(mode, x, where, updates):
    """x with updates at the places that `where` (one index array per axis, of the updates' shape) names."""
    where = tuple(np.broadcast_to(w, updates.shape) for w in where)
    if mode == "set":
        out = x.copy()
        combine(mode, out, where, updates)
        return out
    out = wide(x).copy()
    combine(mode, out, where, wide(updates))
    return narrow(dtype_name(x), out)


def dtype_name(x):
    return next(name for name, d in NUMPY.items() if d == x.dtype)


def values(rng, mode, dtype, shape):
    if mode == "set":
        return any_bits(rng, dtype, shape)
    return whole(rng, dtype, shape, 2) if mode in ("add", "mul") else random(rng, dtype, shape)


def axis_places(shape, index, axis):
    """Places of the updates [o.., i.., t..] of scatter in x [o.., axis, t..]."""
    axis %= len(shape)
    updates = (*shape[:axis], *index.shape, *shape[axis + 1 :])
    grid = np.indices(updates)
    along = index.astype(np.int64).reshape(
        (1,) * axis + index.shape + (1,) * (len(shape) - axis - 1)
    )
    before = [grid[k] for k in range(axis)]
    after = [grid[k] for k in range(axis + index.ndim, len(updates))]
    return updates, [*before, np.broadcast_to(along, updates), *after]


ALONG = [  # x, indices, index dtype, axis
    ((5, 3), (4,), "i64", 0, "rows, with duplicates"),
    ((2, 4, 3), (2, 2), "i32", 1, "middle axis, matrix of indices"),
    ((2, 4), (), "u8", -1, "one index of rank 0"),
    ((3, 2), (6,), "f32", 0, "f32-encoded indices, many duplicates"),
    ((3, 2), (0,), "i64", 0, "no indices"),
]
ELEMENTS = [
    ((4, 3), (2, 3), "i64", 0, "rows"),
    ((2, 4), (2, 7), "i32", -1, "last axis, duplicates"),
    ((2, 3, 2), (2, 2, 2), "u32", 1, "middle axis"),
    ((5,), (0,), "i64", 0, "no updates"),
    ((3, 2), (2, 2), "f64", 0, "f64-encoded indices"),
]
ND = [  # x, indices
    ((4, 3), (5, 1), "i64", "rows"),
    ((3, 4, 2), (2, 3, 2), "i32", "rows of a matrix of rows"),
    ((3, 4), (2,), "i64", "one element"),
    ((2, 2), (6, 2), "f64", "f64-encoded indices, duplicates"),
]


def nd_places(shape, index):
    depth = index.shape[-1]
    updates = (*index.shape[:-1], *shape[depth:])
    grid = np.indices(updates)
    lead = index.ndim - 1
    first = [
        index[..., k].astype(np.int64).reshape(index.shape[:-1] + (1,) * (len(shape) - depth))
        for k in range(depth)
    ]
    return updates, [*first, *[grid[k] for k in range(lead, len(updates))]]


def scatters():
    for mode, dtypes in MODES.items():
        for dtype in dtypes:
            for n, (shape, index_shape, index_dtype, axis, note) in enumerate(ALONG):
                name = f"scatter/{dtype}/{mode}-{n}"
                rng = rng_of(name)
                index = array(index_dtype, rng.integers(0, shape[axis], index_shape))
                updates_shape, places = axis_places(shape, index, axis)
                x = values(rng, mode, dtype, shape)
                u = values(rng, mode, dtype, updates_shape)
                out = scattered(mode, x, places, u)
                yield sample(name, [x, index, u], out, EXACT, note, axis=axis, mode=mode)
            for n, (shape, index_shape, index_dtype, axis, note) in enumerate(ELEMENTS):
                name = f"scatter_elements/{dtype}/{mode}-{n}"
                rng = rng_of(name)
                index = array(index_dtype, rng.integers(0, shape[axis], index_shape))
                places = list(np.indices(index_shape))
                places[axis] = index.astype(np.int64)
                x, u = values(rng, mode, dtype, shape), values(rng, mode, dtype, index_shape)
                out = scattered(mode, x, places, u)
                yield sample(name, [x, index, u], out, EXACT, note, axis=axis, mode=mode)
            for n, (shape, index_shape, index_dtype, note) in enumerate(ND):
                name = f"scatter_nd/{dtype}/{mode}-{n}"
                rng = rng_of(name)
                index = array(index_dtype, rng.integers(0, shape[: index_shape[-1]], index_shape))
                updates_shape, places = nd_places(shape, index)
                x, u = values(rng, mode, dtype, shape), values(rng, mode, dtype, updates_shape)
                out = scattered(mode, x, places, u)
                yield sample(name, [x, index, u], out, EXACT, note, mode=mode)


def special_scatters():
    """NaN propagates through min and max; sums and products of reals that round."""
    index = np.array([0, 1, 2, 0, 3, 3], np.int64)
    for dtype in FLOATS:
        x = array(dtype, [1, np.nan, -np.inf, 4])
        u = array(dtype, [np.nan, 1, 3, 2, np.inf, -1])
        for mode in ("min", "max"):
            out = scattered(mode, x, [index], u)
            yield sample(
                f"scatter/{dtype}/{mode}-nan", [x, index, u], out, EXACT, "NaN wins", mode=mode
            )
        name = f"scatter/{dtype}/add-random"
        rng = rng_of(name)
        x, u = random(rng, dtype, 4), random(rng, dtype, 6)
        out = scattered("add", x, [index], u)
        tol = sum_tolerance(dtype, 3, 12)
        yield sample(name, [x, index, u], out, tol, "sums, one rounding", mode="add")
        out = scattered("mul", x, [index], u)
        yield sample(
            f"scatter/{dtype}/mul-random",
            [x, index, u],
            out,
            ulps(dtype, 4),
            "products",
            mode="mul",
        )


GATHER_ND = [  # x, indices, batch_dims
    ((4, 3), (5, 1), "i64", 0, "rows"),
    ((3, 4, 2), (2, 2, 3), "i32", 0, "elements"),
    ((2, 3, 4), (2, 2, 1), "i64", 1, "one batch axis"),
    ((2, 3, 4, 2), (2, 3, 2), "f32", 2, "two batch axes, no index axes"),
    ((4, 3), (0, 2), "i64", 0, "no indices"),
]
TAKE = [
    ((4, 3), (2, 3), "i64", 0, "rows"),
    ((2, 4), (2, 6), "i32", -1, "last axis"),
    ((2, 3, 2), (2, 5, 2), "f32", 1, "middle axis"),
    ((2, 3), (2, 0), "i64", 1, "no indices"),
]


def gather_nd(x, index, batch):
    index = index.astype(np.int64)
    if batch == 0:
        return np.asarray(x[tuple(np.moveaxis(index, -1, 0))])
    return np.stack([gather_nd(a, i, batch - 1) for a, i in zip(x, index)])


def gathers():
    for dtype in ALL:
        for n, (shape, index_shape, index_dtype, batch, note) in enumerate(GATHER_ND):
            name = f"gather_nd/{dtype}/case-{n}"
            rng = rng_of(name)
            limits = shape[batch : batch + index_shape[-1]]
            x = any_bits(rng, dtype, shape)
            index = array(index_dtype, rng.integers(0, limits, index_shape))
            out = gather_nd(x, index, batch)
            yield sample(name, [x, index], out, EXACT, note, batch_dims=batch)
        for n, (shape, index_shape, index_dtype, axis, note) in enumerate(TAKE):
            name = f"take_along_axis/{dtype}/case-{n}"
            rng = rng_of(name)
            x = any_bits(rng, dtype, shape)
            index = array(index_dtype, rng.integers(0, shape[axis], index_shape))
            out = np.take_along_axis(x, index.astype(np.int64), axis)
            yield sample(name, [x, index], out, EXACT, note, axis=axis)


WINDOWS = [  # x, window, starts
    ((5, 6), (2, 3), [1, 2], "i64", "inside"),
    ((5, 6), (2, 3), [4, -7], "i32", "clamped at both ends"),
    ((5,), (5,), [3], "i64", "all of it"),
    ((2, 3, 4), (2, 1, 4), [9, 1, 9], "f32", "f32-encoded starts, rows"),
    ((3, 2), (0, 2), [1, 0], "u8", "an empty window"),
    ((), (), [], "i64", "rank 0"),
    ((1, 3, 5, 2), (1, 3, 2, 2), [0, 0, 3, 0], "i32", "as a cache is written"),
    ((4, 3), (2, 2), [1, 7], "f64", "f64-encoded starts"),
]


def windows():
    for dtype in ALL:
        for n, (shape, window, starts, index_dtype, note) in enumerate(WINDOWS):
            name = f"dynamic_slice/{dtype}/case-{n}"
            rng = rng_of(name)
            x, update = any_bits(rng, dtype, shape), any_bits(rng, dtype, window)
            where = tuple(
                slice(first, first + w)
                for first, w in (
                    (min(max(s, 0), d - w), w) for s, d, w in zip(starts, shape, window)
                )
            )
            start = array(index_dtype, np.array(starts, np.int64))
            yield sample(name, [x, start], x[where].copy(), EXACT, note, sizes=list(window))
            out = x.copy()
            out[where] = update
            yield sample(
                f"dynamic_update_slice/{dtype}/case-{n}", [x, update, start], out, EXACT, note
            )


def one_hots():
    for index_dtype in INTS + ["f32", "f64"]:
        for n, (shape, depth, axis, dtype) in enumerate(
            [((5,), 4, -1, "f32"), ((2, 3), 3, 0, "bool"), ((2, 3), 2, 1, "c64"), ((), 3, 0, "i8")]
        ):
            name = f"one_hot/{index_dtype}/case-{n}"
            index = array(index_dtype, rng_of(name).integers(0, depth + 2, shape))
            out = np.moveaxis(index[..., None] == np.arange(depth), -1, axis)
            yield sample(
                name,
                [index],
                out.astype(NUMPY[dtype]),
                EXACT,
                "zeros for an index out of range",
                depth=depth,
                axis=axis,
                dtype=dtype,
            )
        for dtype in ALL:
            name = f"one_hot/{index_dtype}/to-{dtype}"
            index = array(index_dtype, rng_of(name).integers(0, 3, (3,)))
            out = (index[..., None] == np.arange(2)).astype(NUMPY[dtype])
            yield sample(name, [index], out, EXACT, "every dtype of the result", depth=2, dtype=dtype)


def samples():
    for group in (scatters, special_scatters, gathers, windows, one_hots):
        yield from group()
