// Gaussian splats.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kSplat;

}  // namespace rlx
