// The devices of this build that this machine has, best first. The one place that lists them.
#pragma once

#include <vector>

#include "rlx/device/backend.h"

namespace rlx {

std::vector<std::shared_ptr<const Backend>> built_in_backends();

}  // namespace rlx
