// A character-level GPT: the model of the training-step benchmark (bench/train_step/MODEL.md is its
// definition).
//
//   GptConfig config;  // 4 layers of width 128, 16 x 128 tokens
//   CompiledGraph step = Session().compile(gpt_train_step(config));
//   step.set_params(gpt_train_state(config, gpt_init(config, 42)));
//   double loss = step.run({{"x", x}, {"y", y}})[0].get_float(0);
//
// Pre-norm blocks, causal attention, gelu_tanh MLP, untied head; parameters "tok_emb", "pos_emb",
// "l<i>.wq", .., "lnf.g", "head", stored [in, out]. Tokens "x" and targets "y" are i32 [batch,
// block]. Wrong sizes raise Error(user, "gpt-config").
#pragma once

#include "rlx/train/train_step.h"

namespace rlx {

struct GptConfig {
  int64_t vocab = 96, width = 128, layers = 4, heads = 4, block = 128, batch = 16;
  DType dtype = DType::F32;

  // Training: AdamW with warm-up and cosine decay to a tenth, weight decay on matrices but the
  // embeddings, clipped gradients.
  int64_t steps = 1000, warmup = 100;
  double rate = 2e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip_norm = 1.0;
  Precision precision = Precision::F32;  // of products and what follows them, parameters apart
  LossScaleOptions loss_scale = {};
};

// Initial parameters.
NamedTensors gpt_init(const GptConfig& config, uint64_t seed);

// x, y -> mean cross entropy.
Graph gpt_loss(const GptConfig& config);

// x, y -> the loss before the update; updates all parameters and the optimiser's state.
Graph gpt_train_step(const GptConfig& config);
// The values of its parameters before the first step, given those of the model.
NamedTensors gpt_train_state(const GptConfig& config, const NamedTensors& params);

// x, "position" (i32, rank 0) -> logits [batch, vocab] of the token after that position. Tokens
// behind it have no influence, so one program serves texts of every length up to `block`.
Graph gpt_logits(const GptConfig& config);

}  // namespace rlx
