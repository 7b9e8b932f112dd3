"""scan, cond, while_loop and custom_fn with traced bodies."""

import numpy as np
import pytest

import rlx


def close(x, y):
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-6)


def test_scan():
    xs = rlx.array(np.arange(12, dtype=np.float32).reshape(4, 3))
    n = np.asarray(xs)
    total, sums = rlx.scan(lambda c, x: (c + x, c + x), rlx.zeros(3), xs)
    close(total, n.sum(0))
    close(sums, n.cumsum(0))
    back = rlx.scan(lambda c, x: (c + x, c + x), rlx.zeros(3), xs, reverse=True)[1]
    close(back, n[::-1].cumsum(0)[::-1])
    count, ys = rlx.scan(lambda c, _: (c + 1, {"even": c % 2 == 0}), 0, length=5)
    assert count.item() == 5 and ys["even"].tolist() == [True, False, True, False, True]
    carry, none = rlx.scan(
        lambda c, x: ({"a": c["a"] * 2, "b": c["b"] + x["u"].sum()}, None), {"a": 1.0, "b": 0.0}, {"u": xs}
    )
    assert carry["a"].item() == 16 and carry["b"].item() == 66 and none is None


def test_scan_captures_and_transforms():
    xs = rlx.array(np.linspace(0.1, 0.9, 5).astype(np.float32))

    def f(w, xs):
        return rlx.scan(lambda h, x: (rlx.tanh(w * h + x), h), rlx.array(0.0), xs)[0]

    def numpy_f(w):
        h = 0.0
        for x in np.asarray(xs):
            h = np.tanh(w * h + x)
        return h

    w = rlx.array(0.5)
    close(f(w, xs), numpy_f(0.5))
    slope = (numpy_f(0.5 + 1e-4) - numpy_f(0.5 - 1e-4)) / 2e-4
    np.testing.assert_allclose(rlx.grad(f)(w, xs).item(), slope, rtol=1e-3)
    np.testing.assert_allclose(rlx.jit(rlx.grad(f))(w, xs).item(), slope, rtol=1e-3)
    np.testing.assert_allclose(rlx.jvp(lambda w: f(w, xs), (w,), (rlx.array(1.0),))[1].item(), slope, rtol=1e-3)
    close(rlx.vmap(f, (0, None))(rlx.array([0.5, 0.2]), xs), [numpy_f(0.5), numpy_f(0.2)])


def test_numbers_reach_each_other():
    """A number that a body hands on takes the dtype that it gets there, after one step or after several."""

    def swap(carry):
        a, b, c = carry
        return b, c, a + 1.5

    want = (0, 0, 0)
    for _ in range(5):
        want = swap(want)
    carry, _ = rlx.scan(lambda c, _: (swap(c), None), (0, 0, 0), length=5)
    assert [x.item() for x in carry] == list(want) and {x.dtype for x in carry} == {rlx.float32}
    *carry, n = rlx.while_loop(lambda c: c[3] < 5, lambda c: (*swap(c[:3]), c[3] + 1), (0, 0, 0, 0))
    assert [x.item() for x in carry] == list(want) and n.dtype == rlx.int64 and carry[0].dtype == rlx.float32
    # All digits of the number that it was.
    y = rlx.array([1.0], "float64")
    (a, b), _ = rlx.scan(lambda c, _: ((c[1], c[1] + y[0]), None), (0.1, 0.1), length=1)
    assert a.item() == 0.1 and b.item() == 1.1


def test_scan_errors():
    xs = rlx.ones((3, 2))
    for bad in (
        lambda: rlx.scan(lambda c, x: (c, x), 0.0),
        lambda: rlx.scan(lambda c, x: c, rlx.zeros(2), xs),
        lambda: rlx.scan(lambda c, x: ((c, c), x), 0.0, xs),
        lambda: rlx.scan(lambda c, x: (c.sum(), x), rlx.zeros(2), xs),
        lambda: rlx.scan(lambda c, x: (c, x), 0.0, rlx.array(1.0)),
    ):
        with pytest.raises(rlx.Error):
            bad()


def test_cond():
    x, y = rlx.array([1.0, 2.0]), rlx.array([10.0, 20.0])
    f = lambda p, x: rlx.cond(p, lambda x: {"r": x + y.sum()}, lambda x: {"r": x * y}, x)["r"]
    for g in (f, rlx.jit(f)):
        close(g(True, x), [31, 32])
        close(g(rlx.array(False), x), [10, 40])
    d = rlx.grad(lambda x, p: f(p, x).sum())
    close(d(x, True), [1, 1])
    close(d(x, False), [10, 20])
    close(rlx.vmap(f, (0, None))(rlx.array([True, False]), x), [[31, 32], [10, 40]])
    close(rlx.cond(x.sum() > 2, lambda: 1.0, lambda: 2.0), 1.0)
    with pytest.raises(rlx.Error):
        rlx.cond(True, lambda: (x, x), lambda: x)
    with pytest.raises(rlx.Error):
        rlx.cond(True, lambda: x, lambda: x.sum())


