// Factorisations and solvers of dense matrices.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kFactor;

}  // namespace rlx
