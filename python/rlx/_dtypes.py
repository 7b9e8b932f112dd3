"""Element types: one object per dtype, equal to every usual way of naming it."""

import numpy as np

from rlx import _core
from rlx._errors import UserError

try:
    import ml_dtypes
except ImportError:  # bfloat16 and the like then have no NumPy dtype; .numpy() widens them to float32
    ml_dtypes = None

# Strings that mean one dtype in the table and another one in NumPy.
_AMBIGUOUS = {"i8": ("int8", "int64"), "u8": ("uint8", "uint64"), "f16": ("float16", "longdouble")}


class DType:
    """A dtype: `rlx.float32`, also known as "f32", "float32", "f4", numpy.float32.

    `name` is the table's and that of graph text ("f32"), `long_name` NumPy's ("float32"), `dtype` the NumPy dtype (None
    for bfloat16 without the package ml_dtypes). `bits` is None, or the NumPy dtype of the same width that stands for one
    which NumPy itself lacks.
    """

    __slots__ = ("bits", "dtype", "index", "itemsize", "kind", "long_name", "name")

    def __init__(self, index, name, itemsize, kind, long_name, lacking):
        self.index, self.name, self.itemsize, self.long_name = index, name, itemsize, long_name
        self.kind = ("bool", "integer", "floating", "complex")[kind]
        self.bits = np.dtype(f"u{itemsize}") if lacking else None
        if lacking:
            self.dtype = np.dtype(getattr(ml_dtypes, long_name)) if ml_dtypes else None
        else:
            self.dtype = np.dtype(long_name)

    @property
    def __numpy_dtype__(self):  # so that NumPy takes it for a dtype
        if self.dtype is None:
            raise AttributeError(f"NumPy has no {self.long_name} without the package ml_dtypes")
        return self.dtype

    @property
    def is_floating(self):
        return self.kind == "floating"

    def __eq__(self, other):
        if isinstance(other, DType):
            return self is other
        if isinstance(other, str) and other in _AMBIGUOUS:
            return dtype(other) is self  # raises: neither answer is right
        try:
            return dtype(other) is self
        except (UserError, TypeError):
            return NotImplemented

    def __hash__(self):
        return hash(self.dtype) if self.dtype is not None else hash(self.name)

    def __repr__(self):
        return f"rlx.{self.long_name}"

    def __reduce__(self):
        return dtype, (self.long_name,)


ALL = [DType(i, *row) for i, row in enumerate(_core.dtypes())]
_BY_NAME = {d.name: d for d in ALL if d.name not in _AMBIGUOUS} | {d.long_name: d for d in ALL}
_OF_TABLE = {d.name: d for d in ALL}
BY_NUMPY = {d.dtype: d for d in ALL if d.dtype is not None}
_BY_TYPE = {float: _BY_NAME["f32"], int: _BY_NAME["i64"], bool: _BY_NAME["bool"], complex: _BY_NAME["c64"]}


def dtype(x):
    """The `DType` named by x: a DType, a name ("f32", "float32", "f4"), a NumPy dtype or scalar type, or a type of
    Python.

    Python's float is float32, int is int64, complex is complex64. "i8", "u8" and "f16" raise: graph text and NumPy read
    them differently.
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, str) and x in _AMBIGUOUS:
        ours, numpys = _AMBIGUOUS[x]
        raise UserError(
            "dtype", f'the dtype "{x}" is {ours} in graph text and {numpys} in NumPy: use one of these names'
        )
    found = _BY_NAME.get(x) if isinstance(x, str) else _BY_TYPE.get(x) if isinstance(x, type) else None
    if found is None:
        try:
            found = BY_NUMPY.get(np.dtype(x).newbyteorder("="))
        except TypeError:
            found = None
    if found is None:
        raise UserError("dtype", f"there is no dtype {x!r}; there are {', '.join(d.long_name for d in ALL)}")
    return found


def from_table(name):
    """The `DType` of a name as graph text has it, where "i8" is int8."""
    return _OF_TABLE[name]


def dtype_name(x):
    """The table's name of a dtype."""
    return dtype(x).name
