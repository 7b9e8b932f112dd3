"""Edge cases that the specification names and no other family's grid of cases holds; README.md lists all of them."""

import numpy as np
import torch
import torch.nn.functional as F

from .core import ANY_ZERO, EXACT, FLOATS, INTS, NUMBERS, NUMPY, array, narrow, rng_of, sample
from .core import ulps, whole, wide
from .quantise import fp8, rhaz


def indices():
    """An index carried as f32 or f64 is truncated toward zero."""
    for kind in ("f32", "f64"):
        places = array(kind, [0.99, 1.5, -0.5, 2.0])
        at = np.trunc(places).astype(np.int64)
        x = whole(rng_of(f"gather/{kind}/fractions"), "i32", (3, 2))
        yield sample(f"gather/{kind}/fractions", [x, places], x[at], EXACT, "truncated", axis=0)
        out = np.zeros((3, 2), np.int32)
        updates = whole(rng_of(f"scatter_add/{kind}/fractions"), "i32", (4, 2))
        np.add.at(out, at, updates)
        attrs = {"axis": 0, "size": 3}
        yield sample(f"scatter_add/{kind}/fractions", [updates, places], out, EXACT, "truncated", **attrs)


def reductions():
    for dtype in NUMBERS:
        x = whole(rng_of(f"reduce_sum/{dtype}/any-order"), dtype, (2, 3, 4))
        out = narrow(dtype, wide(x).sum((0, 2)))
        name = f"reduce_sum/{dtype}/any-order"
        yield sample(name, [x], out, ANY_ZERO, "axes in any order, not neighbours", axes=[2, 0])
    for dtype in FLOATS:
        x = array(dtype, [[-np.inf, -np.inf, 1, -np.inf], [np.nan, -np.inf, np.nan, 3]])
        places = array("i64", [[2, 0, 1, 3], [0, 2, 3, 1]])
        values = np.take_along_axis(x, places, 1)
        attrs = {"k": 4, "index_dtype": "i64"}
        name = f"topk/{dtype}/minus-infinities"
        yield sample(name, [x], [values, places], EXACT, "every position once, NaN first", **attrs)


def norms():
    """The variance of a constant row is 0: eps alone stands under the root."""
    for dtype in FLOATS:
        x = array(dtype, [[3, 3, 3, 3], [0, 0, 0, 0]])
        gamma, beta = array(dtype, [1, 2, 3, 4]), array(dtype, [0.5, -0.5, 0.25, 8])
        rows = np.stack([beta, beta])
        name, note = f"layer_norm/{dtype}/constant", "beta"
        yield sample(name, [x, gamma, beta], rows, EXACT, note, axis=-1, eps=1e-5)
        zeros = array(dtype, np.zeros((2, 4)))
        yield sample(f"rms_norm/{dtype}/zero", [zeros, gamma, beta], rows, EXACT, note, axis=-1, eps=1e-5)
        image = array(dtype, np.full((1, 4, 2), 3.0))
        out = np.repeat(beta[None, :, None], 2, 2)
        name = f"group_norm/{dtype}/constant"
        yield sample(name, [image, gamma, beta], out, EXACT, note, num_groups=2, eps=1e-5)


def losses():
    for dtype in FLOATS:
        logits = array(dtype, [[1e4, -1e4, 0], [-1e4, -1e4, -1e4], [np.nan, 0, 1]])
        labels = np.array([1, 2, 0])
        wanted = F.cross_entropy(
            torch.tensor(logits.astype(np.float64)), torch.tensor(labels), reduction="none"
        ).numpy()
        name = f"softmax_cross_entropy/{dtype}/extreme"
        yield sample(name, [logits, labels], narrow(dtype, wanted), ulps(dtype, 4), "no overflow; NaN stays")


def empties():
    for dtype in FLOATS:
        x, w = array(dtype, np.zeros((0, 2, 4))), array(dtype, np.ones((3, 2, 2)))
        yield sample(f"conv/{dtype}/empty", [x, w], array(dtype, np.zeros((0, 3, 3))), EXACT, "no images")
        w = array(dtype, np.ones((2, 3, 2)))
        name = f"conv_transpose/{dtype}/empty"
        yield sample(name, [x, w], array(dtype, np.zeros((0, 3, 5))), EXACT, "no images")
        q, k = array(dtype, np.zeros((1, 0, 4))), array(dtype, np.ones((1, 3, 4)))
        lse = np.zeros((1, 2, 0), NUMPY["f64" if dtype == "f64" else "f32"])
        yield sample(f"attention/{dtype}/no-queries", [q, k, k], [q, lse], EXACT, "no queries", num_heads=2)


