"""Functions named as in NumPy, with NumPy's arguments: arrays from nothing, elementwise, linear algebra.

Where the table has an op of the same name, `rlx.op.<name>` is that op; its keywords are taken here, too. Like all of
the package, these functions take traced arrays.
"""

import builtins
import operator

import numpy as np

from rlx import _core, op
from rlx._array import Array, asarray, floating
from rlx._dims import at_most, is_dim
from rlx._dtypes import dtype as as_dtype
from rlx._errors import UserError

# ---- from nothing


def full(shape, fill_value, dtype=None):
    """An array of one value, by default of its dtype."""
    try:
        shape = tuple(shape)
    except TypeError:  # one size, of Python or NumPy
        shape = (shape,)
    value = asarray(fill_value, dtype)
    if value._traced:
        return op.broadcast(value, shape=shape)
    if builtins.any(map(is_dim, shape)):
        return op.broadcast(_constant(value), shape=shape)
    return value._from_raw(np.broadcast_to(value._raw(), shape), value.dtype)


def _constant(value):
    """A concrete array as a constant of the program being traced, if there is one."""
    scope = _core.current_trace()
    return value if scope is None else _core.emit_into(scope, op.ENTRIES["constant"], (), (value,))


def zeros(shape, dtype="float32"):
    """An array of zeros."""
    return full(shape, 0, dtype)


def ones(shape, dtype="float32"):
    """An array of ones."""
    return full(shape, 1, dtype)


def zeros_like(x, /, dtype=None):
    """Zeros of x's shape and dtype, or of another dtype."""
    x = asarray(x)
    return full(x.shape, 0, dtype or x.dtype)


def arange(start, stop=None, step=1, dtype=None):
    """start, start + step, .. below stop; with one argument from 0 to it. Integers are int64, floats float32."""
    start, stop = (0, start) if stop is None else (start, stop)
    if builtins.any(map(is_dim, (start, stop, step))):
        return _symbolic_arange(start, stop, step, dtype)
    values = np.arange(start, stop, step)
    to = as_dtype(dtype or ("int64" if values.dtype.kind in "iu" else "float32"))
    return asarray(values.astype(np.float32)).astype(to) if to.bits is not None else asarray(values.astype(to.dtype))


