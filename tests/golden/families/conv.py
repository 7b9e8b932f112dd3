"""Convolutions, their transposes and their gradients, by PyTorch in f64, c128 and i64."""

import numpy as np
import torch
import torch.nn.functional as F

from .core import FLOATS, INTS, narrow, random, rng_of, sample, sum_tolerance, whole

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

# x, w, stride, dilation, low, high, groups
CASES = [
    ((2, 3, 9), (4, 3, 3), [1], [1], [0], [0], 1),
    ((1, 4, 11), (6, 2, 3), [2], [2], [3], [1], 2),
    ((2, 3, 6, 7), (5, 3, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1], 1),
    ((1, 4, 8, 5), (4, 1, 3, 2), [2, 1], [1, 2], [1, 0], [2, 1], 4),
    ((2, 6, 5, 9), (4, 3, 2, 3), [2, 3], [1, 2], [0, 2], [1, 0], 2),
    ((1, 3, 4, 4), (8, 3, 1, 1), [1, 1], [1, 1], [0, 0], [0, 0], 1),
    ((1, 2, 3, 4, 5), (3, 2, 2, 3, 2), [1, 2, 1], [1, 1, 2], [1, 0, 1], [0, 1, 1], 1),
    ((2, 2, 6, 6), (3, 2, 3, 3), [1, 1], [1, 1], [-1, 0], [0, -2], 1),
    ((1, 5, 9, 18), (18, 5, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1], 1),
]


def padded(x, low, high):
    """x with zeros around its spatial axes; negative amounts crop."""
    amounts = []
    for a, c in zip(reversed(low), reversed(high)):
        amounts += [a, c]
    return F.pad(x, amounts)


def convolve(x, w, case):
    _, _, stride, dilation, low, high, groups = case
    return CONV[len(stride)](
        padded(x, low, high), w, None, stride, 0, dilation, groups
    )


def as_torch(x):
    name = x.dtype.kind
    kind = {"c": np.complex128, "i": np.int64, "u": np.int64}.get(name, np.float64)
    return torch.from_numpy(x.astype(kind))


def sizes(x):
    return torch.from_numpy(np.abs(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)))


def attributes(case):
    _, _, stride, dilation, low, high, groups = case
    return dict(stride=stride, dilation=dilation, low=low, high=high, groups=groups)


def dtypes_of(case, n):
    large = np.prod(case[1]) > 400
    return ["f32", "bf16"] if large else FLOATS + (["c64", *INTS] if n in (1, 4) else [])


def values(identifier, dtype, shape):
    rng = rng_of(identifier + str(shape))
    return whole(rng, dtype, shape) if dtype in INTS else random(rng, dtype, shape, -1, 1)


def forward():
    for n, case in enumerate(CASES):
        for dtype in dtypes_of(case, n):
            identifier = f"conv/{dtype}/case-{n}"
            x, w = values(identifier, dtype, case[0]), values(identifier, dtype, case[1])
            y = convolve(as_torch(x), as_torch(w), case).numpy()
            terms = int(np.prod(case[1][1:]))
            factor = 2 if dtype == "c64" else 1
            tol = sum_tolerance(dtype, factor * terms, convolve(sizes(x), sizes(w), case).max())
            yield sample(identifier, [x, w], narrow(dtype, y), tol, f"{case}", **attributes(case))
    for dtype in ("f32", "f16"):
        x = np.array([[[np.inf, 1.0, np.nan, 2.0, 3.0, 4.0]]])
        w = np.array([[[1.0, 2.0]]])
        x, w = narrow(dtype, x), narrow(dtype, w)
        y = F.conv1d(as_torch(x), as_torch(w)).numpy()
        yield sample(
            f"conv/{dtype}/special",
            [x, w],
            narrow(dtype, y),
            sum_tolerance(dtype, 2, 12),
            "infinities and NaN reach the windows that hold them",
        )


def channels_last():
    """The same sums with channels behind the pixels."""
    last = lambda t: np.ascontiguousarray(np.moveaxis(t, 1, -1))
    for n, case in enumerate(CASES):
        for dtype in dtypes_of(case, n):
            identifier = f"conv_channels_last/{dtype}/case-{n}"
            x, w = values(identifier, dtype, case[0]), values(identifier, dtype, case[1])
            y = convolve(as_torch(x), as_torch(w), case).numpy()
            terms = int(np.prod(case[1][1:]))
            factor = 2 if dtype == "c64" else 1
            tol = sum_tolerance(dtype, factor * terms, convolve(sizes(x), sizes(w), case).max())
            w = np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2)))
            yield sample(identifier, [last(x), w], narrow(dtype, last(y)), tol, f"{case}", **attributes(case))


