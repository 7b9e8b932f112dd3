"""Fourier transforms, by NumPy in binary64 (f64 by mpmath-free extended sums of the definition)."""

import numpy as np
import scipy.signal

from .core import ALL, EXACT, Complex, Real, any_bits, narrow, random, rng_of, sample, ulps

PI = Real("3.14159265358979323846264338327950288")


def dft(z, inverse, axis):
    """The definition in extended precision, with the angle reduced exactly."""
    n = z.shape[axis]
    k = np.arange(n)
    turns = (np.outer(k, k) % n).astype(Real) / Real(n)
    angle = (2 if inverse else -2) * PI * turns
    matrix = np.cos(angle) + 1j * np.sin(angle)
    return np.moveaxis(np.tensordot(matrix, z.astype(Complex), axes=(1, axis)), 0, axis)


def factor(norm, inverse, n):
    if norm == "ortho":
        return 1 / np.sqrt(Real(n))
    return 1 / Real(n) if norm == ("backward" if inverse else "forward") else Real(1)


def to_complex(x, axis):
    if x.dtype == np.complex64:
        return x.astype(Complex)
    re, im = np.split(x.astype(Real), 2, axis)
    return re + 1j * im


def from_complex(dtype, z, axis):
    if dtype == "c64":
        return narrow("c64", z)
    return narrow(dtype, np.concatenate([z.real, z.imag], axis))


def tolerance(dtype, x, scale):
    """log2(n) roundings of the sum of all magnitudes would be the worst; a transform is far better."""
    size = float(np.sqrt(np.sum(np.abs(x.astype(Complex)) ** 2))) * float(scale)
    return {"rel": 0.0, "abs": size * (2.0**-50 if dtype == "f64" else 2.0**-21) + 1e-45}


NORMS = ("none", "backward", "forward", "ortho")  # NumPy's, and no factor at all
SHAPES = [((n,), -1) for n in (1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 30, 37, 64)]
SHAPES += [((3, 10), 1), ((6, 3), 0), ((2, 4, 5), 1), ((2, 3, 12), -1), ((0, 4), 1), ((20, 6), 1)]
SHAPES += [((128,), 0), ((67,), 0), ((12, 18), 0), ((77, 3), 0)]


def transforms():
    for dtype in ("c64", "f32", "f64"):
        for index, (shape, axis) in enumerate(SHAPES):
            for norm in NORMS:
                for inverse in (False, True):
                    if index % 5 and norm != "backward":
                        continue
                    direction = "inverse" if inverse else "forward"
                    case = f"fft/{dtype}/{'x'.join(map(str, shape))}-axis{axis}-{norm}-{direction}"
                    block = list(shape)
                    if dtype != "c64":
                        block[axis] *= 2
                    x = random(rng_of(case), dtype, tuple(block))
                    z = to_complex(x, axis)
                    scale = factor(norm, inverse, shape[axis])
                    y = from_complex(dtype, dft(z, inverse, axis) * scale, axis)
                    yield sample(
                        case,
                        [x],
                        y,
                        tolerance(dtype, x, scale),
                        "the definition, in 80 bits",
                        inverse=inverse,
                        norm=norm,
                        axis=axis,
                    )


def several_axes():
    for name, shape, axes, inverse, norm in [
        ("2d", (6, 5), (0, 1), False, "backward"),
        ("inverse", (4, 3, 5), (0, 2), True, "backward"),
        ("forward", (4, 3, 5), (0, 2), False, "forward"),
        ("unscaled", (4, 3), (0, 1), True, "none"),
        ("ortho", (3, 4, 2), (0, 1, 2), False, "ortho"),
        ("none", (3, 2), (), False, "forward"),
    ]:
        x = random(rng_of(f"fftn/{name}"), "c64", shape)
        y, scale = x.astype(Complex), Real(1)
        for axis in axes:
            y = dft(y, inverse, axis)
            scale *= factor(norm, inverse, shape[axis])
        wide = x.astype(np.complex128)
        numpy_norm = ("forward" if inverse else "backward") if norm == "none" else norm
        check = (np.fft.ifftn if inverse else np.fft.fftn)(wide, axes=axes, norm=numpy_norm) if axes else wide
        assert np.allclose(check, (y * scale).astype(np.complex128)), name
        yield sample(
            f"fftn/c64/{name}",
            [x],
            narrow("c64", y * scale),
            tolerance("c64", x, scale),
            "checked against numpy.fft",
            axes=axes,
            inverse=inverse,
            norm=norm,
        )


