#include "rlx/ops/norms.h"

namespace rlx {

constinit const Family kNorms{"norms", {}};

}  // namespace rlx
