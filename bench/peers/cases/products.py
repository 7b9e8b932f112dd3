"""Products: x times a weight, as linear layers are, batched ones, and attention."""

import itertools

from .case import case, f32, small

LAYERS = [(384, 1536), (768, 768), (768, 3072), (3072, 768), (4096, 4096)]
for rows, (k, n) in itertools.product((1, 16, 128, 512, 2048), LAYERS):
    case(
        "products",
        f"linear {rows}x{k}x{n}",
        [f32(rows, k)],
        weights=[small(k, n)],
        every=lambda m, x, w: m.matmul(x, w),
        only={
            "torch": lambda m, x, w: m.matmul(x, w),
            "numpy": lambda x, w: x @ w,
        },
        flops=2 * rows * k * n,
        bytes=4 * (rows * k + k * n + rows * n) if rows == 1 else 0,
        reads=True,
    )
case("products", "batched 48x128x64x128", [f32(48, 128, 64), f32(48, 64, 128)], every=lambda m, a, b: m.matmul(a, b), flops=2 * 48 * 128 * 64 * 128)
case("products", "batched 1024x16x16x16", [f32(1024, 16, 16), f32(1024, 16, 16)], every=lambda m, a, b: m.matmul(a, b), flops=2 * 1024 * 16**3)


for name, q, s, causal in (("4x12 heads, 512, causal", 512, 512, True), ("1x12 heads, 128", 128, 128, False), ("decode 1x12 heads, cache 4096", 1, 4096, False)):
    batch = 4 if causal else 1
    case(
        "attention",
        name,
        [f32(batch, 12, q, 64), f32(batch, 12, s, 64), f32(batch, 12, s, 64)],
        only={
            "rlx": lambda m, q, k, v, causal=causal: m.attention(q, k, v, num_heads=12, mask="causal" if causal else "none"),
            "torch": lambda m, q, k, v, causal=causal: m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
            "jax": lambda m, q, k, v, causal=causal: __import__("jax").nn.dot_product_attention(
                *(x.swapaxes(1, 2) for x in (q, k, v)), is_causal=causal
            ).swapaxes(1, 2),
        },
        flops=4 * batch * 12 * q * s * 64 / (2 if causal else 1),
        bytes=4 * batch * 12 * 64 * (2 * q + 2 * s) if q == 1 else 0,
        reads=True,
    )
