// Derivatives in f32, bf16 and f16 against those in f64 at the same operands: tangents and gradients
// of every differentiable row of the sample table, within what rounding can do (error_bound.h).
//
//   compare_narrow_derivatives(rows, DType::BF16, on_reference).expect_good();
#pragma once

#include "allowances.h"
#include "op_checks.h"

namespace rlx::testing {

// Tangents and gradients as one graph of the operands, their tangents and the results' cotangents.
struct Derivatives {
  Graph graph;
  Tensors in;  // with noise for tangents and cotangents
};

using RunDerivatives = Tensors (*)(const Derivatives&);
Tensors on_reference(const Derivatives& d);
Tensors on_cpu(const Derivatives& d);

struct NarrowReport {
  int64_t rows = 0;
  std::map<std::string, CompareStats> ops;
  std::vector<std::string> wrong;  // derivatives out of their bound
  // None is wrong; the allowances are those of the column of tests/allowances.txt, where one is named. Prints the counts.
  void expect_good(std::optional<Column> column = {}) const;
  void add(const NarrowReport& other);
};

// Rows of ops that do not take the dtype, or f64, are passed over, and ops that draw random numbers: other
// ones in every dtype. `scale`: see Compare.
NarrowReport compare_narrow_derivatives(const std::vector<const Sample*>& rows, DType d,
                                        RunDerivatives run, double scale = 0);

// The largest element of the derivatives of the op's rows in f64.
double derivative_scale(const std::string& op);

std::vector<const Sample*> all_rows();
// The last row of each op, which is seldom its plainest.
std::vector<const Sample*> row_of_each_op();

}  // namespace rlx::testing
