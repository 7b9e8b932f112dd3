"""Attention with every option, and its gradients, by PyTorch in binary64 (autograd)."""

import math

import numpy as np
import torch

from .core import FLOATS, array, narrow, random, rng_of, sample, ulps, unit
from .nn import merged


# Layouts: 2 [S, H*D], 3 [B, S, H*D], 4 [B, H, S, D], "seq" [B, S, H, D].
#
# Each case: layout, batch, heads, kv_heads, queries, keys, head_dim, options, note. Options: mask, window, scale, softcap as the
# op's attributes; mask_shape, bias_shape, sinks_shape ask for these operands; `hide` masks that batch's keys altogether.
CASES = [
    (3, 2, 2, 2, 6, 6, 4, {"mask": "sliding_window", "window": 2}, "window of three keys"),
    (4, 1, 2, 1, 4, 7, 3, {"mask": "sliding_window", "window": 0}, "window of one key, offset 3"),
    (
        3,
        1,
        2,
        2,
        7,
        3,
        4,
        {"mask": "sliding_window", "window": 1},
        "the last queries see no key: they average all",
    ),
    (2, 1, 2, 2, 5, 5, 4, {"softcap": 1.5}, "soft cap"),
    (
        3,
        1,
        2,
        2,
        5,
        5,
        4,
        {"softcap": 0.25, "mask": "causal", "scale": 3.0},
        "the cap is applied before the mask",
    ),
    (3, 2, 2, 2, 3, 5, 4, {"mask_shape": (2, 5)}, "mask of rank 2"),
    (3, 2, 2, 2, 3, 5, 4, {"mask_shape": (2, 5), "hide": 1}, "one batch masked whole"),
    (4, 2, 4, 2, 3, 5, 4, {"mask_shape": (2, 3, 5)}, "mask of rank 3, grouped"),
    (3, 2, 2, 2, 3, 5, 4, {"mask_shape": (1, 2, 1, 5), "mask": "causal"}, "mask of rank 4, causal"),
    (3, 2, 2, 2, 3, 5, 4, {"mask_shape": (2, 5), "mask_dtype": "f32"}, "mask of f32"),
    (4, 2, 2, 2, 4, 4, 3, {"bias_shape": (2, 2, 4, 4)}, "bias"),
    (3, 2, 4, 2, 4, 4, 3, {"bias_shape": (4, 4, 4), "mask": "causal"}, "shared bias, causal, grouped"),
    (3, 1, 2, 2, 3, 4, 3, {"bias_shape": (1, 1, 1, 4)}, "bias of the keys"),
    (3, 1, 2, 2, 3, 4, 3, {"bias_shape": (1, 2, 3, 4), "minus_inf": True}, "a bias of -inf masks"),
    (3, 2, 2, 2, 4, 4, 4, {"sinks_shape": (2,)}, "sinks"),
    (3, 2, 4, 2, 4, 4, 4, {"sinks_shape": (2, 4), "mask": "causal"}, "sinks per batch, grouped"),
    ("seq", 2, 2, 2, 3, 5, 4, {}, "sequence before heads"),
    ("seq", 2, 4, 2, 3, 5, 4, {"mask": "causal"}, "sequence before heads, grouped"),
    (
        "seq",
        2,
        4,
        2,
        5,
        6,
        3,
        {
            "mask": "sliding_window",
            "window": 2,
            "scale": 0.4,
            "softcap": 2.0,
            "mask_shape": (2, 6),
            "bias_shape": (2, 4, 5, 6),
            "sinks_shape": (4,),
        },
        "everything",
    ),
    (
        4,
        1,
        2,
        2,
        37,
        41,
        16,
        {"mask": "sliding_window", "window": 9, "softcap": 5.0, "bias_shape": (1, 2, 37, 41)},
        "several vectors and a tail",
    ),
]
# As many queries as heads: only the attribute can say what the axes mean.
SETTLED = [
    (4, 1, 2, 2, 2, 3, 3, {"layout": "head_major", "mask": "causal"}, "heads first, said so"),
    ("seq", 1, 2, 2, 2, 3, 3, {"layout": "seq_major", "mask": "causal"}, "sequence first, said so"),
    (3, 2, 2, 2, 3, 4, 2, {"mask_shape": (2, 4), "mask_dtype": "i32"}, "mask of i32"),
]
OPTION_ATTRS = ("mask", "window", "scale", "softcap", "layout")


