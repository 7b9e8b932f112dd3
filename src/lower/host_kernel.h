// A kernel that the user writes for an op, on host memory.
#pragma once

#include <functional>

#include "rlx/ir/graph.h"

namespace rlx {

struct HostView {  // dense, row-major
  DType dtype = DType::F32;
  Ints dims;
  void* data = nullptr;
};
// Writes all results. Called by one thread at a time per compiled graph; clones run at the same time.
using HostKernel = std::function<void(const Node& node, std::span<const HostView> in,
                                      std::span<const HostView> out)>;

}  // namespace rlx
