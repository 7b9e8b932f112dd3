#include "rlx/ops/distributions.h"

namespace rlx {

constinit const Family kDistributions{"distributions", {}};

}  // namespace rlx
