// Layers in bodies of control flow: their weights are stored outside, and the program has the values of the float one over
// the weights that the blocks hold. Weights that several layers read are stored once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "../support/expect_error.h"
#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/ops.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/quantise/quantise.h"

namespace rlx {
namespace {

Tensor normal(Ints sizes, uint64_t seed, double deviation = 0.2) {
  Tensor t(DType::F32, std::move(sizes));
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> d(0, deviation);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, d(rng));
  return t;
}

Tensors run(const Graph& g, const NamedTensors& params, const NamedTensors& inputs) {
  CompiledGraph f = Session().compile(g);
  for (Value v : g.params()) {
    const std::string& name = g.node(v).get<LeafAttrs>().name;
    f.set_param(name, params.at(name));
  }
  return f.run(inputs);
}

void expect_near(const Tensor& want, const Tensor& got, double tolerance) {
  ASSERT_EQ(want.type(), got.type());
  for (int64_t i = 0; i < want.elements(); ++i)
    ASSERT_NEAR(want.get_float(i), got.get_float(i), tolerance) << i;
}

// What q8_0 makes of the rows of a matrix (of its columns).
Tensor through_blocks(const Tensor& w, bool columns = false) {
  Builder b("blocks");
  Value rows = b.input("w", w.type());
  if (columns) rows = matrix_transpose(b, rows);
  const Type type = b.type(rows);
  Shape flat{type.shape[0], type.shape.elements().divide(type.shape[0]).value()};
  const SchemeAttrs s{parse_scheme("gguf_q8_0")};
  const Value packed = op::quantise_blocks(b, reshape_to(b, rows, flat), s);
  Value back = reshape_to(b, op::dequantise_blocks(b, packed, {s.scheme, flat}), type.shape);
  if (columns) back = matrix_transpose(b, back);
  b.output(back);
  return evaluate(b.finish(), {{"w", w}}).outputs[0];
}

template <class F>
Body body_of(const Types& types, F&& f) {
  Builder b("body");
  Values in;
  for (const Type& t : types) in.push_back(b.input(fmt::format("in{}", in.size()), t));
  for (Value v : f(b, in)) b.output(v);
  return b.finish();
}

Type f32(Shape s) { return {DType::F32, std::move(s)}; }

std::string rows_of(const QuantiseReport& r) {
  std::string out;
  for (const LayerReport& l : r.layers) out += l.name + "=" + l.format + " ";
  return out;
}

// Rows of a table, a recurrence whose weight lies transposed and is scaled inside, a branch with a convolution, a loop in
// the loop, and a product behind it all.
Graph network() {
  Builder b("net");
  const Value ids = b.input("ids", {DType::I32, {3, 2}}), start = b.input("h", f32({2, 32})),
              yes = b.input("yes", {DType::Bool, {}});
  const Value table = b.param("table", f32({7, 32})), u = b.param("u", f32({32, 32})),
              c = b.param("c", f32({32, 32, 1})), v = b.param("v", f32({32, 32})),
              head = b.param("head", f32({32, 5}));
  const Types types{f32({2, 32}),  {DType::I32, {2}}, {DType::Bool, {}}, f32({7, 32}),
                    f32({32, 32}), f32({32, 32, 1}),  f32({32, 32})};
  ScanAttrs s;
  s.length = 3, s.num_carries = 1, s.num_xs = 1;
  s.body = body_of(types, [](Builder& i, const Values& in) -> Values {
    const Value x = op::gather(i, in[3], in[1], {.axis = 0});
    const Value twice = op::mul(i, in[4], i.constant_like(in[4], 2));
    const Value h = op::tanh(i, op::add(i, op::matmul(i, in[0], twice, {.transpose_b = true}), x));
    const Types branch{f32({2, 32}), f32({32, 32, 1})};
    const Body then = body_of(branch, [](Builder& j, const Values& y) -> Values {
      const Value wide = op::reshape(j, y[0], {{2, 32, 1}});
      ConvAttrs a;
      a.stride = a.dilation = {1}, a.low = a.high = {0};
      return {op::reshape(j, op::conv(j, wide, y[1], a), {{2, 32}})};
    });
    const Body otherwise =
        body_of(branch, [](Builder&, const Values& y) -> Values { return {y[0]}; });
    const Value chosen =
        i.emit(op::cond.def, CondAttrs{then, otherwise}, Values{in[2], h, in[5]})[0];
    WhileAttrs w;
    w.num_carries = 2, w.max_iterations = 2;
    const Types loop{{DType::I32, {}}, f32({2, 32}), f32({32, 32})};
    w.cond = body_of(loop, [](Builder& j, const Values& y) -> Values {
      return {op::lt(j, y[0], j.constant(DType::I32, 2))};
    });
    w.body = body_of(loop, [](Builder& j, const Values& y) -> Values {
      return {op::add(j, y[0], j.constant(DType::I32, 1)), op::tanh(j, op::matmul(j, y[1], y[2]))};
    });
    const Value looped =
        i.emit(op::while_loop.def, w, Values{i.constant(DType::I32, 0), chosen, in[6]})[1];
    return {looped, x};
  });
  const Values out = b.emit(op::scan.def, s, Values{start, ids, yes, table, u, c, v});
  b.output(op::matmul(b, out[0], head));
  b.output(out[1]);
  return b.finish();
}

const NamedTensors& network_params() {
  static const NamedTensors params{{"table", normal({7, 32}, 1, 1)},
                                   {"u", normal({32, 32}, 2, 0.06)},
                                   {"c", normal({32, 32, 1}, 3)},
                                   {"v", normal({32, 32}, 4, 0.15)},
                                   {"head", normal({32, 5}, 5)}};
  return params;
}

NamedTensors network_inputs(bool yes) {
  Tensor ids(DType::I32, {3, 2});
  for (int64_t i = 0; i < 6; ++i) ids.set_int(i, (i * 5) % 7);
  return {{"ids", ids}, {"h", normal({2, 32}, 6)}, {"yes", Tensor::scalar(DType::Bool, yes)}};
}

TEST(QuantiseBodies, WeightsAreStoredOutside) {
  const std::vector<NamedTensors> data{network_inputs(true), network_inputs(false)};
  const Quantised q = quantise(network(), network_params(), data, {.format = "q8_0"});
  EXPECT_EQ(rows_of(q.report), "table=q8_0 u=q8_0 c=q8_0 v=q8_0 head=q8_0 ");
  EXPECT_EQ(q.params.size(), 5u);
  for (const auto& [name, value] : q.params) EXPECT_EQ(value.dtype(), DType::U8) << name;
  for (const LayerReport& l : q.report.layers) {
    EXPECT_LT(l.bytes_after, l.bytes_before / 3) << l.name;
    EXPECT_EQ(l.relative_rms.has_value(), l.name == "head") << l.name;
  }
  EXPECT_LT(q.report.bytes_after, q.report.bytes_before / 3);
  ASSERT_EQ(q.report.outputs.size(), 2u);
  EXPECT_GT(*q.report.outputs[0].relative_rms, 1e-5);
  EXPECT_LT(*q.report.outputs[0].relative_rms, 0.05);

  NamedTensors held;
  for (const auto& [name, value] : network_params())
    held[name] = through_blocks(value, name == "v" || name == "head");
  // The blocks hold 2u: the same codes, twice the scale.
  for (const NamedTensors& batch : data) {
    const Tensors want = run(network(), held, batch), got = run(q.graph, q.params, batch);
    for (size_t k = 0; k < want.size(); ++k) expect_near(want[k], got[k], 2e-5);
  }
}

TEST(QuantiseBodies, EveryKindOfFormat) {
  const NamedTensors in = network_inputs(true);
  const Tensors want = run(network(), network_params(), in);
  for (const char* format : {"int8/16", "int8a/16", "int4/8", "fp8e4m3", "nvfp4/16", "q4k"}) {
    SCOPED_TRACE(format);
    QuantiseOptions o{.format = format, .ops = {{"gather", "q8_0"}}};
    if (std::string(format) == "q4k") o.layers = {{"v", "q4_0"}};  // 32 rows are no blocks of 256
    const Quantised q = quantise(network(), network_params(), {}, o);
    const Tensors got = run(q.graph, q.params, in);
    double error = 0, size = 0;
    for (int64_t i = 0; i < want[0].elements(); ++i) {
      error += std::pow(want[0].get_float(i) - got[0].get_float(i), 2);
      size += std::pow(want[0].get_float(i), 2);
    }
    EXPECT_LT(std::sqrt(error / size), 0.4);
    EXPECT_GT(error, 0);
  }
}

// ---- int8

int count_inside(const Graph& g, const OpDef& op) {
  int out = 0;
  for (const Node& n : g.nodes) {
    out += n.op == &op;
    for (const NamedBody& b : bodies(n.attrs)) out += count_inside(b.graph, op);
  }
  return out;
}

TEST(QuantiseBodies, Int8IsOfIntegersInside) {
  const std::vector<NamedTensors> data{network_inputs(true), network_inputs(false)};
  const Quantised q = quantise(network(), network_params(), data);
  EXPECT_EQ(rows_of(q.report), "table=float u=int8 c=int8 v=int8 head=int8 ");
  EXPECT_EQ(count_inside(q.graph, *&op::matmul_integer), 3);
  EXPECT_EQ(count_inside(q.graph, *&op::conv_integer), 1);
  EXPECT_EQ(count_inside(q.graph, *&op::matmul) + count_inside(q.graph, *&op::conv), 0);
  for (const char* name : {"u.int8", "c.int8", "v.int8", "head.int8"})
    EXPECT_EQ(q.params.at(name).dtype(), DType::I8) << name;
  EXPECT_EQ(q.params.size(), 5u);
  EXPECT_EQ(q.report.layers[1].bytes_after, 32 * 32 + 4 * 32);
  EXPECT_LT(*q.report.outputs[0].relative_rms, 0.05);
  EXPECT_GT(*q.report.outputs[0].relative_rms, 1e-5);
  const Quantised mixed =
      quantise(network(), network_params(), data, {.layers = {{"u", "q8_0"}, {"c", "float"}}});
  EXPECT_EQ(rows_of(mixed.report), "table=float u=q8_0 c=float v=int8 head=int8 ");
  EXPECT_LT(*mixed.report.outputs[0].relative_rms, 0.05);
}

// h = tanh(h w) in a loop, written out: the scale of h is that of the largest element over all steps and batches.
TEST(QuantiseBodies, ActivationsAreThoseOfAllSteps) {
  constexpr int64_t kSteps = 4, kSize = 8;
  for (bool asymmetric : {false, true}) {
    SCOPED_TRACE(asymmetric);
    Builder b("net");
    WhileAttrs loop;
    loop.num_carries = 2;
    const Types types{{DType::I32, {}}, f32({1, kSize}), f32({kSize, kSize})};
    loop.cond = body_of(types, [](Builder& i, const Values& in) -> Values {
      return {op::lt(i, in[0], i.constant(DType::I32, kSteps))};
    });
    loop.body = body_of(types, [](Builder& i, const Values& in) -> Values {
      const Value h = op::matmul(i, in[1], in[2]);
      return {op::add(i, in[0], i.constant(DType::I32, 1)), op::mul(i, h, h)};
    });
    const Value h = b.input("h", f32({1, kSize})), w = b.param("w", f32({kSize, kSize}));
    b.output(b.emit(op::while_loop.def, loop, Values{b.constant(DType::I32, 0), h, w})[1]);
    const Graph g = b.finish();
    const Tensor weight = normal({kSize, kSize}, 3, 0.6);
    const std::vector<NamedTensors> data{{{"h", normal({1, kSize}, 1, 0.3)}},
                                         {{"h", normal({1, kSize}, 2, 1)}}};
    QuantiseOptions o;
    o.calibration.activations.asymmetric = asymmetric;
    const Quantised q = quantise(g, {{"w", weight}}, data, o);
    EXPECT_EQ(rows_of(q.report), "w=int8 ");

    using Row = std::vector<double>;
    const auto step = [&](const Row& x, auto&& element) {
      Row out(kSize);
      for (int64_t j = 0; j < kSize; ++j) {
        for (int64_t i = 0; i < kSize; ++i) out[at(j)] += x[at(i)] * element(i, j);
        out[at(j)] *= out[at(j)];
      }
      return out;
    };
    const auto row_of = [&](const Tensor& t) {
      Row out;
      for (int64_t i = 0; i < kSize; ++i) out.push_back(t.get_float(i));
      return out;
    };
    double low = 0, high = 0;
    for (const NamedTensors& batch : data) {
      Row x = row_of(batch.at("h"));
      for (int64_t s = 0; s < kSteps; ++s) {
        for (double v : x) low = std::min(low, v), high = std::max(high, v);
        x = step(x, [&](int64_t i, int64_t j) { return weight.get_float(i * kSize + j); });
      }
    }
    const double scale = asymmetric ? (high - low) / 255 : std::max(high, -low) / 127;
    const double zero = asymmetric ? std::round(-128 - low / scale) : 0;
    const auto rounded = [](double v, double s, double z) {
      return (std::clamp(std::round(v / s) + z, -128.0, 127.0) - z) * s;
    };
    const auto column = [&](int64_t i, int64_t j) {
      double most = 0;
      for (int64_t k = 0; k < kSize; ++k)
        most = std::max(most, std::fabs(weight.get_float(k * kSize + j)));
      return rounded(weight.get_float(i * kSize + j), most / 127, 0);
    };
    for (const NamedTensors& batch : data) {
      Row x = row_of(batch.at("h"));
      for (int64_t s = 0; s < kSteps; ++s) {
        for (double& v : x) v = rounded(v, scale, zero);
        x = step(x, column);
      }
      const Tensor got = run(q.graph, q.params, batch)[0];
      for (int64_t i = 0; i < kSize; ++i)
        EXPECT_NEAR(got.get_float(i), x[at(i)], 1e-4 * (1 + std::fabs(x[at(i)]))) << i;
    }
  }
}

TEST(QuantiseBodies, WhatTheDataDoesNotReachStaysFloat) {
  const std::vector<NamedTensors> data{network_inputs(false)};
  const Quantised q = quantise(network(), network_params(), data);
  EXPECT_EQ(rows_of(q.report), "table=float u=int8 c=float v=int8 head=int8 ");
  EXPECT_NE(q.report.layers[2].skipped.find("never came"), std::string::npos);
  EXPECT_TRUE(q.params.at("c").same_bits(network_params().at("c")));
  expect_error("calibration-data", "there is no data",
               [] { quantise(network(), network_params(), {}, {.layers = {{"head", "float"}}}); });
  std::vector<NamedTensors> bad{network_inputs(true)};
  bad[0]["h"].set_float(3, NAN);
  expect_error("calibration-value", "u", [&] { quantise(network(), network_params(), bad); });
}

// Products of two activations, and sums that are too long.
TEST(QuantiseBodies, Int8OfTwoActivations) {
  for (int64_t size : {16, 40000}) {
    Builder b("net");
    ScanAttrs s;
    s.length = 3, s.num_carries = 1, s.num_xs = 1;
    s.body = body_of({f32({2, size}), f32({2, size})}, [](Builder& i, const Values& in) -> Values {
      return {op::tanh(i, op::add(i, in[0], in[1])),
              op::matmul(i, in[0], in[1], {.transpose_b = true})};
    });
    const Value x = b.input("x", f32({2, size})), xs = b.input("xs", f32({3, 2, size}));
    b.output(b.emit(op::scan.def, s, Values{x, xs})[1]);
    const Graph g = b.finish();
    const NamedTensors in{{"x", normal({2, size}, 1)}, {"xs", normal({3, 2, size}, 2)}};
    const std::vector<NamedTensors> data{in};
    if (size > 100) {
      expect_error("policy-idle", "32 bits", [&] { quantise(g, {}, data); });
      continue;
    }
    const Quantised q = quantise(g, {}, data);
    EXPECT_EQ(count_inside(q.graph, *&op::matmul_integer), 1);
    EXPECT_LT(*q.report.outputs[0].relative_rms, 0.03);
  }
}

// What changes from step to step is no weight: a carry, a row of stacked weights, a parameter that is written.
TEST(QuantiseBodies, WhatChangesIsNoWeight) {
  Builder b("net");
  const Value x = b.input("x", f32({2, 32})), stacked = b.param("stacked", f32({3, 32, 32})),
              carried = b.param("carried", f32({32, 32})),
              written = b.param("written", f32({32, 32}));
  ScanAttrs s;
  s.length = 3, s.num_carries = 2, s.num_xs = 1;
  s.body = body_of({f32({2, 32}), f32({32, 32}), f32({32, 32}), f32({32, 32})},
                   [](Builder& i, const Values& in) -> Values {
                     const Value h = op::matmul(i, op::matmul(i, in[0], in[2]), in[1]);
                     return {op::matmul(i, h, in[3]), op::neg(i, in[1])};
                   });
  b.output(b.emit(op::scan.def, s, Values{x, carried, stacked, written})[0]);
  b.update("written", op::neg(b, written));
  expect_error("policy-idle", "neither operand is made of weights alone", [g = b.finish()] {
    quantise(g,
             {{"stacked", normal({3, 32, 32}, 1)},
              {"carried", normal({32, 32}, 2)},
              {"written", normal({32, 32}, 3)}},
             {}, {.format = "q8_0"});
  });
}

// ---- what wraps layers

TEST(QuantiseBodies, FunctionsCheckpointsAndRecurrentLayers) {
  Builder b("net");
  const Value x = b.input("x", f32({4, 2, 32}));
  const Value w = b.param("w", f32({32, 32})), v = b.param("v", f32({32, 32}));
  const auto product = [](Builder& i, const Values& in) -> Values {
    return {op::matmul(i, in[0], in[1])};
  };
  const Types types{f32({4, 2, 32}), f32({32, 32})};
  Value h =
      b.emit(op::checkpoint.def, CheckpointAttrs{.body = body_of(types, product)}, Values{x, w})[0];
  h = b.emit(op::custom_fn.def, CustomFnAttrs{body_of(types, product), {}, {}}, Values{h, v})[0];
  const Value wi = b.param("wi", f32({1, 128, 32})), r = b.param("r", f32({1, 128, 32})),
              bias = b.param("bias", f32({1, 256})),
              zero = b.constant(Tensor(DType::F32, {1, 2, 32}));
  b.output(b.emit(op::lstm.def, LstmAttrs{}, Values{h, wi, r, bias, zero, zero})[0]);
  const Graph g = b.finish();
  const NamedTensors params{{"w", normal({32, 32}, 1)},
                            {"v", normal({32, 32}, 2)},
                            {"wi", normal({1, 128, 32}, 3)},
                            {"r", normal({1, 128, 32}, 4)},
                            {"bias", normal({1, 256}, 5)}};
  const Quantised q = quantise(g, params, {}, {.format = "q8_0"});
  EXPECT_EQ(rows_of(q.report), "w=q8_0 v=q8_0 wi=q8_0 r=q8_0 ");
  for (const auto& [name, value] : q.params)
    EXPECT_EQ(value.dtype(), name == "bias" ? DType::F32 : DType::U8) << name;
  NamedTensors held = params;
  for (const char* name : {"w", "v"}) held[name] = through_blocks(params.at(name), true);
  for (const char* name : {"wi", "r"})
    held[name] = through_blocks(params.at(name).reshaped({128, 32})).reshaped({1, 128, 32});
  const NamedTensors in{{"x", normal({4, 2, 32}, 6, 1)}};
  expect_near(run(g, held, in)[0], run(q.graph, q.params, in)[0], 1e-5);
}

// ---- weights that are read more than once

TEST(QuantiseShared, OneWeightIsStoredOnce) {
  Builder b("net");
  const Value ids = b.input("ids", {DType::I32, {3}}), table = b.param("table", f32({9, 64})),
              w = b.param("w", f32({64, 64}));
  Value h = op::gather(b, table, ids, {.axis = 0});
  for (int k = 0; k < 2; ++k) h = op::tanh(b, op::matmul(b, h, w));
  h = op::matmul(b, h, w, {.transpose_b = true});  // other rows, other blocks
  b.output(op::matmul(b, h, table, {.transpose_b = true}));
  const Graph g = b.finish();
  const NamedTensors params{{"table", normal({9, 64}, 1, 1)}, {"w", normal({64, 64}, 2)}};
  Tensor at(DType::I32, {3});
  for (int64_t i = 0; i < 3; ++i) at.set_int(i, 4 * i);
  const NamedTensors in{{"ids", at}};
  const Quantised q = quantise(g, params, {}, {.format = "q8_0"});
  EXPECT_EQ(rows_of(q.report), "table=q8_0 w=q8_0 w#2=q8_0 w#3=q8_0 table#2=q8_0 ");
  EXPECT_EQ(q.params.size(), 3u);  // the table, w by columns and w by rows
  int64_t bytes = 0;
  for (const auto& [name, value] : q.params) bytes += static_cast<int64_t>(value.bytes());
  EXPECT_EQ(q.report.bytes_after, bytes);
  const Tensor want = run(g, params, in)[0], got = run(q.graph, q.params, in)[0];
  double error = 0, size = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    error += std::pow(want.get_float(i) - got.get_float(i), 2);
    size += std::pow(want.get_float(i), 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0.03);
  // Another format is another weight.
  const Quantised two =
      quantise(g, params, {}, {.format = "q8_0", .layers = {{"table#2", "q4_0"}}});
  EXPECT_EQ(two.params.size(), 4u);
}

}  // namespace
}  // namespace rlx
