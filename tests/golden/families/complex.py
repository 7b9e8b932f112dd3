"""Complex numbers: parts, modulus, angle; and what C99's Annex G says about NaN and infinities.

The functions of `annex_g` are ops of other families. NumPy evaluates them by the C library, which follows Annex G.
Where the standard leaves the sign of a zero or of an infinity open, the argument is left out.
"""

import itertools

import numpy as np

from .core import EXACT, narrow, random, rng_of, sample, special_values, ulps, wide

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5]


def pair(shape_a, shape_b, name):
    rng = rng_of(name)
    return random(rng, "f32", shape_a), random(rng, "f32", shape_b)


def grid():
    z = np.empty(len(SPECIAL) ** 2, np.complex64)
    for i, (re, im) in enumerate(itertools.product(SPECIAL, SPECIAL)):
        z[i] = complex(re, im)
    return z


def parts():
    for name, a, b in [
        ("same", (3, 4), (3, 4)),
        ("broadcast", (3, 1), (4,)),
        ("rank0", (), ()),
        ("empty", (0, 2), ()),
    ]:
        re, im = pair(a, b, f"complex/{name}")
        re_wide, im_wide = np.broadcast_arrays(re, im)
        z = np.empty(re_wide.shape, np.complex64)
        z.real, z.imag = re_wide, im_wide
        yield sample(f"complex/c64/{name}", [re, im], z, EXACT, "the parts as they are")
        polar = wide(re) * np.cos(wide(im)) + 1j * (wide(re) * np.sin(wide(im)))
        yield sample(
            f"polar/c64/{name}",
            [re, im],
            narrow("c64", polar),
            ulps("c64", 4, 2e-7),
            "r e^(i angle)",
        )
    values = np.array(special_values("f32"), np.float32)
    re, im = np.meshgrid(values, values)
    z = np.empty(re.shape, np.complex64)
    z.real, z.imag = re, im
    yield sample("complex/c64/special", [re, im], z, EXACT, "NaN, infinities, signed zeros")


def measures():
    for name, shape in [("basic", (4, 5)), ("rank0", ()), ("empty", (0,))]:
        z = random(rng_of(f"measures/{name}"), "c64", shape)
        x = wide(z)
        yield sample(
            f"complex_abs/c64/{name}", [z], narrow("f32", np.abs(x)), ulps("f32", 1), "modulus"
        )
        yield sample(
            f"complex_angle/c64/{name}",
            [z],
            narrow("f32", np.angle(x)),
            ulps("f32", 1),
            "atan2(im, re)",
        )
        yield sample(
            f"complex_norm_sq/c64/{name}",
            [z],
            narrow("f32", x.real**2 + x.imag**2),
            ulps("f32", 3),
            "re^2 + im^2",
        )
        g = random(rng_of(f"gradient/{name}"), "f32", shape)
        y = np.empty(shape, np.complex64)
        y.real, y.imag = z.real * g, z.imag * g
        yield sample(f"complex_norm_sq_backward/c64/{name}", [z, g], y, EXACT, "(g re, g im)")
    big = np.array([3e38 + 2e38j, 1e-30 + 1e-30j, 2e-45 + 0j], np.complex64)
    yield sample(
        "complex_abs/c64/extreme",
        [big],
        narrow("f32", np.abs(wide(big))),
        ulps("f32", 1, 2e-45),
        "no overflow on the way",
    )
    z = grid()
    wide_z = z.astype(np.complex128)
    yield sample(
        "complex_abs/c64/special",
        [z],
        narrow("f32", np.abs(wide_z)),
        ulps("f32", 1),
        "inf when a part is infinite, else NaN",
    )
    yield sample(
        "complex_angle/c64/special",
        [z],
        narrow("f32", np.angle(wide_z)),
        ulps("f32", 1),
        "signed zeros and infinities",
    )
    with np.errstate(all="ignore"):
        power = z.real.astype(np.float64) ** 2 + z.imag.astype(np.float64) ** 2
    yield sample(
        "complex_norm_sq/c64/special",
        [z],
        narrow("f32", power),
        ulps("f32", 1),
        "NaN and infinities",
    )


def is_open(name, z):
    """Whether Annex G leaves the sign of a zero or an infinity of the result open."""
    re, im = z.real, z.imag
    if name == "sin":  # sin(z) = -i sinh(i z)
        name, re, im = "sinh", -im, re
    if name == "cos":  # cos(z) = cosh(i z)
        name, re, im = "cosh", -im, re
    if name == "exp":
        return np.isinf(re) & ~np.isfinite(im)
    if name == "sqrt":
        return np.isneginf(re) & np.isnan(im)
    if name == "sinh":
        return ((re == 0) & ~np.isfinite(im)) | (np.isinf(re) & ~np.isfinite(im))
    if name == "cosh":
        return (
            ((re == 0) & ~np.isfinite(im))
            | (np.isnan(re) & (im == 0))
            | (np.isinf(re) & ~np.isfinite(im))
        )
    if name == "tanh":
        return np.isinf(re) & ~np.isfinite(im)
    return np.zeros(z.shape, bool)


def annex_g():
    z = grid()
    for name, function in [
        ("exp", np.exp),
        ("log", np.log),
        ("sqrt", np.sqrt),
        ("sin", np.sin),
        ("cos", np.cos),
        ("tanh", np.tanh),
    ]:
        x = z[~is_open(name, z)]
        with np.errstate(all="ignore"):
            y = function(x.astype(np.complex128))
        yield sample(
            f"{name}/c64/annex-g",
            [x],
            narrow("c64", y),
            EXACT,
            "NaN, infinities and signed zeros by C99 Annex G",
        )
    for name, function in [("conj", np.conj), ("neg", np.negative)]:
        yield sample(f"{name}/c64/annex-g", [z], function(z), EXACT, "part by part")
    yield sample("real/c64/annex-g", [z], z.real, EXACT, "part by part")
    yield sample("imag/c64/annex-g", [z], z.imag, EXACT, "part by part")


def samples():
    yield from parts()
    yield from measures()
    yield from annex_g()
