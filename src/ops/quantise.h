// Quantised numbers: int8, fake quantisation, products with packed weights.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kQuantise;

}  // namespace rlx
