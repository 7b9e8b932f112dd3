"""Loops over a long axis."""

from .case import case, f32, positive

def jax_scan(m, a, u):
    lax = __import__("jax").lax
    return lax.scan(lambda h, x: (x[0] * h + x[1],) * 2, u[0] * 0, (a, u))[1]


def rlx_scan(m, a, u):
    def body(h, x):
        h = x[0] * h + x[1]
        return h, h

    return m.scan(body, m.zeros(u.shape[1:]), (a, u))[1]


case("sequences", "scan h = a h + u, 4096 of 1024", [positive(4096, 1024), f32(4096, 1024)], only={"jax": lambda m, a, u: jax_scan(m, a * 0.9 - 0.05, u), "rlx": lambda m, a, u: rlx_scan(m, a * 0.9 - 0.05, u)}, bytes=12 * 4096 * 1024, tolerance=1e-3)
