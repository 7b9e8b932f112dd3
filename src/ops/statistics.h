// Reductions beyond the core: norms, variance, logsumexp, any and all.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kStatistics;

}  // namespace rlx
