// Indexing by tensors: dynamic slices, gather and scatter along axes and in n dimensions.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kScatter;

}  // namespace rlx
