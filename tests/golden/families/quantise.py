"""int8 and fake quantisation, ONNX's linear quantisation, products with quantised weights.

Rounding is not continuous: operands are chosen so that what is rounded is at least 1e-3 away from a half, unless a case is about halves
and then the division is exact.
"""

import numpy as np
from gguf import GGMLQuantizationType, quants

from . import quant_blocks
from .core import EXACT, FLOATS, array, narrow, random, rng_of, sample, sum_tolerance, ulps, wide

SMALLEST = 1e-12


def rhaz(z):
    return np.copysign(np.floor(np.abs(z) + 0.5), z)


def channel(v, rank, axis):
    v = np.asarray(v)
    if axis is None:
        return v.reshape(())
    shape = [1] * rank
    shape[axis] = -1
    return v.reshape(shape)


def others(rank, axis):
    return tuple(i for i in range(rank) if axis is None or i != axis % rank)


def away_from_halves(x, scale):
    """Whether rounding x / scale does not depend on the last bits."""
    z = np.abs(wide(x) / scale)
    return (np.abs(z - np.floor(z) - 0.5) > 1e-3).all()


def draw(identifier, dtype, shape, scale_of, low=-3.0, high=3.0):
    rng = rng_of(identifier)
    while True:
        x = random(rng, dtype, shape, low, high)
        if away_from_halves(x, scale_of(wide(x))):
            return x


# ---- quantize, dequantize

QUANTIZE = [
    ((3, 4), None, [0.05], [3]),
    ((2, 3, 2), 1, [0.1, 0.02, 0.5], [0, -5, 7]),
    ((4, 2), -1, [0.25, 0.007], [-128, 127]),
    ((), None, [0.3], [0]),
    ((0, 2), 1, [1.0, 2.0], [0, 0]),
]


def affine():
    for dtype in FLOATS:
        for n, (shape, axis, scales, zeros) in enumerate(QUANTIZE):
            name = f"quantize/{dtype}/case-{n}"
            single = np.float32 if dtype != "f64" else np.float64
            inverse = channel(single(1) / np.asarray(scales, single), len(shape), axis)
            x = draw(name, dtype, shape, lambda _: 1 / inverse.astype(np.longdouble))
            zp = channel(zeros, len(shape), axis)
            q = np.clip(rhaz(wide(x) * inverse) + zp, -128, 127).astype("i1")
            yield sample(
                name, [x], q, EXACT, "", axis=axis, scales=scales, zero_points=zeros
            )
    x = array("f32", [-100, -0.75, -0.25, 0.25, 0.75, 100, np.nan, np.inf, -np.inf])
    yield sample(
        "quantize/f32/halves",
        [x],
        np.array([-128, 1, 2, 4, 5, 127, 3, 127, -128], "i1"),
        EXACT,
        "halves away from zero, saturation, NaN as 0",
        scales=[0.5],
        zero_points=[3],
    )
    for n, (shape, axis, scales, zeros) in enumerate(QUANTIZE):
        name = f"dequantize/i8/case-{n}"
        q = rng_of(name).integers(-128, 128, shape).astype("i1")
        s = channel(np.asarray(scales, "<f4"), len(shape), axis)
        values = (q.astype("<f4") - channel(zeros, len(shape), axis).astype("<f4")) * s
        yield sample(
            name, [q], values.astype("<f4"), EXACT, "", axis=axis, scales=scales, zero_points=zeros
        )


# ---- fake quantisation


def batch_scale(x, axis, top):
    most = np.abs(x).max(axis=others(x.ndim, axis), keepdims=True) if x.size else np.zeros(())
    return np.maximum(most / top, SMALLEST)


def fake(x, scale, top):
    return np.clip(rhaz(x / scale), -top, top) * scale


FAKE = [(8, (3, 4), None), (4, (3, 4), 0), (2, (2, 3, 2), -1), (5, (4, 3), 1), (4, (), None)]


