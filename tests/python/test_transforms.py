"""jit, grad, vjp, jvp, vmap, Jacobians of Python functions over trees, and their compositions."""

import dataclasses
import itertools
from collections import namedtuple

import numpy as np
import pytest

import rlx

RNG = np.random.default_rng(3)


def array(*shape, dtype="float32"):
    return rlx.array(RNG.normal(size=shape).astype(dtype))


def close(x, y, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=atol)


# ---- jit


def test_jit_traces_once_per_types_and_structure():
    calls = []

    @rlx.jit
    def f(a, b, scale=1.0):
        calls.append(1)
        return {"sum": (a + b["x"]) * scale, "rest": [b["y"], None, (a,)]}

    a, b = array(2, 3), {"y": array(4), "x": array(2, 3)}
    for _ in range(3):
        out = f(a, b, scale=2.0)
    close(out["sum"], (np.asarray(a) + np.asarray(b["x"])) * 2)
    close(out["rest"][0], b["y"])
    assert out["rest"][1] is None and len(calls) == 1 and f.__name__ == "f"
    f(a, {"x": b["x"], "y": b["y"]}, scale=3.0)  # the order of keys is no structure
    assert len(calls) == 1
    f(array(5, 3), {"x": array(5, 3), "y": array(4)}, scale=1.0)
    f(a, b)
    assert len(calls) == 3


def test_jit_static_arguments():
    calls = []

    def f(x, n, mode="a"):
        calls.append((n, mode))
        return x * n if mode == "a" else x + n

    g = rlx.jit(f, static_argnums=1, static_argnames="mode")
    x = rlx.array([1.0, 2.0])
    assert g(x, 3).tolist() == [3, 6] and g(x, 3).tolist() == [3, 6] and g(x, 4, mode="b").tolist() == [5, 6]
    assert calls == [(3, "a"), (4, "b")]


def test_static_arguments_go_by_the_signature():
    calls = []

    def f(x, n=2, *, mode="a", scale=1.0):
        calls.append((n, mode))
        assert isinstance(n, int) and isinstance(mode, str)
        return (x * n if mode == "a" else x + n) * scale

    x = rlx.array([1.0, 2.0])
    for options in ({"static_argnums": 1, "static_argnames": "mode"}, {"static_argnames": ("n", "mode")}):
        calls.clear()
        g = rlx.jit(f, **options)
        for result in (g(x), g(x, 2), g(x, n=2), g(x, mode="a"), g(x=x, n=2, mode="a"), g(x, 2, mode="a")):
            assert result.tolist() == [2, 4]
        assert calls == [(2, "a")]
        assert g(x, n=3, mode="b", scale=2.0).tolist() == [8, 10] and g(x, 3, mode="b", scale=3.0).tolist() == [12, 15]
        assert calls == [(2, "a"), (3, "b")]  # the scale is no part of the program
        assert "x0" in str(g.graph(x, n=3))
    assert rlx.jit(f, static_argnums=-1, static_argnames="mode")(x, 5).tolist() == [5, 10]
    kinds = rlx.jit(lambda x, n: x * n, static_argnums=1)
    i = rlx.array([1, 2])
    assert [kinds(i, n).dtype for n in (1, 1.0, 1, True)] == ["int64", "float32", "int64", "int64"]
    many = rlx.jit(lambda *xs, **named: sum(xs) + sum(named.values()), static_argnames=())
    assert many(x, x, y=x).tolist() == [3, 6]
    rest = rlx.jit(lambda n, *xs, **named: sum(xs) * n + sum(named.values()), static_argnums=0)
    assert rest(3, x, x, y=x).tolist() == [7, 14]
    with pytest.raises(TypeError, match="hashable"):
        g(x, mode=["a"])
    with pytest.raises(TypeError):
        g(x, 1, 2)
    for options in ({"static_argnums": 5}, {"static_argnames": "nothing"}):
        with pytest.raises(rlx.Error) as e:
            rlx.jit(f, **options)
        assert e.value.code == "argnums"


def test_static_arguments_that_are_equal_and_differ():
    i, Pair = rlx.array([1, 2]), namedtuple("Pair", "a b")
    within = {
        "a tuple": (lambda n: (n,), lambda t: t[0]),
        "a tuple in one": (lambda n: ("x", ((n, "y"),)), lambda t: t[1][0][0]),
        "a named tuple": (lambda n: Pair("x", n), lambda t: t.b),
        "a set": (lambda n: frozenset({n}), lambda t: next(iter(t))),
        "a tuple in a set": (lambda n: frozenset({(n,)}), lambda t: next(iter(t))[0]),
    }
    for name, (put, get) in within.items():
        f = rlx.jit(lambda x, t, get=get: x * get(t), static_argnums=1)
        kinds = [f(i, put(n)).dtype for n in (1, 1.0, 1, True, 1.0)]
        assert kinds == ["int64", "float32", "int64", "int64", "float32"], name
        assert f.cache_info()[:2] == (2, 3), name
    x = rlx.array([2.0])
    f = rlx.jit(lambda x, n: x * n, static_argnums=1)
    for n, negative in ((0.0, False), (-0.0, True), (0.0, False), (np.float32(-0.0), True), (np.float32(0), False)):
        assert np.signbit(f(x, n).numpy()) == [negative], n
    g = rlx.jit(lambda x, n: rlx.copysign(x, n[0].imag), static_argnums=1)
    assert [g(x, (complex(1, n),)).item() for n in (0.0, -0.0)] == [2, -2]
    h = rlx.jit(lambda x, n: x * n, static_argnums=1)
    assert all(np.isnan(h(x, float("nan")).item()) for _ in range(3)) and h.cache_info()[:2] == (2, 1)


