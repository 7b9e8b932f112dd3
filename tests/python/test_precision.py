"""mixed_precision as a transform, alone and nested with the others; policies; compile(precision=...)."""

import numpy as np
import pytest

import rlx

RNG = np.random.default_rng(7)
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11}


def array(*shape, scale=1.0):
    return rlx.array((RNG.normal(size=shape) * scale).astype("f4"))


X, Y = array(9, 70), array(9, 5)
PARAMS = {"w": array(70, 33, scale=0.1), "b": array(33, scale=0.1), "v": array(33, 5, scale=0.2)}


def model(p, x):
    return rlx.softmax(rlx.gelu(x @ p["w"] + p["b"]) @ p["v"])


def loss(p):
    return ((model(p, X) - Y) ** 2).mean()


def distance(exact, other):
    exact, other = np.asarray(exact, "f8"), np.asarray(other, "f8")
    return np.linalg.norm(exact - other) / np.linalg.norm(exact)


def in_bf16(x):
    """Rounded to bf16, by NumPy."""
    bits = np.asarray(x, "f4").view("u4").astype("u8")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype("u4").view("f4")


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_values_and_dtypes(precision):
    f = rlx.mixed_precision(model, precision)
    y = f(PARAMS, X)
    assert y.dtype == rlx.float32 and f.__name__ == "model"
    assert ROUNDING[precision] / 64 < distance(model(PARAMS, X), y) < 4 * ROUNDING[precision]


def test_a_product_is_that_of_rounded_operands():
    x, w = np.asarray(X), np.asarray(PARAMS["w"])
    ours = rlx.mixed_precision(lambda x, w: x @ w)(X, PARAMS["w"])
    exact = in_bf16(x).astype("f8") @ in_bf16(w).astype("f8")
    np.testing.assert_array_equal(np.asarray(ours), in_bf16(np.asarray(ours)))
    np.testing.assert_allclose(np.asarray(ours), exact, rtol=1.01 * ROUNDING["bf16"], atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_gradients_arrive_in_f32(precision):
    value, exact = rlx.value_and_grad(loss)(PARAMS)
    for f in (
        rlx.value_and_grad(rlx.mixed_precision(loss, precision)),
        rlx.jit(rlx.value_and_grad(rlx.mixed_precision(loss, precision))),
        rlx.mixed_precision(rlx.value_and_grad(loss), precision),
    ):
        v, g = f(PARAMS)
        assert abs(float(v) - float(value)) < 4 * ROUNDING[precision] * float(value)
        for name in PARAMS:
            assert g[name].dtype == rlx.float32
            assert distance(exact[name], g[name]) < 16 * ROUNDING[precision], name
    assert distance(exact["w"], rlx.grad(rlx.mixed_precision(loss, precision))(PARAMS)["w"]) > 0


def test_vmap_and_jvp():
    f = rlx.mixed_precision(lambda x: rlx.tanh(x @ PARAMS["w"]))
    xs = array(3, 9, 70)
    batch = rlx.vmap(f)(xs)
    for i in range(3):
        np.testing.assert_allclose(np.asarray(batch)[i], np.asarray(f(xs[i])), rtol=2**-7, atol=2**-8)
    y, slope = rlx.jvp(f, (X,), (X,))
    exact, along = rlx.jvp(lambda x: rlx.tanh(x @ PARAMS["w"]), (X,), (X,))
    assert distance(exact, y) < 4 * ROUNDING["bf16"] and distance(along, slope) < 8 * ROUNDING["bf16"]


def test_loops():
    def rnn(w, xs):
        h, _ = rlx.scan(lambda h, x: (rlx.tanh(h @ w + x),) * 2, rlx.zeros((9, 8)), xs)
        return (h**2).sum()

    w, xs = array(8, 8, scale=0.3), array(5, 9, 8)
    assert distance(rnn(w, xs), rlx.mixed_precision(rnn)(w, xs)) < 4 * ROUNDING["bf16"]
    exact, ours = rlx.grad(rnn)(w, xs), rlx.grad(rlx.mixed_precision(rnn))(w, xs)
    assert 0 < distance(exact, ours) < 8 * ROUNDING["bf16"]


def test_policies():
    x = array(4, 8)

    def f(x):
        return rlx.softmax(x @ x.T)

    plain = rlx.mixed_precision(f)(x)
    np.testing.assert_array_equal(np.asarray(f(x)), np.asarray(rlx.mixed_precision(f, "f32")(x)))
    denied = rlx.mixed_precision(f, deny="matmul", allow="softmax")(x)
    np.testing.assert_array_equal(np.asarray(denied), in_bf16(rlx.softmax(rlx.array(in_bf16(x @ x.T)))))
    policy = rlx.PrecisionPolicy("bf16", allow=["reduction"], keep=("exp",))
    assert policy == rlx.PrecisionPolicy("bf16", allow=("reduction",), keep="exp") and hash(policy)
    assert repr(policy) == "PrecisionPolicy('bf16', allow=('reduction',), keep=('exp',))"
    rounded = rlx.mixed_precision(f, policy)(x)
    np.testing.assert_array_equal(np.asarray(rounded), in_bf16(plain))


def test_graphs_and_compile():
    g = rlx.Graph("g")
    x, w = g.input("x", (9, 70)), g.param("w", (70, 33))
    g.outputs = [g.tanh(x @ w)]
    mixed = g.mixed_precision("bf16")
    assert "bf16" in str(mixed) and mixed.mixed_precision() == mixed
    results = []
    for program, precision in ((g, "bf16"), (mixed, "f32"), (g, rlx.PrecisionPolicy("bf16"))):
        f = rlx.compile(program, precision=precision)
        f.set_param("w", PARAMS["w"])
        results.append(np.asarray(f.run({"x": X})[0]))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_mistakes():
    with pytest.raises(rlx.Error, match="did you mean softmax") as e:
        rlx.mixed_precision(model, deny="softmx")(PARAMS, X)
    assert e.value.code == "policy-op"
    with pytest.raises(rlx.Error, match="did you mean bf16") as e:
        rlx.mixed_precision(model, "bf17")(PARAMS, X)
    assert e.value.code == "precision"
    with pytest.raises(rlx.Error, match="has no op of f32") as e:
        rlx.mixed_precision(lambda x: x.sum(), allow="matmul")(X)
    assert e.value.code == "policy-idle"
    np.testing.assert_array_equal(rlx.mixed_precision(lambda x: x.sum())(X), rlx.asarray(X).sum())
    with pytest.raises(TypeError, match="a name or a PrecisionPolicy"):
        rlx.mixed_precision(model, 16)
    with pytest.raises(TypeError, match="part of the PrecisionPolicy"):
        rlx.mixed_precision(model, rlx.PrecisionPolicy(), deny="exp")
    with pytest.raises(TypeError, match="takes a function"):
        rlx.mixed_precision(3)
