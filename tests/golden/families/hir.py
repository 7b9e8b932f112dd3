"""The blocks of HIR that are made of several ops, written out in NumPy, in binary64, at f32 and f64.

Operands lie within 1, sums have up to ten terms and norms divide by about 1/2: a few hundred roundings of numbers near 1
are allowed in absolute terms, which no wrong row, head or gate comes near.
"""

import numpy as np

from .core import array, narrow, random, rng_of, sample, unit

DTYPES = ("f32", "f64")


def draw(rng, dtype, *shapes):
    return [random(rng, dtype, shape, -1.0, 1.0) for shape in shapes]


def tolerance(dtype):
    return {"rel": 0.0, "abs": 512 * unit(dtype)}


def row(identifier, dtype, inputs, value, note, **attrs):
    wide = [np.asarray(x, np.float64) if x.dtype.kind == "f" else x for x in inputs]
    return sample(identifier, inputs, narrow(dtype, value(*wide)), tolerance(dtype), note, **attrs)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rms(x, gamma, beta, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gamma + beta


def rope(x, cos, sin, width, turned):
    """Pairs (i, i + turned / 2) of each head of x [B, S, heads * width] turned by row s of the tables."""
    batch, length, columns = x.shape
    heads = x.reshape(batch, length, columns // width, width).copy()
    half = turned // 2
    c, s = (t[:length, None, :half] for t in (cos, sin))
    low, high = heads[..., :half].copy(), heads[..., half:turned].copy()
    heads[..., :half], heads[..., half:turned] = low * c - high * s, high * c + low * s
    return heads.reshape(x.shape)


def attention(q, k, v, heads, width, hidden):
    """`hidden` [B, S_q, S_k] says which keys a query does not see."""
    kv_heads = k.shape[-1] // width
    out = np.zeros_like(q)
    for h in range(heads):
        mine = slice(h * width, (h + 1) * width)
        theirs = slice(h // (heads // kv_heads) * width, (h // (heads // kv_heads) + 1) * width)
        scores = np.einsum("bqd,bkd->bqk", q[..., mine], k[..., theirs]) / np.sqrt(width)
        scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[..., mine] = weights / weights.sum(-1, keepdims=True) @ v[..., theirs]
    return out


def after(batch, length):
    return np.broadcast_to(np.triu(np.ones((length, length), bool), 1), (batch, length, length))


def linears():
    kinds = {"none": lambda x: x, "relu": lambda x: np.maximum(x, 0), "silu": silu, "tanh": np.tanh}
    for dtype in DTYPES:
        for name, function in kinds.items():
            identifier = f"hir_linear/{dtype}/{name}"
            x, w, bias = draw(rng_of(identifier), dtype, (2, 3, 5), (5, 4), (4,))
            yield row(identifier, dtype, [x, w, bias], lambda x, w, b, f=function: f(x @ w + b), f"activation {name}",
                      activation=name, has_bias=True)  # fmt: skip
        identifier = f"hir_linear/{dtype}/plain"
        yield row(identifier, dtype, draw(rng_of(identifier), dtype, (3, 5), (5, 2)), lambda x, w: x @ w, "no bias")


def feed_forward():
    for dtype in DTYPES:
        identifier = f"hir_swiglu_ffn/{dtype}/plain"
        operands = draw(rng_of(identifier), dtype, (2, 3, 5), (5, 4), (5, 4), (4, 3))
        yield row(identifier, dtype, operands, lambda x, up, gate, down: (x @ up * silu(x @ gate)) @ down,
                  "the second weight is the gate's before it, the third the gate")  # fmt: skip
        identifier = f"hir_residual_rms_norm/{dtype}/plain"
        operands = draw(rng_of(identifier), dtype, (2, 3, 5), (2, 3, 5), (5,), (5,))
        yield row(identifier, dtype, operands, lambda x, r, g, b: rms(x + r, g, b, 0.25), "over the last axis", eps=0.25)


def convolutions():
    def value(x, w, left):
        rows = np.concatenate([left, x], 1)
        taps = w.shape[-1]
        return sum(rows[:, k : k + x.shape[1]] * w[:, 0, 0, k] for k in range(taps))

    for dtype in DTYPES:
        identifier = f"hir_depthwise_conv1d_causal/{dtype}/plain"
        operands = draw(rng_of(identifier), dtype, (2, 5, 4), (4, 1, 1, 3), (2, 2, 4))
        yield row(identifier, dtype, operands, value, "three taps", kernel_size=3)


def layer(heads, width, eps, hidden):
    def value(x, g1, b1, q_w, k_w, v_w, o_w, g2, b2, gate_w, up_w, down_w, cos, sin, mask=None):
        n1 = rms(x, g1, b1, eps)
        q, k = (rope(n1 @ w, cos, sin, width, width) for w in (q_w, k_w))
        h1 = x + attention(q, k, n1 @ v_w, heads, width, hidden(x, mask)) @ o_w
        n2 = rms(h1, g2, b2, eps)
        return h1 + (silu(n2 @ gate_w) * (n2 @ up_w)) @ down_w

    return value


def llama_layers():
    shapes = [(2, 4, 8), (8,), (8,), (8, 8), (8, 4), (8, 4), (8, 8), (8,), (8,), (8, 6), (8, 6), (6, 8), (5, 1), (5, 1)]
    for dtype in DTYPES:
        identifier = f"hir_llama_decoder_block/{dtype}/causal"
        operands = draw(rng_of(identifier), dtype, *shapes)
        causal = layer(4, 2, 0.25, lambda x, _: after(*x.shape[:2]))
        yield row(identifier, dtype, operands, causal, "two heads of queries read one of keys", num_heads=4, head_dim=2,
                  num_kv_heads=2, eps=0.25)  # fmt: skip
        identifier = f"hir_llama_decoder_block/{dtype}/custom"
        operands = draw(rng_of(identifier), dtype, *shapes)
        operands.append(array(dtype, np.array([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]])))
        custom = layer(4, 2, 0.25, lambda x, m: np.broadcast_to((m < 0.5)[:, None, :], (2, 4, 4)))
        yield row(identifier, dtype, operands, custom, "some keys are hidden", num_heads=4, head_dim=2, num_kv_heads=2,
                  eps=0.25, mask="custom")  # fmt: skip


def heads_of_qwen():
    heads, kv_heads, width, turned, size, ff, vocabulary, eps = 4, 2, 4, 2, 6, 5, 7, 0.25

    def value(h, ids, cos, sin, last, table, *rest):
        (hw, hb, ew, eb, joint, aw, ab, q_gate_w, k_w, v_w, qw, qb, kw, kb, o_w, pw, pb, gate_w, up_w, down_w, w, b,
         logits_w) = rest  # fmt: skip
        batch, length, _ = h.shape
        joined = np.concatenate([rms(table[ids], ew, eb, eps), rms(h, hw, hb, eps)], -1)
        current = joined @ joint
        x = rms(current, aw, ab, eps)
        both = (x @ q_gate_w).reshape(batch, length, heads, 2 * width)
        gate = both[..., width:].reshape(batch, length, -1)
        q = rms(both[..., :width], qw, qb, eps).reshape(batch, length, -1)
        k = rms((x @ k_w).reshape(batch, length, kv_heads, width), kw, kb, eps).reshape(batch, length, -1)
        q, k = (rope(t, cos, sin, width, turned) for t in (q, k))
        a = attention(q, k, x @ v_w, heads, width, after(batch, length)) * sigmoid(gate)
        h1 = current + a @ o_w
        f = rms(h1, pw, pb, eps)
        h2 = h1 + (silu(f @ gate_w) * (f @ up_w)) @ down_w
        return rms(h2[np.arange(batch), last][:, None], w, b, eps) @ logits_w

    e, d = (size,), (width,)
    for dtype in DTYPES:
        identifier = f"hir_qwen35_mtp_head/{dtype}/plain"
        rng = rng_of(identifier)
        (h,) = draw(rng, dtype, (2, 3, size))
        tables = draw(rng, dtype, (3, 1), (3, 1))
        rest = draw(rng, dtype, (5, size), e, e, e, e, (2 * size, size), e, e, (size, heads * 2 * width),
                    (size, kv_heads * width), (size, kv_heads * width), d, d, d, d, (heads * width, size), e, e,
                    (size, ff), (size, ff), (ff, size), e, e, (size, vocabulary))  # fmt: skip
        ids, last = np.array([[4, 0, 2], [1, 1, 3]], "<i4"), np.array([2, 1], "<i4")
        yield row(identifier, dtype, [h, ids, *tables, last, *rest], value, "the last tokens are at 2 and 1",
                  num_heads=heads, num_kv_heads=kv_heads, head_dim=width, n_rot=turned, n_embd=size, n_ff=ff,
                  mtp_vocab=vocabulary, eps=eps)  # fmt: skip


def samples():
    yield from linears()
    yield from feed_forward()
    yield from convolutions()
    yield from llama_layers()
    yield from heads_of_qwen()
