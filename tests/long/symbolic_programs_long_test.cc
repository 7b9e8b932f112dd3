// Whole models at 200 sizes each: the bits of the programs whose sizes are constant, and no code after the first.
#include <gtest/gtest.h>

#include "../support/symbolic_programs.h"

namespace rlx::testing {
namespace {

TEST(SymbolicModelsLong, BertBase) {
  expect_bits_of_static(symbolic_bert(12, 768, 12, 1000), 200, 1);
}
TEST(SymbolicModelsLong, Gpt2) { expect_bits_of_static(symbolic_gpt(12, 768, 12, 1000), 200, 2); }
TEST(SymbolicModelsLong, ConvNet) { expect_bits_of_static(symbolic_conv_net(), 200, 3); }
TEST(SymbolicModelsLong, Recurrence) { expect_bits_of_static(symbolic_rnn(), 200, 4); }

TEST(SymbolicModelsLong, SmallOnes) {
  uint64_t seed = 100;
  for (const SymbolicProgram& p : small_symbolic_programs()) expect_bits_of_static(p, 100, ++seed);
}

}  // namespace
}  // namespace rlx::testing