def test_transforms_take_functions():
    for transform in (rlx.jit, rlx.grad, rlx.value_and_grad, rlx.vmap, rlx.jacfwd, rlx.jacrev, rlx.hessian,
                      lambda f: rlx.vjp(f, 1.0), lambda f: rlx.jvp(f, (1.0,), (1.0,))):  # fmt: skip
        for wrong in (3, None, "f", rlx.ones(2)):
            with pytest.raises(TypeError, match="takes a function"):
                transform(wrong)


def test_jacobians_take_tuples_keywords_and_aux():
    a, b = rlx.array(np.array([1.0, 2.0])), rlx.array(np.array([3.0, 4.0, 5.0]))
    na, nb = np.asarray(a), np.asarray(b)

    def f(a, b, *, scale=1.0):
        return rlx.outer(a, b) * scale

    da = np.einsum("ik,j->ijk", np.eye(2), nb)
    db = np.einsum("i,jk->ijk", na, np.eye(3))
    for jac in (rlx.jacfwd, rlx.jacrev):
        for wrapped in (jac, lambda *args, jac=jac: rlx.jit(jac(*args))):
            close(wrapped(f)(a, b), da)
            close(wrapped(f, 1)(a, b), db)
            close(wrapped(f, -1)(a, b), db)
            both = wrapped(f, (0, 1))(a, b, scale=2.0)
            assert isinstance(both, tuple) and len(both) == 2
            close(both[0], 2 * da)
            close(both[1], 2 * db)
            (only,) = wrapped(f, (1,))(a, b)
            close(only, db)
        jacobian, aux = jac(lambda a, b: ({"y": f(a, b)}, {"s": a.sum()}), (1, 0), has_aux=True)(a, b)
        close(jacobian["y"][0], db)
        close(jacobian["y"][1], da)
        assert aux["s"].item() == 3
        for code, bad in {
            "argnums": lambda: jac(f, 2)(a, b),
            "wrt-dtype": lambda: jac(lambda i: i * 1.5)(rlx.array([1])),
        }.items():
            with pytest.raises(rlx.Error) as e:
                bad()
            assert e.value.code == code

    def g(a, b, *, power=2):
        return (a**power).sum() * b.sum()

    (aa, ab), (ba, bb) = rlx.hessian(g, (0, 1))(a, b)
    close(aa, 2 * 12 * np.eye(2))
    close(ab, np.tile(2 * na[:, None], 3))
    close(ba, np.tile(2 * na, (3, 1)))
    close(bb, np.zeros((3, 3)))
    close(rlx.hessian(g)(a, b, power=3), 6 * 12 * np.diag(na))
    for last in (1, -1):
        close(rlx.hessian(lambda a, b: (b**3).sum() * a.sum(), last)(a, b), 6 * 3 * np.diag(nb))
    h, aux = rlx.hessian(lambda a: ((a**3).sum(), a * 2), has_aux=True)(a)
    close(h, np.diag(6 * na))
    close(aux, 2 * na)
    out, slope, aux = rlx.jvp(lambda a: ((a**2).sum(), a + 1), (a,), (rlx.ones(2, "float64"),), has_aux=True)
    assert out.item() == 5 and slope.item() == 6 and aux.tolist() == [2, 3]


def test_results_that_no_slice_reaches_are_repeated():
    c = rlx.array(np.arange(4.0))
    for axis, want in {0: np.tile(2 * np.arange(4.0), (3, 1)), 1: np.tile(2 * np.arange(4.0), (3, 1)).T}.items():
        x, y = rlx.vmap(lambda x, c: (x, 2 * c), in_axes=(0, None), out_axes=(0, axis))(rlx.ones(3), c)
        assert x.shape == (3,)
        close(y, want)


def test_rounding_has_no_slope():
    x = rlx.array([0.4, 1.6, -2.5])
    assert rlx.grad(lambda x: rlx.round_straight_through(x).sum())(x).tolist() == [1, 1, 1]
    for f in (rlx.floor, rlx.ceil, rlx.trunc, rlx.sign, rlx.round, rlx.op.round, lambda x: rlx.round(x, 1)):
        assert rlx.grad(lambda x, f=f: (f(x) * x).sum())(x).tolist() == f(x).tolist()
        assert rlx.grad(lambda x, f=f: f(x).sum())(x).tolist() == [0, 0, 0] == rlx.jvp(f, (x,), (x,))[1].tolist()


def test_jit_numbers_take_the_dtype_beside_them():
    f = rlx.jit(lambda x, s: x * s)
    assert f(rlx.ones(2, "f64"), 0.1).numpy()[0] == 0.1
    assert f(rlx.ones(2, "float16"), 0.1).dtype == "float16" and f(rlx.ones(2), 3).dtype == "f32"


def test_jit_captures():
    w = array(3, 3)
    f = rlx.jit(lambda x: x @ w + np.ones(3, np.float32))
    x = array(2, 3)
    close(f(x), np.asarray(x) @ np.asarray(w) + 1)
    assert [name for name, _, _ in f.graph(x).inputs] == ["x0"]
    assert rlx.jit(lambda: 3.0)().item() == 3
    assert rlx.jit(lambda x: x)(x).tolist() == x.tolist()
    assert rlx.jit(lambda x: w)(x).tolist() == w.tolist()


