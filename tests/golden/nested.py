"""Writes nested.json: transforms nested in each other, by JAX in float64.

    python tests/golden/nested.py        # needs jax and numpy

The models are written out in jax.numpy; tests/python/test_nested.py writes them with the ops of the table.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import nested_cases as cases

jax.config.update("jax_enable_x64", True)


def mlp(w, x):
    y = jax.nn.softmax(jnp.tanh(x @ w[0] + w[1]) @ w[2])
    return (y**2).sum()


def normed(x, gamma, beta):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def attention(w, x):
    q, k, v = jnp.split(x @ w[0], 3, axis=-1)
    heads = lambda t: t.reshape(6, 2, 4).transpose(1, 0, 2)
    scores = heads(q) @ heads(k).transpose(0, 2, 1) / 2.0
    scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), scores, -1e9)
    mixed = (jax.nn.softmax(scores) @ heads(v)).transpose(1, 0, 2).reshape(6, 8)
    return jnp.sin(normed(x + mixed @ w[1], w[2], w[3])).sum()


def conv(w, x):
    y = jax.lax.conv_general_dilated(x, w[0], (2, 1), [(1, 1), (1, 0)])
    y = jax.nn.silu(y + w[1][:, None, None]).mean((0, 2, 3))
    return jax.nn.logsumexp(y @ w[2])


def rnn(w, x):
    def cell(h, step):
        h = jnp.tanh(step @ w[0] + h @ w[1] + w[2])
        return h, h.sum()

    h, ys = jax.lax.scan(cell, jnp.zeros(5), x)
    return (h**2).sum() + (ys * jnp.cos(ys)).sum()


def selective_scan(w, x):
    delta, a, b, c = jax.nn.softplus(x @ w[0]), -jnp.exp(w[1]), x @ w[2], x @ w[3]

    def step(h, at):
        d, x, b, c = at
        h = jnp.exp(d[:, None] * a) * h + (d * x)[:, None] * b
        return h, (h * c).sum(-1)

    _, y = jax.lax.scan(step, jnp.zeros((4, 3)), (delta, x, b, c))
    return (y**2).sum()


def gated_delta_net(w, x):
    q, k, v = (t.reshape(6, 2, 2) for t in jnp.split(x @ w[0], 3, axis=-1))
    gate = jax.nn.sigmoid(x @ w[1])

    def step(s, at):  # s: a matrix per head
        q, k, v, g = at
        s = jnp.exp(-g)[:, None, None] * s
        d = (1 - g)[:, None] * (v - jnp.einsum("hij,hi->hj", s, k))
        s = s + k[:, :, None] * d[:, None, :]
        return s, jnp.einsum("hij,hi->hj", s, q) / jnp.sqrt(2.0)

    s, o = jax.lax.scan(step, jnp.zeros((2, 2, 2)), (q, k, v, gate))
    return jnp.sin(o).sum() + (s**2).sum()


def fft(w, x):
    z = jnp.fft.fft(w[0] * x)
    return jnp.log1p(z.real**2 + z.imag**2).sum()


def solve(w, x):
    return jnp.sin(jnp.linalg.solve(w[0], x)).sum()


# ---- bodies in bodies, orders


def scan_of_vmap(w, xs):
    step = lambda h, x: (jnp.tanh(h @ w), (h * x).sum())
    body = lambda h, x: jax.vmap(step)(h, x)
    h, ys = jax.lax.scan(body, xs[0], xs)
    return (h**2).sum() + (ys**3).sum()


def scan_of_cond(w, x):
    turn = lambda h, v: jax.lax.cond(v.sum() > 0, lambda h: jnp.sin(h @ w), lambda h: h * v, h)
    return jax.lax.scan(lambda h, v: (turn(h, v), h.sum()), jnp.ones(4), x)


def bent(x):
    return jnp.exp(jnp.sin(x) * x) / (1 + x * x) + jnp.tanh(x)


def special():
    w, xs = cases.special_inputs()
    h, ys = jax.vmap(scan_of_cond, in_axes=(None, 0))(w, xs)
    orders, f = [], bent
    for _ in range(6):
        f = jax.grad(f)
        orders.append(f(0.7))
    return {
        "grad of scan of vmap": (jax.grad(scan_of_vmap)(w, xs),),
        "vmap of scan of cond": (h, ys),
        "grad of vmap of scan of cond": (
            jax.grad(lambda w: sum((t**2).sum() for t in jax.vmap(scan_of_cond, in_axes=(None, 0))(w, xs)))(w),
        ),
        "nth order": tuple(orders),
    }


def main():
    out = {"versions": {"jax": jax.__version__}}
    numbers = lambda results: [jnp.asarray(r).ravel().tolist() for r in results]
    for name in cases.MODELS:
        w, xs, v, c = (jax.tree.map(jnp.asarray, t) for t in cases.inputs(name))
        out[name] = {k: numbers(r) for k, r in cases.nested(jax, globals()[name], w, xs, v, c).items()}
    out["special"] = {k: numbers(r) for k, r in special().items()}
    text = json.dumps(out, indent=0).replace(",\n", ", ").replace("[\n", "[").replace("\n]", "]")
    (pathlib.Path(__file__).parent / "nested.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