def state_dtype(dtype):
    return "f32" if dtype in ("f16", "bf16") else dtype


def fakes():
    yield sample(
        "fake_quantize/f32/documented",
        [array("f32", [-1, -0.3, 0.05, 0.7])],
        array("f32", np.array([-7, -2, 0, 5]) / 7.0),
        ulps("f32", 2),
        "",
        bits=4,
    )
    for dtype in FLOATS:
        for n, (bits, shape, axis) in enumerate(FAKE):
            top = 2 ** (bits - 1) - 1
            size = 1 if axis is None else shape[axis]
            attrs = {"bits": bits, "axis": axis}
            name = f"fake_quantize/{dtype}/per-batch-{n}"
            x = draw(name, dtype, shape, lambda v: batch_scale(v, axis, top))
            y = fake(wide(x), batch_scale(wide(x), axis, top), top)
            yield sample(name, [x], narrow(dtype, y.reshape(shape)), ulps(dtype, 3), "", **attrs)

            if n == 0:
                for ste in ("clipped_identity", "tanh", "hard_tanh"):
                    name, note = f"fake_quantize/{dtype}/{ste}", "the stand-in is for the gradient"
                    yield sample(name, [x], narrow(dtype, y), ulps(dtype, 3), note, ste=ste)
            for mode in ("fixed", "ema"):
                name = f"fake_quantize/{dtype}/{mode}-{n}"
                state = random(rng_of(name + "s"), state_dtype(dtype), (size,), 0.05, 0.4)
                if mode == "ema":
                    state[0] = 0  # not seen yet: the scale of the batch

                def scale_of(v):
                    given = wide(state)
                    if mode == "ema":
                        now = batch_scale(v, axis, top).reshape(-1)
                        given = np.where(given <= 0, now, 0.75 * given + 0.25 * now)
                    return channel(given, len(shape), axis)

                x = draw(name, dtype, shape, scale_of)
                s = scale_of(wide(x))
                outputs = [narrow(dtype, fake(wide(x), s, top).reshape(shape))]
                if mode == "ema":
                    outputs.append(narrow(state_dtype(dtype), s.reshape(-1)))
                tol = [ulps(dtype, 4), ulps(state_dtype(dtype), 4)][: len(outputs)]
                yield sample(
                    name, [x, state], outputs, tol, "", scale_mode=mode, decay=0.75, **attrs
                )
            yield from fake_gradients(dtype, n, bits, shape, axis, top, size)


def stand_in(ste, x, s, top):
    if ste == "identity":
        return np.ones_like(x)
    if ste == "clipped_identity":
        return (np.abs(x) <= top * s) * np.ones_like(x)
    if ste == "tanh":
        return 1 - np.tanh(x / s) ** 2
    return np.maximum(0, 1 - np.abs(x) / (top * s))


