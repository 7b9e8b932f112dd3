// Activation functions beyond those of nn.h.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kActivations;

}  // namespace rlx
