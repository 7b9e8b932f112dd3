"""Resizing by the reference implementation of ONNX in f64; sampling and patches by PyTorch in f64."""

import itertools

import numpy as np
import onnx.helper
import onnx.reference
import torch
import torch.nn.functional as F

from .core import ALL, EXACT, FLOATS, INTS, any_bits, narrow, random, rng_of
from .core import sample, sum_tolerance, ulps, unit, whole

COORDINATES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def onnx_resize(x, mode, axes, sizes, scales, coordinates, **attrs):
    node = onnx.helper.make_node(
        "Resize",
        ["x", "", "scales" if scales else "", "sizes" if sizes else ""],
        ["y"],
        mode=mode,
        axes=axes,
        coordinate_transformation_mode=coordinates,
        **attrs,
    )
    graph = onnx.helper.make_graph(
        [node],
        "resize",
        [
            onnx.helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, x.shape),
            onnx.helper.make_tensor_value_info("scales", onnx.TensorProto.FLOAT, [len(axes)]),
            onnx.helper.make_tensor_value_info("sizes", onnx.TensorProto.INT64, [len(axes)]),
        ],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)])
    feeds = {
        "x": x,
        "scales": np.array(scales or [0.0] * len(axes), np.float32),
        "sizes": np.array(sizes or [0] * len(axes), np.int64),
    }
    return onnx.reference.ReferenceEvaluator(model).run(None, feeds)[0]


def weights_tolerance(dtype):
    """Cubic weights add up to at most 2.5 in magnitude per axis, elements are at most 2."""
    return ulps(dtype, 16, 64 * unit(dtype))


def disputed(coordinates, sizes, scales):
    """Where the reference implementation departs from the text of the standard, or rounds coordinates at a tie.

    For align_corners it takes the size before it is rounded down; for pytorch_half_pixel and one result the place -1/2
    and not 0. With half_pixel_symmetric and rounded sizes the places of nearest elements are ties but for the last bit.
    """
    if coordinates == "pytorch_half_pixel":
        return sizes == [1]
    return bool(scales) and coordinates in ("align_corners", "half_pixel_symmetric")


