#include "rlx/ops/sorting.h"

namespace rlx {

constinit const Family kSorting{"sorting", {}};

}  // namespace rlx
