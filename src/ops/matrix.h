// Functions of matrices: determinant, inverse, exponential, norms.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kMatrix;

}  // namespace rlx
