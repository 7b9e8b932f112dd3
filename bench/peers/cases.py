"""What is timed, one row per case: the same work for each library that has it.

`every` is a function of a library's module and the arrays, for libraries that spell it alike; `only` has those that
spell it otherwise, by library ("torch-compile" takes torch's), None where one does not take part. `weights` are arrays that do not
change from run to run; `inputs` may. flops and bytes are the least that the work needs.
"""

import dataclasses
import itertools
import zlib
from typing import Any, Callable

import numpy as np


@dataclasses.dataclass
class Case:
    group: str
    name: str
    inputs: list
    weights: list = dataclasses.field(default_factory=list)
    every: Callable | None = None
    only: dict = dataclasses.field(default_factory=dict)
    flops: float = 0
    bytes: float = 0
    tolerance: float = 1e-4  # of the largest of the values that are compared

    def function_of(self, library) -> Any:
        key = "torch" if library == "torch-compile" and "torch-compile" not in self.only else library
        if key in self.only:
            return self.only[key]
        return self.every if library in ("rlx", "torch", "torch-compile", "jax") else None

    def arrays(self):
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [[make(random) for make in part] for part in (self.inputs, self.weights)]


def f32(*shape):
    return lambda r: r.standard_normal(shape, dtype=np.float32)


def positive(*shape):
    return lambda r: r.random(shape, dtype=np.float32) + 0.1


def small(*shape):
    return lambda r: 0.05 * r.standard_normal(shape, dtype=np.float32)


def integers(high, *shape):
    return lambda r: r.integers(0, high, shape)


def spd(*shape):
    def make(r):
        a = r.standard_normal(shape).astype(np.float32)
        return a @ a.swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1], dtype=np.float32)

    return make


CASES: list[Case] = []


def case(group, name, inputs, **options):
    CASES.append(Case(group, name, inputs, **options))


# ---- products: x times a weight, as linear layers are
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
        bytes=4 * (rows * k + k * n + rows * n),
    )
case("products", "batched 48x128x64x128", [f32(48, 128, 64), f32(48, 64, 128)], every=lambda m, a, b: m.matmul(a, b), flops=2 * 48 * 128 * 64 * 128)
case("products", "batched 1024x16x16x16", [f32(1024, 16, 16), f32(1024, 16, 16)], every=lambda m, a, b: m.matmul(a, b), flops=2 * 1024 * 16**3, bytes=4 * 3 * 1024 * 256)

# ---- attention
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
        bytes=4 * batch * 12 * 64 * (2 * q + 2 * s),
    )

# ---- work that memory limits
BIG = 1 << 25
STREAM = 4 * BIG
torch_gelu = {"torch": lambda m, x, y: m.nn.functional.gelu(x) * y + x, "jax": lambda m, x, y: __import__("jax").nn.gelu(x, approximate=False) * y + x}
case("streaming", "x + y, 2^25", [f32(BIG), f32(BIG)], every=lambda m, x, y: x + y, bytes=3 * STREAM)
case("streaming", "exp, 2^25", [f32(BIG)], every=lambda m, x: m.exp(x), bytes=2 * STREAM)
case("streaming", "gelu(x) * y + x, 2^25", [f32(BIG), f32(BIG)], every=lambda m, x, y: m.gelu(x) * y + x, only=torch_gelu, bytes=3 * STREAM)
case("streaming", "x^T of 4096x8192", [f32(4096, 8192)], every=lambda m, x: x.T + 0.0, only={"torch": lambda m, x: x.T.contiguous()}, bytes=2 * STREAM)
case("streaming", "sum of 2^25", [f32(BIG)], every=lambda m, x: m.sum(x), bytes=STREAM, tolerance=1e-3)
case("streaming", "sum of 8192x4096 by rows", [f32(8192, 4096)], every=lambda m, x: m.sum(x, 1), bytes=STREAM)
case("streaming", "sum of 8192x4096 by columns", [f32(8192, 4096)], every=lambda m, x: m.sum(x, 0), bytes=STREAM)
case("streaming", "max of 2^25", [f32(BIG)], every=lambda m, x: m.max(x), bytes=STREAM)
case("streaming", "argmax of 8192x4096 by rows", [f32(8192, 4096)], every=lambda m, x: m.argmax(x, 1), bytes=STREAM)
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