class Problem:
    def __init__(self, identifier, dtype, case):
        self.layout, batch, heads, kv_heads, queries, keys, size, options, self.note = case
        rng = rng_of(identifier)
        self.size, self.dtype, self.options = size, dtype, options
        draw = lambda *shape: random(rng, dtype, shape, -2, 2)
        self.q, self.dout = (draw(batch, heads, queries, size) for _ in range(2))
        self.k, self.v = (draw(batch, kv_heads, keys, size) for _ in range(2))
        self.optional, self.mask, self.bias, self.sinks = [], None, None, None
        self.attrs = {"num_heads": heads, "num_kv_heads": kv_heads}
        self.attrs |= {k: options[k] for k in OPTION_ATTRS if k in options}
        if "mask_shape" in options:
            keep = rng.random(options["mask_shape"]) < 0.7
            keep[..., 0] = True
            if "hide" in options:
                keep[options["hide"]] = False
            values = np.where(keep, rng.uniform(0.5, 1, keep.shape), rng.uniform(-1, 0.49, keep.shape))
            self.mask = keep
            kind = options.get("mask_dtype", "bool")
            self.add("has_mask", array("f32", values) if kind == "f32" else array(kind, keep))
        if "bias_shape" in options:
            self.bias = random(rng, dtype, options["bias_shape"], -2, 2)
            if "minus_inf" in options:
                self.bias[..., -1, :] = -np.inf
                self.bias[..., 1] = -np.inf
            self.add("has_bias", self.bias)
        if "sinks_shape" in options:
            self.sinks = random(rng, dtype, options["sinks_shape"], -2, 2)
            self.add("has_sinks", self.sinks)

    def add(self, attribute, operand):
        self.attrs[attribute] = True
        self.optional.append(operand)

    def laid_out(self, t):
        return t.transpose(0, 2, 1, 3) if self.layout == "seq" else merged(t, self.layout)

    def solve(self, rounded=False):
        """Results and gradients, binary64, heads in front; `rounded`: as attention_backward starts from `out`."""
        leaf = lambda t: torch.tensor(np.asarray(t).astype(np.float64), requires_grad=True)
        q, k, v = leaf(self.q), leaf(self.k), leaf(self.v)
        batch, heads, queries, _ = q.shape
        keys, group = k.shape[2], heads // k.shape[1]
        scale = self.options.get("scale", 1 / math.sqrt(self.size))
        scores = scale * q @ k.repeat_interleave(group, 1).transpose(-1, -2)
        if "softcap" in self.options:
            scores = self.options["softcap"] * torch.tanh(scores / self.options["softcap"])
        hidden = torch.zeros(batch, heads, queries, keys, dtype=torch.bool)
        bias = None
        if self.bias is not None:
            full = np.broadcast_to(self.bias.astype(np.float64), hidden.shape)
            bias = leaf(np.maximum(full, -1e30))
            hidden |= torch.tensor(full == -np.inf)
            scores = scores + bias
        at = torch.arange(queries)[:, None] + max(keys - queries, 0)
        key = torch.arange(keys)[None, :]
        kind = self.options.get("mask", "none")
        if kind != "none":
            hidden |= key > at
        if kind == "sliding_window":
            hidden |= key < at - self.options["window"]
        if self.mask is not None:
            mask = self.mask
            if mask.ndim < 4:
                mask = mask.reshape(mask.shape[:1] + (1,) * (4 - mask.ndim) + mask.shape[1:])
            hidden |= ~torch.tensor(np.ascontiguousarray(np.broadcast_to(mask, hidden.shape)))
        scores = scores.masked_fill(hidden, -1e9)
        logits = scores
        if self.sinks is not None:
            sinks = torch.tensor(self.sinks.astype(np.float64)).reshape(-1, heads, 1, 1)
            logits = torch.cat([scores, sinks.expand(batch, heads, queries, 1)], -1)
        out = torch.softmax(logits, -1)[..., :keys] @ v.repeat_interleave(group, 1)
        lse = torch.logsumexp(logits, -1)
        dout = torch.tensor(self.dout.astype(np.float64))
        loss = (out * dout).sum()
        if rounded:
            # rowsum(d_out out) is taken from the rounded `out`; the gradient of lse by the scores is P.
            given = torch.tensor(narrow(self.dtype, out.detach().numpy()).astype(np.float64))
            loss = loss - ((dout * (given - out)).sum(-1).detach() * lse).sum()
        loss.backward()
        return {
            "out": out.detach().numpy(),
            "lse": lse.detach().numpy(),
            "dq": q.grad.numpy(),
            "dk": k.grad.numpy(),
            "dv": v.grad.numpy(),
            "dbias": None if bias is None else bias.grad.numpy(),
        }


