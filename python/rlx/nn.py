"""Layers as functions of trees of parameters.

    model = rlx.nn.Sequential(rlx.nn.Linear(784, 128), rlx.relu, rlx.nn.Dropout(0.1), rlx.nn.Linear(128, 10))
    params = model.init(rlx.key(0))                   # a tree of arrays: [{"w": .., "b": ..}, None, None, {..}]
    logits = model(params, x)
    logits = model(params, x, key=rlx.key(1), train=True)

A layer says what is computed and holds no arrays; it is hashable, and in trees it has no leaves. Parameters are trees
that `rlx.grad`, `rlx.optim` and `rlx.save` take. init(key) draws them; calling a layer with them and x gives y. What a
layer carries from call to call (the statistics of `BatchNorm`) is its state: init_state() gives the first, it is passed
as state=, and the layer then returns (y, next state). Layers that draw numbers while training take key=.

A layer of your own is a class derived from `Layer`, which makes a frozen dataclass of it. Its fields that are layers,
or tuples of layers, are initialised by themselves:

    class Block(rlx.nn.Layer):
        norm: rlx.nn.LayerNorm
        mlp: rlx.nn.MLP

        def __call__(self, p, x):
            return x + self.mlp(p["mlp"], self.norm(p["norm"], x))
"""

import dataclasses
import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlx import op
from rlx._array import Array, asarray
from rlx._errors import UserError
from rlx._functions import ones as _ones
from rlx._functions import where
from rlx._functions import zeros as _zeros
from rlx._initializers import (
    Initializer,
    constant,
    kaiming_normal,
    kaiming_uniform,
    normal,
    ones,
    trunc_normal,
    uniform,
    xavier_normal,
    xavier_uniform,
    zeros,
)
from rlx._transforms import stop_gradient
from rlx._tree import register_tree

__all__ = [
    "AvgPool", "BatchNorm", "Conv", "Dropout", "Embedding", "Flatten", "GroupNorm", "Initializer", "Layer", "LayerNorm",
    "Linear", "MLP", "MaxPool", "MultiHeadAttention", "RMSNorm", "Sequential", "apply", "constant", "kaiming_normal",
    "kaiming_uniform", "normal", "ones", "trunc_normal", "uniform", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip

if TYPE_CHECKING:
    from typing import dataclass_transform
else:

    def dataclass_transform(**options):
        return lambda cls: cls


_LECUN = kaiming_normal(1.0)  # keeps the variance of x in x @ w


@dataclass_transform(frozen_default=True)
class Layer:
    """What all layers derive from. A subclass is a frozen dataclass, and a tree without leaves."""

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        dataclasses.dataclass(frozen=True)(cls)
        register_tree(cls, lambda layer: ((), layer), lambda layer, _: layer)

    def init(self, key: Array) -> Any:
        """Parameters drawn by the key: a dict with those of each field that is a layer, or a tuple of layers; None when
        there is no such field."""
        parts = self._parts()
        keys = iter(_split(key, sum(len(_as_tuple(p)) for p in parts.values())))
        made = {n: [layer.init(next(keys)) for layer in _as_tuple(p)] for n, p in parts.items()}
        return {n: v if isinstance(parts[n], tuple) else v[0] for n, v in made.items()} or None

    def init_state(self) -> Any:
        """The first state; None of a layer that has none."""
        parts = self._parts()
        made = {n: [layer.init_state() for layer in _as_tuple(p)] for n, p in parts.items()}
        if all(state is None for states in made.values() for state in states):
            return None
        return {n: v if isinstance(parts[n], tuple) else v[0] for n, v in made.items()}

    def __call__(self, params: Any, x: Any, **options: Any) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} does not say what it computes: define __call__(self, params, x)"
        )

    def _parts(self):
        parts = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            inside = list(value.values()) if isinstance(value, dict) else value
            found = [isinstance(part, Layer) for part in inside] if isinstance(inside, (tuple, list)) else []
            if any(found) and not (isinstance(value, tuple) and all(found)):
                raise UserError(
                    "nn-layers",
                    f"{type(self).__name__}: layers in the field {f.name} must stand in a tuple of their own",
                )
            if isinstance(value, Layer) or any(found):
                parts[f.name] = value
        return parts


