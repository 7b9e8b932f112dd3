"""Pools, resizing and convolutions alone."""

import numpy as np

from .case import case, f32, small

IMAGE = (8, 64, 112, 112)


def jax_pool(fold, start):
    def pool(m, x):
        lax = __import__("jax").lax
        return lax.reduce_window(x, start, getattr(lax, fold), (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])

    return pool


case("images", "max pool 3x3 by 2, 8x64x112x112", [f32(*IMAGE)], only={"torch": lambda m, x: m.nn.functional.max_pool2d(x, 3, 2, 1), "jax": jax_pool("max", -np.inf), "rlx": lambda m, x: m.pool(x, kernel=3, stride=2, low=1, high=1)}, bytes=5 * np.prod(IMAGE))
case("images", "resize bilinear by 2, 8x64x56x56", [f32(8, 64, 56, 56)], only={"torch": lambda m, x: m.nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), "rlx": lambda m, x: m.resize(x, axes=(2, 3), sizes=(112, 112), mode="linear")}, bytes=5 * np.prod(IMAGE))
case("images", "depthwise 3x3, 8x64x112x112", [f32(*IMAGE)], weights=[f32(64, 1, 3, 3)], only={"torch": lambda m, x, w: m.nn.functional.conv2d(x, w, padding=1, groups=64), "rlx": lambda m, x, w: m.conv(x, w, low=1, high=1, groups=64)}, bytes=8 * np.prod(IMAGE))
case("images", "transposed conv 2x2 by 2, 8x64x56x56 to 32", [f32(8, 64, 56, 56)], weights=[f32(64, 32, 2, 2)], only={"torch": lambda m, x, w: m.nn.functional.conv_transpose2d(x, w, stride=2), "rlx": lambda m, x, w: m.conv_transpose(x, w, stride=2)}, flops=2 * 8 * 64 * 56 * 56 * 32 * 4)
for n, c, o, size, kernel, stride in ((1, 64, 64, 56, 3, 1), (1, 256, 64, 56, 1, 1), (1, 512, 512, 7, 3, 1), (1, 3, 64, 224, 7, 2), (8, 128, 128, 28, 3, 1), (1, 256, 512, 28, 1, 2)):
    out = size // stride
    case(
        "images",
        f"conv {kernel}x{kernel} by {stride}, {n}x{c}x{size}x{size} to {o}",
        [f32(n, c, size, size)],
        weights=[small(o, c, kernel, kernel)],
        only={
            "torch": lambda m, x, w, s=stride, p=kernel // 2: m.nn.functional.conv2d(x, w, stride=s, padding=p),
            "rlx": lambda m, x, w, s=stride, p=kernel // 2: m.conv(x, w, stride=s, low=p, high=p),
            "jax": lambda m, x, w, s=stride, p=kernel // 2: __import__("jax").lax.conv_general_dilated(x, w, (s, s), [(p, p), (p, p)]),
        },
        flops=2 * n * c * o * kernel * kernel * out * out,
    )
