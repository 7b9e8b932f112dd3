"""Grouped products, mixtures of experts, adapters."""

import itertools

import numpy as np
from gguf import GGMLQuantizationType, quants

from . import quant_blocks
from .core import EXACT, FLOATS, narrow, random, rng_of, sample, sum_tolerance, ulps, wide

IDS = {"i64": "<i8", "i32": "<i4", "u8": "u1", "f32": "<f4", "f64": "<f8"}


def grouped():
    for dtype in FLOATS:
        for n, (m, k, c, e, ids) in enumerate(
            [(5, 4, 3, 3, "i64"), (70, 19, 37, 2, "i32"), (3, 1, 1, 4, "f32"), (2, 8, 5, 1, "u8"), (0, 2, 3, 2, "f64")]
        ):
            name = f"grouped_matmul/{dtype}/case-{n}"
            rng = rng_of(name)
            x, w = random(rng, dtype, (m, k)), random(rng, dtype, (e, k, c))
            idx = rng.integers(0, e, m)
            y = np.einsum("mk,mkn->mn", wide(x), wide(w)[idx])
            tol = sum_tolerance(dtype, k, 9.0 * k)
            typed = idx.astype(IDS[ids])
            yield sample(name, [x, w, typed], narrow(dtype, y), tol, "")
            swapped = np.ascontiguousarray(w.transpose(0, 2, 1))
            yield sample(
                name + "-transposed", [x, swapped, typed], narrow(dtype, y), tol, "", transpose_weight=True
            )
            g = random(rng, dtype, (m, c))
            sums = np.zeros((e, k, c), np.longdouble)
            np.add.at(sums, idx, wide(x)[:, :, None] * wide(g)[:, None, :])
            yield sample(
                f"grouped_outer/{dtype}/case-{n}",
                [x, g, typed],
                narrow(dtype, sums),
                sum_tolerance(dtype, m, 9.0 * m),
                "",
                experts=e,
            )


def packed():
    for ggml, scheme, k in (("Q4_0", "gguf_q4_0", 64), ("Q8_0", "gguf_q8_0", 32)):
        for dtype in FLOATS:
            name = f"dequant_grouped_matmul/{dtype}/{ggml.lower()}"
            rng = rng_of(name)
            e, n, m = 3, 5, 7
            stored = quants.quantize(
                rng.standard_normal((e, n, k)).astype("<f4"), GGMLQuantizationType[ggml]
            ).view(np.uint8)
            w = quants.dequantize(stored, GGMLQuantizationType[ggml]).reshape(e, n, k)
            x, idx = random(rng, dtype, (m, k)), rng.integers(0, e, m)
            y = np.einsum("mk,mnk->mn", wide(x), wide(w)[idx])
            tol = sum_tolerance(dtype, k, 3.0 * float(np.abs(w).sum(axis=2).max()))
            yield sample(name, [x, stored, idx], narrow(dtype, y), tol, "", scheme=scheme, columns=n)
        yield sample(
            f"dequant_moe_weights/u8/{ggml.lower()}",
            [stored],
            np.ascontiguousarray(w.transpose(0, 2, 1)),
            EXACT,
            "",
            scheme=scheme,
            shape=[e, k, n],
        )


def every_format():
    """Two experts of one column, K = 256."""
    for ggml, scheme, _, _ in quant_blocks.FORMATS:
        for dtype in FLOATS:
            name = f"dequant_grouped_matmul/{dtype}/every-{ggml.lower()}"
            rng = rng_of(name)
            stored, w = quant_blocks.weights(ggml, rng, 2, 1)
            x, idx = random(rng, dtype, (1, 256)), np.array([1], "<i4")
            y = np.einsum("mk,mnk->mn", wide(x), wide(w)[idx])
            tol = sum_tolerance(dtype, 256, 3.0 * float(np.abs(w).sum(axis=2).max()))
            yield sample(name, [x, stored, idx], narrow(dtype, y), tol, "", scheme=scheme, columns=1)
        name = f"dequant_moe_weights/u8/every-{ggml.lower()}"
        stored, w = quant_blocks.weights(ggml, rng_of(name), 2, 1)
        out = np.ascontiguousarray(w.transpose(0, 2, 1))
        yield sample(name, [stored], out, EXACT, "", scheme=scheme, shape=[2, 256, 1])


def adapters():
    for dtype in FLOATS:
        for n, (shape, c, r, scale) in enumerate([((4, 6), 5, 2, 2.0), ((2, 3, 8), 4, 1, 0.25)]):
            name = f"lora_matmul/{dtype}/case-{n}"
            rng = rng_of(name)
            k = shape[-1]
            x, w = random(rng, dtype, shape), random(rng, dtype, (k, c))
            a, b = random(rng, dtype, (k, r)), random(rng, dtype, (r, c))
            y = wide(x) @ wide(w) + (scale * (wide(x) @ wide(a))) @ wide(b)
            magnitude = 9.0 * k + abs(scale) * 27.0 * k * r
            yield sample(
                name, [x, w, a, b], narrow(dtype, y), sum_tolerance(dtype, k + r + 3, magnitude), "", scale=scale
            )


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def gate(z, k, kind):
    ids = np.argsort(-z, axis=1, kind="stable")[:, :k]
    picked = np.take_along_axis(z, ids, 1)
    if kind == "softmax":
        return np.take_along_axis(softmax(z), ids, 1), ids
    if kind == "softmax_topk":
        return softmax(picked), ids
    s = 1 / (1 + np.exp(-picked))
    return s / s.sum(axis=1, keepdims=True), ids


def mixtures():
    for dtype in FLOATS:
        for kind in ("softmax", "softmax_topk", "sigmoid"):
            for k in (1, 3):
                name = f"moe_gate/{dtype}/{kind}-{k}"
                z = random(rng_of(name), dtype, (4, 5))
                weights, ids = gate(wide(z), k, kind)
                yield sample(
                    name, [z], [narrow(dtype, weights), ids], [ulps(dtype, 16), EXACT], "", k=k, kind=kind
                )
    ties = np.array([[1, 3, 3, 1], [2, 2, 2, 2]], "<f4")
    weights, ids = gate(wide(ties), 2, "softmax_topk")
    yield sample(
        "moe_gate/f32/ties", [ties], [narrow("f32", weights), ids], [ulps("f32", 4), EXACT], "first of equals", k=2
    )
    for dtype, kind, count in itertools.product(FLOATS, ("softmax_topk", "softmax", "sigmoid"), (2, 1)):
        name = f"moe/{dtype}/swiglu" + (f"-{kind}-{count}" if (kind, count) != ("softmax_topk", 2) else "")
        rng = rng_of(name)
        x, router = random(rng, dtype, (4, 6), -1, 1), random(rng, dtype, (6, 3), -1, 1)
        g, u = (random(rng, dtype, (3, 6, 8), -1, 1) for _ in range(2))
        d = random(rng, dtype, (3, 8, 6), -1, 1)
        weights, ids = gate(wide(x) @ wide(router), count, kind)
        y = np.zeros((4, 6), np.longdouble)
        for t in range(4):
            for j, e in enumerate(ids[t]):
                a, b = wide(x)[t] @ wide(g)[e], wide(x)[t] @ wide(u)[e]
                y[t] += weights[t, j] * ((a / (1 + np.exp(-a)) * b) @ wide(d)[e])
        yield sample(
            name, [x, router, g, u, d], narrow(dtype, y), sum_tolerance(dtype, 24, 60.0), "", k=count, kind=kind
        )


def samples():
    yield from grouped()
    yield from packed()
    yield from every_format()
    yield from adapters()
    yield from mixtures()
