"""Indices, positions, lengths, labels and masks of every dtype that may carry them, one small sample each."""

import numpy as np
import torch
import torch.nn.functional as F

from . import attention, fused, quant_blocks, sequence
from .core import EXACT, INTS, REALS, any_bits, array, narrow, random, rng_of, sample, sum_tolerance
from .core import ulps, unit, whole, wide
from .distributions import KEYS, fold_in, key_array

INDEX = INTS + ["f32", "f64"]
MASK = 0xFFFFFFFF


def moves(kind):
    """Movement by index: bit for bit."""
    name = lambda op: f"{op}/f32/by-{kind}"
    rng = rng_of(f"indices/{kind}")
    x, u = any_bits(rng, "f32", (3, 2)), any_bits(rng, "f32", (2, 2))
    at = np.array([2, 0])
    index = array(kind, at)
    note = f"indices of {kind}"
    yield sample(name("gather"), [x, index], x[at], EXACT, note, axis=0)
    out = x.copy()
    out[at] = u
    yield sample(name("scatter"), [x, index, u], out, EXACT, note, axis=0, mode="set")
    operands = [x, index.reshape(2, 1), u]
    yield sample(name("scatter_nd"), operands, out, EXACT, note, mode="set")
    out = x.copy()
    out[at, [0, 1]] = u[0]
    operands = [x, index.reshape(1, 2), u[:1]]
    yield sample(name("scatter_elements"), operands, out, EXACT, note, axis=0, mode="set")
    out = x[at, [0, 1]].reshape(1, 2)
    yield sample(name("take_along_axis"), [x, index.reshape(1, 2)], out, EXACT, note, axis=0)
    pairs = np.array([[2, 1], [0, 0]])
    yield sample(name("gather_nd"), [x, array(kind, pairs)], x[tuple(pairs.T)], EXACT, note)
    start = array(kind, [1, 0])
    yield sample(name("dynamic_slice"), [x, start], x[1:, :1].copy(), EXACT, note, sizes=[2, 1])
    out = x.copy()
    out[1:] = u
    yield sample(name("dynamic_update_slice"), [x, u, start], out, EXACT, note)
    y, places = any_bits(rng, "f32", (1, 2)), array(kind, [[3, 1]])
    out = np.zeros((1, 4), np.float32)
    out[0, [3, 1]] = y[0]
    if kind in INTS:
        yield sample(name("max_unpool"), [y, places], out, EXACT, note, size=[4])
    out = x.copy()
    out[2:] = u[:1]
    operands = [x, u[:1], array(kind, 2)]
    yield sample(name("kv_cache_append"), operands, out, EXACT, f"a position of {kind}", axis=0)


def sums(kind):
    name = lambda op: f"{op}/f32/by-{kind}"
    rng = rng_of(f"sums/{kind}")
    u, at = whole(rng, "f32", (3, 2)), np.array([2, 0, 2])
    index, note = array(kind, at), f"indices of {kind}"
    out = np.zeros((3, 2), np.float32)
    np.add.at(out, at, u)
    yield sample(name("scatter_add"), [u, index], out, EXACT, note, axis=0, size=3)
    yield sample(name("gather_backward"), [u, index], out, EXACT, note, axis=0, size=3)
    x, w, g = whole(rng, "f32", (3, 2)), whole(rng, "f32", (3, 2, 2)), whole(rng, "f32", (3, 1))
    y = np.einsum("mk,mkn->mn", wide(x), wide(w)[at])
    any_zero = {"rel": 0, "abs": 0, "any_zero": True}
    yield sample(name("grouped_matmul"), [x, w, index], narrow("f32", y), any_zero, note)
    outer = np.zeros((3, 2, 1), np.longdouble)
    np.add.at(outer, at, wide(x)[:, :, None] * wide(g)[:, None, :])
    yield sample(name("grouped_outer"), [x, g, index], narrow("f32", outer), any_zero, note, experts=3)
    blocks = quant_blocks.moderate("Q8_0", rng, 2)
    w = quant_blocks.decode("Q8_0", blocks).reshape(2, 1, 32)
    x = random(rng, "f32", (1, 32))
    y = narrow("f32", wide(x) @ wide(w)[1].T)
    tol = sum_tolerance("f32", 32, 3.0 * float(np.abs(w).sum(2).max()))
    operands = [x, blocks.reshape(2, 1, 34), array(kind, [1])]
    attrs = {"scheme": "gguf_q8_0", "columns": 1}
    yield sample(name("dequant_grouped_matmul"), operands, y, tol, note, **attrs)


