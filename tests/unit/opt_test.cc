// The optimizer under the names of its documents: what the named passes make of programs, counted and compared by value.
#include "rlx/opt.h"

#include <gtest/gtest.h>

#include "../support/expect_error.h"
#include "rlx/build.h"
#include "rlx/compile.h"
#include "rlx/front/trace.h"
#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

int count(const Graph& g, const OpDef& op) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == &op;
  return n;
}

std::string ops_of(const Graph& g) {
  std::string out;
  for (const Node& n : g.nodes)
    if (n.op->kind != Kind::leaf) out += (out.empty() ? "" : " ") + std::string(n.op->name);
  return out;
}

// Numbers that differ from element to element and from leaf to leaf.
NamedTensors some_values(const Graph& g) {
  NamedTensors out;
  int leaf = 0;
  for (const Node& n : g.nodes) {
    if (n.op != &op::input && n.op != &op::param) continue;
    Tensor t(n.type().dtype, n.type().shape.sizes());
    ++leaf;
    for (int64_t i = 0; i < t.elements(); ++i) {
      const double x = std::sin(0.7 * static_cast<double>(i % 1009) + leaf);
      if (is_float(t.dtype()))
        t.set_float(i, 0.5 * x);
      else
        t.set_int(i, i % 2);
    }
    out[n.get<LeafAttrs>().name] = t;
  }
  return out;
}

void expect_same_values(const Graph& a, const Graph& b, double tolerance = 1e-5) {
  const NamedTensors leaves = some_values(a);
  NamedTensors fewer;
  for (const Node& n : b.nodes)
    if (n.op == &op::input || n.op == &op::param)
      fewer[n.get<LeafAttrs>().name] = leaves.at(n.get<LeafAttrs>().name);
  const Tensors x = evaluate(a, leaves).outputs, y = evaluate(b, fewer).outputs;
  ASSERT_EQ(x.size(), y.size());
  for (size_t k = 0; k < x.size(); ++k) {
    ASSERT_EQ(x[k].type(), y[k].type());
    for (int64_t i = 0; i < x[k].elements(); ++i)
      ASSERT_NEAR(x[k].get_float(i), y[k].get_float(i),
                  tolerance * (1 + std::abs(x[k].get_float(i))))
          << i;
  }
}

template <class F>
Graph traced(F f) {
  return trace("g", f);
}

// ---- products with bias and activation

Graph linear(int activation, Shape x = {4, 15, 384}, int64_t n = 1536) {
  return traced([&](Tracer& t) {
    auto in = t.input("x", x), w = t.param("w", {x.back(), n}), b = t.param("b", {n});
    auto y = in.matmul(w) + b;
    return activation == 0 ? y : activation == 1 ? y.gelu() : y.exp();
  });
}

TEST(OptFusion, AProductWithItsBiasAndActivation) {
  const Graph g = linear(1);
  ASSERT_EQ(g.size(), 6);
  const Graph fused = opt::FuseMatMulBiasAct().run(g);
  EXPECT_EQ(fused.size(), 4);
  EXPECT_EQ(fused.node(fused.outputs[0]).get<FusedMatmulAttrs>().activation, "gelu");
  const Graph plain = opt::FuseMatMulBiasAct().run(linear(0));
  EXPECT_EQ(plain.size(), 4);
  EXPECT_EQ(plain.node(plain.outputs[0]).get<FusedMatmulAttrs>().activation, "");
  const Graph exp = opt::FuseMatMulBiasAct().run(linear(2));
  EXPECT_EQ(exp.size(), 5);
  EXPECT_EQ(ops_of(exp), "fused_matmul_bias_act exp");
  EXPECT_EQ(ops_of(opt::FuseMatMulBiasAct({"exp"}).run(linear(2))), "fused_matmul_bias_act");
  for (int a : {0, 1, 2}) {
    const Graph small = linear(a, {3, 9}, 70);
    expect_same_values(small, opt::FuseMatMulBiasAct().run(small));
  }
  expect_error("pass-option", "epilogues", [&] { opt::FuseMatMulBiasAct({"matmul"}).run(g); });
}