def label(n):
    return n if n >= 0 else f"settled-{n + len(SETTLED)}"


def half_unit(dtype):
    """Of f16 and bf16 at values up to 2."""
    return {"f16": 2.0**-11, "bf16": 2.0**-8}[dtype]


def forwards():
    for dtype in FLOATS:
        for n, case in enumerate(SETTLED + (CASES if dtype == "f32" else CASES[:-1]), -len(SETTLED)):
            identifier = f"attention/{dtype}/options-{label(n)}"
            p = Problem(identifier, dtype, case)
            r = p.solve()
            lse_dtype = "f64" if dtype == "f64" else "f32"
            # f16 and bf16 kernels may hold probabilities in the operand type: two more roundings of values up to 2.
            held = 0.0 if dtype in ("f32", "f64") else 4 * half_unit(dtype)
            tol = [ulps(dtype, 8, max(64 * unit(dtype), held)), ulps(lse_dtype, 8, 64 * unit(dtype))]
            yield sample(
                identifier,
                [p.laid_out(t) for t in (p.q, p.k, p.v)] + p.optional,
                [p.laid_out(narrow(dtype, r["out"])), narrow(lse_dtype, r["lse"])],
                tol,
                p.note,
                **p.attrs,
            )


PLAIN = [
    (3, 2, 2, 2, 5, 5, 4, {}, "no mask"),
    (3, 2, 2, 2, 5, 5, 4, {"mask": "causal"}, "causal"),
    (4, 1, 4, 2, 3, 6, 4, {"mask": "causal", "scale": 0.7}, "grouped, offset 3, explicit scale"),
    (2, 1, 2, 2, 6, 3, 3, {"mask": "causal"}, "rank 2, more queries than keys"),
    (4, 1, 2, 2, 37, 37, 16, {"mask": "causal"}, "several vectors and a tail"),
]


def backwards():
    for dtype in FLOATS:
        cases = PLAIN + CASES if dtype == "f32" else PLAIN[:-1] + CASES[:-1]
        narrow_type = dtype in ("f16", "bf16")
        for n, case in enumerate(SETTLED + cases, -len(SETTLED)):
            identifier = f"attention_backward/{dtype}/case-{label(n)}"
            p = Problem(identifier, dtype, case)
            r = p.solve(narrow_type)
            attrs = {k: v for k, v in p.attrs.items() if k != "has_sinks"}
            optional = p.optional[: len(p.optional) - ("has_sinks" in p.attrs)]
            names = ["dq", "dk", "dv"]
            if p.bias is not None:
                names.append("dbias")
                attrs["bias_gradient"] = True
            wide_type = "f32" if narrow_type else dtype
            result = lambda name: (
                narrow(wide_type, r[name]) if name == "dbias" else p.laid_out(narrow(dtype, r[name]))
            )
            # Sums over up to 41 keys or queries of products up to 4.
            yield sample(
                identifier,
                [p.laid_out(t) for t in (p.q, p.k, p.v, narrow(dtype, r["out"]))]
                + [narrow(wide_type, r["lse"]), p.laid_out(p.dout)]
                + optional,
                [result(name) for name in names],
                [ulps(wide_type if name == "dbias" else dtype, 8, 256 * unit(dtype)) for name in names],
                p.note,
                **attrs,
            )


def gradients():
    for dtype in FLOATS:
        for n, case in enumerate(SETTLED + PLAIN[:3] + CASES[:-1], -len(SETTLED)):
            identifier = f"attention_gradient/{dtype}/case-{label(n)}"
            p = Problem(identifier, dtype, case)
            r = p.solve()
            wrt = ("query", "key", "value")[n % 3]
            # The rounded `out` moves rowsum(d_out out) by up to D * 2 half units of 2 * 2; the sums that follow weigh it
            # with P (which add up to 1 per query) and k or q up to 2.
            held = 0.0
            if dtype in ("f16", "bf16"):
                rows = case[4] * case[2] // case[3] if wrt == "key" else 1
                held = 8 * p.size * half_unit(dtype) * rows
            yield sample(
                identifier,
                [p.laid_out(t) for t in (p.q, p.k, p.v, p.dout)] + p.optional,
                p.laid_out(narrow(dtype, r["d" + wrt[0]])),
                ulps(dtype, 8, max(256 * unit(dtype), held)),
                p.note,
                **p.attrs,
                wrt=wrt,
            )


def samples():
    for group in (forwards, backwards, gradients):
        yield from group()
