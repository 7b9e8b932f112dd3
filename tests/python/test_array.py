"""rlx.Array: to and from NumPy, operators, indexing, conversions."""

import copy
import ctypes
import itertools
import operator
import pickle

import numpy as np
import pytest

import rlx

RNG = np.random.default_rng(7)
NUMPY_DTYPES = [
    "float32",
    "float16",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint32",
    "bool",
    "complex64",
]


def values(dtype, shape=(3, 4)):
    if dtype == "bool":
        a = RNG.integers(0, 2, shape)
    elif dtype == "complex64":
        a = RNG.normal(size=shape) + 1j * RNG.normal(size=shape)
    else:
        a = RNG.integers(0, 100, shape) if "int" in dtype else RNG.normal(size=shape)
    return np.asarray(a).astype(dtype)


def same(x, expected):
    x = np.asarray(x)
    assert x.dtype == expected.dtype and x.shape == expected.shape
    np.testing.assert_array_equal(x, expected)


# ---- in and out


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 4), (2, 0, 3), (2, 3, 4)])
def test_round_trip(dtype, shape):
    a = values(dtype, shape)
    x = rlx.array(a)
    assert x.shape == shape and x.dtype == a.dtype and x.dtype == dtype and x.size == a.size
    same(x, a)
    same(x.numpy(), a)
    same(np.asarray(memoryview(x)), a)
    same(np.array(x, copy=True), a)
    assert not x.numpy().flags.writeable
    a[...] = 0  # the array has a copy
    assert x.tolist() == x.numpy().tolist()


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_any_layout_and_byte_order(dtype):
    a = values(dtype, (4, 6))
    frozen = a.copy()
    frozen.flags.writeable = False
    for view in (
        a.T,
        a[::2, ::-1],
        a[:, 1:2],
        np.asfortranarray(a),
        frozen,
        a[None, :, :][:, ::3],
        np.broadcast_to(a[:1], (5, 6)),
    ):
        same(rlx.array(view), np.array(view))
    big = a.astype(a.dtype.newbyteorder(">"))
    same(rlx.array(big), a)
    same(rlx.array(big[::2]), a[::2])


@pytest.mark.parametrize("dtype", ["uint16", "uint64", "complex128", "longdouble", "object", "U3", "S3", "M8[s]"])
def test_unsupported_dtypes_are_refused(dtype):
    a = np.zeros(3, dtype=dtype)
    with pytest.raises(rlx.Error, match="not supported") as e:
        rlx.array(a)
    assert e.value.code == "dtype" and isinstance(e.value, ValueError)
    with pytest.raises((rlx.Error, TypeError)):
        rlx.add(a, 1)


def test_a_safe_conversion_may_be_asked_for():
    same(rlx.array(np.array([1, 65535], "uint16"), "i32"), np.array([1, 65535], "int32"))
    with pytest.raises(rlx.Error):
        rlx.array(np.array([1], "uint64"), "i64")


def test_numbers_and_lists():
    assert rlx.array(1.5).dtype == "f32" and rlx.array([1, 2]).dtype == "i64" and rlx.array(True).dtype == "bool"
    assert rlx.array(1j).dtype == "c64" and rlx.array([]).shape == (0,)
    assert rlx.array([0.1], "f64").item() == 0.1
    assert rlx.array(np.float64(0.1)).dtype == "f64"
    with pytest.raises(rlx.Error, match="fit"):
        rlx.array([300], "uint8")
    with pytest.raises(rlx.Error):
        rlx.array([2**64])
    with pytest.raises(rlx.Error):
        rlx.array("text")
    with pytest.raises(rlx.Error):
        rlx.array(None)
    with pytest.raises(rlx.Error, match="mask"):
        rlx.array(np.ma.masked_array([1.0, 2.0], [True, False]))
    same(rlx.array([rlx.array([1.0]), [2.0]]), np.array([[1], [2]], "float32"))


