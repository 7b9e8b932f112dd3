#include "rlx/ops/activations.h"

namespace rlx {

constinit const Family kActivations{"activations", {}};

}  // namespace rlx