def test_views_that_a_function_captures_keep_their_sizes():
    a = np.arange(6, dtype=np.float32)
    v, x = rlx.array(a), rlx.array(np.float32(2.0))
    views = [v, v.reshape(2, 3), v.reshape(3, 2), v.reshape(1, 6), v.reshape(6, 1), v.reshape(2, 3)]  # of one memory
    for order in (views, views[::-1]):
        f = lambda x: [x * w for w in order]
        for outs in (f(x), rlx.jit(f)(x), rlx.vjp(f, x)[0], rlx.jvp(f, (x,), (x,))[1]):
            for y, w in zip(outs, order, strict=True):
                assert y.shape == w.shape and y.tolist() == (2 * a.reshape(w.shape)).tolist()
        g = rlx.Graph("g")
        x_of_g = g.input("x", ())
        g.outputs = [x_of_g * w for w in order]
        assert [y.shape for y in g.compile().run({"x": x})] == [w.shape for w in order]
    product = rlx.grad(lambda x: (x * views[1] @ views[2]).sum())(x)
    assert product.item() == (a.reshape(2, 3) @ a.reshape(3, 2)).sum()


def test_jit_of_named_tuples():
    Pair = namedtuple("Pair", "a b")
    out = rlx.jit(lambda p: Pair(p.b, p.a * 2))(Pair(rlx.array(1.0), rlx.array(2.0)))
    assert isinstance(out, Pair) and out.a.item() == 2 and out.b.item() == 2


def test_values_are_not_known_while_tracing():
    for bad in (
        bool,
        float,
        lambda x: x.numpy(),
        np.asarray,
        lambda x: x if x > 0 else -x,
        list(map(lambda f: f, [int]))[0],
    ):
        with pytest.raises(rlx.Error) as e:
            rlx.jit(lambda x: bad(x) and x)(rlx.array(1.0))
        assert e.value.code == "trace-value"
    kept = []
    rlx.jit(lambda x: kept.append(x) or x)(rlx.array(1.0))
    with pytest.raises(rlx.Error) as e:
        kept[0] + 1
    assert e.value.code == "trace-ended"
    with pytest.raises(rlx.Error):
        rlx.jit(lambda x: x)("text")


# ---- derivatives


def mlp(params, x):
    for w, b in params["layers"]:
        x = rlx.tanh(x @ w + b)
    return (x @ params["out"]).sum()


def mlp_numpy(params, x):
    for w, b in params["layers"]:
        x = np.tanh(x @ w + b)
    return (x @ params["out"]).sum()


def mlp_params():
    shapes = [(3, 4), (4, 4)]
    return {
        "layers": [(array(*s, dtype="float64"), array(s[1], dtype="float64")) for s in shapes],
        "out": array(4, dtype="float64"),
    }


def test_grad_of_a_tree_against_differences():
    params, x = mlp_params(), array(5, 3, dtype="float64")
    value, g = rlx.value_and_grad(mlp)(params, x)
    np_params = rlx.tree_map(np.array, params)
    assert abs(value.item() - mlp_numpy(np_params, np.asarray(x))) < 1e-9
    leaves, tree = rlx.tree_flatten(np_params)
    for leaf, d in zip(leaves, rlx.tree_flatten(g)[0]):
        assert d.shape == leaf.shape
        at = (0,) * leaf.ndim
        saved = leaf[at]
        up, down = (
            mlp_numpy(rlx.tree_unflatten(tree, leaves), np.asarray(x)) for leaf[at] in (saved + 1e-6, saved - 1e-6)
        )
        leaf[at] = saved
        assert abs((up - down) / 2e-6 - d[at].item()) < 1e-6


def test_grad_options():
    x, y = rlx.array(2.0), rlx.array(3.0)
    f = lambda x, y: x**2 * y
    assert rlx.grad(f)(x, y).item() == 12 and rlx.grad(f, 1)(x, y).item() == 4 and rlx.grad(f, -1)(x, y).item() == 4
    assert [g.item() for g in rlx.grad(f, (0, 1))(x, y)] == [12, 4]
    g, aux = rlx.grad(lambda x: (x**2, {"x": x + 1}), has_aux=True)(x)
    assert g.item() == 4 and aux["x"].item() == 3
    (v, aux), g = rlx.value_and_grad(lambda x: (x**2, x), has_aux=True)(x)
    assert (v.item(), aux.item(), g.item()) == (4, 2, 4)
    assert rlx.grad(lambda x, y: y * 1.0)(x, y).item() == 0  # does not depend on it
    assert rlx.grad(lambda x: rlx.stop_gradient(x) * x)(x).item() == 2
    assert rlx.grad(f)(2.0, 3.0).item() == 12
    cases = {
        "loss-type": lambda: rlx.grad(lambda x: x)(rlx.ones(3)),
        "wrt-dtype": lambda: rlx.grad(lambda x: x.astype("f32"))(rlx.array(3)),
        "argnums": lambda: rlx.grad(f, 2)(x, y),
    }
    for code, bad in cases.items():
        with pytest.raises(rlx.Error) as e:
            bad()
        assert e.value.code == code
    with pytest.raises(rlx.Error):
        rlx.grad(lambda x: (x, x))(x)


