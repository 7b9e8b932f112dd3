// Stages of a program: the examples of the reference's pages, what blocks lower to, provenance, dumps,
// and what is refused.
#include <gtest/gtest.h>

#include "rlx/build.h"
#include "rlx/front/trace.h"
#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/custom.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/indexing/sorting.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/table.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

Type f32(Shape shape) { return {DType::F32, std::move(shape)}; }

template <class F>
void expect_error(std::string_view code, F&& f) {
  try {
    f();
    ADD_FAILURE() << "no error; expected " << code;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::user);
    EXPECT_EQ(e.code(), code) << e.what();
  }
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

std::string op_names(const Graph& g) {
  std::string out;
  for (const Node& n : g.nodes)
    if (n.op->kind != Kind::leaf) out += (out.empty() ? "" : " ") + std::string(n.op->name);
  return out;
}

// Small numbers that differ from element to element and from leaf to leaf.
NamedTensors some_values(const Graph& g) {
  NamedTensors out;
  Values leaves = g.inputs();
  const Values params = g.params();
  leaves.insert(leaves.end(), params.begin(), params.end());
  for (Value v : leaves) {
    Tensor t(g.type(v).dtype, g.type(v).shape.sizes());
    for (int64_t i = 0; i < t.elements(); ++i) {
      const double x = std::sin(0.7 * static_cast<double>(i) + v.node);
      if (is_float(t.dtype()))
        t.set_float(i, 0.5 * x);
      else
        t.set_int(i, i % 2);
    }
    out[g.node(v).get<LeafAttrs>().name] = t;
  }
  return out;
}

void expect_same_values(const Graph& a, const Graph& b) {
  const NamedTensors leaves = some_values(a);
  const Tensors x = evaluate(a, leaves).outputs, y = evaluate(b, leaves).outputs;
  ASSERT_EQ(x.size(), y.size());
  for (size_t k = 0; k < x.size(); ++k) {
    ASSERT_EQ(x[k].type(), y[k].type());
    for (int64_t i = 0; i < x[k].elements(); ++i)
      EXPECT_NEAR(x[k].get_float(i), y[k].get_float(i), 1e-5) << i;
  }
}

// ---- the examples

TEST(Examples, BertLayer) {
  GraphBuilder g("bert_layer");
  const NodeId x = g.input("hidden", f32({4, 15, 384}));
  const NodeId w = g.param("qkv_weight", f32({384, 1152}));
  const NodeId b = g.param("qkv_bias", f32({1152}));
  const NodeId mm = g.matmul(x, w, f32({4, 15, 1152}));
  g.binary(BinaryOp::add, mm, b, f32({4, 15, 1152}));
  EXPECT_EQ(g.len(), 5u);
}

TEST(Examples, PackedResultsOfACustomOp) {
  register_custom_op(
      {.name = "test.sparse_lu",
       .num_inputs = 2,
       .infer = [](std::span<const Type> t, std::string_view) { return Types{t[1]}; },
       .compute =
           [](std::span<const Tensor>, std::string_view) {
             Tensor t(DType::F64, {5});
             for (int64_t i = 0; i < 5; ++i) t.set_float(i, static_cast<double>(i));
             return Tensors{t};
           }});
  const int64_t nnz_l = 2, nnz_u = 3;
  GraphBuilder g("lu");
  const NodeId a = g.input("A", {DType::F64, {2, 2}}), b = g.input("b", {DType::F64, {2}});
  const NodeId lu = g.custom_op_packed("test.sparse_lu", "", {a, b}, {DType::F64, {nnz_l + nnz_u}});
  g.set_outputs({g.narrow_(lu, 0, 0, nnz_l), g.narrow_(lu, 0, nnz_l, nnz_u)});
  const Graph graph = g.finish();
  const Tensors r = evaluate(graph, some_values(graph)).outputs;
  EXPECT_EQ(r[0].get_float(1), 1);
  EXPECT_EQ(r[1].get_float(0), 2);
  EXPECT_EQ(parse(print(graph)), graph);
  expect_error("custom-arity", [&] {
    GraphBuilder h;
    h.custom_op_packed("test.sparse_lu", "", {h.input("x", f32({2}))}, f32({2}));
  });
  expect_error("custom-unknown", [] {
    GraphBuilder h;
    h.custom_op("test.nobody", "", {h.input("x", f32({2}))});
  });
}

TEST(Examples, MatmulBiasGelu) {
  const Graph traced = trace("test", [](Tracer& t) {
    auto x = t.input("x", {4, 15, 384});
    auto w = t.param("w", {384, 1536}), b = t.param("b", {1536});
    return (x.matmul(w) + b).gelu();
  });
  EXPECT_EQ(traced.size(), 6);
  EXPECT_EQ(traced.output_types()[0], f32({4, 15, 1536}));

  GraphBuilder g("test");
  const NodeId x = g.input("x", f32({4, 15, 384}));
  const NodeId w = g.param("w", f32({384, 1536})), b = g.param("b", f32({1536}));
  g.set_outputs({g.gelu(g.add(g.mm(x, w), b))});
  EXPECT_EQ(g.len(), 6u);
  const std::string text = g.inspect();
  for (std::string_view part : {"matmul(%0, %1)", "Gelu(%4)", "return %5"})
    EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
  EXPECT_EQ(g.finish(), traced);
}

