// Recurrences over time, rotary variants, key-value caches.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kSequence;

}  // namespace rlx