def test_only_the_chosen_body_runs():
    table, i = rlx.array([1.0, 2.0]), rlx.array(7)
    f = rlx.jit(lambda i: rlx.cond(i < 2, lambda: rlx.gather(table, i, axis=0), lambda: -1.0))
    assert f(i).item() == -1 and f(rlx.array(1)).item() == 2


def test_nested():
    f = rlx.jit(
        lambda x: rlx.scan(
            lambda c, v: (
                rlx.cond(
                    v > 2, lambda: c + v * x, lambda: c - rlx.scan(lambda a, b: (a + b, None), 0.0, x * rlx.ones(3))[0]
                ),
                None,
            ),
            rlx.array(0.0),
            rlx.arange(5, dtype="f32"),
        )[0]
    )
    assert f(rlx.array(2.0)).item() == (3 + 4) * 2 - 3 * 6


@pytest.mark.skipif("while_loop" not in rlx.op.FUNCTIONS, reason="the table has no while_loop")
def test_while_loop():
    limit = rlx.array(100.0)
    f = lambda x: rlx.while_loop(
        lambda c: c["x"] < limit, lambda c: {"x": c["x"] * 2, "n": c["n"] + 1}, {"x": x, "n": 0}
    )
    for g in (f, rlx.jit(f)):
        out = g(rlx.array(3.0))
        assert out["x"].item() == 192 and out["n"].item() == 6
    h = lambda x: rlx.while_loop(lambda c: c < limit, lambda c: c * x, x, max_iterations=20)
    assert h(rlx.array(3.0)).item() == 243
    assert rlx.jvp(h, (rlx.array(3.0),), (rlx.array(1.0),))[1].item() == 5 * 81
    assert rlx.grad(h)(rlx.array(3.0)).item() == 5 * 81
    assert rlx.vmap(h)(rlx.array([3.0, 10.0])).tolist() == [243, 100]
    with pytest.raises(rlx.Error):
        rlx.while_loop(lambda c: c < 3, lambda c: (c, c), 0)


def test_custom_fn():
    clipped = rlx.custom_fn(lambda x: x * 1, vjp=lambda args, y, g: (rlx.clamp(g, -1.0, 1.0),))
    x = rlx.array([0.5, 2.0, -3.0])
    loss = lambda x: (clipped(x) ** 2).sum()
    assert loss(x).item() == 13.25
    assert rlx.grad(loss)(x).tolist() == [1, 1, -1]
    assert rlx.jit(rlx.grad(loss))(x).tolist() == [1, 1, -1]
    assert rlx.vmap(rlx.grad(lambda x: clipped(x) ** 2))(x).tolist() == [1, 1, -1]
    assert rlx.jvp(loss, (x,), (rlx.ones(3),))[1].item() == -1  # forward mode differentiates the function itself

    def vjp(args, result, cotangent):  # of d / exp(a) where a is an integer: trees, results, None
        inputs, a = args
        assert a.dtype == "int64"
        return {"d": cotangent["q"] * result["q"] / inputs["d"]}, None

    def jvp(args, tangents):
        return {"q": 7 * tangents[0]["d"], "n": 0 * args[1]}

    scale = np.float32(2)
    f = rlx.custom_fn(lambda p, a: {"q": p["d"] * scale / rlx.exp(a.astype("f32")), "n": a + 1}, vjp=vjp, jvp=jvp)
    a, d = rlx.array(1), rlx.array(3.0)
    q = lambda d: f({"d": d}, a)["q"]
    close(q(d), 6 / np.e)
    close(rlx.grad(q)(d), 2 / np.e)
    close(rlx.grad(rlx.grad(lambda d: q(d) ** 2))(d), 8 / np.e**2)
    close(rlx.jvp(q, (d,), (rlx.array(1.0),))[1], 7)
    close(rlx.vmap(rlx.grad(q))(rlx.array([1.0, 2.0])), [2 / np.e] * 2)


def test_custom_fn_uses_arrays_from_outside():
    w = rlx.array([1.0, 2.0])
    f = rlx.custom_fn(lambda x: (x * w).sum(), vjp=lambda args, y, g: (3 * g * w + rlx.array([1.0, 0.0]),))
    close(rlx.grad(f)(rlx.array([1.0, 1.0])), [4, 6])
    close(rlx.vmap(rlx.grad(f))(rlx.ones((3, 2))), [[4, 6]] * 3)
    with pytest.raises(rlx.UserError, match="must be an argument"):
        rlx.grad(lambda v: rlx.custom_fn(lambda x: x * v)(rlx.array(1.0)))(rlx.array(2.0))


def test_custom_fn_errors():
    x = rlx.ones(2)
    for vjp in (
        lambda args, y, g: g,
        lambda args, y, g: (g, g),
        lambda args, y, g: ((g, g),),
        lambda args, y, g: (g.sum(),),
    ):
        with pytest.raises(rlx.UserError):
            rlx.custom_fn(lambda x: x, vjp=vjp)(x)
    with pytest.raises(rlx.UserError):
        rlx.custom_fn(lambda x: x, jvp=lambda args, tangents: tangents)(x)


# ---- loops and choices made of these


