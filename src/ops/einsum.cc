#include "rlx/ops/einsum.h"

namespace rlx {

constinit const Family kEinsum{"einsum", {}};

}  // namespace rlx