def backward():
    for n, case in enumerate(CASES):
        x_shape, w_shape, stride, *_ = case
        for dtype in dtypes_of(case, n):
            identifier = f"conv_backward/{dtype}/case-{n}"
            x, w = values(identifier, dtype, x_shape), values(identifier, dtype, w_shape)
            # Whole numbers are exact in f64, which PyTorch differentiates in.
            leaf = lambda t: as_torch(t if dtype not in INTS else t.astype(np.float64))
            # Its gradients conjugate the other factor; the ops are the plain sums of products.
            tx, tw = (leaf(np.conj(t)).requires_grad_() if dtype == "c64" else leaf(t).requires_grad_() for t in (x, w))
            y = convolve(tx, tw, case)
            dy = values(identifier + "dy", dtype, tuple(y.shape))
            y.backward(leaf(dy))
            ax, aw = sizes(x).requires_grad_(), sizes(w).requires_grad_()
            convolve(ax, aw, case).backward(sizes(dy))
            out = lambda t: narrow(dtype, t.grad.numpy().astype(np.int64) if dtype in INTS else t.grad.numpy())
            parts = 2 if dtype == "c64" else 1
            out_terms = int(np.prod(w_shape[2:])) * w_shape[0] // case[6]
            yield sample(
                f"conv_backward_input/{dtype}/case-{n}",
                [dy, w],
                out(tx),
                sum_tolerance(dtype, parts * out_terms, ax.grad.max()),
                f"{case}",
                size=x_shape[2:],
                **attributes(case),
            )
            weight_terms = x_shape[0] * int(np.prod(y.shape[2:]))
            yield sample(
                f"conv_backward_weight/{dtype}/case-{n}",
                [x, dy],
                out(tw),
                sum_tolerance(dtype, parts * weight_terms, aw.grad.max()),
                f"{case}",
                kernel=w_shape[2:],
                **attributes(case),
            )


def transposed():
    # x, w, stride, dilation, padding, output_padding, groups
    cases = [
        ((2, 3, 5), (3, 2, 3), [1], [1], [0], [0], 1),
        ((1, 4, 4), (4, 3, 3), [3], [2], [1], [2], 2),
        ((1, 3, 4, 5), (3, 4, 3, 3), [2, 2], [1, 1], [1, 1], [1, 1], 1),
        ((2, 4, 3, 3), (4, 1, 2, 3), [2, 1], [1, 2], [0, 1], [1, 0], 4),
        ((1, 2, 2, 3, 2), (2, 3, 2, 2, 3), [1, 2, 1], [2, 1, 1], [1, 0, 1], [0, 1, 0], 1),
        ((1, 4, 8, 8), (4, 8, 2, 2), [2, 2], [1, 1], [0, 0], [0, 0], 1),
    ]
    for n, (x_shape, w_shape, stride, dilation, padding, extra, groups) in enumerate(cases):
        for dtype in FLOATS + ([*INTS, "c64"] if n == 1 else []):
            identifier = f"conv_transpose/{dtype}/case-{n}"
            x, w = values(identifier, dtype, x_shape), values(identifier, dtype, w_shape)
            geometry = (None, stride, padding, extra, groups, dilation)
            y = TRANSPOSE[len(stride)](as_torch(x), as_torch(w), *geometry).numpy()
            size = TRANSPOSE[len(stride)](sizes(x), sizes(w), *geometry).max()
            terms = int(np.prod(w_shape[2:])) * w_shape[0] // groups
            yield sample(
                identifier,
                [x, w],
                narrow(dtype, y),
                sum_tolerance(dtype, 2 * terms, size),
                f"stride {stride}, output_padding {extra}",
                stride=stride,
                dilation=dilation,
                low=padding,
                high=padding,
                output_padding=extra,
                groups=groups,
            )


def samples():
    yield from forward()
    yield from channels_last()
    yield from backward()
    yield from transposed()
