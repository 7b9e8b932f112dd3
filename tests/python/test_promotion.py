"""Promotion: the whole table, for arrays, numbers of Python and scalars of NumPy, eager and traced."""

import enum
import itertools
import pathlib

import ml_dtypes
import numpy as np
import pytest

import rlx

# Row and column give the dtype of two arrays that meet. The same table stands in docs/python.md.
TABLE = """
         bool  u8  i8  i16 u32 i32 i64 f16 bf16 f32 f64 c64
    bool bool  u8  i8  i16 u32 i32 i64 f16 bf16 f32 f64 c64
    u8   u8    u8  i16 i16 u32 i32 i64 f16 bf16 f32 f64 c64
    i8   i8    i16 i8  i16 i64 i32 i64 f16 bf16 f32 f64 c64
    i16  i16   i16 i16 i16 i64 i32 i64 f16 bf16 f32 f64 c64
    u32  u32   u32 i64 i64 u32 i64 i64 f16 bf16 f32 f64 c64
    i32  i32   i32 i32 i32 i64 i32 i64 f16 bf16 f32 f64 c64
    i64  i64   i64 i64 i64 i64 i64 i64 f16 bf16 f32 f64 c64
    f16  f16   f16 f16 f16 f16 f16 f16 f16 f32  f32 f64 c64
    bf16 bf16  bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64 c64
    f32  f32   f32 f32 f32 f32 f32 f32 f32 f32  f32 f64 c64
    f64  f64   f64 f64 f64 f64 f64 f64 f64 f64  f64 f64 c64
    c64  c64   c64 c64 c64 c64 c64 c64 c64 c64  c64 c64 c64
"""
SHORT = dict(
    bool="bool", u8="uint8", i8="int8", i16="int16", u32="uint32", i32="int32", i64="int64", f16="float16",
    bf16="bfloat16", f32="float32", f64="float64", c64="complex64",
)  # fmt: skip


def read(text):
    head, *rows = [line.split() for line in text.strip().splitlines()]
    return {(row[0], name): value for row in rows for name, value in zip(head, row[1:], strict=True)}


PAIRS = read(TABLE)
DTYPES = list(SHORT)
# What a number becomes beside an array of a dtype: the array's dtype if that can hold its kind, else this.
KINDS = {
    "bool": 0,
    "u8": 1,
    "i8": 1,
    "i16": 1,
    "u32": 1,
    "i32": 1,
    "i64": 1,
    "f16": 2,
    "bf16": 2,
    "f32": 2,
    "f64": 2,
    "c64": 3,
}
ALONE = ["bool", "i64", "f32", "c64"]


def beside(array, kind):
    return array if kind <= KINDS[array] else ALONE[kind]


NUMBERS = [(True, 0), (3, 1), (0.5, 2), (2j, 3)]
SCALARS = [(np.bool_(True), 0)]
SCALARS += [(t(3), 1) for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)]
SCALARS += [(t(0.5), 2) for t in (np.float16, np.float32, np.float64, np.longdouble, ml_dtypes.bfloat16)]
SCALARS += [(np.complex64(2j), 3), (np.complex128(2j), 3)]


@pytest.fixture(autouse=True)
def on_the_reference():
    """Types do not depend on the backend, and this one compiles nothing."""
    with rlx.use_backend("reference"):
        yield


def ones(short):
    return rlx.ones(2, SHORT[short])


def test_the_table_is_that_of_the_docs():
    docs = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
    block = docs.read_text().split("<!-- promotion -->")[1].split("```")[1]
    assert read(block) == PAIRS
    for a, b in itertools.product(DTYPES, DTYPES):
        assert PAIRS[a, b] == PAIRS[b, a]


def test_float8_is_the_narrowest_float():
    for f8 in ("float8_e4m3fn", "float8_e5m2"):
        for other in DTYPES:
            wins = f8 if KINDS[other] < 2 else SHORT[other]
            x, y = rlx.ones(2, f8), ones(other)
            assert rlx.concatenate([x, y]).dtype == rlx.concatenate([y, x]).dtype == wins, other
    assert rlx.concatenate([rlx.ones(2, "float8_e4m3fn"), rlx.ones(2, "float8_e5m2")]).dtype == "float32"


