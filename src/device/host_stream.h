// HostStream: a stream whose device is the host itself, so that everything is done when a call returns.
#pragma once

#include "rlx/device/backend.h"

namespace rlx {

class HostStream : public Stream {
 public:
  bool is_late() const override { return false; }
  void launch(const Launch& launch) override;  // Error(internal): has no kernels
  void pack(const StepKernel& kernel, const std::byte* from, std::byte* to) override;  // likewise
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override;
  void fill(std::byte* to, uint8_t byte, int64_t bytes) override;
  void upload(std::byte* to, const void* from, int64_t bytes) override;
  void download(void* to, const std::byte* from, int64_t bytes) override;
  void wait() override {}
  std::shared_ptr<const Event> record() override;
  void wait_for(std::shared_ptr<const Event> event) override { event->wait(); }
};

// Memory of the host.
MemoryBlock allocate_on_host(int64_t bytes);

}  // namespace rlx
