"""Transforms nested in each other on whole models, against JAX in float64 (tests/golden/nested.py) and, for splats, which JAX
does not have, against differences."""

import json
import pathlib
import sys

import numpy as np
import pytest

import rlx

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
sys.path.insert(0, str(GOLDEN))
import nested_cases as cases  # noqa: E402

EXPECTED = json.loads((GOLDEN / "nested.json").read_text())


def mlp(w, x):
    return (rlx.softmax(rlx.tanh(x @ w[0] + w[1]) @ w[2], axis=-1) ** 2).sum()


def attention(w, x):
    q, k, v = rlx.split(x @ w[0], 3, axis=-1)
    mixed = rlx.op.attention(q, k, v, num_heads=2, mask="causal")[0]
    return rlx.sin(rlx.op.layer_norm(x + mixed @ w[1], w[2], w[3])).sum()


def conv(w, x):
    y = rlx.op.conv(x, w[0], stride=(2, 1), low=(1, 1), high=(1, 0))
    y = rlx.silu(y + w[1].reshape(4, 1, 1)).mean(axis=(0, 2, 3))
    return rlx.logsumexp(y @ w[2])


def rnn(w, x):
    def cell(h, step):
        h = rlx.tanh(step @ w[0] + h @ w[1] + w[2])
        return h, h.sum()

    h, ys = rlx.scan(cell, rlx.zeros(5, dtype="float64"), x)
    return (h**2).sum() + (ys * rlx.cos(ys)).sum()


def selective_scan(w, x):
    batch = lambda t: t.reshape(1, *t.shape)
    y = rlx.op.selective_scan(
        batch(x), batch(rlx.softplus(x @ w[0])), -rlx.exp(w[1]), batch(x @ w[2]), batch(x @ w[3])
    )
    return (y**2).sum()


def gated_delta_net(w, x):
    q, k, v = (t.reshape(1, 6, 2, 2) for t in rlx.split(x @ w[0], 3, axis=-1))
    gate = rlx.sigmoid(x @ w[1]).reshape(1, 6, 2)
    o, s = rlx.op.gated_delta_net(q, k, v, -gate, 1.0 - gate)
    return rlx.sin(o).sum() + (s**2).sum()


def fft(w, x):
    z = rlx.op.fft(rlx.concatenate([w[0] * x, rlx.zeros_like(x)]))  # real parts, then imaginary ones
    return rlx.log1p((z.reshape(2, -1) ** 2).sum(axis=0)).sum()


def solve(w, x):
    return rlx.sin(rlx.op.dense_solve(w[0], x)).sum()


def scan_of_vmap(w, xs):
    step = lambda h, x: (rlx.tanh(h @ w), (h * x).sum())
    h, ys = rlx.scan(lambda h, x: rlx.vmap(step)(h, x), xs[0], xs)
    return (h**2).sum() + (ys**3).sum()


def scan_of_cond(w, x):
    turn = lambda h, v: rlx.cond(v.sum() > 0, lambda h: rlx.sin(h @ w), lambda h: h * v, h)
    return rlx.scan(lambda h, v: (turn(h, v), h.sum()), rlx.ones(4, dtype="float64"), x)


def bent(x):
    return rlx.exp(rlx.sin(x) * x) / (1 + x * x) + rlx.tanh(x)


def agree(found, expected, what, rtol=1e-9):
    assert len(found) == len(expected), what
    for f, e in zip(found, expected):
        e = np.array(e)
        np.testing.assert_allclose(np.asarray(f).ravel(), e, rtol=rtol, atol=rtol * np.abs(e).max(initial=0), err_msg=what)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", cases.MODELS)
def test_models(name, jit):
    w, xs, v, c = (rlx.tree_map(rlx.array, t) for t in cases.inputs(name))
    run = lambda w, xs, v, c: cases.nested(rlx, globals()[name], w, xs, v, c)
    found = (rlx.jit(run) if jit else run)(w, xs, v, c)
    assert found.keys() == EXPECTED[name].keys()
    for what, expected in EXPECTED[name].items():
        agree(found[what], expected, f"{name}, {what}")


def test_bodies_in_bodies_and_orders():
    w, xs = (rlx.array(x) for x in cases.special_inputs())
    many = lambda w: rlx.vmap(scan_of_cond, in_axes=(None, 0))(w, xs)
    orders, f = [], bent
    for _ in range(6):
        f = rlx.grad(f)
        orders.append(f(rlx.array(np.float64(0.7))))
    expected = EXPECTED["special"]
    agree((rlx.grad(scan_of_vmap)(w, xs),), expected["grad of scan of vmap"], "grad of scan of vmap")
    agree(many(w), expected["vmap of scan of cond"], "vmap of scan of cond")
    slope = rlx.grad(lambda w: sum((t**2).sum() for t in many(w)))(w)
    agree((slope,), expected["grad of vmap of scan of cond"], "grad of vmap of scan of cond")
    agree(orders, expected["nth order"], "nth order")
    x = rlx.array(np.float64(0.7))
    _, terms = rlx.jet(bent, (x,), ([rlx.array(np.float64(k == 0)) for k in range(10)],))
    agree(terms[:6], expected["nth order"], "jet")


def splat_operands(rng, n):
    """scales (logarithms), rotations, opacities, colours, no harmonics, a camera in front of the splats."""
    turned = rng.normal(size=(n, 4))
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    camera = np.zeros(23)
    camera[:15] = [0, 0, 0, 0, 0, 1, 0, 1, 0, 60, 0.1, 10, 0.1, 0.2, 0.3]
    values = rng.uniform(-1.8, -1.2, 3 * n), turned.ravel(), rng.uniform(0.3, 0.8, n), rng.uniform(0.2, 0.9, 3 * n)
    return [rlx.array(x) for x in (*values, np.zeros(0), camera)]


def test_splats_against_differences():
    rng = np.random.default_rng(2)
    n = 4
    fixed = dict(width=16, height=16)
    place = np.concatenate([rng.uniform(-0.4, 0.4, (n, 2)), rng.uniform(2, 3, (n, 1))], 1)
    rest = splat_operands(rng, n)
    weights = rlx.array(rng.normal(size=16 * 16 * 4))

    def loss(at):
        return (rlx.op.gaussian_splat_render(at.reshape(-1), *rest, **fixed) * weights).sum()

    at, v = rlx.array(place), rng.normal(size=place.shape)
    h = 1e-5
    by_difference = lambda f: (np.asarray(f(rlx.array(place + h * v))) - np.asarray(f(rlx.array(place - h * v)))) / (2 * h)
    first = rlx.grad(loss)
    np.testing.assert_allclose((np.asarray(first(at)) * v).sum(), by_difference(loss), rtol=1e-5)
    along = rlx.jvp(first, (at,), (rlx.array(v),))[1]
    expected = by_difference(first)
    np.testing.assert_allclose(along, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    both = rlx.vmap(first)(rlx.stack([at, at * 1.01]))
    np.testing.assert_allclose(both[1], first(at * 1.01), rtol=1e-9, atol=1e-12)
