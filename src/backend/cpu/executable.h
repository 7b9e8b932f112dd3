// A compiled program on the CPU: code shared between clones, state of its own.
#pragma once

#include "rlx/compile/backend.h"

namespace rlx::cpu {

std::unique_ptr<Executable> make_executable(std::shared_ptr<const Compiled> compiled);

}  // namespace rlx::cpu
