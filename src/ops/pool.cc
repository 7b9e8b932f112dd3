#include "rlx/ops/pool.h"

namespace rlx {

constinit const Family kPool{"pooling", {}};

}  // namespace rlx