@pytest.mark.parametrize("a", DTYPES)
def test_arrays(a):
    for b in DTYPES:
        expected = SHORT[PAIRS[a, b]]
        x, y = ones(a), ones(b)
        mask = rlx.array([True, False])
        assert rlx.where(mask, x, y).dtype == expected, (a, b)
        assert rlx.concatenate([x, y]).dtype == expected, (a, b)
        assert rlx.array([x, y]).dtype == expected, (a, b)
        assert rlx.array([x, np.asarray(y)]).dtype == expected, (a, b)
        assert str(rlx.jit(lambda x, y: rlx.where(mask, x, y)).graph(x, y).value.outputs[0][0]) == PAIRS[a, b]
        if PAIRS[a, b] != "bool":
            assert (x + y).dtype == expected and (np.asarray(x) + y).dtype == expected, (a, b)
            assert rlx.jit(lambda x, y: x + y)(x, y).dtype == expected, (a, b)
            assert (x[0] + y).dtype == (x + y[0]).dtype == expected, (a, b)  # an array of one element is none the weaker
        same_class = KINDS[a] == KINDS[b] or "bool" in (a, b)
        if same_class and "bf16" not in (a, b):
            assert np.result_type(SHORT[a], SHORT[b]) == expected, "the table is NumPy's where kinds do not mix"


@pytest.mark.parametrize("a", DTYPES)
def test_numbers_and_scalars_are_weak(a):
    x = ones(a)
    mask = rlx.array([True, False])
    for number, kind in NUMBERS + SCALARS:
        expected = SHORT[PAIRS[a, beside(a, kind)]]
        about = (a, number, type(number))
        assert rlx.where(mask, x, number).dtype == expected, about
        assert rlx.where(mask, number, x).dtype == expected, about
        assert rlx.array([x, [number, number]]).dtype == expected, about
        assert rlx.array([x[0], number]).dtype == expected, about
        if expected == "bool":
            continue
        assert (x + number).dtype == expected and (number + x).dtype == expected, about
        assert isinstance(number + x, rlx.Array)


@pytest.mark.parametrize("a", DTYPES)
def test_numbers_handed_to_a_traced_function_stay_weak(a):
    x = ones(a)
    add, mask = rlx.jit(lambda x, s: x + s), rlx.array([True, False])
    choose = rlx.jit(lambda x, s: rlx.where(mask, x, s))
    for number, kind in NUMBERS + [s for s in SCALARS if type(s[0]) in (np.int8, np.float64, np.bool_)]:
        expected = SHORT[PAIRS[a, beside(a, kind)]]
        about = (a, number, type(number))
        assert choose(x, number).dtype == expected, about
        if expected == "bool":
            continue
        assert add(x, number).dtype == expected, about
        np.testing.assert_array_equal(np.asarray(add(x, number)), np.asarray(x + number))


