#include "rlx/ops/losses.h"

namespace rlx {

constinit const Family kLosses{"losses", {}};

}  // namespace rlx
