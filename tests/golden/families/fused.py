"""The fused blocks, by PyTorch's own layers in binary64."""

import numpy as np
import torch
import torch.nn.functional as F

from .core import FLOATS, narrow, random, rng_of, sample, ulps, unit


def t64(x):
    return torch.tensor(np.asarray(x).astype(np.float64))


def draw(rng, dtype, *shapes):
    return [random(rng, dtype, shape, -1.5, 1.5) for shape in shapes]


ACTIVATIONS = {
    "": lambda x: x,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def matmuls():
    shapes = [((3, 5), (5, 4)), ((2, 3, 5), (5, 17)), ((0, 5), (5, 2)), ((1, 1), (1, 1))]
    for dtype in FLOATS:
        for n, (name, function) in enumerate(ACTIVATIONS.items()):
            x_shape, w_shape = shapes[n % len(shapes)]
            identifier = f"fused_matmul_bias_act/{dtype}/{name or 'none'}"
            x, w, bias = draw(rng_of(identifier), dtype, x_shape, w_shape, w_shape[1:])
            y = function(t64(x) @ t64(w) + t64(bias)).numpy()
            # Five products of up to 2.25 and a bias; slopes of the activations stay below 1.2.
            yield sample(
                identifier,
                [x, w, bias],
                narrow(dtype, y),
                ulps(dtype, 8, 32 * unit(dtype)),
                f"x {x_shape}, activation {name or 'none'}",
                activation=f'"{name}"',
            )


# The other kinds of the specification's Activation; the bias keeps arguments in (0.5, 1.5), inside every domain.
KINDS = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "neg": torch.neg,
    "abs": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "atan": torch.atan,
    "round": torch.round,
}


def further_activations():
    for dtype in FLOATS:
        for name, function in KINDS.items():
            identifier = f"fused_matmul_bias_act/{dtype}/{name}"
            rng = rng_of(identifier)
            x, w = (random(rng, dtype, (2, 2), -0.4, 0.4) for _ in range(2))
            bias = narrow(dtype, np.array([1.0, 1.125] if name != "round" else [1.875, -1.125]))
            y = function(t64(x) @ t64(w) + t64(bias)).numpy()
            # Slopes below 15 (tan at 1.45).
            tol = ulps(dtype, 8, 64 * unit(dtype))
            yield sample(identifier, [x, w, bias], narrow(dtype, y), tol, name, activation=f'"{name}"')
            identifier = f"fused_transformer_layer/{dtype}/{name}"
            rng = rng_of(identifier)
            yield tiny_layer(identifier, rng, dtype, name)
    for dtype in FLOATS:
        for name in ACTIVATIONS:
            identifier = f"fused_transformer_layer/{dtype}/{name or 'none'}"
            yield tiny_layer(identifier, rng_of(identifier), dtype, name)


def tiny_layer(identifier, rng, dtype, activation):
    """One token, one head of two; the inner layer's arguments stay near 1."""
    sizes = [("qkv_w", (2, 6)), ("qkv_b", (6,)), ("out_w", (2, 2)), ("out_b", (2,))]
    sizes += [("ln1_g", (2,)), ("ln1_b", (2,)), ("fc1_w", (2, 2)), ("fc1_b", (2,))]
    sizes += [("fc2_w", (2, 2)), ("fc2_b", (2,)), ("ln2_g", (2,)), ("ln2_b", (2,))]
    parts = {name: random(rng, dtype, shape, -0.7, 0.7) for name, shape in sizes}
    parts["fc1_w"] = random(rng, dtype, (2, 2), -0.2, 0.2)
    parts["fc1_b"] = narrow(dtype, np.array([1.0, 1.125]) if activation != "round" else np.array([1.875, -1.125]))
    (hidden,) = draw(rng, dtype, (1, 1, 2))
    mask = np.ones((1, 1), bool)
    eps = (1e-1, 1e-1)  # of two numbers the variance may be small
    by_parts = lambda part: layer_by_parts(t64(hidden), parts, mask, 1, activation, eps, part)
    y = by_parts(lambda t: t)
    return sample(
        identifier,
        [hidden, *parts.values(), mask],
        narrow(dtype, y.numpy()),
        rounded_tolerance(dtype, 1024 * unit(dtype), y, by_parts(rounder(dtype))),
        f"activation {activation or 'none'}",
        num_heads=1,
        head_dim=2,
        eps1=eps[0],
        eps2=eps[1],
        activation=f'"{activation}"',
        has_bias=True,
    )


