// Contractions named by indices, and the products that are special cases of them.
//
//   Value y = op::einsum(b, {q, k}, {"bhqd,bhkd->bhqk"});
//   Value z = op::tensordot(b, x, w, {.axes_a = {1, 2}, .axes_b = {0, 1}});
//
// Wrong operands raise "einsum-equation" (with the place in the text), "einsum-shape", "dot-axes",
// "dot-sizes", "cross-size", "dtype-mixed", "axis-range".
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct EinsumAttrs {
  std::string equation;
  static constexpr auto fields() { return Fields<&EinsumAttrs::equation>(); }
};
struct TensordotAttrs {
  Ints axes_a, axes_b;
  static constexpr auto fields() {
    return Fields<&TensordotAttrs::axes_a, &TensordotAttrs::axes_b>();
  }
};
struct CrossAttrs {
  int64_t axis = -1;
  static constexpr auto fields() { return Fields<&CrossAttrs::axis>(); }
};

namespace op {
extern const Op<EinsumAttrs> einsum;
extern const Op<TensordotAttrs> tensordot;
extern const Op<> outer, inner, kron, vdot;
extern const Op<CrossAttrs> cross;
}  // namespace op

extern const Family kEinsum;

}  // namespace rlx