TEST(OptFusion, ABiasThatIsDeclaredLate) {
  Builder b("late");
  const Value x = b.input("x", {DType::F32, {3, 9}}), w = b.param("w", {DType::F32, {9, 7}}),
              mm = op::matmul(b, x, w);
  b.output(op::add(b, b.param("bias", {DType::F32, {7}}), mm));
  const Graph g = b.finish(), fused = opt::FuseMatMulBiasAct().run(g);
  EXPECT_EQ(ops_of(fused), "fused_matmul_bias_act");
  EXPECT_EQ(fused.params().size(), 2u);
  expect_same_values(g, fused);
}

TEST(OptFusion, WhatAnotherReadsStaysOutside) {
  const auto with = [](Shape bias, bool product_is_output, bool sum_is_output) {
    return opt::FuseMatMulBiasAct().run(traced([&](Tracer& t) -> TracedTensors {
      auto mm = t.input("x", {3, 9}).matmul(t.param("w", {9, 7}));
      auto sum = mm + t.param("b", bias);
      TracedTensors out{sum.gelu()};
      if (product_is_output) out.push_back(mm);
      if (sum_is_output) out.push_back(sum);
      return out;
    }));
  };
  EXPECT_EQ(ops_of(with({7}, false, false)), "fused_matmul_bias_act");
  EXPECT_EQ(ops_of(with({7}, true, false)), "matmul add gelu");
  EXPECT_EQ(ops_of(with({7}, false, true)), "fused_matmul_bias_act gelu");
  EXPECT_EQ(ops_of(with({}, false, false)), "matmul add gelu");
  EXPECT_EQ(ops_of(with({1}, false, false)), "matmul add gelu");
  EXPECT_EQ(ops_of(with({3, 1}, false, false)), "matmul add gelu");
}

// ---- norms

template <class Norm>
Graph residual(Norm norm, bool add_is_output, bool bias = false) {
  return traced([&](Tracer& t) -> TracedTensors {
    auto x = t.input("x", {3, 70}), r = t.input("r", {3, 70});
    auto sum = x + r;
    if (bias) sum = sum + t.param("bias", {70});
    TracedTensors out{norm(sum, t.param("gamma", {70}), t.param("beta", {70}))};
    if (add_is_output) out.push_back(sum);
    return out;
  });
}

template <class Pass, class Norm>
void expect_residual(const OpDef& made, Norm norm) {
  const Graph g = residual(norm, false);
  ASSERT_EQ(g.size(), 6);
  const Graph fused = Pass().run(g);
  EXPECT_EQ(fused.size(), 5);
  EXPECT_EQ(count(fused, made), 1);
  expect_same_values(g, fused);
  EXPECT_EQ(count(Pass().run(residual(norm, true)), made), 0);
  const Graph biased = residual(norm, false, true), one = Pass().run(biased);
  ASSERT_EQ(ops_of(one), made.name);
  EXPECT_TRUE(one.node(one.outputs[0]).template get<FusedResidualAttrs>().has_bias);
  expect_same_values(biased, one);
}

TEST(OptFusion, ResidualNorms) {
  expect_residual<opt::FuseResidualLN>(op::fused_residual_ln.def, [](auto x, auto g, auto b) {
    return op::layer_norm(x, g, b, {-1, 1e-3});
  });
  expect_residual<opt::FuseResidualRmsNorm>(
      op::fused_residual_rms_norm.def,
      [](auto x, auto g, auto b) { return op::rms_norm(x, g, b, {-1, 1e-3}); });
  // Along another axis, or of a sum that is broadcast, it is none.
  const Graph other = traced([](Tracer& t) {
    auto x = t.input("x", {3, 3}), r = t.input("r", {3, 3});
    return op::layer_norm(x + r, t.param("g", {3}), t.param("b", {3}), {0, 1e-5});
  });
  EXPECT_EQ(ops_of(opt::FuseResidualLN().run(other)), "add layer_norm");
  const Graph row = traced([](Tracer& t) {
    auto x = t.input("x", {3, 4}), r = t.input("r", {4});
    return op::layer_norm(x + r, t.param("g", {4}), t.param("b", {4}), {-1, 1e-5});
  });
  EXPECT_EQ(ops_of(opt::FuseResidualLN().run(row)), "add layer_norm");
}