# ---- order
case("order", "sort 2^20", [f32(1 << 20)], every=lambda m, x: m.sort(x), only={"torch": lambda m, x: m.sort(x).values})
case("order", "sort 1024x1024", [f32(1024, 1024)], every=lambda m, x: m.sort(x), only={"torch": lambda m, x: m.sort(x).values})
case("order", "argsort 4096x256", [f32(4096, 256)], every=lambda m, x: m.argsort(x))
case("order", "top 40 of 16x50257", [f32(16, 50257)], only={"torch": lambda m, x: m.topk(x, 40).values, "rlx": lambda m, x: m.topk(x, k=40)[0], "jax": lambda m, x: __import__("jax").lax.top_k(x, 40)[0]})
case("order", "searchsorted 2^20 in 2^16", [f32(1 << 20)], weights=[lambda r: np.sort(r.standard_normal(1 << 16, dtype=np.float32))], only={"torch": lambda m, x, t: m.searchsorted(t, x), "jax": lambda m, x, t: m.searchsorted(t, x), "rlx": lambda m, x, t: m.searchsorted(t, x)})

# ---- indices
TABLE, ROWS = 50257, 8192
case("indices", "rows of an embedding 50257x768", [integers(TABLE, ROWS)], weights=[f32(TABLE, 768)], only={"torch": lambda m, i, w: m.nn.functional.embedding(i, w), "jax": lambda m, i, w: w[i], "rlx": lambda m, i, w: w[i]}, bytes=8 * ROWS * 768)
case("indices", "scatter-add of 65536 rows of 64 to 1024", [integers(1024, 65536), f32(65536, 64)], only={"torch": lambda m, i, x: m.zeros(1024, 64).index_add(0, i, x), "jax": lambda m, i, x: m.zeros((1024, 64), "float32").at[i].add(x), "rlx": lambda m, i, x: m.scatter_add(x, i, size=1024)}, bytes=4 * 65536 * 64, tolerance=1e-3)
case("indices", "take_along_axis 4096x1024", [f32(4096, 1024), integers(1024, 4096, 1024)], only={"torch": lambda m, x, i: m.gather(x, 1, i), "jax": lambda m, x, i: m.take_along_axis(x, i, 1), "rlx": lambda m, x, i: m.take_along_axis(x, i, 1)}, bytes=16 * 4096 * 1024)

# ---- images
IMAGE = (8, 64, 112, 112)


def jax_pool(fold, start):
    def pool(m, x):
        lax = __import__("jax").lax
        return lax.reduce_window(x, start, getattr(lax, fold), (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])

    return pool


case("images", "max pool 3x3 by 2, 8x64x112x112", [f32(*IMAGE)], only={"torch": lambda m, x: m.nn.functional.max_pool2d(x, 3, 2, 1), "jax": jax_pool("max", -np.inf), "rlx": lambda m, x: m.pool(x, kernel=3, stride=2, low=1, high=1)}, bytes=5 * np.prod(IMAGE))
case("images", "resize bilinear by 2, 8x64x56x56", [f32(8, 64, 56, 56)], only={"torch": lambda m, x: m.nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), "rlx": lambda m, x: m.resize(x, axes=(2, 3), sizes=(112, 112), mode="linear")}, bytes=5 * np.prod(IMAGE))
case("images", "depthwise 3x3, 8x64x112x112", [f32(*IMAGE)], weights=[f32(64, 1, 3, 3)], only={"torch": lambda m, x, w: m.nn.functional.conv2d(x, w, padding=1, groups=64), "rlx": lambda m, x, w: m.conv(x, w, low=1, high=1, groups=64)}, bytes=8 * np.prod(IMAGE))
case("images", "transposed conv 2x2 by 2, 8x64x56x56 to 32", [f32(8, 64, 56, 56)], weights=[f32(64, 32, 2, 2)], only={"torch": lambda m, x, w: m.nn.functional.conv_transpose2d(x, w, stride=2), "rlx": lambda m, x, w: m.conv_transpose(x, w, stride=2)}, flops=2 * 8 * 64 * 56 * 56 * 32 * 4)
for n, c, o, size, kernel, stride in ((1, 64, 64, 56, 3, 1), (1, 256, 64, 56, 1, 1), (1, 512, 512, 7, 3, 1), (1, 3, 64, 224, 7, 2), (8, 128, 128, 28, 3, 1), (1, 256, 512, 28, 1, 2)):
    out = size // stride
    case(
        "images",
        f"conv {kernel}x{kernel} by {stride}, {n}x{c}x{size}x{size} to {o}",
        [f32(n, c, size, size)],
        weights=[small(o, c, kernel, kernel)],
        only={
            "torch": lambda m, x, w, s=stride, p=kernel // 2: m.nn.functional.conv2d(x, w, stride=s, padding=p),
            "rlx": lambda m, x, w, s=stride, p=kernel // 2: m.conv(x, w, stride=s, low=p, high=p),
            "jax": lambda m, x, w, s=stride, p=kernel // 2: __import__("jax").lax.conv_general_dilated(x, w, (s, s), [(p, p), (p, p)]),
        },
        flops=2 * n * c * o * kernel * kernel * out * out,
    )

