// The backward ops of the specification, as ops of their own.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kBackward;

}  // namespace rlx
