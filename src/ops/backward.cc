#include "rlx/ops/backward.h"

namespace rlx {

constinit const Family kBackward{"backward", {}};

}  // namespace rlx
