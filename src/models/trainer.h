// The character GPT of `rlx train`, compiled, with its data: steps, validation, samples,
// checkpoints.
//
//   Trainer t(corpus, config, {.seed = 1, .threads = 2});
//   while (t.step_number() < config.steps) t.step();
//   double bits = t.validate(0);
//   t.save("train.ckpt");
//
// The batch of a step depends on the seed and the step's number only, so a run that goes on from a
// checkpoint gives the same bits as one that never stopped.
#pragma once

#include <functional>

#include "rlx/models/corpus.h"
#include "rlx/models/gpt.h"
#include "rlx/runtime/runtime.h"

namespace rlx {

struct TrainerOptions {
  uint64_t seed = 1;
  int threads = 1;
  int64_t memory_budget = 0;  // bytes of a step's values (CompileOptions); 0: as many as there are
  std::function<void()> poll = [] {
  };  // called between the runs of validate() and sample(); may raise
};

// Losses so far, in bits per character.
struct History {
  std::vector<float> training;                         // of every step
  std::vector<std::pair<int64_t, double>> validation;  // after so many steps
};

class Trainer {
 public:
  Trainer(const Corpus& corpus, const GptConfig& config, const TrainerOptions& options);

  int64_t step_number() const { return static_cast<int64_t>(history.training.size()); }
  float step(const RunOptions& options = {});  // bits per character before the update

  // Bits per character on the validation text, in windows of `block` tokens that see nothing before
  // them; on at most `batches` batches spread over the text, 0: on all.
  double validate(int64_t batches);
  // `length` tokens drawn at this temperature, after the tokens of the prompt (at least one).
  std::vector<int32_t> sample(const std::vector<int32_t>& prompt, int64_t length,
                              double temperature);

  // Loss scaling, which training in f16 has (train/loss_scale.h).
  bool is_scaled() const;
  int64_t skipped_steps() const;  // steps whose gradients overflowed, and that changed nothing
  double loss_scale() const;      // of the next step; 1 without scaling

  bool is_finite() const;  // whether no parameter of the model is infinite or NaN

  // Raises Error(user, "torn-state") after a step that was cancelled or failed: some of its updates may be
  // written and others not.
  void save(const std::filesystem::path& path) const;
  // What save() wrote; `path` is for messages. Raises Error(user, "resume") when it is of another model, text, seed or
  // schedule.
  void load(const NamedTensors& all, const std::filesystem::path& path);

  const CompileInfo& info() const { return step_.info(); }
  History history;

 private:
  Tensor fingerprint() const;
  NamedTensors model_params() const;
  const Corpus& corpus_;
  GptConfig config_;
  TrainerOptions options_;
  Tensor x_, y_;  // the batch
  CompiledGraph step_;
  CompiledGraph loss_;
  bool torn_ = false;
};

// Text to go on from: whole lines of the validation text, as many as fit in half a block, or half a
// block where no line ends in it. A model that has seen nothing begins with whatever is most
// frequent, in sources blanks, and does not find out again.
std::vector<int32_t> sample_prompt(const Corpus& corpus, int64_t block);

}  // namespace rlx