TEST(Examples, TheEpilogueOfAProductFuses) {
  GraphBuilder g("fuseable");
  const NodeId x = g.input("x", f32({4, 15, 384}));
  const NodeId w = g.param("w", f32({384, 1536})), b = g.param("b", f32({1536}));
  g.set_outputs({g.gelu(g.add(g.mm(x, w), b))});
  EXPECT_EQ(op_names(fuse_regions(run_passes(g.finish(), default_pipeline()))), "matmul region");
}

TEST(Examples, Operators) {
  const Graph g = trace("ops", [](Tracer& t) {
    auto a = t.input("a", {4, 384}), b = t.input("b", {4, 384});
    auto c = a + b, d = a * b;
    return c - d;
  });
  EXPECT_EQ(g.size(), 5);
  EXPECT_EQ(g.output_types()[0], f32({4, 384}));
}

TEST(Examples, Chaining) {
  const Graph g = trace("chain", [](Tracer& t) {
    return t.input("x", {4, 15, 384}).matmul(t.param("w", {384, 1536})).gelu();
  });
  EXPECT_EQ(g.size(), 4);
  EXPECT_EQ(g.output_types()[0], f32({4, 15, 1536}));
}

TEST(Examples, PyTorchShapedErgonomics) {
  const Graph g = trace("ergonomics", [](Tracer& t) {
    auto a = t.input("a", {4, 8}), b = t.param("b", {8, 4});
    auto c = a.mm(b), d = c + c;
    return d.t().unsqueeze(0).squeeze(0).permute({1, 0});
  });
  EXPECT_EQ(g.output_types()[0], f32({4, 4}));
}

TEST(Examples, DefineLowers) {
  GraphModule m = GraphModule::define("m", [](HirModule& h) {
    const HirNodeId x = h.input("x", f32({2, 8})), w = h.param("w", f32({8, 8}));
    return h.linear(x, w, {}, {}, f32({2, 8}));
  });
  EXPECT_EQ(m.stage(), GraphStage::hir);
  m = std::move(m).lower();
  EXPECT_EQ(m.stage(), GraphStage::mir);
  EXPECT_GE(m.len(), 3u);
}

TEST(Examples, AMirModuleBuildsItsGraph) {
  GraphModule m = GraphModule::mir("raw");
  const HirNodeId x = m.input("x", f32({4}));
  m.set_outputs({x});
  EXPECT_EQ(m.len(), 1u);
  EXPECT_EQ(m->outputs.size(), 1u);
}

TEST(Examples, BlocksThroughAModule) {
  GraphModule m = GraphModule::hir("layer");
  const HirNodeId x = m.input("x", f32({2, 256}));
  const HirNodeId w = m.param("w", {DType::U8, {128, 144}});  // 128 rows of one block of 256
  m.set_outputs({m.dequant_matmul(x, w, {}, {}, parse_scheme("gguf_q4k"), f32({2, 128}))});
  EXPECT_EQ(m.stage(), GraphStage::hir);
  m = std::move(m).lower();
  EXPECT_EQ(m.stage(), GraphStage::mir);
  EXPECT_GE(m.len(), 3u);
}

TEST(Examples, BothEntriesStartAtHir) {
  const GraphModule defined = GraphBuilder::define("m", [](HirModule& h) {
    const HirNodeId x = h.input("x", f32({4}));
    return h.rms_norm(x, x, x, 1e-5, f32({4}));
  });
  EXPECT_EQ(GraphBuilder::hir("m").stage(), GraphStage::hir);
  EXPECT_EQ(defined.stage(), GraphStage::hir);
}

// ---- builders the reference lacks

