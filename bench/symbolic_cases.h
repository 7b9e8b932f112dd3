// Models whose sizes are symbols: an encoder over [?batch, ?length] tokens, a decoder over [1, ?length], a conv net over
// [2, 3, ?height, ?width] and a recurrence over ?steps with its gradient. For bench/symbolic and the tests of symbolic sizes.
#pragma once

#include <map>

#include "rlx/front/trace.h"
#include "rlx/ops/ops.h"
#include "rlx/train/functions.h"
#include "rlx/transform/reverse.h"

namespace rlx::symbolic {

struct SymbolicProgram {
  std::string name;
  Graph graph;
  std::map<std::string, std::pair<int64_t, int64_t>> sizes;  // of each symbol: drawn from
};

inline Dim symbol(const char* name) { return Dim::symbol(name); }

inline TracedTensor dense_layer(Tracer& t, const TracedTensor& x, const std::string& name,
                                int64_t in, int64_t out) {
  return x.matmul(t.param(name + ".w", {in, out})) + t.param(name + ".b", {out});
}

inline TracedTensor norm_layer(Tracer& t, const TracedTensor& x, const std::string& name,
                               int64_t width) {
  return x.layer_norm(t.param(name + ".g", {width}), t.param(name + ".c", {width}));
}

inline TracedTensor self_attention(Tracer& t, const TracedTensor& x, const std::string& name,
                                   int64_t width, int64_t heads, MaskKind mask,
                                   const TracedTensor* padding) {
  Values in;
  for (const char* part : {".q", ".k", ".v"})
    in.push_back(dense_layer(t, x, name + part, width, width).value());
  if (padding) in.push_back(padding->value());
  const AttentionAttrs attrs{
      .num_heads = heads, .num_kv_heads = heads, .mask = mask, .has_mask = padding != nullptr};
  const TracedTensor a = t.wrap(t.builder().emit(op::attention.def, attrs, in)[0]);
  return dense_layer(t, a, name + ".o", width, width);
}

inline SymbolicProgram symbolic_bert(int64_t layers, int64_t width, int64_t heads, int64_t vocab) {
  Graph g = trace("bert", [&](Tracer& t) {
    const Dim batch = symbol("batch"), length = symbol("length");
    const TracedTensor ids = t.input("ids", {batch, length}, DType::I32),
                       mask = t.input("mask", {batch, length});
    TracedTensor x = op::gather(t.param("words", {vocab, width}), ids, {.axis = 0});
    const TracedTensor at = t.wrap(op::iota(t.builder(), {}, {DType::I32, {length}, 0}));
    x = norm_layer(t, x + op::gather(t.param("places", {512, width}), at, {.axis = 0}), "e", width);
    for (int64_t i = 0; i < layers; ++i) {
      const std::string name = fmt::format("l{}", i);
      x = norm_layer(t, x + self_attention(t, x, name, width, heads, MaskKind::none, &mask),
                     name + ".n1", width);
      const TracedTensor h = dense_layer(t, x, name + ".up", width, 4 * width).gelu();
      x = norm_layer(t, x + dense_layer(t, h, name + ".down", 4 * width, width), name + ".n2",
                     width);
    }
    return x;
  });
  return {"bert", std::move(g), {{"batch", {1, 8}}, {"length", {1, 200}}}};
}

inline SymbolicProgram symbolic_gpt(int64_t layers, int64_t width, int64_t heads, int64_t vocab) {
  Graph g = trace("gpt2", [&](Tracer& t) {
    const Dim length = symbol("length");
    const TracedTensor ids = t.input("ids", {1, length}, DType::I32);
    const TracedTensor words = t.param("words", {vocab, width});
    TracedTensor x = op::gather(words, ids, {.axis = 0}) +
                     op::slice(t.param("places", {1024, width}), {.limit = {length, width}});
    for (int64_t i = 0; i < layers; ++i) {
      const std::string name = fmt::format("h{}", i);
      x = x + self_attention(t, norm_layer(t, x, name + ".n1", width), name, width, heads,
                             MaskKind::causal, nullptr);
      const TracedTensor h =
          dense_layer(t, norm_layer(t, x, name + ".n2", width), name + ".up", width, 4 * width);
      x = x + dense_layer(t, op::gelu_tanh(h), name + ".down", 4 * width, width);
    }
    return norm_layer(t, x, "n", width).matmul(words.t());
  });
  return {"gpt2", std::move(g), {{"length", {1, 200}}}};
}

inline SymbolicProgram symbolic_conv_net() {
  Graph g = trace("conv_net", [](Tracer& t) {
    const auto block = [&](const TracedTensor& x, const std::string& name, int64_t in, int64_t out,
                           int64_t stride) {
      const TracedTensor y = op::conv(x, t.param(name + ".w", {out, in, 3, 3}),
                                      {.stride = {stride, stride}, .low = {1, 1}, .high = {1, 1}});
      return t
          .wrap(
              op::batch_norm_training(t.builder(), {y.value(), t.param(name + ".g", {out}).value(),
                                                    t.param(name + ".b", {out}).value()}))
          .relu();
    };
    TracedTensor h = block(t.input("x", {2, 3, symbol("height"), symbol("width")}), "c1", 3, 16, 1);
    h = op::pool(h, {.kind = PoolKind::max, .kernel = {2, 2}, .stride = {2, 2}});
    h = block(h, "c2", 16, 16, 1) + h;
    h = block(h, "c3", 16, 24, 2).mean({2, 3});
    return dense_layer(t, h, "head", 24, 10).softmax();
  });
  return {"conv_net", std::move(g), {{"height", {8, 70}}, {"width", {8, 70}}}};
}

inline SymbolicProgram symbolic_rnn() {
  Graph g = trace("rnn", [](Tracer& t) {
    const TracedTensor xs = t.input("xs", {symbol("steps"), 8, 20}), h0 = t.input("h0", {8, 33});
    const TracedTensor w = t.param("w", {20, 33}), u = t.param("u", {33, 33}),
                       b = t.param("b", {33});
    auto cell = [&](Tracer&, const TracedTensors& h, const TracedTensors& x) -> ScanResult {
      const TracedTensor next = (x[0].matmul(w) + b + h[0].matmul(u)).tanh();
      return {{next}, {next}};
    };
    return t.scan({h0}, {xs}, cell).ys[0].square().mean();
  });
  return {"rnn", value_and_grad(g, {"w", "u", "b"}), {{"steps", {1, 120}}}};
}

}  // namespace rlx::symbolic
