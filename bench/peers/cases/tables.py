"""Order, indices and random numbers. Each library has its own random numbers, so that only how many there are is compared."""

import numpy as np

from .case import case, f32, integers

case("order", "sort 2^20", [f32(1 << 20)], every=lambda m, x: m.sort(x), only={"torch": lambda m, x: m.sort(x).values})
case("order", "sort 1024x1024", [f32(1024, 1024)], every=lambda m, x: m.sort(x), only={"torch": lambda m, x: m.sort(x).values})
case("order", "argsort 4096x256", [f32(4096, 256)], every=lambda m, x: m.argsort(x))
case("order", "top 40 of 16x50257", [f32(16, 50257)], only={"torch": lambda m, x: m.topk(x, 40).values, "rlx": lambda m, x: m.topk(x, k=40)[0], "jax": lambda m, x: __import__("jax").lax.top_k(x, 40)[0]})
case("order", "searchsorted 2^20 in 2^16", [f32(1 << 20)], weights=[lambda r: np.sort(r.standard_normal(1 << 16, dtype=np.float32))], only={"torch": lambda m, x, t: m.searchsorted(t, x), "jax": lambda m, x, t: m.searchsorted(t, x), "rlx": lambda m, x, t: m.searchsorted(t, x)})


TABLE, ROWS = 50257, 8192
case("indices", "rows of an embedding 50257x768", [integers(TABLE, ROWS)], weights=[f32(TABLE, 768)], only={"torch": lambda m, i, w: m.nn.functional.embedding(i, w), "jax": lambda m, i, w: w[i], "rlx": lambda m, i, w: w[i]}, bytes=8 * ROWS * 768)
case("indices", "scatter-add of 65536 rows of 64 to 1024", [integers(1024, 65536), f32(65536, 64)], only={"torch": lambda m, i, x: m.zeros(1024, 64).index_add(0, i, x), "jax": lambda m, i, x: m.zeros((1024, 64), "float32").at[i].add(x), "rlx": lambda m, i, x: m.scatter_add(x, i, size=1024)}, bytes=4 * 65536 * 64, tolerance=1e-3)
case("indices", "take_along_axis 4096x1024", [f32(4096, 1024), integers(1024, 4096, 1024)], only={"torch": lambda m, x, i: m.gather(x, 1, i), "jax": lambda m, x, i: m.take_along_axis(x, i, 1), "rlx": lambda m, x, i: m.take_along_axis(x, i, 1)}, bytes=16 * 4096 * 1024)


case("random", "uniform 2^24", [], only={"torch": lambda m: m.rand(1 << 24), "jax": lambda m: __import__("jax").random.uniform(__import__("jax").random.key(1), (1 << 24,)), "rlx": lambda m: m.random_uniform(m.key(1), shape=(1 << 24,))}, bytes=4 << 24, tolerance=float("inf"))
case("random", "normal 2^24", [], only={"torch": lambda m: m.randn(1 << 24), "jax": lambda m: __import__("jax").random.normal(__import__("jax").random.key(1), (1 << 24,)), "rlx": lambda m: m.random_normal(m.key(1), shape=(1 << 24,))}, bytes=4 << 24, tolerance=float("inf"))
