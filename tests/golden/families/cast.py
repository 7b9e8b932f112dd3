"""cast between every two of the 14 dtypes."""

import numpy as np

from .core import (
    ALL,
    EXACT,
    F8,
    FLOATS as COMPUTED,
    INTS,
    LARGEST,
    NAMES,
    NUMPY,
    PRECISION,
    any_bits,
    array,
    denormals,
    random,
    rng_of,
    round_float,
    sample,
    special_values,
)


FLOATS = COMPUTED + F8


def to_integer(x, to):
    """Truncates toward zero, saturates, NaN gives 0."""
    info = np.iinfo(NUMPY[to])

    def one(v):
        if np.isnan(v):
            return 0
        if np.isinf(v):
            return info.max if v > 0 else info.min
        return min(max(int(v), info.min), info.max)

    return np.array([one(float(v)) for v in x.ravel()], NUMPY[to]).reshape(x.shape)


def integer_to_float(x, to):
    """Every integer is exact in an 80-bit real, so this rounds once."""
    return round_float(to, x.astype(np.longdouble))


def cast(x, to):
    source = NAMES[x.dtype]
    if source == to:
        return x
    if to == "bool":
        return x != 0
    if to == "c64":
        real = x if source in FLOATS else x.astype(np.longdouble)
        return round_float("f32", real.astype(np.longdouble)).astype(NUMPY["c64"])
    if source == "c64":
        return cast(x.real, to)
    if to in FLOATS:
        return (
            round_float(to, x.astype(np.float64)) if source in FLOATS else integer_to_float(x, to)
        )
    return to_integer(x, to) if source in FLOATS else x.astype(NUMPY[to])


NOTES = {
    "float-int": "truncates toward zero, saturates; NaN gives 0",
    "int-int": "wraps",
    "other": "see the doc of cast",
}


def kind(source, to):
    if to in INTS and source in FLOATS + ["c64"]:
        return "float-int"
    return "int-int" if source in INTS and to in INTS else "other"


def rounding():
    """Cases in which rounding twice (through f32 or f64) gives another result than rounding once."""
    f64 = [
        1 + 2.0**-11 + 2.0**-40,
        1 + 2.0**-8 + 2.0**-40,
        1 + 2.0**-11,
        1 + 3 * 2.0**-11,
        1 + 2.0**-8,
        1 + 3 * 2.0**-8,
        65519.999,
        65520.0,
        2.0**-25,
        2.0**-25 * 1.0000001,
        3.3961775e38,
        1 + 2.0**-24 + 2.0**-50,
        1e-46,
        1e-41,
    ]
    i64 = [
        2**60 + 2**36,
        2**60 + 2**36 + 1,
        2**53 + 1,
        2**53 + 3,
        -(2**60) - 2**36 - 1,
        2**24 + 1,
        2**63 - 1,
        2057,
    ]
    i32 = [
        2**24 + 1,
        2**24 + 3,
        2**30 + 2**22 + 1,
        -(2**30) - 2**22 - 1,
        2**31 - 1,
        257,
        2049,
        65519,
        65521,
    ]
    for source, values in (("f64", f64), ("i64", i64), ("i32", i32)):
        for to in COMPUTED:
            x = np.array(values, NUMPY[source])
            yield sample(
                f"cast/{source}/to-{to}-rounding",
                [x],
                cast(x, to),
                EXACT,
                "one rounding, not two",
                to=to,
            )
    x = array(
        "f32",
        [
            1 + 2.0**-11,
            1 + 3 * 2.0**-11,
            1 + 2.0**-8,
            1 + 3 * 2.0**-8,
            65519.996,
            65520.0,
            2.0**-25,
            3 * 2.0**-25,
            3.38e38,
            3.3961775e38,
            -3.4e38,
        ],
    )
    for to in ("f16", "bf16"):
        yield sample(
            f"cast/f32/to-{to}-rounding",
            [x],
            cast(x, to),
            EXACT,
            "ties to even, overflow to infinity",
            to=to,
        )


