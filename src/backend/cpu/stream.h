// CpuStream: runs chains of block kernels on threads of the host; done when launch() returns.
#pragma once

#include "rlx/backend/cpu/block_kernel.h"
#include "rlx/device/host_stream.h"

namespace rlx::cpu {

class CpuStream final : public HostStream {
 public:
  explicit CpuStream(int threads) : threads_(threads) {}
  void prepare(const Program& program) override;
  void launch(const Launch& launch) override;
  void pack(const StepKernel& kernel, const std::byte* from, std::byte* to) override;
  int64_t resident_bytes() const override { return scratch_ ? scratch_bytes_ * threads_ : 0; }

 private:
  void run_tiles(const Launch& l, int worker, int64_t begin, int64_t end) const;

  int threads_;
  int64_t scratch_bytes_ = 0;  // per worker
  MemoryBlock scratch_;
};

}  // namespace rlx::cpu
