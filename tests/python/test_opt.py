"""rlx.opt: the optimizer under the names of its documents, over graphs."""

import numpy as np
import pytest
import rlx


def linear(activation="gelu"):
    g = rlx.Graph("linear")
    x, w, b = g.input("x", (3, 9)), g.param("w", (9, 7)), g.param("b", (7,))
    g.outputs = [getattr(g, activation)(x @ w + b)]
    return g


def ops(g):
    return [line.split(" = ")[1].split("(")[0] for line in str(g).splitlines() if " = " in line]


def run(g, **leaves):
    f = rlx.compile(g)
    for name in {n for n, _, _ in g.params}:
        f.set_param(name, leaves.pop(name))
    return [np.asarray(y) for y in f.run(leaves)]


def test_passes_make_named_composites():
    g = linear()
    fused = rlx.opt.run_passes(g, [rlx.opt.FuseMatMulBiasAct(), rlx.opt.DeadCodeElimination()])
    assert ops(fused) == ["input", "param", "param", "fused_matmul_bias_act"]
    assert "exp" in ops(rlx.opt.FuseMatMulBiasAct().run(linear("exp")))
    assert "exp" not in ops(rlx.opt.FuseMatMulBiasAct(epilogues=["exp"]).run(linear("exp")))
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s).astype("float32") for s in ((3, 9), (9, 7), (7,)))
    np.testing.assert_allclose(run(fused, x=x, w=w, b=b)[0], run(g, x=x, w=w, b=b)[0], rtol=1e-5, atol=1e-6)
    assert "matmul" in ops(rlx.opt.unfuse_fused_for_autodiff(fused))


def test_derivatives_of_graphs():
    g = rlx.Graph("cube")
    x = g.param("x", ())
    g.outputs = [x * x * x]
    two = np.float32(2)
    assert [float(y) for y in run(rlx.opt.grad_with_loss(g, ["x"]), x=two)] == [8, 12]
    assert float(run(rlx.opt.grad(g, ["x"]), x=two)[0]) == 12
    assert float(run(rlx.opt.nth_order_grad(g, "x", 2), x=two)[0]) == 12
    assert float(run(rlx.opt.directional_nth_grad(g, "x", ["u"]), x=two, u=np.float32(3))[0]) == 36
    assert len(rlx.opt.hvp(g, ["x"]).outputs) == 4
    assert len(rlx.opt.jvp(g, ["x"]).outputs) == 2
    assert rlx.opt.vmap(g, ["x"], 4).value.outputs[0][1] == (4,)
    with pytest.raises(rlx.Error, match="no-leaf"):
        rlx.opt.grad(g, ["nosuch"])


def test_parameters_become_inputs_or_constants():
    g = linear("exp")
    assert [n for n, _, _ in rlx.opt.promote_params_to_inputs(g, ["w"]).inputs] == ["x", "w"]
    fixed = rlx.opt.specialize_params(g, {"w": np.zeros((9, 7), "float32")})
    assert [n for n, _, _ in fixed.params] == ["b"]


def test_what_a_backend_makes_of_a_graph():
    fused = rlx.opt.FuseMatMulBiasAct().run(linear())
    claim = ["Input", "Param", "MatMul", "Binary", "Expand", "Activation"]
    assert [kind for _, kind in rlx.opt.legalize_for_backend(fused, claim)] == ["fused_matmul_bias_act"]
    graph, report = rlx.opt.prepare_graph_for_backend_with_report(fused, "npu", claim)
    assert report["compile_ready"] and "compile-ready: yes" in str(report)
    assert rlx.opt.legalize_for_backend(graph, claim) == []
    assert rlx.opt.rewrite_for_backend(fused, claim) == graph
    assert not rlx.opt.analyze_dispatch(fused, "npu", claim)["compile_ready"]
    assert "matmul" in rlx.opt.supported_for_target("cpu")
    assert rlx.opt.supports_op(["Binary"], "add")
    with pytest.raises(rlx.Error, match="fusion-target"):
        rlx.opt.supported_for_target("tpu")
    with pytest.raises(rlx.Error, match="policy is PreferNative"):
        rlx.opt.rewrite_for_backend(fused, claim, policy="Sometimes")
    assert rlx.opt.fusion_passes("cpu")[-1] == "dead_code_elimination"
    assert rlx.opt.fusion_passes_for_supported([], skip_fusion=True) == ["LowerControlFlow", "lower_dot_general"]
    assert rlx.opt.fusion_report(linear())["missed"][0]["reason"] == "NotFused"


def golden_mlp():
    import pathlib

    lines = (pathlib.Path(__file__).parents[1] / "golden" / "mlp.txt").read_text().splitlines()[1:]
    return {name: np.array([float.fromhex(v) for v in values]) for name, *values in map(str.split, lines)}


def test_training_in_two_programs():
    golden = golden_mlp()
    sizes = {"w1": (19, 33), "b1": (33,), "w2": (33, 5), "b2": (5,)}
    g = rlx.Graph("mlp")
    x, labels = g.input("x", (7, 19), "float64"), g.input("labels", (7,), "int32")
    w = {name: g.param(name, shape, "float64") for name, shape in sizes.items()}
    h = g.tanh(x @ w["w1"] + w["b1"])
    g.outputs = [g.reduce_mean(g.softmax_cross_entropy(h @ w["w2"] + w["b2"], labels))]
    params = {name: golden[name].reshape(shape) for name, shape in sizes.items()}
    inputs = {"x": golden["x"].reshape(7, 19), "labels": golden["labels"].astype("int32")}

    result = rlx.opt.compile_training(g, list(sizes))
    assert result.forward.startswith("lir @mlp_forward") and result.backward.startswith("lir @mlp_backward")
    assert sorted(result.weights) == sorted(sizes) and result.saved > 0 and not result.state
    f = result.program()
    f.set_params(params)
    np.testing.assert_allclose(np.asarray(f.forward(inputs)[0]), golden["loss"][0], rtol=1e-12)
    for name, d in zip(sizes, f.backward()):
        np.testing.assert_allclose(np.asarray(d).ravel(), golden["d_" + name], rtol=0, atol=1e-12)

    f = rlx.opt.compile_training(g, list(sizes), optimizer="sgd", rate=0.5).program()
    f.set_params(params)
    for _ in range(2):
        f.forward(inputs)
        assert f.backward() == []
    for name, value in f.params().items():
        if name in sizes:
            np.testing.assert_allclose(np.asarray(value).ravel(), golden["after_" + name], rtol=0, atol=1e-12)
    with pytest.raises(rlx.Error, match="run that first") as e:
        f.backward()
    assert e.value.code == "training-order"
    for code, call in (
        ("optimizer", lambda: rlx.opt.compile_training(g, ["w1"], optimizer="adamax")),
        ("optimizer", lambda: rlx.opt.compile_training(g, ["w1"], optimizer="sgd", beta1=0.5)),
        ("schedule", lambda: rlx.opt.compile_training(g, ["w1"], optimizer="sgd", rate=-1)),
        ("no-leaf", lambda: rlx.opt.compile_training(g, ["w9"])),
        ("param-unknown", lambda: f.set_params({"w9": 1.0})),
    ):
        with pytest.raises(rlx.Error) as e:
            call()
        assert e.value.code == code


def test_passes_are_those_of_the_table():
    for name in ("ConstantFolding", "FuseSwiGLU", "LowerControlFlow", "FuseTransformerLayer"):
        p = getattr(rlx.opt, name)()
        assert p.name == rlx._core.opt.named_passes()[name][0] and type(p).__doc__