def fake_gradients(dtype, n, bits, shape, axis, top, size):
    attrs = {"bits": bits, "axis": axis}
    for ste in ("identity", "clipped_identity", "tanh", "hard_tanh"):
        name = f"fake_quantize_backward/{dtype}/{ste}-{n}"
        rng = rng_of(name)
        x, dy = random(rng, dtype, shape), random(rng, dtype, shape)
        scale = random(rng, state_dtype(dtype), (size,), 0.1, 0.5)
        s = channel(wide(scale), len(shape), axis)
        dx = narrow(dtype, (wide(dy) * stand_in(ste, wide(x), s, top)).reshape(shape))
        # 1 - t^2 of a rounded t loses what cancels
        tol = ulps(dtype, 8, 4 * 2.0**-22 if dtype != "f64" else 4 * 2.0**-50)
        yield sample(name, [x, dy, scale], dx, tol, "", ste=ste, **attrs)
        s = batch_scale(wide(x), axis, top)
        slope = np.ones_like(wide(x)) if ste == "clipped_identity" else stand_in(ste, wide(x), s, top)
        dx = narrow(dtype, (wide(dy) * slope).reshape(shape))
        note = "the scale of the batch, which clips nothing"
        yield sample(name + "-batch", [x, dy], dx, tol, note, ste=ste, **attrs)

    name = f"fake_quantize_lsq/{dtype}/case-{n}"
    rng = rng_of(name)
    scale = random(rng, state_dtype(dtype), (size,), 0.2, 0.6)
    s = channel(wide(scale), len(shape), axis)
    x, dy = draw(name, dtype, shape, lambda _: s), random(rng, dtype, shape)
    z, g = wide(x) / s, wide(dy)
    inside = np.abs(z) <= top
    y = narrow(dtype, fake(wide(x), s, top).reshape(shape))
    for scaled in (False, True):
        at = name + ("-scaled" if scaled else "")
        yield sample(at, [x, scale], y, ulps(dtype, 3), "", gradient_scale=scaled, **attrs)
    dx = narrow(dtype, np.where(inside, g, 0).reshape(shape))
    for scaled in (False, True):
        at = f"fake_quantize_lsq_backward_x/{dtype}/case-{n}{'-scaled' if scaled else ''}"
        yield sample(at, [x, scale, dy], dx, EXACT, "", gradient_scale=scaled, **attrs)
    partial = np.where(inside, rhaz(z) - z, np.sign(z) * top)
    terms = max(np.asarray(x).size // size, 1)
    for scaled in (False, True):
        factor = 1 / np.sqrt(np.longdouble(terms * top)) if scaled else 1
        total = (partial * g * factor).sum(axis=others(len(shape), axis)).reshape(-1)
        kind = state_dtype(dtype)
        # z carries the rounding of a division by the scale
        tol = sum_tolerance(kind, terms + 4, float(np.abs(g).max() * (np.abs(z).max() + top)))
        yield sample(
            f"fake_quantize_lsq_backward_scale/{dtype}/case-{n}{'-scaled' if scaled else ''}",
            [x, scale, dy],
            narrow(kind, total),
            tol,
            "",
            gradient_scale=scaled,
            **attrs,
        )


# ---- ONNX


def onnx():
    for n, (shape, low, high) in enumerate([((3, 4), -3, 3), ((5,), 1, 3), ((2, 2), -3, -1), ((), 0, 2)]):
        name = f"dynamic_quantize_linear/f32/case-{n}"
        x = random(rng_of(name), "f32", shape, low, high)
        lowest, highest = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
        scale = np.float32((highest - lowest) / np.float32(255))
        zero = np.clip(np.rint(-lowest / scale), 0, 255).astype("u1")
        q = np.clip(np.rint(x / scale) + zero.astype("<f4"), 0, 255).astype("u1")
        yield sample(name, [x], [q, scale, zero], EXACT, "f32 throughout, as ONNX computes it")
    yield sample(
        "dynamic_quantize_linear/f32/zero",
        [array("f32", [0, 0])],
        [array("u8", [0, 0]), np.float32(1), np.uint8(0)],
        EXACT,
        "no range: scale 1",
    )
    for dtype in FLOATS:
        for to, bounds in (("u8", (0, 255)), ("i8", (-128, 127))):
            for n, (shape, axis) in enumerate([((2, 3), None), ((2, 3), 1), ((3, 2, 2), 0), ((), None)]):
                name = f"quantize_linear/{dtype}/{to}-{n}"
                rng = rng_of(name)
                count = () if axis is None else (shape[axis],)
                scale = random(rng, dtype, count, 0.02, 0.2)
                zero = rng.integers(*bounds, count, endpoint=True).astype("u1" if to == "u8" else "i1")
                s = channel(wide(scale), len(shape), axis)
                x = draw(name, dtype, shape, lambda _: s)
                q = np.clip(np.rint(wide(x) / s) + channel(zero, len(shape), axis).astype(int), *bounds)
                yield sample(
                    name, [x, scale, zero], q.astype(zero.dtype), EXACT, "", axis=axis or 0
                )
        name = f"dequantize_linear/i8/{dtype}"
        rng = rng_of(name)
        q = rng.integers(-128, 128, (2, 3)).astype("i1")
        scale, zero = random(rng, dtype, (3,), 0.02, 0.2), rng.integers(-9, 9, 3).astype("i1")
        y = (q.astype(int) - zero.astype(int)) * wide(scale)
        yield sample(name, [q, scale, zero], narrow(dtype, y), ulps(dtype, 1), "", axis=1)
        for to, bounds in (("u8", (0, 255)), ("i8", (-128, 127))):
            for n, (shape, axis) in enumerate([((2, 3), -1), ((2, 3), -2), ((4,), 0)]):
                name = f"quantize_linear/{dtype}/{to}-without-{n}"
                scale = random(rng_of(name), dtype, (shape[axis],), 0.02, 0.2)
                s = channel(wide(scale), len(shape), axis)
                x = draw(name, dtype, shape, lambda _: s)
                q = np.clip(np.rint(wide(x) / s), *bounds).astype("u1" if to == "u8" else "i1")
                yield sample(name, [x, scale], q, EXACT, "no zero point", axis=axis, dtype=to)
    for kind in ("u8", "i8", "i16", "i32"):
        for axis in (-1, -2, 0, 1):
            name = f"dequantize_linear/{kind}/axis{axis}"
            rng = rng_of(name)
            q, count = array(kind, rng.integers(0, 100, (2, 3))), (2, 3)[axis]
            scale, zero = random(rng, "f32", (count,), 0.02, 0.2), array(kind, rng.integers(0, 9, count))
            y = (q.astype(int) - channel(zero, 2, axis).astype(int)) * channel(wide(scale), 2, axis)
            yield sample(name, [q, scale, zero], narrow("f32", y), ulps("f32", 1), "", axis=axis)
    half = array("f32", [0.5, 1.5, 2.5, -0.5, -1.5, np.nan, 1e9])
    yield sample(
        "quantize_linear/f32/halves",
        [half, np.float32(1), np.int8(1)],
        np.array([1, 3, 3, 1, -1, 1, 127], "i1"),
        EXACT,
        "halves to even, NaN as 0, saturation",
    )
    for kind, scale in (("u8", 0.5), ("i16", 0.25), ("i32", 2.0)):
        q = array(kind, [[0, 7, 100], [3, 1, 2]])
        yield sample(
            f"dequantize_linear/{kind}/plain",
            [q, np.float32(scale)],
            (q.astype(np.float64) * scale).astype("<f4"),
            EXACT,
            "",
        )
    for a, b in (("u8", "u8"), ("u8", "i8"), ("i8", "i8"), ("i8", "u8")):
        for zeros in ("none", "scalar", "vector"):
            name = f"matmul_integer/{a}/{b}-{zeros}"
            rng = rng_of(name)
            ranges = {"u8": (0, 256, "u1"), "i8": (-128, 128, "i1")}
            x = rng.integers(*ranges[a][:2], (2, 3, 5)).astype(ranges[a][2])
            y = rng.integers(*ranges[b][:2], (5, 4)).astype(ranges[b][2])
            inputs, xs, ys = [x, y], x.astype(int), y.astype(int)
            if zeros != "none":
                za = rng.integers(*ranges[a][:2], () if zeros == "scalar" else 3)
                zb = rng.integers(*ranges[b][:2], () if zeros == "scalar" else 4)
                inputs += [np.asarray(za).astype(ranges[a][2]), np.asarray(zb).astype(ranges[b][2])]
                xs = xs - np.asarray(za).reshape((-1, 1) if zeros == "vector" else ())
                ys = ys - zb
            yield sample(name, inputs, (xs @ ys).astype("<i4"), EXACT, "")


INTEGER_CONV = [  # x, w, stride, low, high, dilation, groups
    ((2, 3, 7), (4, 3, 3), [2], [1], [2], [1], 1),
    ((1, 2, 4, 4), (3, 2, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1], 1),
    ((2, 4, 5, 6), (6, 2, 2, 3), [2, 1], [1, 2], [0, 1], [1, 2], 2),
    ((1, 5, 4, 4), (5, 1, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1], 5),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), [1, 2, 1], [1, 0, 0], [0, 1, 1], [1, 1, 2], 1),
    ((1, 2, 5, 5), (2, 2, 2, 2), [1, 1], [-1, 0], [0, -1], [1, 1], 1),
]


