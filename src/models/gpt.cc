#include "rlx/models/gpt.h"

#include <cmath>

#include "rlx/front/trace.h"
#include "rlx/train/functions.h"
#include "rlx/train/init.h"

namespace rlx {
namespace {

void check_config(const GptConfig& c) {
  for (int64_t size : {c.vocab, c.width, c.layers, c.heads, c.block, c.batch})
    user_check(size > 0, "gpt-config", "gpt: sizes must be positive, got {}", size);
  user_check(c.width % c.heads == 0, "gpt-config", "gpt: width {} does not divide into {} heads",
             c.width, c.heads);
  user_check(kFloats.has(c.dtype), "gpt-config", "gpt: parameters are floats, not {}", c.dtype);
}

// The parameters: one row each.
enum class Fill : uint8_t { zeros, ones, normal, residual };
struct ParamRow {
  std::string name;
  Ints sizes;
  Fill fill;
};

std::vector<ParamRow> gpt_params(const GptConfig& c) {
  check_config(c);
  const int64_t width = c.width, hidden = 4 * c.width;
  std::vector<ParamRow> rows{{"tok_emb", {c.vocab, width}, Fill::normal},
                             {"pos_emb", {c.block, width}, Fill::normal}};
  for (int64_t i = 0; i < c.layers; ++i) {
    auto add = [&](const char* name, Ints sizes, Fill fill) {
      rows.push_back({fmt::format("l{}.{}", i, name), std::move(sizes), fill});
    };
    add("ln1.g", {width}, Fill::ones), add("ln1.b", {width}, Fill::zeros);
    for (const char* w : {"wq", "wk", "wv"}) add(w, {width, width}, Fill::normal);
    add("wo", {width, width}, Fill::residual);
    add("ln2.g", {width}, Fill::ones), add("ln2.b", {width}, Fill::zeros);
    add("w1", {width, hidden}, Fill::normal), add("b1", {hidden}, Fill::zeros);
    add("w2", {hidden, width}, Fill::residual), add("b2", {width}, Fill::zeros);
  }
  rows.push_back({"lnf.g", {width}, Fill::ones});
  rows.push_back({"lnf.b", {width}, Fill::zeros});
  rows.push_back({"head", {width, c.vocab}, Fill::normal});
  return rows;
}

class Gpt {
 public:
  Gpt(Tracer& t, const GptConfig& c) : t_(t), config_(c) {
    for (const ParamRow& row : gpt_params(c))
      params_[row.name] = t.param(row.name, Shape::of(row.sizes), c.dtype);
  }

  TracedTensor tokens(const char* name) {
    return t_.input(name, {config_.batch, config_.block}, DType::I32);
  }

  // Token ids to the last hidden state, normalised: [batch, block, width].
  TracedTensor hidden(const TracedTensor& x) {
    TracedTensor h = p("tok_emb").take(x) + p("pos_emb");
    for (int64_t i = 0; i < config_.layers; ++i) h = block(h, fmt::format("l{}", i));
    return norm(h, "lnf");
  }
  TracedTensor logits(const TracedTensor& h) { return h.matmul(p("head")); }

 private:
  TracedTensor p(const std::string& name) const { return params_.at(name); }
  TracedTensor norm(const TracedTensor& x, const std::string& name) const {
    return x.layer_norm(p(name + ".g"), p(name + ".b"), 1e-5);
  }

  TracedTensor block(TracedTensor h, const std::string& layer) {
    Scope scope(t_, layer);
    {
      Scope attention_scope(t_, "attention");
      const TracedTensor a = norm(h, layer + ".ln1");
      const TracedTensor q = a.matmul(p(layer + ".wq")), k = a.matmul(p(layer + ".wk")),
                         v = a.matmul(p(layer + ".wv"));
      const AttentionAttrs causal{.num_heads = config_.heads,
                                  .num_kv_heads = config_.heads,
                                  .mask = MaskKind::causal,
                                  .scale = {}};
      h = h + attention(q, k, v, causal).matmul(p(layer + ".wo"));
    }
    Scope mlp_scope(t_, "mlp");
    const TracedTensor wide =
        linear(norm(h, layer + ".ln2"), p(layer + ".w1"), p(layer + ".b1")).gelu_tanh();
    return h + linear(wide, p(layer + ".w2"), p(layer + ".b2"));
  }

  Tracer& t_;
  const GptConfig& config_;
  std::map<std::string, TracedTensor> params_;
};

TrainOptions train_options(const GptConfig& c) {
  AdamWOptions o;
  o.rate = warmup_cosine({.peak = c.rate, .warmup = c.warmup, .total = c.steps, .floor = 0.1});
  o.beta1 = c.beta1, o.beta2 = c.beta2, o.eps = c.eps, o.weight_decay = c.weight_decay;
  o.decays = [](const std::string& name, const Type& type) {
    return is_matrix(name, type) && name != "tok_emb" && name != "pos_emb";
  };
  TrainOptions options;
  options.optimizer = adamw(o);
  options.clip_norm = c.clip_norm;
  options.precision = PrecisionPolicy::mixed(c.precision);
  options.loss_scale = c.loss_scale;
  return options;
}

Builder loss_builder(const GptConfig& c) {
  Graph g = gpt_loss(c);
  Builder b("gpt_train_step");
  b.mutable_graph().nodes = std::move(g.nodes);
  b.mutable_graph().outputs = std::move(g.outputs);
  return b;
}

}  // namespace

NamedTensors gpt_init(const GptConfig& config, uint64_t seed) {
  const Init init(seed, config.dtype);
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  NamedTensors out;
  for (const ParamRow& row : gpt_params(config)) {
    switch (row.fill) {
      case Fill::zeros:
        out[row.name] = init.zeros(row.sizes);
        break;
      case Fill::ones:
        out[row.name] = init.ones(row.sizes);
        break;
      case Fill::normal:
        out[row.name] = init.normal(row.name, row.sizes, 0.02);
        break;
      case Fill::residual:
        out[row.name] = init.normal(row.name, row.sizes, residual);
        break;
    }
  }
  return out;
}

Graph gpt_loss(const GptConfig& config) {
  return trace("gpt_loss", [&](Tracer& t) {
    Gpt gpt(t, config);
    const TracedTensor x = gpt.tokens("x"), y = gpt.tokens("y");
    return cross_entropy(gpt.logits(gpt.hidden(x)), y);
  });
}

Graph gpt_train_step(const GptConfig& config) {
  Builder b = loss_builder(config);
  const TrainOptions options = train_options(config);
  append_train_step(b, b.graph().outputs[0], options);
  return finish_train_step(std::move(b), options);
}

NamedTensors gpt_train_state(const GptConfig& config, const NamedTensors& params) {
  Builder b = loss_builder(config);
  const Value loss = b.graph().outputs[0];
  return train_step(std::move(b), loss, params, train_options(config)).state;
}

Graph gpt_logits(const GptConfig& config) {
  return trace("gpt_logits", [&](Tracer& t) {
    Gpt gpt(t, config);
    const TracedTensor x = gpt.tokens("x"), position = t.input("position", {}, DType::I32);
    return gpt.logits(gpt.hidden(x).take(position, 1));
  });
}

}  // namespace rlx
