#include "rlx/ops/splat.h"

namespace rlx {

constinit const Family kSplat{"splats", {}};

}  // namespace rlx