def test_argnums_may_stand_in_any_order():
    a, b = array(2, dtype="float64"), array(3, dtype="float64")
    p, c = {"b": b, "w": array(2, 3, dtype="float64")}, rlx.array(np.float64(1.5))
    A, B, W = (np.asarray(x) for x in (a, b, p["w"]))

    def f(a, p, c):
        return ((a @ p["w"]) * p["b"]).sum() * c

    slopes = [1.5 * W @ B, {"b": 1.5 * A @ W, "w": 1.5 * np.outer(A, B)}, A @ W @ B]
    orders = [*itertools.permutations(range(3)), *itertools.permutations(range(3), 2)]
    for numbers in [*orders, (-1, 0), (-2, -3), (1,), (1, 1), (2, 0, -1)]:
        value, first = rlx.value_and_grad(f, numbers)(a, p, c)
        close(value, 1.5 * A @ W @ B, rtol=1e-12)
        for given in (first, *(g(f, numbers)(a, p, c) for g in (rlx.grad, rlx.jacrev, rlx.jacfwd))):
            assert isinstance(given, tuple) and len(given) == len(numbers)
            for got, n in zip(given, numbers):
                assert rlx.tree_structure(got) == rlx.tree_structure(slopes[n])
                for x, y in zip(rlx.tree_leaves(got), rlx.tree_leaves(slopes[n])):
                    close(x, y, rtol=1e-12)
    seconds = {(0, 0): np.zeros((2, 2)), (0, 2): W @ B, (2, 0): W @ B, (2, 2): 0}
    for numbers in ((0, 2), (2, 0), (0, 0), (-1, 0, 2)):
        rows = rlx.hessian(f, numbers)(a, p, c)
        for row, m in zip(rows, numbers, strict=True):
            for got, n in zip(row, numbers, strict=True):
                close(got, seconds[m % 3, n % 3], rtol=1e-12)


def test_vjp_and_jvp_agree():
    f = lambda a, b: {"y": rlx.sin(a) @ b, "z": a.sum()}
    a, b, da, db = array(3, 4), array(4, 2), array(3, 4), array(4, 2)
    out, tangent = rlx.jvp(f, (a, b), (da, db))
    out2, pull = rlx.vjp(f, a, b)
    close(out["y"], np.sin(a) @ np.asarray(b))
    close(out["y"], out2["y"])
    ct = {"y": array(3, 2), "z": rlx.array(0.5)}
    ca, cb = pull(ct)
    forward = (tangent["y"] * ct["y"]).sum() + tangent["z"] * ct["z"]
    close(forward, (ca * da).sum() + (cb * db).sum(), rtol=1e-4)
    with pytest.raises(rlx.Error):
        pull((ct["y"],))
    with pytest.raises(rlx.Error):
        rlx.jvp(f, (a, b), ((da,), db))


def test_derivatives_pass_integers_by():
    x, i = array(4), rlx.array([2, 0])
    out, pull = rlx.vjp(lambda x, i: (x[i] * 2, i + 1), x, i)
    dx, di = pull((rlx.ones(2), rlx.array([0, 0])))
    assert di is None and dx.tolist() == [2, 0, 2, 0]
    (y, j), (dy, dj) = rlx.jvp(lambda x, i: (x[i] * 2, i + 1), (x, i), (rlx.ones(4), None))
    assert dy.tolist() == [2, 2] and dj.tolist() == [0, 0]
    y, pull, aux = rlx.vjp(lambda x: (x * 2, x.sum()), x, has_aux=True)
    assert pull(rlx.ones(4))[0].tolist() == [2] * 4 and aux.shape == ()


def test_higher_orders_and_jacobians():
    x = rlx.array(0.7)
    f = rlx.sin
    for order in range(1, 5):
        f = rlx.grad(f)
        close(f(x), [np.cos, lambda v: -np.sin(v), lambda v: -np.cos(v), np.sin][order - 1](np.float32(0.7)))
    v = array(3, dtype="float64")
    n = np.asarray(v)
    close(
        rlx.hessian(lambda v: (v**3).sum() + v[0] * v[1])(v),
        np.diag(6 * n) + np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]),
    )
    g = lambda v: rlx.stack([v[0] * v[1], rlx.sin(v[2])])
    expected = [[n[1], n[0], 0], [0, 0, np.cos(n[2])]]
    close(rlx.jacfwd(g)(v), expected)
    close(rlx.jacrev(g)(v), expected)
    close(rlx.jit(rlx.jacobian(g))(v), expected)
    tree = rlx.jacrev(lambda p: {"s": p["a"] * p["b"]})({"a": v, "b": rlx.array(np.float64(2))})
    close(tree["s"]["a"], 2 * np.eye(3))
    close(tree["s"]["b"], n)
    both = rlx.jacfwd(lambda p: {"s": p["a"] * p["b"]})({"a": v, "b": rlx.array(np.float64(2))})
    close(both["s"]["a"], 2 * np.eye(3))


# ---- vmap


