"""Binary arithmetic, comparison and logic, with NumPy's broadcasting."""

import numpy as np

from .core import (
    ALL,
    ANY_ZERO,
    EXACT,
    FLOATS,
    INTS,
    LARGEST,
    NAMES,
    NUMBERS,
    REALS,
    array,
    any_bits,
    denormals,
    exact,
    narrow,
    random,
    rng_of,
    sample,
    special_values,
    ulps,
    wide,
)


def int_div(a, b):
    """Truncating; x / 0 is 0. The lowest value over -1 wraps (exact integers, narrowed later)."""
    quotient = [
        0 if q == 0 else (abs(p) // abs(q)) * (1 if (p < 0) == (q < 0) else -1)
        for p, q in zip(a, b)
    ]
    return quotient


def int_rem(a, b):
    return [0 if q == 0 else (abs(p) % abs(q)) * (-1 if p < 0 else 1) for p, q in zip(a, b)]


def int_pow(a, b):
    def one(p, q):
        if q < 0:
            return 1 if p == 1 else (-1 if q % 2 else 1) if p == -1 else 0
        return pow(p, q, 2**64)

    return [one(p, q) for p, q in zip(a, b)]


INTEGER = {
    "add": lambda a, b: [p + q for p, q in zip(a, b)],
    "sub": lambda a, b: [p - q for p, q in zip(a, b)],
    "mul": lambda a, b: [p * q for p, q in zip(a, b)],
    "div": int_div,
    "rem": int_rem,
    "pow": int_pow,
    "maximum": lambda a, b: [max(p, q) for p, q in zip(a, b)],
    "minimum": lambda a, b: [min(p, q) for p, q in zip(a, b)],
}
FLOATING = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
LOGICAL = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}

BROADCASTS = [
    ((4, 5), (4, 5)),
    ((3, 4), (4,)),
    ((2, 1, 3), (4, 1)),
    ((), (5,)),
    ((1,), (0,)),
    ((0, 3), (1, 3)),
    ((), ()),
]


def wrapped(dtype, values, shape):
    """Exact integers modulo 2^bits, as the dtype."""
    bits = np.iinfo(dtype).bits
    unsigned = np.array([v % 2**bits for v in values], np.uint64).reshape(shape)
    return unsigned.astype(f"<u{bits // 8}").view(dtype)


def integer(name, a, b):
    p, q = np.broadcast_arrays(a, b)
    values = INTEGER[name]([int(v) for v in p.ravel()], [int(v) for v in q.ravel()])
    return wrapped(a.dtype, values, p.shape)


def evaluate(name, a, b):
    dtype = NAMES[a.dtype]
    if dtype in INTS:
        return integer(name, a, b)
    widen = wide if name == "pow" or dtype == "c64" else exact
    with np.errstate(all="ignore"):
        return narrow(dtype, FLOATING[name](widen(a), widen(b)))


def tolerance(name, dtype):
    if name == "pow" and dtype in FLOATS:
        return ulps(dtype, 16)  # exp(b log a) loses as many bits as b log a has before the point
    if dtype == "c64" and name in ("mul", "div"):
        return ulps(dtype, 4)
    return ANY_ZERO if name in ("maximum", "minimum") else EXACT


def operands(name, dtype, identifier, shapes):
    rng = rng_of(identifier)
    if name == "pow":
        low = 0.1 if dtype in FLOATS else -3
        return random(rng, dtype, shapes[0], low, 6), random(
            rng, dtype, shapes[1], 0 if dtype in INTS else -3, 3
        )
    return random(rng, dtype, shapes[0], -20, 20), random(rng, dtype, shapes[1], -7, 7)


