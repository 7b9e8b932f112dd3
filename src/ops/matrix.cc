#include "rlx/ops/matrix.h"

namespace rlx {

constinit const Family kMatrix{"matrices", {}};

}  // namespace rlx