def test_vmap_axes():
    a, b = array(5, 3), array(3, 5)
    na, nb = np.asarray(a), np.asarray(b)
    close(rlx.vmap(lambda v: v.sum())(a), na.sum(1))
    close(rlx.vmap(lambda v, w: v @ w, in_axes=(0, 1))(a, b), np.einsum("ij,ji->i", na, nb))
    close(rlx.vmap(lambda v, w: v * w, in_axes=(None, 1), out_axes=1)(a[0], b), nb * na[0][:, None])
    close(rlx.vmap(lambda v, w: v * w, in_axes=(None, -1), out_axes=-1)(a[0], b), nb * na[0][:, None])
    out = rlx.vmap(lambda d, s: {"x": d["p"] + s, "c": s}, in_axes=({"p": 0}, None), out_axes={"x": 0, "c": None})(
        {"p": a}, 1.0
    )
    close(out["x"], na + 1)
    assert out["c"].item() == 1
    close(rlx.vmap(lambda v: 2.0)(a), np.full(5, 2.0))
    close(rlx.vmap(rlx.vmap(lambda x, y: x * y, (None, 0)), (0, None))(a[:, 0], b[0]), np.outer(na[:, 0], nb[0]))
    cases = {
        "vmap-size": lambda: rlx.vmap(lambda x, y: x)(a, b),
        "axis-range": lambda: rlx.vmap(lambda x: x, in_axes=2)(a),
        "in-axes": lambda: rlx.vmap(lambda x: x, in_axes=(0, 0))(a),
        "out-axes": lambda: rlx.vmap(lambda x: x, out_axes=None)(a),
    }
    for code, bad in cases.items():
        with pytest.raises(rlx.Error) as e:
            bad()
        assert e.value.code == code


def test_vmap_slices_keywords():
    a, b, c = array(5, 3), array(5, 3, 2), array(5)
    na, nb, nc = (np.asarray(x) for x in (a, b, c))

    def f(v, *, p, s):
        assert v.shape == (3,) and p["w"].shape == (3, 2) and s.shape == ()
        return v @ p["w"] * s

    expected = np.einsum("ij,ijk,i->ik", na, nb, nc)
    close(rlx.vmap(f)(a, p={"w": b}, s=c), expected)
    close(rlx.vmap(f, in_axes=1, out_axes=1)(a.T, p={"w": b}, s=c), expected.T)
    close(rlx.vmap(f, in_axes=None)(a[0], p={"w": b}, s=c), np.einsum("j,ijk,i->ik", na[0], nb, nc))
    close(rlx.jit(rlx.vmap(rlx.grad(lambda v, *, s: (v * v).sum() * s)))(a, s=c), 2 * na * nc[:, None])
    close(rlx.vmap(lambda *, s: s * 2)(s=b), nb * 2)
    for code, bad in {"vmap-size": array(4), "axis-range": 1.0}.items():
        with pytest.raises(rlx.Error) as e:
            rlx.vmap(lambda v, *, s: v * s)(a, s=bad)
        assert e.value.code == code


# ---- compositions


def test_any_nesting():
    w, xs = array(3), array(6, 3)
    nw, nx = np.asarray(w), np.asarray(xs)
    loss = lambda w, x: rlx.sin((w * x).sum())
    expected = np.cos(nx @ nw)[:, None] * nx
    close(rlx.vmap(rlx.grad(loss), (None, 0))(w, xs), expected)
    close(rlx.jit(rlx.vmap(rlx.grad(loss), (None, 0)))(w, xs), expected)
    close(rlx.jit(rlx.vmap(rlx.jit(rlx.grad(rlx.jit(loss))), (None, 0)))(w, xs), expected)
    close(rlx.grad(lambda w: rlx.vmap(loss, (None, 0))(w, xs).sum())(w), expected.sum(0), rtol=1e-4)
    total = rlx.jit(lambda w: rlx.vmap(lambda x: loss(w, x))(xs).sum())  # the inner function captures a traced array
    close(rlx.grad(total)(w), expected.sum(0), rtol=1e-4)
    hvp = lambda w, v: rlx.jvp(rlx.grad(lambda w: loss(w, xs[0])), (w,), (v,))[1]
    h = -np.sin(nx[0] @ nw) * np.outer(nx[0], nx[0])
    close(rlx.jit(hvp)(w, rlx.ones(3)), h @ np.ones(3), rtol=1e-4)
    close(rlx.vmap(hvp, (None, 0))(w, rlx.eye(3)), h, rtol=1e-4)


def test_a_jitted_closure_inside_of_a_trace_is_not_kept():
    x = rlx.array(2.0)

    def outer(w):
        inner = rlx.jit(lambda v: v * w)  # called with a known array, captures one that is traced
        return inner(x) + inner(x)

    assert rlx.grad(outer)(rlx.array(3.0)).item() == 4 and rlx.jit(outer)(rlx.array(3.0)).item() == 12


def test_directions_have_the_shapes_of_what_they_belong_to():
    x = rlx.ones((2, 3))
    double = lambda x: x * 2
    for wrong in (rlx.ones(()), rlx.ones(3), rlx.ones((3, 2))):
        for f in (lambda d: rlx.vjp(double, x)[1](d), lambda d: rlx.jvp(double, (x,), (d,))):
            for call in (f, rlx.jit(f)):
                with pytest.raises(rlx.Error, match="has the shape"):
                    call(wrong)


def test_zero_cotangents_do_not_meet_infinities():
    x = rlx.array([1.0, 2.0])
    _, pull, aux = rlx.vjp(lambda x: (x * 2, x / 0.0), x, has_aux=True)
    assert pull(rlx.ones(2))[0].tolist() == [2, 2] and np.isinf(aux.numpy()).all()


def test_an_inner_gradient_sees_only_its_own_argument():
    x = rlx.array(3.0)
    close(rlx.grad(lambda x: x * rlx.grad(lambda y: x * y)(x))(x), 6.0)
    close(rlx.grad(lambda x: rlx.grad(lambda y: x * y * y)(x))(x), 12.0 / 3 * 3)


