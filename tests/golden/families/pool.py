"""Pools by NumPy over explicit windows, unpooling and adaptive pools by PyTorch in f64."""

import itertools

import numpy as np
import torch
import torch.nn.functional as F

from .core import (
    ANY_ZERO,
    EXACT,
    FLOATS,
    INTS,
    Real,
    any_bits,
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

# shape, kernel, stride, dilation, low, high, ceil_mode
CASES = [
    ((2, 3, 9), [3], [2], [1], [1], [1], False),
    ((1, 2, 6, 7), [2, 3], [2, 2], [1, 1], [0, 1], [0, 1], False),
    ((2, 7, 8), [3, 2], [1, 3], [2, 1], [1, 0], [2, 1], False),
    ((1, 1, 6, 6), [3, 3], [2, 2], [1, 1], [0, 0], [0, 0], True),
    ((1, 5, 7), [3, 3], [2, 3], [1, 1], [1, 1], [1, 1], True),
    ((2, 3, 4, 5), [2, 2, 2], [1, 2, 2], [1, 1, 2], [1, 0, 1], [0, 1, 1], False),
    ((4,), [2], [3], [1], [2], [2], False),
    ((3, 70), [3], [1], [1], [1], [1], False),
    ((0, 5), [2], [1], [1], [0], [0], False),
]


def window_count(n, k, s, d, low, high, ceil_mode):
    room = n + low + high - d * (k - 1) - 1
    count = (room + s - 1 if ceil_mode else room) // s + 1
    if ceil_mode and (count - 1) * s >= n + low:
        count -= 1
    return count


def windows(x, case):
    """For each window: its index, the indices of its elements, the number of positions up to the padding's end."""
    _, kernel, stride, dilation, low, high, ceil_mode = case
    axes = len(kernel)
    sizes = x.shape[x.ndim - axes :]
    counts = [window_count(*a, ceil_mode) for a in zip(sizes, kernel, stride, dilation, low, high)]
    for index in itertools.product(*map(range, counts)):
        taps = [
            [o * s + k * d - a for k in range(n)]
            for o, s, d, a, n in zip(index, stride, dilation, low, kernel)
        ]
        real = [[t for t in ts if 0 <= t < n] for ts, n in zip(taps, sizes)]
        padded = [[t for t in ts if t < n + h] for ts, n, h in zip(taps, sizes, high)]
        yield index, counts, list(itertools.product(*real)), int(np.prod([len(p) for p in padded]))


EMPTY = {"max": -np.inf, "min": np.inf, "sum": 0, "mean": 0, "prod": 1}


def pool(x, case, kind, include_pad, dtype):
    axes = len(case[1])
    lead = x.shape[: x.ndim - axes]
    flat = x.reshape((-1,) + x.shape[x.ndim - axes :]) if x.size else x
    out, places = None, None
    for index, counts, real, padded in windows(x, case):
        if out is None:
            planes = int(np.prod(lead, dtype=np.int64))
            out = np.zeros([planes] + counts, x.dtype)
            places = np.full([planes] + counts, -1, np.int64)
        for plane in range(out.shape[0]):
            at = (plane,) + index
            if not real:
                empty = EMPTY[kind]
                if dtype in INTS and np.isinf(empty):
                    limits = np.iinfo(narrow(dtype, np.zeros(1)).dtype)
                    empty = limits.min if kind == "max" else limits.max
                out[at] = empty
                continue
            values = np.array([flat[(plane,) + r] for r in real])
            if kind in ("max", "min"):
                best = (np.argmax if kind == "max" else np.argmin)(values)
                out[at] = values[best]
                places[at] = np.ravel_multi_index(real[best], x.shape[x.ndim - axes :])
            elif kind == "prod":
                out[at] = np.prod(values, dtype=x.dtype)
            else:
                total = values.sum(dtype=x.dtype)
                if kind == "mean":
                    count = padded if include_pad else len(real)
                    total = int(total / count) if dtype in INTS else total / Real(count)
                out[at] = total
    shape = list(lead) + list(out.shape[1:])
    return out.reshape(shape), places.reshape(shape)


def attributes(case):
    names = ("kernel", "stride", "dilation", "low", "high", "ceil_mode")
    return dict(zip(names, case[1:]))


def pools():
    for n, case in enumerate(CASES):
        if 0 in case[0]:
            for kind in EMPTY:
                x = np.zeros((0, 5), np.float32)
                out = np.zeros((0, 4), np.float32)
                yield sample(
                    f"pool/f32/{kind}-{n}", [x], out, EXACT, "no planes", kind=kind, **attributes(case)
                )
            continue
        for kind in EMPTY:
            small = n in (1, 4)
            for dtype in FLOATS + (INTS if small else []):
                if not small and dtype in FLOATS[n % 2 :: 2]:
                    continue  # half of the dtypes for each geometry
                for include in (True, False) if kind == "mean" else (True,):
                    if not include and n in (6,) and dtype in INTS:
                        continue
                    identifier = f"pool/{dtype}/{kind}-{n}" + ("" if include else "-real")
                    rng = rng_of(identifier)
                    x = (
                        whole(rng, dtype, case[0])
                        if dtype in INTS
                        else random(rng, dtype, case[0], -2, 2)
                    )
                    with np.errstate(all="ignore"):
                        out, _ = pool(wide(x), case, kind, include, dtype)
                        if kind == "mean" and not include and dtype in FLOATS:
                            ones, _ = pool(np.ones_like(wide(x)), case, "sum", True, dtype)
                            out = np.where(ones == 0, np.nan, out)
                    if kind in ("max", "min") or dtype in INTS:
                        tol = ANY_ZERO
                    else:
                        tol = ulps(dtype, 64, 64 * unit(dtype))
                    yield sample(
                        identifier,
                        [x],
                        narrow(dtype, out),
                        tol,
                        f"{kind} of {case}",
                        kind=kind,
                        count_include_pad=include,
                        **attributes(case),
                    )


def channels_last():
    """The same pools with the last axis in front of the pooled ones moved behind them."""
    for n, case in enumerate(CASES):
        lead = len(case[0]) - len(case[1])
        if lead == 0 or 0 in case[0]:
            continue
        last = lambda t: np.ascontiguousarray(np.moveaxis(t, lead - 1, -1))
        for kind in EMPTY:
            for dtype in FLOATS + (INTS if n in (1, 4) else []):
                for include in (True, False) if kind == "mean" else (True,):
                    identifier = f"pool_channels_last/{dtype}/{kind}-{n}" + ("" if include else "-real")
                    rng = rng_of(identifier)
                    x = whole(rng, dtype, case[0]) if dtype in INTS else random(rng, dtype, case[0], -2, 2)
                    out, _ = pool(wide(x), case, kind, include, dtype)
                    exact = kind in ("max", "min") or dtype in INTS
                    yield sample(
                        identifier,
                        [last(x)],
                        narrow(dtype, last(out)),
                        ANY_ZERO if exact else ulps(dtype, 64, 64 * unit(dtype)),
                        f"{kind} of {case}",
                        kind=kind,
                        count_include_pad=include,
                        **attributes(case),
                    )


def special():
    nan, inf = np.nan, np.inf
    for dtype in FLOATS:
        x = array(dtype, [[1, nan, 2, 2, -inf, inf, inf, 0.5, nan, nan]])
        case = (x.shape, [2], [1], [1], [0], [0], False)
        rows = wide(x)[0]
        pairs = np.stack([rows[:-1], rows[1:]])
        for kind, function in (("max", np.maximum), ("min", np.minimum)):
            values = function(pairs[0], pairs[1])[None]
            picked = np.where(np.isnan(pairs[0]), 0, np.where(np.isnan(pairs[1]), 1, -1))
            better = pairs[1] > pairs[0] if kind == "max" else pairs[1] < pairs[0]
            picked = np.where(picked < 0, better.astype(int), picked)
            places = (np.arange(rows.size - 1) + picked)[None]
            yield sample(
                f"pool/{dtype}/special-{kind}",
                [x],
                narrow(dtype, values),
                EXACT,
                "NaN wins",
                kind=kind,
                **attributes(case),
            )
            yield sample(
                f"max_pool_with_indices/{dtype}/special-{kind}",
                [x],
                [narrow(dtype, values), places.astype(np.int64)],
                EXACT,
                "the first NaN, the first of equals",
                kind=kind,
                **attributes(case),
            )
    # From the specification.
    x = np.ones((1, 1, 3, 3), np.float32)
    yield sample(
        "pool/f32/ones",
        [x],
        array("f32", [[[[0.25, 0.5], [0.5, 1.0]]]]),
        EXACT,
        "padding counts in the mean",
        kind="mean",
        kernel=[2, 2],
        stride=[2, 2],
        low=[1, 1],
        high=[1, 1],
    )


def extrema():
    for n, case in enumerate(CASES[:7]):
        for dtype in FLOATS + (INTS if n in (2, 4) else []):
            if dtype in FLOATS[n % 2 :: 2]:
                continue
            for kind in ("max", "min"):
                identifier = f"max_pool_with_indices/{dtype}/{kind}-{n}"
                x = whole(rng_of(identifier), dtype, case[0])  # with ties
                out, places = pool(wide(x), case, kind, True, dtype)
                yield sample(
                    identifier,
                    [x],
                    [narrow(dtype, out), places],
                    ANY_ZERO,
                    "whole numbers: the first of equals",
                    kind=kind,
                    **attributes(case),
                )
                if dtype in INTS:
                    continue
                identifier = f"max_pool_backward/{dtype}/{kind}-{n}"
                dy = whole(rng_of(identifier), dtype, out.shape)
                axes = len(case[1])
                planes = int(np.prod(x.shape[: x.ndim - axes], dtype=np.int64))
                dx = np.zeros((planes, x.size // planes), Real)
                for plane, places_, values in zip(
                    range(planes), places.reshape(planes, -1), wide(dy).reshape(planes, -1)
                ):
                    np.add.at(dx[plane], places_[places_ >= 0], values[places_ >= 0])
                yield sample(
                    identifier,
                    [x, dy],
                    narrow(dtype, dx.reshape(x.shape)),
                    ANY_ZERO,
                    "whole numbers: exact sums",
                    kind=kind,
                    **attributes(case),
                )


def unpadded():
    """count_include_pad says nothing to the extrema."""
    case = ((2, 5), [3], [2], [1], [1], [1], False)
    for dtype in FLOATS + INTS:
        for kind in ("max", "min"):
            identifier = f"max_pool_with_indices/{dtype}/{kind}-real"
            x = whole(rng_of(identifier), dtype, case[0])
            out, places = pool(wide(x), case, kind, False, dtype)
            attrs = {"kind": kind, "count_include_pad": False, **attributes(case)}
            yield sample(identifier, [x], [narrow(dtype, out), places], ANY_ZERO, "no padding in it", **attrs)
            if dtype in FLOATS:
                dx = np.zeros(x.shape, Real)
                for row, picked in zip(dx, places):
                    np.add.at(row, picked, 1)
                name, dy = f"max_pool_backward/{dtype}/{kind}-real", narrow(dtype, np.ones(out.shape))
                yield sample(name, [x, dy], narrow(dtype, dx), ANY_ZERO, "no padding in it", **attrs)


def lp_pools():
    for n, case in enumerate(CASES[:6]):
        for p in (1.0, 2.0, 3.0):
            for dtype in FLOATS[n % 2 :: 2]:
                identifier = f"lp_pool/{dtype}/case-{n}-{int(p)}"
                x = random(rng_of(identifier), dtype, case[0], -2, 2)
                total, _ = pool(np.abs(wide(x)) ** Real(p), case, "sum", True, dtype)
                yield sample(
                    identifier,
                    [x],
                    narrow(dtype, total ** (1 / Real(p))),
                    ulps(dtype, 32),
                    f"p = {p}",
                    p=p,
                    **attributes(case),
                )


def others():
    adaptive = [
        ((2, 3, 7), [3]),
        ((1, 2, 7, 5), [7, 2]),
        ((2, 10, 9), [4, 9]),
        ((1, 3, 4, 5), [2, 3, 2]),
        ((2, 2, 3), [5]),
    ]
    functions = {
        "adaptive_avg_pool": (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d),
        "adaptive_max_pool": (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d),
    }
    for name, by_axes in functions.items():
        for n, (shape, size) in enumerate(adaptive):
            for dtype in FLOATS:
                identifier = f"{name}/{dtype}/case-{n}"
                x = random(rng_of(identifier), dtype, shape, -2, 2)
                planes = torch.from_numpy(x.astype(np.float64)).reshape(
                    (1, -1) + x.shape[x.ndim - len(size) :]
                )
                y = by_axes[len(size) - 1](planes, size).numpy()
                out = y.reshape(x.shape[: x.ndim - len(size)] + tuple(size))
                tol = ANY_ZERO if "max" in name else ulps(dtype, 16, 16 * unit(dtype))
                yield sample(identifier, [x], narrow(dtype, out), tol, f"to {size}", size=size)
    for dtype in FLOATS:
        for n, shape in enumerate([(2, 3, 5), (1, 2, 4, 3), (1, 2, 2, 3, 2)]):
            x = random(rng_of(f"global_avg_pool/{dtype}/{n}"), dtype, shape)
            axes = tuple(range(2, x.ndim))
            yield sample(
                f"global_avg_pool/{dtype}/case-{n}",
                [x],
                narrow(dtype, wide(x).mean(axes, keepdims=True)),
                ulps(dtype, 8, 8 * unit(dtype)),
                "mean of each channel",
            )
            yield sample(
                f"global_max_pool/{dtype}/case-{n}",
                [x],
                narrow(dtype, wide(x).max(axes, keepdims=True)),
                ANY_ZERO,
                "largest of each channel",
            )
        x = random(rng_of(f"max_unpool/{dtype}/line"), dtype, (2, 3, 8), -2, 2)
        tx = torch.from_numpy(x.astype(np.float64))
        y, places = F.max_pool1d(tx, 2, return_indices=True)
        back = F.max_unpool1d(y, places, 2, output_size=(8,)).numpy()
        yield sample(
            f"max_unpool/{dtype}/line",
            [narrow(dtype, y.numpy()), places.numpy().astype(np.int32)],
            narrow(dtype, back),
            EXACT,
            "positions of i32",
            size=[8],
        )
        x = random(rng_of(f"max_unpool/{dtype}/case"), dtype, (1, 2, 6, 5), -2, 2)
        tx = torch.from_numpy(x.astype(np.float64))
        y, places = F.max_pool2d(tx, 2, 1, return_indices=True)  # overlapping windows
        back = F.max_unpool2d(y, places, 2, 1, output_size=(6, 5)).numpy()
        yield sample(
            f"max_unpool/{dtype}/overlap",
            [narrow(dtype, y.numpy()), places.numpy()],
            narrow(dtype, back),
            ulps(dtype, 1),
            "positions of overlapping windows repeat",
            size=[6, 5],
        )


def integer_globals():
    for dtype in INTS:
        x = any_bits(rng_of(f"global_max_pool/{dtype}"), dtype, (2, 2, 3, 2))
        out = x.max((2, 3), keepdims=True)
        yield sample(f"global_max_pool/{dtype}/case", [x], out, EXACT, "largest of each channel")


def samples():
    yield from integer_globals()
    yield from unpadded()
    yield from pools()
    yield from channels_last()
    yield from special()
    yield from extrema()
    yield from lp_pools()
    yield from others()
