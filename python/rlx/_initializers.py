"""Initial values of parameters: functions init(key, shape, dtype="float32", fans="in_out") -> array.

    w = rlx.nn.kaiming_normal()(rlx.key(0), (784, 128))

Matrices are [in, out], as in x @ w: fan_in is the size of all axes but the last, fan_out that of the last. With
fans="out_in" they are weights of convolutions, [out, in, window..]: fan_in is the size of all axes but the first,
fan_out that of all but the second. Numbers are drawn in float32 (float64 for float64) and rounded once.
"""

import dataclasses
import math

from rlx import op
from rlx._dtypes import dtype as as_dtype
from rlx._errors import UserError
from rlx._functions import full


@dataclasses.dataclass(frozen=True)
class Initializer:
    """What one of the functions of this module returns."""

    name: str
    numbers: tuple

    def __call__(self, key, shape, dtype="float32", fans="in_out"):
        """An array of that shape, drawn by the key."""
        shape, to = tuple(shape), as_dtype(dtype)
        if not to.is_floating:
            raise UserError("dtype", f"{self.name}: parameters are of floats, not {to.long_name}")
        draw = _Draw(self.name, key, shape, "float64" if to == "float64" else "float32", fans)
        return _FORMULAS[self.name](draw, *self.numbers).astype(to)

    def __repr__(self):
        return f"{self.name}({', '.join(map(repr, self.numbers))})"


class _Draw:
    """What formulas draw from."""

    def __init__(self, name, key, shape, dtype, fans):
        self.name, self.key, self.fans, self.like = name, key, fans, {"shape": shape, "dtype": dtype}

    def normal(self, std, mean=0.0):
        return op.random_normal(self.key, **self.like) * std + mean

    def uniform(self, low, high):
        return op.random_uniform(self.key, **self.like) * (high - low) + low

    def truncated(self, std, mean, cut):
        return op.random_truncated_normal(self.key, **self.like, lower=-cut, upper=cut) * std + mean

    def constant(self, value):
        return full(self.like["shape"], value, self.like["dtype"])

    def fan(self):
        """(fan_in, fan_out)"""
        shape = self.like["shape"]
        if len(shape) < 2:
            raise UserError("init-fan", f"{self.name}: an initialiser that scales by fans needs a matrix, got {shape}")
        if self.fans not in ("in_out", "out_in"):
            raise UserError("init-fan", f'{self.name}: fans must be "in_out" or "out_in", not {self.fans!r}')
        if self.fans == "out_in":
            return math.prod(shape[1:]), math.prod((shape[0], *shape[2:]))
        return math.prod(shape[:-1]), shape[-1]


def _uniform(draw, bound):
    return draw.uniform(-bound, bound)


_FORMULAS = {
    "zeros": lambda d: d.constant(0),
    "ones": lambda d: d.constant(1),
    "constant": lambda d, value: d.constant(value),
    "normal": lambda d, std, mean: d.normal(std, mean),
    "uniform": lambda d, low, high: d.uniform(low, high),
    "trunc_normal": lambda d, std, mean, cut: d.truncated(std, mean, cut),
    "xavier_uniform": lambda d, gain: _uniform(d, gain * math.sqrt(6 / sum(d.fan()))),
    "xavier_normal": lambda d, gain: d.normal(gain * math.sqrt(2 / sum(d.fan()))),
    "kaiming_uniform": lambda d, gain: _uniform(d, gain * math.sqrt(3 / d.fan()[0])),
    "kaiming_normal": lambda d, gain: d.normal(gain / math.sqrt(d.fan()[0])),
}


def zeros() -> Initializer:
    """All 0."""
    return Initializer("zeros", ())


def ones() -> Initializer:
    """All 1."""
    return Initializer("ones", ())


def constant(value: float) -> Initializer:
    """All the same."""
    return Initializer("constant", (value,))


def normal(std: float = 1.0, mean: float = 0.0) -> Initializer:
    """Normal numbers."""
    return Initializer("normal", (std, mean))


def uniform(low: float = 0.0, high: float = 1.0) -> Initializer:
    """Uniform numbers in [low, high)."""
    if not low <= high:
        raise UserError("init-range", f"uniform: the range [{low}, {high}) is empty")
    return Initializer("uniform", (low, high))


def trunc_normal(std: float = 1.0, mean: float = 0.0, cut: float = 2.0) -> Initializer:
    """Normal numbers given that they lie within mean +- cut * std."""
    if not cut >= 0.1:
        raise UserError("init-range", f"trunc_normal: a cut of {cut} deviations leaves too little to draw from")
    return Initializer("trunc_normal", (std, mean, cut))


def xavier_uniform(gain: float = 1.0) -> Initializer:
    """Uniform in +- gain * sqrt(6 / (fan_in + fan_out))."""
    return Initializer("xavier_uniform", (gain,))


def xavier_normal(gain: float = 1.0) -> Initializer:
    """Normal with deviation gain * sqrt(2 / (fan_in + fan_out))."""
    return Initializer("xavier_normal", (gain,))


def kaiming_uniform(gain: float = math.sqrt(2)) -> Initializer:
    """Uniform in +- gain * sqrt(3 / fan_in); the default gain suits relu."""
    return Initializer("kaiming_uniform", (gain,))


def kaiming_normal(gain: float = math.sqrt(2)) -> Initializer:
    """Normal with deviation gain / sqrt(fan_in); the default gain suits relu."""
    return Initializer("kaiming_normal", (gain,))
