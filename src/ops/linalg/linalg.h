// Contractions.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct MatmulAttrs {  // transposes swap the last two dims of an operand
  bool transpose_a = false, transpose_b = false;
  static constexpr auto fields() {
    return Fields<&MatmulAttrs::transpose_a, &MatmulAttrs::transpose_b>();
  }
};
struct DotAttrs {
  Ints lhs_contracting, rhs_contracting, lhs_batch, rhs_batch;
  static constexpr auto fields() {
    return Fields<&DotAttrs::lhs_contracting, &DotAttrs::rhs_contracting, &DotAttrs::lhs_batch,
                  &DotAttrs::rhs_batch>();
  }
};

namespace op {
extern const Op<MatmulAttrs> matmul;    // rank >= 2, batch dims broadcast (NumPy); primitive
extern const Op<DotAttrs> dot_general;  // XLA's; composite over transpose, reshape, matmul
}  // namespace op

extern const Family kLinalg;

}  // namespace rlx
