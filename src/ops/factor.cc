#include "rlx/ops/factor.h"

namespace rlx {

constinit const Family kFactor{"factorisations", {}};

}  // namespace rlx
