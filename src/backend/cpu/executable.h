// A compiled program on the CPU: code shared between clones, state of its own.
#pragma once

#include "rlx/backend/cpu/jit.h"
#include "rlx/lower/backend.h"
#include "rlx/lower/lir.h"

namespace rlx::cpu {

// What clones share; immutable.
struct Compiled {
  Graph signature;
  Program program;
  CompileInfo info;
  std::shared_ptr<CpuJit> jit;
  int threads = 1;
  bool poison = false;
};

std::unique_ptr<Executable> make_executable(std::shared_ptr<const Compiled> compiled);

}  // namespace rlx::cpu
