#include "rlx/ops/quantise.h"

namespace rlx {

constinit const Family kQuantise{"quantisation", {}};

}  // namespace rlx
