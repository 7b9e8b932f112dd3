// Products of several tensors: einsum, tensordot, outer.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kEinsum;

}  // namespace rlx
