"""Activations, by PyTorch in binary64 (the attributes' names are ours), rounded once.

binary64 itself is compared with 16 units in the last place, and absolutely with a few steps at 1 where a formula cancels.
"""

import numpy as np
import torch
import torch.nn.functional as F

from .core import FLOATS, array, narrow, random, rng_of, sample, ulps, unit


# name, attributes, function, steps at 1 of absolute error, range of the basic case
CASES = [
    ("relu6", {}, F.relu6, 0, (-8, 8)),
    ("leaky_relu", {}, F.leaky_relu, 0, (-5, 5)),
    ("leaky_relu", {"alpha": 0.25}, lambda x: F.leaky_relu(x, 0.25), 0, (-5, 5)),
    ("elu", {}, F.elu, 0, (-5, 5)),
    ("elu", {"alpha": 0.5}, lambda x: F.elu(x, 0.5), 0, (-5, 5)),
    ("celu", {}, F.celu, 0, (-5, 5)),
    ("celu", {"alpha": 0.5}, lambda x: F.celu(x, 0.5), 0, (-5, 5)),
    ("selu", {}, F.selu, 0, (-5, 5)),
    ("hard_sigmoid", {}, F.hardsigmoid, 2, (-5, 5)),
    (
        "hard_sigmoid",
        {"alpha": 0.25, "beta": 0.375},
        lambda x: torch.clamp(x * 0.25 + 0.375, 0, 1),
        2,
        (-5, 5),
    ),
    ("hard_swish", {}, F.hardswish, 8, (-5, 5)),
    ("hard_tanh", {}, F.hardtanh, 0, (-3, 3)),
    ("hard_tanh", {"low": -0.5, "high": 2.0}, lambda x: F.hardtanh(x, -0.5, 2.0), 0, (-3, 3)),
    ("mish", {}, F.mish, 0, (-5, 5)),
    ("softshrink", {}, F.softshrink, 2, (-3, 3)),
    ("softshrink", {"lambd": 0.25}, lambda x: F.softshrink(x, 0.25), 2, (-3, 3)),
    ("hardshrink", {}, F.hardshrink, 0, (-3, 3)),
    ("hardshrink", {"lambd": 0.25}, lambda x: F.hardshrink(x, 0.25), 0, (-3, 3)),
    ("tanhshrink", {}, F.tanhshrink, 2, (-3, 3)),
    (
        "threshold",
        {"threshold": 0.5, "value": -2.0},
        lambda x: F.threshold(x, 0.5, -2.0),
        0,
        (-3, 3),
    ),
    ("threshold", {"threshold": -1.0}, lambda x: F.threshold(x, -1.0, 0.0), 0, (-3, 3)),
    ("thresholded_relu", {}, lambda x: F.threshold(x, 1.0, 0.0), 0, (-3, 3)),
    ("thresholded_relu", {"alpha": 0.5}, lambda x: F.threshold(x, 0.5, 0.0), 0, (-3, 3)),
    ("quick_gelu", {}, lambda x: x * torch.sigmoid(1.702 * x), 0, (-5, 5)),
    ("log_sigmoid", {}, F.logsigmoid, 0, (-12, 12)),
    ("logit", {}, torch.special.logit, 2, (0.01, 0.99)),
]

# Kinks, saturation, what overflows in a careless formula; -inf only where 0 * inf does not arise.
SPECIAL = [0.0, -0.0, np.nan, np.inf, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 60.0, -60.0, 100.0]


def by_torch(function, *operands):
    wide = [torch.from_numpy(np.asarray(x, np.float64)) for x in operands]
    return function(*wide).numpy()


def one_operand():
    seen = {}
    for name, attrs, function, steps, (low, high) in CASES:
        number = seen[name] = seen.get(name, -1) + 1
        for dtype in FLOATS:
            tol = ulps(dtype, 16, steps * unit(dtype))
            inputs = [
                ("basic", (5, 7), "ordinary values"),
                ("rank0", (), "rank 0"),
                ("empty", (2, 0), "no elements"),
            ]
            for case, shape, note in inputs:
                identifier = f"{name}/{dtype}/{case}-{number}"
                x = random(rng_of(identifier), dtype, shape, low, high)
                y = narrow(dtype, by_torch(function, x))
                yield sample(identifier, [x], y, tol, note, **attrs)
            x = array(dtype, SPECIAL)
            y = narrow(dtype, by_torch(function, x))
            identifier = f"{name}/{dtype}/special-{number}"
            yield sample(identifier, [x], y, tol, "kinks, NaN, saturation, +inf", **attrs)


def prelu(x, slope):
    return torch.where(x > 0, x, x * slope)


def two_operands():
    shapes = [((4, 5), (4, 5)), ((4, 5), (5,)), ((4, 5), ()), ((3,), (2, 1)), ((0, 3), (3,))]
    for dtype in FLOATS:
        for n, (a, b) in enumerate(shapes):
            for name, function in (("prelu", prelu), ("swiglu", lambda g, u: F.silu(g) * u)):
                identifier = f"{name}/{dtype}/broadcast-{n}"
                rng = rng_of(identifier)
                x, y = random(rng, dtype, a, -4, 4), random(rng, dtype, b, -2, 2)
                out = narrow(dtype, by_torch(function, x, y))
                yield sample(identifier, [x, y], out, ulps(dtype, 16), f"shapes {a}, {b}")
        for n, (shape, axis) in enumerate([((3, 8), -1), ((6, 5), 0), ((2, 4, 3), 1), ((2,), 0)]):
            identifier = f"glu/{dtype}/case-{n}"
            x = random(rng_of(identifier), dtype, shape, -4, 4)
            out = narrow(dtype, by_torch(lambda t: F.glu(t, axis), x))
            yield sample(identifier, [x], out, ulps(dtype, 16), f"shape {shape}", axis=axis)


def samples():
    yield from one_operand()
    yield from two_operands()