// The rows are merged by a view in front: nothing is copied, and no kernel is added.
TEST(OptFusion, RowsOfANormAreMergedBeforeIt) {
  const auto make = [](bool read_twice) {
    return traced([&](Tracer& t) -> TracedTensors {
      auto x = t.input("x", {1, 8, 512});
      auto norm = op::rms_norm(x, t.param("g", {512}), t.param("b", {512}), {-1, 1e-5});
      TracedTensors out{norm.reshape({8, 512}).matmul(t.param("w", {512, 4}))};
      if (read_twice) out.push_back(norm.exp());
      return out;
    });
  };
  const Graph g = make(false), h = opt::FuseRmsNormReshape().run(g);
  EXPECT_EQ(ops_of(h), "reshape rms_norm matmul");
  for (const Node& n : h.nodes)
    if (n.op == &op::rms_norm) {
      EXPECT_EQ(n.type().shape, (Shape{8, 512}));
    }
  expect_same_values(g, h);
  EXPECT_EQ(ops_of(opt::FuseRmsNormReshape().run(make(true))), "rms_norm reshape matmul exp");
  const auto steps = [](const Graph& at) {
    return lower_to(CompileStage::lir, at, *backend_for("cpu")).as_lir()->plan().steps.size();
  };
  EXPECT_EQ(steps(h), steps(g));
}

// ---- products of one value

Graph projections(size_t n, bool weights_are_inputs = false) {
  return traced([&](Tracer& t) {
    auto x = t.input("x", {5, 9});
    TracedTensors out;
    for (size_t i = 0; i < n; ++i) {
      const std::string name = fmt::format("w{}", i);
      const Shape shape{9, static_cast<int64_t>(7 + i)};
      out.push_back(x.matmul(weights_are_inputs ? t.input(name, shape) : t.param(name, shape)));
    }
    return out;
  });
}

TEST(OptFusion, ProductsOfOneValueAreOne) {
  const Graph two = projections(2), joined = opt::FuseSharedInputMatMul().run(two);
  EXPECT_EQ(ops_of(joined), "concat matmul slice slice");
  for (Value v : joined.outputs) EXPECT_EQ(joined.node(v).op, &op::slice);
  expect_same_values(two, joined);
  const Graph qkv = opt::FuseSharedInputMatMul().run(projections(3));
  EXPECT_EQ(qkv.size(), 9);
  expect_same_values(projections(3), qkv);
  EXPECT_EQ(ops_of(opt::FuseSharedInputMatMul().run(projections(1))), "matmul");
  EXPECT_EQ(ops_of(opt::FuseSharedInputMatMul().run(projections(2, true))), "matmul matmul");
}

Graph dual(bool gate_is_output, bool shared = true) {
  return traced([&](Tracer& t) -> TracedTensors {
    auto x = t.input("x", {5, 9}), z = t.input("z", {5, 9});
    auto gate = x.matmul(t.param("gate", {9, 70}));
    auto up = (shared ? x : z).matmul(t.param("up", {9, 70}));
    TracedTensors out{gate.silu() * up};
    if (gate_is_output) out.push_back(gate);
    return out;
  });
}

TEST(OptFusion, GatedProductsAreOne) {
  const Graph g = dual(false), fused = opt::FuseSwiGLUDualMatmul().run(g);
  EXPECT_EQ(ops_of(fused), "concat matmul fused_swiglu");
  EXPECT_LE(fused.size(), 7);  // with z, which nobody reads and the signature keeps
  expect_same_values(g, fused);
  EXPECT_EQ(count(opt::FuseSwiGLUDualMatmul().run(dual(true)), op::fused_swiglu.def), 0);
  EXPECT_EQ(count(opt::FuseSwiGLUDualMatmul().run(dual(false, false)), op::fused_swiglu.def), 0);
}

Graph halves(bool up_first, bool extra_reader, bool swapped = false) {
  return traced([&](Tracer& t) -> TracedTensors {
    auto x = t.input("x", {5, 18});
    auto low = x.narrow(1, 0, 9), high = x.narrow(1, 9, 9);
    auto up = up_first ? low : high, gate = up_first ? high : low;
    TracedTensors out{swapped ? gate.silu() * up : up * gate.silu()};
    if (extra_reader) out.push_back(up.exp());
    return out;
  });
}

