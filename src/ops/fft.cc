#include "rlx/ops/fft.h"

namespace rlx {

constinit const Family kFft{"fft", {}};

}  // namespace rlx
