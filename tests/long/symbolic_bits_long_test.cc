// Every row of the sample table, compiled once for all sizes: the bits of the program compiled for each.
#include "../support/symbolic_bits.h"

namespace rlx::testing {
namespace {

const SymbolicBits::Options kInDouble{
    .forms = {Symbols::attributes}, .dtype = DType::F64, .values_alone = false, .rounds = {3, 4}};

std::vector<std::string> expect_bits(const SymbolicBits::Options& options) {
  SymbolicBits bits(options);
  for (const Sample& s : samples()) bits.add(s);
  fmt::print("{}\n", bits.count().to_string());
  return bits.unneeded();
}

TEST(SymbolicBitsLong, Rows) {
  const std::vector<std::string> unneeded = expect_bits({});
  SymbolicBits wide(kInDouble);
  for (const Sample& s : samples())
    if (wide.is_listed(s.op)) wide.add(s);
  for (const std::string& line : wide.unneeded())
    EXPECT_EQ(std::count(unneeded.begin(), unneeded.end(), line), 0)
        << line << ": the bits are the same; remove the line of symbolic_bits.txt";
}

TEST(SymbolicBitsLong, RowsInDouble) { expect_bits(kInDouble); }

TEST(SymbolicBitsLong, RowsInHalves) {
  SymbolicBits::Options options = kInDouble;
  options.dtype = DType::BF16;
  expect_bits(options);
}

}  // namespace
}  // namespace rlx::testing