def all_pairs(dtype, values):
    values = array(dtype, values)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def special_cases(name, dtype, tol):
    if dtype == "c64":
        return
    a, b = all_pairs(dtype, special_values(dtype))
    note = (
        "all pairs of integer limits; sums wrap, x/0 is 0"
        if dtype in INTS
        else "all pairs of NaN, infinities, zeros"
    )
    if name == "pow" and dtype in INTS:
        a, b = all_pairs(
            dtype, [0, 1, 2, 3, 7, 100] if dtype[0] == "u" else [0, 1, -1, 2, -2, 3, 7, -100]
        )
        note = "wraps; a negative exponent gives 0 unless the base is 1 or -1"
    yield sample(f"{name}/{dtype}/special", [a, b], evaluate(name, a, b), tol, note)
    if dtype in FLOATS and name != "pow":
        a, b = denormals(dtype), array(dtype, [1, 2, 0.5, -1, 3, 1, 1, 1.5, -2, 0.5, 1, 4])
        yield sample(
            f"{name}/{dtype}/denormal", [a, b], evaluate(name, a, b), tol, "denormals are kept"
        )
        top = LARGEST[dtype]
        a, b = array(dtype, [top, top, -top, top / 2, top]), array(dtype, [top, -top, top, 0.25, 1])
        yield sample(
            f"{name}/{dtype}/extreme",
            [a, b],
            evaluate(name, a, b),
            tol,
            "overflow gives an infinity",
        )
    if name == "rem" and dtype in ("f32", "f64"):
        a, b = array(dtype, [1e10, -1e10, 123456.789, 1e30, 5.5, -5.5]), array(
            dtype, [3.7, 0.3, 1e-3, 7.0, np.inf, 2.75]
        )
        yield sample(
            f"rem/{dtype}/large",
            [a, b],
            evaluate(name, a, b),
            tol,
            "large quotients; fmod is exact",
        )


def arithmetic():
    for name in FLOATING:
        for dtype in NUMBERS if name in ("add", "sub", "mul", "div") else REALS:
            tol = tolerance(name, dtype)
            for n, shapes in enumerate(BROADCASTS):
                identifier = f"{name}/{dtype}/broadcast-{n}"
                a, b = operands(name, dtype, identifier, shapes)
                if name == "div" and dtype == "c64":
                    b = b + np.complex64(0.5)
                yield sample(identifier, [a, b], evaluate(name, a, b), tol, f"shapes {shapes}")
            yield from special_cases(name, dtype, tol)
            if dtype == "f32":
                identifier = f"{name}/f32/long"
                a, b = operands(name, dtype, identifier, ((131,), (131,)))
                yield sample(
                    identifier, [a, b], evaluate(name, a, b), tol, "several vectors and a tail"
                )


@np.errstate(invalid="ignore")
def compared(function, a, b):
    return function(a, b)


def comparisons():
    for name, function in COMPARE.items():
        for dtype in ALL if name in ("eq", "ne") else REALS + ["bool"]:
            for n, shapes in enumerate(BROADCASTS[:5]):
                identifier = f"{name}/{dtype}/broadcast-{n}"
                rng = rng_of(identifier)
                a, b = random(rng, dtype, shapes[0], -2, 2), random(rng, dtype, shapes[1], -2, 2)
                if a.size > 2 and a.shape == b.shape:
                    b.flat[::2] = a.flat[::2]
                yield sample(
                    identifier,
                    [a, b],
                    compared(function, a, b),
                    EXACT,
                    f"shapes {shapes}; some are equal",
                )
            a, b = all_pairs(dtype, special_values(dtype))
            yield sample(
                f"{name}/{dtype}/special",
                [a, b],
                compared(function, a, b),
                EXACT,
                "all pairs of special values",
            )


def logic():
    for name, function in LOGICAL.items():
        a, b = np.array([[False, False], [True, True]]), np.array([False, True])
        yield sample(
            f"{name}/bool/table", [a, b], function(a, b), EXACT, "truth table by broadcasting"
        )
        rng = rng_of(name)
        a, b = any_bits(rng, "bool", (3, 1, 17)), rng.random((2, 1)) < 0.5
        yield sample(
            f"{name}/bool/broadcast-0", [a, b], function(a, b), EXACT, "shapes ((3, 1, 17), (2, 1))"
        )
        a, b = np.zeros((0, 2), bool), np.array(True)
        yield sample(f"{name}/bool/empty", [a, b], function(a, b), EXACT, "no elements")


def samples():
    yield from arithmetic()
    yield from comparisons()
    yield from logic()