# ---- random numbers: each library has its own stream, so that only how many there are is compared
case("random", "uniform 2^24", [], only={"torch": lambda m: m.rand(1 << 24), "jax": lambda m: __import__("jax").random.uniform(__import__("jax").random.key(1), (1 << 24,)), "rlx": lambda m: m.random_uniform(m.key(1), shape=(1 << 24,))}, bytes=4 << 24, tolerance=float("inf"))
case("random", "normal 2^24", [], only={"torch": lambda m: m.randn(1 << 24), "jax": lambda m: __import__("jax").random.normal(__import__("jax").random.key(1), (1 << 24,)), "rlx": lambda m: m.random_normal(m.key(1), shape=(1 << 24,))}, bytes=4 << 24, tolerance=float("inf"))

# ---- linear algebra
case("linear algebra", "cholesky 1024", [spd(1024, 1024)], every=lambda m, a: m.linalg.cholesky(a), only={"rlx": lambda m, a: m.cholesky(a)}, flops=1024**3 / 3)
case("linear algebra", "solve 1024, 16 sides", [spd(1024, 1024), f32(1024, 16)], every=lambda m, a, b: m.linalg.solve(a, b), only={"rlx": lambda m, a, b: m.dense_solve(a, b)}, flops=2 * 1024**3 / 3)
case("linear algebra", "inverse 512", [spd(512, 512)], every=lambda m, a: m.linalg.inv(a), only={"rlx": lambda m, a: m.inverse(a)}, flops=2 * 512**3)
case("linear algebra", "eigenvalues of a symmetric 512", [spd(512, 512)], every=lambda m, a: m.linalg.eigvalsh(a), only={"rlx": lambda m, a: m.eigh(a)[0]})
case("linear algebra", "singular values 512x256", [f32(512, 256)], only={"torch": lambda m, a: m.linalg.svdvals(a), "jax": lambda m, a: m.linalg.svd(a, compute_uv=False), "rlx": lambda m, a: m.svd(a)[1], "numpy": lambda a: np.linalg.svd(a, compute_uv=False)})
case("linear algebra", "solve 4096 of 8x8", [spd(4096, 8, 8), f32(4096, 8, 1)], every=lambda m, a, b: m.linalg.solve(a, b), only={"rlx": lambda m, a, b: m.dense_solve(a, b)})

# ---- sequences


def jax_scan(m, a, u):
    lax = __import__("jax").lax
    return lax.scan(lambda h, x: (x[0] * h + x[1],) * 2, u[0] * 0, (a, u))[1]


def rlx_scan(m, a, u):
    def body(h, x):
        h = x[0] * h + x[1]
        return h, h

    return m.scan(body, m.zeros(u.shape[1:]), (a, u))[1]


case("sequences", "scan h = a h + u, 4096 of 1024", [positive(4096, 1024), f32(4096, 1024)], only={"jax": lambda m, a, u: jax_scan(m, a * 0.9 - 0.05, u), "rlx": lambda m, a, u: rlx_scan(m, a * 0.9 - 0.05, u)}, bytes=12 * 4096 * 1024, tolerance=1e-3)
