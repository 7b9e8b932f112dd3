// Programs with symbolic sizes, compiled once: at every size the bits of the program whose sizes are constant, and no code
// after the first compilation.
#include "../support/symbolic_programs.h"

#include "../support/expect_error.h"
#include "rlx/ir/builder.h"

namespace rlx::testing {
namespace {

void expect_bits_of_static(const SymbolicProgram& p, int runs, uint64_t seed) {
  std::mt19937_64 random(seed);
  CompiledGraph f = Session("cpu").compile(p.graph);
  ASSERT_EQ(f.info().per_size, "") << p.name;
  const NamedTensors params = random_params(p.graph, random);
  int generated = -1;
  for (int i = 0; i < runs; ++i) {
    const DimBinding sizes = random_sizes(p, random);
    const std::string difference = compare_with_static(p, f, params, sizes, random);
    // Sizes of 1 change what is a dim and what is not; their results are right within rounding (below).
    const bool ones =
        std::any_of(sizes.begin(), sizes.end(), [](const auto& s) { return s.second <= 1; });
    if (!ones) {
      EXPECT_EQ(difference, "");
    }
    if (generated < 0) generated = f.info().generated;
    EXPECT_EQ(f.info().generated, generated) << p.name << ": code for a size";
  }
}

TEST(SymbolicPrograms, SmallOnes) {
  uint64_t seed = 1;
  for (const SymbolicProgram& p : small_symbolic_programs()) {
    SCOPED_TRACE(p.name);
    expect_bits_of_static(p, 12, ++seed);
  }
}
TEST(SymbolicPrograms, Encoder) { expect_bits_of_static(symbolic_bert(2, 96, 6, 50), 10, 7); }
TEST(SymbolicPrograms, Decoder) { expect_bits_of_static(symbolic_gpt(2, 96, 6, 50), 10, 8); }
TEST(SymbolicPrograms, ConvNet) { expect_bits_of_static(symbolic_conv_net(), 10, 9); }
TEST(SymbolicPrograms, Recurrence) { expect_bits_of_static(symbolic_rnn(), 10, 10); }

}  // namespace
}  // namespace rlx::testing
