// A small GPT with everything its training step needs, for tests of whole runs.
#pragma once

#include <random>

#include "rlx/models/gpt.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {

struct GptCase {
  GptConfig config{.vocab = 31,
                   .width = 32,
                   .layers = 2,
                   .heads = 2,
                   .block = 16,
                   .batch = 3,
                   .steps = 100,
                   .warmup = 5};
  Graph graph = gpt_train_step(config);
  NamedTensors state = gpt_train_state(config, gpt_init(config, 3));
  NamedTensors inputs{{"x", tokens(1)}, {"y", tokens(2)}};

  Tensor tokens(uint64_t seed) const {
    std::mt19937_64 random(seed);
    Tensor t(DType::I32, {config.batch, config.block});
    for (int64_t i = 0; i < t.elements(); ++i)
      t.set_int(i, static_cast<int64_t>(random() % static_cast<uint64_t>(config.vocab)));
    return t;
  }

  // The loss of each of some steps, then all parameters.
  Tensors train(CompiledGraph& f, int steps) const {
    f.set_params(state);
    Tensors out;
    for (int i = 0; i < steps; ++i) out.push_back(f.run(inputs)[0]);
    for (auto& [name, t] : f.params()) out.push_back(t);
    return out;
  }
};

inline bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].same_bits(b[i])) return false;
  return true;
}

}  // namespace rlx::testing
