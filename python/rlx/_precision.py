"""Mixed precision: functions and graphs whose products are computed in f16 or bf16."""

import functools

from rlx import _core
from rlx._transforms import _argument, _check_function, trace
from rlx._tree import flatten, unflatten


class PrecisionPolicy:
    """Which ops are computed in 16 bits.

    name: "bf16" and "f16" compute products and attention so, reductions, norms, softmax, losses and functions such as
    exp in f32, and the rest in what its operands come in; "f32" nothing; "auto_mixed", "auto_mixed_bf16",
    "auto_mixed_conservative" and "always_f16" say it of every kind of op. allow, deny and keep name ops ("softmax") or
    kinds of them ("compute", "reduction", "elementwise", "data_movement") that are computed in 16 bits, in f32, or in
    what their operands come in.
    """

    __slots__ = ("allow", "deny", "keep", "name")

    def __init__(self, name="bf16", *, allow=(), deny=(), keep=()):
        self.name, self.allow, self.deny, self.keep = name, _names(allow), _names(deny), _names(keep)

    def __repr__(self):
        lists = "".join(f", {k}={v}" for k in ("allow", "deny", "keep") if (v := getattr(self, k)))
        return f"PrecisionPolicy({self.name!r}{lists})"

    def _key(self):
        return self.name, self.allow, self.deny, self.keep

    def __eq__(self, other):
        return isinstance(other, PrecisionPolicy) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())


def _names(names):
    return (names,) if isinstance(names, str) else tuple(names)


def as_policy(precision):
    """What the extension takes for a name or a PrecisionPolicy."""
    if isinstance(precision, str):
        precision = PrecisionPolicy(precision)
    if not isinstance(precision, PrecisionPolicy):
        raise TypeError(f"precision: a name or a PrecisionPolicy, not {precision!r}, a {type(precision).__name__}")
    return (precision.name, *map(list, precision._key()[1:]))


def mixed_precision(f, precision="bf16", *, allow=(), deny=(), keep=()):
    """f with its products in f16 or bf16: a function of the same arguments that returns the same dtypes.

    precision is the name of a policy, or a PrecisionPolicy; allow, deny and keep go with a name (see there). It is a
    transform like jit, grad and vmap and nests with them: gradients of it are computed by the same policy and arrive in
    the dtypes of the arguments, so f32 parameters stay the masters. Gradients in f16 lose what is below 6e-8: multiply
    the loss by a scale, and divide the gradients by it.
    """
    _check_function("mixed_precision", f)
    if allow or deny or keep:
        if not isinstance(precision, str):
            raise TypeError("mixed_precision: allow, deny and keep are part of the PrecisionPolicy that was given")
        precision = PrecisionPolicy(precision, allow=allow, deny=deny, keep=keep)
    policy = as_policy(precision)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        leaves, tree = flatten((args, kwargs))
        leaves = [_argument(x) for x in leaves]
        traced = trace(f, leaves, tree)
        outs = _core.call_graph(traced.graph.mixed_precision(policy), leaves + traced.captured)
        return unflatten(traced.out_tree, outs)

    return wrapped
