#include "rlx/ops/fused.h"

namespace rlx {

constinit const Family kFused{"fused", {}};

}  // namespace rlx
