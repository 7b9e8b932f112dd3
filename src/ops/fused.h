// The fused blocks of the specification, defined by their parts.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kFused;

}  // namespace rlx
