"""Factorisations and solves."""

import numpy as np

from .case import case, f32, spd

case("linear algebra", "cholesky 1024", [spd(1024, 1024)], every=lambda m, a: m.linalg.cholesky(a), only={"rlx": lambda m, a: m.cholesky(a)}, flops=1024**3 / 3)
case("linear algebra", "solve 1024, 16 sides", [spd(1024, 1024), f32(1024, 16)], every=lambda m, a, b: m.linalg.solve(a, b), only={"rlx": lambda m, a, b: m.dense_solve(a, b)}, flops=2 * 1024**3 / 3)
case("linear algebra", "inverse 512", [spd(512, 512)], every=lambda m, a: m.linalg.inv(a), only={"rlx": lambda m, a: m.inverse(a)}, flops=2 * 512**3)
case("linear algebra", "eigenvalues of a symmetric 512", [spd(512, 512)], every=lambda m, a: m.linalg.eigvalsh(a), only={"rlx": lambda m, a: m.eigh(a)[0]})
case("linear algebra", "singular values 512x256", [f32(512, 256)], only={"torch": lambda m, a: m.linalg.svdvals(a), "jax": lambda m, a: m.linalg.svd(a, compute_uv=False), "rlx": lambda m, a: m.svd(a)[1], "numpy": lambda a: np.linalg.svd(a, compute_uv=False)})
case("linear algebra", "solve 4096 of 8x8", [spd(4096, 8, 8), f32(4096, 8, 1)], every=lambda m, a, b: m.linalg.solve(a, b), only={"rlx": lambda m, a, b: m.dense_solve(a, b)})
