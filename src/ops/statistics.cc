#include "rlx/ops/statistics.h"

namespace rlx {

constinit const Family kStatistics{"statistics", {}};

}  // namespace rlx