def labels(kind):
    rng = rng_of(f"labels/{kind}")
    x, at = random(rng, "f32", (2, 3), -3, 0), np.array([2, 0])
    wide_x, note = torch.tensor(x.astype(np.float64)), f"labels of {kind}"
    for op, function in (("softmax_cross_entropy", F.cross_entropy), ("nll_loss", F.nll_loss)):
        out = narrow("f32", function(wide_x, torch.tensor(at), reduction="none").numpy())
        attrs = {"reduction": "none"} if op == "nll_loss" else {}
        name = f"{op}/f32/labels-{kind}"
        yield sample(name, [x, array(kind, at)], out, ulps("f32", 4, 8 * unit("f32")), note, **attrs)


def sequences(kind):
    rng = rng_of(f"sequences/{kind}")
    x, angle = random(rng, "f32", (2, 4)), rng.uniform(0, 6.28, (3, 2))
    cos, sin, at = array("f32", np.cos(angle)), array("f32", np.sin(angle)), np.array([2, 1])
    rows = [wide(t)[at][:, None] for t in (cos, sin)]
    y = narrow("f32", sequence.turn_pairs(wide(x), *rows, 4, 4, False))
    operands = [x, cos, sin, array(kind, at)]
    tol = ulps("f32", 2, 16 * unit("f32"))
    yield sample(f"rope_at/f32/by-{kind}", operands, y, tol, f"positions of {kind}", head_dim=4)
    q, k, v = random(rng, "f32", (1, 1, 1, 2)), *(random(rng, "f32", (2, 2, 1, 2)) for _ in range(2))
    keys, values = (torch.tensor(t.astype(np.float64)).reshape(1, 4, 2)[:, [2, 3, 0]] for t in (k, v))
    y = F.scaled_dot_product_attention(torch.tensor(q.astype(np.float64))[0], keys, values)
    operands = [q, k, v, array(kind, [[1, 0]]), array(kind, [3])]
    tol = ulps("f32", 8, 64 * unit("f32"))
    out = narrow("f32", y.numpy().reshape(1, 1, 1, 2))
    yield sample(f"paged_attention/f32/by-{kind}", operands, out, tol, f"pages and lengths of {kind}")
    for cell, gates, options in (
        ("rnn", 1, {"activation": "tanh"}),
        ("gru", 3, {"linear_before_reset": True}),
        ("lstm", 4, {}),
    ):
        x, w, r = (random(rng, "f32", s, -1, 1) for s in ((2, 2, 1), (1, gates, 1), (1, gates, 1)))
        bias, lengths = random(rng, "f32", (1, 2 * gates), -1, 1), [2, 1]
        states = [random(rng, "f32", (1, 2, 1), -1, 1) for _ in range(2 if cell == "lstm" else 1)]
        up = [sequence.t64(t) for t in (x, w, r, bias)]
        results = sequence.by_torch(cell, options, *up, [sequence.t64(s) for s in states], torch.tensor(lengths))
        operands = [x, w, r, bias, *states, array(kind, lengths)]
        outs, note = [narrow("f32", t) for t in results], f"lengths of {kind}"
        yield sample(f"{cell}/f32/lengths-{kind}", operands, outs, tol, note, **options)


