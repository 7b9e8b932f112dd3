"""Arrangements: every dtype, compared bit for bit with NumPy; blocks of space with the formulas of ONNX."""

import numpy as np

from .core import (
    ALL,
    EXACT,
    FLOATS,
    NUMPY,
    REALS,
    Real,
    any_bits,
    array,
    narrow,
    random,
    rng_of,
    sample,
    ulps,
)


def blocks(x, block, crd, to_depth):
    n, c, h, w = x.shape
    if to_depth:
        y = x.reshape(n, c, h // block, block, w // block, block)
        y = y.transpose(0, 1, 3, 5, 2, 4) if crd else y.transpose(0, 3, 5, 1, 2, 4)
        return y.reshape(n, c * block * block, h // block, w // block)
    d = c // block**2
    if crd:
        y = x.reshape(n, d, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        y = x.reshape(n, block, block, d, h, w).transpose(0, 3, 4, 1, 5, 2)
    return y.reshape(n, d, h * block, w * block)


def embed(x, k):
    n = x.shape[-1] + abs(k)
    out = np.zeros((*x.shape[:-1], n, n), x.dtype)
    i = np.arange(x.shape[-1])
    out[..., i + max(-k, 0), i + max(k, 0)] = x
    return out


def flatten(x, start=0, end=-1):
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start % x.ndim, end % x.ndim
    size = int(np.prod(x.shape[start : end + 1], dtype=np.int64))
    return x.reshape(*x.shape[:start], size, *x.shape[end + 1 :])


def in_dim(x, shape, dims):
    return np.broadcast_to(
        x.reshape([x.shape[dims.index(i)] if i in dims else 1 for i in range(len(shape))]), shape
    )


def pad(x, low, high, mode):
    return np.pad(x, list(zip(low, high)), mode=mode)


# op -> (function of x and the attributes, [(shape, attributes)])
ONE = {
    "squeeze": (
        lambda x, axes=[]: np.squeeze(x, tuple(axes) or None),
        [((1, 3, 1), {}), ((1, 3, 1), {"axes": [-1]}), ((), {})],
    ),
    "expand_dims": (
        lambda x, axes: np.expand_dims(x, tuple(axes)),
        [((2, 3), {"axes": [0, -1]}), ((), {"axes": [0]}), ((2,), {"axes": [2, 0]})],
    ),
    "flatten": (
        flatten,
        [
            ((2, 3, 2), {}),
            ((2, 3, 2), {"start": 1}),
            ((2, 3, 2), {"start": -3, "end": -2}),
            ((), {}),
            ((2, 0, 3), {"start": 1}),
        ],
    ),
    "swap_axes": (
        lambda x, axis1, axis2: np.swapaxes(x, axis1, axis2),
        [
            ((2, 3), {"axis1": 0, "axis2": 1}),
            ((2, 3, 4), {"axis1": 0, "axis2": -1}),
            ((2, 3, 4), {"axis1": -1, "axis2": -2}),
        ],
    ),
    "move_axis": (
        lambda x, source, destination: np.moveaxis(x, source, destination),
        [
            ((2, 3, 4), {"source": [0], "destination": [-1]}),
            ((2, 3, 4, 2), {"source": [3, 1], "destination": [0, 2]}),
            ((2, 3, 4), {"source": [-1, 0], "destination": [0, -2]}),
        ],
    ),
    "tile": (
        lambda x, repeats: np.tile(x, repeats),
        [
            ((2, 3), {"repeats": [2, 1]}),
            ((3,), {"repeats": [2, 2]}),
            ((2, 2), {"repeats": [0, 3]}),
            ((), {"repeats": []}),
        ],
    ),
    "repeat": (
        lambda x, repeats, axis: np.repeat(x, repeats, axis),
        [
            ((3, 2), {"repeats": 2, "axis": 0}),
            ((2, 2), {"repeats": 3, "axis": -1}),
            ((2,), {"repeats": 0, "axis": 0}),
        ],
    ),
    "roll": (
        lambda x, shifts, axes: np.roll(x, shifts, axes),
        [
            ((5,), {"shifts": [2], "axes": [0]}),
            ((3, 4), {"shifts": [-1, 9], "axes": [0, 1]}),
            ((0, 2), {"shifts": [1], "axes": [0]}),
            ((2, 3, 2), {"shifts": [1, 2], "axes": [-1, -2]}),
        ],
    ),
    "broadcast_in_dim": (
        in_dim,
        [
            ((3,), {"shape": [2, 3, 4], "dims": [1]}),
            ((2, 1), {"shape": [2, 3], "dims": [0, 1]}),
            ((), {"shape": [2], "dims": []}),
        ],
    ),
    "space_to_depth": (
        lambda x, block, crd=False: blocks(x, block, crd, True),
        [((2, 3, 4, 2), {"block": 2}), ((1, 2, 3, 6), {"block": 3, "crd": True})],
    ),
    "depth_to_space": (
        lambda x, block, crd=False: blocks(x, block, crd, False),
        [((2, 8, 1, 2), {"block": 2}), ((1, 9, 2, 1), {"block": 3, "crd": True})],
    ),
    "pad_mode": (
        pad,
        [
            ((4, 3), {"low": [1, 2], "high": [3, 0], "mode": m})
            for m in ("edge", "reflect", "symmetric", "wrap")
        ]
        + [((2,), {"low": [7], "high": [4], "mode": m}) for m in ("reflect", "symmetric", "wrap")],
    ),
    "tril": (
        lambda x, k=0: np.tril(x, k),
        [((4, 4), {}), ((2, 3, 5), {"k": -1}), ((3, 2), {"k": 1})],
    ),
    "triu": (
        lambda x, k=0: np.triu(x, k),
        [((4, 4), {}), ((2, 3, 5), {"k": 2}), ((3, 2), {"k": -1})],
    ),
    "diagonal": (
        lambda x, offset=0, axis1=0, axis2=1: np.diagonal(x, offset, axis1, axis2),
        [
            ((3, 4), {}),
            ((3, 2, 4), {"offset": 1, "axis1": -1, "axis2": 0}),
            ((4, 3), {"offset": -2}),
            ((2, 2), {"offset": 5}),
            ((2, 3, 4), {"axis1": 0, "axis2": -1}),
        ],
    ),
    "diag_embed": (
        lambda x, offset=0: embed(x, offset),
        [((2, 3), {}), ((3,), {"offset": 2}), ((2, 2), {"offset": -1}), ((0,), {})],
    ),
}


def ones():
    for op, (function, cases) in ONE.items():
        for dtype in ALL:
            for n, (shape, attrs) in enumerate(cases):
                name = f"{op}/{dtype}/case-{n}"
                x = any_bits(rng_of(name), dtype, shape)
                if op == "roll" and x.size == 0:
                    out = x
                else:
                    out = np.ascontiguousarray(function(x, **attrs)).reshape(
                        np.shape(function(x, **attrs))
                    )
                yield sample(name, [x], out, EXACT, "", **attrs)


def several():
    for dtype in ALL:
        for n, (count, shape, axis) in enumerate([(2, (2, 3), 0), (3, (2, 3), -1), (2, (), 0)]):
            name = f"stack/{dtype}/case-{n}"
            rng = rng_of(name)
            xs = [any_bits(rng, dtype, shape) for _ in range(count)]
            yield sample(name, xs, np.stack(xs, axis), EXACT, "", axis=axis)
        for n, (shape, sizes, axis) in enumerate([((5, 2), [1, 4], 0), ((2, 3), [2, 0, 1], -1)]):
            name = f"split/{dtype}/case-{n}"
            x = any_bits(rng_of(name), dtype, shape)
            outs = [p.copy() for p in np.split(x, np.cumsum(sizes)[:-1], axis)]
            yield sample(name, [x], outs, EXACT, "", axis=axis, sizes=sizes)
        for n, (shape, axis) in enumerate([((3, 2), 0), ((2, 2, 2), -1)]):
            name = f"unstack/{dtype}/case-{n}"
            x = any_bits(rng_of(name), dtype, shape)
            outs = [p.copy() for p in np.moveaxis(x, axis, 0)]
            yield sample(name, [x], outs, EXACT, "", axis=axis)
        for n, (sizes, xy) in enumerate(
            [((2, 3), True), ((2, 3, 2), False), ((4,), True), ((2, 3, 2), True)]
        ):
            name = f"meshgrid/{dtype}/case-{n}"
            rng = rng_of(name)
            xs = [any_bits(rng, dtype, (s,)) for s in sizes]
            outs = [g.copy() for g in np.meshgrid(*xs, indexing="xy" if xy else "ij")]
            yield sample(name, xs, outs, EXACT, "", xy=xy)
        for n, (shape, mask_shape) in enumerate([((2, 3), (2, 3)), ((3,), (2, 1)), ((), ())]):
            name = f"masked_fill/{dtype}/case-{n}"
            rng = rng_of(name)
            x, mask = any_bits(rng, dtype, shape), rng.random(mask_shape) < 0.5
            value = array(dtype, random(rng, dtype, (), 1, 3))
            yield sample(name, [x, np.asarray(mask), value], np.where(mask, value, x), EXACT, "")


def sources():
    for dtype in ALL:
        yield sample(
            f"full/{dtype}/ones",
            [],
            np.ones((2, 3), NUMPY[dtype]),
            EXACT,
            "",
            shape=[2, 3],
            value=1.0,
            dtype=dtype,
        )
        yield sample(
            f"full/{dtype}/empty",
            [],
            np.zeros((0, 2), NUMPY[dtype]),
            EXACT,
            "",
            shape=[0, 2],
            value=0.0,
            dtype=dtype,
        )
        for n, (rows, columns, k) in enumerate([(3, 3, 0), (2, 4, 1), (4, 2, -1), (0, 3, 0)]):
            out = np.eye(rows, columns, k).astype(NUMPY[dtype])
            yield sample(
                f"eye/{dtype}/case-{n}",
                [],
                out,
                EXACT,
                "",
                rows=rows,
                columns=columns,
                k=k,
                dtype=dtype,
            )
    for dtype in REALS:
        for n, (start, stop, step) in enumerate(
            [(0.0, 7.0, 1.0), (3.0, 20.0, 4.0), (5.0, 5.0, 1.0), (9.0, 1.0, -3.0)]
        ):
            out = array(dtype, np.arange(start, stop, step))
            yield sample(
                f"arange/{dtype}/case-{n}",
                [],
                out,
                EXACT,
                "",
                start=start,
                stop=stop,
                step=step,
                dtype=dtype,
            )
    for dtype in FLOATS:
        out = narrow(dtype, np.arange(5) * np.float64(0.3) - 1)
        yield sample(
            f"arange/{dtype}/fractions",
            [],
            out,
            EXACT,
            "",
            start=-1.0,
            stop=0.4,
            step=0.3,
            dtype=dtype,
        )
        for n, (start, stop, count, endpoint) in enumerate(
            [
                (0.0, 1.0, 7, True),
                (-2.0, 3.0, 6, False),
                (4.0, 1.0, 1, True),
                (0.0, 1.0, 0, True),
                (1.0, -1.0, 50, True),
            ]
        ):
            out = narrow(dtype, np.linspace(Real(start), Real(stop), count, endpoint, dtype=Real))
            attrs = {
                "start": start,
                "stop": stop,
                "count": count,
                "endpoint": endpoint,
                "dtype": dtype,
            }
            # i * step rounds twice in f64, and is then rounded to the dtype.
            yield sample(
                f"linspace/{dtype}/case-{n}", [], out, ulps(dtype, 2, 2.0**-52), "", **attrs
            )


def samples():
    for group in (ones, several, sources):
        yield from group()
