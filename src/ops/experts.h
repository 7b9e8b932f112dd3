// Grouped products, mixtures of experts and low-rank adapters.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kExperts;

}  // namespace rlx
