"""Names that NumPy has, too: the same call gives the same values, shape and dtype, within what docs/python.md says.

A walk over NumPy's functions and methods fails for a name of ours that has neither a case nor an exception.
"""

import pathlib
import warnings

import numpy as np
import pytest

import rlx

DOCS = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
RNG = np.random.default_rng(11)
F = RNG.normal(size=(3, 4)).astype(np.float32)
CUBE = RNG.normal(size=(2, 3, 4)).astype(np.float32)
INTS = RNG.integers(-5, 6, (3, 4)).astype(np.int32)
V, W = RNG.normal(size=5).astype(np.float32), RNG.normal(size=5).astype(np.float32)
SQUARE = RNG.normal(size=(3, 3)).astype(np.float32)
SYMMETRIC = SQUARE @ SQUARE.T + 3 * np.eye(3, dtype=np.float32)
COMPLEX = (F + 1j * F[::-1]).astype(np.complex64)
GAPS = np.where(F > 0.8, np.float32(np.nan), F)
TRUTHS = F > 0


@pytest.fixture(autouse=True)
def on_the_reference():
    """How a function is called does not depend on the backend, and this one compiles nothing."""
    with rlx.use_backend("reference"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def documented_dtype(dtype, inputs):
    """The dtype that ours has where NumPy's is `dtype`: float32 where no float64 came in, no 64-bit unsigned, no
    complex128; functions of integers are float32 where NumPy picks a float by their width."""
    if dtype in ASKED:
        return dtype
    if dtype == np.complex128:
        return np.dtype(np.complex64)
    if dtype == np.uint64:
        return np.dtype(np.int64)
    if dtype.kind == "f" and not any(a.dtype.kind in "fc" for a in inputs):
        return np.dtype(np.float32)
    if dtype == np.float64 and not any(a.dtype == np.float64 for a in inputs):
        return np.dtype(np.float32)
    return dtype


ASKED = []  # dtypes that a case asks for


def asked(dtype):
    ASKED.append(dtype)
    return dtype


def leaves(result):
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, (tuple, list)) else [result]


def compare(ours, numpys, inputs, about):
    ours, numpys = leaves(ours), [np.asarray(x) for x in leaves(numpys)]
    assert len(ours) == len(numpys), about
    for got, expected in zip(ours, numpys):
        assert isinstance(got, rlx.Array), about
        assert got.shape == expected.shape, f"{about}: shape {got.shape}, NumPy's {expected.shape}"
        wanted = documented_dtype(expected.dtype, inputs)
        assert got.dtype == wanted, f"{about}: {got.dtype}, NumPy's {expected.dtype}"
        digits = {"float16": 2e-3, "float64": 1e-6 if wanted == np.float32 else 1e-12}.get(str(got.numpy().dtype), 2e-5)
        np.testing.assert_allclose(
            got.numpy().astype(expected.dtype), expected, rtol=digits, atol=digits, err_msg=about
        )


def check(name, case, ours, numpys):
    """One call: on NumPy's arrays, on ours, and traced."""
    inputs = []
    ASKED.clear()

    def keep(a):
        inputs.append(np.asarray(a))
        return a

    expected = case(numpys, keep)
    compare(case(ours, rlx.array), expected, inputs, name)
    if inputs:
        traced = rlx.jit(lambda *xs: case(ours, lambda a, left=iter(xs): next(left)))
        compare(traced(*map(rlx.array, inputs)), expected, inputs, f"traced {name}")


# ---- elementwise