TEST(MoreBuilders, InferTheirTypes) {
  GraphBuilder g;
  int count = 0;
  auto in = [&](Shape s, DType d = DType::F32) {
    return g.input(fmt::format("x{}", count++), {d, std::move(s)});
  };
  const auto type = [&](NodeId v) { return g.shape(v).to_string(); };
  EXPECT_EQ(type(g.pool(in({1, 2, 4, 4}), ReduceOp::max, {2, 2}, {2, 2}, {0, 0})),
            "[1, 2, 2, 2] f32");
  EXPECT_EQ(type(g.where_(in({4, 1}, DType::Bool), in({3}), in({3}))), "[4, 3] f32");
  EXPECT_EQ(type(g.expand(in({4, 1}), {2, -1, 3})), "[2, 4, 3] f32");
  EXPECT_EQ(type(g.topk(in({4, 9}), 2)), "[4, 2] f32");
  EXPECT_EQ(type(g.scatter_add(in({3, 8}), in({3}), 5)), "[5, 8] f32");
  EXPECT_EQ(type(g.grouped_matmul(in({4, 8}), in({3, 8, 16}), in({4}))), "[4, 16] f32");
  EXPECT_EQ(type(g.dequant_grouped_matmul(in({4, 64}), in({3 * 16 * 68}, DType::U8), in({4}),
                                          parse_scheme("gguf_q8_0"), 16)),
            "[4, 16] f32");
  EXPECT_EQ(type(g.dequant_moe_weights(in({3 * 16 * 68}, DType::U8), parse_scheme("gguf_q8_0"),
                                       {3, 64, 16})),
            "[3, 64, 16] f32");
  EXPECT_EQ(type(g.dot_general(in({5, 2, 3}), in({5, 3, 4}), {2}, {1}, {0}, {0})), "[5, 2, 4] f32");
  EXPECT_EQ(type(g.resize_nearest_2x(in({1, 2, 3, 4}))), "[1, 2, 6, 8] f32");
  const NodeId x = in({4, 8}), s = in({4}), dy = in({4, 8});
  const SteKind ste = SteKind::tanh;
  EXPECT_EQ(type(g.fake_quantize(x, 4, 0, ste, ScaleMode::per_batch)), "[4, 8] f32");
  EXPECT_EQ(type(g.fake_quantize(x, 4, 0, ste, ScaleMode::ema, s)), "[4, 8] f32");
  EXPECT_EQ(type(g.fake_quantize_backward(x, dy, 4, 0, ste)), "[4, 8] f32");
  EXPECT_EQ(type(g.fake_quantize_lsq(x, s, 4, 0)), "[4, 8] f32");
  EXPECT_EQ(type(g.fake_quantize_lsq_backward_x(x, s, dy, 4, 0)), "[4, 8] f32");
  EXPECT_EQ(type(g.fake_quantize_lsq_backward_scale(x, s, dy, 4, 0)), "[4] f32");
  EXPECT_EQ(type(g.fused_swiglu(x, true, DType::F16)), "[4, 4] f16");
  const Values attention{in({2, 3, 8}), in({8, 24}), in({8, 8}), in({2, 3})};
  EXPECT_EQ(type(g.fused_attention_block(attention, 2, 4, false, false)), "[2, 3, 8] f32");
  const Values layer{attention[0], attention[1], attention[2], in({8}), in({8}),
                     in({8, 16}),  in({16, 8}),  in({8}),      in({8}), attention[3]};
  EXPECT_EQ(type(g.fused_transformer_layer(layer, 2, 4, 1e-5, 1e-5, Activation::gelu, false)),
            "[2, 3, 8] f32");
  for (NodeId (GraphBuilder::*compare)(NodeId, NodeId) :
       {&GraphBuilder::ne, &GraphBuilder::le, &GraphBuilder::gt, &GraphBuilder::ge})
    EXPECT_EQ(type((g.*compare)(x, dy)), "[4, 8] bool");
  for (NodeId (GraphBuilder::*f)(NodeId) :
       {&GraphBuilder::sigmoid, &GraphBuilder::log, &GraphBuilder::rsqrt, &GraphBuilder::abs,
        &GraphBuilder::sin, &GraphBuilder::cos, &GraphBuilder::tan, &GraphBuilder::atan,
        &GraphBuilder::round})
    EXPECT_EQ(type((g.*f)(x)), "[4, 8] f32");
  for (NodeId (GraphBuilder::*f)(NodeId, NodeId) :
       {&GraphBuilder::max, &GraphBuilder::min, &GraphBuilder::pow})
    EXPECT_EQ(type((g.*f)(x, dy)), "[4, 8] f32");
  g.finish();
}

// The builders have names of their own for the factors: of [1, 2, 3, 4] the transform begins with 10 times the factor, of
// its inverse too.
TEST(MoreBuilders, FourierFactors) {
  const Tensor x = Tensor::from<float>({8}, {1, 2, 3, 4, 0, 0, 0, 0});
  const auto first = [&](BuilderFftNorm norm, bool inverse) {
    GraphBuilder g("f");
    g.set_outputs({g.fft_norm(g.input("x", f32({8})), inverse, norm)});
    return evaluate(g.finish(), Tensors{x})[0].get_float(0);
  };
  const auto half = [&](BuilderFftNorm norm, bool inverse) {
    GraphBuilder g("h");
    const NodeId in = g.input("x", f32({4}));
    const auto [re, im] = g.rfft(in, norm);
    g.set_outputs({inverse ? g.irfft(re, im, 4, norm) : re});
    return evaluate(g.finish(), Tensors{Tensor::from<float>({4}, {1, 2, 3, 4})})[0].get_float(0);
  };
  EXPECT_FLOAT_EQ(first(BuilderFftNorm::backward, false), 10);
  EXPECT_FLOAT_EQ(first(BuilderFftNorm::backward, true), 10);
  EXPECT_FLOAT_EQ(first(BuilderFftNorm::forward, false), 10);
  EXPECT_FLOAT_EQ(first(BuilderFftNorm::forward, true), 2.5);
  EXPECT_FLOAT_EQ(first(BuilderFftNorm::ortho, false), 5);
  EXPECT_FLOAT_EQ(first(BuilderFftNorm::ortho, true), 5);
  EXPECT_FLOAT_EQ(half(BuilderFftNorm::backward, false), 10);
  EXPECT_FLOAT_EQ(half(BuilderFftNorm::forward, false), 10);
  EXPECT_FLOAT_EQ(half(BuilderFftNorm::ortho, false), 5);
  EXPECT_FLOAT_EQ(half(BuilderFftNorm::backward, true), 4);  // there and back: N times x
  EXPECT_FLOAT_EQ(half(BuilderFftNorm::forward, true), 1);
  EXPECT_FLOAT_EQ(half(BuilderFftNorm::ortho, true), 1);
}

// Its slope is 1, that of rlx::op::round is 0.
TEST(MoreBuilders, RoundingLetsGradientsThrough) {
  GraphBuilder g("r");
  g.set_outputs({g.round(g.input("x", f32({3})))});
  const Tensors d = evaluate(
      jvp(g.finish(), {"x"}),
      Tensors{Tensor::from<float>({3}, {0.4f, 1.5f, -2.6f}), Tensor::from<float>({3}, {1, 2, 3})});
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(d[0].get_float(i), (std::array{0.0, 2.0, -3.0})[static_cast<size_t>(i)]);
    EXPECT_EQ(d[1].get_float(i), static_cast<double>(i + 1));
  }
}

Graph one_op(const Type& t, const AnyOp& op) {
  GraphBuilder g("body");
  g.set_outputs({g.add_node(op, {g.input("x", t)})});
  return g.finish();
}