def test_a_training_loop():
    rng = np.random.default_rng(0)
    x = rlx.array(rng.normal(size=(64, 3)).astype(np.float32))
    true = np.array([1.0, -2.0, 0.5], np.float32)
    y = rlx.array(np.asarray(x) @ true)

    @rlx.jit
    def step(w, rate):
        loss, g = rlx.value_and_grad(lambda w: ((x @ w - y) ** 2).mean())(w)
        return w - rate * g, loss

    w = rlx.zeros(3)
    for i in range(100):
        w, loss = step(w, 0.1 if i < 50 else 0.2)
    close(w, true, rtol=1e-3)
    assert loss.item() < 1e-6 and step.cache_info()[:2] == (99, 1)


def test_all_derivatives_of_lengths_at_zero_are_zero():
    zero, some = rlx.array(np.zeros(3)), rlx.array(np.array([0.0, 1.0, 2.0]))
    for ord in (0.5, -0.5, -1, -2, 1.5, 2, 3.5):
        first = rlx.grad(lambda x, ord=ord: rlx.norm(x, axes=[0], ord=ord))
        assert first(zero).tolist() == [0, 0, 0] and first(some)[0].item() == 0
        assert rlx.grad(lambda x: first(x).sum())(zero).tolist() == [0, 0, 0]
    origin = rlx.array(np.zeros(1, np.complex64))
    for f in (rlx.complex_abs, rlx.complex_angle):
        first = rlx.grad(lambda z, f=f: f(z).sum())
        assert first(origin).tolist() == [0]
        assert rlx.grad(lambda z: first(z).real.sum() + first(z).imag.sum())(origin).tolist() == [0]


# ---- Taylor mode, linear maps, potentials


def test_jet_gives_the_coefficients_of_a_known_series():
    # exp(sin t) around 0 is 1 + t + t^2/2 - t^4/8 - t^5/15 - t^6/240 + t^7/90 + ..
    known = [1, 1, 1, 0, -3, -8, -3, 56]
    zero, line = rlx.array(np.float64(0)), [rlx.array(np.float64(k == 1)) for k in range(1, 8)]
    y, terms = rlx.jet(lambda x: rlx.exp(rlx.sin(x)), (zero,), (line,))
    close([y.item()] + [t.item() for t in terms], known, rtol=1e-12)
    # inside jit and batched, at other points: against nested derivatives
    f = lambda x: rlx.tanh(x) * rlx.exp(x)
    nested = [f]
    for _ in range(3):
        nested.append(rlx.grad(lambda x, g=nested[-1]: g(x)))
    x = array(5, dtype="float64")
    third = rlx.jit(rlx.vmap(lambda v: rlx.jet(f, (v,), ([1.0, 0.0, 0.0],))[1][2]))(x)
    close(third, rlx.vmap(nested[3])(x), rtol=1e-12)


def test_jet_over_trees_and_its_refusals():
    x, w = array(3, 4, dtype="float64"), {"a": array(4, 2, dtype="float64"), "n": rlx.array([1, 2])}
    dx, dw = array(3, 4, dtype="float64"), {"a": array(4, 2, dtype="float64"), "n": rlx.array([0, 0])}
    f = lambda x, w: {"y": rlx.sin(x @ w["a"]), "n": w["n"]}
    y, (first,) = rlx.jet(f, (x, w), ([dx], [dw]))
    _, expected = rlx.jvp(f, (x, w), (dx, dw))
    close(first["y"], expected["y"], rtol=1e-12)
    assert first["n"].tolist() == [0, 0] and y["n"].tolist() == [1, 2]
    for series in ((), ([dx],), ([dx], [dw, dw]), ([], [])):
        with pytest.raises(rlx.UserError, match="series"):
            rlx.jet(f, (x, w), series)


def test_linearize_computes_the_point_once():
    f = lambda x, w: (rlx.tanh(x @ w["a"]), x.sum())
    x, w = array(3, 4), {"a": array(4, 2)}
    (y, s), push = rlx.linearize(f, x, w)
    close(y, f(x, w)[0])
    for _ in range(2):
        dx, dw = array(3, 4), {"a": array(4, 2)}
        expected = rlx.jvp(f, (x, w), (dx, dw))[1]
        moved = push(dx, dw)
        close(moved[0], expected[0])
        close(moved[1], expected[1])
    close(rlx.jit(lambda x, v: rlx.linearize(rlx.sin, x)[1](v))(x, x), np.cos(x) * np.asarray(x))
    # all columns at once
    _, push = rlx.linearize(lambda x: rlx.tanh(x), rlx.array([0.5, 1.0]))
    close(rlx.vmap(push)(rlx.eye(2)), np.diag(1 - np.tanh([0.5, 1.0]) ** 2))
    with pytest.raises(rlx.UserError, match="1 tangents for 2 primals|tangents"):
        push(rlx.ones(2), rlx.ones(2))


