"""Normalisations of images and vectors. f16 and bf16 are computed in f32 and rounded once."""

import numpy as np

from .core import FLOATS, Real, array, narrow, random, rng_of, sample, ulps, unit, wide


def lined_up(v, rank):
    return v.reshape([1, -1] + [1] * (rank - 2))


def standardised(x, axes, eps):
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + Real(eps))


def group_norm(x, groups, eps):
    rows = x.reshape(x.shape[0], groups, -1) if x.size else x
    return standardised(rows, (2,), eps).reshape(x.shape) if x.size else x


def affine(x, gamma, beta):
    return x * lined_up(gamma, x.ndim) + lined_up(beta, x.ndim)


def tolerance(dtype):
    return ulps(dtype, 16, 64 * unit(dtype))


def operands(identifier, dtype, shape):
    rng = rng_of(identifier)
    channels = (shape[1],)
    return [
        random(rng, dtype, shape),
        random(rng, dtype, channels, 0.5, 1.5),
        random(rng, dtype, channels, -1, 1),
    ]


def group_norms():
    cases = [
        ((2, 4, 3, 5), 2, 1e-5, "two images, two groups"),
        ((3, 6, 7), 3, 1e-2, "one spatial axis, large eps"),
        ((2, 4), 2, 1e-5, "no spatial axes"),
        ((1, 4, 2, 3, 2), 4, 1e-6, "three spatial axes, a group per channel"),
        ((2, 3, 9, 9), 1, 1e-5, "one group, several vectors and a tail"),
        ((0, 4, 2), 2, 1e-5, "no images"),
    ]
    for dtype in FLOATS:
        for n, (shape, groups, eps, note) in enumerate(cases):
            identifier = f"group_norm/{dtype}/case-{n}"
            x, gamma, beta = operands(identifier, dtype, shape)
            out = affine(group_norm(wide(x), groups, eps), wide(gamma), wide(beta))
            yield sample(
                identifier,
                [x, gamma, beta],
                narrow(dtype, out),
                tolerance(dtype),
                note,
                num_groups=groups,
                eps=eps,
            )
    x = random(rng_of("group_norm/f32/shifted"), "f32", (2, 2, 64), 999, 1001)
    gamma, beta = array("f32", np.ones(2)), array("f32", np.zeros(2))
    # The mean of 64 values near 1000 is known to 1000 * unit, relative to a deviation near 0.6.
    yield sample(
        "group_norm/f32/shifted",
        [x, gamma, beta],
        narrow("f32", group_norm(wide(x), 2, 1e-5)),
        ulps("f32", 16, 4000 * unit("f32")),
        "a large mean does not cancel in the variance",
        num_groups=2,
    )


def channel_norms():
    cases = [
        ((2, 3, 4, 5), 1e-5, "images"),
        ((3, 4, 6), 1e-2, "one spatial axis, large eps"),
        ((2, 2, 3, 2, 2), 1e-5, "three spatial axes"),
    ]
    names = {
        "instance_norm": lambda x: tuple(range(2, x.ndim)),
        "layer_norm2d": lambda x: (1,),
        "batch_norm_training": lambda x: (0, *range(2, x.ndim)),
    }
    for name, axes_of in names.items():
        for dtype in FLOATS:
            for n, (shape, eps, note) in enumerate(cases):
                identifier = f"{name}/{dtype}/case-{n}"
                x, gamma, beta = operands(identifier, dtype, shape)
                z, axes = wide(x), axes_of(x)
                outputs = [
                    narrow(dtype, affine(standardised(z, axes, eps), wide(gamma), wide(beta)))
                ]
                tol = [tolerance(dtype)]
                if name == "batch_norm_training":
                    statistic = dtype if dtype == "f64" else "f32"
                    outputs += [narrow(statistic, z.mean(axes)), narrow(statistic, z.var(axes))]
                    tol += [ulps(statistic, 8, 32 * unit(statistic))] * 2
                yield sample(identifier, [x, gamma, beta], outputs, tol, note, eps=eps)