def _check_sizes(layer, **sizes):
    """Raises unless each, a number or a tuple of them, is a positive integer."""
    for name, value in sizes.items():
        for n in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(n, bool) or not hasattr(n, "__index__") or n < 1:
                raise UserError("nn-size", f"{type(layer).__name__}: {name} must be a positive integer, not {n!r}")


def _as_tuple(part):
    return part if isinstance(part, tuple) else (part,)


def _split(key, count):
    if count <= 1:
        return [key] * count
    keys = op.random_split(asarray(key), n=count)
    return [keys[i] for i in range(count)]


@functools.lru_cache(1024)
def _takes(cls):
    """The names of what a layer's call takes besides parameters and x."""
    parameters = inspect.signature(cls.__call__).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return {"state", "key", "train"}
    return {"state", "key", "train"} & parameters.keys()


def apply(layer: Layer, params: Any, x: Any, *, state: Any = None, key: Any = None, train: bool = False) -> Any:
    """(y, next state) of any layer, which is handed what it takes; the state is None where it has none."""
    takes = _takes(type(layer))
    options = {n: v for n, v in (("state", state), ("key", key), ("train", train)) if n in takes}
    y = layer(params, x, **options)
    return y if layer.init_state() is not None else (y, None)


class Sequential(Layer):
    """Layers and plain functions, one behind the other. Its parameters are a list with those of each (None of a
    function), so is its state, where any of them has one."""

    layers: tuple

    def __init__(self, *layers: Layer | Callable):
        for i, layer in enumerate(layers):
            if not callable(layer):
                raise TypeError(f"Sequential: layer {i} must be a layer or a function, not {layer!r}")
        object.__setattr__(self, "layers", layers)

    def init(self, key):
        keys = _split(key, len(self.layers))
        return [layer.init(k) if isinstance(layer, Layer) else None for layer, k in zip(self.layers, keys)]

    def init_state(self):
        states = [layer.init_state() if isinstance(layer, Layer) else None for layer in self.layers]
        return None if all(s is None for s in states) else states

    def __call__(self, params, x, *, state=None, key=None, train=False):
        count = len(self.layers)
        first = self.init_state()
        if first is not None and state is None:
            raise _no_state(self)
        if len(params) != count:
            raise UserError("nn-params", f"Sequential: parameters of {len(params)} layers for {count}")
        keys = [None] * count if key is None else _split(key, count)
        states = []
        for i, layer in enumerate(self.layers):
            if not isinstance(layer, Layer):
                x, after = layer(x), None
            else:
                own = None if state is None else state[i]
                x, after = apply(layer, params[i], x, state=own, key=keys[i], train=train)
            states.append(after)
        return x if first is None else (x, states)


def _no_state(layer):
    name = type(layer).__name__
    return UserError("nn-state", f"{name}: needs state=; {name}.init_state() gives the first, calls return the next")


# ---- layers with parameters


class Linear(Layer):
    """x @ w + b, where x is [.., inputs]; w is [inputs, outputs]."""

    inputs: int
    outputs: int
    bias: bool = True
    w_init: Initializer = _LECUN
    dtype: str = "float32"

    def __post_init__(self):
        _check_sizes(self, inputs=self.inputs, outputs=self.outputs)

    def init(self, key):
        w = {"w": self.w_init(key, (self.inputs, self.outputs), self.dtype)}
        return {**w, "b": _zeros(self.outputs, self.dtype)} if self.bias else w

    def __call__(self, params, x):
        y = asarray(x) @ params["w"]
        return y + params["b"] if self.bias else y


