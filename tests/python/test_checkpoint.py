"""checkpoint, its policies, scans that keep few carries, and memory budgets: the values and gradients of the plain function."""

import numpy as np
import pytest

import rlx


def block(x, w):
    h = rlx.checkpoint_name(x @ w, "h")
    return rlx.tanh(rlx.exp(h) * h) + x


POLICIES = ["nothing", "products", rlx.save_names("h"), rlx.save_names("other")]


@pytest.fixture
def arrays():
    rng = np.random.default_rng(3)
    return rlx.array(rng.normal(size=(9, 7)).astype("f4")), rlx.array(rng.normal(size=(7, 7)).astype("f4") / 3)


def loss_of(f):
    return lambda w, x: (f(f(x, w), w) ** 2).sum()


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_gradients_are_those_of_the_function(policy, arrays):
    x, w = arrays
    kept = rlx.checkpoint(block, policy=policy)
    for wrap in (lambda f: f, rlx.jit):
        want = wrap(rlx.value_and_grad(loss_of(block), argnums=(0, 1)))(w, x)
        got = wrap(rlx.value_and_grad(loss_of(kept), argnums=(0, 1)))(w, x)
        np.testing.assert_array_equal(np.asarray(got[0]), np.asarray(want[0]))
        for a, b in zip(got[1], want[1]):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_composes(policy, arrays):
    x, w = arrays
    plain, kept = loss_of(block), loss_of(rlx.checkpoint(block, policy=policy))

    def near(f):
        want, got = f(plain), f(kept)
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=3e-4, atol=3e-4)

    t = rlx.ones_like(w) if hasattr(rlx, "ones_like") else w * 0 + 1
    near(lambda f: rlx.jvp(lambda v: f(v, x), (w,), (t,))[1])
    near(lambda f: rlx.jvp(rlx.grad(lambda v: f(v, x)), (w,), (t,))[1])
    near(lambda f: rlx.grad(lambda v: (rlx.grad(f)(v, x) * t).sum())(w))
    near(lambda f: rlx.vmap(rlx.grad(f), in_axes=(None, 0))(w, rlx.array(np.stack([x, 2 * x]))))
    near(lambda f: rlx.grad(lambda v: rlx.vmap(lambda a: f(v, a))(rlx.array(np.stack([x, 2 * x]))).sum())(w))
    near(lambda f: rlx.vjp(lambda v: f(v, x), w)[1](rlx.array(2.0))[0])
    near(lambda f: rlx.grad(lambda v: rlx.scan(lambda c, a: (c + f(v * c, a), None), rlx.array(0.1), x[:3, None])[0])(w))


def test_trees_and_captured_arrays(arrays):
    x, w = arrays
    f = rlx.checkpoint(lambda p, *, scale: {"y": rlx.tanh(p["x"] @ w) * scale, "z": (p["x"], None)})
    out = f({"x": x}, scale=2.0)
    np.testing.assert_allclose(np.asarray(out["y"]), 2 * np.tanh(np.asarray(x) @ np.asarray(w)), rtol=1e-5)
    assert out["z"][1] is None
    got = rlx.grad(lambda v: rlx.checkpoint(lambda a: rlx.tanh(a @ v))(x).sum())(w)
    want = rlx.grad(lambda v: rlx.tanh(x @ v).sum())(w)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_what_is_computed_again(arrays):
    x, w = arrays

    def products(f):
        graph = rlx.jit(rlx.grad(lambda v: (f(x, v)).sum())).graph(w)
        return str(graph).count(" exp(")

    assert products(rlx.checkpoint(block)) == 2 and products(block) == 1


@pytest.mark.parametrize(("checkpoints", "binomial"), [(3, False), (1, False), (4, True), (2, True), (99, True)])
def test_scans_that_keep_few_carries(checkpoints, binomial):
    rng = np.random.default_rng(4)
    xs, w = rlx.array(rng.normal(size=(13, 5)).astype("f4")), rlx.array(rng.normal(size=5).astype("f4"))

    def loss(w, xs, **kept):
        def cell(c, x):
            a, b, n = c
            a, b = rlx.tanh(a * w + x), rlx.sin(b + a)
            return (a, b, n + 1), a * b

        (a, b, n), ys = rlx.scan(cell, (w, w * 2, 0), xs, **kept)
        return (a * b).sum() + (ys**2).sum() + n.astype("float32")

    want = rlx.jit(rlx.grad(loss, argnums=(0, 1)))(w, xs)
    got = rlx.jit(rlx.grad(lambda w, xs: loss(w, xs, checkpoints=checkpoints, binomial=binomial), argnums=(0, 1)))(w, xs)
    for a, b in zip(got, want):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_memory_budget(arrays):
    x, w = arrays

    def deep(w, x):
        for _ in range(8):
            x = block(x, w)
        return (x**2).sum()

    graph = rlx.jit(rlx.grad(deep)).graph(w, x)
    plain = rlx.compile(graph)
    need = plain.info["planned_bytes"]
    within = rlx.compile(graph, memory_budget=need // 2)
    inputs = {"x0": w, "x1": x}
    np.testing.assert_array_equal(np.asarray(within.run(inputs)[0]), np.asarray(plain.run(inputs)[0]))
    with pytest.raises(rlx.UserError, match="at least"):
        rlx.compile(graph, memory_budget=10)
    step = rlx.jit(rlx.grad(deep), memory_budget=need // 2)
    np.testing.assert_array_equal(np.asarray(step(w, x)), np.asarray(rlx.jit(rlx.grad(deep))(w, x)))
    with pytest.raises(rlx.UserError, match="at least"):
        rlx.jit(rlx.grad(deep), memory_budget=10)(w, x)
    for wrong in (-1, "1 MB", 2.5, None, True, 2**63):
        for call in (lambda: rlx.jit(deep, memory_budget=wrong), lambda: rlx.compile(graph, memory_budget=wrong)):
            with pytest.raises(rlx.UserError, match="memory_budget is a number of bytes") as e:
                call()
            assert e.value.code == "memory-budget"


def test_bad_policies():
    for policy in ("all", None, 3):
        with pytest.raises(rlx.UserError, match="policy"):
            rlx.checkpoint(block, policy=policy)
    with pytest.raises(TypeError, match="takes a function"):
        rlx.checkpoint(3)
    with pytest.raises(rlx.UserError, match="takes names"):
        rlx.save_names("a", 3)
    with pytest.raises(rlx.UserError, match="takes a name"):
        rlx.checkpoint_name(rlx.array(1.0), "")
    with pytest.raises(rlx.UserError, match="checkpoints"):
        rlx.scan(lambda c, _: (c, None), rlx.array(1.0), length=3, checkpoints=-1)