def batch_norms():
    for dtype in FLOATS:
        for n, (shape, eps) in enumerate([((2, 3, 4, 5), 1e-5), ((4, 2), 1e-2), ((0, 2, 3), 1e-5)]):
            for form in [dtype] + (["f32"] if dtype in ("f16", "bf16") else []):
                identifier = f"batch_norm/{dtype}/case-{n}-{form}"
                x, gamma, beta = operands(identifier, dtype, shape)
                rng = rng_of(identifier + "/statistics")
                mean = random(rng, form, (shape[1],), -1, 1)
                variance = random(rng, form, (shape[1],), 0.2, 2)
                scale = np.sqrt(lined_up(wide(variance), x.ndim) + Real(eps))
                z = (wide(x) - lined_up(wide(mean), x.ndim)) / scale
                yield sample(
                    identifier,
                    [x, gamma, beta, mean, variance],
                    narrow(dtype, affine(z, wide(gamma), wide(beta))),
                    tolerance(dtype),
                    f"statistics of {form}",
                    eps=eps,
                )


def length(x, p, axes):
    if np.isinf(p):
        return np.abs(x).max(axes, keepdims=True)
    return (np.abs(x) ** Real(p)).sum(axes, keepdims=True) ** (1 / Real(p))


def vectors():
    cases = [
        ((3, 5), 2.0, (1,), 1e-12, "unit vectors"),
        ((3, 5), 1.0, (0,), 1e-12, "p = 1"),
        ((2, 3, 4), 3.0, (1, 2), 1e-12, "p = 3 over two axes"),
        ((2, 67), 2.0, (1,), 1e-12, "several vectors and a tail"),
        ((2, 3), 2.0, (1,), 50.0, "shorter than eps"),
        ((2, 3, 4), 2.0, (-2, -1), 1e-12, "axes from the end"),
    ]
    for dtype in FLOATS:
        for n, (shape, p, axes, eps, note) in enumerate(cases):
            identifier = f"normalize/{dtype}/case-{n}"
            x = random(rng_of(identifier), dtype, shape)
            z = wide(x)
            out = z / np.maximum(length(z, p, axes), Real(eps))
            yield sample(
                identifier, [x], narrow(dtype, out), ulps(dtype, 16), note, p=p, axes=axes, eps=eps
            )
        x = array(dtype, [[0.0, 0.0], [3.0, 4.0], [np.nan, 1.0]])
        z = wide(x)
        yield sample(
            f"normalize/{dtype}/zero",
            [x],
            narrow(dtype, z / np.maximum(length(z, 2, (1,)), Real(1e-12))),
            ulps(dtype, 8),
            "a zero vector stays zero, NaN spreads over its own",
            axes=(1,),
        )
        for n, (shape, axis) in enumerate([((3, 2, 4), 0), ((3, 5), 1), ((2, 3, 4), -2)]):
            identifier = f"weight_norm/{dtype}/case-{n}"
            rng = rng_of(identifier)
            v, g = random(rng, dtype, shape), random(rng, dtype, (shape[axis],), 0.5, 2)
            z = wide(v)
            others = tuple(i for i in range(z.ndim) if i != axis % z.ndim)
            scale = [-1 if i == axis % z.ndim else 1 for i in range(z.ndim)]
            out = z * (wide(g).reshape(scale) / length(z, 2, others))
            yield sample(
                identifier,
                [v, g],
                narrow(dtype, out),
                ulps(dtype, 16),
                f"slices of axis {axis}",
                axis=axis,
            )


def response_norms():
    cases = [((2, 7, 3), 5, 1e-4, 0.75, 1.0), ((1, 4, 2, 3), 2, 0.5, 0.5, 2.0), ((2, 3), 3, 1.0, 1.0, 0.5)]
    for dtype in FLOATS:
        for n, (shape, size, alpha, beta, k) in enumerate(cases):
            identifier = f"local_response_norm/{dtype}/case-{n}"
            x = random(rng_of(identifier), dtype, shape)
            z = wide(x)
            sums = np.zeros_like(z)
            for c in range(shape[1]):
                around = z[:, max(0, c - size // 2) : c + (size - 1) // 2 + 1]
                sums[:, c] = (around * around).sum(1)
            out = z / (Real(k) + Real(alpha) / size * sums) ** Real(beta)
            yield sample(
                identifier,
                [x],
                narrow(dtype, out),
                ulps(dtype, 16),
                f"{size} channels",
                size=size,
                alpha=alpha,
                beta=beta,
                k=k,
            )


def samples():
    yield from group_norms()
    yield from channel_norms()
    yield from batch_norms()
    yield from vectors()
    yield from response_norms()