@pytest.mark.parametrize("jit", [rlx.jit, lambda f: f])
def test_fori_loop(jit):
    power = lambda x, n: rlx.fori_loop(0, n, lambda i, c: c * x + i.astype("float32"), 1.0)
    for n in (0, 1, 7):
        c = 1.0
        for i in range(n):
            c = c * 1.25 + i
        assert jit(lambda x, n=n: power(x, n))(rlx.array(1.25)).item() == pytest.approx(c)
        assert jit(power)(rlx.array(1.25), rlx.array(n)).item() == pytest.approx(c)  # known when it runs
    assert rlx.fori_loop(5, 2, lambda i, c: c + 1, rlx.array(3)).item() == 3
    assert rlx.fori_loop(2, 5, lambda i, c: c + i, rlx.array(0)).item() == 2 + 3 + 4
    # both kinds of derivative
    slope = rlx.grad(lambda x: rlx.fori_loop(0, 3, lambda i, c: c * x, x))(rlx.array(2.0))
    assert slope.item() == 4 * 2**3
    bounded = lambda x, n: rlx.fori_loop(0, n, lambda i, c: c * x, x, max_iterations=5)
    assert rlx.grad(bounded)(rlx.array(2.0), rlx.array(3)).item() == 4 * 2**3
    for bad in (2.9, True, float("nan")):
        with pytest.raises(rlx.UserError, match="must be an integer"):
            rlx.fori_loop(0, bad, lambda i, c: c + 1, 0)
    with pytest.raises(rlx.UserError, match="lower is"):
        rlx.fori_loop(rlx.array(0.5), 3, lambda i, c: c, 0)


def test_switch_runs_the_branch_of_its_index():
    branches = [lambda x, k=k: {"y": x * k, "n": rlx.array(k)} for k in range(5)]
    x = rlx.array([1.0, 2.0])
    f = rlx.jit(lambda i, x: rlx.switch(i, branches, x))
    for i, k in ((-3, 0), (0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (99, 4)):
        out = f(rlx.array(i), x)
        assert out["n"].item() == k and out["y"].tolist() == [k, 2 * k]
    by_x = rlx.vmap(rlx.grad(lambda x, i: rlx.switch(i, [rlx.sin, rlx.exp, lambda x: x * 3.0], x)), in_axes=(0, 0))
    values = np.array([0.3, 0.4, 0.5], np.float32)
    np.testing.assert_allclose(
        by_x(rlx.array(values), rlx.array([0, 1, 2])), [np.cos(0.3), np.exp(0.4), 3], rtol=1e-6
    )
    assert rlx.switch(7, [lambda: 1.5]) == 1.5
    with pytest.raises(rlx.UserError, match="there must be a branch"):
        rlx.switch(0, [])
    with pytest.raises(rlx.UserError, match="scalar of integers"):
        rlx.switch(rlx.array(1.0), branches, x)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 9, 70, 129])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(n, reverse):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(3, n)).astype(np.float64)
    turn = (lambda a: a[:, ::-1]) if reverse else (lambda a: a)
    found = rlx.associative_scan(lambda a, b: a + b, rlx.array(x), axis=1, reverse=reverse)
    np.testing.assert_allclose(found, turn(np.cumsum(turn(x), 1)), rtol=1e-12, atol=1e-12)
    # h[i] = a[i] h[i-1] + u[i], which is not commutative, in a tree
    a, u = rng.uniform(0.5, 1, n), rng.normal(size=n)
    pair = lambda p, q: {"a": p["a"] * q["a"], "u": q["a"] * p["u"] + q["u"]}
    states = rlx.jit(lambda e: rlx.associative_scan(pair, e, reverse=reverse))({"a": rlx.array(a), "u": rlx.array(u)})
    h, expected = 0.0, np.zeros(n)
    for i in range(n)[:: -1 if reverse else 1]:
        h = a[i] * h + u[i]
        expected[i] = h
    np.testing.assert_allclose(states["u"], expected, rtol=1e-10, atol=1e-12)
    if n:
        weights = rlx.array(rng.normal(size=(3, n)))
        slope = rlx.grad(lambda x: (rlx.associative_scan(rlx.mul, x, axis=-1, reverse=reverse) * weights).sum())
        plain = rlx.grad(lambda x: (rlx.cumprod(x, axis=1, reverse=reverse) * weights).sum())
        np.testing.assert_allclose(slope(rlx.array(x)), plain(rlx.array(x)), rtol=1e-8, atol=1e-10)


def test_associative_scan_refuses():
    x = rlx.ones((4, 2))
    with pytest.raises(rlx.UserError, match="axis 2"):
        rlx.associative_scan(rlx.add, x, axis=2)
    with pytest.raises(rlx.UserError, match="2, 4 elements"):
        rlx.associative_scan(lambda a, b: a, {"x": x, "y": rlx.ones(2)})
    with pytest.raises(rlx.UserError, match="fn returns"):
        rlx.associative_scan(lambda a, b: (a, b), x)
    with pytest.raises(rlx.UserError, match="fn makes"):
        rlx.associative_scan(lambda a, b: a.sum(axis=1), x)
