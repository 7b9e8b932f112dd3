#include "rlx/ops/scatter.h"

namespace rlx {

constinit const Family kScatter{"scatter", {}};

}  // namespace rlx
