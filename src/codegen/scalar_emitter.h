// Walks the scalar forms of ops (ir/scalar.h) into kernel instructions.
#pragma once

#include "rlx/codegen/kernel_builder.h"
#include "rlx/ir/graph.h"
#include "rlx/ir/scalar.h"

namespace rlx::codegen {

class NodeEmitter final : public ScalarEmitter {
 public:
  explicit NodeEmitter(KernelBuilder& b) : b_(b) {}

  // The value of one elementwise node; results in narrow floats are rounded. Constants of the program, and
  // those that a rule makes of its node's attributes, are free (KernelBuilder::free); the coefficients of a
  // rule without such attributes are part of its form.
  ValueId node(const Node& n, const Graph& g, std::span<const ValueId> in);
  ValueId constant_of(const Tensor& scalar);
  // Rounds an accumulated value to the precision of its dtype.
  ValueId finish(ValueId v, DType dtype) { return is_narrow(dtype) ? b_.round(v, dtype) : v; }
  // How much work a node is, in simple operations.
  static int cost(const Node& n);

  int constant(DType dtype, double value) override;
  int constant_int(DType dtype, int64_t value) override;
  ValueId cast(ValueId x, DType to);  // rounds once
  int apply(ScalarOp op, DType result, std::span<const Scalar> operands) override;

 private:
  ValueId power(ValueId base, ValueId exponent, DType dtype);
  KernelBuilder& b_;
  bool depends_on_attributes_ = false;  // of the node that is being emitted
};

// Lowest or highest value of an integer dtype.
int64_t integer_limit(DType dtype, bool highest);

}  // namespace rlx::codegen