def test_what_stands_for_a_number_keeps_its_digits():
    x = rlx.ones(2, "float64")
    f = rlx.jit(lambda x, s: (x * s, x * (s + 1) / 3, x * -s, x * (1 / s), (s > 0) & (x > 0)))
    for got, wanted in zip(f(x, 0.1), (0.1, (0.1 + 1) / 3, -0.1, 1 / 0.1, True)):
        assert got.tolist() == [wanted] * 2
    assert rlx.jit(lambda x, n: x * (n / 3))(x, 1).tolist() == [1 / 3] * 2
    assert rlx.jit(lambda s: s)(0.1).dtype == "float32" and rlx.jit(lambda s: s)(3).dtype == "int64"
    assert rlx.jit(lambda s: rlx.sin(s))(0.1).dtype == rlx.sin(0.1).dtype == "float32"
    half = rlx.ones(2, "float16")
    assert rlx.jit(lambda x, s: x * (s * 2 + 1) ** 2 - abs(s))(half, 0.5).dtype == "float16"
    assert rlx.jit(lambda x, s: rlx.jit(lambda y, t: y * t)(x, s))(half, 0.5).dtype == "float16"
    assert rlx.vmap(lambda x, s: x * s, (0, None))(half, 0.5).dtype == "float16"
    assert rlx.grad(lambda x, s: (x * s).sum())(half, 0.5).dtype == "float16"
    assert rlx.grad(lambda x, s: (x * s).sum(), 1)(half, 0.5).dtype == "float16"
    assert rlx.grad(lambda s: s * s)(3.0).dtype == "float32"
    assert rlx.jit(lambda s: rlx.grad(lambda t: t * t)(s))(3.0).dtype == "float32"
    assert rlx.jit(lambda x, i: x[i])(rlx.arange(5), 3).item() == 3
    assert rlx.cast(0.1, to="float64").item() == 0.1 and rlx.jit(lambda s: s.astype("float64"))(0.1).item() == 0.1
    calls = []
    g = rlx.jit(lambda x, s: calls.append(1) or x * s)
    assert [g(x, s).tolist()[0] for s in (0.1, 0.2, 0.3)] == [0.1, 0.2, 0.3] and len(calls) == 1
    g(x, rlx.array(0.1, "float64")), g(x, 1)  # an array, and a number of another kind: other programs
    assert len(calls) == 3


def test_numbers_alone_have_their_own_dtypes():
    for number, short in [(True, "bool"), (2, "i64"), (0.5, "f32"), (1j, "c64"), (np.float64(0.5), "f64"),
                          (np.int8(1), "i8"), (np.float16(1), "f16"), (ml_dtypes.bfloat16(1), "bf16")]:  # fmt: skip
        assert rlx.array(number).dtype == SHORT[short] and rlx.array([number]).dtype == SHORT[short]
        assert rlx.full((2,), number).dtype == SHORT[short]
    assert rlx.add(np.float64(1), 2).dtype == "float64" and rlx.add(1, 2.5).dtype == "float32"
    assert rlx.array([np.float64(0.1), 1]).tolist() == [0.1, 1.0]
    assert rlx.array([[True, 2], [3.5, 1]]).dtype == "float32"
    assert rlx.array([np.array([0.1])]).dtype == "float64"  # an array is never weak, in a list neither


def test_lists_of_numbers_and_arrays():
    half = rlx.ones(2, "float16")
    made = rlx.array([[1, 2.5], half])
    assert made.dtype == "float16" and made.tolist() == [[1, 2.5], [1, 1]]
    assert rlx.jit(lambda x: rlx.array([x[0], 7, x[1]]))(half).tolist() == [1, 7, 1]
    assert rlx.jit(lambda x: rlx.array([x[0], 7.5]))(rlx.array([3, 4])).tolist() == [3, 7.5]
    assert rlx.jit(lambda x, s: rlx.array([x[0], s]))(half, 7.5).dtype == "float16"
    assert rlx.array([rlx.array(1), 2.5], "float64").dtype == "float64"
    assert rlx.stack([half, np.zeros(2)]).dtype == "float64"
    with pytest.raises(rlx.Error):
        rlx.array([rlx.ones(2), rlx.ones(3)])


