"""What PyTorch and we spell differently; the mappings are built from these.

PyTorch computes transcendental functions of integers in float32, names axes `dim`, and reduces over all of them by
default.
"""

import dataclasses
from collections.abc import Callable

import rlx
import torch


@dataclasses.dataclass
class Both:
    """An op of which something else than PyTorch's plain answer is compared: theirs(op, *args, **kwargs). With `wrt`
    only so many of the sample's tensors, the first ones, are differentiated by; the others are attributes of ours."""

    ours: Callable
    theirs: Callable
    wrt: int | None = None


def is_array(x):
    return isinstance(x, rlx.Array)


def dtype_of(torch_dtype):
    """The name of a dtype of PyTorch."""
    return str(torch_dtype).removeprefix("torch.")


def floats(f):
    """f on float32 where PyTorch takes integers and bools."""

    def call(*xs, **kwargs):
        return f(*[x.astype("f32") if is_array(x) and x.dtype.kind in ("integer", "bool") else x for x in xs], **kwargs)

    return call


def whole(f):
    """f, which leaves integers as they are."""
    return lambda x: x if x.dtype.kind in ("integer", "bool") else f(x)


def bools(f):
    """f on bools: PyTorch takes anything that is not zero for true."""
    return lambda *xs: f(*[x.astype("bool") if is_array(x) else bool(x) for x in xs])


def axes_of(x, dim):
    """All axes for None and for an empty list."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(x.ndim))
    return list(dim) if isinstance(dim, (list, tuple)) else [dim]


def reduction(f):
    """A reduction with PyTorch's arguments. An axis of rank 0 may be named 0 or -1."""

    def call(x, dim=None, keepdim=False, dtype=None):
        if dtype is not None:
            return call(x.astype(dtype_of(dtype)), dim, keepdim).astype(dtype_of(dtype))
        if x.ndim == 0:
            return f(x.reshape(1), axes=[0], keepdims=False)
        return f(x, axes=axes_of(x, dim), keepdims=keepdim)

    return call


def summed(f):
    """Sums and products of integers and bools are made in int64."""
    return lambda x, **k: f(x.astype("i64") if x.dtype.kind in ("integer", "bool") else x, **k)


def along(f, default=None):
    """An op along one axis, `dim`."""

    def call(x, dim=default, dtype=None):
        if dtype is not None:
            x = x.astype(dtype_of(dtype))
        if x.ndim == 0:
            return f(x.reshape(1), axis=0).reshape(())
        return f(x, axis=dim)

    return call


def shape_of(*shape):
    """A shape given as one list or as several arguments."""
    return list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else list(shape)


def as_list(x):
    """Results as a list, also when there is one."""
    return list(x) if isinstance(x, (list, tuple)) else [x]


def tensors(x):
    """The PyTorch tensors in a nest of arguments, in order."""
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    return [t for v in x for t in tensors(v)] if isinstance(x, (list, tuple)) else []