TEST(OptFusion, GatedHalves) {
  for (bool up_first : {true, false})
    for (bool swapped : {true, false}) {
      const Graph g = halves(up_first, false, swapped), fused = opt::FuseSwiGLU().run(g);
      EXPECT_EQ(fused.size(), g.size() - 3);
      EXPECT_EQ(fused.node(fused.outputs[0]).get<FusedSwigluAttrs>().gate_first, !up_first);
      expect_same_values(g, fused);
    }
  EXPECT_EQ(count(opt::FuseSwiGLU().run(halves(true, true)), op::fused_swiglu.def), 0);
}

// ---- blocks

// A post-norm layer of width 8 in 2 heads, written in parts.
Graph layer(bool scaled = false, int64_t tokens = 5) {
  return traced([&](Tracer& t) {
    auto x = t.input("x", {2, tokens, 8}), mask = t.input("mask", {2, tokens});
    auto linear = [&](const TracedTensor& in, const std::string& name, int64_t from, int64_t to) {
      return in.matmul(t.param(name + "_w", {from, to})) + t.param(name + "_b", {to});
    };
    auto norm = [&](const TracedTensor& in, const std::string& name) {
      return in.layer_norm(t.param(name + "_g", {8}), t.param(name + "_b", {8}));
    };
    auto packed = linear(x, "qkv", 8, 24);
    AttentionAttrs a{.num_heads = 2, .has_mask = true};
    if (scaled) a.scale = 0.5;
    auto attended =
        apply(op::attention.def, a,
              {packed.narrow(2, 0, 8), packed.narrow(2, 8, 8), packed.narrow(2, 16, 8), mask})[0];
    auto h1 = norm(linear(attended, "out", 8, 8) + x, "ln1");
    return norm(linear(linear(h1, "fc1", 8, 16).gelu(), "fc2", 16, 8) + h1, "ln2");
  });
}

TEST(OptFusion, AttentionBlocksAndLayers) {
  const Graph g = layer();
  const opt::Passes parts{opt::pass_of<opt::FuseMatMulBiasAct>(),
                          opt::pass_of<opt::FuseAttentionBlock>(),
                          opt::pass_of<opt::FuseResidualLN>()};
  const Graph block = opt::run_passes(g, parts);
  EXPECT_EQ(ops_of(block),
            "fused_attention_block fused_residual_ln fused_matmul_bias_act fused_matmul_bias_act "
            "fused_residual_ln");
  expect_same_values(g, block);
  const Graph whole = opt::FuseTransformerLayer().run(block);
  EXPECT_EQ(ops_of(whole), "fused_transformer_layer");
  expect_same_values(g, whole);
  // A scale of its own, too many rows, a norm in between that is an output: none.
  EXPECT_EQ(count(opt::run_passes(layer(true), parts), op::fused_attention_block.def), 0);
  EXPECT_EQ(count(opt::run_passes(layer(false, 40), parts), op::fused_attention_block.def), 0);
  Graph watched = block;
  for (int32_t i = 0; i < watched.size(); ++i)
    if (watched.node(i).op == &op::fused_attention_block) watched.outputs.push_back({i, 0});
  EXPECT_EQ(count(opt::FuseTransformerLayer().run(watched), op::fused_transformer_layer.def), 0);
  expect_error("pass-option", "threshold",
               [&] { run_passes(g, parse_pipeline("fuse_attention_block(threshold=x)")); });
}

// What attention gives beside its output is not the output, be it of the same type.
TEST(OptFusion, LogarithmsOfAttentionAreNoBlock) {
  const Graph g = traced([](Tracer& t) {
    auto x = t.input("x", {2, 8, 8}), mask = t.input("mask", {2, 8});
    auto linear = [&](const TracedTensor& in, const std::string& name, int64_t to) {
      return in.matmul(t.param(name + "_w", {8, to})) + t.param(name + "_b", {to});
    };
    auto packed = linear(x, "qkv", 24);
    auto both =
        apply(op::attention.def, AttentionAttrs{.num_heads = 8, .has_mask = true},
              {packed.narrow(2, 0, 8), packed.narrow(2, 8, 8), packed.narrow(2, 16, 8), mask});
    return linear(both[1], "out", 8);
  });
  const Graph fused = opt::FuseAttentionBlock().run(opt::FuseMatMulBiasAct().run(g));
  EXPECT_EQ(count(fused, op::fused_matmul_bias_act.def), 2);
  EXPECT_EQ(count(fused, op::fused_attention_block.def), 0);
}

