// Resampling of images.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kResize;

}  // namespace rlx
