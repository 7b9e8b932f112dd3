"""rlx.Array: a tensor with NumPy's manners.

An array is immutable. It is either concrete (its elements are there) or traced (it stands for a value of a program that
`rlx.jit` and its kin, or an `rlx.Graph`, are writing); both have the same operators and methods. Every op of the table
is a method too: `x.softmax(axis=-1)`.

Arrays of different dtypes are promoted to one; a Python number or a NumPy scalar takes the dtype of the array it meets.
In a traced function a number that was an argument does so, too: what stands for it is *weak*.
"""

import builtins
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import _core, _indexing, op
from rlx._dims import Dim, equal, is_dim, pin, same
from rlx._dtypes import ALL as _DTYPES
from rlx._dtypes import BY_NUMPY, dtype, dtype_name
from rlx._errors import UserError, make_error
from rlx._tree import LEAF_TYPES

ArrayLike = Any
_FLOAT, _DOUBLE, _INT, _BOOL = dtype("f32"), dtype("f64"), dtype("i64"), dtype("bool")
_NUMBERS = (bool, int, float, complex)
_WEAK = (*_NUMBERS, np.generic, Dim)
_LISTS = (list, tuple, range)  # what arrays are made of, item by item
_OPERANDS = (_core.ArrayBase, int, float, complex, np.ndarray, np.generic, Dim, *_LISTS)


def _takes(other):
    return isinstance(other, _OPERANDS)


def is_number(x):
    """Whether x has a kind but no dtype of its own: a number of Python, a scalar of NumPy, a size."""
    return isinstance(x, _WEAK)


def _is_weak(x):
    return x._weak if isinstance(x, _core.ArrayBase) else is_number(x)


def exact(x):
    """What stands for a number, as an array with all its digits."""
    return x._as_weak(False) if isinstance(x, _core.ArrayBase) else x


def _is_fraction(x):
    return x.dtype.is_floating if isinstance(x, _core.ArrayBase) else isinstance(x, (float, np.floating))


def _weakly(f, *xs):
    """f, an operator of Python; of what stands for numbers it gives what stands for a number."""
    if not builtins.all([_is_weak(x) for x in xs]):
        return f(*xs)
    xs = [exact(_core.weak(x) if is_dim(x) else x) for x in xs]
    if f is _divide or builtins.any([_is_fraction(x) for x in xs]):  # as Python's, in double precision
        xs = [x.astype(_DOUBLE) if isinstance(x, _core.ArrayBase) else x for x in xs]
    y = f(*xs)
    return tuple(part._as_weak(True) for part in y) if isinstance(y, tuple) else y._as_weak(True)


def _binary(f, reflected=False):
    def method(self, other):
        if not _takes(other):
            # Else Python would repeat it, by way of __index__, or append the array's bytes to it.
            if f in (op.mul, op.add) and isinstance(other, Sequence):
                raise TypeError(f"{f.__name__}: a {type(other).__name__} is no operand for an array")
            return NotImplemented
        xs = (other, self) if reflected else (self, other)
        return _weakly(f, *xs) if self._weak else f(*xs)

    return method


def _equality(f, of_others):
    """== or !=. None, strings and bytes equal no element, as in NumPy; objects of other classes decide themselves."""
    compared = _binary(f)

    def method(self, other):
        if other is None or isinstance(other, (str, bytes)):
            from rlx._functions import full  # which needs arrays

            return full(self.shape, of_others)
        return compared(self, other)

    return method


def strong(x):
    """x, which no longer stands for a number."""
    return x.astype(x.dtype) if x._weak else x


def floating(x):
    """x, as floats when it is of integers or bools: of a number as of an array."""
    if isinstance(x, (bool, int)):
        return float(x)
    if is_number(x) and not isinstance(x, (np.integer, np.bool_)):
        return x  # a size counts as a float beside floats
    x = asarray(x)
    return x if x.dtype.kind in ("floating", "complex") else x.astype(_FLOAT)


def _divide(x, y):
    return op.div(floating(x), floating(y))


def _divmod(x, y):
    return op.floor_div(x, y), op.mod(x, y)


def _power(x, y):
    if (
        isinstance(y, (int, np.integer))
        and y < 0
        and not isinstance(x, _NUMBERS)
        and asarray(x).dtype.kind == "integer"
    ):
        raise UserError("negative-power", f"pow: integers to the negative power {y} are no integers; use floats")
    return op.pow(x, y)


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


def _matmul(x, y):
    from rlx._functions import matmul  # which needs arrays

    return matmul(x, y)


