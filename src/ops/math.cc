#include "rlx/ops/math.h"

namespace rlx {

constinit const Family kMath{"math", {}};

}  // namespace rlx
