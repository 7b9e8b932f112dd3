// Random numbers of further distributions, and sampling of tokens.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kDistributions;

}  // namespace rlx
