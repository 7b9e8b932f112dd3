"""GraphBuilder and HirModule: the builders' methods and the blocks of the op table."""

import inspect
import math
import pickle
import re
import xml.etree.ElementTree

import numpy as np
import pytest

import rlx
from rlx import _core, op

RNG = np.random.default_rng(0)


def values(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def code_of(f):
    with pytest.raises(rlx.Error) as e:
        f()
    return e.value.code


# ---- GraphBuilder


def test_methods_are_those_of_the_class():
    names = {name for name, _, _ in _core.builder_methods()}
    assert {"mm", "binary", "attention_kind", "if_", "custom_fn_multi", "gaussian_splat_render"} <= names
    assert len(names) == len(_core.builder_methods()) > 170
    for name in names:
        method = getattr(rlx.GraphBuilder, name)
        assert method.__name__ == name and method.__doc__ and method.__qualname__ == f"GraphBuilder.{name}"
        assert next(iter(inspect.signature(method).parameters)) == "self"
    assert str(inspect.signature(rlx.GraphBuilder.topk)) == "(self, x, k, dtype='float32')"


def test_a_program_by_builders():
    g = rlx.GraphBuilder("layer")
    x, w, b = g.input("x", (4, 8)), g.param("w", (8, 3)), g.param("b", (3,))
    y = g.gelu(g.add(g.matmul(x, w, (4, 3)), b))
    z = g.binary("max", y, 0.0)  # operators of arrays and builders write one program
    first, second = g.shared_matmul_pair(x + 1.0, w, w)
    g.outputs = [z, g.reduce(first, "sum", [0], True), g.append_node(("softmax", {"axis": 0}), [second], name="soft")]
    assert g.value.outputs == [("f32", (4, 3)), ("f32", (1, 3)), ("f32", (4, 3))]
    assert '@ "soft"' in str(g) and type(g).__name__ in repr(g) and rlx.parse(str(g)) == g
    a, wv, bv = values(4, 8), values(8, 3), values(3)
    f = g.compile()
    f.set_params({"w": wv, "b": bv})
    got = f.run({"x": a})
    h = a @ wv + bv
    gelu = h * 0.5 * (1 + np.vectorize(math.erf)(h / np.sqrt(2)))
    np.testing.assert_allclose(got[0], np.maximum(gelu, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1], ((a + 1) @ wv).sum(0, keepdims=True), rtol=1e-4, atol=1e-5)
    assert "graph @layer (" in g.inspect()


def test_arguments_of_every_kind():
    g = rlx.GraphBuilder("kinds")
    x = g.input("x", (2, 4, 6))
    body = rlx.GraphBuilder("double")
    body.outputs = [body.add(body.input("c", (2, 4, 6)), 1.0)]
    assert g.attention_kind(x, x, x, 2, 3, "sw=1").shape == (2, 4, 6)
    assert g.scan(x, body, 3).shape == (2, 4, 6)
    assert len(g.custom_fn_multi([x], body)) == 1 and len(g.if_(rlx.ones((1,)), [x], body, body)) == 1
    assert g.cast(x, "float16").dtype == rlx.float16 and g.expand(x, [3, -1, -1, -1]).shape == (3, 2, 4, 6)
    assert g.narrow_(x, 1, 0, rlx.Dim("n")).ndim == 3
    assert len(g.attention_backward_all(x, x, x, x, 2, 3, "causal")) == 3
    assert [v.shape for v in g.fft_real(g.input("s", (8,)), "backward")] == [(8,), (8,)]
    assert g.dequant_matmul_packed(g.input("q", (2, 32)), g.param("p", (3, 34), "uint8"), "gguf_q8_0").shape == (2, 3)
    assert g.fake_quantize(x, 8, None, "identity", "per_batch").shape == x.shape
    meta = g.gaussian_splat_render_meta([0, 0, 3], [0, 0, 0], [0, 1, 0], 60.0, 0.1, 10.0, [0, 0, 0], {"width": 4, "height": 4})
    assert meta.shape == (23,)
    g.outputs = [g.matmul(x, g.param("w", (6, 2), "float32"), ((2, 4, 2), "float32"))]
    assert g.value.nodes > 10


def test_builders_refuse():
    g = rlx.GraphBuilder("refuse")
    x, w = g.input("x", (4, 8)), g.param("w", (8, 3))
    before = g.value.nodes
    assert code_of(lambda: g.matmul(x, w, (4, 4))) == "declared-shape"
    assert code_of(lambda: g.matmul(x, w, ((4, 3), "float16"))) == "declared-shape"
    assert code_of(lambda: g.binary("plus", x, x)) == "parse"
    assert code_of(lambda: g.add_node("nosuchop", [x])) == "op-unknown"
    assert code_of(lambda: g.add_node(("softmax", {"axes": 0}), [x])) == "attribute"
    assert code_of(lambda: g.gaussian_splat_render([x], {})) == "arity"
    other = rlx.GraphBuilder("other").input("y", (4, 8))
    assert code_of(lambda: g.relu(other)) == "trace-mixed"
    with pytest.raises(TypeError):
        g.matmul(x)
    assert g.value.nodes == before and str(g.relu(x).shape) == "(4, 8)"


# ---- HirModule


def swiglu(policy):
    h = rlx.HirModule("ffn", policy)
    x = h.input("x", (4, 8))
    weights = [h.param(n, s) for n, s in {"up": (8, 16), "gate": (8, 16), "down": (16, 8)}.items()]
    h.outputs = h.named("ffn \"1\"", lambda m: m.swiglu_ffn(x, *weights))
    return h


def test_every_block_is_a_method():
    blocks = [e for e in op.ENTRIES.values() if e.stage == "hir"]
    assert len(blocks) == 13 and all(op.FAMILIES[e.name] == "hir" for e in blocks)
    for e in blocks:
        method = getattr(rlx.HirModule, e.name.removeprefix("hir_"))
        assert e.doc in method.__doc__ or e.name == "hir_shared_linear_pair"
    assert "has_bias" not in rlx.HirModule.linear.__doc__
    assert str(inspect.signature(rlx.HirModule.linear)) == "(self, x, w, bias=None, *, activation=None)"


def test_policies_and_names():
    names = {p: re.findall(r"= (\w+)\(%", str(swiglu(p).lower())) for p in ("direct", "fusable")}
    assert names["direct"] == ["concat", "matmul", "fused_swiglu", "matmul"]
    assert names["fusable"] == ["matmul", "matmul", "silu", "mul", "matmul"]
    assert '@ "ffn \\"1\\"" from "hir:h4"' in str(swiglu("direct").lower())
    assert 'h4 ["ffn \\"1\\""]  = swiglu_ffn(h0, h1, h2, h3)' in swiglu("direct").inspect()
    assert code_of(lambda: swiglu("later").lower()) == "parse"


def test_modules_run_and_come_back():
    feed = {"x": values(4, 8)}
    weights = {"up": values(8, 16), "gate": values(8, 16), "down": values(16, 8)}
    gate = feed["x"] @ weights["gate"]
    want = (feed["x"] @ weights["up"] * gate / (1 + np.exp(-gate))) @ weights["down"]
    for policy in ("direct", "fusable"):
        h = swiglu(policy)
        back = rlx.HirModule.from_json(h.to_json())
        assert back == h and back.fusion_policy == policy
        copy = pickle.loads(pickle.dumps(h))
        assert copy == h and type(copy) is rlx.HirModule and copy.fusion_policy == policy
        for f in (h.compile(), rlx.compile(back), rlx.compile(rlx.parse(str(h)))):
            f.set_params(weights)
            np.testing.assert_allclose(f.run(feed)[0], want, rtol=2e-4, atol=1e-4)


def test_flags_follow_from_operands():
    h = rlx.HirModule("flags")
    x, w, b = h.input("x", (2, 3, 4)), h.param("w", (4, 4)), h.param("b", (4,))
    mask = h.input("mask", (2, 3))
    g = h.input("g", (1, 3, 2, 2))
    rates = h.input("rates", (1, 3, 2))
    first, second = h.shared_linear_pair(x, w, w)
    outputs, state = h.gated_delta_net(g, g, g, rates, rates, h.param("state", (1, 2, 2, 2)), state_size=2)
    h.update("state", state)
    h.outputs = [
        h.linear(x, w, b, activation="relu") * 2.0,
        h.linear(x, w),
        h.attention(first, second, x, mask, num_heads=2, head_dim=2, mask="custom"),
        h.dequant_matmul(h.input("q", (2, 32)), h.param("packed", (3, 34), "uint8"), scheme="gguf_q8_0"),
        outputs,
    ]
    text = str(h)
    assert text.count("has_bias=true") == 1 and "carry_state=true" in text and "mask=custom" in text
    assert rlx.HirModule.from_json(h.to_json()) == h
    assert code_of(lambda: h.attention(x, x, x, num_heads=2, head_dim=2, mask="custom")) == "wrong-input-count"


def test_blocks_are_ops():
    x, w = values(2, 3), values(3, 4)
    got = rlx.hir_linear(x, w, activation="tanh")
    np.testing.assert_allclose(got, np.tanh(x @ w), rtol=1e-5)
    grad = rlx.grad(lambda v: rlx.hir_linear(x, v).sum())(rlx.array(w))
    np.testing.assert_allclose(grad, np.repeat(x.sum(0)[:, None], 4, 1), rtol=1e-5)
    batched = rlx.vmap(lambda v: rlx.hir_linear(v, w))(np.stack([x, 2 * x]))
    np.testing.assert_allclose(batched, np.stack([x @ w, 2 * x @ w]), rtol=1e-5)


def test_drawings():
    h = swiglu("direct")
    root = xml.etree.ElementTree.fromstring(h.to_svg())
    kinds = [g.get("class") for g in root.iter("{http://www.w3.org/2000/svg}g")]
    assert sorted(kinds) == ["block", "input", "output"]
    lowered = xml.etree.ElementTree.fromstring(h.lower()._repr_svg_())
    assert [g.get("class") for g in lowered.iter("{http://www.w3.org/2000/svg}g")].count("group") == 1


def test_arguments_of_the_wrong_kind_are_named():
    g = rlx.GraphBuilder("g")
    x = g.input("x", (2, 3))
    for axis in ("a", 1.5, 2**70):
        with pytest.raises(TypeError, match=r"GraphBuilder.softmax\(.*axis.*\): argument 2 cannot be "):
            g.softmax(x, axis)
