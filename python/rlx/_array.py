"""rlx.Array: a tensor with NumPy's manners.

An array is immutable. It is either concrete (its elements are there) or traced (it stands for a value of a program that
`rlx.jit` and its kin, or an `rlx.Graph`, are writing); both have the same operators and methods. Every op of the table
is a method too: `x.softmax(axis=-1)`.

Arrays of different dtypes are promoted to one that holds both; a Python number takes the dtype of the array it meets.
"""

import math
from typing import Any

import numpy as np

from rlx import _core, _indexing, op
from rlx._dtypes import ALL as _DTYPES
from rlx._dtypes import BY_NUMPY, dtype, dtype_name
from rlx._errors import UserError, UserIndexError, make_error

ArrayLike = Any
_FLOAT, _INT, _BOOL = dtype("f32"), dtype("i64"), dtype("bool")
_NUMBERS = (bool, int, float, complex)


def _takes(other):
    return isinstance(other, (_core.ArrayBase, int, float, complex, np.ndarray, np.generic))


def _binary(f, reflected=False):
    def method(self, other):
        if not _takes(other):
            return NotImplemented
        return f(other, self) if reflected else f(self, other)

    return method


def _floating(x):
    """x, as floats when it is of integers or bools."""
    if isinstance(x, (bool, int)):
        return float(x)
    if isinstance(x, (float, complex)):
        return x
    x = asarray(x)
    return x if x.dtype.kind in ("floating", "complex") else x.astype(_DTYPES[_core.promote(x._dtype, _FLOAT.index)])


def _divide(x, y):
    return op.div(_floating(x), _floating(y))


def _logical(bools, integers):
    """A bitwise operator: of bools, and of integers where the table has such an op."""

    def call(*xs):
        if all(asarray(x).dtype == _BOOL for x in xs):
            return op.FUNCTIONS[bools](*xs)
        if integers not in op.FUNCTIONS:
            raise UserError(
                "dtype", f"{integers}: takes bools only, got {', '.join(str(asarray(x).dtype) for x in xs)}"
            )
        return op.FUNCTIONS[integers](*xs)

    return call


_and = _logical("logical_and", "bitwise_and")
_or = _logical("logical_or", "bitwise_or")
_xor = _logical("logical_xor", "bitwise_xor")
_not = _logical("logical_not", "bitwise_not")


def matmul(x, y, /):
    """The matrix product as NumPy's `@`: vectors count as a row on the left and a column on the right."""
    x, y = asarray(x), asarray(y)
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


