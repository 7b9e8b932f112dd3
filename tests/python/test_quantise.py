"""rlx.quantise, rlx.calibrate and training with rounding."""

import json

import numpy as np
import pytest
import rlx

rng = np.random.default_rng(5)


def array(*shape):
    return rng.normal(size=shape).astype("float32")


def network():
    g = rlx.Graph("net")
    x, w, b, v = g.input("x", ("n", 64)), g.param("w", (64, 32)), g.param("b", (32,)), g.param("v", (32, 5))
    g.outputs = [rlx.relu(x @ w + b) @ v]
    return g


PARAMS = {"w": array(64, 32) / 8, "b": array(32), "v": array(32, 5) / 5}
DATA = [{"x": array(9, 64)}, {"x": array(4, 64)}]


def expected(x):
    return np.maximum(x @ PARAMS["w"] + PARAMS["b"], 0) @ PARAMS["v"]


def error(want, got):
    return np.sqrt(np.sum((want - np.asarray(got)) ** 2) / np.sum(want**2))


@pytest.mark.parametrize("method", ["min_max", "percentile", "entropy", "mse"])
def test_int8_graph(method):
    q = rlx.quantise(network(), PARAMS, DATA, method=method, asymmetric=method == "mse")
    assert str(q.graph).count("matmul_integer") == 2
    (y,) = q.compile().run(DATA[0])
    assert error(expected(DATA[0]["x"]), y) < (0.2 if method == "entropy" else 0.03)
    assert [row["format"] for row in q.layers] == ["int8", "int8"]
    assert "SQNR" in str(q)
    assert q.report["bytes_after"] < q.report["bytes_before"] / 2


def test_weights_alone_and_policies():
    q = rlx.quantise(network(), PARAMS, format="q8_0", layers={"v": "float"})
    assert [row["format"] for row in q.layers] == ["q8_0", "float"]
    assert q.layers[0]["relative_rms"] is None
    assert sorted(q.params) == ["b", "v", "w.q8_0"]
    assert error(expected(DATA[1]["x"]), q.compile().run(DATA[1])[0]) < 0.02
    with pytest.raises(rlx.Error, match="policy-layer"):
        rlx.quantise(network(), PARAMS, format="q8_0", layers={"u": "float"})
    with pytest.raises(rlx.Error, match="policy-op"):
        rlx.quantise(network(), PARAMS, format="q8_0", ops={"nosuch": "float"})
    with pytest.raises(rlx.Error, match="calibration-data"):
        rlx.quantise(network(), PARAMS)
    with pytest.raises(rlx.Error, match="calibration-value"):
        rlx.quantise(network(), PARAMS, [{"x": np.full((2, 64), np.nan, "float32")}])


def test_functions_of_trees():
    def f(p, x):
        return {"y": rlx.relu(x @ p["layers"][0]["w"] + p["layers"][0]["b"]) @ p["v"]}

    tree = {"layers": [{"w": PARAMS["w"], "b": PARAMS["b"]}], "v": PARAMS["v"]}
    x = DATA[0]["x"]
    q = rlx.quantise(f, tree, [x])
    assert [row["name"] for row in q.layers] == ["layers.0.w", "v"]
    assert error(expected(x), q(x)["y"]) < 0.03
    with pytest.raises(rlx.Error, match="calibration-data"):
        rlx.quantise(f, tree)


def test_calibrate_and_insert():
    g = network()
    record = rlx.calibrate(g, PARAMS, DATA)
    most = max(np.abs(b["x"]).max() for b in DATA)
    assert record["x"] == rlx.opt.CalibrationEntry.per_tensor(float(most) / 127)
    assert record["w"].axis == 1
    np.testing.assert_allclose(record["w"].scales, np.abs(PARAMS["w"]).max(0) / 127, rtol=1e-6)
    q = rlx.opt.insert_q_dq(g, record)
    f = rlx.compile(q)
    for name, value in PARAMS.items():
        f.set_param(name, value)
    assert "integer-matmul" in f.info["recognition_report"]
    assert error(expected(DATA[0]["x"]), f.run(DATA[0])[0]) < 0.03
    one = rlx.calibrate(g, PARAMS, DATA, taps="x", method="percentile", percentile=100)
    assert list(one) == ["x"]
    with pytest.raises(rlx.Error, match="calibration-tap"):
        rlx.calibrate(g, PARAMS, DATA, taps=["nosuch"])
    with pytest.raises(rlx.Error, match="calibration-tap"):
        rlx.opt.insert_q_dq(g, {"nosuch": record["x"]})
    with pytest.raises(rlx.Error, match="calibration-method"):
        rlx.calibrate(g, PARAMS, DATA, method="maximum")


def test_training_with_rounding():
    g = network()
    q, params, trained = rlx.prepare_qat(g, PARAMS, weight_bits=4, activation_bits=0)
    assert sorted(trained) == ["b", "v", "w"]
    assert str(q).count("fake_quantize") == 2
    r = rlx.convert_qat(q, params)
    f = rlx.compile(q)
    for name, value in params.items():
        f.set_param(name, value)
    np.testing.assert_allclose(r.compile().run(DATA[0])[0], f.run(DATA[0])[0], rtol=1e-4, atol=1e-5)
    assert r.report["bytes_after"] < r.report["bytes_before"] / 4
    same, gone = rlx.opt.quant_propagate(q)
    assert gone == 0 and same == q
    json.dumps(r.report)


