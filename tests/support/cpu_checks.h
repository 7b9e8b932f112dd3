// Calls of ops on the CPU against the reference.
//
//   CpuChecks checks;
//   checks.add({c.graph, c.operands, "softmax", "softmax T[2, 3]"});
//   if (auto g = gradient_of(c)) checks.add(std::move(*g));
//   checks.finish();
//
// A result must pass the better of two bounds, element by element: what rounding can do to this very graph (error_bound.h),
// and a few units in the last place of the dtype, relative to the largest element of the result, which is the scale of
// whatever it is a sum of; where a result cancels below the scale of its terms, or is worse conditioned, its op stands in
// tests/allowances.txt with a wider fraction and the reason. Integers are equal. Runs on poisoned memory.
#pragma once

#include <gtest/gtest.h>

#include "allowances.h"
#include "samples.h"

namespace rlx::testing {

struct CpuCase {
  Graph graph;
  Tensors in;
  std::string op, what;
  bool gradient = false;
  double scale = 0;  // see Compare
  Measured measured() const { return gradient ? Measured::gradients : Measured::values; }
};

class CpuChecks {
 public:
  // Several cases share a compiled graph, so that the code generator starts once for all of them.
  explicit CpuChecks(size_t batch = 32) : batch_(batch) {}
  ~CpuChecks() { EXPECT_TRUE(waiting_.empty()) << "finish() was not called"; }
  void add(CpuCase c);
  void finish();

 private:
  std::vector<CpuCase> waiting_;
  size_t batch_;
};

// What rounding can do to the case.
BoundedRun bounded(const CpuCase& c);

// What `got` has that the bound of the case does not allow: nothing when it passes.
std::vector<std::string> against_reference(const CpuCase& c, const Tensors& got);

// The results and their gradients by all swept operands with random cotangents, which is the gradient of a randomly weighted
// sum; nothing where the op has no derivative.
std::optional<CpuCase> gradient_of(const Case& c);

}  // namespace rlx::testing