def resizes():
    # shape, axes, sizes, scales: all ratios are exact in f32, in which the reference computes them
    geometry = [
        ((2, 8), [1], [11], []),
        ((2, 8), [1], [5], []),
        ((4, 8), [0, 1], [5, 3], []),
        ((1, 2, 3, 4), [2, 3], [], [1.5, 2.0]),
        ((6, 5), [0, 1], [], [0.625, 0.75]),
        ((4, 3), [0], [1], []),
    ]
    for n, (shape, axes, sizes, scales) in enumerate(geometry):
        modes = [("nearest", dict(nearest_mode=m)) for m in NEAREST]
        modes += [("linear", {}), ("cubic", {}), ("cubic", dict(cubic_coeff_a=-0.5))]
        modes += [("cubic", dict(exclude_outside=1)), ("linear", dict(exclude_outside=1))]
        modes += [("linear", dict(antialias=1)), ("cubic", dict(antialias=1))]
        for k, ((mode, attrs), coordinates) in enumerate(itertools.product(modes, COORDINATES)):
            if disputed(coordinates, sizes, scales) or (k + n) % 2:
                continue
            # The reference computes cubic weights in f32.
            dtype = ("f16", "bf16", "f32")[(k + n) // 2 % 3] if mode == "cubic" else FLOATS[(k + n) // 2 % 4]
            identifier = f"resize/{dtype}/{mode}-{n}-{k}"
            x = random(rng_of(identifier), dtype, shape, -2, 2)
            y = onnx_resize(x.astype(np.float64), mode, axes, sizes, scales, coordinates, **attrs)
            flags = {a: bool(v) for a, v in attrs.items() if a in ("exclude_outside", "antialias")}
            yield sample(
                identifier,
                [x],
                narrow(dtype, y),
                EXACT if mode == "nearest" else weights_tolerance(dtype),
                f"{mode}, {coordinates}, {attrs}",
                mode=mode,
                axes=axes,
                coordinates=coordinates,
                **({"sizes": sizes} if sizes else {"scales": scales}),
                **{**attrs, **flags},
            )


def symmetric():
    """Places in the middle of an image whose size is rounded down: by the formula of the standard."""
    for dtype, scale in (("f64", 0.625), ("f32", 1.75), ("bf16", 0.75)):
        m = 6
        n = int(np.floor(m * scale))
        place = np.clip(m / 2 * (1 - n / (scale * m)) + (np.arange(n) + 0.5) / scale - 0.5, 0, m - 1)
        x = random(rng_of(f"resize/{dtype}/symmetric"), dtype, (2, m), -2, 2)
        y = np.stack([np.interp(place, np.arange(m), row) for row in x.astype(np.float64)])
        yield sample(
            f"resize/{dtype}/symmetric",
            [x],
            narrow(dtype, y),
            weights_tolerance(dtype),
            "centred when the size is rounded down",
            mode="linear",
            axes=[1],
            scales=[scale],
            coordinates="half_pixel_symmetric",
        )


def torch_resizes():
    cases = [
        ("nearest", "nearest", {}, "nearest", "asymmetric", dict(nearest_mode="floor")),
        ("exact", "nearest-exact", {}, "nearest", "half_pixel", dict(nearest_mode="round_prefer_ceil")),
        ("bilinear", "bilinear", {}, "linear", "half_pixel", {}),
        ("corners", "bilinear", dict(align_corners=True), "linear", "align_corners", {}),
        ("bicubic", "bicubic", {}, "cubic", "half_pixel", {}),
        (
            "smooth",
            "bilinear",
            dict(antialias=True),
            "linear",
            "half_pixel",
            dict(antialias=True, exclude_outside=True),
        ),
        (
            "smooth-cubic",
            "bicubic",
            dict(antialias=True),
            "cubic",
            "half_pixel",
            dict(antialias=True, exclude_outside=True, cubic_coeff_a=-0.5),
        ),
    ]
    for name, torch_mode, torch_attrs, mode, coordinates, attrs in cases:
        for n, (shape, sizes) in enumerate([((1, 2, 5, 6), [8, 3]), ((2, 1, 9, 4), [4, 4])]):
            for dtype in FLOATS:
                identifier = f"resize/{dtype}/torch-{name}-{n}"
                x = random(rng_of(identifier), dtype, shape, -2, 2)
                y = F.interpolate(
                    torch.from_numpy(x.astype(np.float64)), size=sizes, mode=torch_mode, **torch_attrs
                ).numpy()
                yield sample(
                    identifier,
                    [x],
                    narrow(dtype, y),
                    EXACT if mode == "nearest" else weights_tolerance(dtype),
                    f"PyTorch's {torch_mode}",
                    mode=mode,
                    axes=[2, 3],
                    sizes=sizes,
                    coordinates=coordinates,
                    **attrs,
                )


def integers():
    for dtype in INTS:
        rng = rng_of(f"resize/{dtype}/integers")
        x = rng.integers(0, 100, (2, 5)).astype(narrow(dtype, np.zeros(1)).dtype)
        for mode in ("nearest", "linear"):
            y = onnx_resize(x.astype(np.float64), mode, [1], [8], [], "half_pixel")
            yield sample(
                f"resize/{dtype}/{mode}-integers",
                [x],
                narrow(dtype, np.rint(y)),
                EXACT,
                "interpolated in f64 and rounded",
                mode=mode,
                axes=[1],
                sizes=[8],
            )
    modes = [("nearest", dict(nearest_mode=m)) for m in NEAREST]
    modes += [("linear", {}), ("cubic", {}), ("linear", dict(exclude_outside=1)), ("linear", dict(antialias=1))]
    for dtype in INTS:
        for (mode, attrs), coordinates in itertools.product(modes, COORDINATES):
            options = "-".join(map(str, attrs)) if mode != "nearest" else attrs["nearest_mode"]
            identifier = f"resize/{dtype}/{mode}-{coordinates}-{options or 'plain'}"
            rng, tie = rng_of(identifier), True
            while tie:  # the reference rounds its weights to f32
                x = rng.integers(30, 90, (1, 8)).astype(narrow(dtype, np.zeros(1)).dtype)
                y = onnx_resize(x.astype(np.float64), mode, [1], [5], [], coordinates, **attrs)
                tie = np.min(np.abs(y - np.floor(y) - 0.5)) < 1e-3
            flags = {a: bool(v) for a, v in attrs.items() if a in ("exclude_outside", "antialias")}
            yield sample(
                identifier,
                [x],
                narrow(dtype, np.rint(y)),
                EXACT,
                "interpolated in f64 and rounded",
                mode=mode,
                axes=[-1],
                sizes=[5],
                coordinates=coordinates,
                **{**attrs, **flags},
            )
    for dtype in ALL:
        for n, shape in enumerate([(2, 2, 3, 2), (1, 3), (2, 0, 3)]):
            x = any_bits(rng_of(f"resize_nearest_2x/{dtype}/{n}"), dtype, shape)
            yield sample(
                f"resize_nearest_2x/{dtype}/case-{n}",
                [x],
                x.repeat(2, -1).repeat(2, -2),
                EXACT,
                "every pixel four times",
            )


def grids():
    modes = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}
    shapes = [((2, 3, 4, 5), (2, 3, 2)), ((1, 2, 3, 4, 3), (1, 2, 3, 2))]
    for (x_shape, o), mode, outside, corners in itertools.product(
        shapes, modes, ("zeros", "border", "reflection"), (False, True)
    ):
        axes = len(x_shape) - 2
        for dtype in ("f32", "f64") if axes == 3 else FLOATS:
            identifier = f"grid_sample/{dtype}/{mode}-{outside}-{axes}d" + ("-corners" * corners)
            rng = rng_of(identifier)
            x = random(rng, dtype, x_shape, -2, 2)
            grid = random(rng, dtype, o + (axes,), -1.7, 1.7)
            y = F.grid_sample(
                torch.from_numpy(x.astype(np.float64)),
                torch.from_numpy(grid.astype(np.float64)),
                mode=modes[mode],
                padding_mode=outside,
                align_corners=corners,
            ).numpy()
            yield sample(
                identifier,
                [x, grid],
                narrow(dtype, y),
                # A coordinate of up to 5 pixels moves by 5 units, the value by up to 8 times that.
                EXACT if mode == "nearest" else ulps(dtype, 16, 256 * unit(dtype)),
                f"{mode}, {outside}, places in and around the image",
                mode=mode,
                outside=outside,
                align_corners=corners,
            )
    for dtype in FLOATS:
        for n, (batch, size, corners) in enumerate(
            [(2, (3, 4), False), (1, (2, 5), True), (1, (2, 1, 3), False), (2, (2, 3, 1), True)]
        ):
            identifier = f"affine_grid/{dtype}/case-{n}"
            axes = len(size)
            theta = random(rng_of(identifier), dtype, (batch, axes, axes + 1), -1, 1)
            y = F.affine_grid(
                torch.from_numpy(theta.astype(np.float64)), (batch, 1) + size, align_corners=corners
            ).numpy()
            yield sample(
                identifier,
                [theta],
                narrow(dtype, y),
                sum_tolerance(dtype, axes + 2, axes + 1),
                f"grid of {size}",
                size=size,
                align_corners=corners,
            )