def norms():
    rms = lambda x, size, g, eps: F.rms_norm(x, size, g, eps)
    layer = lambda x, size, g, eps: F.layer_norm(x, size, g, None, eps)
    for op, norm in (("fused_residual_ln", layer), ("fused_residual_rms_norm", rms)):
        for dtype in FLOATS:
            for n, (shape, has_bias, eps) in enumerate(
                [((3, 8), False, 1e-5), ((2, 3, 17), True, 1e-3), ((6,), True, 1e-5), ((0, 4), False, 1e-5)]
            ):
                identifier = f"{op}/{dtype}/case-{n}"
                operands = draw(
                    rng_of(identifier), dtype, shape, shape, *[shape[-1:]] * (3 if has_bias else 2)
                )
                x, residual, *bias, gamma, beta = map(t64, operands)
                y = norm(sum(bias, x + residual), shape[-1:], gamma, eps) + beta
                yield sample(
                    identifier,
                    operands,
                    narrow(dtype, y.numpy()),
                    ulps(dtype, 8, 64 * unit(dtype)),
                    f"{shape}, bias {has_bias}",
                    has_bias=has_bias,
                    eps=eps,
                )


def swiglus():
    for dtype in FLOATS:
        for n, (shape, gate_first, cast_to) in enumerate(
            [((3, 8), False, None), ((2, 2, 34), True, None), ((6,), False, "f32"), ((2, 4), True, "f16"), ((0, 2), False, None)]
        ):
            identifier = f"fused_swiglu/{dtype}/case-{n}"
            (x,) = draw(rng_of(identifier), dtype, shape)
            first, second = np.split(np.asarray(x).astype(np.float64), 2, -1)
            up, gate = (second, first) if gate_first else (first, second)
            y = t64(up) * F.silu(t64(gate))
            out = cast_to or dtype
            attrs = {"gate_first": gate_first} | ({"cast_to": cast_to} if cast_to else {})
            tol = ulps(out, 8, 8 * unit(dtype))
            yield sample(identifier, [x], narrow(out, y.numpy()), tol, f"{shape}, to {out}", **attrs)


def swiglu_casts():
    for dtype in FLOATS:
        for cast_to in FLOATS:
            identifier = f"fused_swiglu/{dtype}/to-{cast_to}"
            (x,) = draw(rng_of(identifier), dtype, (2, 6))
            up, gate = np.split(np.asarray(x).astype(np.float64), 2, -1)
            y = (t64(up) * F.silu(t64(gate))).numpy()
            tol = ulps(cast_to, 8, 8 * unit(dtype))
            yield sample(identifier, [x], narrow(cast_to, y), tol, f"to {cast_to}", cast_to=cast_to)


