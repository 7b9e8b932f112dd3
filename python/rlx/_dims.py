"""rlx.Dim: a size that is not known yet.

In an `rlx.Graph` it is what its author named: `rlx.Dim("batch") * 2`. In a function that `rlx.jit` traces for many
sizes it is the size of an axis that changes from call to call: sums, products and quotients of sizes are sizes again,
everywhere else it counts as the integer it will be, and what needs the integer at once (`int(n)`, `range(n)`,
`if n > m`, a dict's key) *pins* the axis: the trace is given up and begun anew with a number there.
"""

import contextlib
import sys
import threading

import numpy as np

from rlx import _core
from rlx._errors import UserError

_INTEGERS = (int, np.integer, _core.DimBase)
_OTHERS = (float, complex, np.generic, np.ndarray)
LEAST = 2  # what a size of a traced function is at least: 0 and 1 have programs of their own


class Pin(BaseException):
    """Ends a trace that needs the number of a size. Not an Exception: the traced function must not catch it."""


class Symbols:
    """The symbols of one trace, what they stand for in the call that is traced, and which of them are pinned, and why.

    alike: by symbol, what is equal for axes that have been of one size in all calls; None when those share a symbol
    already. unites: the trace asks whether two of them are equal.
    """

    def __init__(self, values, alike=None):
        self.values, self.alike, self.pins, self.unites = values, alike, {}, None
        self.guards = []  # (a, b, whether a <= b): what the program takes for granted


_active = threading.local()


def _traces():
    if not hasattr(_active, "stack"):
        _active.stack = []
    return _active.stack


@contextlib.contextmanager
def tracing(symbols):
    """While sizes of this thread's trace are these symbols."""
    stack = _traces()
    stack.append(symbols)
    try:
        yield symbols
    finally:
        stack.pop()


def is_dim(x):
    return isinstance(x, _core.DimBase)


def _is_integer(x):
    return isinstance(x, _INTEGERS)


def _owner(*dims):
    """The innermost trace that has one of their symbols, and which; None for those of a graph."""
    names = {s for d in dims if is_dim(d) for s in d._symbols()}
    for symbols in reversed(_traces()):
        mine = names & symbols.values.keys()
        if mine:
            return symbols, mine
    return None


def _caller():
    """FILE:LINE of what called the package."""
    frame = sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__name__") or "").split(".")[0] in ("rlx", "numpy"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "an unknown place"


def pin(what, *dims):
    """Raises: the program that is traced needs these sizes as numbers, for `what`."""
    found = _owner(*dims)
    if found is None:
        shown = ", ".join(str(d) for d in dims if is_dim(d))
        raise UserError("unbound-dim", f"{what}: the size {shown} is not known here")
    symbols, mine = found
    why = f"{what} at {_caller()}"
    for name in mine:
        symbols.pins.setdefault(name, why)
    raise Pin(why)


def same(a, b):
    """Whether two sizes are the same number or the same polynomial; asks for no number."""
    return _core.dim_equal(a, b)


def _differ(a, b):
    """Whether two sizes are never the same."""
    return bool(_at_most(_core.dim_add(a, 1), b) or _at_most(_core.dim_add(b, 1), a))


def equal(a, b):
    """a == b, for functions that arrange elements: where it depends on the sizes, as at_most() answers."""
    return same(a, b) or (_owner(a, b) is not None and at_most(a, b) and at_most(b, a))


def equal_shapes(a, b):
    return len(a) == len(b) and all(map(equal, a, b))


def _at_most(a, b):
    return _core.dim_at_most(a, b, 0 if _owner(a, b) is None else LEAST)


def _is_at_most(a, b, sign):
    """a <= b, which the comparison `sign` asks."""
    answer = _at_most(a, b)
    return pin(sign, a, b) if answer is None else answer


def at_most(a, b):
    """a <= b, for functions that arrange elements: where it depends on the sizes, the answer is that of the call which
    is traced, and the program is used only for sizes of the same answer."""
    answer = a <= b if not is_dim(a) and not is_dim(b) else _at_most(a, b)
    if answer is not None:
        return answer
    found = _owner(a, b)
    if found is None:
        pin("<=", a, b)
    symbols, _ = found
    answer = _value(a, symbols.values) <= _value(b, symbols.values)
    symbols.guards.append((a, b, answer))
    return answer


def _value(n, sizes):
    return n._at(sizes) if is_dim(n) else n


def holds(guard, sizes):
    """Whether what a program takes for granted is true for these sizes, by symbol."""
    a, b, answer = guard
    return (_value(a, sizes) <= _value(b, sizes)) == answer