@pytest.mark.parametrize("p", [False, True])
def test_linear_transpose_goes_through_loops_and_branches(p):
    rng = np.random.default_rng(3)
    x, w, xs, ct = (rlx.asarray(rng.normal(size=s)) for s in ((4,), (4,), (6, 4), (4,)))
    maps = {
        "scan": lambda x, xs: rlx.scan(lambda c, s: (c * w + s, None), x, xs)[0],
        "fori_loop": lambda x, xs: rlx.fori_loop(0, 5, lambda i, c: c * w * i.astype("float64") + xs[2], x),
        "a loop whose bound is known late": lambda x, xs: rlx.fori_loop(
            0, rlx.asarray(3), lambda i, c: c * w + xs[1], x, max_iterations=4
        ),
        "cond": lambda x, xs: rlx.cond(p, lambda x: x * w, lambda x: x.cumsum() + xs[0], x),
    }
    for name, f in maps.items():
        for transposed in (rlx.linear_transpose(f, x, xs), rlx.jit(rlx.linear_transpose(f, x, xs))):
            dx, dxs = transposed(ct)
            inner = (dx * x).sum() + (dxs * xs).sum()
            np.testing.assert_allclose(float((f(x, xs) * ct).sum()), float(inner), rtol=1e-12, err_msg=name)


def test_linear_transpose_turns_the_inner_product():
    a = array(5, 4)
    f = lambda x, z: {"y": rlx.cumsum(a @ x, axis=0), "z": z[:2] * 3.0}
    x, z, n = array(4, 3), array(6), rlx.array([1, 2])
    out, ct = f(x, z), {"y": array(5, 3), "z": array(2)}
    xs, zs = rlx.linear_transpose(f, x, z)(ct)
    inner = lambda p, q: float((np.asarray(p, np.float64) * np.asarray(q)).sum())
    terms = inner(abs(x), abs(xs)) + inner(abs(z), abs(zs))  # which may cancel
    back = inner(x, xs) + inner(z, zs)
    assert inner(out["y"], ct["y"]) + inner(out["z"], ct["z"]) == pytest.approx(back, rel=0, abs=1e-6 * terms)
    with pytest.raises(rlx.UserError, match="not linear"):
        rlx.linear_transpose(lambda x: x * x, x)
    with pytest.raises(rlx.UserError, match="cotangents"):
        rlx.linear_transpose(lambda x: 2.0 * x, x)(rlx.ones(7))
    assert rlx.linear_transpose(lambda x, n: x * n.sum().astype("float32"), x, n)(x)[1] is None


def test_force_energy_loss_is_the_formula():
    x, forces = array(2, 9, 3, dtype="float64"), array(2, 9, 3, dtype="float64")
    energies = array(2, dtype="float64")
    springs = lambda k, x: 0.5 * k * (x**2).sum(axis=(1, 2))
    loss = rlx.force_energy_loss(springs, argnums=1, force_weight=0.3, energy_weight=2.5)
    X, F, E, k = np.asarray(x), np.asarray(forces), np.asarray(energies), 1.7
    off = ((0.5 * k * (X**2).sum((1, 2)) - E) ** 2).mean()
    close(loss(k, x, forces=forces, energy=energies), 0.3 * ((-k * X - F) ** 2).mean() + 2.5 * off, rtol=1e-12)
    mask = RNG.integers(0, 2, (2, 9)).astype(bool)
    masked = 0.3 * ((-k * X - F) ** 2)[mask].mean() + 2.5 * off
    close(loss(k, x, forces=forces, energy=energies, atoms=rlx.array(mask)), masked, rtol=1e-12)
    slope = rlx.grad(lambda k: loss(k, x, forces=forces, energy=energies))(rlx.array(k))
    h = 1e-6
    ends = [loss(k + d, x, forces=forces, energy=energies).item() for d in (-h, h)]
    assert slope.item() == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-6)
    for wrong in (dict(forces=forces, energy=energies.reshape(2, 1)), dict(forces=forces[0], energy=energies)):
        with pytest.raises(rlx.UserError, match="is needed"):
            loss(k, x, **wrong)
    with pytest.raises(rlx.UserError, match="forces"):
        rlx.force_energy_loss(springs, argnums=(1,))(k, x, forces=(forces, forces), energy=energies)


def test_a_missing_derivative_says_the_way_from_the_loss():
    with pytest.raises(rlx.Error, match="reduce_sum <- "):
        rlx.Graph.grad(rlx.jit(lambda x: rlx.floor(x).astype("int32").astype("float32").sum()).graph(rlx.ones(3)), ["x0"])


# ---- programs in primitives


def _attention(q, k, v):
    s = rlx.matmul(q, rlx.swapaxes(k, -1, -2)) / 2.0
    e = rlx.exp(s - rlx.max(s, axis=-1, keepdims=True))
    return rlx.sum(rlx.matmul(e / rlx.sum(e, axis=-1, keepdims=True), v) ** 2)


def test_reverse_mode_differentiates_what_primitives_mean():
    q, k, v = (array(2, 3, 9, 4) for _ in range(3))
    graph = rlx.jit(_attention).graph(q, k, v)
    assert "= attention(" not in str(graph) and "= attention(" in str(graph.recognised())
    gradients = rlx.grad(_attention, argnums=(0, 1, 2))(q, k, v)
    step = 1e-3
    for n, g in enumerate(gradients):
        direction = array(2, 3, 9, 4)
        moved = [[x + sign * step * direction if i == n else x for i, x in enumerate((q, k, v))] for sign in (1, -1)]
        slope = (np.asarray(_attention(*moved[0])) - np.asarray(_attention(*moved[1]))) / (2 * step)
        close(np.sum(np.asarray(g) * np.asarray(direction)), slope, rtol=2e-2, atol=2e-2)
    _, pull = rlx.vjp(_attention, q, k, v)
    for a, b in zip(pull(rlx.array(np.float32(1))), gradients):
        close(a, b)