def heads(x, count):
    batch, rows, width = x.shape
    return x.reshape(batch, rows, count, width // count).transpose(1, 2)


def self_attention(q, k, v, mask, count):
    q, k, v = (heads(t, count) for t in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=torch.tensor(mask)[:, None, None, :])
    return y.transpose(1, 2).reshape(mask.shape[0], mask.shape[1], -1)


def rotated(x, turn, count):
    """Half-split pairs as complex numbers."""
    x = heads(x, count)
    half = x.shape[-1] // 2
    z = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([z.real, z.imag], -1).transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def keys_kept(rng, batch, rows):
    mask = rng.random((batch, rows)) < 0.7
    mask[:, 0] = True
    return mask


def rounder(dtype):
    """What a part of a block does to its result: rounds it to f16 or bf16."""
    if dtype in ("f32", "f64"):
        return lambda t: t
    return lambda t: t64(narrow(dtype, t.numpy()))


def rounded_tolerance(dtype, absolute, exact, rounded):
    """Blocks round where their parts end; what that does is seen by rounding here, and may be twice as much."""
    if dtype in ("f32", "f64"):
        return ulps(dtype, 8, absolute)
    return ulps(dtype, 1, 2 * float((exact - rounded).abs().max()))


def attention_blocks():
    for dtype in FLOATS:
        for n, (batch, rows, count, size, bias, rope) in enumerate(
            [(2, 4, 2, 4, False, False), (1, 5, 3, 2, True, False), (2, 3, 2, 4, True, True), (1, 4, 1, 6, False, True)]
        ):
            identifier = f"fused_attention_block/{dtype}/case-{n}"
            rng = rng_of(identifier)
            width = count * size
            hidden, qkv_w, out_w = draw(rng, dtype, (batch, rows, width), (width, 3 * width), (width, width))
            mask = keys_kept(rng, batch, rows)
            inputs = [hidden, qkv_w, out_w, mask if n % 2 == 0 else narrow(dtype, 1.0 * mask)]
            biases, tables = [], []
            if bias:
                biases = draw(rng, dtype, (3 * width,), (width,))
            if rope:
                angle = rng.uniform(0, 6.28, (rows, size // 2))
                tables = [narrow(dtype, np.cos(angle)), narrow(dtype, np.sin(angle))]
            inputs += biases + tables

            def block(part):
                qkv = part(t64(hidden) @ t64(qkv_w))
                qkv = part(qkv + t64(biases[0])) if bias else qkv
                q, k, v = qkv.chunk(3, -1)
                if rope:
                    z = torch.complex(*map(t64, tables))  # of modulus 1 but for a rounding
                    q, k = part(rotated(q, z, count)), part(rotated(k, z, count))
                y = part(part(self_attention(q, k, v, mask, count)) @ t64(out_w))
                return part(y + t64(biases[1])) if bias else y

            y = block(lambda t: t)
            # Two projections over up to 8 terms of up to 2.25, softmax slopes of scores up to 40.
            yield sample(
                identifier,
                inputs,
                narrow(dtype, y.numpy()),
                rounded_tolerance(dtype, 2048 * unit(dtype), y, block(rounder(dtype))),
                f"bias {bias}, rope {rope}",
                num_heads=count,
                head_dim=size,
                has_bias=bias,
                has_rope=rope,
            )


def layer_by_parts(hidden, p, mask, count, activation, eps, part):
    """BERT's layer: after each sum a normalisation."""
    add = lambda x, name: part(x + t64(p[name])) if name in p else x
    width = hidden.shape[-1:]
    q, k, v = add(part(hidden @ t64(p["qkv_w"])), "qkv_b").chunk(3, -1)
    y = part(self_attention(q, k, v, mask, count))
    y = add(part(y @ t64(p["out_w"])), "out_b")
    h = part(F.layer_norm(part(y + hidden), width, t64(p["ln1_g"]), t64(p["ln1_b"]), eps[0]))
    y = part((ACTIVATIONS | KINDS)[activation](add(part(h @ t64(p["fc1_w"])), "fc1_b")))
    y = add(part(y @ t64(p["fc2_w"])), "fc2_b")
    return part(F.layer_norm(part(y + h), width, t64(p["ln2_g"]), t64(p["ln2_b"]), eps[1]))


def layers():
    for dtype in FLOATS:
        for n, (batch, rows, count, size, inner, activation, bias) in enumerate(
            [
                (2, 3, 2, 4, 6, "gelu", True),
                (1, 4, 2, 2, 5, "relu", True),
                (2, 2, 1, 4, 8, "gelu", False),
                (1, 2, 2, 2, 3, "relu", False),
            ]
        ):
            identifier = f"fused_transformer_layer/{dtype}/case-{n}"
            rng = rng_of(identifier)
            width = count * size
            eps1, eps2 = (1e-5, 1e-3) if n < 3 else (1e-2, 1e-4)
            shapes = {
                "qkv_w": (width, 3 * width),
                "qkv_b": (3 * width,),
                "out_w": (width, width),
                "out_b": (width,),
                "ln1_g": (width,),
                "ln1_b": (width,),
                "fc1_w": (width, inner),
                "fc1_b": (inner,),
                "fc2_w": (inner, width),
                "fc2_b": (width,),
                "ln2_g": (width,),
                "ln2_b": (width,),
            }
            if not bias:
                shapes = {k: v for k, v in shapes.items() if k not in ("qkv_b", "out_b", "fc1_b", "fc2_b")}
            (hidden,) = draw(rng, dtype, (batch, rows, width))
            parts = {k: random(rng, dtype, shape, -0.7, 0.7) for k, shape in shapes.items()}
            mask = keys_kept(rng, batch, rows)
            layer = torch.nn.TransformerEncoderLayer(
                width, count, inner, 0.0, activation, eps1, batch_first=True, dtype=torch.float64
            ).train()  # the layer by its parts, not the inference kernel
            layer.norm2.eps = eps2
            zero = lambda name, size: t64(parts[name]) if name in parts else torch.zeros(size, dtype=torch.float64)
            layer.load_state_dict(
                {
                    "self_attn.in_proj_weight": t64(parts["qkv_w"]).T,
                    "self_attn.in_proj_bias": zero("qkv_b", 3 * width),
                    "self_attn.out_proj.weight": t64(parts["out_w"]).T,
                    "self_attn.out_proj.bias": zero("out_b", width),
                    "linear1.weight": t64(parts["fc1_w"]).T,
                    "linear1.bias": zero("fc1_b", inner),
                    "linear2.weight": t64(parts["fc2_w"]).T,
                    "linear2.bias": zero("fc2_b", width),
                    "norm1.weight": t64(parts["ln1_g"]),
                    "norm1.bias": t64(parts["ln1_b"]),
                    "norm2.weight": t64(parts["ln2_g"]),
                    "norm2.bias": t64(parts["ln2_b"]),
                }
            )
            with torch.no_grad():
                y = layer(t64(hidden), src_key_padding_mask=torch.tensor(~mask))
            by_parts = lambda part: layer_by_parts(
                t64(hidden), parts, mask, count, activation, (eps1, eps2), part
            )
            assert torch.allclose(by_parts(lambda t: t), y, 1e-12, 1e-12), identifier
            yield sample(
                identifier,
                [hidden, *parts.values(), mask],
                narrow(dtype, y.numpy()),
                rounded_tolerance(dtype, 1024 * unit(dtype), y, by_parts(rounder(dtype))),
                f"{activation}, bias {bias}",
                num_heads=count,
                head_dim=size,
                eps1=eps1,
                eps2=eps2,
                activation=f'"{activation}"',
                has_bias=bias,
            )


def samples():
    for group in (matmuls, further_activations, norms, swiglus, swiglu_casts, attention_blocks, layers):
        yield from group()