def test_bfloat16():
    x = rlx.array([1.0, 3.140625, -2.5e38, float("inf")]).astype("bf16")
    assert x.dtype == "bfloat16" and x.dtype.itemsize == 2 and x.nbytes == 8
    wide = np.array([1.0, 3.140625, -2.5e38, np.inf], np.float32)
    np.testing.assert_allclose(np.asarray(x).astype(np.float32), wide, rtol=2**-8)
    np.testing.assert_array_equal(x.astype("f32").numpy(), x.numpy().astype(np.float32))
    same(x[1:3].astype("f32"), x.astype("f32").numpy()[1:3])
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
    with pytest.raises(BufferError):
        memoryview(x)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = np.array([1.5, -3], ml_dtypes.bfloat16)
    assert rlx.array(a).dtype == "bf16" and np.asarray(rlx.array(a)).dtype == a.dtype
    assert rlx.array(a).tolist() == [1.5, -3]


@pytest.mark.parametrize(("name", "code"), [("float8_e4m3fn", 10), ("float8_e5m2", 12)])
def test_float8(name, code):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    theirs = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(256, dtype=np.uint8)
    a = codes.view(theirs)
    x = rlx.array(a)
    assert x.dtype == name == theirs and getattr(rlx, name) is x.dtype and x.nbytes == 256
    assert np.asarray(x).dtype == theirs
    np.testing.assert_array_equal(np.asarray(x).view(np.uint8), codes)
    wide = x.astype("float32").numpy()
    np.testing.assert_array_equal(wide, a.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(rlx.array(wide).astype(name)).view(np.uint8), wide.astype(theirs).view(np.uint8))
    moved = rlx.concatenate([x.reshape(16, 16).T[2:5], x[:16].reshape(1, 16)])
    expected = np.concatenate([a.reshape(16, 16).T[2:5], a[:16].reshape(1, 16)])
    np.testing.assert_array_equal(moved.astype("float32").numpy(), expected.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(x))).view(np.uint8), codes)
    assert list(dlpack_tensor(x.__dlpack__()).dtype) == [code, 8, 1, 0]
    np.testing.assert_array_equal(np.asarray(rlx.from_dlpack(x)).view(np.uint8), codes)
    assert rlx.array(theirs.type(0.5)).dtype == name and rlx.array([0.5, 2.0], name).tolist() == [0.5, 2.0]
    assert repr(rlx.ones(2, name)) == f"rlx.Array([1, 1], dtype={name})"
    assert (x * rlx.ones(256)).dtype == "float32" and rlx.where(x == x, x, 0).dtype == name
    with pytest.raises(BufferError, match=name):
        memoryview(x)
    for f in (lambda x: x + 1, rlx.exp, lambda x: x @ x, rlx.sort):
        with pytest.raises(rlx.Error) as e:
            f(x)
        assert e.value.code == "dtype"
    with pytest.raises(rlx.Error, match="only floats"):
        rlx.grad(lambda x: x.astype("float32").sum())(x)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_dlpack(dtype):
    a = values(dtype, (3, 5))
    x = rlx.array(a)
    same(np.from_dlpack(x), a)
    assert x.__dlpack_device__() == (1, 0)
    same(rlx.from_dlpack(a), a)
    same(rlx.from_dlpack(a[::2, ::-1]), a[::2, ::-1])
    same(rlx.from_dlpack(a.T), a.T)
    same(rlx.from_dlpack(x), a)
    with pytest.raises(rlx.Error):
        rlx.from_dlpack(3)


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64", "bool"])
def test_dlpack_of_any_strides(dtype):
    a = values(dtype, (6, 7))
    width = a.itemsize
    cases = [a[::-1], a[:, ::-1], a[::-1, ::-1], a[1::2], a[:, 2:3], a[2:3, ::3], a[:0], a[:, :0].T]
    cases += [a[3], a[:, 3], a[::-1, 3], a[2:3, 2].reshape(())]
    for shape, strides in (  # elements that are read more than once
        ((5, 7), (0, width)), ((6, 5), (7 * width, 0)), ((2, 3, 4), (0, 0, 0)), ((4, 3), (width, width)),
        ((3, 4), (width, 2 * width)), ((2, 3, 7), (7 * width, 7 * width, width)), ((3, 1, 4), (4 * width, 0, width)),
        ((3, 1, 4), (4 * width, 99 * width, width)),
    ):  # fmt: skip
        cases.append(np.lib.stride_tricks.as_strided(a, shape, strides))
    for view in cases:
        same(rlx.from_dlpack(view), np.array(view))
        same(rlx.array(view), np.array(view))