def masks():
    case = (3, 1, 1, 1, 2, 3, 2)
    for kind in INTS:
        p = attention.Problem(f"mask/{kind}", "f32", (*case, {"mask_shape": (1, 3), "mask_dtype": kind}, ""))
        r, note = p.solve(), f"a mask of {kind}"
        q, k, v, d = (p.laid_out(t) for t in (p.q, p.k, p.v, p.dout))
        out, lse = p.laid_out(narrow("f32", r["out"])), narrow("f32", r["lse"])
        tol, wide_tol = ulps("f32", 8, 64 * unit("f32")), ulps("f32", 8, 256 * unit("f32"))
        name = f"attention/f32/mask-{kind}"
        yield sample(name, [q, k, v, *p.optional], [out, lse], tol, note, **p.attrs)
        grads = [p.laid_out(narrow("f32", r[g])) for g in ("dq", "dk", "dv")]
        name = f"attention_backward/f32/mask-{kind}"
        yield sample(name, [q, k, v, out, lse, d, *p.optional], grads, wide_tol, note, **p.attrs)
        name, attrs = f"attention_gradient/f32/mask-{kind}", p.attrs | {"wrt": "value"}
        yield sample(name, [q, k, v, d, *p.optional], grads[2], wide_tol, note, **attrs)
    keep = np.array([[True, False]])
    for kind in REALS:
        rng, note = rng_of(f"fused-mask/{kind}"), f"a mask of {kind}"
        hidden, qkv, out_w = (random(rng, "f32", s, -1, 1) for s in ((1, 2, 2), (2, 6), (2, 2)))
        parts = (fused.t64(hidden) @ fused.t64(qkv)).chunk(3, -1)
        y = fused.self_attention(*parts, keep, 1) @ fused.t64(out_w)
        operands, tol = [hidden, qkv, out_w, array(kind, keep)], ulps("f32", 8, 64 * unit("f32"))
        name = f"fused_attention_block/f32/mask-{kind}"
        yield sample(name, operands, narrow("f32", y.numpy()), tol, note, num_heads=1)
        for bias in (False, True):
            yield layer(kind, bias, keep)


def layer(kind, bias, keep):
    """A layer of two tokens whose mask, the last operand, is of that dtype."""
    name = f"fused_transformer_layer/f32/mask-{kind}{'-bias' if bias else ''}"
    rng = rng_of(name)
    sizes = [("qkv_w", (2, 6)), ("qkv_b", (6,)), ("out_w", (2, 2)), ("out_b", (2,))]
    sizes += [("ln1_g", (2,)), ("ln1_b", (2,)), ("fc1_w", (2, 2)), ("fc1_b", (2,))]
    sizes += [("fc2_w", (2, 2)), ("fc2_b", (2,)), ("ln2_g", (2,)), ("ln2_b", (2,))]
    biases = ("qkv_b", "out_b", "fc1_b", "fc2_b")
    p = {n: random(rng, "f32", s, -0.7, 0.7) for n, s in sizes if bias or n not in biases}
    hidden = random(rng, "f32", (1, 2, 2), -1, 1)
    y = fused.layer_by_parts(fused.t64(hidden), p, keep, 1, "gelu", (0.1, 0.1), lambda t: t)
    operands, out = [hidden, *p.values(), array(kind, keep)], narrow("f32", y.numpy())
    tol = ulps("f32", 8, 1024 * unit("f32"))
    attrs = {"num_heads": 1, "has_bias": bias, "eps1": 0.1, "eps2": 0.1}
    return sample(name, operands, out, tol, f"a mask of {kind}", **attrs)


def others():
    for kind in ("i8", "i16"):
        integers = array(kind, [3, -1])
        y = np.array([fold_in(KEYS[1], int(i) & MASK) for i in integers], np.uint32)
        name = f"random_fold_in/u32/by-{kind}"
        yield sample(name, [key_array(KEYS[1]), integers], y, EXACT, f"integers of {kind}")
    rng = rng_of("sort_by_key/f32/complex")
    x, at = array("f32", [3, 1, 2]), [1, 2, 0]
    followers = [any_bits(rng, "i64", (3,)), any_bits(rng, "c64", (3,))]
    outs = [x[at], *(v[at] for v in followers)]
    yield sample("sort_by_key/f32/complex", [x, *followers], outs, EXACT, "followers of other dtypes")


def samples():
    for kind in INDEX:
        for group in (moves, sums, labels, sequences):
            yield from group(kind)
    yield from masks()
    yield from others()
