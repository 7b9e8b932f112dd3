// BlockKernel: a kernel as the CPU runs it, a range of blocks at a time on memory of the host.
#pragma once

#include "rlx/device/cancellation.h"
#include "rlx/lower/lir.h"

namespace rlx::cpu {

// Where a kernel finds its memory: pointers to the first element of each view.
struct StepMemory {
  void* const* operands;  // inputs, then results
  std::byte* scratch;     // of this worker
  uint32_t* flag;         // a RunFault
  Cancellation* cancellation = nullptr;
  // For loops inside a block that takes long: once it is true, the results do not matter any more.
  bool cancelled() const { return cancellation && cancellation->poll(); }
};

inline void report(uint32_t* flag, RunFault fault) {
  __atomic_store_n(flag, static_cast<uint32_t>(fault), __ATOMIC_RELAXED);
}

// Thread-safe; allocates nothing. Whoever runs it polls for cancellation between blocks.
class BlockKernel : public StepKernel {
 public:
  int64_t blocks() const override = 0;
  virtual size_t scratch_bytes() const { return 0; }  // per worker
  virtual void run(const StepMemory& memory, int64_t begin, int64_t end) const = 0;
  // Makes the packed form of a weight (StepKernel::packed).
  virtual void pack(const void* source, void* target) const { (void)source, (void)target; }
};

// All kernels that the CPU's target makes are of this class.
inline const BlockKernel& block_kernel(const StepKernel& k) {
  return static_cast<const BlockKernel&>(k);
}
inline const BlockKernel& block_kernel(const Step& s) { return block_kernel(*s.kernel); }

}  // namespace rlx::cpu