ELEMENTWISE = {
    1: """abs absolute acos acosh asin asinh atan atanh bitwise_not cbrt ceil conj cos cosh deg2rad exp exp2 expm1 floor imag isfinite isinf isnan log
          log10 log1p log2 logical_not nan_to_num negative rad2deg real round sign sin sinc sinh sqrt square tan tanh trunc""".split(),
    2: """add atan2 bitwise_and bitwise_or bitwise_xor copysign divide equal floor_divide greater greater_equal heaviside hypot less
          less_equal logaddexp logical_and logical_or logical_xor maximum minimum mod multiply not_equal pow power remainder
          subtract true_divide""".split(),
}
VALUES = np.array([-2.5, -1.5, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 7.0])
OTHERS = np.array([2.0, -0.5, 3.0, 2.0, 0.0, -1.0, 0.5, 0.25, 2.0, -2.5, 3.0])
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
PLANE = VALUES + 1j * OTHERS
CORNERS = np.array([complex(re, im) for re in SPECIAL for im in SPECIAL])
DTYPES = ["float32", "float64", "float16", "int32", "int64", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_elementwise(dtype):
    answered = 0
    pairs = [(VALUES, OTHERS), (SPECIAL, SPECIAL[::-1])]
    pairs += [(PLANE, PLANE[::-1]), (CORNERS, CORNERS[::-1])] if dtype == "complex64" else []
    for arity, names in ELEMENTWISE.items():
        for name in names:
            for values, others in pairs:
                if np.dtype(dtype).kind in "iu" and values is SPECIAL:
                    continue
                if name in ("divide", "true_divide") and values is CORNERS:
                    continue  # which of the parts are infinite and which NaN is each library's own
                if name == "sinc":  # NumPy's is NaN at infinity, ours the limit, 0
                    values = values[np.isfinite(values) & (values != 1)]
                xs = [np.abs(v) if dtype == "uint8" else v for v in (values, others)[:arity]]
                xs = [x.astype(dtype) for x in xs]
                if name in ("pow", "power") and np.dtype(dtype).kind in "iu":
                    xs[1] = np.abs(xs[1])  # NumPy refuses the others
                if name in ("mod", "remainder", "floor_divide") and np.dtype(dtype).kind in "iu":
                    xs[1] = np.where(xs[1] == 0, 1, xs[1]).astype(dtype)  # division by zero is documented
                try:
                    expected = getattr(np, name)(*xs)
                except TypeError:
                    continue
                try:  # ours may refuse, but not differ
                    got = getattr(rlx, name)(*map(rlx.array, xs))
                except rlx.Error:
                    continue
                answered += 1
                compare(got, expected, xs, f"{name} of {dtype}")
    assert answered > {"complex64": 120, "bool": 40}.get(dtype, 45)


# ---- everything else: a case is (the function, what makes arrays) to a result

CASES = {
    "all": [lambda f, a: f(a(INTS)), lambda f, a: f(a(TRUTHS), 0), lambda f, a: f(a(F), axis=(0, 1), keepdims=True)],
    "any": [lambda f, a: f(a(INTS)), lambda f, a: f(a(TRUTHS), 0), lambda f, a: f(a(F), axis=(), keepdims=True)],
    "arange": [lambda f, a: f(5), lambda f, a: f(1, 7, 2), lambda f, a: f(0.5, 3), lambda f, a: f(3, 0, -1),
               lambda f, a: f(np.int64(4)), lambda f, a: f(4, dtype=np.int8)],
    "argmax": [lambda f, a: f(a(F)), lambda f, a: f(a(F), 1), lambda f, a: f(a(INTS), keepdims=True),
               lambda f, a: f(a(GAPS)), lambda f, a: f(a(GAPS), axis=0, keepdims=True)],
    "argmin": [lambda f, a: f(a(F)), lambda f, a: f(a(F), 1), lambda f, a: f(a(INTS), keepdims=True),
               lambda f, a: f(a(GAPS)), lambda f, a: f(a(GAPS), axis=0, keepdims=True)],
    "argsort": [lambda f, a: f(a(F)), lambda f, a: f(a(F), 0), lambda f, a: f(a(F), axis=None)],
    "array": [lambda f, a: f(F), lambda f, a: f([[1, 2], [3, 4]]), lambda f, a: f(INTS, np.int8), lambda f, a: f([1, 2.5])],
    "asarray": [lambda f, a: f(F), lambda f, a: f([True, False]), lambda f, a: f(INTS, asked(np.float64))],
    "broadcast_to": [lambda f, a: f(a(V), (3, 5)), lambda f, a: f(a(F[:1]), (2, 3, 4)), lambda f, a: f(a(V[0]), 3)],
    "cholesky": [lambda f, a: f(a(SYMMETRIC)), lambda f, a: f(a(SYMMETRIC), upper=True)],
    "clip": [lambda f, a: f(a(F), -0.5, 0.5), lambda f, a: f(a(F), 0, None), lambda f, a: f(a(INTS), None, 2),
             lambda f, a: f(a(F), min=0.0, max=a(F * 0 + 1))],
    "concat": [lambda f, a: f([a(F), a(F)]), lambda f, a: f((a(F), a(INTS)), axis=1), lambda f, a: f([a(F), a(V)], axis=None)],
    "concatenate": [lambda f, a: f([a(F), a(F)]), lambda f, a: f((a(F), a(INTS)), 1), lambda f, a: f([a(F), a(V)], axis=None)],
    "count_nonzero": [lambda f, a: f(a(INTS)), lambda f, a: f(a(TRUTHS), 1), lambda f, a: f(a(F), axis=(0, 1), keepdims=True)],
    "cross": [lambda f, a: f(a(SQUARE), a(SYMMETRIC)), lambda f, a: f(a(SQUARE), a(SYMMETRIC), axis=0)],
    "cumprod": [lambda f, a: f(a(F)), lambda f, a: f(a(INTS), 1), lambda f, a: f(a(TRUTHS), axis=0)],
    "cumsum": [lambda f, a: f(a(F)), lambda f, a: f(a(INTS), 1), lambda f, a: f(a(TRUTHS), axis=0),
               lambda f, a: f(a(F), 0, asked(np.float64))],
    "diagonal": [lambda f, a: f(a(CUBE[0])), lambda f, a: f(a(F), 1), lambda f, a: f(a(CUBE), offset=-1), lambda f, a: f(a(CUBE), 0, 1, 2),
                 lambda f, a: f(a(CUBE), 1, 2, 0), lambda f, a: f(a(CUBE), axis1=-1, axis2=1), lambda f, a: f(a(F), -1, 1, 0)],
    "eigh": [lambda f, a: f(a(SYMMETRIC))[0]],
    "dot": [lambda f, a: f(a(V), a(W)), lambda f, a: f(a(F), a(F.T)), lambda f, a: f(a(CUBE), a(F.T)), lambda f, a: f(a(F), a(CUBE.transpose(0, 2, 1))),
            lambda f, a: f(a(CUBE), a(F[0])), lambda f, a: f(a(V[0]), a(F)), lambda f, a: f(a(F), 2.0)],
    "einsum": [lambda f, a: f("ij,kj->ik", a(F), a(F)), lambda f, a: f("ij->j", a(F)), lambda f, a: f("ii", a(SQUARE))],
    "empty": [lambda f, a: f((2, 3)) * 0, lambda f, a: f(3, np.int32) * 0],
    "expand_dims": [lambda f, a: f(a(F), 0), lambda f, a: f(a(F), -1), lambda f, a: f(a(F), axis=(0, 3))],
    "eye": [lambda f, a: f(3), lambda f, a: f(2, 4), lambda f, a: f(3, 4, 1), lambda f, a: f(3, k=-1, dtype=np.int32)],
    "flip": [lambda f, a: f(a(F)), lambda f, a: f(a(CUBE), 1), lambda f, a: f(a(INTS), axis=(0, -1)), lambda f, a: f(a(V[0]))],
    "full_like": [lambda f, a: f(a(F), 2), lambda f, a: f(a(INTS), 3.5), lambda f, a: f(a(F), 1, np.int8)],
    "hstack": [lambda f, a: f([a(V), a(W)]), lambda f, a: f((a(F), a(F))), lambda f, a: f([a(V[0]), 2.0])],
    "vstack": [lambda f, a: f([a(V), a(W)]), lambda f, a: f((a(F), a(F))), lambda f, a: f([a(V[0]), a(V[1])])],
    "moveaxis": [lambda f, a: f(a(CUBE), 0, -1), lambda f, a: f(a(CUBE), (0, 1), (-1, 0)), lambda f, a: f(a(F), 1, 0)],
    "ones_like": [lambda f, a: f(a(F)), lambda f, a: f(a(INTS)), lambda f, a: f(a(F), np.int32)],
    "ravel": [lambda f, a: f(a(CUBE)), lambda f, a: f(a(V[0]))],
    "swapaxes": [lambda f, a: f(a(CUBE), 0, 2), lambda f, a: f(a(F), -1, 0)],
    "take": [lambda f, a: f(a(F), 5), lambda f, a: f(a(F), [0, -1, 2]), lambda f, a: f(a(F), a(INTS[:2] % 3), 0), lambda f, a: f(a(F), [[-1, 0]], axis=1)],
    "full": [lambda f, a: f(3, 7), lambda f, a: f((2, 3), 0.5), lambda f, a: f((2,), True), lambda f, a: f((2,), 7, np.int8)],
    "inner": [lambda f, a: f(a(V), a(W)), lambda f, a: f(a(F), a(F)), lambda f, a: f(a(F), 2.0)],
    "kron": [lambda f, a: f(a(F), a(SQUARE)), lambda f, a: f(a(V), a(W))],
    "linspace": [lambda f, a: f(0, 1), lambda f, a: f(0, 2, 5), lambda f, a: f(-1, 1, 4, False), lambda f, a: f(3, 1, num=3)],
    "matmul": [lambda f, a: f(a(F), a(F.T)), lambda f, a: f(a(V), a(W)), lambda f, a: f(a(CUBE), a(V[:4])),
               lambda f, a: f(a(INTS), a(INTS.T))],
    "matrix_norm": [lambda f, a: f(a(CUBE)), lambda f, a: f(a(CUBE), keepdims=True)],
    "matrix_power": [lambda f, a: f(a(SYMMETRIC), 3), lambda f, a: f(a(SYMMETRIC), -1), lambda f, a: f(a(SYMMETRIC), 0)],
    "matrix_rank": [lambda f, a: f(a(SYMMETRIC)), lambda f, a: f(a(np.ones((3, 3), np.float32)))],
    "max": [lambda f, a: f(a(F)), lambda f, a: f(a(F), 0), lambda f, a: f(a(INTS), axis=(0, 1), keepdims=True),
            lambda f, a: f(a(GAPS)), lambda f, a: f(a(TRUTHS), 1)],
    "min": [lambda f, a: f(a(F)), lambda f, a: f(a(F), 0), lambda f, a: f(a(INTS), axis=(0, 1), keepdims=True),
            lambda f, a: f(a(GAPS)), lambda f, a: f(a(TRUTHS), 1)],
    "mean": [lambda f, a: f(a(F)), lambda f, a: f(a(CUBE), (0, 2)), lambda f, a: f(a(INTS), 1, keepdims=True),
             lambda f, a: f(a(TRUTHS)), lambda f, a: f(a(COMPLEX), 0), lambda f, a: f(a(F), 0, asked(np.float64))],
    "median": [lambda f, a: f(a(F)), lambda f, a: f(a(F), 0), lambda f, a: f(a(CUBE), axis=(0, 2), keepdims=True),
               lambda f, a: f(a(INTS)), lambda f, a: f(a(GAPS), 1)],
    "meshgrid": [lambda f, a: f(a(V), a(W[:3])), lambda f, a: f(a(V), a(W[:3]), indexing="ij"), lambda f, a: f(a(V)),
                 lambda f, a: f(a(V), a(np.arange(3))), lambda f, a: f(a(V), a(np.arange(3)), indexing="ij"),
                 lambda f, a: f(a(np.arange(2)), a(V), a(TRUTHS[0])), lambda f, a: f(a(V), a(W[:3]), a(np.arange(2)), indexing="ij"),
                 lambda f, a: f(a(V[0]), a(np.arange(3)), indexing="ij"), lambda f, a: f(a(V), a(W[:3]), a(V[:2]))],
    "nanmean": [lambda f, a: f(a(GAPS)), lambda f, a: f(a(GAPS), 0), lambda f, a: f(a(INTS), axis=1, keepdims=True)],
    "nansum": [lambda f, a: f(a(GAPS)), lambda f, a: f(a(GAPS), 0), lambda f, a: f(a(INTS), axis=1, keepdims=True)],
    "norm": [lambda f, a: f(a(V)), lambda f, a: f(a(F)), lambda f, a: f(a(CUBE)), lambda f, a: f(a(V), 1), lambda f, a: f(a(V), 3.5),
             lambda f, a: f(a(V), np.inf), lambda f, a: f(a(V), -np.inf), lambda f, a: f(a(V), 0), lambda f, a: f(a(F), axis=1),
             lambda f, a: f(a(F), 1), lambda f, a: f(a(F), 2), lambda f, a: f(a(F), np.inf), lambda f, a: f(a(F), "fro"),
             lambda f, a: f(a(F), "nuc"), lambda f, a: f(a(CUBE), 2, (0, 2)), lambda f, a: f(a(CUBE), 1, (2, 1), True),
             lambda f, a: f(a(CUBE), None, 0, True), lambda f, a: f(a(CUBE), axis=(1, 2)), lambda f, a: f(a(INTS))],
    "ones": [lambda f, a: f(3), lambda f, a: f((2, 3)), lambda f, a: f((2,), np.int8)],
    "outer": [lambda f, a: f(a(V), a(W)), lambda f, a: f(a(F), a(V))],
    "pad": [lambda f, a: f(a(F), 1), lambda f, a: f(a(F), (1, 2)), lambda f, a: f(a(F), ((1, 2), (0, 3))),
            lambda f, a: f(a(F), ((1, 0), (0, 2)), "edge"), lambda f, a: f(a(F), 1, mode="reflect"),
            lambda f, a: f(a(INTS), 2, constant_values=7), lambda f, a: f(a(F), 1, "wrap"), lambda f, a: f(a(F), 1, "symmetric")],
    "pinv": [lambda f, a: f(a(F))],
    "prod": [lambda f, a: f(a(F)), lambda f, a: f(a(INTS), 0), lambda f, a: f(a(TRUTHS)), lambda f, a: f(a(F), 1, asked(np.float64))],
    "qr": [lambda f, a: [np.abs(x) if isinstance(x, np.ndarray) else rlx.abs(x) for x in f(a(F.T))],
           lambda f, a: [f(a(F.T), "complete")[1].shape == (4, 3) and f(a(F.T))[1] ** 2]],
    "quantile": [lambda f, a: f(a(F), 0.3), lambda f, a: f(a(F), [0.1, 0.5, 1.0]), lambda f, a: f(a(F), 0.25, 0),
                 lambda f, a: f(a(CUBE), [[0.1], [0.9]], (0, 2), keepdims=True), lambda f, a: f(a(INTS), 0.5, method="lower"),
                 lambda f, a: f(a(F), 0.4, axis=1, method="nearest"), lambda f, a: f(a(INTS), 0.3), lambda f, a: f(a(INTS), [0.2, 0.9], 1)]
                + [lambda f, a, x=x, how=how: f(a(x), [0.0, 0.35, 1.0], axis=0, method=how, keepdims=True)
                   for x in (INTS, F, INTS.astype(np.int8)) for how in ("linear", "lower", "higher", "nearest", "midpoint")],
    "repeat": [lambda f, a: f(a(F), 2), lambda f, a: f(a(F), 2, 1), lambda f, a: f(a(F), [1, 0, 3], axis=0), lambda f, a: f(a(F), 0)],
    "reshape": [lambda f, a: f(a(F), (4, 3)), lambda f, a: f(a(F), -1), lambda f, a: f(a(F), (2, -1))],
    "roll": [lambda f, a: f(a(F), 1), lambda f, a: f(a(F), -2, 1), lambda f, a: f(a(F), (1, 2), (0, 1)), lambda f, a: f(a(F), 1, axis=(0, 1))],
    "round": [lambda f, a: f(a(F * 10), 1), lambda f, a: f(a(F * 100), -1), lambda f, a: f(a(F * 10), decimals=2)],
    "searchsorted": [lambda f, a: f(a(np.sort(V)), a(W)), lambda f, a: f(a(np.sort(V)), a(V), "right"), lambda f, a: f(a(np.sort(V)), 0.5)],
    "select": [lambda f, a: f([a(F > 1), a(F > 0)], [a(F), a(-F)], 7), lambda f, a: f([a(F > 1)], [a(INTS)])],
    "slogdet": [lambda f, a: f(a(SYMMETRIC)), lambda f, a: f(a(-SYMMETRIC))],
    "sort": [lambda f, a: f(a(F)), lambda f, a: f(a(GAPS), 0), lambda f, a: f(a(INTS), axis=None)],
    "split": [lambda f, a: f(a(F), 2, 1), lambda f, a: f(a(F), 3), lambda f, a: f(a(F), [1], axis=1), lambda f, a: f(a(V), [3, 1, 9]),
              lambda f, a: f(a(F), 1), lambda f, a: f(a(V), [-2])],
    "squeeze": [lambda f, a: f(a(F[:1])), lambda f, a: f(a(F[:1, :1]), 0), lambda f, a: f(a(F[:1, :1]), axis=(0, 1))],
    "stack": [lambda f, a: f(a(CUBE)), lambda f, a: f(a(CUBE), 1), lambda f, a: f([a(F), a(F)]), lambda f, a: f((a(F), a(F)), 1), lambda f, a: f([a(V), a(W)], axis=-1)],
    "std": [lambda f, a: f(a(F)), lambda f, a: f(a(F), 0), lambda f, a: f(a(INTS), ddof=1), lambda f, a: f(a(COMPLEX), 1),
            lambda f, a: f(a(CUBE), (0, 2), keepdims=True), lambda f, a: f(a(F), correction=1), lambda f, a: f(a(TRUTHS)),
            lambda f, a: f(a(COMPLEX), 0, ddof=1), lambda f, a: f(a(COMPLEX), ddof=5, keepdims=True)],
    "sum": [lambda f, a: f(a(F)), lambda f, a: f(a(CUBE), (0, 2)), lambda f, a: f(a(F), 1, keepdims=True), lambda f, a: f(a(F), ()),
            lambda f, a: f(a(TRUTHS)), lambda f, a: f(a(INTS), 0), lambda f, a: f(a(F), 0, asked(np.float64)), lambda f, a: f(a(COMPLEX))],
    "svd": [lambda f, a: [x.shape for x in f(a(F))] == [(3, 3), (3,), (4, 4)] and f(a(F))[1],
            lambda f, a: [x.shape for x in f(a(F), full_matrices=False)] == [(3, 3), (3,), (3, 4)] and f(a(F))[1]],
    "take_along_axis": [lambda f, a: f(a(F), a(np.argsort(F, 1) - 4), 1), lambda f, a: f(a(F), a(np.argsort(F, 1)), 1), lambda f, a: f(a(F), a(np.argsort(F, 0)), axis=0)],
    "tensordot": [lambda f, a: f(a(F), a(F)), lambda f, a: f(a(F), a(F.T), 1), lambda f, a: f(a(F), a(V), 0),
                  lambda f, a: f(a(F), a(F), axes=([0, 1], [0, 1]))],
    "tile": [lambda f, a: f(a(F), 2), lambda f, a: f(a(F), (2, 1)), lambda f, a: f(a(V), (2, 3)), lambda f, a: f(a(CUBE), (2, 1))],
    "trace": [lambda f, a: f(a(SQUARE)), lambda f, a: f(a(F), 1), lambda f, a: f(a(INTS[:, :3])), lambda f, a: f(a(CUBE)),
              lambda f, a: f(a(CUBE), 0, 1, 2), lambda f, a: f(a(CUBE), -1, 2, 0), lambda f, a: f(a(CUBE), 1, axis1=-2, axis2=-1)],
    "transpose": [lambda f, a: f(a(F)), lambda f, a: f(a(CUBE), (1, 2, 0)), lambda f, a: f(a(CUBE), axes=(-1, 0, 1))],
    "tril": [lambda f, a: f(a(V)), lambda f, a: f(a(F)), lambda f, a: f(a(F), 1), lambda f, a: f(a(CUBE), k=-1)],
    "triu": [lambda f, a: f(a(V), 1), lambda f, a: f(a(F)), lambda f, a: f(a(F), 1), lambda f, a: f(a(CUBE), k=-1)],
    "unstack": [lambda f, a: f(a(F)), lambda f, a: f(a(F), axis=1), lambda f, a: f(a(F[:1]))],
    "var": [lambda f, a: f(a(F)), lambda f, a: f(a(F), 0), lambda f, a: f(a(INTS), ddof=1), lambda f, a: f(a(COMPLEX)),
            lambda f, a: f(a(F), 1, asked(np.float64)), lambda f, a: f(a(COMPLEX), ddof=1), lambda f, a: f(a(COMPLEX), 1, correction=2, keepdims=True)],
    "vdot": [lambda f, a: f(a(V), a(W)), lambda f, a: f(a(F), a(F)), lambda f, a: f(a(COMPLEX), a(COMPLEX))],
    "where": [lambda f, a: f(a(F > 0), a(F), a(-F)), lambda f, a: f(a(INTS), a(F), 0.0), lambda f, a: f(a(F > 0), 1, a(INTS))],
    "zeros": [lambda f, a: f(3), lambda f, a: f(np.int64(3)), lambda f, a: f(np.array([2, 3])), lambda f, a: f((2, 3)), lambda f, a: f((2,), np.bool_)],
    "zeros_like": [lambda f, a: f(a(F)), lambda f, a: f(a(INTS)), lambda f, a: f(a(F), np.int32)],
}  # fmt: skip
NORMS = (None, "backward", "ortho", "forward")
for _name in ("fft", "ifft", "rfft", "irfft"):
    _real = [] if _name == "rfft" else [COMPLEX]
    CASES[_name] = [lambda f, a, n=n, z=z: f(a(z), norm=n) for n in NORMS for z in (F, *_real)]
    CASES[_name] += [
        lambda f, a: f(a(F), 3),
        lambda f, a: f(a(F), 7, 0),
        lambda f, a: f(a(CUBE), axis=1),
        lambda f, a: f(a(INTS)),
    ]
for _name in ("fftn", "ifftn"):
    CASES[_name] = [lambda f, a, n=n: f(a(COMPLEX), norm=n) for n in NORMS]
    CASES[_name] += [lambda f, a: f(a(CUBE)), lambda f, a: f(a(CUBE), (2, 5)), lambda f, a: f(a(CUBE), axes=(0, 2)),
                     lambda f, a: f(a(CUBE), s=(4,), axes=(1,))]  # fmt: skip
for _name in ("fftshift", "ifftshift"):
    CASES[_name] = [lambda f, a: f(a(F)), lambda f, a: f(a(CUBE), 1), lambda f, a: f(a(INTS), axes=(0, 1))]

# What NumPy calls something else, or where ours does more or less: docs/python.md says why.
EXCEPTIONS = ["broadcast", "cond", "eig", "from_dlpack", "load", "lstsq", "reciprocal", "resize", "save"]
METHOD_EXCEPTIONS = ["resize", "sort", "to_device"]


@pytest.mark.parametrize("name", CASES)
def test_same_call(name):
    numpys = next(f for f in (getattr(m, name, None) for m in (np, np.linalg, np.fft)) if callable(f))
    for i, case in enumerate(CASES[name]):
        check(f"{name} {i}", case, getattr(rlx, name), numpys)


def common_functions():
    for module in (np, np.linalg, np.fft):
        for name in dir(module):
            theirs, ours = getattr(module, name), getattr(rlx, name, None)
            if not name.startswith("_") and callable(theirs) and callable(ours) and not isinstance(ours, rlx.DType):
                yield name


def test_every_common_name_is_covered():
    names = set(common_functions()) - {"dtype"}
    covered = {*CASES, *ELEMENTWISE[1], *ELEMENTWISE[2], *EXCEPTIONS}
    assert names - covered == set() and set(EXCEPTIONS) <= names
    for name in EXCEPTIONS:
        assert f"`{name}`" in DOCS.split("## Where it differs from NumPy")[1].split("\n## ")[0], name


METHODS = {
    "all": [()], "any": [(0,)], "argmax": [(), (1,)], "argmin": [(), (1,)], "argsort": [(), (0,)], "clip": [(-0.5, 0.5)],
    "conj": [()], "copy": [()], "cumprod": [(), (0,)], "cumsum": [(), (1,)], "diagonal": [(), (1,), (1, 1, 0)], "flatten": [()], "max": [(), (0,)],
    "mean": [(), (1,)], "min": [(), (0,)], "prod": [(), (1,)], "ravel": [()], "repeat": [(2,), (2, 0)],
    "reshape": [(4, 3), ((2, 6),), (-1,)], "round": [(), (1,)], "squeeze": [()], "std": [(), (0,)], "sum": [(), (0,), ((0, 1),)],
    "swapaxes": [(0, 1), (-1, 0)], "dot": [(np.arange(4, dtype=np.float32),)], "take": [(3,), ([0, -1], 1)], "trace": [(), (1,), (1, 1, 0)], "transpose": [(), (1, 0), ((1, 0),)], "var": [(), (1,)],
    "astype": [(np.int32,)], "tolist": [()], "item": [],
}  # fmt: skip


def test_methods_and_properties():
    names = {n for n in dir(np.ndarray) if not n.startswith("_") and hasattr(rlx.Array, n)}
    properties = {"T", "mT", "device", "dtype", "imag", "real", "itemsize", "nbytes", "ndim", "shape", "size"}
    assert names == {*METHODS, *properties, *METHOD_EXCEPTIONS, "searchsorted"}
    for a in (F, INTS):
        for name, calls in METHODS.items():
            for args in calls:
                got, expected = getattr(rlx.array(a), name)(*args), getattr(a, name)(*args)
                if name == "tolist":
                    assert got == expected
                else:
                    compare(got, expected, [a], f"{name}{args}")
        for name in ("T", "mT", "real", "imag"):
            compare(getattr(rlx.array(a), name), getattr(a, name), [a], name)
        for name in ("shape", "size", "ndim", "nbytes", "itemsize"):
            assert getattr(rlx.array(a), name) == getattr(a, name)
    compare(rlx.array(np.sort(V)).searchsorted(W), np.sort(V).searchsorted(W), [V], "searchsorted")


def test_constants():
    assert rlx.newaxis is None and [rlx.pi, rlx.e, rlx.inf] == [np.pi, np.e, np.inf] and np.isnan(rlx.nan)
    assert rlx.array(F)[:, rlx.newaxis].shape == (3, 1, 4)


def test_every_alias_is_called_like_numpys():
    from rlx import _aliases

    covered = {*CASES, *ELEMENTWISE[1], *ELEMENTWISE[2], "pi", "e", "inf", "nan", "newaxis"}
    assert set(_aliases.ALIASES) <= covered
    for name, meant in _aliases.ALIASES.items():
        assert getattr(rlx, name) is meant and f"`{name}`" in DOCS, name


def test_transforms_have_inverses():
    for norm in NORMS:
        for n in (4, 5, 6, 7):
            x = RNG.normal(size=(3, n)).astype(np.float32)
            np.testing.assert_allclose(rlx.irfft(rlx.rfft(x, norm=norm), n, norm=norm), x, atol=1e-5)
            np.testing.assert_allclose(rlx.ifft(rlx.fft(x, norm=norm), norm=norm), x.astype(np.complex64), atol=1e-5)
            np.testing.assert_allclose(rlx.ifftn(rlx.fftn(x, norm=norm), norm=norm), x.astype(np.complex64), atol=1e-5)
            np.testing.assert_allclose(rlx.ifftshift(rlx.fftshift(x)), x)
    np.testing.assert_allclose(rlx.irfft(rlx.rfft(F)), F, atol=1e-5)
    slope = rlx.grad(lambda x: (rlx.irfft(rlx.rfft(x)) * rlx.array(F)).sum())(rlx.array(F))
    np.testing.assert_allclose(slope, F, atol=1e-5)
    for wrong in (lambda: rlx.fft(F, norm="none"), lambda: rlx.rfft(COMPLEX)):
        with pytest.raises(rlx.Error):
            wrong()


def test_sums_and_products_of_integers_widen():
    for dtype in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint32"):
        a = np.array([[1, 1, 0], [1, 1, 1]]).astype(dtype) if dtype == "bool" else np.full((2, 3), 100, dtype)
        for name in ("sum", "prod", "cumsum", "cumprod", "nansum"):
            for args in ((), (0,), (1,)):
                got, expected = getattr(rlx, name)(rlx.array(a), *args), getattr(np, name)(a, *args)
                assert got.dtype == "int64" and got.tolist() == expected.tolist(), (name, dtype)
        assert rlx.trace(a).dtype == "int64" and (dtype == "bool" or rlx.sum(a, dtype=dtype).dtype == dtype)
        assert rlx.jit(rlx.sum)(rlx.array(a)).dtype == "int64" and rlx.array(a).sum().item() == a.sum()
    for dtype in ("float16", "float32", "float64", "complex64"):
        assert rlx.ones(3, dtype).sum().dtype == rlx.ones(3, dtype).prod().dtype == dtype
    assert rlx.op.reduce_sum(rlx.ones(3, "int8")).dtype == "int8"  # the op keeps it


def test_numpys_functions_take_arrays_and_give_numpys():
    x, a = rlx.array(F), F
    for name in ("sum", "mean", "max", "min", "prod", "std", "var", "any", "all", "argmax", "argmin", "median", "cumsum", "sort",
                 "argsort", "count_nonzero", "nansum", "ravel", "transpose", "squeeze", "round", "copy", "unique", "sin", "abs"):  # fmt: skip
        got, expected = getattr(np, name)(x), getattr(np, name)(a)
        assert not isinstance(got, rlx.Array) and np.array_equal(got, expected), name
    assert np.sum(x, axis=0, keepdims=True).shape == (1, 4) and np.linalg.norm(x) == np.linalg.norm(a)
    assert np.concatenate([x, a]).shape == (6, 4) and np.stack([x, x], axis=2).shape == (3, 4, 2)
    assert np.array_equal(np.where(x > 0, x, 0), np.where(a > 0, a, 0)) and np.allclose(x, a) and np.array_equal(x, a)
    assert np.shape(x) == (3, 4) and np.ndim(x) == 2 and np.size(x) == 12 and np.size(x, 1) == 4
    assert np.result_type(x, np.float64) == np.float64 and np.einsum("ij->j", x).shape == (4,)
    assert np.dot(x, x.T).shape == (3, 3) and np.isnan(x).sum() == 0
    with pytest.raises(ValueError):
        np.copyto(x, 0)
    seen = []
    rlx.jit(lambda x: seen.append((np.shape(x), np.ndim(x), np.size(x), np.result_type(x))) or x)(x)
    assert seen == [((3, 4), 2, 12, np.float32)]
    with pytest.raises(rlx.Error) as e:
        rlx.jit(lambda x: np.sum(x))(x)
    assert e.value.code == "trace-value"


REDUCTIONS = """all any argmax argmin argsort count_nonzero cumprod cumsum max mean median min nanmean nansum prod quantile sort
                std sum trace var""".split()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_complex_numbers(name):
    z = (CUBE + 1j * CUBE[::-1, ::-1, ::-1]).astype(np.complex64)
    gaps = z.copy()
    gaps[0, 1, 2], gaps[1, 0, 0], gaps[1, 1] = complex(np.nan, 1), complex(2, np.nan), 0
    gaps[:, 2, 3] = complex(np.nan, np.nan)  # a mean of nothing
    options = [{}] if name in ("argsort", "cumprod", "cumsum", "sort") else [{}, {"keepdims": True}]
    options += [{"ddof": 1}, {"correction": 2}, {"ddof": 3, "keepdims": True}] if name in ("std", "var") else []
    calls = [(axis, named) for axis in ((), (0,), (1,), (-1,), ((0, 2),), ((2, 1),)) for named in options]
    calls = [((0.5, *axis), named) for axis, named in calls] if name == "quantile" else calls
    calls = [((), {}), ((1,), {}), ((-1, 2, 0), {})] if name == "trace" else calls
    answered = 0
    for a in (z, gaps):
        for args, named in calls:
            try:
                expected = getattr(np, name)(a, *args, **named)
            except (TypeError, ValueError):
                continue
            f = lambda x: getattr(rlx, name)(x, *args, **named)
            try:  # ours may refuse, but not differ
                got = f(rlx.array(a))
            except rlx.Error as e:
                assert e.code == "dtype"
                continue
            compare(got, expected, [a], f"{name}{args} {named}")
            compare(rlx.jit(f)(rlx.array(a)), expected, [a], f"traced {name}{args} {named}")
            answered += 1
    ordered = ("argmax", "argmin", "argsort", "max", "median", "min", "quantile", "sort")
    assert answered == 0 if name in ordered else answered >= 6


def test_maxima_of_nothing_raise():
    for f in (rlx.max, rlx.min):
        with pytest.raises(rlx.Error) as e:
            f(rlx.zeros((0, 3)), 0)
        assert e.value.code == "empty-reduction"
        assert f(rlx.zeros((0, 3)), 1).shape == (0,)
    assert rlx.sum(rlx.zeros((0, 3))).item() == 0 and rlx.prod(rlx.zeros(0)).item() == 1


# ---- ops of the table that are reductions


def test_every_reduction_of_the_table_folds_all_axes():
    from rlx import _core, _signatures

    count = 0
    for op, _ in _core.op_table():
        if not _signatures.is_reduction(op):
            continue
        count += 1
        x = rlx.array(TRUTHS if op.dtypes == "bool" else np.abs(CUBE) + 1)
        for f in (rlx.op.FUNCTIONS[op.name], getattr(rlx, op.name), getattr(rlx.Array, op.name)):
            y = f(x)
            whole = rlx.op.FUNCTIONS[op.name](x, axes=range(x.ndim))
            assert y.shape == () and y.tolist() == whole.tolist(), op.name
            assert f(x, axis=0).tolist() == rlx.op.FUNCTIONS[op.name](x, axes=[0]).tolist() == f(x, axes=[0]).tolist()
            assert f(x, axes=()).shape == x.shape and f(x, axis=-1, keepdims=True).shape == (*x.shape[:-1], 1)
            assert rlx.jit(f)(x).tolist() == whole.tolist()
        g = rlx.Graph("g")
        g.outputs = getattr(g, op.name)(g.input("x", x.shape, x.dtype))
        assert g.value.outputs[0][1] == (), op.name
    assert count >= 17
    a = np.abs(CUBE) + 1
    assert rlx.logsumexp(a).item() == pytest.approx(np.log(np.exp(a).sum()), rel=1e-6)
    assert rlx.logsumexp([1.0, 2.0]).item() == pytest.approx(np.log(np.exp([1, 2]).sum()), rel=1e-6)
    assert rlx.norm([3.0, 4.0]).item() == 5 and rlx.op.norm([3.0, 4.0]).item() == 5
    with pytest.raises(TypeError, match="axis or axes"):
        rlx.logsumexp(a, axes=0, axis=1)