def test_writing_through_dlpack_changes_no_array():
    x = rlx.array([1.0, 2.0, 3.0])
    view = np.from_dlpack(x)
    if view.flags.writeable:
        view[0] = 99
    assert x.tolist() == [1, 2, 3]
    # Some readers write whatever the capsule's flags say, and plain capsules have none: they get bytes of their own.
    for options in ({}, {"max_version": (1, 0)}, {"copy": True}, {"copy": None, "stream": None, "dl_device": (1, 0)}):
        capsule = x.__dlpack__(**options)
        tensor = dlpack_tensor(capsule)
        assert tensor.data != x._address and tensor.ndim == 1 and tensor.shape[0] == 3
        ctypes.cast(tensor.data, ctypes.POINTER(ctypes.c_float))[0] = 99.0
        assert x.tolist() == [1, 2, 3]
    with pytest.raises(BufferError, match="immutable"):
        x.__dlpack__(copy=False)
    with pytest.raises(rlx.Error):
        rlx.jit(lambda x: x.__dlpack__() and x)(x)
    assert rlx.from_dlpack(rlx.ones(3, "bfloat16")).dtype == "bfloat16"


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.POINTER(ctypes.c_int64))]  # fmt: skip


def dlpack_tensor(capsule):
    """What a capsule of DLPack points to, of either version."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    if "dltensor_versioned" in repr(capsule):  # version, context, deleter and flags come first
        return DLTensor.from_address(pointer(capsule, b"dltensor_versioned") + 32)
    return DLTensor.from_address(pointer(capsule, b"dltensor"))


def test_keys_have_64_bits():
    assert rlx.key(0).tolist() == [0, 0] and rlx.key(2**64 - 1).tolist() == [2**32 - 1] * 2
    assert rlx.key(5 * 2**32 + 7).tolist() == [7, 5] == rlx.key(np.int64(5 * 2**32 + 7)).tolist()
    for seed in (2**64, 2**70, -1, -(2**70)):
        with pytest.raises(rlx.Error, match=r"from 0 to 2\*\*64 - 1") as e:
            rlx.key(seed)
        assert e.value.code == "scalar-range"
    for seed in (1.0, "1", None):
        with pytest.raises(TypeError):
            rlx.key(seed)


def test_repr_never_raises():
    kept = []
    rlx.jit(lambda x, s: kept.extend([x, x + 1, s]) or x)(rlx.ones((2, 3)), 0.5)
    with pytest.raises(ZeroDivisionError):
        rlx.jit(lambda x: kept.append(x * 2) or 1 / 0)(rlx.ones(2))
    assert [repr(x) for x in kept] == [f"rlx.Array(traced {t} f32)" for t in ("[2, 3]", "[2, 3]", "[]", "[2]")]
    assert kept[0].shape == (2, 3) and kept[1].dtype == "float32" and str(kept[0]) and f"{kept[0]}"
    symbolic = rlx.Graph("g").input("x", ("n", 2 * rlx.Dim("m")))
    for dtype in (*NUMPY_DTYPES, "bfloat16"):
        for shape in ((), (0,), (2, 0, 3), (3,), (1, 1, 1, 2), (1000, 1000)):
            assert repr(rlx.ones(shape, dtype)).startswith("rlx.Array(")
    wild = rlx.array([float("nan"), float("inf"), -float("inf"), 1e-45, 3e38, -0.0])
    for x in (wild, wild.astype("bfloat16"), wild.astype("float16"), symbolic, rlx.array([1 + 2j, complex("nan")])):
        assert repr(x).startswith("rlx.Array(") and str(x)
    g, other = rlx.Graph("g"), rlx.Graph("h")
    g.outputs = [other.input("x", (2,))]  # cannot be finished
    assert "unfinished" in repr(g) and repr(other).startswith("<rlx.Graph")
    for x in (
        rlx.float32,
        rlx.Dim("n"),
        rlx.jit(lambda x: x),
        rlx.jit(lambda x: x).graph(wild),
        rlx.compile(other_graph()),
    ):
        assert repr(x)


def other_graph():
    g = rlx.Graph("g")
    g.outputs = g.input("x", (2,)) * 2
    return g


def test_python_values():
    assert rlx.array(2.5).item() == 2.5 and float(rlx.array([3])) == 3.0 and int(rlx.array(7.9)) == 7
    assert bool(rlx.array([True])) and complex(rlx.array(1j)) == 1j and [10, 20, 30][rlx.array(1)] == 20
    for bad in (lambda: rlx.array([1, 2]).item(), lambda: bool(rlx.array([1.0, 2.0])), lambda: float(rlx.zeros(0))):
        with pytest.raises(rlx.Error, match="one element"):
            bad()
    with pytest.raises(TypeError):
        range(rlx.array(1.0))
    with pytest.raises(TypeError):
        hash(rlx.array(1))
    x = rlx.array([1.0, 2.0])
    for y in (copy.copy(x), copy.deepcopy([x])[0], x.copy()):  # which stay when x is donated
        assert y.tolist() == [1, 2] and y._address != x._address
    assert pickle.loads(pickle.dumps(x)).tolist() == [1, 2]
    assert [v.item() for v in x] == [1, 2] and len(x) == 2 and 2.0 in x and 5.0 not in x
    assert None not in x and "a" not in x and [1, 3] in x and [3, 1] not in x  # as in NumPy: any equal pair
    assert repr(x) == "rlx.Array([1., 2.], dtype=float32)"
    assert f"{rlx.array(1.25):.1f}" == "1.2"
    with pytest.raises(TypeError):
        len(rlx.array(1))
    with pytest.raises(TypeError):
        iter(rlx.array(1))
    with pytest.raises(TypeError):
        x[0] = 3


def test_dtype_objects():
    assert rlx.float32 == np.float32 == rlx.float32 and rlx.float32 == "f32" and rlx.float32 != "f64"
    assert {rlx.float32: 1}[rlx.dtype("float32")] == 1 and repr(rlx.int8) == "rlx.int8"
    assert np.zeros(2, rlx.int16.dtype).dtype == np.int16
    assert rlx.dtype(float) is rlx.float32 and rlx.dtype(np.dtype(">f4")) is rlx.float32
    with pytest.raises(rlx.Error, match="there is no dtype"):
        rlx.dtype("uint16")


def test_dtype_strings():
    ours = {"f32": "float32", "bf16": "bfloat16", "f64": "float64", "i16": "int16", "i32": "int32", "i64": "int64",
            "u32": "uint32", "bool": "bool", "c64": "complex64"}  # fmt: skip
    for short, name in ours.items():
        assert rlx.dtype(short) is rlx.dtype(name) and rlx.dtype(name) == short and rlx.zeros(1, short).dtype == name
    codes = (
        "f2 f4 f8 e f d i1 i2 i4 b h i q l u1 u4 B I ? c8 F <i8 >f4 =u1 float int single half double bool_ byte intp"
    )
    for code in codes.split():
        name = np.dtype(code).newbyteorder("=").name
        assert rlx.dtype(code).long_name == name and rlx.zeros(1, code).dtype == name, code
    for text, readings in {
        "i8": ("int8", "int64"),
        "u8": ("uint8", "uint64"),
        "f16": ("float16", "longdouble"),
    }.items():
        for use in (
            rlx.dtype,
            lambda t: rlx.zeros(2, t),
            lambda t: rlx.ones(2).astype(t),
            lambda t: rlx.cast(1.0, to=t),
            lambda t: rlx.array([1], t),
            lambda t: rlx.Graph("g").input("x", (2,), t),
            lambda t: rlx.float32 == t,
        ):
            with pytest.raises(rlx.Error) as e:
                use(text)
            assert e.value.code in ("dtype", "attribute") and all(name in e.value.message for name in readings)
    for x in (rlx.ones(2, "int8"), rlx.ones(2, "uint8"), rlx.ones(2, "float16")):
        assert pickle.loads(pickle.dumps(x)).dtype is pickle.loads(pickle.dumps(x.dtype)) is x.dtype
    g = rlx.Graph("g")  # the text has its own names
    g.outputs = [g.cast(g.input("x", (2,), "int8"), to="float16")]
    assert "i8" in str(g) and "f16" in str(g) and "int8" not in str(g) and rlx.parse(str(g)) == g
    assert g.inputs == [("x", rlx.int8, (2,))]
    assert rlx.op.quantize_linear([1.0, 2.0], 1.0).dtype == "uint8"  # a default of the table


# ---- operators

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("f", ARITHMETIC + COMPARISONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_binary_operators(f, dtype):
    a = np.array([-7, -3, -1, 1, 2, 5, 9, 6], dtype)
    b = np.array([2, -2, 4, -3, 2, 5, -4, 3], dtype)
    for x, y, p, q in (
        (rlx.array(a), rlx.array(b), a, b),
        (rlx.array(a), 2, a, 2),
        (3, rlx.array(b), 3, b),
        (rlx.array(a), b, a, b),
        (a, rlx.array(b), a, b),
    ):
        got, expected = np.asarray(f(x, y)), f(p, q)
        if f is operator.truediv and "int" in dtype:
            expected = expected.astype(np.float32)  # the default float
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_operators_are_numpys_at_special_values():
    every = np.array([-7.5, -3, -2, -1, -0.5, -0.0, 0.0, 0.5, 1, 2, 3, 7.5, np.nan, np.inf, -np.inf])
    binary = [*ARITHMETIC, *COMPARISONS, operator.pow, operator.and_, operator.or_, operator.xor]
    binary += [operator.lshift, operator.rshift]
    answered = 0
    with rlx.use_backend("reference"), np.errstate(all="ignore"):
        for dtype in NUMPY_DTYPES:
            integers = dtype not in ("float16", "float32", "float64", "complex64")
            some = np.abs(every) if dtype[0] == "u" else every
            some = some[:12] if integers else some
            a, b = np.repeat(some, len(some)).astype(dtype), np.tile(some, len(some)).astype(dtype)
            for f in binary + [operator.neg, operator.invert, abs]:
                xs = (a, b) if f in binary else (a,)
                if integers and f in (operator.pow, operator.lshift, operator.rshift):
                    xs = (a, np.abs(b))
                if integers and f in (operator.floordiv, operator.mod):
                    xs = (a[b != 0], b[b != 0])
                try:  # ours may refuse, but not differ
                    got = f(*map(rlx.array, xs)).numpy()
                except (rlx.Error, TypeError):
                    continue
                expected = f(*xs)
                wanted = np.dtype(np.float32) if f is operator.truediv and integers else expected.dtype
                assert got.dtype == wanted, (f, dtype)
                np.testing.assert_allclose(
                    got, expected, rtol=2e-3 if dtype == "float16" else 1e-5, err_msg=f"{f} {dtype}"
                )
                zeros = (expected == 0) & (expected.dtype.kind == "f")
                assert np.array_equal(np.signbit(got[zeros].real), np.signbit(expected[zeros].real)), (f, dtype)
                answered += 1
    assert answered > 165
    with pytest.raises(rlx.Error) as e:
        rlx.array([2, 3]) ** -1
    assert e.value.code == "negative-power" and (rlx.array([2.0]) ** -1).tolist() == [0.5]


def test_floor_division_of_floats_by_numbers():
    x = rlx.array([-7.5, 7.5, -0.5, 6.0])
    np.testing.assert_array_equal(x // 2, np.asarray(x) // 2)
    np.testing.assert_array_equal(x % -2, np.asarray(x) % -2)
    np.testing.assert_array_equal(rlx.array([7, -7]) // 2.0, np.array([7, -7]) // 2.0)


def test_other_operators():
    a = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)
    x = rlx.array(a)
    same(-x, -a)
    same(+x, a)
    same(abs(x), abs(a))
    np.testing.assert_allclose(x**2, a**2)
    np.testing.assert_allclose(2**x, 2**a)
    np.testing.assert_allclose(x @ x, a @ a)
    np.testing.assert_allclose(x @ a[0], a @ a[0])
    np.testing.assert_allclose(a[0] @ x, a[0] @ a)
    np.testing.assert_allclose(x[0] @ x[1], a[0] @ a[1])
    p, q = x > 0, x < 3.5
    same(p & q, (a > 0) & (a < 3.5))
    same(p | q, (a > 0) | (a < 3.5))
    same(p ^ q, (a > 0) ^ (a < 3.5))
    same(~p, ~(a > 0))
    assert not (x == None).any() and (x != "a").all()  # noqa: E711
    with pytest.raises(TypeError):
        x + "a"
    with pytest.raises(TypeError):
        x + None


# ---- indexing and methods

INDICES = [
    0, -1, slice(None), slice(1, 3), slice(None, None, -1), slice(3, 0, -2), slice(5, 2), Ellipsis, None,
    (0, 1), (slice(None), 2), (Ellipsis, 0), (None, 0, Ellipsis), (slice(0, 4, 2), slice(None), slice(-2, None)),
    ([0, 2, -1],), (slice(None), np.array([[1, 0], [2, 2]])), ([0, 1], [2, -1]), ([0, 1], slice(None), [2, 3]),
    (slice(1, 3), [1, 0], [0, 1]), (0, [1, 2]), (0, slice(None), [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=repr)
@pytest.mark.parametrize("traced", [False, True])
def test_indexing(index, traced):
    a = np.arange(4 * 3 * 5, dtype=np.float32).reshape(4, 3, 5)
    get = rlx.jit(lambda x: x[index]) if traced else lambda x: x[index]
    same(get(rlx.array(a)), a[index])


def test_bools_are_masks():
    a = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    for index in (True, False, np.True_, np.False_, np.array(True), rlx.array(False)):
        expected = a[bool(index)]
        same(rlx.array(a)[index], expected)
        same(rlx.jit(lambda x, index=index: x[index])(rlx.array(a)), expected)
    for f in (lambda x: x[0, True], lambda x: x[True, None], lambda x: x[x.sum() > 0], lambda x: x[[True, False]]):
        with pytest.raises(rlx.Error) as e:
            rlx.jit(f)(rlx.array(a))
        assert e.value.code == "index-dtype"


def test_traced_indexing_is_numpys():
    a = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    items = [
        0,
        -1,
        slice(None),
        slice(None, None, -1),
        slice(1, 3),
        None,
        Ellipsis,
        [1, 0],
        [],
        np.array([[1], [0]]),
        np.int64(1),
    ]
    rng = np.random.default_rng(5)
    combinations = [*itertools.product(items, repeat=2), *[tuple(items[i] for i in rng.integers(0, len(items), n))
                    for n in (3, 4, 5) for _ in range(100)]]  # fmt: skip
    compared = 0
    with rlx.use_backend("reference"):
        for index in combinations:
            try:
                expected = a[index]
            except IndexError:
                with pytest.raises((IndexError, rlx.Error)):
                    rlx.jit(lambda x: x[index])(rlx.array(a))
                continue
            same(rlx.jit(lambda x: x[index])(rlx.array(a)), expected)
            compared += 1
    assert compared > 150


def test_indexing_by_arrays_of_ours():
    a = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    x = rlx.array(a)
    same(x[rlx.array([2, 0])], a[[2, 0]])
    same(x[x > 5], a[a > 5])
    same(x[rlx.array(1), 2], a[1, 2])
    same(rlx.jit(lambda x, i: x[i, 1])(x, rlx.array([2, -1])), a[[2, -1], 1])
    for bad in (3, (0, 4), (0, 0, 0), [5]):
        with pytest.raises(IndexError):
            x[bad]
    with pytest.raises(IndexError):
        rlx.jit(lambda x: x[3])(x)
    with pytest.raises(rlx.Error, match="mask"):
        rlx.jit(lambda x: x[x > 5])(x)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_traced_indices_lie_within_their_axes(backend):
    if backend not in rlx.backends():
        pytest.skip("needs the device")
    a = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    forms = [  # and the axes that the indices belong to
        (lambda x, i: x[i], (0,)),
        (lambda x, i: x[:, ::-1, i], (2,)),
        (lambda x, i: x.take(i, 1), (1,)),
        (lambda x, i, j: x[i, j], (0, 1)),
        (lambda x, i, j: x[1:, i, j], (1, 2)),
        (lambda x, i, j: x[i, :, j], (0, 2)),
        (lambda x, i, j, k: x[i, j, k], (0, 1, 2)),
    ]
    with rlx.use_backend(backend):
        for f, axes in forms:
            traced = rlx.jit(f)
            sizes = [a.shape[axis] for axis in axes]
            good = [np.array([-n, n - 1, 1, -2]) for n in sizes]
            same(traced(a, *good), f(a, *good))
            for place, n in enumerate(sizes):
                for wrong in (n, -n - 1, n + 1, -2 * n, 2**62, -(2**62), -(2**62) - n, 2**63 - 1, -(2**63)):
                    bad = [i.copy() for i in good]
                    bad[place][2] = wrong
                    with pytest.raises(IndexError):
                        traced(a, *bad)


def test_methods():
    a = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    x = rlx.array(a)
    for axis in (None, 0, -1, (0, 2)):
        for name in ("sum", "mean", "max", "min", "prod", "var", "std"):
            for keepdims in (False, True):
                expected = getattr(a, name)(axis=axis, keepdims=keepdims)
                np.testing.assert_allclose(getattr(x, name)(axis, keepdims=keepdims), expected, rtol=2e-5, atol=1e-6)
        same((x > 0).any(axis), (a > 0).any(axis))
        same((x > 0).all(axis), (a > 0).all(axis))
    same(x.reshape(4, 6), a.reshape(4, 6))
    same(x.reshape(-1, 2), a.reshape(-1, 2))
    same(x.reshape((3, 8)), a.reshape(3, 8))
    same(x.T, a.T)
    same(x.mT, np.swapaxes(a, -1, -2))
    same(x.transpose(2, 0, 1), a.transpose(2, 0, 1))
    same(x.transpose(-1, 0, 1), a.transpose(-1, 0, 1))
    same(x.flatten(), a.ravel())
    same(x[:1].squeeze(), a[:1].squeeze())
    same(x.expand_dims(1), a[:, None])
    same(x.argmax(), a.argmax())
    same(x.argmax(1), a.argmax(1))
    same(x.clip(-0.5, 0.5), a.clip(-0.5, 0.5))
    same(rlx.array([1, 2, 3]).mean(), np.asarray(2.0, np.float32))
    assert (x > 0).sum().item() == (a > 0).sum()
    np.testing.assert_allclose(x.softmax(axis=1).sum(1), np.ones((2, 4)), rtol=1e-6)
    for bad in (lambda: x.sum(3), lambda: x.reshape(5, 5), lambda: x.reshape(-1, 7), lambda: x.squeeze(0)):
        with pytest.raises(rlx.Error):
            bad()


def test_functions():
    same(rlx.zeros((2, 3)), np.zeros((2, 3), np.float32))
    same(rlx.ones(3, "int8"), np.ones(3, np.int8))
    same(rlx.full((2,), 7, "uint8"), np.full(2, 7, np.uint8))
    same(rlx.arange(5), np.arange(5))
    same(rlx.arange(1, 2, 0.25), np.arange(1, 2, 0.25, dtype=np.float32))
    same(rlx.eye(2), np.eye(2, dtype=np.float32))
    same(rlx.stack([rlx.ones(2), rlx.zeros(2)], -1), np.array([[1, 0], [1, 0]], np.float32))
    same(rlx.concatenate([rlx.ones(2), [2.0]]), np.array([1, 1, 2], np.float32))
    assert rlx.zeros(2, "bf16").dtype == "bf16" and rlx.arange(3, dtype="bf16").tolist() == [0, 1, 2]
