"""Dtypes, exact rounding, values, tolerances and the form of a sample."""

import platform
import zlib

import ml_dtypes
import mpmath
import numpy as np

SEED = 20240607
mpmath.mp.prec = 160  # of all families, whichever run

FLOATS = ["f16", "bf16", "f32", "f64"]
INTS = ["i8", "i16", "i32", "i64", "u8", "u32"]
REALS = INTS + FLOATS
INEXACT = FLOATS + ["c64"]
NUMBERS = REALS + ["c64"]
F8 = ["f8e4m3fn", "f8e5m2"]  # stored, moved and cast, not computed with
ALL = NUMBERS + ["bool"] + F8

NUMPY = {
    "f16": np.dtype("<f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
    "i8": np.dtype("i1"),
    "i16": np.dtype("<i2"),
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
    "u8": np.dtype("u1"),
    "u32": np.dtype("<u4"),
    "bool": np.dtype("?"),
    "c64": np.dtype("<c8"),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
NAMES = {v: k for k, v in NUMPY.items()}

# Significant bits and exponent of the smallest normal number.
PRECISION = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53, "f8e4m3fn": 4, "f8e5m2": 3}
MIN_EXPONENT = {"f16": -14, "bf16": -126, "f32": -126, "f64": -1022, "f8e4m3fn": -6, "f8e5m2": -14}
LARGEST = {
    "f16": 65504.0,
    "bf16": (2 - 2.0**-7) * 2.0**127,
    "f32": (2 - 2.0**-23) * 2.0**127,
    "f64": float(np.finfo(np.float64).max),
    "f8e4m3fn": 448.0,
    "f8e5m2": 57344.0,
}

Real, Complex = np.longdouble, np.clongdouble
assert np.finfo(Real).nmant >= 63, "this platform has no extended precision; generate on x86-64"


def versions():
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "mpmath": mpmath.__version__,
    }


# ---- rounding


def round_float(dtype, x):
    """Wide reals -> dtype, to nearest even in one step; overflow gives an infinity, in f8e4m3fn NaN."""
    if dtype in ("f32", "f64"):
        return np.asarray(x).astype(NUMPY[dtype])
    x = np.asarray(x)
    if x.dtype not in (Real, np.float64, np.float32):
        x = x.astype(Real)
    finite = np.isfinite(x)
    safe = np.where(finite, x, 0)
    _, exponent = np.frexp(safe)  # |x| in [2^(e-1), 2^e)
    step = np.maximum(exponent - 1, MIN_EXPONENT[dtype]) - (PRECISION[dtype] - 1)
    rounded = np.ldexp(np.rint(np.ldexp(safe, -step)), step)
    rounded = np.where(np.abs(rounded) > LARGEST[dtype], np.copysign(np.inf, safe), rounded)
    # ml_dtypes converts f64 to f8 through f32, which rounds twice; what is rounded here already is exact in both.
    return np.where(finite, rounded, x).astype(np.float64).astype(NUMPY[dtype])


def narrow(dtype, x):
    """A wide result as an array of the dtype: reals round once, integers wrap, complex parts round to f32."""
    if dtype in FLOATS + F8:
        return round_float(dtype, x)
    if dtype == "c64":
        x = np.asarray(x)
        out = np.empty(x.shape, NUMPY["c64"])
        out.real, out.imag = x.real.astype("<f4"), x.imag.astype("<f4")
        return out
    return np.asarray(x).astype(NUMPY[dtype])


def wide(x):
    """An operand in the type for functions and sums: extended reals, extended complex, int64."""
    name = NAMES[x.dtype]
    if name in FLOATS:
        return x.astype(np.float64).astype(Real)
    return x.astype(Complex if name == "c64" else np.int64)


def exact(x):
    """An operand in the type in which one + - * / sqrt, rounded once more, is correctly rounded: binary64."""
    return x.astype(np.float64) if NAMES[x.dtype] in FLOATS else wide(x)


# ---- values


def rng_of(identifier):
    return np.random.Generator(np.random.Philox(key=[SEED, zlib.crc32(identifier.encode())]))


def special_values(dtype):
    if dtype in FLOATS + F8:
        return [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0]
    if dtype == "c64":
        return [
            complex(np.nan, 1),
            complex(np.inf, -2),
            complex(0.0, -0.0),
            complex(-0.0, 0.0),
            1 + 0j,
            -1j,
        ]
    if dtype == "bool":
        return [False, True]
    info = np.iinfo(NUMPY[dtype])
    return [info.min, info.max, 0, 1, info.max - 1, info.min + 1]