def _symbolic_arange(start, stop, step, dtype):
    """arange of sizes; other numbers than integers need them as numbers."""
    if not builtins.all(is_dim(n) or isinstance(n, (int, np.integer)) for n in (start, stop, step)) or is_dim(step):
        return arange(*(n if not is_dim(n) else operator.index(n) for n in (start, stop, step)), dtype)
    if step == 0:
        raise ZeroDivisionError("arange: a step of zero")
    distance, step = (stop - start, step) if step > 0 else (start - stop, step)
    if at_most(distance, 0):
        return zeros(0, dtype or "int64")
    places = op.iota(shape=[(distance + builtins.abs(step) - 1) // builtins.abs(step)], dtype="int64", axis=0)
    return (places * step + start).astype(dtype or "int64")


def linspace(start, stop, num=50, endpoint=True, *, dtype="float32", count=None):
    """num numbers at equal distances from start to stop, or short of it without endpoint."""
    count, to = num if count is None else count, as_dtype(dtype)
    if to.kind == "integer":  # rounded down, as NumPy's
        return asarray(np.linspace(float(start), float(stop), count, endpoint, dtype=to.dtype))
    if is_dim(count) and not at_most(count, 1):
        return _symbolic_linspace(start, stop, count, endpoint, dtype)
    return op.linspace(start=start, stop=stop, count=count, endpoint=endpoint, dtype=dtype)


def _symbolic_linspace(start, stop, count, endpoint, dtype):
    """linspace of at least two numbers; as the op, in float64 and rounded once."""
    start, stop = (asarray(n if is_dim(n) else np.float64(n)).astype("float64") for n in (start, stop))
    parts = asarray(count - 1 if endpoint else count).astype("float64")
    y = op.iota(shape=[count], dtype="float64", axis=0) * ((stop - start) / parts) + start
    if endpoint:
        y = op.select(op.iota(shape=[count], dtype="int64", axis=0) == count - 1, stop, y)
    return y.astype(dtype)


def eye(n, m=None, k=0, dtype="float32"):
    """Ones on the diagonal k of a matrix of n rows and m columns (by default n)."""
    m = n if m is None else m
    if is_dim(n) or is_dim(m):
        rows, columns = (op.iota(shape=[n, m], dtype="int64", axis=axis) for axis in (0, 1))
        return op.eq(columns - rows, k).astype(dtype)
    return asarray(np.eye(n, m, k, dtype=np.float32)).astype(dtype)


def key(seed):
    """A key for the random ops, uint32[2], from a seed of up to 64 bits."""
    try:
        seed = operator.index(seed)
    except TypeError:
        raise TypeError(f"key: the seed must be an integer, not {type(seed).__name__}") from None
    if not 0 <= seed < 2**64:
        raise UserError("scalar-range", f"key: the seed must be from 0 to 2**64 - 1, not {seed}")
    return asarray(np.array([seed & 0xFFFFFFFF, seed >> 32], dtype=np.uint32))


# ---- elementwise


def abs(x, /):
    """The absolute value."""
    x = asarray(x)
    return op.complex_abs(x) if x.dtype.kind == "complex" else x if x.dtype == "bool" else op.abs(x)


def real(x, /):
    """The real part."""
    return asarray(x).real


def imag(x, /):
    """The imaginary part; zeros of real numbers."""
    return asarray(x).imag


def _whole(name):
    """The op of that name; integers are whole already."""
    rounded = op.FUNCTIONS[name]

    def f(x, /):
        x = asarray(x)
        return x if x.dtype.kind in ("integer", "bool") else rounded(x)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = rounded.__doc__
    return f


floor, ceil, trunc = _whole("floor"), _whole("ceil"), _whole("trunc")


def round(x, /, decimals=0):
    """x rounded to a number of decimals, halves to even; its derivative is 0."""
    x = asarray(x)
    if x.dtype.kind == "integer" and decimals >= 0:
        return x
    x = floating(x) if x.dtype == "bool" else x
    if decimals == 0:
        return op.round(x)
    if x.dtype.kind != "floating":
        raise UserError("dtype", f"round: to {decimals} decimals takes floats, got {x.dtype.long_name}")
    scale = 10.0 ** builtins.abs(decimals)
    return op.round(x * scale) / scale if decimals > 0 else op.round(x / scale) * scale


def _truths(name):
    """The op of that name, on the truths of its operands: != 0."""
    combined = op.FUNCTIONS[name]

    def f(*xs):
        return combined(*[asarray(x).astype("bool") for x in xs])

    def unary(x, /):
        return f(x)

    def binary(x, y, /):
        return f(x, y)

    made = unary if op.ENTRIES[name].arity == 1 else binary
    made.__name__ = made.__qualname__ = name
    made.__doc__ = combined.__doc__
    return made


logical_and, logical_or, logical_xor = _truths("logical_and"), _truths("logical_or"), _truths("logical_xor")
logical_not = _truths("logical_not")


def heaviside(x, y, /):
    """0 below zero, y at zero, 1 above."""
    return op.heaviside(floating(x), floating(y))


def clip(x, /, min=None, max=None):
    """x between min and max; None sets no limit."""
    if min is not None and max is not None:
        return op.clamp(x, min, max)
    x = asarray(x)
    return x if min is None and max is None else op.maximum(x, min) if max is None else op.minimum(x, max)


def where(condition, x, y, /):
    """x where the condition holds, else y."""
    return op.select(asarray(condition).astype("bool"), x, y)


def select(condition, x, y=0, /):
    """x where the condition holds, else y. Given lists of conditions and values (NumPy's form): the value of the first
    condition that holds, else y."""
    if not (isinstance(condition, (list, tuple)) and isinstance(x, (list, tuple))):
        return where(condition, x, y)
    if len(condition) != len(x):
        raise UserError("operand-count", f"select: {len(condition)} conditions for {len(x)} values")
    for c, v in zip(reversed(condition), reversed(x)):
        y = where(c, v, y)
    return y


# ---- linear algebra


def matmul(x, y, /, *, transpose_a=False, transpose_b=False):
    """The matrix product as NumPy's `@`: vectors count as a row on the left and a column on the right."""
    x, y = asarray(x), asarray(y)
    if transpose_a or transpose_b:
        return op.matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    row, column = x.ndim == 1, y.ndim == 1
    z = op.matmul(x.reshape(1, -1) if row else x, y.reshape(-1, 1) if column else y)
    if not (row or column):
        return z
    shape = list(z.shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return z.reshape(shape)


def einsum(*xs, equation=None):
    """A sum of products: einsum("ij,jk->ik", a, b)."""
    if xs and isinstance(xs[0], str):
        if equation is not None:
            raise TypeError("einsum: give one equation")
        equation, xs = xs[0], xs[1:]
    return op.einsum(*xs, equation=equation)


def tensordot(x, y, /, axes=2, *, axes_a=None, axes_b=None):
    """Sums of products over the last `axes` axes of x and the first of y, or over axes[0] of x and axes[1] of y."""
    x, y = asarray(x), asarray(y)
    if axes_a is None and axes_b is None:
        if isinstance(axes, int):
            axes_a, axes_b = range(x.ndim - axes, x.ndim), range(axes)
        else:
            axes_a, axes_b = axes
    return op.tensordot(x, y, axes_a=axes_a, axes_b=axes_b)


def outer(x, y, /):
    """All products of an element of x with one of y; both count as vectors."""
    return op.outer(asarray(x).reshape(-1), asarray(y).reshape(-1))


def inner(x, y, /):
    """Sums of products over the last axes."""
    x, y = asarray(x), asarray(y)
    return op.mul(x, y) if x.ndim == 0 or y.ndim == 0 else op.inner(x, y)


def vdot(x, y, /):
    """The sum of the products of all elements, those of x conjugated."""
    return op.vdot(asarray(x).reshape(-1), asarray(y).reshape(-1))


def cross(x, y, /, *, axis=-1):
    """The cross product of vectors of three numbers along an axis."""
    return op.cross(x, y, axis=axis)


def matrix_power(x, n, /):
    """x multiplied with itself n times; of its inverse for negative n."""
    return op.matrix_power(floating(x), n=n)


def cholesky(x, /, *, upper=False, lower=None):
    """The lower triangular matrix whose product with its adjoint is x, or the upper one."""
    return op.cholesky(floating(x), lower=not upper if lower is None else lower)


def qr(x, /, mode="reduced", *, complete=None):
    """(q, r) with x = q r, q orthonormal and r upper triangular; mode "complete" gives a square q."""
    if mode not in ("reduced", "complete"):
        raise UserError("attribute", f'qr: the mode is "reduced" or "complete", not {mode!r}')
    return op.qr(floating(x), complete=mode == "complete" if complete is None else complete)


def svd(x, /, full_matrices=True):
    """(u, s, vh) with x = u diag(s) vh; u and vh are square, or as narrow as s is long without full_matrices."""
    return op.svd(floating(x), full_matrices=full_matrices)


def lstsq(a, b, rcond=None, *, rtol=None):
    """The x of least norm for which a x is nearest to b, a matrix or a vector; singular values of at most rcond times
    the largest count as 0."""
    a, b, rtol = floating(asarray(a)), floating(asarray(b)), rcond if rtol is None else rtol
    if b.ndim != 1:
        return op.lstsq(a, b, rtol=rtol)
    x = op.lstsq(a, b.reshape(-1, 1), rtol=rtol)
    return x.reshape(x.shape[:-1])


_MATRIX_NORMS = {"fro": "fro", "nuc": "nuc", 1: "one", 2: "two", np.inf: "inf"}


def norm(x, /, ord=None, axis=None, keepdims=False, *, axes=None):
    """The length of vectors along an axis, or a norm of matrices along two.

    Without an axis: of x as one vector; with an `ord` of x as it is, a vector or a matrix. `axes` takes the vector norm
    over all of them.
    """
    x = floating(asarray(x))
    if axes is not None:
        return op.norm(x, axes=axes, keepdims=keepdims, ord=2.0 if ord is None else ord)
    if axis is None and ord is None:
        return op.norm(x, keepdims=keepdims)
    pair = tuple(range(x.ndim)) if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if len(pair) == 1:
        return op.norm(x, axes=pair, keepdims=keepdims, ord=2.0 if ord is None else ord)
    if len(pair) != 2:
        raise UserError("axis-range", f"norm: a norm over {len(pair)} axes needs them as axes=")
    if ord in (None, "fro"):
        return op.norm(x, axes=pair, keepdims=keepdims)
    if ord not in _MATRIX_NORMS:
        raise UserError("attribute", f"norm: of a matrix ord is one of {[*_MATRIX_NORMS]}, not {ord!r}")
    n = x.ndim
    pair = [a % n for a in pair]
    rest = [a for a in range(n) if a not in pair]
    y = op.matrix_norm(x.transpose(*rest, *pair), ord=_MATRIX_NORMS[ord])
    return y.reshape([1 if a in pair else s for a, s in enumerate(x.shape)]) if keepdims else y


METHODS = (
    abs, floor, ceil, trunc, round, logical_and, logical_or, logical_xor, logical_not, heaviside, clip, matmul,
    tensordot, outer, inner, vdot, cross, matrix_power, cholesky, qr, svd, norm, lstsq,
)  # fmt: skip
for _method in METHODS:
    setattr(Array, _method.__name__, _method)
