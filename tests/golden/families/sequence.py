"""Rotary variants, caches and recurrences: NumPy in extended precision, and PyTorch's layers in binary64."""

import numpy as np
import torch

from .core import FLOATS, Real, any_bits, array, narrow, random, rng_of, sample, ulps, unit, wide
from .core import ALL, EXACT


def t64(x):
    return torch.tensor(np.asarray(x).astype(np.float64))


# ---- rotary


def turn_pairs(x, cos, sin, head_dim, n_rot, interleaved):
    """x [.., S, h * D]; cos and sin broadcast to [.., S, 1, n_rot / 2]. Pairs as complex numbers."""
    heads = x.reshape(*x.shape[:-1], x.shape[-1] // head_dim, head_dim)
    y = heads.copy()
    half = n_rot // 2
    first = slice(0, n_rot, 2) if interleaved else slice(0, half)
    second = slice(1, n_rot, 2) if interleaved else slice(half, n_rot)
    z = (heads[..., first] + 1j * heads[..., second]) * (cos + 1j * sin)
    y[..., first], y[..., second] = z.real, z.imag
    return y.reshape(x.shape)


def ropes():
    cases = [
        ((3, 8), 4, 4, (3, 2), None, True, "interleaved"),
        ((2, 3, 6), 6, 4, (4, 3), None, True, "interleaved, partial"),
        ((3, 8), 4, 4, (5, 2), (3,), False, "positions for all"),
        ((2, 3, 8), 8, 6, (7, 4), (2, 3), False, "positions per batch, partial"),
        ((2, 2, 3, 4), 4, 4, (7, 2), (2, 3), True, "head-major, positions per batch, interleaved"),
        ((2, 0, 4), 4, 4, (3, 2), (2, 0), False, "no positions"),
        ((3, 4), 4, 2, (5, 2), (3,), False, "positions of i32"),
        ((2, 4), 4, 4, (5, 2), (2,), True, "positions of f32"),
    ]
    kinds = {6: "i32", 7: "f32"}
    for dtype in FLOATS:
        for n, (shape, head_dim, n_rot, table, at, interleaved, note) in enumerate(cases):
            identifier = f"{'rope_at' if at is not None else 'rope'}/{dtype}/variant-{n}"
            rng = rng_of(identifier)
            x, angle = random(rng, dtype, shape), rng.uniform(0, 6.28, table)
            cos, sin = array(dtype, np.cos(angle)), array(dtype, np.sin(angle))
            positions = np.arange(shape[-2]) if at is None else rng.integers(0, table[0], at)
            rows = [wide(t)[positions][..., None, : n_rot // 2] for t in (cos, sin)]
            if positions.ndim == 2:
                rows = [t.reshape(t.shape[:1] + (1,) * (len(shape) - 3) + t.shape[1:]) for t in rows]
            y = turn_pairs(wide(x), *rows, head_dim, n_rot, interleaved)
            yield sample(
                identifier,
                [x, cos, sin] + ([] if at is None else [array(kinds.get(n, "i64"), positions)]),
                narrow(dtype, y),
                ulps(dtype, 2, 16 * unit(dtype)),
                note,
                head_dim=head_dim,
                n_rot=n_rot,
                interleaved=interleaved,
            )


def axial_ropes():
    cases = [(2, 3, 4, 1, 10000.0, 1), (3, 2, 8, 2, 100.0, 1), (2, 2, 12, 1, 10000.0, 3), (1, 1, 4, 1, 10.0, 0)]
    for dtype in FLOATS:
        for n, (end_x, end_y, head_dim, heads, theta, repeat) in enumerate(cases):
            identifier = f"axial_rope2d/{dtype}/case-{n}"
            tokens = end_x * end_y * max(repeat, 1)
            x = random(rng_of(identifier), dtype, (2, tokens, heads * head_dim))
            place = np.arange(tokens) // max(repeat, 1)
            f = Real(theta) ** (-4 * np.arange(head_dim // 4).astype(Real) / head_dim)
            angle = np.concatenate(
                [(place % end_x)[:, None] * f, (place // end_x)[:, None] * f], -1
            )[:, None, :]
            y = turn_pairs(wide(x), np.cos(angle), np.sin(angle), head_dim, head_dim, True)
            yield sample(
                identifier,
                [x],
                narrow(dtype, y),
                ulps(dtype, 2, 16 * unit(dtype)),
                f"grid {end_x} x {end_y}, repeat {repeat}",
                end_x=end_x,
                end_y=end_y,
                head_dim=head_dim,
                num_heads=heads,
                theta=theta,
                repeat_factor=repeat,
            )


# ---- caches


def paged_attentions():
    cases = [
        (2, 1, 2, 1, 4, 2, 5, 3, [5, 2], {}, "decoding, grouped"),
        (2, 3, 2, 2, 3, 4, 4, 2, [8, 3], {}, "several queries"),
        (1, 2, 2, 2, 3, 2, 6, 4, [7], {"mask": "sliding_window", "window": 2, "scale": 0.4}, "window"),
        (1, 2, 4, 2, 3, 2, 6, 4, [8], {"mask": "none"}, "no mask but the length"),
        (1, 2, 2, 1, 3, 2, 4, 3, [5], {"softcap": 1.5, "scale": 2.0}, "soft cap"),
        (1, 1, 2, 2, 2, 2, 3, 2, [3], {"softcap": 0.5}, "a tight cap"),
    ]
    for dtype in FLOATS:
        for n, (batch, queries, heads, kv, size, page, pages, blocks, lengths, options, note) in enumerate(cases):
            identifier = f"paged_attention/{dtype}/case-{n}"
            rng = rng_of(identifier)
            q = random(rng, dtype, (batch, queries, heads, size), -2, 2)
            k, v = (random(rng, dtype, (pages, page, kv, size), -2, 2) for _ in range(2))
            table = rng.integers(0, pages, (batch, blocks))
            y = np.zeros(q.shape)
            for b, length in enumerate(lengths):
                used = -(-length // page)
                table[b, used:] = -1  # never read
                own = [t[table[b, :used]].reshape(-1, kv, size)[:length] for t in (k, v)]
                own = [t64(t).transpose(0, 1).repeat_interleave(heads // kv, 0) for t in own]
                at, key = np.arange(length - queries, length)[:, None], np.arange(length)[None]
                kind = options.get("mask", "causal")
                seen = (key <= at) | (kind == "none")
                if kind == "sliding_window":
                    seen &= key >= at - options["window"]
                if "softcap" in options:
                    cap, scale = options["softcap"], options.get("scale", size**-0.5)
                    scores = scale * t64(q[b]).transpose(0, 1) @ own[0].transpose(1, 2)
                    scores = (cap * torch.tanh(scores / cap)).masked_fill(~torch.tensor(seen), -torch.inf)
                    out = torch.softmax(scores, -1) @ own[1]
                else:
                    out = torch.nn.functional.scaled_dot_product_attention(
                        t64(q[b]).transpose(0, 1), *own, attn_mask=torch.tensor(seen), scale=options.get("scale")
                    )
                y[b] = out.transpose(0, 1).numpy()
            held = 0.0 if dtype in ("f32", "f64") else 4 * {"f16": 2.0**-11, "bf16": 2.0**-8}[dtype]
            yield sample(
                identifier,
                [q, k, v, array("i64" if n == 4 else "i32", table), array("i32" if n == 4 else "i64", lengths)],
                narrow(dtype, y),
                ulps(dtype, 8, max(64 * unit(dtype), held)),
                note,
                **options,
            )


def appends():
    cases = [((2, 5, 3), 1, 2, 3, "at the end"), ((2, 5, 3), 0, 1, 0, "first row"), ((4,), 0, 0, 2, "no rows")]
    cases += [((2, 4, 3), -2, 1, 2, "axis from the end, position of i32")]
    for dtype in ALL:
        for n, (shape, axis, count, at, note) in enumerate(cases):
            identifier = f"kv_cache_append/{dtype}/case-{n}"
            rng = rng_of(identifier)
            along = axis % len(shape)
            rows_shape = shape[:along] + (count,) + shape[along + 1 :]
            cache, rows = any_bits(rng, dtype, shape), any_bits(rng, dtype, rows_shape)
            y = cache.copy()
            y[(slice(None),) * along + (slice(at, at + count),)] = rows
            where = array("i32" if axis < 0 else "i64", at)
            yield sample(identifier, [cache, rows, where], y, EXACT, note, axis=axis)


# ---- recurrences


def selective_scans():
    for dtype in FLOATS:
        for n, (batch, steps, channels, states) in enumerate([(2, 5, 3, 4), (1, 9, 17, 16), (1, 0, 2, 3), (2, 1, 1, 1)]):
            identifier = f"selective_scan/{dtype}/case-{n}"
            rng = rng_of(identifier)
            x, b, c = (
                random(rng, dtype, (batch, steps, size), -1.5, 1.5) for size in (channels, states, states)
            )
            delta = random(rng, dtype, (batch, steps, channels), 0.05, 1)
            a = random(rng, dtype, (channels, states), -2, -0.1)
            h, y = np.zeros((batch, channels, states), Real), np.zeros((batch, steps, channels), Real)
            for t in range(steps):
                d = wide(delta)[:, t, :, None]
                h = np.exp(d * wide(a)) * h + d * wide(b)[:, t, None] * wide(x)[:, t, :, None]
                y[:, t] = (h * wide(c)[:, t, None]).sum(-1)
            # y sums up to 16 states of a few units each.
            tol = ulps(dtype, 8, 256 * unit(dtype))
            yield sample(identifier, [x, delta, a, b, c], narrow(dtype, y), tol, f"{states} states, {steps} steps")


def selective_scan_gradients():
    """By autograd through the recurrence as written."""
    for dtype in FLOATS:
        for n, (batch, steps, channels, states) in enumerate([(2, 5, 3, 4), (1, 70, 3, 2), (1, 9, 17, 16)]):
            identifier = f"selective_scan_backward/{dtype}/case-{n}"
            rng = rng_of(identifier)
            x, dy = (random(rng, dtype, (batch, steps, channels), -1.5, 1.5) for _ in range(2))
            b, c = (random(rng, dtype, (batch, steps, states), -1.5, 1.5) for _ in range(2))
            delta = random(rng, dtype, (batch, steps, channels), 0.05, 1)
            a = random(rng, dtype, (channels, states), -2, -0.1)
            leaves = [t64(t).requires_grad_() for t in (x, delta, np.stack([a] * batch), b, c)]
            x64, delta64, a64, b64, c64 = leaves
            h, loss = torch.zeros(batch, channels, states, dtype=torch.float64), 0
            for t in range(steps):
                d = delta64[:, t, :, None]
                h = torch.exp(d * a64) * h + d * b64[:, t, None] * x64[:, t, :, None]
                loss = loss + ((h * c64[:, t, None]).sum(-1) * t64(dy)[:, t]).sum()
            loss.backward()
            wide_dtype = "f64" if dtype == "f64" else "f32"
            kinds = [dtype, dtype, wide_dtype, dtype, dtype]
            results = [narrow(kind, leaf.grad.numpy()) for kind, leaf in zip(kinds, leaves)]
            # Sums over states, channels or steps of products of four factors of up to 1.5.
            tol = [ulps(kind, 8, 1024 * unit(dtype)) for kind in kinds]
            yield sample(identifier, [x, delta, a, b, c, dy], results, tol, f"{states} states, {steps} steps")


def delta_nets():
    for dtype in FLOATS:
        for n, (batch, steps, heads, size, state_dtype) in enumerate(
            [(1, 4, 2, 3, None), (2, 5, 1, 4, dtype), (1, 3, 2, 2, "f64" if dtype == "f64" else "f32"), (1, 0, 1, 2, dtype)]
        ):
            identifier = f"gated_delta_net/{dtype}/case-{n}"
            rng = rng_of(identifier)
            shape = (batch, steps, heads, size)
            q, k, v = (random(rng, dtype, shape, -0.7, 0.7) for _ in range(3))
            g, beta = random(rng, dtype, shape[:3], -1, 0), random(rng, dtype, shape[:3], 0, 1)
            inputs = [q, k, v, g, beta]
            state = np.zeros((batch, heads, size, size), Real)
            if state_dtype:
                inputs.append(random(rng, state_dtype, state.shape, -1, 1))
                state = wide(inputs[-1])
            out = np.zeros(shape, Real)
            for t in range(steps):
                q_t, k_t, v_t, g_t, beta_t = (wide(x)[:, t] for x in inputs[:5])
                state = np.exp(g_t)[..., None, None] * state
                change = (v_t - np.einsum("bhij,bhi->bhj", state, k_t)) * beta_t[..., None]
                state = state + k_t[..., :, None] * change[..., None, :]
                out[:, t] = np.einsum("bhij,bhi->bhj", state, q_t) / np.sqrt(Real(size))
            results = [narrow(dtype, out), narrow(state_dtype or dtype, state)]
            tol = [ulps(dtype, 8, 128 * unit(dtype)), ulps(state_dtype or dtype, 8, 128 * unit(dtype))]
            yield sample(identifier, inputs, results, tol, f"state {state_dtype or 'none'}, {steps} steps")


def convolutions():
    for dtype in FLOATS:
        for n, (batch, steps, channels, taps) in enumerate([(2, 5, 3, 4), (1, 3, 2, 1), (1, 1, 17, 2)]):
            identifier = f"depthwise_conv1d_causal/{dtype}/case-{n}"
            rng = rng_of(identifier)
            x = random(rng, dtype, (batch, steps, channels))
            w = random(rng, dtype, (channels, 1, 1, taps))
            left = random(rng, dtype, (batch, taps - 1, channels))
            z = torch.cat([t64(left), t64(x)], 1).transpose(1, 2)
            y = torch.nn.functional.conv1d(z, t64(w)[:, 0], groups=channels).transpose(1, 2)
            tol = ulps(dtype, 2, 64 * unit(dtype))
            yield sample(identifier, [x, w, left], narrow(dtype, y.numpy()), tol, f"{taps} taps")


# PyTorch's gates for the ones of ONNX, in the order of PyTorch.
TORCH_GATES = {"rnn": [0], "gru": [1, 0, 2], "lstm": [0, 2, 3, 1]}


def by_torch(kind, options, x, w, r, bias, states, lengths):
    directions, rows, width = w.shape
    hidden = r.shape[2]
    gates = rows // hidden
    bidirectional = directions == 2
    make = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind]
    extra = {"nonlinearity": options["activation"]} if "activation" in options else {}
    layer = make(width, hidden, bidirectional=bidirectional, dtype=torch.float64, **extra)
    order = lambda m: m.reshape(gates, hidden, -1)[TORCH_GATES[kind]].reshape(m.shape)
    weights = {}
    for d in range(directions):
        end = "_l0" + ("_reverse" if d else "")
        weights["weight_ih" + end], weights["weight_hh" + end] = order(w[d]), order(r[d])
        weights["bias_ih" + end], weights["bias_hh" + end] = order(bias[d, :rows]), order(bias[d, rows:])
    layer.load_state_dict(weights)
    steps, batch = x.shape[:2]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    with torch.no_grad():
        y, last = layer(packed, tuple(states) if kind == "lstm" else states[0])
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=steps)
    y = y.reshape(steps, batch, directions, hidden).transpose(1, 2)
    return [t.numpy() for t in [y, *(last if kind == "lstm" else [last])]]


def gru_reset_first(x, w, r, bias, h, lengths):
    """One forward direction with the reset applied to h before the product (ONNX's default), in extended precision."""
    w, r, bias = w[0], r[0], bias[0]
    hidden = r.shape[1]
    h, out = h[0], np.zeros((x.shape[0], 1, x.shape[1], hidden), Real)
    sigmoid = lambda t: 1 / (1 + np.exp(-t))
    part = lambda m, g: m[g * hidden : (g + 1) * hidden]
    for t in range(x.shape[0]):
        gate = lambda g, of: x[t] @ part(w, g).T + of @ part(r, g).T + part(bias, g) + part(bias, g + 3)
        z, reset = sigmoid(gate(0, h)), sigmoid(gate(1, h))
        new = (1 - z) * np.tanh(gate(2, reset * h)) + z * h
        active = (t < lengths)[:, None]
        out[t, 0], h = np.where(active, new, 0), np.where(active, new, h)
    return [out, h[None]]


def rnn_of_sigmoids(x, w, r, bias, h, lengths):
    """One forward direction, which PyTorch has with tanh and relu only, in extended precision."""
    hidden = r.shape[2]
    h, out = h[0], np.zeros((x.shape[0], 1, x.shape[1], hidden), Real)
    for t in range(x.shape[0]):
        new = 1 / (1 + np.exp(-(x[t] @ w[0].T + h @ r[0].T + bias[0, :hidden] + bias[0, hidden:])))
        active = (t < lengths)[:, None]
        out[t, 0], h = np.where(active, new, 0), np.where(active, new, h)
    return [out, h[None]]


def recurrent_layers():
    cases = [
        ("rnn", "forward", {"activation": "tanh"}, None),
        ("rnn", "bidirectional", {"activation": "relu"}, [3, 1]),
        ("gru", "forward", {"linear_before_reset": True}, None),
        ("gru", "bidirectional", {"linear_before_reset": True}, [2, 4]),
        ("gru", "forward", {"linear_before_reset": False}, None),
        ("gru", "forward", {"linear_before_reset": False}, [4, 2]),
        ("lstm", "forward", {}, None),
        ("lstm", "forward", {}, [1, 4]),
        ("lstm", "bidirectional", {}, [4, 3]),
        ("lstm", "reverse", {}, [2, 3]),
        ("rnn", "reverse", {"activation": "tanh"}, [2, 4]),
        ("rnn", "forward", {"activation": "sigmoid"}, [3, 2]),
        ("gru", "reverse", {"linear_before_reset": True}, [4, 1]),
    ]
    steps, batch, width, hidden = 4, 2, 3, 5
    for dtype in FLOATS:
        for n, (kind, direction, options, lengths) in enumerate(cases):
            identifier = f"{kind}/{dtype}/case-{n}"
            rng = rng_of(identifier)
            gates = len(TORCH_GATES[kind])
            d = 2 if direction == "bidirectional" else 1
            draw = lambda *shape: random(rng, dtype, shape, -1, 1)
            x, w, r = draw(steps, batch, width), draw(d, gates * hidden, width), draw(d, gates * hidden, hidden)
            bias = draw(d, 2 * gates * hidden)
            states = [draw(d, batch, hidden) for _ in range(2 if kind == "lstm" else 1)]
            full = np.array(lengths or [steps] * batch)
            if options.get("activation") == "sigmoid":
                results = rnn_of_sigmoids(*map(wide, (x, w, r, bias, states[0])), full)
            elif options.get("linear_before_reset") is False:
                results = gru_reset_first(*map(wide, (x, w, r, bias, states[0])), full)
            elif direction == "reverse":
                # The reverse half of a layer whose forward half is anything.
                twice = [np.concatenate([t, t]) for t in (w, r, bias)]
                both = [np.concatenate([t, t]) for t in states]
                y, *last = by_torch(
                    kind, options, t64(x), *map(t64, twice), [t64(t) for t in both], torch.tensor(full)
                )
                results = [y[:, 1:], *(t[1:] for t in last)]
            else:
                results = by_torch(
                    kind, options, t64(x), *map(t64, (w, r, bias)), [t64(t) for t in states], torch.tensor(full)
                )
            inputs = [x, w, r, bias, *states] + ([] if lengths is None else [array("i64" if n < 10 else "i32", full)])
            yield sample(
                identifier,
                inputs,
                [narrow(dtype, t) for t in results],
                ulps(dtype, 8, 64 * unit(dtype)),
                f"{direction}, lengths {lengths}",
                direction=direction,
                **options,
            )


def samples():
    for group in (
        ropes,
        axial_ropes,
        paged_attentions,
        appends,
        selective_scans,
        selective_scan_gradients,
        delta_nets,
        convolutions,
        recurrent_layers,
    ):
        yield from group()
