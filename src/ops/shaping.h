// Composites that rearrange: stack, split, tile, roll, triangles, diagonals, padding modes.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kShaping;

}  // namespace rlx
