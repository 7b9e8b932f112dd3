// What nn.cc and attention.cc share.
#pragma once

#include "rlx/ops/rules.h"

namespace rlx {

// v for computing with: f16 and bf16 become f32.
Expr widen(Builder& b, Value v);

}  // namespace rlx
