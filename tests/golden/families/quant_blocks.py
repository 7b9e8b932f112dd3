"""Blocks of every ggml format and their values, by the PyPI package `gguf` 0.19; by the formats' definitions where it has none."""

import numpy as np
from gguf import GGMLQuantizationType, quants

from .core import EXACT, FLOATS, array, rng_of, sample

# ggml name, our scheme, elements and bytes of a block
FORMATS = [
    ("F32", "gguf_f32", 1, 4),
    ("F16", "gguf_f16", 1, 2),
    ("BF16", "gguf_bf16", 1, 2),
    ("Q4_0", "gguf_q4_0", 32, 18),
    ("Q4_1", "gguf_q4_1", 32, 20),
    ("Q5_0", "gguf_q5_0", 32, 22),
    ("Q5_1", "gguf_q5_1", 32, 24),
    ("Q8_0", "gguf_q8_0", 32, 34),
    ("Q8_1", "gguf_q8_1", 32, 36),
    ("Q2_K", "gguf_q2k", 256, 84),
    ("Q3_K", "gguf_q3k", 256, 110),
    ("Q4_K", "gguf_q4k", 256, 144),
    ("Q5_K", "gguf_q5k", 256, 176),
    ("Q6_K", "gguf_q6k", 256, 210),
    ("Q8_K", "gguf_q8k", 256, 292),
    ("IQ1_S", "gguf_iq1_s", 256, 50),
    ("IQ1_M", "gguf_iq1_m", 256, 56),
    ("IQ2_XXS", "gguf_iq2_xxs", 256, 66),
    ("IQ2_XS", "gguf_iq2_xs", 256, 74),
    ("IQ2_S", "gguf_iq2_s", 256, 82),
    ("IQ3_XXS", "gguf_iq3_xxs", 256, 98),
    ("IQ3_S", "gguf_iq3_s", 256, 110),
    ("IQ4_NL", "gguf_iq4_nl", 32, 18),
    ("IQ4_XS", "gguf_iq4_xs", 256, 136),
    ("TQ1_0", "gguf_tq1_0", 256, 54),
    ("TQ2_0", "gguf_tq2_0", 256, 66),
    ("MXFP4", "gguf_mxfp4", 32, 17),
    ("NVFP4", "gguf_nvfp4", 64, 36),
    ("Q1_0", "gguf_q1_0", 128, 18),
]
# Formats whose encoder gguf has too: the same bytes.
ENCODED = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"]


def decode(name, blocks):
    """f32 values of u8 blocks [count, bytes]."""
    with np.errstate(all="ignore"):
        if name in ("Q8_1", "Q8_K"):  # scale, (sums or not), signed bytes
            head, size = (4, 32) if name == "Q8_1" else (4, 256)
            d = (
                blocks[:, :2].copy().view("<f2").astype("<f4")
                if name == "Q8_1"
                else blocks[:, :4].copy().view("<f4")
            )
            return d * blocks[:, head : head + size].copy().view("i1").astype("<f4")
        if name == "F32":
            return blocks.copy().view("<f4")
        if name == "Q1_0":  # one sign bit per element
            bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
            d = blocks[:, :2].copy().view("<f2").astype("<f4")
            return np.where(bits == 1, d, -d)
        values = quants.dequantize(blocks.copy(), GGMLQuantizationType[name])
    return np.asarray(values, dtype="<f4").reshape(blocks.shape[0], -1)


# Where a block keeps its f16 scales.
HALVES = {
    "Q4_1": [0, 2],
    "Q5_1": [0, 2],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "TQ1_0": [52],
    "TQ2_0": [64],
}


def moderate(name, rng, count):
    """Random blocks [count, bytes] whose values are of the order of 1: random bytes but for the scales."""
    size, elements = next((f[3], f[2]) for f in FORMATS if f[0] == name)
    if elements == 1:
        kind = {"F32": "<f4", "F16": "<f2"}.get(name, None)
        values = rng.uniform(-1, 1, (count, 256)).astype("<f4")
        codes = values.view("<u4") >> 16 if kind is None else values.astype(kind)
        return codes.astype("<u2" if kind is None else kind).view(np.uint8)
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    scales = lambda: rng.uniform(0.002, 0.02, (count, 1))
    if name == "Q8_K":
        blocks[:, :4] = scales().astype("<f4").view(np.uint8)
    elif name == "MXFP4":
        blocks[:, 0] = rng.integers(120, 126, count)
    elif name == "NVFP4":
        blocks[:, :4] = rng.integers(0x20, 0x38, (count, 4))
    elif name == "IQ1_M":  # a nibble in each of four words
        bits = scales().astype("<f2").view("<u2")
        words = blocks[:, 48:56].copy().view("<u2") & 0xFFF
        nibbles = np.concatenate([(bits >> 4 * i & 15) << 12 for i in range(4)], 1)
        blocks[:, 48:56] = (words | nibbles).astype("<u2").view(np.uint8)
    else:
        for at in HALVES.get(name, [0]):
            blocks[:, at : at + 2] = scales().astype("<f2").view(np.uint8)
    return blocks