TEST(MoreBuilders, BranchesLoopsAndRegions) {
  GraphBuilder g;
  const NodeId p = g.input("p", f32({1})), x = g.input("x", f32({3}));
  const Graph negate = one_op(f32({3}), op::neg), keep = one_op(f32({3}), op::abs);
  GraphBuilder below("below");
  below.set_outputs({below.lt(below.sum(below.input("x", f32({3})), {0}, false),
                              below.constant(Tensor::scalar(DType::F32, 10)))});
  GraphBuilder doubling("double");
  const NodeId d = doubling.input("x", f32({3}));
  doubling.set_outputs({doubling.add(d, d)});
  g.set_outputs({g.if_(p, {x}, negate, keep)[0],
                 g.while_({x}, below.finish(), doubling.finish(), 100)[0],
                 g.elementwise_region({x}, negate)[0]});
  const Tensors r =
      evaluate(g.finish(), {{"p", Tensor::from<float>({1}, std::vector<float>{3})},
                            {"x", Tensor::from<float>({3}, std::vector<float>{1, 2, 3})}})
          .outputs;
  EXPECT_EQ(r[0].get_float(2), -3);
  EXPECT_EQ(r[1].get_float(0), 2);
  EXPECT_EQ(r[2].get_float(1), -2);
}

TEST(MoreBuilders, ScansBindConstantsAndRowsInOrder) {
  GraphBuilder body("body");  // carry * scale + row
  const NodeId carry = body.input("carry", f32({})), scale = body.input("scale", f32({})),
               row = body.input("row", f32({}));
  body.set_outputs({body.add(body.mul(carry, scale), row)});
  const Graph step = body.finish();
  GraphBuilder g;
  const NodeId x = g.input("x", f32({})), s = g.input("s", f32({})),
               rows = g.input("rows", f32({3}));
  g.set_outputs({g.scan_with_bcasts_and_xs(x, {s}, {rows}, step, 3)});
  const Tensors r =
      evaluate(g.finish(), {{"x", Tensor::scalar(DType::F32, 1)},
                            {"s", Tensor::scalar(DType::F32, 2)},
                            {"rows", Tensor::from<float>({3}, std::vector<float>{1, 2, 3})}})
          .outputs;
  EXPECT_EQ(r[0].get_float(0), ((1 * 2 + 1) * 2 + 2) * 2 + 3);
}

// ---- what builders refuse

TEST(BuilderErrors, LeaveTheGraphAsItWas) {
  GraphBuilder g;
  const NodeId x = g.input("x", f32({4, 8})), w = g.input("w", f32({8, 3})),
               v = g.input("v", f32({8}));
  const size_t before = g.len();
  expect_error("declared-shape", [&] { g.matmul(x, w, f32({4, 4})); });
  expect_error("declared-shape", [&] { g.binary(BinaryOp::add, x, v, Type{DType::F64, {4, 8}}); });
  expect_error("operand-value", [&] { g.relu({17, 0}); });
  expect_error("operand-value", [&] { g.node({17, 0}); });
  expect_error("operand-value", [&] { g.set_outputs({{17, 0}}); });
  expect_error("conv-kernel", [&] { g.conv2d(x, w, {3, 3}, {}, {}, {}, 1); });
  expect_error("attention-operands",
               [&] { g.attention_kind(x, x, x, 2, 4, AttentionMask::custom()); });
  expect_error("attention-heads", [&] { g.attention_kind(x, x, x, 2, 3, AttentionMask::none()); });
  expect_error("quant-scheme", [&] { g.dequant_matmul_packed(x, w, parse_scheme("int8/32")); });
  expect_error("quant-scheme", [&] { g.dequant_matmul(x, w, v, v, parse_scheme("gguf_q8_0")); });
  expect_error("scan-checkpoints",
               [&] { g.scan_checkpointed(x, one_op(f32({4, 8}), op::neg), 3, 4); });
  expect_error("fft-axes", [&] { g.fftn(x, {0, 1}, false); });
  expect_error("cond-predicate", [&] { g.if_(x, {}, Graph(), Graph()); });
  expect_error("region-op", [&] { g.elementwise_region({x}, one_op(f32({4, 8}), op::softmax)); });
  expect_error("sequence-shape", [&] { g.selective_scan(x, x, x, x, x, 3); });
  expect_error("solve-shape", [&] { g.batched_dense_solve(x, v); });
  EXPECT_EQ(g.len(), before);
}

TEST(BuilderErrors, RewiringIsChecked) {
  GraphBuilder g;
  const NodeId x = g.input("x", f32({4})), y = g.input("y", f32({2})), z = g.relu(x);
  const NodeId after = g.input("z", f32({4}));
  expect_error("rewire-type", [&] { g.set_inputs(z, {y}); });
  expect_error("operand-order", [&] { g.set_inputs(z, {after}); });
  expect_error("arity", [&] { g.set_inputs(z, {x, x}); });
  EXPECT_EQ(g.node(z).in[0], x);
  g.node_mut(z).out[0] = f32({7});
  EXPECT_THROW(g.finish(), Error);
}

// ---- HIR

HirModule swiglu_module(FusionPolicy policy) {
  HirModule m("ffn");
  m.with_fusion_policy(policy);
  const HirNodeId x = m.input("x", f32({4, 8})), up = m.param("up", f32({8, 16})),
                  gate = m.param("gate", f32({8, 16})), down = m.param("down", f32({16, 8}));
  m.set_outputs({m.swiglu_ffn(x, up, gate, down, f32({4, 8}))});
  return m;
}