class Array(_core.ArrayBase):
    """A tensor. `rlx.array` makes one from anything array-like; its elements never change."""

    __slots__ = ()
    __array_priority__ = 100  # a NumPy array on the left of an operator leaves it to us
    __hash__ = None

    # ---- what it is

    @property
    def dtype(self):
        """The element type, an `rlx.DType`."""
        return _DTYPES[self._dtype]

    @property
    def __numpy_dtype__(self):  # what numpy.result_type asks for
        return self.dtype.__numpy_dtype__

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self):
        return self.dtype.itemsize

    @property
    def nbytes(self):
        return self.size * self.itemsize

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of an array of rank 0")
        return self.shape[0]

    def __repr__(self):
        if self._traced:
            return f"rlx.Array(traced {self._type})"
        text = np.array2string(self.numpy(), separator=", ", prefix="rlx.Array(", threshold=200)
        return f"rlx.Array({text}, dtype={self.dtype.long_name})"

    # ---- to Python and NumPy

    def numpy(self):
        """A read-only NumPy view of the elements. bfloat16 needs the package ml_dtypes; without it the elements are
        widened to float32, which is exact."""
        raw = self._raw()
        if self.dtype.name != "bf16":
            return raw
        if self.dtype.dtype is not None:
            return raw.view(self.dtype.dtype)
        return (raw.astype(np.uint32) << 16).view(np.float32)

    def _raw(self):
        """The elements in NumPy, bfloat16 as its bits in uint16."""
        self._check_concrete()
        if self.dtype.name == "bf16":
            return np.asarray(memoryview(self._bytes_as("i16"))).view(np.uint16)
        return np.asarray(memoryview(self))

    @classmethod
    def _from_raw(cls, raw, dt):
        raw = np.asarray(raw, order="C")
        return _core.from_buffer(dt.name, raw.shape, raw)

    def __array__(self, dtype=None, copy=None):
        view = self.numpy()
        if dtype is not None and view.dtype != dtype:
            if copy is False:
                raise ValueError("a conversion needs a copy")
            return view.astype(dtype)
        return view.copy() if copy else view

    @property
    def __array_interface__(self):
        if self._traced or self.dtype.name == "bf16":
            raise AttributeError("__array_interface__")
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.dtype.str, "data": (self._address, True)}

    def __dlpack__(self, **options):
        return self._dlpack_view().__dlpack__(**{k: v for k, v in options.items() if v is not None})

    def __dlpack_device__(self):
        return (1, 0)  # the CPU

    def item(self):
        """The one element as a Python number."""
        return self._item()

    def tolist(self):
        """The elements as nested lists of Python numbers."""
        return self.numpy().tolist()

    def __bool__(self):
        return bool(self._item())

    def __int__(self):
        return int(self._item())

    def __float__(self):
        return float(self._item())

    def __complex__(self):
        return complex(self._item())

    def __index__(self):
        if self.dtype.kind != "integer":
            raise TypeError(f"an index must be an integer, not {self.dtype!r}")
        return self._item()

    def __format__(self, spec):
        return format(self._item() if spec else self, spec) if spec else str(self)

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over an array of rank 0")
        return (self[i] for i in range(len(self)))

    def __contains__(self, x):
        return bool((self == x).any())

    def __reduce__(self):
        return _restored, (self.dtype.name, self.shape, self._raw().tobytes())

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    # ---- operators

    __add__, __radd__ = _binary(op.add), _binary(op.add, True)
    __sub__, __rsub__ = _binary(op.sub), _binary(op.sub, True)
    __mul__, __rmul__ = _binary(op.mul), _binary(op.mul, True)
    __truediv__, __rtruediv__ = _binary(_divide), _binary(_divide, True)
    __floordiv__, __rfloordiv__ = _binary(op.floor_div), _binary(op.floor_div, True)
    __mod__, __rmod__ = _binary(op.mod), _binary(op.mod, True)
    __pow__, __rpow__ = _binary(op.pow), _binary(op.pow, True)
    __matmul__, __rmatmul__ = _binary(matmul), _binary(matmul, True)
    __and__, __rand__ = _binary(_and), _binary(_and, True)
    __or__, __ror__ = _binary(_or), _binary(_or, True)
    __xor__, __rxor__ = _binary(_xor), _binary(_xor, True)
    __eq__, __ne__ = _binary(op.eq), _binary(op.ne)
    __lt__, __le__ = _binary(op.lt), _binary(op.le)
    __gt__, __ge__ = _binary(op.gt), _binary(op.ge)

    def __neg__(self):
        return op.neg(self)

    def __pos__(self):
        return self

    def __abs__(self):
        return op.abs(self)

    def __invert__(self):
        return _not(self)

    def __round__(self):
        return op.round(self)

    def __getitem__(self, index):
        return _indexing.get(self, index)

    # ---- methods with NumPy's arguments

    def astype(self, dtype_):
        """The elements cast: floats to integers truncate and saturate, integers wrap, anything to bool is != 0."""
        to = dtype(dtype_)
        return self if to is self.dtype else op.cast(self, to=to)

    def reshape(self, *shape):
        """The same elements under another shape; one size may be -1."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if self._traced or any(not isinstance(s, int) for s in shape):
            return op.reshape(self, shape=shape)
        known = math.prod(s for s in shape if s != -1)
        if -1 in shape and known:
            shape = [self.size // known if s == -1 else s for s in shape]
        if math.prod(shape) != self.size or any(s < 0 for s in shape):
            return op.reshape(self, shape=shape)  # says why not
        return self._reshaped(list(shape))

    def transpose(self, *axes):
        """The axes in another order; without axes: reversed."""
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        n = self.ndim
        return op.transpose(self, perm=[a % n if -n <= a < n else a for a in axes] or range(n - 1, -1, -1))

    @property
    def T(self):
        return self.transpose()

    @property
    def mT(self):
        """The last two axes swapped."""
        return self.swapaxes(-1, -2)

    def swapaxes(self, a, b):
        axes = list(range(self.ndim))
        axes[a], axes[b] = axes[b], axes[a]
        return self.transpose(axes)

    def flatten(self):
        return self.reshape(-1)

    ravel = flatten

    def squeeze(self, axis=None):
        """Without the axes of size 1, or without the given ones."""
        if axis is None:
            return self.reshape([s for s in self.shape if s != 1])
        drop = self._axes(axis)
        for a in drop:
            if self.shape[a] != 1:
                raise UserError("squeeze-dim", f"squeeze: axis {a} of {self._type} is not of size 1")
        return self.reshape([s for i, s in enumerate(self.shape) if i not in drop])

    def expand_dims(self, axis):
        n = self.ndim + 1
        shape = list(self.shape)
        shape.insert(axis % n, 1)
        return self.reshape(shape)

    def broadcast_to(self, shape):
        return op.broadcast(self, shape=shape)

    def _axes(self, axis):
        n = self.ndim
        axes = range(n) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
        for a in axes:
            if not -n <= a < n:
                raise UserIndexError("axis-range", f"axis {a} is out of range for {self._type}")
        return [a % n for a in axes]

    def sum(self, axis=None, keepdims=False):
        x = self.astype(_INT) if self.dtype == _BOOL else self
        return op.reduce_sum(x, axes=self._axes(axis), keepdims=keepdims)

    def mean(self, axis=None, keepdims=False):
        return op.reduce_mean(_floating(self), axes=self._axes(axis), keepdims=keepdims)

    def prod(self, axis=None, keepdims=False):
        return op.reduce_prod(self, axes=self._axes(axis), keepdims=keepdims)

    def max(self, axis=None, keepdims=False):
        return op.reduce_max(self, axes=self._axes(axis), keepdims=keepdims)

    def min(self, axis=None, keepdims=False):
        return op.reduce_min(self, axes=self._axes(axis), keepdims=keepdims)

    def any(self, axis=None, keepdims=False):
        x = self.astype(_BOOL).astype(_INT)
        return op.ne(op.reduce_sum(x, axes=self._axes(axis), keepdims=keepdims), 0)

    def all(self, axis=None, keepdims=False):
        return op.logical_not(op.logical_not(self.astype(_BOOL)).any(axis, keepdims))

    def var(self, axis=None, keepdims=False):
        x = _floating(self)
        return op.square(x - x.mean(axis, True)).mean(axis, keepdims)

    def std(self, axis=None, keepdims=False):
        return op.sqrt(self.var(axis, keepdims))

    def argmax(self, axis=None, keepdims=False):
        if axis is None:
            return op.argmax(self.reshape(-1), axis=0)
        return op.argmax(self, axis=axis, keepdims=keepdims)

    def clip(self, low, high):
        return op.clamp(self, low, high)

    @property
    def real(self):
        return op.real(self) if self.dtype.kind == "complex" else self

    @property
    def imag(self):
        return op.imag(self) if self.dtype.kind == "complex" else zeros_like(self)


def _restored(dtype_, shape, data):
    """A pickled array."""
    return _core.from_buffer(dtype_, shape, data)


# ---- making arrays


def _unsupported(found):
    names = ", ".join(d.long_name for d in _DTYPES)
    return UserError(
        "dtype", f"array: the dtype {found} is not supported; there are {names}. Convert with .astype first."
    )


def _from_numpy(a, to):
    """A copy of a NumPy array, in `to` when that can hold every value of a dtype that we lack."""
    if isinstance(a, np.ma.MaskedArray):
        raise UserError("masked", "array: a masked array has no values behind its mask; fill it first (.filled)")
    found = BY_NUMPY.get(a.dtype.newbyteorder("="))
    if found is None:
        if to is None or to.dtype is None or not np.can_cast(a.dtype, to.dtype, "safe"):
            raise _unsupported(a.dtype)
        found = to
        a = a.astype(to.dtype)
    a = np.asarray(a, dtype=a.dtype.newbyteorder("="), order="C")
    return _core.from_buffer(found.name, a.shape, a.view(np.uint16) if found.name == "bf16" else a)


def _from_list(x, to):
    """A Python number or nested lists of them: floats become float32, integers int64, unless told otherwise."""
    a = np.asarray(x)
    if a.dtype == np.float64 and not isinstance(x, np.generic):
        if to is None or (to.is_floating and to.dtype is not None):
            return _from_numpy(a.astype((to or _FLOAT).dtype), None)
    if a.dtype == np.complex128 and (to is None or to.kind == "complex"):
        return _from_numpy(a.astype(np.complex64), None)
    if a.dtype.kind in "iub" and to is not None and to.kind == "integer":
        limits = np.iinfo(to.dtype)
        if a.size and (a.min() < limits.min or a.max() > limits.max):
            raise UserError("scalar-range", f"array: the values do not all fit in {to.long_name}")
        return _from_numpy(a.astype(to.dtype), None)
    return _from_numpy(a, to)


def _has_arrays(x):
    return isinstance(x, _core.ArrayBase) or (isinstance(x, (list, tuple)) and any(map(_has_arrays, x)))


def asarray(x, dtype=None):
    """x as an `rlx.Array`, itself when it is one already.

    Takes NumPy arrays of any layout and byte order, objects with the buffer protocol, `__array__` or DLPack, numbers
    and nested lists. NumPy arrays keep their dtype; Python floats become float32, integers int64, complex numbers
    complex64. A dtype that RLX lacks raises `rlx.Error` with the code "dtype": no value is ever changed silently.
    """
    to = None if dtype is None else _as_dtype(dtype)
    if isinstance(x, _core.ArrayBase):
        made = x
    elif isinstance(x, (np.ndarray, np.generic)):
        made = _from_numpy(x if isinstance(x, np.ndarray) else np.asarray(x), to)
    elif isinstance(x, _NUMBERS):
        made = _from_list(x, to)
    elif isinstance(x, (list, tuple)):
        made = _stacked(x) if _has_arrays(x) else _from_list(x, to)
    elif hasattr(x, "__dlpack__"):
        made = from_dlpack(x)
    elif hasattr(x, "__array__") or hasattr(x, "__array_interface__") or isinstance(x, (memoryview, bytearray)):
        made = _from_numpy(np.asarray(x), to)
    else:
        raise UserError("array-like", f"cannot make an array of {x!r}, a {type(x).__name__}")
    return made if to is None else made.astype(to)


def _stacked(xs):
    """An array of a list that holds arrays."""
    parts = [asarray(x) for x in xs]
    return op.concat(*[p.reshape((1, *p.shape)) for p in parts], axis=0)


_as_dtype = dtype
array = asarray


def zeros_like(x):
    """Zeros of x's shape and dtype."""
    zero = asarray(0).astype(x.dtype)
    return op.broadcast(zero, shape=x.shape) if x._traced else x._from_raw(np.zeros_like(x._raw()), x.dtype)


def from_dlpack(x):
    """A copy of what x shares through DLPack; x must lie in the memory of the CPU."""
    if not hasattr(x, "__dlpack__"):
        raise UserError("array-like", f"from_dlpack: {type(x).__name__} has no __dlpack__")
    if tuple(x.__dlpack_device__())[0] not in (1, 3):
        raise UserError("array-like", "from_dlpack: the data does not lie in the memory of the CPU")
    try:
        return _core.from_dlpack(x)
    except TypeError:
        raise UserError("array-like", f"from_dlpack: {type(x).__name__} cannot be read through DLPack") from None


_core.set_hooks(Array, asarray, dtype_name, make_error)
for _name, _function in op.FUNCTIONS.items():
    if op.ENTRIES.get(_name) and op.ENTRIES[_name].arity != 0 and not hasattr(Array, _name):
        setattr(Array, _name, _function)