def weights(name, rng, *rows):
    """Packed weights u8 [*rows, bytes], K = 256, and their values [*rows, 256]."""
    per_row = max(1, 256 // next(f[2] for f in FORMATS if f[0] == name))
    count = int(np.prod(rows))
    if per_row == 256:
        packed = moderate(name, rng, count)
        values = packed.view("<f4") if name == "F32" else decode(name, packed)
    else:
        blocks = moderate(name, rng, count * per_row)
        packed, values = blocks, decode(name, blocks)
    return packed.reshape(*rows, -1), np.asarray(values, "<f4").reshape(*rows, 256)


def decoding():
    for name, scheme, elements, size in FORMATS:
        identifier = f"dequantise_blocks/u8/{name.lower()}"
        rng = rng_of(identifier)
        for case, blocks, note in [
            ("random", rng.integers(0, 256, (6, size), dtype=np.uint8), "any bytes, so any scale"),
            (
                "extreme",
                np.stack([np.full(size, v, np.uint8) for v in (0, 255, 0x7B, 0x80)]),
                "equal bytes: zeros, NaN scales, the largest scale, the sign bit",
            ),
        ]:
            values = decode(name, blocks)
            yield sample(
                f"{identifier}-{case}",
                [blocks],
                values,
                EXACT,
                note,
                scheme=scheme,
                shape=list(values.shape),
            )


def encoding():
    for name, scheme, elements, size in FORMATS:
        if name not in ENCODED:
            continue
        width = max(elements, 32)
        identifier = f"quantise_blocks/f32/{name.lower()}"
        x = rng_of(identifier).standard_normal((5, width)).astype("<f4")
        x[1] *= 1e-3
        x[2] = 0
        x[3] = np.where(np.arange(width) % 3 == 0, 1, -1)
        x[4, 7] = 40
        packed = quants.quantize(x, GGMLQuantizationType[name]).view(np.uint8)
        yield sample(
            identifier,
            [x],
            packed.reshape(5, -1),
            EXACT,
            "random, small, zero, two-valued, one outlier",
            scheme=scheme,
        )


def of_other_dtypes():
    """f16, bf16 and f64 are rounded to f32 first."""
    for name, scheme, elements, size in FORMATS:
        if name not in ENCODED:
            continue
        for dtype in ("f16", "bf16", "f64"):
            identifier = f"quantise_blocks/{dtype}/{name.lower()}"
            x = array(dtype, rng_of(identifier).standard_normal((1, max(elements, 32))))
            packed = quants.quantize(x.astype("<f4"), GGMLQuantizationType[name]).view(np.uint8)
            yield sample(identifier, [x], packed.reshape(1, -1), EXACT, "one row", scheme=scheme)


def bytes_of(x, d):
    q = x * np.where(d > 0, 1 / np.where(d > 0, d, 1), 0).astype("<f4")
    return np.copysign(np.floor(np.abs(q) + np.float32(0.5)), q).astype("i1")


def by_definition():
    """Encoders without a choice that gguf does not have: f32 bits, the largest magnitude as 127, the mean magnitude."""
    for dtype in FLOATS:
        rng = rng_of(f"quantise_blocks/{dtype}/definition")
        x = array(dtype, rng.uniform(-2, 2, (2, 256)))
        x[1, 3] = 0
        single = x.astype("<f4")
        name = f"quantise_blocks/{dtype}"
        yield sample(f"{name}/f32", [x], single.view(np.uint8), EXACT, "bytes of f32", scheme="gguf_f32")
        rows = single.reshape(-1, 32)
        d = (np.abs(rows).max(1, keepdims=True) / np.float32(127)).astype("<f4")
        q = bytes_of(rows, d)
        s = (d * q.astype(int).sum(1, keepdims=True).astype("<f4")).astype("<f2")
        parts = [d.astype("<f2").view(np.uint8), s.view(np.uint8), q.view(np.uint8)]
        packed = np.concatenate(parts, 1).reshape(2, -1)
        yield sample(f"{name}/q8_1", [x], packed, EXACT, "scale, scaled sum, bytes", scheme="gguf_q8_1")
        d = (np.abs(single).max(1, keepdims=True) / np.float32(127)).astype("<f4")
        q = bytes_of(single, d)
        sums = q.astype("<i2").reshape(2, 16, 16).sum(2).astype("<i2")
        packed = np.concatenate([d.view(np.uint8), q.view(np.uint8), sums.view(np.uint8)], 1)
        yield sample(f"{name}/q8_k", [x], packed, EXACT, "scale, bytes, sums of 16", scheme="gguf_q8k")
        # Multiples of 1/8: the sum is exact in any order.
        x = array(dtype, np.rint(rng.uniform(-16, 16, (2, 128))) / 8)
        d = np.abs(x.astype("<f4")).mean(1, keepdims=True).astype("<f2")
        signs = np.packbits(x.astype("<f4") >= 0, axis=1, bitorder="little")
        packed = np.concatenate([d.view(np.uint8), signs], 1)
        yield sample(f"{name}/q1_0", [x], packed, EXACT, "mean magnitude, signs", scheme="gguf_q1_0")


def samples():
    yield from decoding()
    yield from encoding()
    yield from of_other_dtypes()
    yield from by_definition()