class Conv(Layer):
    """Convolution over the spatial axes of x [N, inputs, ..], one for each number of `kernel`; w is [outputs, inputs /
    groups, kernel..]. padding is a number of places on each side, one for each axis, "valid" (none) or "same" (as many
    places as x has; needs stride 1)."""

    inputs: int
    outputs: int
    kernel: tuple
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    bias: bool = True
    w_init: Initializer = _LECUN
    dtype: str = "float32"

    def __post_init__(self):
        if not isinstance(self.kernel, tuple):
            raise TypeError(f"Conv: kernel must be a tuple with a size for each spatial axis, not {self.kernel!r}")
        _check_sizes(
            self, inputs=self.inputs, outputs=self.outputs, groups=self.groups, kernel=self.kernel, stride=self.stride,
            dilation=self.dilation,
        )  # fmt: skip
        if self.inputs % self.groups or self.outputs % self.groups:
            raise UserError(
                "nn-groups",
                f"Conv: {self.inputs} inputs and {self.outputs} outputs in {self.groups} groups of equal size",
            )
        for name in ("stride", "dilation"):
            object.__setattr__(self, name, _per_axis("Conv", name, getattr(self, name), len(self.kernel)))
        if self.padding == "same" and self.stride != (1,) * len(self.kernel):
            raise UserError("nn-padding", f'Conv: padding "same" needs stride 1, got {self.stride}')
        if not isinstance(self.padding, str):
            object.__setattr__(self, "padding", _per_axis("Conv", "padding", self.padding, len(self.kernel)))
            if min(self.padding, default=0) < 0:
                raise UserError("nn-padding", f"Conv: padding must not be negative, got {self.padding}")
        elif self.padding not in ("same", "valid"):
            raise UserError("nn-padding", f'Conv: padding is a number, "same" or "valid", not {self.padding!r}')

    def _around(self):
        """Places before and after each axis."""
        if self.padding == "same":
            both = [(k - 1) * d for k, d in zip(self.kernel, self.dilation)]
            return [n // 2 for n in both], [n - n // 2 for n in both]
        low = (0,) * len(self.kernel) if self.padding == "valid" else self.padding
        return low, low

    def init(self, key):
        shape = (self.outputs, self.inputs // self.groups, *self.kernel)
        w = {"w": self.w_init(key, shape, self.dtype, fans="out_in")}
        return {**w, "b": _zeros(self.outputs, self.dtype)} if self.bias else w

    def __call__(self, params, x):
        low, high = self._around()
        y = op.conv(x, params["w"], stride=self.stride, dilation=self.dilation, low=low, high=high, groups=self.groups)
        return y + params["b"].reshape((self.outputs,) + (1,) * len(self.kernel)) if self.bias else y


def _per_axis(layer, name, value, count):
    """One number for each axis."""
    value = value if isinstance(value, (tuple, list)) else (value,) * count
    if len(value) != count:
        raise UserError("nn-axes", f"{layer}: {name} has {len(value)} numbers for {count} axes")
    return tuple(operator.index(v) for v in value)


class Embedding(Layer):
    """Rows of a table [count, size], by integers of any shape."""

    count: int
    size: int
    init_by: Initializer | None = None
    dtype: str = "float32"

    def __post_init__(self):
        _check_sizes(self, count=self.count, size=self.size)

    def init(self, key):
        draw = self.init_by or normal(1 / math.sqrt(self.size))
        return {"table": draw(key, (self.count, self.size), self.dtype)}

    def __call__(self, params, x):
        return op.gather(params["table"], asarray(x), axis=0)

    def attend(self, params: Any, x: Any) -> Array:
        """x @ table.T: how near x [.., size] is to each row."""
        return asarray(x) @ params["table"].T


class LayerNorm(Layer):
    """(x - mean) / sqrt(variance + eps) * gamma + beta along the last axis, of `size`."""

    size: int
    eps: float = 1e-5
    dtype: str = "float32"

    def __post_init__(self):
        _check_sizes(self, size=self.size)

    def init(self, key):
        return {"gamma": _ones(self.size, self.dtype), "beta": _zeros(self.size, self.dtype)}

    def __call__(self, params, x):
        return op.layer_norm(x, params["gamma"], params["beta"], eps=self.eps)


class RMSNorm(Layer):
    """x / sqrt(mean(x^2) + eps) * gamma along the last axis, of `size`."""

    size: int
    eps: float = 1e-5
    dtype: str = "float32"

    def __post_init__(self):
        _check_sizes(self, size=self.size)

    def init(self, key):
        return {"gamma": _ones(self.size, self.dtype)}

    def __call__(self, params, x):
        gamma = params["gamma"]
        return op.rms_norm(x, gamma, _zeros(self.size, gamma.dtype), eps=self.eps)


class GroupNorm(Layer):
    """Layer norm of groups of the channels of x [N, channels, ..]."""

    groups: int
    channels: int
    eps: float = 1e-5
    dtype: str = "float32"

    def __post_init__(self):
        _check_sizes(self, groups=self.groups, channels=self.channels)
        if self.channels % self.groups:
            raise UserError("nn-groups", f"GroupNorm: {self.channels} channels in {self.groups} groups of equal size")

    def init(self, key):
        return {"gamma": _ones(self.channels, self.dtype), "beta": _zeros(self.channels, self.dtype)}

    def __call__(self, params, x):
        return op.group_norm(x, params["gamma"], params["beta"], num_groups=self.groups, eps=self.eps)


class BatchNorm(Layer):
    """Each channel of x [N, channels, ..] by its mean and variance: with train=True those of x, which move the state's
    (state * (1 - momentum) + momentum * x's, the variance of x as that of a sample), else the state's. Returns (y, next
    state)."""

    channels: int
    momentum: float = 0.1
    eps: float = 1e-5
    dtype: str = "float32"

    def __post_init__(self):
        _check_sizes(self, channels=self.channels)

    def init(self, key):
        return {"gamma": _ones(self.channels, self.dtype), "beta": _zeros(self.channels, self.dtype)}

    def init_state(self):
        kept = "float64" if self.dtype == "float64" else "float32"
        return {"mean": _zeros(self.channels, kept), "var": _ones(self.channels, kept)}

    def __call__(self, params, x, *, state=None, train=False):
        if state is None:
            raise _no_state(self)
        gamma, beta = params["gamma"], params["beta"]
        if not train:
            return op.batch_norm(x, gamma, beta, state["mean"], state["var"], eps=self.eps), state
        y, mean, var = op.batch_norm_training(x, gamma, beta, eps=self.eps)
        count = x.shape[0] * math.prod(x.shape[2:])
        var = var * (count / (count - 1) if count != 1 else 1)
        mean, var = stop_gradient((mean, var))
        moved = {
            n: state[n] * (1 - self.momentum) + new.astype(state[n].dtype) * self.momentum
            for n, new in (("mean", mean), ("var", var))
        }
        return y, moved


class MLP(Layer):
    """Linear layers of these sizes with an activation between them; its parameters are a list."""

    sizes: tuple
    activation: Callable = op.gelu
    bias: bool = True
    w_init: Initializer = _LECUN
    dtype: str = "float32"

    def __post_init__(self):
        object.__setattr__(self, "sizes", tuple(self.sizes))
        _check_sizes(self, sizes=self.sizes)
        if len(self.sizes) < 2:
            raise UserError("nn-axes", f"MLP: needs at least the sizes of input and output, got {self.sizes}")

    def _layers(self):
        return [Linear(a, b, self.bias, self.w_init, self.dtype) for a, b in zip(self.sizes, self.sizes[1:])]

    def init(self, key):
        layers = self._layers()
        return [layer.init(k) for layer, k in zip(layers, _split(key, len(layers)))]

    def __call__(self, params, x):
        layers = self._layers()
        for i, (layer, p) in enumerate(zip(layers, params, strict=True)):
            x = layer(p, x)
            x = self.activation(x) if i + 1 < len(layers) else x
        return x


class MultiHeadAttention(Layer):
    """Attention of x [B, S, size] or [S, size] to itself, or to a context [B, T, size], over `heads` heads.

    kv_heads: as many heads of keys and values, each for heads / kv_heads heads of queries (by default heads). causal: a
    place sees those up to itself. rope: the base of rotary positions, 10000 usually; places count from 0, or are given
    as positions, integers [S]. mask (bool, [S, T], [B, S, T] or [B, heads, S, T]) says what is seen.
    """

    size: int
    heads: int
    kv_heads: int | None = None
    head_size: int | None = None
    causal: bool = False
    rope: float | None = None
    bias: bool = False
    w_init: Initializer = _LECUN
    dtype: str = "float32"

    def __post_init__(self):
        _check_sizes(self, size=self.size, heads=self.heads)
        for name in ("kv_heads", "head_size"):
            if getattr(self, name) is not None:
                _check_sizes(self, **{name: getattr(self, name)})
        kv_heads = self.heads if self.kv_heads is None else self.kv_heads
        if self.heads % kv_heads:
            raise UserError(
                "nn-heads", f"MultiHeadAttention: {self.heads} heads cannot share {kv_heads} heads of keys and values"
            )
        if self.head_size is None and self.size % self.heads:
            raise UserError("nn-heads", f"MultiHeadAttention: {self.size} is no multiple of {self.heads} heads")
        object.__setattr__(self, "kv_heads", kv_heads)
        object.__setattr__(self, "head_size", self.head_size or self.size // self.heads)
        if self.rope is not None and self.head_size % 2:
            raise UserError("nn-heads", f"MultiHeadAttention: rope needs heads of even size, got {self.head_size}")

    def _layers(self):
        wide, narrow = self.heads * self.head_size, self.kv_heads * self.head_size
        sizes = {"q": (self.size, wide), "k": (self.size, narrow), "v": (self.size, narrow), "o": (wide, self.size)}
        return {n: Linear(*s, self.bias, self.w_init, self.dtype) for n, s in sizes.items()}

    def init(self, key):
        layers = self._layers()
        return {n: layer.init(k) for (n, layer), k in zip(layers.items(), _split(key, len(layers)))}

    def __call__(self, params, x, context=None, *, mask=None, positions=None):
        layers, x = self._layers(), asarray(x)
        source = x if context is None else asarray(context)
        q, k, v = (layers[n](params[n], y) for n, y in (("q", x), ("k", source), ("v", source)))
        if self.rope is not None:
            if context is not None:
                raise UserError(
                    "nn-heads", "MultiHeadAttention: rope turns places of x; with a context there are two sorts"
                )
            q, k = self._turned(q, positions), self._turned(k, positions)
        elif positions is not None:
            raise UserError("nn-heads", "MultiHeadAttention: positions mean nothing without rope")
        seen = {} if mask is None else {"attn_mask": _per_head(asarray(mask)).astype(x.dtype), "has_mask": True}
        y, _ = op.attention(
            q, k, v, **seen, num_heads=self.heads, num_kv_heads=self.kv_heads, mask="causal" if self.causal else "none"
        )
        return layers["o"](params["o"], y)

    def _turned(self, x, positions):
        if positions is None:
            positions = op.iota(shape=[x.shape[-2]], dtype="int64", axis=0)
        half = self.head_size // 2
        speeds = self.rope ** -(op.iota(shape=[half], dtype="float32", axis=0) / half)
        angles = asarray(positions).astype("float32").reshape((-1, 1)) * speeds
        cos, sin = op.cos(angles).astype(x.dtype), op.sin(angles).astype(x.dtype)
        return op.rope(x, cos, sin, head_dim=self.head_size, n_rot=self.head_size)


def _per_head(mask):
    """A mask [S, T], [B, S, T] or [B, heads, S, T] with all four axes."""
    if not 2 <= mask.ndim <= 4:
        raise UserError(
            "nn-heads", f"MultiHeadAttention: a mask is [S, T], [B, S, T] or [B, heads, S, T], not {mask._type}"
        )
    batch = mask.shape[:-2] if mask.ndim == 4 else (mask.shape[0], 1) if mask.ndim == 3 else (1, 1)
    return mask.reshape((*batch, *mask.shape[-2:]))


# ---- layers without


class Dropout(Layer):
    """With train=True zeroes each element with probability `rate`, by the key, and scales the others by 1 / (1 -
    rate)."""

    rate: float

    def __post_init__(self):
        if not 0 <= self.rate < 1:
            raise UserError("dropout-rate", f"Dropout: the rate must be in [0, 1), got {self.rate}")

    def __call__(self, params, x, *, key=None, train=False):
        if not train or self.rate == 0:
            return x
        if key is None:
            raise UserError("nn-key", "Dropout: needs key= while training, another one in each call")
        kept = op.random_uniform(asarray(key), shape=x.shape) >= self.rate
        return where(kept, x * (1 / (1 - self.rate)), 0)


class _Pool(Layer):
    kernel: tuple
    stride: Any = None
    padding: Any = 0

    def __post_init__(self):
        _check_sizes(self, kernel=self.kernel, **({} if self.stride is None else {"stride": self.stride}))

    def _pooled(self, kind, x, **options):
        count = len(self.kernel)
        low = _per_axis(type(self).__name__, "padding", self.padding, count)
        stride = self.kernel if self.stride is None else _per_axis(type(self).__name__, "stride", self.stride, count)
        return op.pool(x, kind=kind, kernel=self.kernel, stride=stride, low=low, high=low, **options)


class MaxPool(_Pool):
    """The largest of each window along the last axes, one for each number of `kernel`; windows lie side by side unless
    stride says otherwise."""

    def __call__(self, params, x):
        return self._pooled("max", x)


class AvgPool(_Pool):
    """The mean of each window along the last axes, one for each number of `kernel`; windows lie side by side unless
    stride says otherwise, padding counts."""

    def __call__(self, params, x):
        return self._pooled("mean", x)


class Flatten(Layer):
    """All axes but the first in one."""

    def __call__(self, params, x):
        return asarray(x).reshape((x.shape[0], -1))
