// The character GPT of `make run`, for as many steps, in f32, bf16 and f16: what it has learnt is the same.
#include <gtest/gtest.h>

#include "rlx/models/trainer.h"

namespace rlx::testing {
namespace {

double validation(const Corpus& corpus, Precision p) {
  GptConfig config;  // that of the tool
  config.vocab = corpus.vocab();
  config.steps = 1200, config.warmup = 100, config.rate = 4e-3;
  config.precision = p;
  Trainer trainer(corpus, config, {.seed = 1, .threads = 2});
  while (trainer.step_number() < config.steps) trainer.step();
  EXPECT_TRUE(trainer.is_finite());
  EXPECT_EQ(trainer.is_scaled(), p == Precision::F16);
  EXPECT_LT(trainer.skipped_steps(), 12);
  return trainer.validate(0);
}

TEST(MixedPrecisionLong, TheValidationLossIsThatOfF32) {
  const Corpus corpus = make_corpus(demo_text(), GptConfig().block);
  const double exact = validation(corpus, Precision::F32);
  EXPECT_LT(exact, 3);
  for (const Precision p : {Precision::BF16, Precision::F16}) {
    const double ours = validation(corpus, p);
    RecordProperty(fmt::format("bits_per_character_{}", to_string(p)), fmt::format("{}", ours));
    EXPECT_NEAR(ours, exact, 0.01 * exact) << to_string(p);
  }
}

}  // namespace
}  // namespace rlx::testing
