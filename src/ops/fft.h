// Discrete Fourier transforms.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kFft;

}  // namespace rlx
