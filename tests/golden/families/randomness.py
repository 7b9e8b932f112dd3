"""Philox4x32-10 and what is made of its bits.

random_bits: element i is word i % 4 of block i / 4; the block's counter is its index as four 32-bit words, least first; the key as given.
random_uniform: (bits[i] >> 8) * 2^-24.
random_normal: Box-Muller: with u1 = ((bits[2i] >> 8) + 1) * 2^-24 and u2 = (bits[2i+1] >> 8) * 2^-24, sqrt(-2 ln u1) cos(2 pi u2).

The rounds are checked, when this module is imported, against Random123's published vectors and, with the 64-bit constants, against
numpy.random.Philox (which is 4x64).
"""

import numpy as np

from .core import EXACT, Real, narrow, sample, ulps

# word bits -> (multiplier 0, multiplier 1, key step 0, key step 1)
FAMILY = "random"

CONSTANTS = {
    32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
    64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
}
PI = Real("3.14159265358979323846264338327950288")


def philox(counter, key, bits=32):
    """Ten rounds on Python integers."""
    m0, m1, w0, w1 = CONSTANTS[bits]
    mask = (1 << bits) - 1
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = m0 * c0, m1 * c2
        c0, c1, c2, c3 = (p1 >> bits) ^ c1 ^ k0, p1 & mask, (p0 >> bits) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + w0) & mask, (k1 + w1) & mask
    return c0, c1, c2, c3


def check():
    ones = 0xFFFFFFFF
    vectors = [  # Random123, kat_vectors
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ]
    for counter, key, expected in vectors:
        assert philox(counter, key) == expected, "Philox4x32-10 disagrees with Random123"
    generator = np.random.Philox(
        key=[12345, 678], counter=[4, 0, 0, 0]
    )  # NumPy steps the counter first
    expected = tuple(int(v) for v in generator.random_raw(4))
    assert philox((5, 0, 0, 0), (12345, 678), 64) == expected, "Philox4x64-10 disagrees with NumPy"


check()


def bits_of(key, count):
    words = []
    for block in range(-(-count // 4)):
        words += philox((block & 0xFFFFFFFF, block >> 32, 0, 0), key)
    return np.array(words[:count], np.uint32)


def uniform_of(key, count, dtype):
    """As many top bits as the dtype holds, 24 at most."""
    kept = {"f16": 11, "bf16": 8}.get(dtype, 24)
    return narrow(dtype, (bits_of(key, count) >> (32 - kept)).astype(np.float64) / 2.0**kept)


def normal_of(key, count):
    """In extended precision."""
    pairs = (bits_of(key, 2 * count) >> 8).astype(np.int64).reshape(-1, 2)
    u1, u2 = (pairs[:, 0] + 1).astype(Real) / 2**24, pairs[:, 1].astype(Real) / 2**24
    return np.sqrt(-2 * np.log(u1)) * np.cos(2 * PI * u2)


def other_dtypes():
    for dtype in ("f16", "bf16", "f64"):
        for k, key in enumerate([(0, 0), (7, 0xDEADBEEF)]):
            for n, shape in enumerate([(70,), (), (3, 5)]):
                count = int(np.prod(shape, dtype=np.int64))
                operand, case = np.array(key, np.uint32), f"key-{k}-case-{n}"
                yield sample(
                    f"random_uniform/{dtype}/{case}",
                    [operand],
                    uniform_of(key, count, dtype).reshape(shape),
                    EXACT,
                    f"key {key}; the top bits that fit",
                    dtype=dtype,
                    shape=shape,
                )
                # f16 and bf16 are computed in f32, 3e-6 off at most, and rounded; f64 in f64.
                tol = {"rel": 2.0**-49, "abs": 2e-15} if dtype == "f64" else ulps(dtype, 1, 4e-6)
                yield sample(
                    f"random_normal/{dtype}/{case}",
                    [operand],
                    narrow(dtype, normal_of(key, count)).reshape(shape),
                    tol,
                    f"key {key}; Box-Muller",
                    dtype=dtype,
                    shape=shape,
                )


def samples():
    keys = [(0, 0), (42, 0), (0, 42), (0xDEADBEEF, 0x12345678), (0xFFFFFFFF, 0xFFFFFFFF)]
    shapes = [(8,), (3, 7), (), (0, 4), (2, 3, 5), (70,)]
    for k, key in enumerate(keys):
        for n, shape in enumerate(shapes):
            if k > 1 and n > 1:
                continue
            count = int(np.prod(shape, dtype=np.int64))
            operand, case = np.array(key, np.uint32), f"key-{k}-case-{n}"
            bits = bits_of(key, count)
            yield sample(
                f"random_bits/u32/{case}",
                [operand],
                bits.reshape(shape),
                EXACT,
                f"key {key}",
                shape=shape,
            )
            uniform = uniform_of(key, count, "f32").reshape(shape)
            yield sample(
                f"random_uniform/f32/{case}",
                [operand],
                uniform,
                EXACT,
                f"key {key}; (bits >> 8) * 2^-24",
                dtype="f32",
                shape=shape,
            )
            normal = narrow("f32", normal_of(key, count)).reshape(shape)
            # 2 pi u2 rounds to f32 before the cosine: 4e-7 of an amplitude up to 5.8.
            yield sample(
                f"random_normal/f32/{case}",
                [operand],
                normal,
                {"rel": 2.0**-20, "abs": 3e-6},
                f"key {key}; Box-Muller",
                dtype="f32",
                shape=shape,
            )
    yield from other_dtypes()
