#include "rlx/ops/experts.h"

namespace rlx {

constinit const Family kExperts{"experts", {}};

}  // namespace rlx
