// Normalisations beyond layer_norm and rms_norm.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kNorms;

}  // namespace rlx
