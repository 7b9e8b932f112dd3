// Running products, extrema and logsumexp along an axis.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kCumulative;

}  // namespace rlx
