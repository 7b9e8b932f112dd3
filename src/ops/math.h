// Elementary and special functions, integer and bit arithmetic beyond the core.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kMath;

}  // namespace rlx
