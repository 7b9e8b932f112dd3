// Pooling in 1, 2 and 3 dimensions.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kPool;

}  // namespace rlx
