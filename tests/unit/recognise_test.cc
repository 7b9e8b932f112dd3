// Layers of models that are written out in primitives, as exporters write them, become the programs that they are with the
// ops that they mean, and have their values.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>

#include "../support/lowered.h"
#include "rlx/ops/attention/attention.h"
#include "rlx/ops/core.h"
#include "rlx/ops/elementwise/activations.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/rules.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

// A builder of layers, of primitives or of the ops that they define.
class Writer {
 public:
  Writer(bool written_out, int64_t length) : out_(written_out), length_(length) {}

  Graph encoder() {  // BERT
    Value h = x(), mask = b_.input("mask", {kDType, {kBatch, 1, 1, length_}});
    Value a = merged(attention(heads(linear(h, "q", kWidth)), turned(heads(linear(h, "k", kWidth))),
                               heads(linear(h, "v", kWidth)), mask, false));
    h = layer_norm(op::add(b_, h, linear(a, "o", kWidth)), "n1");
    const Value m = linear(gelu(linear(h, "up", 3 * kWidth)), "down", kWidth);
    return finish(layer_norm(op::add(b_, h, m), "n2"));
  }

  Graph decoder() {  // GPT-2
    Value h = x(), n = layer_norm(h, "n1");
    Value a = merged(attention(heads(linear(n, "q", kWidth)), turned(heads(linear(n, "k", kWidth))),
                               heads(linear(n, "v", kWidth)), kNone, true));
    h = op::add(b_, h, linear(a, "o", kWidth));
    n = layer_norm(h, "n2");
    return finish(op::add(b_, h, linear(gelu_tanh(linear(n, "up", 3 * kWidth)), "down", kWidth)));
  }

  Graph llama() {
    Value h = x(), n = rms_norm(h, "n1");
    const Value k = heads(linear(n, "k", kWidth / kGroup), kHeads / kGroup),
                v = heads(linear(n, "v", kWidth / kGroup), kHeads / kGroup);
    Value a = merged(
        attention(heads(linear(n, "q", kWidth)), turned(repeated(k)), repeated(v), kNone, true));
    h = op::add(b_, h, linear(a, "o", kWidth));
    n = rms_norm(h, "n2");
    const Value gate = linear(n, "gate", 2 * kWidth), up = linear(n, "up", 2 * kWidth);
    return finish(op::add(b_, h, linear(swiglu(gate, up), "down", kWidth)));
  }

 private:
  static constexpr DType kDType = DType::F32;
  static constexpr int64_t kBatch = 2, kHeads = 4, kHead = 16, kWidth = kHeads * kHead, kGroup = 2;

  Value x() { return b_.input("x", {kDType, {kBatch, length_, kWidth}}); }
  Value param(const std::string& name, const Shape& s) { return b_.param(name, {kDType, s}); }
  Value number(double v) { return b_.constant(kDType, v); }
  Graph finish(Value v) {
    b_.output(v);
    return b_.finish();
  }
  Value fold(const Op<ReduceAttrs>& op, Value v) {
    return op(b_, v, {{b_.type(v).rank() - 1}, true});
  }

  Value linear(Value v, const std::string& name, int64_t width) {
    const Value w = param(name + ".w", {b_.shape(v).back(), width});
    return op::add(b_, op::matmul(b_, v, w), param(name + ".b", {width}));
  }
  Value heads(Value v, int64_t n = kHeads) {
    return op::transpose(b_, op::reshape(b_, v, {{kBatch, length_, n, kHead}}), {{0, 2, 1, 3}});
  }
  Value merged(Value v) {
    return op::reshape(b_, op::transpose(b_, v, {{0, 2, 1, 3}}), {{kBatch, length_, kWidth}});
  }
  Value turned(Value v) { return out_ ? op::transpose(b_, v, {{0, 1, 3, 2}}) : v; }
  Value repeated(Value v) {
    if (!out_) return v;
    const int64_t n = kHeads / kGroup;
    v = op::reshape(b_, v, {{kBatch, n, 1, length_, kHead}});
    v = op::broadcast(b_, v, {{kBatch, n, kGroup, length_, kHead}});
    return op::reshape(b_, v, {{kBatch, kHeads, length_, kHead}});
  }

  Value attention(Value q, Value k, Value v, Value bias, bool causal) {
    if (!out_) {
      AttentionAttrs a{.num_heads = kHeads,
                       .num_kv_heads = b_.shape(k)[1].value(),
                       .mask = causal ? MaskKind::causal : MaskKind::none,
                       .has_bias = bias.valid(),
                       .layout = AttentionLayout::head_major};
      Values in{q, k, v};
      if (bias.valid()) in.push_back(op::sub(b_, bias, fold(op::reduce_max, bias)));
      return b_.emit(op::attention.def, a, in)[0];
    }
    Value s = op::div(b_, op::matmul(b_, q, k), number(std::sqrt(double{kHead})));
    if (bias.valid()) s = op::add(b_, s, bias);
    if (causal) {
      const Value row = op::iota(b_, {}, {DType::I64, {length_, 1}, 0}),
                  column = op::iota(b_, {}, {DType::I64, {1, length_}, 1});
      s = op::select(b_, op::ge(b_, row, column), s, number(-INFINITY));
    }
    const Value e = op::exp(b_, op::sub(b_, s, fold(op::reduce_max, s)));
    return op::matmul(b_, op::div(b_, e, fold(op::reduce_sum, e)), v);
  }

