#include "replay.h"

#include "gpt_case.h"
#include "rlx/ops/ops.h"
#include "rlx/train/functions.h"
#include "rlx/train/train_step.h"
#include "rlx/transform/reverse.h"

namespace rlx::testing {
namespace {

TracedTensor affine(const TracedTensor& x, const TracedTensor& w, const TracedTensor& b) {
  return x.matmul(w) + b;
}

// An encoder layer with padding: 3 sequences of 40 of width 96.
Graph bert_layer() {
  return trace("bert_layer", [](Tracer& t) {
    const int64_t width = 96, hidden = 384;
    const TracedTensor x = t.input("x", {3, 40, width}), mask = t.input("mask", {3, 40});
    auto matrix = [&](const char* name, int64_t k, int64_t n) { return t.param(name, {k, n}); };
    auto vector = [&](const char* name, int64_t n) { return t.param(name, {n}); };
    const TracedTensor q = affine(x, matrix("wq", width, width), vector("bq", width)),
                       k = affine(x, matrix("wk", width, width), vector("bk", width)),
                       v = affine(x, matrix("wv", width, width), vector("bv", width));
    const TracedTensor a =
        t.wrap(op::attention(t.builder(), {q.value(), k.value(), v.value(), mask.value()},
                             {.num_heads = 6, .num_kv_heads = 6, .has_mask = true}));
    const TracedTensor h = (x + affine(a, matrix("wo", width, width), vector("bo", width)))
                               .layer_norm(vector("g1", width), vector("b1", width));
    const TracedTensor wide = affine(h, matrix("w1", width, hidden), vector("c1", hidden)).gelu();
    return (h + affine(wide, matrix("w2", hidden, width), vector("c2", width)))
        .layer_norm(vector("g2", width), vector("b2", width));
  });
}

// A decoder layer with rotary positions, shared key heads and a gated feed-forward.
Graph llama_layer() {
  return trace("llama_layer", [](Tracer& t) {
    const int64_t width = 128, heads = 8, kv_heads = 2, head = 16, length = 70, hidden = 344;
    const TracedTensor x = t.input("x", {1, length, width});
    const TracedTensor cos = t.input("cos", {length, head / 2}),
                       sin = t.input("sin", {length, head / 2});
    const TracedTensor zero = t.zeros({width});
    const TracedTensor a = op::rms_norm(x, t.param("g1", {width}), zero);
    const TracedTensor q = a.matmul(t.param("wq", {width, heads * head})),
                       k = a.matmul(t.param("wk", {width, kv_heads * head})),
                       v = a.matmul(t.param("wv", {width, kv_heads * head}));
    const RopeAttrs rope{.head_dim = head, .n_rot = head};
    const TracedTensor o = t.wrap(op::attention(
        t.builder(),
        {op::rope(q, cos, sin, rope).value(), op::rope(k, cos, sin, rope).value(), v.value()},
        {.num_heads = heads, .num_kv_heads = kv_heads, .mask = MaskKind::causal}));
    const TracedTensor h = x + o.matmul(t.param("wo", {heads * head, width}));
    const TracedTensor f = op::rms_norm(h, t.param("g2", {width}), zero);
    const TracedTensor gate = f.matmul(t.param("w_gate", {width, hidden})).silu(),
                       up = f.matmul(t.param("w_up", {width, hidden}));
    return h + (gate * up).matmul(t.param("w_down", {hidden, width}));
  });
}

// One token against a cache of 200, which the step writes.
Graph decode_step() {
  return trace("decode_step", [](Tracer& t) {
    const int64_t width = 64, heads = 4, cache = 200;
    const TracedTensor x = t.input("x", {1, 1, width}), at = t.input("at", {3}, DType::I32);
    TracedTensor keys = t.param("keys", {1, cache, width}),
                 values = t.param("values", {1, cache, width});
    keys = op::dynamic_update_slice(keys, x.matmul(t.param("wk", {width, width})), at);
    values = op::dynamic_update_slice(values, x.matmul(t.param("wv", {width, width})), at);
    t.update("keys", keys);
    t.update("values", values);
    const TracedTensor o = t.wrap(op::attention(
        t.builder(),
        {x.matmul(t.param("wq", {width, width})).value(), keys.value(), values.value()},
        {.num_heads = heads, .num_kv_heads = heads}));
    return (x + o).matmul(t.param("head", {width, 300})).argmax();
  });
}

TracedTensor conv_block(Tracer& t, const TracedTensor& x, const std::string& name, int64_t in,
                        int64_t out, int64_t stride) {
  const TracedTensor y = op::conv(x, t.param(name + ".w", {out, in, 3, 3}),
                                  {.stride = {stride, stride}, .low = {1, 1}, .high = {1, 1}});
  const Value n = op::batch_norm_training(
      t.builder(),
      {y.value(), t.param(name + ".g", {out}).value(), t.param(name + ".b", {out}).value()});
  return t.wrap(n).relu();
}

TracedTensor conv_loss(Tracer& t) {
  TracedTensor h = conv_block(t, t.input("x", {4, 3, 34, 34}), "c1", 3, 16, 1);
  h = op::pool(h, {.kind = PoolKind::max, .kernel = {2, 2}, .stride = {2, 2}});
  const TracedTensor skip = h;
  h = conv_block(t, h, "c2", 16, 16, 1) + skip;
  h = conv_block(t, h, "c3", 16, 24, 2).mean({2, 3});
  const TracedTensor logits = affine(h, t.param("w", {24, 10}), t.param("b", {10}));
  return cross_entropy(logits, t.input("y", {4}, DType::I32));
}

Graph step_of(const Graph& loss, const TrainOptions& options) {
  NamedTensors zeros;
  for (Value v : loss.params())
    zeros.emplace(loss.node(v).get<LeafAttrs>().name,
                  Tensor(loss.type(v).dtype, loss.type(v).shape.sizes()));
  return train_step(loss, zeros, options).graph;
}

// Forward, backward and one step of SGD with momentum.
Graph conv_net() {
  return step_of(trace("conv_net", conv_loss), {.optimizer = sgd({.momentum = 0.9})});
}

// A recurrence over 50 time steps and its gradient.
Graph rnn_scan() {
  const Graph g = trace("rnn_scan", [](Tracer& t) {
    const TracedTensor xs = t.input("xs", {50, 8, 20}), h0 = t.input("h0", {8, 33});
    const TracedTensor w = t.param("w", {20, 33}), u = t.param("u", {33, 33}),
                       b = t.param("b", {33});
    auto cell = [&](Tracer&, const TracedTensors& h, const TracedTensors& x) -> ScanResult {
      const TracedTensor next = (affine(x[0], w, b) + h[0].matmul(u)).tanh();
      return {{next}, {next}};
    };
    return t.scan({h0}, {xs}, cell).ys[0].square().mean();
  });
  return value_and_grad(g, {"w", "u", "b"});
}

// Newton's method until it has converged, then one of two ends.
Graph control_flow() {
  return trace("control_flow", [](Tracer& t) {
    const TracedTensor x = t.input("x", {100});
    auto step = [&](Tracer&, const TracedTensors& y, const TracedTensors&) -> ScanResult {
      return {{(y[0] + x / y[0]) * 0.5}, {}};
    };
    const TracedTensor root = t.scan({x}, {}, step, {.length = 12}).carries[0];
    return t.cond(
        op::lt((root.square() - x).abs().max(), t.scalar(1e-3)), [&](Tracer&) { return root; },
        [&](Tracer& in) { return root * in.scalar(0); });
  });
}

Graph attention_backward() {
  const Graph g = trace("attention_backward", [](Tracer& t) {
    const Shape shape{2, 130, 64};
    const TracedTensor q = t.input("q", shape), k = t.input("k", shape), v = t.input("v", shape);
    const TracedTensor o =
        t.wrap(op::attention(t.builder(), {q.value(), k.value(), v.value()},
                             {.num_heads = 4, .num_kv_heads = 4, .mask = MaskKind::causal}));
    return (o * t.input("weights", shape)).sum();
  });
  return grad(g, {"q", "k", "v"});
}

// A loss in the frequency domain.
Graph fft_loss() {
  const Graph g = trace("fft_loss", [](Tracer& t) {
    const TracedTensor x = t.input("x", {6, 300}), y = t.input("y", {6, 300});
    const TracedTensor d = op::rfft(x) - op::rfft(y);
    return op::complex_norm_sq(d).mean();
  });
  return value_and_grad(g, {"x"});
}

// Squares: values per row read along the columns, a row minimum, a product between.
Graph distances() {
  return trace("distances", [](Tracer& t) {
    const TracedTensor x = t.input("x", {130, 24});
    const TracedTensor norms = x.square().sum({1});
    const TracedTensor d = norms.unsqueeze(1) + norms - x.matmul(x.t()) * 2;
    return TracedTensors{d.min({1}), (d / d.sum({1})).softmax()};
  });
}

// Statistics of a whole tensor, its rows and its columns.
Graph statistics() {
  return trace("statistics", [](Tracer& t) {
    const TracedTensor x = t.input("x", {700, 900});
    const TracedTensor mean = x.mean();
    return TracedTensors{mean,
                         (x - mean).square().mean().sqrt(),
                         x.max({0}),
                         x.abs().sum({1}),
                         x.exp().sum().log(),
                         x.cumsum(1).select(1, -1)};
  });
}

// Experts chosen per token.
Graph experts() {
  return trace("experts", [](Tracer& t) {
    const TracedTensor x = t.input("x", {90, 48});
    const Value gate =
        op::moe_gate(t.builder(), x.matmul(t.param("router", {48, 8})).value(), {.k = 2});
    const TracedTensor weights = t.wrap(gate), chosen = t.wrap(Value{gate.node, 1});
    TracedTensor y = x * 0;
    for (int64_t i = 0; i < 2; ++i) {
      const TracedTensor expert = chosen.select(1, i);
      const TracedTensor h =
          op::grouped_matmul(x, t.param(fmt::format("up{}", i), {8, 48, 64}), expert);
      const TracedTensor out =
          op::grouped_matmul(h.silu(), t.param(fmt::format("down{}", i), {8, 64, 48}), expert);
      y = y + out * weights.slice(1, i, i + 1);
    }
    return y;
  });
}

// A quantised weight, then sampling from the best candidates.
Graph quantised_head() {
  return trace("quantised_head", [](Tracer& t) {
    const TracedTensor x = t.input("x", {3, 256});
    const TracedTensor packed = t.param("w", {500 * 8 * 34}, DType::U8);
    const TracedTensor logits = op::dequant_matmul(x, packed);
    const Value top = op::topk(t.builder(), logits.value(), {.k = 40});
    return TracedTensors{t.wrap(top).softmax().cumsum(1), t.wrap(Value{top.node, 1})};
  });
}

// A perceptron with dropout, trained by AdamW with clipping.
Graph dropout_mlp() {
  const Graph loss = trace("dropout_mlp", [](Tracer& t) {
    const TracedTensor x = t.input("x", {65, 50});
    TracedTensor h = affine(x, t.param("w1", {50, 129}), t.param("b1", {129})).relu();
    h = dropout(h, t.input("key", {2}, DType::U32), 0.25);
    return mse(affine(h, t.param("w2", {129, 7}), t.param("b2", {7})), t.input("y", {65, 7}));
  });
  return step_of(loss, {.clip_norm = 1});
}

}  // namespace

std::vector<ReplayProgram> replay_programs() {
  return {
      {"gpt_step", "the training step of a character GPT", GptCase{}.graph},
      {"bert_layer", "an encoder layer with a padding mask", bert_layer()},
      {"llama_layer", "a decoder layer: rotary positions, shared key heads, gated feed-forward",
       llama_layer()},
      {"decode_step", "one token against a cache that the step writes", decode_step()},
      {"conv_net", "a small residual network, one step of training", conv_net()},
      {"rnn_scan", "a recurrence over 50 steps and its gradient", rnn_scan()},
      {"control_flow", "a loop and a branch", control_flow()},
      {"attention_backward", "the gradients of causal attention", attention_backward()},
      {"fft_loss", "a loss in the frequency domain and its gradient", fft_loss()},
      {"distances", "pairwise distances: values per row read along the columns", distances()},
      {"statistics", "reductions of a whole tensor, of rows and of columns", statistics()},
      {"experts", "two experts of eight per token", experts()},
      {"quantised_head", "a product with a quantised weight, the best candidates",
       quantised_head()},
      {"dropout_mlp", "a perceptron with dropout, AdamW and clipping", dropout_mlp()},
  };
}

}  // namespace rlx::testing
