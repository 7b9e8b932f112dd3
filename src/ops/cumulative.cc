#include "rlx/ops/cumulative.h"

namespace rlx {

constinit const Family kCumulative{"cumulative", {}};

}  // namespace rlx