def rounded(v, scale, zero=0):
    return (np.clip(np.sign(v) * np.floor(np.abs(v / scale) + 0.5) + zero, -128, 127) - zero) * scale


def test_gradients_go_straight_through():
    x, w = array(5, 8), array(8, 3) * 30  # some of w saturate

    def f(w, x):
        a = rlx.dequantize(rlx.quantize(x, scales=[0.02]), scales=[0.02])
        codes = rlx.transpose(rlx.quantize(w, axis=1, scales=[0.1, 0.2, 0.3], zero_points=[0, 1, 2]), (1, 0))
        return rlx.sum(rlx.tanh(a @ rlx.dequantize(codes, axis=0, scales=[0.1, 0.2, 0.3], zero_points=[0, 1, 2]).T))

    scale, zero = np.array([0.1, 0.2, 0.3]), np.array([0, 1, 2])
    wq, xq = rounded(w.astype("float64"), scale, zero), rounded(x.astype("float64"), 0.02)
    assert (np.abs(w - wq) > 1).any()
    slope = 1 - np.tanh(xq @ wq) ** 2
    for transform in (rlx.grad, lambda f: rlx.jit(rlx.grad(f))):
        np.testing.assert_allclose(transform(f)(w, x), xq.T @ slope, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rlx.grad(f, 1)(w, x), slope @ wq.T, rtol=1e-4, atol=1e-4)
    _, moved = rlx.jvp(f, (w, x), (np.ones_like(w), np.zeros_like(x)))
    np.testing.assert_allclose(moved, (xq.T @ slope).sum(), rtol=1e-4)
    both = rlx.vmap(rlx.grad(f), in_axes=(None, 0))(w, np.stack([x, x]))
    np.testing.assert_allclose(both[1], xq.T @ slope, rtol=1e-4, atol=1e-5)


def test_gradients_through_codes_in_a_scan():
    w, x = array(4, 4), array(3, 4)

    def f(w):
        codes = rlx.quantize(w, scales=[0.05])

        def step(h, row):
            h = rlx.tanh(h @ rlx.dequantize(codes, scales=[0.05]) + row)
            return h, h

        h, _ = rlx.scan(step, rlx.zeros(4), x)
        return rlx.sum(h)

    wq, h, hs = rounded(w.astype("float64"), 0.05), np.zeros(4), []
    for row in x:
        hs.append(h)
        h = np.tanh(h @ wq + row)
    want, g, after = np.zeros((4, 4)), np.ones(4), h
    for before in reversed(hs):
        g = g * (1 - after**2)
        want += np.outer(before, g)
        g, after = wq @ g, before
    np.testing.assert_allclose(rlx.grad(f)(w), want, rtol=1e-4, atol=1e-5)


def test_layers_in_bodies():
    tree = {"u": array(32, 32) / 6, "v": array(32, 4)}

    def f(p, xs):
        def step(h, x):
            h = rlx.tanh(h @ p["u"] + x)
            return h, h

        _, hs = rlx.scan(step, rlx.zeros((2, 32)), xs)
        return hs @ p["v"]

    xs = array(3, 2, 32)
    q = rlx.quantise(f, tree, [xs], format="q8_0")
    assert [(row["name"], row["format"]) for row in q.layers] == [("u", "q8_0"), ("v", "q8_0")]
    h, want = np.zeros((2, 32)), []
    for x in xs:
        h = np.tanh(h @ tree["u"] + x)
        want.append(h @ tree["v"])
    assert error(np.stack(want), q(xs)) < 0.02
    q = rlx.quantise(f, tree, [xs])
    assert [(row["name"], row["format"]) for row in q.layers] == [("u", "int8"), ("v", "int8")]
    assert error(np.stack(want), q(xs)) < 0.03


def test_calibration_of_second_results():
    g = rlx.Graph("split")
    a, b = g.split(g.input("x", (4, 16)), axis=1, sizes=[8, 8])
    g.outputs = [a @ g.param("w", (8, 8)), b @ g.param("v", (8, 8))]
    x, params = array(4, 16), {"w": array(8, 8), "v": array(8, 8)}
    x[:, 8:] *= 100
    record = rlx.calibrate(g, params, [{"x": x}])
    taps = [t for t in record if not isinstance(t, str)]
    assert len(taps) == 2
    (first,) = [t for t in taps if isinstance(t, int)]
    assert (first, 1) in taps
    assert record[first, 1].scales[0] == pytest.approx(np.abs(x[:, 8:]).max() / 127, rel=1e-5)
    assert record[first].scales[0] == pytest.approx(np.abs(x[:, :8]).max() / 127, rel=1e-5)
    f = rlx.compile(rlx.opt.insert_q_dq(g, record))
    f.set_params(params)
    for y, want in zip(f.run({"x": x}), (x[:, :8] @ params["w"], x[:, 8:] @ params["v"])):
        assert error(want, y) < 0.02
