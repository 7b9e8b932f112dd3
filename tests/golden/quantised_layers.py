"""Writes quantised_layers.txt: layers of integers, by NumPy.

    python tests/golden/quantised_layers.py

A case is a line "case NAME ASYMMETRIC" and then tensors, a line each, "RANK sizes.. values..": x, the weight (linear:
[K, N], conv: OIHW, stride 2 and padding 1), the bias, and relu(x w + b) where x has one scale from its own range and w
one per output channel.
"""

import pathlib

import numpy as np


def rhaz(z):
    return np.copysign(np.floor(np.abs(z) + np.float32(0.5)), z)


def codes(x, scale, zero):
    return np.clip(rhaz(x * (np.float32(1) / np.float32(scale))) + zero, -128, 127).astype(np.int64)


def scale_of(x, asymmetric):
    low, high = min(float(x.min()), 0), max(float(x.max()), 0)
    if not asymmetric:
        return max(-low, high) / 127, 0
    scale = (high - low) / 255
    return scale, int(np.clip(np.rint(-128 - low / scale), -128, 127))


def linear(x, w):
    return x @ w


def conv(x, w):
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::2, ::2]
    return np.einsum("nchwij,ocij->nohw", windows, w)


def layer(x, w, b, product, channel, asymmetric):
    s, z = scale_of(x, asymmetric)
    shape = [1] * w.ndim
    shape[channel] = -1
    ws = np.abs(w).astype(float).max(axis=tuple(i for i in range(w.ndim) if i != channel)) / 127
    acc = product(codes(x, s, z) - z, codes(w, ws.reshape(shape), 0))
    columns = ws if product is linear else ws.reshape(-1, 1, 1)
    return np.maximum(acc * (np.float32(s) * columns.astype("f4")).astype("f4") + b, 0)


def line(t):
    return f"{t.ndim} {' '.join(map(str, t.shape))} {' '.join(f'{v:.9g}' for v in t.ravel())}"


def main():
    rng = np.random.default_rng(7)
    lines = []
    for asymmetric in (0, 1):
        for name, xs, ws, bs, product, channel in (
            ("linear", (5, 70), (70, 33), (33,), linear, 1),
            ("linear", (17, 16), (16, 16), (16,), linear, 1),
            ("conv", (2, 3, 9, 8), (18, 3, 3, 3), (18, 1, 1), conv, 0),
            ("conv", (1, 4, 7, 7), (5, 4, 4, 4), (5, 1, 1), conv, 0),
        ):
            x, w, b = (rng.normal(size=s).astype("f4") for s in (xs, ws, bs))
            if asymmetric:
                x = np.maximum(x, np.float32(-0.3))
            y = layer(x, w, b, product, channel, asymmetric).astype("f4")
            lines += [f"case {name} {asymmetric}", *map(line, (x, w, b, y))]
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


main()
