#include "rlx/ops/loops.h"

namespace rlx {

constinit const Family kLoops{"loops", {}};

}  // namespace rlx