def less(a, b):
    return at_most(_core.dim_add(a, 1), b)


def _is_equal(a, b, sign):
    if _core.dim_equal(a, b):
        return True
    found = _owner(a, b)
    if found is None or _differ(a, b):
        return False
    symbols, _ = found
    names = {s for d in (a, b) if is_dim(d) for s in d._symbols()}
    if symbols.alike and len(names) > 1 and len({symbols.alike.get(s) for s in names}) == 1:
        symbols.unites = f"{sign} at {_caller()}"
        raise Pin(symbols.unites)
    return pin(sign, a, b)


def _question(sign, answer):
    def method(self, other):
        if isinstance(other, (float, np.floating)):
            return pin(sign, self)
        return answer(self, other) if _is_integer(other) else NotImplemented

    return method


def _arithmetic(f, weakly):
    """An operator and its mirror: sizes with sizes and integers give sizes, with others what stands for a number."""

    def method(self, other):
        if _is_integer(other):
            return f(self, other)
        return weakly(_core.weak(self), other) if isinstance(other, _OTHERS) else NotImplemented

    def mirrored(self, other):
        if _is_integer(other):
            return f(other, self)
        return weakly(other, _core.weak(self)) if isinstance(other, _OTHERS) else NotImplemented

    return method, mirrored


def _floor_div(a, b):
    if not is_dim(b):
        b = int(b)
        if b == 0:
            raise ZeroDivisionError("a size divided by zero")
        return _core.dim_floor_div(a, b) if b > 0 else _core.dim_floor_div(_core.dim_sub(0, a), -b)
    exact = _core.dim_divide(a, b)
    return pin("//", a, b) if exact is None else exact


def _mod(a, b):
    return _core.dim_sub(a, _core.dim_mul(_floor_div(a, b), b))


def _power(a, b):
    if isinstance(b, (int, np.integer)) and 0 <= b <= 8:
        result = 1
        for _ in range(b):
            result = _core.dim_mul(result, a)
        return result
    return _as_number(a) ** _as_number(b)


def _as_number(x):
    return _core.weak(x) if is_dim(x) else x


class Dim(_core.DimBase):
    """A size of an axis that is not known yet: a polynomial over named symbols, as in rlx.Dim("batch") * 2."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's arrays leave operators to us

    __add__, __radd__ = _arithmetic(_core.dim_add, lambda a, b: a + b)
    __sub__, __rsub__ = _arithmetic(_core.dim_sub, lambda a, b: a - b)
    __mul__, __rmul__ = _arithmetic(_core.dim_mul, lambda a, b: a * b)
    __floordiv__, __rfloordiv__ = _arithmetic(_floor_div, lambda a, b: a // b)
    __mod__, __rmod__ = _arithmetic(_mod, lambda a, b: a % b)
    __truediv__, __rtruediv__ = _arithmetic(lambda a, b: _as_number(a) / _as_number(b), lambda a, b: a / b)
    __pow__, __rpow__ = _arithmetic(_power, lambda a, b: a**b)

    def __divmod__(self, other):
        return self // other, self % other

    def __rdivmod__(self, other):
        return other // self, other % self

    def __neg__(self):
        return _core.dim_sub(0, self)

    def __pos__(self):
        return self

    def __abs__(self):
        return self if self >= 0 else -self

    def __round__(self, ndigits=None):
        return self

    __floor__ = __ceil__ = __trunc__ = __pos__

    # ---- questions

    __eq__ = _question("==", lambda a, b: _is_equal(a, b, "=="))
    __ne__ = _question("!=", lambda a, b: not _is_equal(a, b, "!="))
    __le__ = _question("<=", lambda a, b: _is_at_most(a, b, "<="))
    __lt__ = _question("<", lambda a, b: _is_at_most(_core.dim_add(a, 1), b, "<"))
    __ge__ = _question(">=", lambda a, b: _is_at_most(b, a, ">="))
    __gt__ = _question(">", lambda a, b: _is_at_most(_core.dim_add(b, 1), a, ">"))

    def __hash__(self):
        return self._hash() if _owner(self) is None else pin("hash()", self)

    def __bool__(self):
        return not _is_equal(self, 0, "bool()")

    # ---- numbers, which pin it

    def __int__(self):
        return pin("int()", self)

    def __index__(self):
        return pin("use as an index", self)

    def __float__(self):
        return pin("float()", self)

    def __complex__(self):
        return pin("complex()", self)

    def __array__(self, dtype=None, copy=None):
        return pin("use in NumPy", self)

    def __format__(self, spec):
        return format(int(self), spec) if spec else repr(self)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self
