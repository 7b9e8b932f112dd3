#include "rlx/ops/shaping.h"

namespace rlx {

constinit const Family kShaping{"shaping", {}};

}  // namespace rlx