TEST(Hir, PoliciesDecideWhatIsFused) {
  const Graph fusable = hir_to_graph(swiglu_module(FusionPolicy::fusable));
  const Graph direct = hir_to_graph(swiglu_module(FusionPolicy::direct));
  EXPECT_EQ(fusable.size(), 9);
  EXPECT_EQ(op_names(fusable), "matmul matmul silu mul matmul");
  EXPECT_EQ(op_names(direct), "concat matmul fused_swiglu matmul");
  expect_same_values(fusable, direct);
  EXPECT_EQ(swiglu_module(FusionPolicy::direct).lower_for_autodiff().into_graph(), fusable);
  EXPECT_EQ(HirModule("m").fusion_policy, FusionPolicy::direct);
}

TEST(Hir, LinearWithBias) {
  const auto lowered = [](FusionPolicy policy) {
    HirModule m("linear");
    m.with_fusion_policy(policy);
    const HirNodeId x = m.input("x", f32({4, 8})), w = m.param("w", f32({8, 3})),
                    b = m.param("b", f32({3}));
    m.set_outputs({m.linear(x, w, b, Activation::gelu)});
    return hir_to_graph(m);
  };
  EXPECT_EQ(op_names(lowered(FusionPolicy::direct)), "fused_matmul_bias_act");
  EXPECT_EQ(op_names(lowered(FusionPolicy::fusable)), "matmul add gelu");
  expect_same_values(lowered(FusionPolicy::direct), lowered(FusionPolicy::fusable));
}

TEST(Hir, SharedPairsAreMadeOnce) {
  HirModule m("pair");
  const HirNodeId x = m.input("x", f32({4, 8})), a = m.param("a", f32({8, 3})),
                  b = m.param("b", f32({8, 5}));
  const auto [first, second] = m.shared_linear_pair(x, a, b);
  m.set_outputs({second, first});
  const Graph g = hir_to_graph(m);
  EXPECT_EQ(op_names(g), "matmul matmul");
  EXPECT_EQ(g.output_types()[0], f32({4, 5}));
  EXPECT_EQ(g.output_types()[1], f32({4, 3}));
}

TEST(Hir, DepthwiseConvolutionLooksBack) {
  HirModule m("conv");
  const HirNodeId x = m.input_batch_seq("x", "batch", "seq", 2, DType::F32);
  const HirNodeId w = m.param("w", f32({2, 1, 1, 3}));
  const HirNodeId left = m.input("left", f32({Dim::symbol("batch"), 2, 2}));
  m.set_outputs({m.depthwise_conv1d_causal(x, w, left, 3)});
  EXPECT_EQ(m.shape(m.outputs()[0]), m.shape(x));
  const Graph g = bind(hir_to_graph(m), {{"batch", 1}, {"seq", 4}});
  EXPECT_EQ(op_names(g), "concat transpose reshape conv reshape transpose");
  const NamedTensors v = some_values(g);
  const Tensor y = evaluate(g, v).outputs[0];
  for (int64_t c = 0; c < 2; ++c) {  // the first place sees both rows of the left and its own
    const auto at = [&](const std::string& name, int64_t i) { return v.at(name).get_float(i); };
    EXPECT_NEAR(y.get_float(c),
                at("left", c) * at("w", 3 * c) + at("left", 2 + c) * at("w", 3 * c + 1) +
                    at("x", c) * at("w", 3 * c + 2),
                1e-6);
  }
}

hir::LlamaDecoderBlock llama() {
  return {.num_heads = 4, .head_dim = 4, .num_kv_heads = 2, .eps = 1e-5};
}

HirModule::Ids llama_inputs(HirModule& m, const Dim& batch, const Dim& seq) {
  const auto p = [&](const std::string& name, Shape s) { return m.param(name, f32(std::move(s))); };
  return {m.input("x", f32({batch, seq, 16})),
          p("ln1_g", {16}),
          p("ln1_b", {16}),
          p("q_w", {16, 16}),
          p("k_w", {16, 8}),
          p("v_w", {16, 8}),
          p("o_w", {16, 16}),
          p("ln2_g", {16}),
          p("ln2_b", {16}),
          p("gate_w", {16, 24}),
          p("up_w", {16, 24}),
          p("down_w", {24, 16}),
          p("cos", {8, 2}),
          p("sin", {8, 2})};
}

TEST(Hir, DecoderBlockIsCausalAndSharesHeads) {
  HirModule m("llama");
  const HirModule::Ids in = llama_inputs(m, 2, 3);
  m.set_outputs({m.llama_decoder_block(in, llama(), f32({2, 3, 16}))});
  const Graph g = hir_to_graph(m);
  for (const Node& n : g.nodes) {
    if (n.op == &op::attention) {
      EXPECT_EQ(n.get<AttentionAttrs>().num_kv_heads, 2);
    }
  }
  NamedTensors leaves = some_values(g);
  const Tensor before = evaluate(g, leaves).outputs[0];
  Tensor changed(DType::F32, {2, 3, 16});  // another last token
  for (int64_t i = 0; i < changed.elements(); ++i)
    changed.set_float(i, leaves["x"].get_float(i) + (i / 16 % 3 == 2 ? 1 : 0));
  leaves["x"] = changed;
  const Tensor after = evaluate(g, leaves).outputs[0];
  for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(before.get_float(i), after.get_float(i));
  EXPECT_NE(before.get_float(33), after.get_float(33));

  HirModule symbolic("llama");
  const HirModule::Ids open = llama_inputs(symbolic, Dim::symbol("batch"), Dim::symbol("seq"));
  symbolic.set_outputs({symbolic.transformer_block(open, llama())});
  EXPECT_EQ(label_of(symbolic.nodes().back()), "transformer_block");
  const Graph bound = bind(hir_to_graph(symbolic), {{"batch", 2}, {"seq", 3}});
  expect_same_values(bound, g);
}