def test_carries_accept_numbers():
    xs = rlx.array(np.arange(4, dtype=np.float16))
    last, _ = rlx.scan(lambda c, x: (c + x, None), 0, xs)
    assert last.dtype == "float16" and last.item() == 6
    last, seen = rlx.scan(lambda c, x: ({"n": c["n"] + 1, "s": c["s"] * 0.5 + x}, c["n"]), {"n": 0, "s": 1}, xs)
    assert last["n"].dtype == "int64" and last["n"].item() == 4 and last["s"].dtype == "float16"
    assert seen.tolist() == [0, 1, 2, 3]
    assert rlx.scan(lambda c, _: (c * 0.5, None), 1, length=3)[0].item() == 0.125
    assert rlx.scan(lambda c, _: (c * 0.5, None), np.float64(1), length=3)[0].dtype == "float32"
    assert rlx.jit(lambda s, xs: rlx.scan(lambda c, x: (c + x, None), s, xs)[0])(1, xs).dtype == "float16"
    assert rlx.scan(lambda c, x: (0.0, c), xs[0], xs)[1].dtype == "float16"
    loop = rlx.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + xs.sum()), (0, 0))
    assert loop[0].dtype == "int64" and loop[1].dtype == "float16" and loop[1].item() == 18
    for wrong in (lambda c, x: (0.5, None), lambda c, x: (c + x, None)):  # an array keeps its dtype
        with pytest.raises(rlx.Error):
            rlx.scan(wrong, rlx.array(0), xs)
    double = rlx.ones((), "float64")
    for p in (True, False):
        for f in (
            lambda p: rlx.cond(p, lambda: 0.1, lambda: double),
            lambda p: rlx.cond(p, lambda: double, lambda: 0.1),
        ):
            for g in (f, rlx.jit(f)):
                assert g(p).dtype == "float64" and g(p).item() in (1.0, 0.1)
        assert rlx.cond(p, lambda: 1, lambda: 2.5).dtype == "float32"
        assert rlx.cond(p, lambda s: s * xs, lambda s: xs, 0.5).dtype == "float16"
        assert rlx.cond(p, lambda s: s, lambda s: double, 0.1).item() == (0.1 if p else 1.0)
        assert rlx.jit(lambda p, s: rlx.cond(p, lambda: s * xs, lambda: xs))(p, 0.5).dtype == "float16"
    with pytest.raises(rlx.Error):
        rlx.cond(True, lambda: rlx.array(1), lambda: rlx.array(2.5))


def test_numbers_that_do_not_fit_raise():
    for number in (300, -1, np.int64(300), np.uint64(2**63)):
        with pytest.raises(rlx.Error) as e:
            rlx.ones(2, "uint8") + number
        assert e.value.code == "scalar-range"
    with pytest.raises(rlx.Error, match="64 bits"):
        rlx.ones(2, "int32") + 2**70


def test_division_and_functions_of_integers_are_float32():
    for a in ("u8", "i8", "i16", "u32", "i32", "i64"):
        x = ones(a)
        assert (x / x).dtype == (x / 2).dtype == (2 / x).dtype == rlx.sqrt(x).dtype == "float32"
        assert x.mean().dtype == x.std().dtype == rlx.sin(x).dtype == rlx.jit(rlx.exp)(x).dtype == "float32"
        assert (x / np.float64(2)).dtype == "float32" and (x / rlx.ones(2, "float64")).dtype == "float64"
    big = rlx.array([2**40, 2**40 + 2, 2**40 + 4])
    assert big.std().item() == pytest.approx(np.std([0, 2, 4]), rel=1e-6)


class Level(enum.IntEnum):
    LOW = 2


class Metres(float):
    pass


class Phase(complex):
    pass


def test_what_is_derived_from_a_number_is_one():
    ints, floats = rlx.array(np.arange(3, dtype=np.int32)), rlx.array(np.ones(3, np.float16))
    for add in (lambda x, n: x + n, rlx.jit(lambda x, n: x + n)):
        assert add(ints, Level.LOW).dtype == "int32" and add(ints, Level.LOW).tolist() == [2, 3, 4]
        assert add(floats, Metres(0.5)).dtype == "float16" and add(floats, Metres(0.5)).tolist() == [1.5] * 3
        assert add(floats, Phase(1j)).dtype == "complex64"
    assert rlx.jit(lambda v: v)(Metres(1.5)).dtype == "float32"
    assert rlx.cond(True, lambda a: a + 1, lambda a: a, Level.LOW).item() == 3
    assert rlx.array([np.float32(1), Metres(1.5), Level.LOW]).tolist() == [1, 1.5, 2]
    with pytest.raises(rlx.UserError, match="64 bits"):
        ints + enum.IntEnum("Large", {"HUGE": 2**70}).HUGE
