// Loss functions.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kLosses;

}  // namespace rlx
