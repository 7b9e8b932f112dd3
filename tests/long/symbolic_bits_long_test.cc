// Every row of the sample table, compiled once for all sizes: the bits of the program compiled for each.
#include "../support/symbolic_bits.h"

namespace rlx::testing {
namespace {

void expect_bits(const SymbolicBits::Options& options, bool all_lines) {
  SymbolicBits bits(options);
  for (const Sample& s : samples()) bits.add(s);
  if (all_lines)
    for (const std::string& line : bits.unneeded())
      ADD_FAILURE() << line << ": the bits are the same; remove the line of symbolic_bits.txt";
  fmt::print("{}\n", bits.count().to_string());
}

TEST(SymbolicBitsLong, Rows) { expect_bits({}, true); }
TEST(SymbolicBitsLong, RowsInDouble) {
  expect_bits({.forms = {Symbols::attributes},
               .dtype = DType::F64,
               .values_alone = false,
               .rounds = {3, 4}},
              false);
}
TEST(SymbolicBitsLong, RowsInHalves) {
  expect_bits({.forms = {Symbols::attributes},
               .dtype = DType::BF16,
               .values_alone = false,
               .rounds = {3, 4}},
              false);
}

}  // namespace
}  // namespace rlx::testing
