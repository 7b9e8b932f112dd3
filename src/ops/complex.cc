#include "rlx/ops/complex.h"

namespace rlx {

constinit const Family kComplexNumbers{"complex", {}};

}  // namespace rlx
