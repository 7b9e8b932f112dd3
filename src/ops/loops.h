// While loops, the scan family, functions with derivatives of their own.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kLoops;

}  // namespace rlx