TEST(Hir, MtpHeadReadsTheLastToken) {
  HirModule m("mtp");
  const auto p = [&](Shape s) { return m.param(fmt::format("p{}", m.len()), f32(std::move(s))); };
  const auto norm = [&](int64_t width) { return std::pair{p({width}), p({width})}; };
  HirModule::Ids in{m.input("h", f32({2, 3, 8})),
                    m.input("ids", {DType::I32, {2, 3}}),
                    p({3, 1}),
                    p({3, 1}),
                    m.input("last", {DType::I32, {2}}),
                    p({5, 8})};
  const auto add_norm = [&](int64_t width) {
    const auto [w, b] = norm(width);
    in.insert(in.end(), {w, b});
  };
  add_norm(8), add_norm(8);
  in.push_back(p({16, 8}));
  add_norm(8);
  in.insert(in.end(), {p({8, 16}), p({8, 4}), p({8, 4})});
  add_norm(4), add_norm(4);
  in.push_back(p({8, 8}));
  add_norm(8);
  in.insert(in.end(), {p({8, 12}), p({8, 12}), p({12, 8})});
  add_norm(8);
  in.push_back(p({8, 5}));
  const hir::Qwen35MtpHead head{.num_heads = 2,
                                .num_kv_heads = 1,
                                .head_dim = 4,
                                .n_rot = 2,
                                .n_embd = 8,
                                .n_ff = 12,
                                .mtp_vocab = 5};
  m.set_outputs({m.qwen35_mtp_head(in, head, f32({2, 1, 5}))});
  const Graph g = hir_to_graph(m);
  const NamedTensors at = some_values(g);
  const Tensor y = evaluate(g, at).outputs[0];
  EXPECT_EQ(y.type(), f32({2, 1, 5}));
  // Every column of every operand has its part in the result: queries and gates, each norm, both tables.
  for (const auto& [name, t] : at) {
    if (!is_float(t.dtype())) continue;
    for (int64_t column = 0; column < t.sizes().back(); ++column) {
      // What is added to all keys alike, in columns that are not turned, softmax does not see.
      if (name == "p19" && column >= head.n_rot) continue;
      NamedTensors moved = at;
      Tensor& other = moved[name] = Tensor(t.dtype(), t.sizes());
      for (int64_t i = 0; i < t.elements(); ++i)
        other.set_float(
            i, t.get_float(i) +
                   (i % t.sizes().back() == column ? 0.25 + 0.5 * static_cast<double>(i % 3) : 0));
      EXPECT_FALSE(evaluate(g, moved).outputs[0].same_bits(y)) << name << " column " << column;
    }
  }
}

TEST(Hir, NamesReachTheGraph) {
  GraphModule m = GraphModule::hir("named");
  const HirNodeId x = m.input("x", f32({2, 8})), w = m.param("w", f32({8, 8}));
  const HirNodeId y = m.named("proj", [&](HirModule& h) { return h.linear(x, w); });
  const HirNodeId z = m.rms_norm(y, m.param("g", f32({8})), m.param("b", f32({8})), 1e-5);
  m.set_outputs({z});
  EXPECT_TRUE(contains(m.inspect(), "h2 [\"proj\"]")) << m.inspect();
  m = std::move(m).lower();
  const std::string text = m.inspect();
  for (std::string_view part : {"\"proj\"", "hir=h2", "\"rms_norm\"", "hir=h5", "← output"})
    EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
  EXPECT_EQ(parse(print(*m.as_graph())), *m.as_graph());
}

TEST(Hir, WrapsGraphs) {
  const Graph g = hir_to_graph(swiglu_module(FusionPolicy::fusable));
  const HirModule m = HirModule::wrap_mir_graph(g);
  EXPECT_EQ(m.len(), 9u);
  expect_same_values(hir_to_graph(m), g);
}

TEST(Hir, WrapsUpdatesAndSecondResults) {
  Builder b("both");
  const Value x = b.input("x", f32({3})), w = b.param("w", f32({1}));
  const Values top = b.emit(op::topk.def, TopkAttrs{.k = 1}, Values{x});
  b.update("w", op::add(b, top[0], w));
  b.output(top[1]);
  const Graph g = b.finish();
  const HirModule m = HirModule::wrap_mir_graph(g);
  EXPECT_EQ(to_string(m.outputs()[0]), "h2:1");
  EXPECT_TRUE(contains(m.inspect(), "return h2:1\n  update \"w\" <- h3\n")) << m.inspect();
  EXPECT_EQ(hir_from_json(hir_to_json(m)), m);
  const NamedTensors at = some_values(g);
  const Evaluated before = evaluate(g, at), after = evaluate(hir_to_graph(m), at);
  EXPECT_TRUE(after.updates.at("w").same_bits(before.updates.at("w")));
  EXPECT_TRUE(after.outputs[0].same_bits(before.outputs[0]));
}

