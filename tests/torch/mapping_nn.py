"""nn.functional.*, signal and masked ops: part of mapping.py's table, which see."""

import math

import rlx
from helpers import floats


def _layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    if weight is None:
        weight = rlx.ones(shape).astype(x.dtype)
    if bias is None:
        bias = rlx.zeros(shape).astype(x.dtype)
    flat = x.reshape([*x.shape[: x.ndim - len(shape)], math.prod(shape)])
    return rlx.layer_norm(flat, weight.reshape(-1), bias.reshape(-1), eps=eps).reshape(x.shape)


def _linear(x, w, bias=None):
    y = x @ (w.T if w.ndim == 2 else w)
    return y if bias is None else y + bias


ACTIVATIONS = ["relu", "silu", "mish", "relu6"]

MAPPING = {
    **{f"nn.functional.{n}": getattr(rlx, n) for n in ACTIVATIONS},
    "nn.functional.hardswish": rlx.hard_swish,
    "nn.functional.softsign": floats(rlx.softsign),
    "nn.functional.gelu": lambda x, approximate="none": (rlx.gelu if approximate == "none" else rlx.gelu_tanh)(x),
    "nn.functional.logsigmoid": lambda x: -rlx.softplus(-x),
    "nn.functional.tanhshrink": floats(lambda x: x - rlx.tanh(x)),
    "nn.functional.linear": _linear,
    "nn.functional.layer_norm": _layer_norm,
    "nn.functional.embedding": lambda w, i, **k: rlx.gather(w, i, axis=0),
}