@dataclasses.dataclass(frozen=True)
class Factor:
    by: object
    name: str = dataclasses.field(default="", compare=False)


def test_static_dataclasses_and_keys_have_types():
    x = rlx.array(np.int32([1, 2]))
    f = rlx.jit(lambda x, c: x * c.by, static_argnums=1)
    for by, dtype in ((2, "int32"), (2.0, "float32"), (True, "int32"), (2, "int32"), (2.0, "float32")):
        y = f(x, Factor(by))
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, np.int32([1, 2]) * by)
    np.testing.assert_array_equal(np.signbit(f(rlx.zeros(2), Factor(-0.0))), [True, True])
    np.testing.assert_array_equal(np.signbit(f(rlx.zeros(2), Factor(0.0))), [False, False])
    f = rlx.jit(lambda x, c: x * c.by.by, static_argnums=1)
    assert [f(x, Factor(Factor(by))).dtype for by in (2, 2.0)] == ["int32", "float32"]
    assert [f(x, Factor(Factor(2), name)).dtype for name in "ab"] == ["int32", "int32"]  # not compared

    g = rlx.jit(lambda d: sum(v * k for k, v in d.items()))
    assert [g({k: x}).dtype for k in (1, 1.0, True, 1)] == ["int32", "float32", "int32", "int32"]
    assert rlx.tree_structure({1: x}) != rlx.tree_structure({1.0: x})
    assert rlx.tree_structure({(1, 2): x}) != rlx.tree_structure({(1, 2.0): x})
    assert rlx.tree_structure({1: x, 2: x}) == rlx.tree_structure({2: x, 1: x})
    assert rlx.tree_structure({"1": x}) != rlx.tree_structure({1: x})
    assert rlx.tree_map(lambda v: v + 1, {1: 2, 3: 4}) == {1: 3, 3: 5}


class Scale(rlx.nn.Layer):
    by: object

    def __call__(self, params, x):
        return x * self.by


def test_layers_that_differ_in_the_type_of_a_field():
    x = rlx.array(np.int32([1, 2]))
    f = rlx.jit(lambda layer, x: layer(None, x))
    assert [f(Scale(by), x).dtype for by in (2, 2.0, True)] == ["int32", "float32", "int32"]


def test_batched_loops_do_not_run_on_what_has_finished():
    x = rlx.array(np.array([1.0, 2.0, 3.0]))

    def f(i):
        step = lambda s: (s[0] + 1, s[1] + rlx.op.gather(x, s[0], axis=0))
        return rlx.while_loop(lambda s: s[0] < 3, step, (i, rlx.array(np.float64(0))))[1]

    starts = np.array([0, 1, 2, 3])
    want = [float(f(rlx.array(i))) for i in starts]
    assert want == [6, 5, 3, 0]
    np.testing.assert_array_equal(rlx.vmap(f)(rlx.array(starts)), want)
    np.testing.assert_array_equal(rlx.jit(rlx.vmap(f))(rlx.array(starts)), want)
    assert rlx.vmap(f)(rlx.array(starts[:0])).shape == (0,)

    def solve(n):
        eye = rlx.array(np.eye(2))
        step = lambda s: (s[0] - 1, rlx.op.dense_solve(s[0] * eye, s[1]))
        return rlx.while_loop(lambda s: s[0] > 0.5, step, (n, rlx.array(np.ones((2, 1)))))[1]

    starts = rlx.array(np.array([2.0, 1.0]))
    np.testing.assert_allclose(rlx.vmap(solve)(starts), np.stack([np.asarray(solve(n)) for n in starts]))

    def root(n, x):
        step = lambda s: (s[0] - 1.0, s[1] * rlx.sqrt(s[0]))
        return rlx.while_loop(lambda s: s[0] > 0.5, step, (n, x), max_iterations=4)[1]

    n, y = rlx.array(np.array([3.0, 1.0])), rlx.array(np.array([2.0, 2.0]))
    np.testing.assert_allclose(
        rlx.grad(lambda a: rlx.vmap(root)(a, y).sum())(n), rlx.vmap(rlx.grad(root))(n, y), rtol=1e-12
    )


def test_powers_at_zero_have_derivatives_of_every_order():
    x = rlx.array(np.array([0.0, 0.5]))

    def features(z):
        return (z[:, None] ** rlx.arange(4, dtype="float64")).sum()

    twice = rlx.grad(lambda z: rlx.grad(features)(z).sum())
    np.testing.assert_allclose(twice(x), [2, 5])
    np.testing.assert_allclose(rlx.hessian(features)(x), [[2, 0], [0, 5]])
    for p in range(4):
        g = lambda z, p=p: (z ** rlx.array(np.float64(p))).sum()
        for order in range(1, 6):
            g = lambda z, h=rlx.grad(g): h(z).sum()
            want = np.prod(range(p - order + 1, p + 1)) * np.where(p >= order, np.asarray(x) ** max(p - order, 0), 0)
            assert float(g(x)) == pytest.approx(float(want.sum()), abs=1e-12), (p, order)
    slope = rlx.grad(lambda p: (rlx.array(np.array([2.0, 3.0])) ** p).sum())
    assert float(slope(rlx.array(np.float64(2.0)))) == pytest.approx(4 * np.log(2) + 9 * np.log(3))
