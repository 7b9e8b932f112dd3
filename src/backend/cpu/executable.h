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
  std::vector<size_t>
      param_of;  // program parameter -> signature parameter (dead ones drop out of the program)
  std::vector<bool> param_updated;  // by signature
  CompileInfo info;
  std::shared_ptr<CpuJit> jit;
  int64_t resident_bytes = 0;  // of this struct: code, constants, tables (about)
  int threads = 1;
  bool poison = false;
};

std::unique_ptr<Executable> make_executable(std::shared_ptr<const Compiled> compiled);

}  // namespace rlx::cpu