def integer_sums(x, w, stride, low, high, dilation, groups):
    """conv of integers without zero points: a sum over the places of the kernel."""
    axes = w.ndim - 2
    inner = [slice(max(-p, 0), x.shape[2 + d] - max(-q, 0)) for d, (p, q) in enumerate(zip(low, high))]
    x = x[(slice(None), slice(None), *inner)]
    padded = np.pad(x, ((0, 0), (0, 0), *[(max(p, 0), max(q, 0)) for p, q in zip(low, high)]))
    out = [(padded.shape[2 + d] - dilation[d] * (w.shape[2 + d] - 1) - 1) // stride[d] + 1 for d in range(axes)]
    acc = np.zeros((x.shape[0], w.shape[0], *out), int)
    per = w.shape[0] // groups
    for o in range(w.shape[0]):
        for k in np.ndindex(w.shape[1:]):
            places = [
                slice(k[1 + d] * dilation[d], k[1 + d] * dilation[d] + (out[d] - 1) * stride[d] + 1, stride[d])
                for d in range(axes)
            ]
            acc[:, o] += padded[(slice(None), o // per * w.shape[1] + k[0], *places)] * w[(o, *k)]
    return acc


def integer_convolutions():
    bounds = {"u8": (0, 256, "u1"), "i8": (-128, 128, "i1")}
    for a, b in (("u8", "u8"), ("u8", "i8"), ("i8", "i8"), ("i8", "u8")):
        for n, (xs, ws, *window) in enumerate(INTEGER_CONV):
            zeros = ("none", "scalar", "vector")[n % 3]
            name = f"conv_integer/{a}/{b}-case-{n}"
            rng = rng_of(name)
            x = rng.integers(*bounds[a][:2], xs).astype(bounds[a][2])
            w = rng.integers(*bounds[b][:2], ws).astype(bounds[b][2])
            inputs, x_zero, w_zero = [x, w], 0, np.zeros((), int)
            if zeros != "none":
                x_zero = rng.integers(*bounds[a][:2], ())
                w_zero = rng.integers(*bounds[b][:2], () if zeros == "scalar" else ws[0])
                inputs += [np.asarray(x_zero).astype(bounds[a][2]), np.asarray(w_zero).astype(bounds[b][2])]
            centre = np.reshape(w_zero, (-1, *[1] * (len(ws) - 1)) if zeros == "vector" else ())
            acc = integer_sums(x.astype(int) - int(x_zero), w.astype(int) - centre, *window)
            stride, low, high, dilation, groups = window
            attrs = {"stride": stride, "low": low, "high": high, "dilation": dilation, "groups": groups}
            yield sample(name, inputs, acc.astype("<i4"), EXACT, "", **attrs)
    for a in ("u8", "i8"):  # the largest products there are
        low, high, kind = bounds[a]
        x, w = np.full((1, 64, 3, 3), low if a == "i8" else high - 1, kind), np.full((2, 64, 3, 3), -128, "i1")
        acc = integer_sums(x.astype(int), w.astype(int), [1, 1], [1, 1], [1, 1], [1, 1], 1)
        yield sample(
            f"conv_integer/{a}/largest",
            [x, w],
            acc.astype("<i4"),
            EXACT,
            "sums of pairs leave 16 bits",
            low=[1, 1],
            high=[1, 1],
        )
        a2, b2 = np.full((2, 130), low if a == "i8" else high - 1, kind), np.full((130, 3), -128, "i1")
        yield sample(
            f"matmul_integer/{a}/largest",
            [a2, b2],
            (a2.astype(int) @ b2.astype(int)).astype("<i4"),
            EXACT,
            "sums of pairs leave 16 bits",
        )


# ---- int8 products


def requantise(acc, mult, zero):
    scaled = acc.astype("<f4") * np.float32(mult)
    whole = np.trunc(scaled)  # exact, unlike adding a half
    whole = np.where(np.abs(scaled - whole) >= 0.5, whole + np.sign(scaled), whole)
    return np.clip(whole + zero, -128, 127).astype("i1")


def int8_products():
    for n, (m, k, c, x_zp, w_zp, out_zp, mult) in enumerate(
        [(3, 5, 4, 0, 0, 0, 0.01), (2, 64, 3, 5, -7, 11, 0.0004), (1, 1, 1, -128, 127, -1, 0.5), (2, 0, 3, 1, 1, 9, 1.0)]
    ):
        rng = rng_of(f"q_matmul/i8/case-{n}")
        x, w = (rng.integers(-128, 128, s).astype("i1") for s in ((m, k), (k, c)))
        bias = rng.integers(-1000, 1000, c).astype("<i4")
        acc = (x.astype(int) - x_zp) @ (w.astype(int) - w_zp) + bias
        yield sample(
            f"q_matmul/i8/case-{n}",
            [x, w, bias],
            requantise(acc, mult, out_zp),
            EXACT,
            "",
            x_zp=x_zp,
            w_zp=w_zp,
            out_zp=out_zp,
            mult=mult,
        )
    for n, (xs, ws, stride, padding, dilation, groups, x_zp) in enumerate(
        [
            ((1, 2, 4, 4), (3, 2, 3, 3), [1, 1], [0, 0], [1, 1], 1, 0),
            ((2, 4, 5, 6), (6, 2, 2, 3), [2, 1], [1, 2], [1, 2], 2, 9),
            ((1, 3, 3, 3), (3, 1, 1, 1), [2, 2], [1, 0], [1, 1], 3, -4),
            ((1, 2, 3, 3), (2, 2, 2, 2), [1, 1], [1, 1], [1, 1], 1, 1),
        ]
    ):
        rng = rng_of(f"q_conv2d/i8/case-{n}")
        x, w = rng.integers(-128, 128, xs).astype("i1"), rng.integers(-128, 128, ws).astype("i1")
        bias = rng.integers(-500, 500, ws[0]).astype("<i4")
        mult, w_zp, out_zp = (0.002, 3, -2) if n < 3 else (0.0005, -8, 17)
        padded = np.pad(x.astype(int) - x_zp, ((0, 0), (0, 0), *[(p, p) for p in padding]))
        out = [
            (padded.shape[2 + d] - dilation[d] * (ws[2 + d] - 1) - 1) // stride[d] + 1 for d in range(2)
        ]
        acc = np.zeros((xs[0], ws[0], *out), int)
        per = ws[0] // groups
        for o in range(ws[0]):
            for c in range(ws[1]):
                for i in range(ws[2]):
                    for j in range(ws[3]):
                        taps = padded[
                            :,
                            o // per * ws[1] + c,
                            i * dilation[0] :: stride[0],
                            j * dilation[1] :: stride[1],
                        ]
                        acc[:, o] += taps[:, : out[0], : out[1]] * (int(w[o, c, i, j]) - w_zp)
        acc += bias.reshape(-1, 1, 1)
        yield sample(
            f"q_conv2d/i8/case-{n}",
            [x, w, bias],
            requantise(acc, mult, out_zp),
            EXACT,
            "",
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            x_zp=x_zp,
            w_zp=w_zp,
            out_zp=out_zp,
            mult=mult,
        )


# ---- dequant_matmul

GGML = [("Q4_0", "gguf_q4_0", 64), ("Q8_0", "gguf_q8_0", 32), ("Q5_1", "gguf_q5_1", 32), ("MXFP4", "gguf_mxfp4", 32)]
# Blocks without an encoder in gguf: random bytes with f16 scales of moderate size at these offsets.
SCALED = [
    ("Q2_K", "gguf_q2k", 84, [80, 82]),
    ("Q3_K", "gguf_q3k", 110, [108]),
    ("Q4_K", "gguf_q4k", 144, [0, 2]),
    ("Q5_K", "gguf_q5k", 176, [0, 2]),
    ("Q6_K", "gguf_q6k", 210, [208]),
    ("IQ4_XS", "gguf_iq4_xs", 136, [0]),
    ("IQ3_S", "gguf_iq3_s", 110, [0]),
    ("IQ2_XXS", "gguf_iq2_xxs", 66, [0]),
]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def product(name, inputs, w, scheme):
    """x @ w for w [K, N] in wide reals."""
    x = wide(inputs[0])
    dtype = name.split("/")[1]
    magnitude = float((np.abs(x) @ np.abs(w)).max(initial=0))
    tol = sum_tolerance(dtype, w.shape[0] + 3, magnitude)
    return sample(name, inputs, narrow(dtype, x @ w), tol, "", scheme=scheme)


def packed_products():
    for dtype in FLOATS:
        for ggml, scheme, k in GGML:
            name = f"dequant_matmul/{dtype}/{ggml.lower()}"
            rng = rng_of(name)
            weight = rng.standard_normal((5, k)).astype("<f4")
            packed = quants.quantize(weight, GGMLQuantizationType[ggml]).view(np.uint8)
            w = quants.dequantize(packed, GGMLQuantizationType[ggml]).reshape(5, k)
            yield product(name, [random(rng, dtype, (2, 3, k)), packed], wide(w).T, scheme)
    for ggml, scheme, _, _ in quant_blocks.FORMATS:
        for dtype in FLOATS:
            name = f"dequant_matmul/{dtype}/every-{ggml.lower()}"
            rng = rng_of(name)
            packed, w = quant_blocks.weights(ggml, rng, 2)
            yield product(name, [random(rng, dtype, (1, 256)), packed], wide(w).T, scheme)
    for ggml, scheme, size, offsets in SCALED:
        name = f"dequant_matmul/f32/{ggml.lower()}"
        rng = rng_of(name)
        packed = rng.integers(0, 256, (3, size), dtype=np.uint8)
        for at in offsets:
            scale = rng.uniform(0.001, 0.01, (3, 1)).astype("<f2")
            packed[:, at : at + 2] = scale.view(np.uint8)
        w = quants.dequantize(packed.copy(), GGMLQuantizationType[ggml]).reshape(3, 256)
        yield product(name, [random(rng, "f32", (2, 256)), packed], wide(w).T, scheme)


def rounded(identifier, dtype, shape):
    """x, and x with each block of 32 rounded to 8 bits."""

    def scales(v):
        return np.repeat(batch_scale(v.reshape(-1, 32), 0, 127), 32).reshape(shape)

    x = draw(identifier, dtype, shape, scales)
    return x, fake(wide(x), scales(wide(x)), 127)


def rounded_products():
    def one(name, dtype, shape, operands, w, scheme):
        x, value = rounded(name, dtype, shape)
        magnitude = float((np.abs(value) @ np.abs(w)).max(initial=0))
        tol = sum_tolerance(dtype, w.shape[0] + 6, magnitude)
        return sample(
            name, [x] + operands, narrow(dtype, value @ w), tol, "", scheme=scheme, activations="q8"
        )

    for dtype in FLOATS:
        for ggml, scheme, k in GGML:
            name = f"dequant_matmul/{dtype}/{ggml.lower()}-rounded"
            weight = rng_of(name + "w").standard_normal((5, k)).astype("<f4")
            packed = quants.quantize(weight, GGMLQuantizationType[ggml]).view(np.uint8)
            w = quants.dequantize(packed, GGMLQuantizationType[ggml]).reshape(5, k)
            yield one(name, dtype, (2, 3, k), [packed], wide(w).T, scheme)
        name = f"dequant_matmul/{dtype}/int8-16-rounded"
        rng = rng_of(name + "w")
        s = random(rng, state_dtype(dtype), (2, 3), 0.01, 0.2)
        q = rng.integers(-128, 128, (32, 3))
        w = q * np.repeat(wide(s), 16, axis=0)
        yield one(name, dtype, (4, 32), [q.astype("i1"), s], w, "int8/16")
    for ggml, scheme, _, _ in SCALED:
        for dtype in FLOATS:
            name = f"dequant_matmul/{dtype}/every-{ggml.lower()}-rounded"
            packed, w = quant_blocks.weights(ggml, rng_of(name + "w"), 3)
            yield one(name, dtype, (2, 256), [packed], wide(w).T, scheme)


def fp8(codes, mantissa, bias):
    code = codes.astype(int) & 127
    exponent, fraction = code >> mantissa, code & (2**mantissa - 1)
    one = 2.0**mantissa
    value = np.where(
        exponent > 0,
        (1 + fraction / one) * 2.0 ** (exponent - bias),
        fraction / one * 2.0 ** (1 - bias),
    )
    return np.where(codes >= 128, -value, value).astype(np.longdouble)


def coded_products():
    k, n = 37, 5  # the last group of rows is short, the number of nibbles odd
    for dtype in FLOATS:
        scale_type = state_dtype(dtype)
        for group in (8, 16):
            for kind in ("int8", "int8a", "int4"):
                name = f"dequant_matmul/{dtype}/{kind}-{group}"
                rng = rng_of(name)
                groups = -(-k // group)
                s = random(rng, scale_type, (groups, n), 0.01, 0.2)
                z = random(rng, scale_type, (groups, n), 0, 9)
                rows = np.arange(k) // group
                if kind == "int4":
                    q = rng.integers(0, 16, k * n + k * n % 2)
                    packed = (q[0::2] | q[1::2] << 4).astype("u1")
                    q = q[: k * n].reshape(k, n)
                else:
                    q = rng.integers(-128, 128, (k, n))
                    packed = q.astype("i1")
                w = (q - (0 if kind == "int8" else wide(z)[rows])) * wide(s)[rows]
                yield product(
                    name, [random(rng, dtype, (3, k)), packed, s, z], w, f"{kind}/{group}"
                )
        for scheme, mantissa, bias in (("fp8e4m3", 3, 7), ("fp8e5m2", 2, 15)):
            name = f"dequant_matmul/{dtype}/{scheme}"
            rng = rng_of(name)
            q = rng.integers(0, 100, (k, n)).astype("u1") | (rng.integers(0, 2, (k, n)) << 7).astype("u1")
            s = random(rng, scale_type, (n,), 0.01, 0.2)
            yield product(name, [random(rng, dtype, (3, k)), q, s], fp8(q, mantissa, bias) * wide(s), scheme)
        name = f"dequant_matmul/{dtype}/nvfp4"
        rng = rng_of(name)
        q = rng.integers(0, 16, k * n + 1)
        packed = (q[0::2] | q[1::2] << 4).astype("u1")
        scales = rng.integers(20, 90, (-(-k // 16), n)).astype("u1")
        world = random(rng, scale_type, (1,), 0.1, 0.9)
        w = E2M1[q[: k * n]].reshape(k, n) * fp8(scales, 3, 7)[np.arange(k) // 16] * wide(world)
        yield product(name, [random(rng, dtype, (3, k)), packed, scales, world], w, "nvfp4/16")


def samples():
    yield from affine()
    yield from fakes()
    yield from onnx()
    yield from integer_convolutions()
    yield from int8_products()
    yield from packed_products()
    yield from rounded_products()
    yield from coded_products()