def _divided(x, shape):
    """x.reshape(shape) where -1 stands for a quotient that polynomials do not know, and the size of the call that is
    traced can be divided; else None."""
    known = [s for s in shape if not (isinstance(s, int) and s == -1)]
    if not is_dim(x.size) or len(known) + 1 != len(shape) or not all(isinstance(s, int) and s > 0 for s in known):
        return None
    rest = x.size // math.prod(known)
    whole = rest * math.prod(known)
    if same(whole, x.size) or not equal(whole, x.size):
        return None
    flat = op.slice(op.reshape(x, shape=[-1]), start=[0], limit=[whole], stride=[1])  # all of it
    return op.reshape(flat, shape=[rest if s == -1 else s for s in shape])


class Array(_core.ArrayBase):
    """A tensor. `rlx.array` makes one from anything array-like; its elements never change."""

    if TYPE_CHECKING:  # methods that these modules set: they need this one
        from rlx._aliases import dot, take, take_along_axis
        from rlx._functions import (
            abs,
            ceil,
            cholesky,
            clip,
            cross,
            floor,
            heaviside,
            inner,
            logical_and,
            logical_not,
            logical_or,
            logical_xor,
            lstsq,
            matmul,
            matrix_power,
            norm,
            outer,
            qr,
            round,
            svd,
            tensordot,
            trunc,
            vdot,
        )
        from rlx._reductions import (
            all,
            any,
            argmax,
            argmin,
            argsort,
            count_nonzero,
            cumprod,
            cumsum,
            max,
            mean,
            median,
            min,
            nanmean,
            nansum,
            prod,
            quantile,
            searchsorted,
            sort,
            std,
            sum,
            trace,
            var,
        )
        from rlx._shaping import (
            diagonal,
            expand_dims,
            pad,
            repeat,
            roll,
            split,
            squeeze,
            tile,
            tril,
            triu,
        )
        from rlx._spectral import fft, fftn, fftshift, ifft, ifftn, ifftshift, irfft, rfft

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
        n = self.shape[0]
        return pin("len()", n) if is_dim(n) else n

    def __repr__(self):
        if self._traced:
            return f"rlx.Array(traced {self._type})"
        if self.is_deleted():
            return f"rlx.Array({self._type}, donated)"
        text = np.array2string(self.numpy(), separator=", ", prefix="rlx.Array(", threshold=200)
        return f"rlx.Array({text}, dtype={self.dtype.long_name})"

    # ---- to Python and NumPy

    def numpy(self):
        """A read-only NumPy view of the elements. bfloat16 and the like need the package ml_dtypes; without it the
        elements are widened to float32, which is exact."""
        if self.dtype.dtype is None:
            self._check_concrete()
            return self.astype("float32").numpy()
        raw = self._raw()
        return raw if self.dtype.bits is None else raw.view(self.dtype.dtype)

    def _raw(self):
        """The elements in NumPy, of what NumPy lacks the bits."""
        self._check_concrete()
        if not self._on_host():
            return self._host()._raw()
        bits = self.dtype.bits
        if bits is not None:
            return np.asarray(memoryview(self._bytes_as(f"i{8 * bits.itemsize}"))).view(bits)
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

    def __array_function__(self, func, types, args, kwargs):
        """NumPy's functions take an array as the NumPy array it holds, and give NumPy's."""
        if func in _ABOUT_TYPES:
            return _ABOUT_TYPES[func](*args, **kwargs)
        return func(*_as_numpy(args), **_as_numpy(kwargs))

    @property
    def __array_interface__(self):
        if self._traced or self.dtype.bits is not None or not self._on_host():
            raise AttributeError("__array_interface__")
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.dtype.str, "data": (self._lend(), True)}

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A copy: who reads through DLPack may write, and an array never changes. `numpy.asarray` gives a view."""
        if copy is False:
            raise BufferError("an rlx.Array is immutable: DLPack gets a copy; numpy.asarray gives a read-only view")
        if dl_device is not None and tuple(dl_device) != self._dlpack_device() and tuple(dl_device) == (1, 0):
            return self._host().__dlpack__(max_version=max_version, copy=copy)
        options = {"max_version": max_version, "dl_device": dl_device}
        return self._dlpack_copy().__dlpack__(**{k: v for k, v in options.items() if v is not None})

    def __dlpack_device__(self):
        return self._dlpack_device()

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
        if self.dtype.kind != "integer" or self.shape != ():
            raise TypeError(f"only an array of rank 0 of integers can be an index, not {self._type}")
        return self._item()

    def __format__(self, spec):
        return format(self._item() if spec else self, spec) if spec else str(self)

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over an array of rank 0")
        return (self[i] for i in range(len(self)))

    def __contains__(self, x):
        return _takes(x) and bool((self == x).any())

    def __reduce__(self):
        return _restored, (self.dtype.name, self.shape, self._raw().tobytes())

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    # ---- operators

    __add__, __radd__ = _binary(op.add), _binary(op.add, True)
    __sub__, __rsub__ = _binary(op.sub), _binary(op.sub, True)
    __mul__, __rmul__ = _binary(op.mul), _binary(op.mul, True)
    __truediv__, __rtruediv__ = _binary(_divide), _binary(_divide, True)
    __floordiv__, __rfloordiv__ = _binary(op.floor_div), _binary(op.floor_div, True)
    __divmod__, __rdivmod__ = _binary(_divmod), _binary(_divmod, True)
    __mod__, __rmod__ = _binary(op.mod), _binary(op.mod, True)
    __pow__, __rpow__ = _binary(_power), _binary(_power, True)
    __lshift__, __rlshift__ = _binary(op.shift_left), _binary(op.shift_left, True)
    __rshift__, __rrshift__ = _binary(op.shift_right), _binary(op.shift_right, True)
    __matmul__, __rmatmul__ = _binary(_matmul), _binary(_matmul, True)
    __and__, __rand__ = _binary(_and), _binary(_and, True)
    __or__, __ror__ = _binary(_or), _binary(_or, True)
    __xor__, __rxor__ = _binary(_xor), _binary(_xor, True)
    __eq__, __ne__ = _equality(op.eq, False), _equality(op.ne, True)
    __lt__, __le__ = _binary(op.lt), _binary(op.le)
    __gt__, __ge__ = _binary(op.gt), _binary(op.ge)

    def __neg__(self):
        return _weakly(op.neg, self) if self._weak else op.neg(self)

    def __pos__(self):
        return self

    def __abs__(self):
        from rlx._functions import abs

        return _weakly(op.abs, self) if self._weak else abs(self)

    def __invert__(self):
        return _not(self)

    def __round__(self, ndigits=0):
        from rlx._functions import round

        return round(self, ndigits or 0)

    def __getitem__(self, index):
        return _indexing.get(self, index)

    def __setitem__(self, index, value):
        raise TypeError(
            "an rlx.Array never changes; make another one: rlx.where(mask, value, x), rlx.dynamic_update_slice(x, "
            "value, start), rlx.scatter(x, indices, values), or change a copy in NumPy, numpy.array(x)"
        )

    # ---- methods with NumPy's arguments

    def astype(self, dtype_):
        """The elements cast: floats to integers truncate and saturate, integers wrap, anything to bool is != 0."""
        to = dtype(dtype_)
        return self if to is self.dtype and not self._weak else op.cast(self, to=to)

    def reshape(self, *shape):
        """The same elements under another shape; one size may be -1."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if self._traced or any(not isinstance(s, int) for s in shape):
            divided = _divided(self, shape)
            return op.reshape(self, shape=shape) if divided is None else divided
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

    def copy(self):
        """The same elements in memory of their own, which stay when the array is donated (`jit`)."""
        return self if self._traced else self._copied()

    def flatten(self):
        return self.reshape(-1)

    ravel = flatten

    def broadcast_to(self, shape):
        return op.broadcast(self, shape=shape)

    @property
    def real(self):
        return op.real(self) if self.dtype.kind == "complex" else self

    @property
    def imag(self):
        from rlx._functions import zeros_like

        return op.imag(self) if self.dtype.kind == "complex" else zeros_like(self)