TEST(Hir, Texts) {
  const HirModule m = swiglu_module(FusionPolicy::direct);
  EXPECT_EQ(m.to_string(),
            "hir @ffn {\n"
            "  h0 = input(\"x\") : [4, 8] f32\n"
            "  h1 = param(\"up\") : [8, 16] f32\n"
            "  h2 = param(\"gate\") : [8, 16] f32\n"
            "  h3 = param(\"down\") : [16, 8] f32\n"
            "  h4 = swiglu_ffn(h0, h1, h2, h3) : [4, 8] f32\n"
            "  return h4\n}\n");
  EXPECT_EQ(m.inspect(),
            "hir @ffn (5 nodes, 1 outputs, fusion=Direct)\n"
            "  block ops: Input=1, Param=3, SwiGLU=1\n"
            "\n"
            "  h0 [input \"x\"]    = input(\"x\") : [4, 8] f32\n"
            "  h1 [param \"up\"]   = param(\"up\") : [8, 16] f32\n"
            "  h2 [param \"gate\"] = param(\"gate\") : [8, 16] f32\n"
            "  h3 [param \"down\"] = param(\"down\") : [16, 8] f32\n"
            "  h4 [\"swiglu_ffn\"] = swiglu_ffn(h0, h1, h2, h3) : [4, 8] f32  ← output\n"
            "  return h4\n");
}

TEST(HirErrors, AreTyped) {
  HirModule m("m");
  const HirNodeId x = m.input("x", f32({4, 8})), w = m.param("w", f32({8, 3}));
  const size_t before = m.len();
  expect_error("declared-shape", [&] { m.linear(x, w, {}, {}, f32({4, 4})); });
  expect_error("wrong-input-count", [&] { m.push(op::hir_swiglu_ffn, {x, w}); });
  expect_error("hir-node", [&] { m.linear(x, HirNodeId{9}); });
  expect_error("hir-node", [&] { m.set_outputs({HirNodeId{9}}); });
  expect_error("quant-operands", [&] { m.dequant_matmul(x, w, {}, {}, parse_scheme("int8/32")); });
  expect_error("wrong-input-count",
               [&] { m.attention(x, x, x, {}, 2, 4, AttentionMask::custom()); });
  EXPECT_EQ(m.len(), before);
  m.node_mut(m.linear(x, w)).in[0] = {7, 0};
  expect_error("hir-node", [&] { m.lower_to_mir(); });
}

// ---- modules

TEST(Modules, StagesHaveWhatTheyHave) {
  GraphModule m = swiglu_module(FusionPolicy::direct);
  EXPECT_TRUE(m.as_hir() && !m.as_mir() && !m.as_lir() && !m.as_graph());
  EXPECT_EQ(m.fusion_policy(), FusionPolicy::direct);
  expect_error("stage", [&] { (void)m->nodes.size(); });
  EXPECT_EQ(m.with_fusion_policy(FusionPolicy::fusable).fusion_policy(), FusionPolicy::fusable);
  const Graph g(m);
  EXPECT_EQ(g.size(), 9);
  m = std::move(m).lower();
  EXPECT_TRUE(!m.as_hir() && m.as_mir() && !m.as_lir() && m.as_graph());
  EXPECT_EQ(m.fusion_policy(), std::nullopt);
  expect_error("stage", [&] { m.with_fusion_policy(FusionPolicy::direct); });
  expect_error("stage", [&] { m.linear({0}, {1}); });
  EXPECT_EQ(m->nodes.size(), 9u);
  m = GraphModule::from_lir(LirModule(std::move(m).into_mir()));
  EXPECT_TRUE(!m.as_hir() && m.as_mir() && m.as_lir() && m.as_graph());
  EXPECT_EQ(m.to_string(), "lir @ffn");
  EXPECT_EQ(m.param("more", f32({2})).index, 9);
  EXPECT_EQ(std::move(m).into_graph().size(), 10);
}

// Kernels that compute nothing: enough to plan memory.
class PlanOnlyKernel final : public StepKernel {
 public:
  std::string name() const override { return "plan"; }
};
class PlanOnlyTarget final : public Target {
 public:
  std::string_view name() const override { return "plan"; }
  Decision accepts(const Node&, const Graph&) const override { return Decision::yes(); }
  Decision takes_view(const Node&, const Graph&, size_t, const View&) const override {
    return Decision::yes();
  }
  std::shared_ptr<const StepKernel> make(const Node&, const Graph&, std::span<const View>,
                                         std::span<const View>) override {
    return std::make_shared<PlanOnlyKernel>();
  }
  std::shared_ptr<const StepKernel> make_copy(const View&, const View&) override {
    return std::make_shared<PlanOnlyKernel>();
  }
  void finish() override {}
};

TEST(Modules, LirPlansWhenSymbolsAreBound) {
  HirModule m("ffn");
  const HirNodeId x = m.input_batch_seq("x", "batch", "seq", 8, DType::F32);
  const HirNodeId w = m.param("w", f32({8, 8}));
  HirNodeId y = x;
  for (int i = 0; i < 4; ++i) y = m.linear(y, w, {}, Activation::relu);
  m.set_outputs({y});
  PlanOnlyTarget target;
  const LirModule open = plan_lir(m.lower_to_mir(), target);
  EXPECT_EQ(open.dynamic_symbols(), (std::vector<std::string>{"batch", "seq"}));
  expect_error("no-plan", [&] { open.plan(); });
  EXPECT_THROW(target.form(open.as_graph().nodes.back(), {}, {}), Error);  // "symbolic-sizes"
  const LirModule lir = specialize_lir(open, {{"batch", 2}, {"seq", 16}}, target);
  EXPECT_TRUE(lir.is_fully_static());
  EXPECT_GT(lir.bytes_saved(), 0);
  EXPECT_NE(lir.fingerprint(), open.fingerprint());
  const std::string text = inspect_lir(lir);
  for (std::string_view part :
       {"lir @ffn {", "fingerprint: ", "arena: ", "phases:", "Prologue: %0, %1", "SteadyState: %2",
        "Epilogue: ", "inputs: \"x\" %0", "params: \"w\" %1", "--- mir ---", "return "})
    EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
}