def turning_points(to, source):
    """In the source's dtype: every finite number of an f8, the halfway points between neighbours and what lies next to
    those. Behind the largest number follows the one that a wider exponent would have."""
    codes = np.arange(256, dtype=np.uint8).view(NUMPY[to]).astype(np.float64)
    steps = np.unique(codes[np.isfinite(codes)])
    ulp = 2.0 ** (np.floor(np.log2(LARGEST[to])) - PRECISION[to] + 1)
    steps = np.concatenate([steps, [LARGEST[to] + ulp, -LARGEST[to] - ulp]])
    steps.sort()
    halves = round_float(source, (steps[1:] + steps[:-1]) / 2)
    around = [np.nextafter(halves, array(source, v)) for v in (np.inf, -np.inf)]
    special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, LARGEST[source], -LARGEST[source]]
    return np.concatenate([round_float(source, steps), halves, *around, array(source, special)])


def f8():
    """All 256 codes to every dtype; from every dtype what lies at and around the points where rounding turns."""
    for f8 in F8:
        codes = np.arange(256, dtype=np.uint8).view(NUMPY[f8])
        for to in ALL:
            yield sample(f"cast/{f8}/to-{to}-codes", [codes], cast(codes, to), EXACT, "all codes", to=to)
        note = "one rounding, ties to even; overflow, subnormals"
        for source in COMPUTED:
            x = np.concatenate([turning_points(f8, source), denormals(source)])
            yield sample(f"cast/{source}/to-{f8}-halves", [x], cast(x, f8), EXACT, note, to=f8)
        x = turning_points(f8, "f32").astype(NUMPY["c64"])
        yield sample(f"cast/c64/to-{f8}-halves", [x], cast(x, f8), EXACT, note, to=f8)
        points = turning_points(f8, "f64")
        whole = [int(v) for v in points[np.isfinite(points)] if v == np.floor(v) and abs(v) < 2**53]
        whole = sorted({v + d for v in whole for d in (-1, 0, 1)})
        for source in INTS:
            limits = np.iinfo(NUMPY[source])
            inside = [v for v in whole if limits.min <= v <= limits.max] + [limits.min, limits.max]
            x = np.array(inside, NUMPY[source])
            yield sample(f"cast/{source}/to-{f8}-halves", [x], cast(x, f8), EXACT, note, to=f8)


def samples():
    for source in ALL:
        for to in ALL:
            name = f"cast/{source}/to-{to}"
            rng = rng_of(name)
            note = NOTES[kind(source, to)]
            with np.errstate(all="ignore"):
                x = random(rng, source, (3, 7), -9, 9)
                yield sample(name, [x], cast(x, to), EXACT, note, to=to)
                values = array(source, special_values(source))
                if source in FLOATS:
                    top = LARGEST[source]
                    values = np.concatenate(
                        [
                            values,
                            array(
                                source,
                                [
                                    0.99,
                                    -0.99,
                                    127.5,
                                    128,
                                    -129,
                                    255.9,
                                    256,
                                    3e4,
                                    3e9,
                                    -3e9,
                                    1e19,
                                    top,
                                    -top,
                                ],
                            ),
                            denormals(source)[::3],
                        ]
                    )
                elif source in INTS:
                    values = np.concatenate([values, any_bits(rng, source, (12,))])
                yield sample(
                    f"{name}-special", [values], cast(values, to), EXACT, f"limits; {note}", to=to
                )
        x = np.zeros((0, 2), NUMPY[source])
        yield sample(f"cast/{source}/empty", [x], cast(x, "f32"), EXACT, "no elements", to="f32")
        x = array(source, 1)
        yield sample(f"cast/{source}/rank0", [x], cast(x, "f32"), EXACT, "rank 0", to="f32")
    with np.errstate(all="ignore"):
        yield from rounding()
        yield from f8()