def _as_numpy(tree):
    if isinstance(tree, _core.ArrayBase):
        return tree.numpy()
    if type(tree) in (tuple, list):
        return type(tree)(_as_numpy(x) for x in tree)
    return {k: _as_numpy(v) for k, v in tree.items()} if type(tree) is dict else tree


def _size(x, axis=None):
    return x.size if axis is None else x.shape[axis]


# Functions of NumPy that ask for no elements, so that traced arrays can answer.
_ABOUT_TYPES = {
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: _size,
    np.result_type: lambda *xs: np.result_type(*[x.dtype.dtype if isinstance(x, Array) else x for x in xs]),
}


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
    return _core.from_buffer(found.name, a.shape, a if found.bits is None else a.view(found.bits))


def _check_fits(a, to):
    """Integers must hold the numbers in a, apart from their fractions."""
    limits = np.iinfo(to.dtype)
    whole = np.trunc(a) if a.dtype.kind == "f" else a
    low, high = int(limits.min), int(limits.max)
    fits = (whole >= low) & (whole < high + 1 if a.dtype.kind == "f" else whole <= high)  # high itself may be no float
    if not np.all(fits):
        bad = a[~fits].reshape(-1)[0].item()
        raise UserError("scalar-range", f"array: {bad} does not fit in {to.long_name}, from {low} to {high}")


