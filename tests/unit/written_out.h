// Layers of models, written out in primitives as exporters write them or with the ops that they mean; and what tests compare of
// the two.
#pragma once

#include <cmath>
#include <random>
#include <regex>

#include "../support/lowered.h"
#include "rlx/ops/attention/attention.h"
#include "rlx/ops/core.h"
#include "rlx/ops/elementwise/activations.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/indexing/scatter.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/rules.h"

namespace rlx::testing {

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

  Graph decoder() { return finish(decoder_layer(x())); }  // GPT-2

  Graph llama() {
    Value h = x(), n = rms_norm(h, "n1");
    const Value angles = b_.input("angles", {kDType, {1, length_, kHead / 2}});
    const Value all = op::reshape(b_, concat({angles, angles}), {{length_, kHead}});
    const Value cos = op::cos(b_, all), sin = op::sin(b_, all);
    const Value q = rope(heads(linear(n, "q", kWidth)), cos, sin),
                k = rope(heads(linear(n, "k", kWidth / kGroup), kHeads / kGroup), cos, sin),
                v = heads(linear(n, "v", kWidth / kGroup), kHeads / kGroup);
    Value a = merged(attention(q, turned(repeated(k)), repeated(v), kNone, true));
    h = op::add(b_, h, linear(a, "o", kWidth));
    n = rms_norm(h, "n2");
    const Value gate = linear(n, "gate", 2 * kWidth), up = linear(n, "up", 2 * kWidth);
    return finish(op::add(b_, h, linear(swiglu(gate, up), "down", kWidth)));
  }

  Graph neighbours() {  // rotated as GPT-J and the first Llama do, on [B, S, H, D]
    const Value q = op::reshape(b_, linear(x(), "q", kWidth), {{kBatch, length_, kHeads, kHead}});
    const Value angles = b_.input("angles", {kDType, {length_, kHead / 2}});
    const Value cos = op::cos(b_, angles), sin = op::sin(b_, angles);
    if (!out_) {
      const Value rows = op::reshape(b_, q, {{kBatch, length_, kWidth}});
      return finish(op::rope(b_, rows, cos, sin, {.head_dim = kHead, .interleaved = true}));
    }
    const Shape beside{1, length_, 1, kHead / 2}, half{kBatch, length_, kHeads, kHead / 2};
    const Value c = op::reshape(b_, cos, {beside}), s = op::reshape(b_, sin, {beside});
    const Value pairs = op::reshape(b_, q, {{kBatch, length_, kHeads, kHead / 2, 2}});
    const Value first = op::reshape(b_, part(pairs, 0, 1), {half}),
                second = op::reshape(b_, part(pairs, 1, 2), {half});
    const Value one = op::sub(b_, op::mul(b_, first, c), op::mul(b_, second, s)),
                other = op::add(b_, op::mul(b_, first, s), op::mul(b_, second, c));
    const Shape column{kBatch, length_, kHeads, kHead / 2, 1};
    const Value both = concat({op::reshape(b_, one, {column}), op::reshape(b_, other, {column})});
    return finish(op::reshape(b_, both, {{kBatch, length_, kWidth}}));
  }

  // The loss of a small GPT: embedding, one layer, classes.
  Graph language_loss() {
    const Value ids = b_.input("ids", {DType::I64, {kBatch, length_}}),
                labels = b_.input("labels", {DType::I64, {kBatch, length_}});
    const Value table = param("table.w", {kClasses, kWidth});
    Value h = op::gather(b_, table, ids, AxisAttrs{0});
    if (out_)
      h = op::reshape(b_,
                      b_.emit(op::gather_nd.def, GatherNdAttrs{},
                              Values{table, op::reshape(b_, ids, {{kBatch, length_, 1}})})[0],
                      {{kBatch, length_, kWidth}});
    const Value logits = linear(decoder_layer(h), "classes", kClasses);
    if (!out_)
      return finish(op::reduce_mean(b_, op::softmax_cross_entropy(b_, logits, labels), {{0, 1}}));
    const Value shifted = op::sub(b_, logits, fold(op::reduce_max, logits));
    const Value sum = fold(op::reduce_sum, op::exp(b_, shifted));
    const Value each = op::take_along_axis(b_, op::sub(b_, shifted, op::log(b_, sum)),
                                           op::reshape(b_, labels, {{kBatch, length_, 1}}), {2});
    const Value picked = op::reshape(b_, each, {{kBatch, length_}});
    return finish(op::neg(b_, op::reduce_mean(b_, picked, {{0, 1}})));
  }

 private:
  static constexpr DType kDType = DType::F32;
  static constexpr int64_t kBatch = 2, kHeads = 4, kHead = 16, kWidth = kHeads * kHead, kGroup = 2,
                           kClasses = 11;

  Value decoder_layer(Value h) {
    Value n = layer_norm(h, "n1");
    Value a = merged(attention(heads(linear(n, "q", kWidth)), turned(heads(linear(n, "k", kWidth))),
                               heads(linear(n, "v", kWidth)), kNone, true));
    h = op::add(b_, h, linear(a, "o", kWidth));
    n = layer_norm(h, "n2");
    return op::add(b_, h, linear(gelu_tanh(linear(n, "up", 3 * kWidth)), "down", kWidth));
  }

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

  Value part(Value v, int64_t from, int64_t to) {
    Shape start(b_.shape(v).size(), Dim(0)), limit = b_.shape(v);
    start.back() = from, limit.back() = to;
    return op::slice(b_, v, {start, limit, {}});
  }
  Value concat(const Values& parts) {
    return b_.emit(op::concat.def, AxisAttrs{b_.type(parts[0]).rank() - 1}, parts)[0];
  }
  Value rope(Value v, Value cos, Value sin) {  // [B, H, S, D]; tables [S, D], as Hugging Face does
    if (!out_) return op::rope(b_, v, cos, sin, {.head_dim = kHead});
    const Shape beside{1, 1, length_, kHead};
    const Value c = op::reshape(b_, cos, {beside}), s = op::reshape(b_, sin, {beside});
    const Value rotated = concat({op::neg(b_, part(v, kHead / 2, kHead)), part(v, 0, kHead / 2)});
    return op::add(b_, op::mul(b_, v, c), op::mul(b_, rotated, s));
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

inline NamedTensors random_leaves(const Graph& g, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  NamedTensors out;
  for (const Node& n : g.nodes) {
    if (n.op != &op::input && n.op != &op::param) continue;
    const bool is_weight = n.op == &op::param && n.type().rank() == 2;
    Tensor t(n.type().dtype, n.type().shape.sizes());
    if (is_int(t.dtype())) {  // of 11 classes
      for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, static_cast<int64_t>(random() % 11));
      out[n.get<LeafAttrs>().name] = t;
      continue;
    }
    for (int64_t i = 0; i < t.elements(); ++i)
      t.set_float(i, normal(random) * (is_weight ? 0.1 : 1));
    out[n.get<LeafAttrs>().name] = t;
  }
  return out;
}

// Without the numbers that nodes have in their graph.
inline std::string stage_of(const Graph& g, Stage stage) {
  static const std::regex number("%[0-9]+");
  return std::regex_replace(stage_text(g, stage), number, "%");
}

}  // namespace rlx::testing
