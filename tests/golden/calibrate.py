"""Writes calibrate.txt: scales and zero points that calibration must find, by NumPy.

    python tests/golden/calibrate.py

A case is a line "case NAME METHOD PERCENTILE ASYMMETRIC AXIS BATCHES" (AXIS -1: none), a line per batch
"RANK sizes.. values..", a line of scales, a line of zero points and a line with the least squared error of any
symmetric scale (by trying 2,000 on the values themselves), of the whole tensor. Values are f32, written so that they
read back exactly.
"""

import pathlib

import numpy as np

BINS, CHANNEL_BINS = 4096, 1024


def histogram(x, bins):
    """Counts of |x| > 0 over [0, R), R the power of two above the largest, and the width of a bin."""
    size = np.abs(x[x != 0])
    top = 2.0 ** (np.floor(np.log2(size.max())) + 1)
    counts, _ = np.histogram(size, bins=bins, range=(0, top))
    return counts, top / bins


def by_percentile(x, counts, width, most, percentile):
    total = np.count_nonzero(x == 0) + np.concatenate([[0], np.cumsum(counts)])
    return min(most, np.argmax(total >= percentile / 100 * x.size) * width)


def by_entropy(counts, width, most, codes):
    used = min(int(most / width) + 1, counts.size)
    found = {}
    for kept in range(codes, used + 1):
        if counts[kept:].sum() > counts.sum() // 100:
            continue
        inside = counts[:kept].astype(float)
        p = inside.copy()
        p[-1] += counts[kept:].sum()
        edges = np.arange(codes + 1) * kept // codes
        mass, filled = np.add.reduceat(inside, edges[:-1]), np.add.reduceat((p > 0).astype(float), edges[:-1])
        level = np.divide(mass, filled, out=np.zeros(codes), where=filled > 0)
        q = np.repeat(level, np.diff(edges))
        p, q = p[p > 0] / p.sum(), q[p > 0] / inside.sum()
        found[kept] = np.inf if (q == 0).any() else np.sum(p * np.log(p / q))
    if not found:
        return most
    least = min(found.values())
    return min(most, max(k for k, v in found.items() if v <= least + 1e-9) * width)


def by_squares(counts, width, most, levels):
    used = min(int(most / width) + 1, counts.size)
    centres = (np.arange(used) + 0.5) * width
    errors = []
    for part in range(128, 15, -1):
        scale = most * part / 128 / levels
        code = np.minimum(np.floor(centres / scale + 0.5), levels)
        errors.append((np.sum(counts[:used] * (centres - code * scale) ** 2), most * part / 128))
    return min(errors, key=lambda e: e[0])[1]


def threshold(x, method, percentile, levels, bins):
    most = float(np.abs(x).max(initial=0))
    if method == "min_max" or most == 0:
        return most
    counts, width = histogram(x, bins)
    if method == "percentile":
        return by_percentile(x, counts, width, most, percentile)
    if method == "entropy":
        return by_entropy(counts, width, most, levels + 1)
    return by_squares(counts, width, most, levels)


def entry(x, method, percentile, asymmetric, bins, smallest=1e-6):
    x = x.astype(float).ravel()
    low, high = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
    t = threshold(x, method, percentile, 255 if asymmetric and low >= 0 else 127, bins)
    if not asymmetric:
        return max(t / 127, smallest), 0
    low, high = max(low, -t), min(high, t)
    scale = max((high - low) / 255, smallest)
    return scale, int(np.clip(np.rint(-128 - low / scale), -128, 127))


def least_error(x):
    x = x.astype(float).ravel()
    most = np.abs(x).max(initial=0)
    if most == 0:
        return 0.0
    scales = most / 127 * np.arange(1, 2001) / 2000
    return min(np.sum((x - np.clip(np.round(x / s), -127, 127) * s) ** 2) for s in scales)


def draw(kind, rng, shape):
    if kind == "normal":
        return rng.normal(size=shape)
    if kind == "relu":
        return np.maximum(rng.normal(size=shape), 0)
    if kind == "gelu":
        x = rng.normal(size=shape)
        return x / (1 + np.exp(-1.702 * x))
    if kind == "outliers":
        x = rng.laplace(size=shape)
        x.flat[:: max(x.size // 4, 1)] *= 20
        return x
    if kind == "tiny":
        return rng.normal(size=shape) * 1e-7
    if kind == "image":
        return np.where(rng.uniform(size=shape) < 0.8, -0.4, rng.integers(1, 60, size=shape) / 20)
    if kind == "powers":
        return 2.0 ** rng.integers(-3, 3, size=shape) * rng.choice([-1, 1], size=shape)
    return np.zeros(shape)


def cases():
    rng = np.random.default_rng(20261118)
    for kind in ("normal", "relu", "gelu", "outliers", "tiny", "powers", "image", "zeros"):
        for method in ("min_max", "percentile", "entropy", "mse"):
            for asymmetric in (0, 1):
                for axis in (-1, 1):
                    shapes = [(4, 3, 25), (2, 3, 25), (1, 3, 40)]
                    batches = [(draw(kind, rng, s) * (1 + 3 * i)).astype("f4") for i, s in enumerate(shapes)]
                    yield f"{kind}-{axis}", method, 99.0 if kind != "normal" else 100.0, asymmetric, axis, batches


def text(numbers):
    return " ".join(f"{float(v):.17g}" for v in numbers)


def main():
    lines = []
    for name, method, percentile, asymmetric, axis, batches in cases():
        lines.append(f"case {name} {method} {percentile:g} {asymmetric} {axis} {len(batches)}")
        for b in batches:
            lines.append(f"{b.ndim} {' '.join(map(str, b.shape))} {' '.join(f'{v:.9g}' for v in b.ravel())}")
        rows = (
            [np.concatenate([np.moveaxis(b, axis, 0)[c].ravel() for b in batches]) for c in range(3)]
            if axis >= 0
            else [np.concatenate([b.ravel() for b in batches])]
        )
        found = [entry(r, method, percentile, asymmetric, BINS if axis < 0 else CHANNEL_BINS) for r in rows]
        lines.append(text(s for s, _ in found))
        lines.append(" ".join(str(z) for _, z in found))
        lines.append(text([least_error(np.concatenate([b.ravel() for b in batches]))]))
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


main()
