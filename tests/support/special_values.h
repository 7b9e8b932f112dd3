// The grid of special values: NaN, infinities, signed zeros, denormals and the largest numbers, in every operand of every
// row of tests/samples, on the CPU against the reference.
//
//   SpecialReport r = check_special_values({.dtypes = {DType::F32, DType::F64}});
//   EXPECT_TRUE(r.clean()) << r.text();
//
// A row is compiled once and run with one special value in one element of one operand, for every value, every operand and a
// few elements, the first and the last among them. An op whose results are elementwise is compiled once more with long
// operands that hold every combination of values, forwards and backwards: each stands in a full vector and in the tail.
//
// What must hold:
//   agree     Reference and CPU raise the same error or give the same results: NaN where NaN, the same infinity, a zero
//             of the same sign, else equal bits where an op rounds at most once, and close numbers elsewhere.
//   nan       A float result element that depends on the operand's element is NaN when that is NaN. It depends on
//             it when two of the other values give two results; so the rule of C99's Annex F, that pow(1, NaN) is 1
//             since pow(1, y) is 1 for every y, is no exception.
//   moved     An op that moves elements keeps their bits.
//   denormal  An operand that is all denormal gives the reference's results where these are about as small.
//
// Exceptions stand in tests/special_values.txt, one a line: check | op | operand | value | why. An exception that no row
// needs is an error of the table.
#pragma once

#include "samples.h"

namespace rlx::testing {

struct SpecialOptions {
  std::vector<DType> dtypes;           // the swept dtypes of the samples
  std::vector<int> vector_bits = {0};  // of the long operands; the rows run at the widest
  int64_t places = 3;  // elements of an operand that take a special value, one at a time
};

struct SpecialReport {
  int64_t programs = 0, runs = 0, raised = 0, elements = 0;
  size_t exceptions = 0;
  std::map<std::string, std::vector<std::string>> failures;  // by check and op, in words
  std::vector<std::string> unneeded;                         // lines of the table
  bool clean() const { return failures.empty() && unneeded.empty(); }
  std::string counts() const;
  std::string text(size_t each = 4) const;
};

SpecialReport check_special_values(const SpecialOptions& options);

// The special values of a dtype (of c64: of its parts): nan, inf, -inf, 0, -0, tiny (the smallest denormal), denormal (one in
// the middle), max, -max; of integers min and max.
struct SpecialValue {
  std::string_view name;
  double value;
};
std::vector<SpecialValue> special_values(DType d);

}  // namespace rlx::testing
