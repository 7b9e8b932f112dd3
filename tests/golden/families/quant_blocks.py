"""Blocks of every ggml format and their values, by the PyPI package `gguf` 0.19; by the formats' definitions where it has none."""

import numpy as np
from gguf import GGMLQuantizationType, quants

from .core import EXACT, rng_of, sample

# ggml name, our scheme, elements and bytes of a block
FORMATS = [
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
        if name == "Q1_0":  # one sign bit per element
            bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
            d = blocks[:, :2].copy().view("<f2").astype("<f4")
            return np.where(bits == 1, d, -d)
        values = quants.dequantize(blocks.copy(), GGMLQuantizationType[name])
    return np.asarray(values, dtype="<f4").reshape(blocks.shape[0], -1)


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


def samples():
    yield from decoding()
    yield from encoding()