def denormals(dtype):
    """Around the smallest normal and the smallest positive number, with both signs."""
    low, bits = MIN_EXPONENT[dtype], PRECISION[dtype]
    tiny, normal = 2.0 ** (low - bits + 1), 2.0**low
    positive = [tiny, 3 * tiny, normal / 2, normal - tiny, normal, normal + tiny]
    return array(dtype, positive + [-v for v in positive])


def array(dtype, values, shape=None):
    values = np.asarray(values)
    out = (
        values.astype(NUMPY[dtype])
        if dtype not in ["f16", "bf16"] + F8
        else round_float(dtype, values.astype(np.float64))
    )
    return out if shape is None else out.reshape(shape)


def random(rng, dtype, shape, low=-3.0, high=3.0):
    """Uniform reals (also as complex parts) in [low, high); small integers in it; either bool."""
    if dtype in FLOATS + F8:
        return array(dtype, rng.uniform(low, high, shape))
    if dtype == "c64":
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(
            NUMPY["c64"]
        )
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype[0] == "u":
        low = max(low, 0)
    return rng.integers(int(np.floor(low)), int(np.ceil(high)), shape, endpoint=True).astype(
        NUMPY[dtype]
    )


def whole(rng, dtype, shape, limit=3):
    """Small whole numbers, so that sums and products are exact in every dtype and order."""
    values = rng.integers(0 if dtype[0] == "u" else -limit, limit, shape, endpoint=True)
    if dtype == "c64":
        return (values + 1j * rng.integers(-limit, limit, shape, endpoint=True)).astype(
            NUMPY["c64"]
        )
    return array(dtype, values)


def any_bits(rng, dtype, shape):
    """For moving data: values of the whole range, with specials sprinkled in."""
    count = int(np.prod(shape, dtype=np.int64))
    if dtype in INTS:
        info = np.iinfo(NUMPY[dtype])
        values = rng.integers(info.min, info.max, count, endpoint=True, dtype=NUMPY[dtype])
    else:
        values = random(rng, dtype, count, -100, 100)
    special = special_values(dtype)
    for k, at in enumerate(range(0, count, 5)):
        values[at] = special[k % len(special)]
    return values.reshape(shape)


# ---- tolerances

EXACT = {"rel": 0, "abs": 0}
ANY_ZERO = {"rel": 0, "abs": 0, "any_zero": True}


def ulps(dtype, count, absolute=0.0):
    """`count` units in the last place, f16 and bf16 always one: they are computed in f32 and rounded.

    Results below the smallest normal number of the type of computation may be flushed to zero.
    """
    if dtype == "c64":
        return {"rel": count * 2.0**-23, "abs": max(absolute, 2.0**-126)}
    rel = 2.0 ** (1 - PRECISION[dtype]) * (count if dtype in ("f32", "f64") else 1)
    floor = {"f16": 2.0**-24, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}[dtype]
    return {"rel": rel, "abs": max(absolute, floor)}


def unit(dtype):
    """The rounding step at 1 of the type in which sums of this dtype are accumulated (f32 for f16 and bf16)."""
    return 2.0**-52 if dtype == "f64" else 2.0**-23


def sum_tolerance(dtype, terms, magnitude):
    """A sum of `terms` values whose absolute values add up to `magnitude`, in any order; then one rounding."""
    if dtype in INTS:
        return EXACT
    absolute = float(max(terms, 1)) * unit(dtype) * float(magnitude)
    return ulps(dtype, 1, absolute)


# ---- samples


def tensor(x):
    x = np.asarray(x)
    return {"dtype": NAMES[x.dtype], "shape": list(x.shape), "data": x.tobytes().hex()}


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def sample(identifier, inputs, outputs, tol, note, **attrs):
    """One line of a file. `tol` is one tolerance for all outputs or a list."""
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    tol = tol if isinstance(tol, list) else [tol] * len(outputs)
    return {
        "id": identifier,
        "op": identifier.split("/")[0],
        "attrs": {k: plain(v) for k, v in attrs.items()},
        "inputs": [tensor(x) for x in inputs],
        "outputs": [tensor(y) for y in outputs],
        "tol": tol,
        "note": note,
    }
