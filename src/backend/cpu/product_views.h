// What kernels of products and convolutions make of the views that they are given.
#pragma once

#include <span>

#include "rlx/backend/cpu/kernels/image/conv.h"
#include "rlx/backend/cpu/kernels/matmul/matmul.h"
#include "rlx/base/decision.h"
#include "rlx/lower/lir.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/linalg/linalg.h"

namespace rlx::cpu {

// Whether products read a matrix, or several, through this view.
Decision matmul_view(const Node& n, size_t operand, const View& v);

// Of the operands a and b and one result; batches that share B are more rows.
MatmulProblem matmul_problem(const MatmulAttrs& attrs, std::span<const View> in,
                             std::span<const View> out);

ConvProblem conv_problem(const ConvAttrs& c, const View& x, const View& w, const View& y);

}  // namespace rlx::cpu
