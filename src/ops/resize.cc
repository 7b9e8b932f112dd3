#include "rlx/ops/resize.h"

namespace rlx {

constinit const Family kResize{"resize", {}};

}  // namespace rlx