def blocks():
    """fftn of f32 and f64: one axis that holds the real parts, then the imaginary ones."""
    for dtype in ("f32", "f64"):
        for norm in NORMS:
            for inverse in (False, True):
                name = f"fftn/{dtype}/{norm}-{'inverse' if inverse else 'forward'}"
                x = random(rng_of(name), dtype, (2, 6))
                scale = factor(norm, inverse, 3)
                y = from_complex(dtype, dft(to_complex(x, -1), inverse, -1) * scale, -1)
                tol = tolerance(dtype, x, scale)
                yield sample(name, [x], y, tol, "one axis", axes=[-1], inverse=inverse, norm=norm)


def real_transforms():
    for n, axis in [(1, 0), (2, 0), (3, 0), (6, 0), (7, 1), (8, 1), (15, 0), (37, 1), (64, 0)]:
        shape = (n, 3) if axis == 0 else (2, n)
        for norm in NORMS:
            numpy_norm = "backward" if norm == "none" else norm
            x = random(rng_of(f"rfft/{n}/{norm}"), "f32", shape)
            y = np.fft.rfft(x.astype(np.float64), axis=axis, norm=numpy_norm)
            scale = factor(norm, False, n)
            yield sample(
                f"rfft/f32/{n}-{norm}",
                [x],
                narrow("c64", y),
                tolerance("f32", x, scale),
                "numpy.fft.rfft",
                norm=norm,
                axis=axis,
            )
        half = shape[:axis] + (n // 2 + 1,) + shape[axis + 1 :]
        for norm in NORMS:  # the imaginary parts of bin 0 and n / 2 are ignored, as by NumPy
            numpy_norm = "forward" if norm == "none" else norm
            z = random(rng_of(f"irfft/{n}/{norm}"), "c64", half)
            y = np.fft.irfft(z.astype(np.complex128), n, axis, norm=numpy_norm)
            yield sample(
                f"irfft/c64/{n}-{norm}",
                [z],
                narrow("f32", y),
                tolerance("c64", z, 2 * factor(norm, True, n)),
                "numpy.fft.irfft",
                n=n,
                norm=norm,
                axis=axis,
            )


def last_axis():
    x = random(rng_of("rfft/last"), "f32", (2, 3, 6))
    tol = tolerance("f32", x, 1)
    y = np.fft.rfft(x.astype(np.float64), axis=-2)
    yield sample("rfft/f32/from-the-end", [x], narrow("c64", y), tol, "numpy.fft.rfft", axis=-2)
    z = random(rng_of("irfft/last"), "c64", (2, 4, 3))
    y = np.fft.irfft(z.astype(np.complex128), axis=-2)
    attrs = {"axis": -2}
    tol = tolerance("c64", z, 2 * factor("backward", True, 6))
    yield sample("irfft/c64/from-the-end", [z], narrow("f32", y), tol, "n = 2 (bins - 1)", **attrs)


def shifts():
    for dtype in ALL:
        for name, shape, axes in [
            ("odd", (5,), (0,)),
            ("even", (2, 6), (1,)),
            ("both", (4, 3), (0, 1)),
            ("end", (2, 3, 4), (-1, -2)),
            ("one", (1,), (0,)),
        ]:
            x = any_bits(rng_of(f"fftshift/{dtype}/{name}"), dtype, shape)
            yield sample(
                f"fftshift/{dtype}/{name}",
                [x],
                np.fft.fftshift(x, axes),
                EXACT,
                "numpy.fft.fftshift",
                axes=axes,
            )
            yield sample(
                f"ifftshift/{dtype}/{name}",
                [x],
                np.fft.ifftshift(x, axes),
                EXACT,
                "numpy.fft.ifftshift",
                axes=axes,
            )


def frames(x, w, hop):
    """[.., frames, w]: what the window sees."""
    count = (x.shape[-1] - w) // hop + 1
    return np.stack([x[..., t * hop : t * hop + w] for t in range(count)], -2)


def short_time():
    for shape, w, hop in [((9,), 4, 2), ((2, 3, 10), 5, 3), ((4,), 4, 1), ((2, 40), 16, 4), ((3, 7), 1, 2)]:
        for norm in NORMS:
            case = f"stft/f32/{'x'.join(map(str, shape))}-{w}-{hop}-{norm}"
            x, window = random(rng_of(case), "f32", shape), random(rng_of(case + "w"), "f32", (w,))
            seen = frames(x.astype(Real), w, hop) * window.astype(Real)
            scale = factor(norm, False, w)
            z = np.swapaxes(dft(seen, False, seen.ndim - 1)[..., : w // 2 + 1], -1, -2) * scale
            tol = tolerance("f32", seen, scale)
            yield sample(case, [x, window], narrow("c64", z), tol, "frame by frame", hop=hop, norm=norm)
    for shape, w, hop in [((3, 4), 4, 2), ((2, 3, 2), 5, 3), ((9, 6), 16, 4), ((2, 2), 2, 5)]:
        for norm in NORMS:
            numpy_norm = "forward" if norm == "none" else norm
            case = f"istft/c64/{'x'.join(map(str, shape))}-{w}-{hop}-{norm}"
            z, window = random(rng_of(case), "c64", shape), random(rng_of(case + "w"), "f32", (w,), 0.5, 2)
            wide = window.astype(np.float64)
            seen = np.fft.irfft(z.astype(np.complex128), w, -2, numpy_norm) * wide[:, None]
            y, weight = np.zeros((*shape[:-2], w + (shape[-1] - 1) * hop)), 0
            for t in range(shape[-1]):
                place = np.zeros(y.shape[-1])
                place[t * hop : t * hop + w] = wide**2
                y[..., t * hop : t * hop + w] += seen[..., t]
                weight = weight + place
            y = np.where(weight == 0, 0, y / np.where(weight == 0, 1, weight))
            tol = tolerance("c64", z, 16 * factor(norm, True, w))
            yield sample(case, [z, window], narrow("f32", y), tol, "overlap and add", hop=hop, norm=norm)


def windows():
    kinds = {"hann": [0.5, 0.5], "hamming": [0.54, 0.46], "blackman": [0.42, 0.5, 0.08]}
    for name, coefficients in kinds.items():
        for size, periodic in [(0, False), (1, False), (2, True), (7, False), (12, True), (33, False)]:
            y = scipy.signal.windows.general_cosine(size, coefficients, sym=not periodic)
            for dtype in ("f64", "f32", "f16", "bf16"):
                yield sample(
                    f"general_cosine_window/{dtype}/{name}-{size}{'-periodic' * periodic}",
                    [],
                    narrow(dtype, y),
                    ulps(dtype, 1, 2e-15),  # terms of size 1 that cancel at the ends, two ways to their angles
                    "scipy.signal.windows.general_cosine",
                    size=size,
                    coefficients=coefficients,
                    periodic=periodic,
                    dtype=dtype,
                )


def samples():
    yield from transforms()
    yield from several_axes()
    yield from blocks()
    yield from real_transforms()
    yield from last_axis()
    yield from shifts()
    yield from short_time()
    yield from windows()