def _from_list(x, to):
    """A Python number or nested lists of them: floats become float32, integers int64, unless told otherwise."""
    a = np.asarray(x)
    if a.dtype.kind == "f" and np.any(np.abs(a) >= 2.0**63):
        large = [v for v in _leaves([x]) if isinstance(v, int) and not -(2**63) <= v < 2**63]
        if large:  # NumPy has made floats of integers of both signs
            raise UserError("scalar-range", f"array: {large[0]} does not fit in 64 bits; write it as a float")
    if a.dtype.kind in "iubf" and to is not None and to.kind == "integer":
        _check_fits(a, to)
        return _from_numpy(a.astype(to.dtype), None)
    if a.dtype == np.float64:
        if to is None or (to.is_floating and to.dtype is not None):
            return _from_numpy(a.astype((to or _FLOAT).dtype), None)
    if a.dtype == np.complex128 and (to is None or to.kind == "complex"):
        return _from_numpy(a.astype(np.complex64), None)
    return _from_numpy(a, to)


def _leaves(x):
    for item in x:
        if isinstance(item, _LISTS):
            yield from _leaves(item)
        else:
            yield item


def _from_mixed_list(x, to):
    """Nested lists with arrays or scalars of NumPy in them: promoted as when these meet."""
    to = to or _DTYPES[_core.joint_dtype(list(_leaves(x)))]
    return _stacked(x, to)


def _stacked(x, to):
    parts = [_stacked(item, to) if isinstance(item, _LISTS) else _part(item, to) for item in x]
    if not parts:
        return _from_numpy(np.zeros(0, to.dtype or np.float32), None).astype(to)
    return op.concat(*[strong(p).reshape((1, *p.shape)) for p in parts], axis=0)


def _part(x, to):
    """An item of a list in the list's dtype; a number must fit."""
    if is_number(x) and _DTYPES[_core.joint_dtype([_core.scalar(0, to.index), x])] is to:
        return _core.scalar(x, to.index)
    return asarray(x, to)


def asarray(x, dtype=None, *, device=None):
    """x as an `rlx.Array`, itself when it is one already.

    Takes NumPy arrays of any layout and byte order, objects with the buffer protocol, `__array__` or DLPack, numbers
    and nested lists. NumPy arrays and scalars keep their dtype; Python floats become float32, integers int64, complex
    numbers complex64; a list of several dtypes gets that which they have when they meet. A dtype that RLX
    lacks raises `rlx.Error` with the code "dtype": no value is ever changed silently. With a dtype, arrays are cast as
    by `astype`; Python's numbers must fit: floats lose their fraction in integers, and NaN or 1e10 in int32 raise.
    A new array is made on this thread's device (`use_backend`), or on `device`; an array that is one stays where it is,
    without `device`.
    """
    if device is not None:
        return asarray(x, dtype).to_device(device)
    to = None if dtype is None else _as_dtype(dtype)
    if isinstance(x, _core.ArrayBase):
        made = x
    elif isinstance(x, (np.ndarray, np.generic)):
        made = _from_numpy(x if isinstance(x, np.ndarray) else np.asarray(x), to)
    elif isinstance(x, _NUMBERS):
        made = _from_list(x, to)
    elif is_dim(x):
        made = _core.scalar(x, _INT.index)
    elif isinstance(x, _LISTS):
        plain = builtins.all(type(item) in _NUMBERS for item in _leaves(x))
        made = _from_list(x, to) if plain else _from_mixed_list(x, to)
    elif hasattr(x, "__dlpack__"):
        made = from_dlpack(x)
    elif hasattr(x, "__array__") or hasattr(x, "__array_interface__") or isinstance(x, (memoryview, bytearray)):
        made = _from_numpy(np.asarray(x), to)
    else:
        raise UserError("array-like", f"cannot make an array of {x!r}, a {type(x).__name__}")
    return made if to is None else made.astype(to)


_as_dtype = dtype
array = asarray
LEAF_TYPES.update((Array, np.ndarray))


def from_dlpack(x):
    """A copy of what x shares through DLPack, on the device where it lies; one of those that `rlx.backends()` lists."""
    if not hasattr(x, "__dlpack__"):
        raise UserError("array-like", f"from_dlpack: {type(x).__name__} has no __dlpack__")
    try:
        return _core.from_dlpack(x)
    except TypeError:
        raise UserError("array-like", f"from_dlpack: {type(x).__name__} cannot be read through DLPack") from None


_core.set_hooks(Array, asarray, np.generic, dtype_name, make_error, Dim)
for _name, _function in op.FUNCTIONS.items():
    if op.ENTRIES.get(_name) and op.ENTRIES[_name].arity != 0 and not hasattr(Array, _name):
        setattr(Array, _name, _function)