def quantised():
    for dtype in FLOATS:
        zeros = array(dtype, np.zeros((2, 3)))
        note = "the scale is held at 1e-12"
        for axis in (None, 0):
            name = f"fake_quantize/{dtype}/zeros-{axis}"
            yield sample(name, [zeros], zeros, EXACT, note, bits=8, axis=axis)
        x = array(dtype, [0.25, -0.25, 0.75, -0.75, 1.25, 3.0, -9.0, 0.0])
        state = array("f64" if dtype == "f64" else "f32", [0.5])
        out = array(dtype, np.clip(rhaz(x.astype(np.float64) / 0.5), -7, 7) * 0.5)
        note = "halves away from zero, clipped at both ends"
        attrs = {"bits": 4, "scale_mode": "fixed"}
        yield sample(f"fake_quantize/{dtype}/halves", [x, state], out, ANY_ZERO, note, **attrs)
        for scheme, mantissa, bias in (("fp8e4m3", 3, 7), ("fp8e5m2", 2, 15)):
            codes = np.arange(256, dtype=np.uint8).reshape(1, 256)
            values = fp8(codes, mantissa, bias)
            if scheme == "fp8e4m3":
                values = np.where(codes & 127 == 127, np.nan, values)
            else:
                exponent, fraction = codes >> 2 & 31, codes & 3
                special = np.where(fraction == 0, np.where(codes >= 128, -np.inf, np.inf), np.nan)
                values = np.where(exponent == 31, special, values)
            ones = array(dtype, np.ones((1, 1)))
            scale = array("f64" if dtype == "f64" else "f32", np.ones(256))
            out = narrow(dtype, values)
            name, note = f"dequant_matmul/{dtype}/{scheme}-codes", "every code, as OCP defines it"
            yield sample(name, [ones, codes, scale], out, ANY_ZERO, note, scheme=scheme)
        scales = np.arange(256, dtype=np.uint8).reshape(1, 256)
        packed = np.full(128, 0x22, np.uint8)  # all codes 1.0
        world = array("f64" if dtype == "f64" else "f32", [1])
        values = np.where(scales & 127 == 127, np.nan, fp8(scales, 3, 7))
        name, note = f"dequant_matmul/{dtype}/nvfp4-scales", "every scale, as OCP defines it"
        out = narrow(dtype, values)
        yield sample(name, [ones, packed, scales, world], out, ANY_ZERO, note, scheme="nvfp4/16")
    # Sums -3, -1, 1, 3 times 1/2: halves away from zero.
    x, w = np.array([[1]], np.int8), np.array([[-3, -1, 1, 3]], np.int8)
    out = np.array([[-2, -1, 1, 2]], np.int8)
    attrs = {"x_zp": 0, "w_zp": 0, "out_zp": 0, "mult": 0.5}
    name, bias = "q_matmul/i8/halves", np.zeros(4, np.int32)
    yield sample(name, [x, w, bias], out, EXACT, "halves away from zero", **attrs)
    attrs["out_zp"] = 100
    bias = np.array([-(10**6), 10**6, 55, 53], np.int32)
    out = np.array([[-128, 127, 127, 127]], np.int8)
    yield sample("q_matmul/i8/saturation", [x, w, bias], out, EXACT, "saturates", **attrs)


def bits():
    """The specification's first blocks (6.7)."""
    blocks = {
        0: [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        42: [0x9CEAF053, 0x77F5493B, 0x12BF50AD, 0x5742B3D7],
        0xDEADBEEF: [0xCAB08791, 0x5FE5FF83, 0xEC61BD87, 0x82A4E06B],
    }
    for seed, words in blocks.items():
        out = np.array(words, np.uint32)
        name = f"random_bits/u32/seed-{seed:x}"
        yield sample(name, [np.array([seed, 0], np.uint32)], out, EXACT, "first block", shape=[4])


def integers():
    """The smallest number over -1 wraps; a division by 0 gives 0."""
    for dtype in INTS:
        info = np.iinfo(NUMPY[dtype])
        low = int(info.min)
        x = np.array([low, low, 7, 7, 0], np.int64).astype(NUMPY[dtype])
        y = np.array([-1 if low else 1, 0, 2, 0, 0], np.int64).astype(NUMPY[dtype])
        out = np.array([low, 0, 3, 0, 0], np.int64).astype(NUMPY[dtype])
        yield sample(f"div/{dtype}/limits", [x, y], out, EXACT, "wraps; x / 0 = 0")
        if low:
            x, y = array(dtype, [-7, 7, -7, 7]), array(dtype, [2, -2, -2, 2])
            out = array(dtype, [-3, -3, 3, 3])
            yield sample(f"div/{dtype}/truncates", [x, y], out, EXACT, "toward zero")


def samples():
    for group in (indices, reductions, norms, losses, empties, quantised, bits, integers):
        yield from group()