// ---- JSON

TEST(Json, HirComesBack) {
  HirModule m("all \"of\" it");
  const HirModule::Ids in = llama_inputs(m, Dim::symbol("batch"), 3);
  hir::LlamaDecoderBlock block = llama();
  block.eps = 0.1 + 0.2;
  block.mask = AttentionMask::sliding_window(2);
  const HirNodeId y = m.llama_decoder_block(in, block);
  const HirNodeId z = m.swiglu_ffn(y, in[9], in[10], in[11]);
  Tensor big(DType::F32, {16, 64});
  for (int64_t i = 0; i < big.elements(); ++i)
    big.set_float(i, std::exp(0.01 * static_cast<double>(i)));
  const HirNodeId w = m.constant(big), scalar = m.constant(Tensor::scalar(DType::F32, INFINITY));
  const HirNodeId t = m.linear(z, w, {}, Activation::gelu_tanh);
  m.set_outputs({m.mir({op::concat, {.axis = 2}}, {t, t}), m.mir(op::minimum, {t, scalar})});
  const std::string text = hir_to_json(m);
  EXPECT_EQ(hir_from_json(text), m);
  EXPECT_EQ(hir_to_json(hir_from_json(text)), text);
  for (std::string_view part : {"\"version\": 2", "\"SwiGLU\"", "\"mask\": \"sw=2\"",
                                "\"eps\": 0.30000000000000004", "\"Mir\""})
    EXPECT_TRUE(contains(text, part)) << part;
}

TEST(Json, LirKeepsItsGraph) {
  PlanOnlyTarget target;
  const LirModule lir = plan_lir(swiglu_module(FusionPolicy::fusable).lower_to_mir(), target);
  const std::string text = lir_to_json(lir);
  EXPECT_EQ(lir_from_json(text).as_graph(), lir.as_graph());
  EXPECT_FALSE(lir_from_json(text).has_plan());
  EXPECT_EQ(lir_from_json(text, &target).fingerprint(), lir.fingerprint());
}

TEST(Json, WrongTextIsAnErrorInTheData) {
  const std::string good = hir_to_json(swiglu_module(FusionPolicy::direct));
  const auto refused = [](const std::string& text) {
    try {
      hir_from_json(text);
    } catch (const Error& e) {
      return e.code();
    }
    return std::string("no error");
  };
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(refused("{"), "json");
  EXPECT_EQ(refused("[]"), "json");
  EXPECT_EQ(refused(with("\"version\": 2", "\"version\": 3")), "json-format");
  EXPECT_EQ(refused(with("SwiGLU", "Swish")), "json");
  EXPECT_EQ(refused(with("\"name\": \"x\"", "\"name\": \"x\", \"more\": 1")), "json");
  EXPECT_EQ(refused(with("\"outputs\": [\n  4", "\"outputs\": [\n  4294967300")), "json");
  EXPECT_EQ(refused(with("\"outputs\": [\n  4", "\"outputs\": [\n  9")), "hir-node");
  EXPECT_EQ(refused(with("Direct", "Later")), "json");
  EXPECT_EQ(refused(with("[4, 8] f32", "[4, 8] f3")), "parse");
  EXPECT_EQ(refused(with("[8, 16] f32", "[7, 16] f32")), "concat-shape");
  EXPECT_EQ(refused(with("\"constants\": {}", "\"constants\": {\"0\": \"?\"}")), "json");
}

TEST(Dumps, GraphsAndDifferences) {
  GraphBuilder g("m");
  const NodeId x = g.input("x", f32({2, 8})), w = g.param("w", f32({8, 8}));
  const NodeId y = g.append_node({op::matmul, {}}, {x, w}, {}, "proj");
  g.set_outputs({g.reduce(g.gelu(y), ReduceOp::sum, {0, 1}, false)});
  const Graph graph = g.finish();
  EXPECT_EQ(inspect_graph(graph),
            "graph @m (5 nodes, 1 outputs, 452 B arena)\n"
            "  op kinds: Activation=1, Input=1, MatMul=1, Param=1, Reduce=1\n"
            "\n"
            "  %0 [input \"x\"] = input(\"x\") : [2, 8] f32\n"
            "  %1 [param \"w\"] = param(\"w\") : [8, 8] f32\n"
            "  %2 [\"proj\"]    = matmul(%0, %1) : [2, 8] f32  // \"proj\"\n"
            "  %3             = Gelu(%2) : [2, 8] f32\n"
            "  %4             = reduce_Sum([0, 1])(%3) : [] f32  ← output\n"
            "  return %4\n");
  EXPECT_EQ(inspect_graph_diff(graph, Graph{"e", {}, {}, {}}),
            "  diff: 5 → 0 nodes (1 → 0 outputs)\n"
            "  op delta: Activation-1, Input-1, MatMul-1, Param-1, Reduce-1\n");
  EXPECT_TRUE(inspect_mir(graph).starts_with("mir @m {\n\ngraph @m"));
  EXPECT_TRUE(inspect_mir_stats(graph).starts_with("mir @m — graph @m (5 nodes"));
}

}  // namespace
}  // namespace rlx
