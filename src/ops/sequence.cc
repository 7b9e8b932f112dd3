#include "rlx/ops/sequence.h"

namespace rlx {

constinit const Family kSequence{"sequences", {}};

}  // namespace rlx
