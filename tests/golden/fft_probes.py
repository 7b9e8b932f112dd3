"""Writes fft_probes.txt: a few bins of the transforms of a fixed signal at many lengths, by NumPy in extended precision.

    python tests/golden/fft_probes.py

A line is: n, then for each of four bins its index, real and imaginary part as hexadecimal binary64. The signal is
x[k] = u(2 k) + i u(2 k + 1), u(i) = (h >> 8) 2^-24 - 1/2 for the 32-bit hash h of i that `signal` computes; exact in f32.
"""

import pathlib

import numpy as np


def signal(n):
    h = np.arange(2 * n, dtype=np.uint64) + 1
    mask = np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor) & mask
    u = (h >> np.uint64(8)).astype(np.float64) / 2**24 - 0.5
    return u[0::2] + 1j * u[1::2]


def primes(limit):
    return [n for n in range(2, limit) if all(n % d for d in range(2, int(n**0.5) + 1))]


def main():
    lengths = list(range(1, 131)) + [p for p in primes(1022) if p > 130]
    lengths += [
        144,
        243,
        256,
        257 * 2,
        360,
        384,
        500,
        512,
        1000,
        768,
        1024,
        1031,
        1155,
        1536,
        2018,
        2048,
        2187,
        3125,
        2049,
        4095,
        4096,
        4097,
        4099,
        6054,
        8191,
        9973,
        16384,
        16385,
        16807,
        19683,
        32768,
        46656,
        65535,
        65536,
        65537,
        100003,
        1 << 20,
    ]
    lines = []
    for n in lengths:
        y = np.fft.fft(signal(n).astype(np.clongdouble))
        assert y.dtype == np.clongdouble
        words = [str(n)]
        for k in (1 % n, n // 3, n // 2, n - 1):
            words += [str(k), float(y[k].real).hex(), float(y[k].imag).hex()]
        lines.append(" ".join(words))
    pathlib.Path(__file__).with_name("fft_probes.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