// ---- both ways end in the same kernels

std::string kernels(const Graph& g) {
  std::string out;
  const GraphModule lir = lower_to(CompileStage::lir, g, *backend_for("cpu"));
  for (const Step& s : lir.as_lir()->plan().steps) out += std::string(s.kernel->name()) + "\n";
  return out;
}

TEST(OptFusion, NamedAndGrownEndInTheSameKernels) {
  const std::pair<Graph, opt::Passes> cases[] = {
      {linear(1, {3, 9}, 70), {opt::pass_of<opt::FuseMatMulBiasAct>()}},
      {residual([](auto x, auto g, auto b) { return op::layer_norm(x, g, b); }, false),
       {opt::pass_of<opt::FuseResidualLN>()}},
      {halves(true, false), {opt::pass_of<opt::FuseSwiGLU>()}},
      {layer(),
       {opt::pass_of<opt::FuseMatMulBiasAct>(), opt::pass_of<opt::FuseAttentionBlock>(),
        opt::pass_of<opt::FuseResidualLN>(), opt::pass_of<opt::FuseTransformerLayer>()}},
  };
  for (const auto& [g, passes] : cases) EXPECT_EQ(kernels(opt::run_passes(g, passes)), kernels(g));
}

// ---- regions

const Graph& body_of(const Graph& g) {
  for (const Node& n : g.nodes)
    if (n.op == &op::region) return *n.get<RegionAttrs>().body;
  static const Graph none;
  return none;
}

TEST(OptRegions, AreMarkedAndExpanded) {
  const Graph g = traced([](Tracer& t) {
    auto a = t.input("a", {3, 9}), b = t.input("b", {3, 9}), c = t.input("c", {3, 9});
    return ((a + b) * c).relu();
  });
  const Graph marked = opt::MarkElementwiseRegions().run(g);
  EXPECT_EQ(ops_of(marked), "region");
  EXPECT_EQ(marked.nodes.back().in.size(), 3u);
  const Graph& body = body_of(marked);
  EXPECT_EQ(ops_of(body), "add mul relu");
  EXPECT_EQ(body.nodes[2].in, (Values{{0, 0}, {1, 0}}));  // In0, In1
  EXPECT_EQ(body.nodes[4].in, (Values{{2, 0}, {3, 0}}));  // Step0, In2
  expect_same_values(g, marked);
  EXPECT_EQ(ops_of(opt::UnfuseElementwiseRegions().run(marked)), "add mul relu");
  EXPECT_EQ(ops_of(opt::fuse_elementwise(g)), "region");
}

TEST(OptRegions, WhatEndsThem) {
  const Graph two = traced([](Tracer& t) -> TracedTensors {
    auto sum = t.input("a", {4}) + t.input("b", {4});
    return {sum.relu(), sum.exp()};
  });
  EXPECT_EQ(count(opt::MarkElementwiseRegions().run(two), op::region.def), 0);
  const Graph one = traced([](Tracer& t) { return t.input("a", {4}).relu(); });
  EXPECT_EQ(count(opt::MarkElementwiseRegions().run(one), op::region.def), 0);
  const Graph choice = traced([](Tracer& t) {
    auto a = t.input("a", {4}), b = t.input("b", {4});
    return where(a < b, a, b) + b;
  });
  EXPECT_EQ(ops_of(body_of(opt::MarkElementwiseRegions().run(choice))), "lt select add");
  // A diamond whose inner values nobody else reads.
  const Graph diamond = traced([](Tracer& t) {
    auto e = t.input("a", {4}).exp();
    return e.sin() + e.cos();
  });
  EXPECT_EQ(ops_of(opt::MarkElementwiseRegions().run(diamond)), "region");
  // [2, 1] divides [2, 3] and does not line up with it.
  const Graph column =
      traced([](Tracer& t) { return (t.input("a", {2, 3}).exp() + t.input("b", {2, 1})).exp(); });
  EXPECT_EQ(count(opt::MarkElementwiseRegions().run(column), op::region.def), 0);
  const Graph row =
      traced([](Tracer& t) { return (t.input("a", {2, 3}).exp() + t.input("b", {3})).exp(); });
  EXPECT_EQ(ops_of(opt::MarkElementwiseRegions().run(row)), "region");
  expect_same_values(row, opt::MarkElementwiseRegions().run(row));
}

