// Complex numbers: parts, modulus, angle.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kComplexNumbers;

}  // namespace rlx
