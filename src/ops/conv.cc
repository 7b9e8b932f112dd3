#include "rlx/ops/conv.h"

namespace rlx {

constinit const Family kConv{"convolution", {}};

}  // namespace rlx