TEST(OptRegions, Limits) {
  const Graph g = traced([](Tracer& t) {
    auto x = t.input("x", {9});
    for (int i = 0; i < 40; ++i) x = x.sin();
    return x;
  });
  const Graph all = opt::MarkElementwiseRegions(opt::FusionLimits::unbounded()).run(g);
  EXPECT_EQ(count(all, op::region.def), 1);
  const Graph clipped = opt::clip_elementwise_regions(all, opt::FusionLimits::gpu_native());
  EXPECT_EQ(count(clipped, op::region.def), 0);
  EXPECT_EQ(count(clipped, op::sin.def), 40);
  const Graph cut = opt::MarkElementwiseRegions().run(g);
  EXPECT_EQ(count(cut, op::region.def), 2);
  expect_same_values(g, cut);
  const Graph many = traced([](Tracer& t) {
    auto sum = t.input("x0", {4});
    for (int i = 1; i < 20; ++i) sum = sum + t.input(fmt::format("x{}", i), {4});
    return sum;
  });
  for (const Node& n : opt::MarkElementwiseRegions().run(many).nodes)
    if (n.op == &op::region) {
      EXPECT_LE(n.in.size(), 16u);
    }
  expect_same_values(many, opt::MarkElementwiseRegions().run(many));
}

TEST(OptQuantisation, CalibratedScalesBecomeCodes) {
  const Graph g = traced(
      [](Tracer& t) { return op::matmul(t.input("x", {4, 6}), t.param("w", {6, 3})).relu(); });
  const Value x = g.find_leaf("x"), w = g.find_leaf("w");
  EXPECT_EQ(opt::quant_insert::insert_q_dq(g, {}), g);  // nothing is tapped
  const opt::CalibrationRecord record{{x, opt::CalibrationEntry::per_tensor(0.05)},
                                      {w, opt::CalibrationEntry::per_channel(1, {0.1, 0.2, 0.3})}};
  const Graph q = opt::insert_q_dq(g, record);
  EXPECT_EQ(q.size(), g.size() + 4);
  EXPECT_EQ(count(q, op::quantize.def), 2);
  EXPECT_EQ(count(q, op::dequantize.def), 2);
  EXPECT_EQ(q.output_types(), g.output_types());
  EXPECT_EQ(q.node(q.find_leaf("w")).type(), g.type(w));
  const Graph fused = run_pass(q, pass::fuse_quantised);
  EXPECT_EQ(count(fused, op::matmul_integer.def), 1);
  EXPECT_EQ(count(fused, op::matmul.def), 0);
  const opt::quant_insert::CalibrationEntry one = opt::CalibrationEntry::per_tensor(2);
  EXPECT_FALSE(one.axis.has_value());
  EXPECT_EQ(one.zero_points, Ints{0});
}

TEST(OptQuantisation, FakeQuantisationOnce) {
  Builder b("twice");
  const Value x = b.input("x", {DType::F32, {2, 6}}), s = b.param("s", {DType::F32, {1}});
  const auto fake = [&](Value v) {
    return b.emit(op::fake_quantize.def,
                  FakeQuantizeAttrs{.bits = 4, .scale_mode = ScaleMode::fixed}, Values{v, s})[0];
  };
  b.output(op::tanh(b, fake(op::relu(b, fake(x)))));
  const Graph before = b.finish();
  Graph g = before;
  EXPECT_EQ(opt::quant_propagate::run(g), 1);
  const Graph once = opt::DeadCodeElimination().run(g);
  EXPECT_EQ(count(once, op::fake_quantize.def), 1);
  EXPECT_EQ(count(once, op::relu.def), 1);  // what lies between stays
  NamedTensors leaves{{"x", Tensor(DType::F32, {2, 6})}, {"s", Tensor::full(DType::F32, {1}, 0.3)}};
  for (int64_t i = 0; i < 12; ++i) leaves["x"].set_float(i, 0.41 * static_cast<double>(i - 5));
  EXPECT_TRUE(evaluate(before, leaves).outputs[0].same_bits(evaluate(once, leaves).outputs[0]));
  Graph again = once;
  EXPECT_EQ(opt::quant_propagate::run(again), 0);
}

}  // namespace
}  // namespace rlx
