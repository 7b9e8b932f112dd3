"""What nested.py (with JAX) and tests/python/test_nested.py (with RLX) both do: inputs of the models, and transforms nested
in each other, applied to a loss(w, x) where w is a tuple of arrays. `lib` is jax or rlx: both have grad, vmap, jvp.
"""

import numpy as np

BATCH = 3
# name: shapes of w, shape of one x
MODELS = {
    "mlp": ([(5, 7), (7,), (7, 3)], (5,)),
    "attention": ([(8, 24), (8, 8), (8,), (8,)], (6, 8)),
    "conv": ([(4, 2, 3, 3), (4,), (4, 3)], (1, 2, 7, 6)),
    "rnn": ([(3, 5), (5, 5), (5,)], (9, 3)),
    "selective_scan": ([(4, 4), (4, 3), (4, 3), (4, 3)], (7, 4)),
    "gated_delta_net": ([(4, 12), (4, 2)], (6, 4)),
    "fft": ([(10,)], (10,)),
    "solve": ([(4, 4)], (4, 2)),
}


def inputs(name):
    """(w, a batch of x, directions like w, weights of the batch), all float64."""
    shapes, x = MODELS[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    draw = lambda *shape: 0.6 * rng.normal(size=shape)
    w = tuple(draw(*s) for s in shapes)
    if name == "solve":
        w = (w[0] + 3 * np.eye(4),)
    return w, draw(BATCH, *x), tuple(draw(*s) for s in shapes), draw(BATCH)


def inner(p, q):
    return sum((a * b).sum() for a, b in zip(p, q))


def nested(lib, loss, w, xs, v, c):
    """name: a tuple of results."""
    by_w = lib.grad(loss)
    each = lambda w: lib.vmap(loss, in_axes=(None, 0))(w, xs)
    hvp = lambda x: lib.jvp(lambda w: by_w(w, x), (w,), (v,))[1]
    return {
        "vmap(grad)": lib.vmap(by_w, in_axes=(None, 0))(w, xs),
        "grad(vmap)": lib.grad(lambda w: (each(w) * c).sum())(w),
        "jvp(vmap)": (lib.jvp(each, (w,), (v,))[1],),
        "jvp(grad)": hvp(xs[0]),
        "grad(grad)": lib.grad(lambda w: inner(by_w(w, xs[1]), v))(w),
        "vmap(hvp)": lib.vmap(hvp)(xs),
        "grad(x) of hvp": (lib.grad(lambda x: inner(hvp(x), v))(xs[2]),),
    }


def special_inputs():
    rng = np.random.default_rng(5)
    return 0.6 * rng.normal(size=(4, 4)), 0.8 * rng.normal(size=(3, 3, 4))