def patches():
    for dtype in ALL:
        for name, shape, factor in (
            ("pixel_shuffle", (2, 8, 2, 3), 2),
            ("pixel_shuffle", (9, 2, 1), 3),
            ("pixel_unshuffle", (1, 2, 4, 6), 2),
            ("pixel_unshuffle", (1, 3, 6), 3),
        ):
            x = any_bits(rng_of(f"{name}/{dtype}/{factor}"), dtype, shape)
            lead = shape[:-3]
            c, h, w = shape[-3:]
            f = factor
            if name == "pixel_shuffle":
                y = x.reshape(lead + (c // f // f, f, f, h, w))
                y = np.moveaxis(y, (-4, -3), (-3, -1)).reshape(lead + (c // f // f, h * f, w * f))
            else:
                y = x.reshape(lead + (c, h // f, f, w // f, f))
                y = np.moveaxis(y, (-3, -1), (-4, -3)).reshape(lead + (c * f * f, h // f, w // f))
            yield sample(f"{name}/{dtype}/by-{f}", [x], np.ascontiguousarray(y), EXACT, "moves", factor=f)
    cases = [
        ((2, 3, 5, 6), [2, 3], [1, 1], [1, 1], [0, 0]),
        ((1, 2, 6, 5), [3, 2], [2, 1], [1, 2], [1, 1]),
    ]
    for n, (shape, kernel, stride, dilation, padding) in enumerate(cases):
        attrs = dict(kernel=kernel, stride=stride, dilation=dilation, low=padding, high=padding)
        geometry = dict(dilation=dilation, padding=padding, stride=stride)
        for dtype in [*FLOATS, "c64", *INTS]:
            kind = np.complex128 if dtype == "c64" else np.float64
            x = whole(rng_of(f"unfold/{dtype}/{n}"), dtype, shape)
            columns = F.unfold(torch.from_numpy(x.astype(kind)), kernel, **geometry)
            yield sample(
                f"unfold/{dtype}/case-{n}",
                [x],
                narrow(dtype, columns.numpy()),
                EXACT,
                "windows as columns",
                **attrs,
            )
            u = whole(rng_of(f"fold/{dtype}/{n}"), dtype, tuple(columns.shape))
            y = F.fold(torch.from_numpy(u.astype(kind)), shape[2:], kernel, **geometry)
            yield sample(
                f"fold/{dtype}/case-{n}",
                [u],
                narrow(dtype, y.numpy().astype(np.int64) if dtype in INTS else y.numpy()),
                EXACT,
                "whole numbers: exact sums",
                size=shape[2:],
                **attrs,
            )


def samples():
    yield from resizes()
    yield from symmetric()
    yield from torch_resizes()
    yield from integers()
    yield from grids()
    yield from patches()
