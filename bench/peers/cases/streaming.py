"""Work that memory limits."""

from .case import case, f32, positive

BIG = 1 << 25
STREAM = 4 * BIG
torch_gelu = {"torch": lambda m, x, y: m.nn.functional.gelu(x) * y + x, "jax": lambda m, x, y: __import__("jax").nn.gelu(x, approximate=False) * y + x}
case("streaming", "x + y, 2^25", [f32(BIG), f32(BIG)], every=lambda m, x, y: x + y, bytes=3 * STREAM)
case("streaming", "exp, 2^25", [f32(BIG)], every=lambda m, x: m.exp(x), bytes=2 * STREAM)
case("streaming", "gelu(x) * y + x, 2^25", [f32(BIG), f32(BIG)], every=lambda m, x, y: m.gelu(x) * y + x, only=torch_gelu, bytes=3 * STREAM)
case("streaming", "x^T of 4096x8192", [f32(4096, 8192)], every=lambda m, x: x.T + 0.0, only={"torch": lambda m, x: x.T.contiguous()}, bytes=2 * STREAM)
case("streaming", "sum of 2^25", [f32(BIG)], every=lambda m, x: m.sum(x), bytes=STREAM, reads=True, tolerance=1e-3)
case("streaming", "sum of 8192x4096 by rows", [f32(8192, 4096)], every=lambda m, x: m.sum(x, 1), bytes=STREAM, reads=True)
case("streaming", "sum of 8192x4096 by columns", [f32(8192, 4096)], every=lambda m, x: m.sum(x, 0), bytes=STREAM, reads=True)
case("streaming", "max of 2^25", [f32(BIG)], every=lambda m, x: m.max(x), bytes=STREAM, reads=True)
case("streaming", "argmax of 8192x4096 by rows", [f32(8192, 4096)], every=lambda m, x: m.argmax(x, 1), bytes=STREAM, reads=True)
SOFTMAX = {"torch": lambda m, x: m.softmax(x, -1), "rlx": lambda m, x: m.softmax(x), "jax": lambda m, x: __import__("jax").nn.softmax(x)}
case("streaming", "softmax 8192x4096", [f32(8192, 4096)], only=SOFTMAX, bytes=2 * STREAM)
case("streaming", "softmax 65536x64", [f32(65536, 64)], only=SOFTMAX, bytes=8 * 65536 * 64)
case("streaming", "log_softmax 512x50257", [f32(512, 50257)], only={"torch": lambda m, x: m.log_softmax(x, -1), "rlx": lambda m, x: m.log_softmax(x), "jax": lambda m, x: __import__("jax").nn.log_softmax(x)}, bytes=8 * 512 * 50257)


def jax_norm(m, x, g, b):
    centred = x - x.mean(-1, keepdims=True)
    return centred / m.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * g + b


case(
    "streaming",
    "layer_norm 16384x1024",
    [f32(16384, 1024)],
    weights=[positive(1024), f32(1024)],
    only={"torch": lambda m, x, g, b: m.nn.functional.layer_norm(x, [1024], g, b), "rlx": lambda m, x, g, b: m.layer_norm(x, g, b), "jax": jax_norm},
    bytes=8 * 16384 * 1024,
)
case("streaming", "cumsum of 2^24", [f32(1 << 24)], every=lambda m, x: m.cumsum(x, 0), bytes=8 << 24, tolerance=1e-2)
case("streaming", "cumsum of 4096x4096 by rows", [f32(4096, 4096)], every=lambda m, x: m.cumsum(x, 1), bytes=8 << 24, tolerance=1e-3)
case("streaming", "cumsum of 4096x4096 by columns", [f32(4096, 4096)], every=lambda m, x: m.cumsum(x, 0), bytes=8 << 24, tolerance=1e-3)