  Value layer_norm(Value v, const std::string& name) {
    const Value g = param(name + ".g", {kWidth}), t = param(name + ".t", {kWidth});
    if (!out_) return op::layer_norm(b_, v, g, t, {-1, 1e-5});
    const Value d = op::sub(b_, v, fold(op::reduce_mean, v));
    const Value variance = fold(op::reduce_mean, op::pow(b_, d, number(2)));
    const Value y = op::div(b_, d, op::sqrt(b_, op::add(b_, variance, number(1e-5))));
    return op::add(b_, op::mul(b_, y, g), t);
  }
  Value rms_norm(Value v, const std::string& name) {
    const Value g = param(name + ".g", {kWidth});
    if (!out_) return op::rms_norm(b_, v, g, full(b_, {kDType, {kWidth}}, 0), {-1, 1e-6});
    const Value mean = fold(op::reduce_mean, op::mul(b_, v, v));
    return op::mul(b_, g, op::mul(b_, v, op::rsqrt(b_, op::add(b_, mean, number(1e-6)))));
  }
  Value gelu(Value v) {
    if (!out_) return op::gelu(b_, v);
    const Value e = op::erf(b_, op::div(b_, v, number(std::sqrt(2.0))));
    return op::mul(b_, op::mul(b_, v, op::add(b_, e, number(1))), number(0.5));
  }
  Value gelu_tanh(Value v) {
    if (!out_) return op::gelu_tanh(b_, v);
    const Value cubic = op::mul(b_, op::pow(b_, v, number(3)), number(0.044715));
    const Value t = op::tanh(b_, op::mul(b_, op::add(b_, v, cubic), number(std::sqrt(2 / M_PI))));
    return op::mul(b_, op::mul(b_, v, number(0.5)), op::add(b_, t, number(1)));
  }
  Value swiglu(Value gate, Value up) {
    if (!out_) return op::swiglu(b_, gate, up);
    return op::mul(b_, op::mul(b_, gate, op::sigmoid(b_, gate)), up);
  }

  bool out_;
  int64_t length_;
  Builder b_{"layer"};
};

NamedTensors random_leaves(const Graph& g, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  NamedTensors out;
  for (const Node& n : g.nodes) {
    if (n.op != &op::input && n.op != &op::param) continue;
    const bool is_weight = n.op == &op::param && n.type().rank() == 2;
    Tensor t(n.type().dtype, n.type().shape.sizes());
    for (int64_t i = 0; i < t.elements(); ++i)
      t.set_float(i, normal(random) * (is_weight ? 0.1 : 1));
    out[n.get<LeafAttrs>().name] = t;
  }
  return out;
}

// Without the numbers that nodes have in their graph.
std::string stage_of(const Graph& g, Stage stage) {
  static const std::regex number("%[0-9]+");
  return std::regex_replace(stage_text(g, stage), number, "%");
}

using Layer = Graph (Writer::*)();

void expect_recognised(Layer layer) {
  for (int64_t length : {9, 70, 130}) {
    SCOPED_TRACE(fmt::format("length {}", length));
    const Graph plain = (Writer(true, length).*layer)(), named = (Writer(false, length).*layer)();
    for (Stage stage : {Stage::lower, Stage::plan, Stage::kernel})
      EXPECT_EQ(stage_of(plain, stage), stage_of(named, stage));
    const NamedTensors leaves = random_leaves(plain, 7);
    const Tensor want = evaluate(plain, leaves).outputs[0];
    CompiledGraph f = Session("cpu").compile(plain);
    NamedTensors inputs;
    for (const auto& [name, value] : leaves)
      if (name == "x" || name == "mask")
        inputs[name] = value;
      else
        f.set_param(name, value);
    const Tensor got = f.run(inputs)[0];
    for (int64_t i = 0; i < want.elements(); ++i)
      ASSERT_NEAR(got.get_float(i), want.get_float(i), 2e-5 * (1 + std::abs(want.get_float(i))))
          << i;
  }
}

// Keys that one mask hides or two: a row whose keys are all hidden by one at least looks at those that the other leaves.
TEST(Recognise, RowsThatMasksHide) {
  Builder b("rows");
  const Type matrix{DType::F32, {1, 1, 4, 4}};
  const Value q = b.input("q", matrix), k = b.input("k", matrix), v = b.input("v", matrix),
              bias = b.input("bias", {DType::F32, {4, 4}});
  const Value s = op::add(b, op::matmul(b, q, k, {.transpose_b = true}), bias);
  b.output(op::matmul(b, op::softmax(b, s, {3}), v));
  const Graph g = b.finish();
  ASSERT_NE(stage_text(g, Stage::lower).find("attention"), std::string::npos);
  CompiledGraph f = Session("cpu").compile(g);
  const Tensor zero = Tensor::full(DType::F32, {1, 1, 4, 4}, 0);
  Tensor eye(DType::F32, {1, 1, 4, 4});
  for (int64_t i = 0; i < 4; ++i) eye.set_float(5 * i, 1);
  for (double hidden : {-1e9, -1e30}) {
    Tensor mask(DType::F32, {4, 4});
    for (int64_t i = 0; i < 16; ++i) mask.set_float(i, hidden * (1 + (i % 4 == 1)));
    for (int64_t i = 12; i < 16; ++i) mask.set_float(i, -INFINITY);
    const Tensor y = f.run({{"q", zero}, {"k", zero}, {"v", eye}, {"bias", mask}})[0];
    for (int64_t i = 0; i < 12; ++i)
      EXPECT_NEAR(y.get_float(i), i % 4 == 1 ? 0 : 1.0 / 3, 1e-6) << i;
    for (int64_t i = 12; i < 16; ++i) EXPECT_TRUE(std::isnan(y.get_float(i))) << i;
  }
}

TEST(Recognise, Encoder) { expect_recognised(&Writer::encoder); }
TEST(Recognise, Decoder) { expect_recognised(&Writer::decoder); }
TEST(Recognise, Llama) { expect_recognised(&Writer::llama); }

}  // namespace
}  // namespace rlx::testing
