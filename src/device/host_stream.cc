#include "rlx/device/host_stream.h"

#include <cstring>

#include "rlx/device/executable.h"
#include "rlx/ir/op.h"

namespace rlx {

namespace {

class PastEvent final : public Event {
 public:
  bool has_come() const override { return true; }
  void wait() const override {}
};

void move(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
}

}  // namespace

void HostStream::launch(const Launch&) { check(false, "this device has no kernels"); }
void HostStream::pack(const StepKernel&, const std::byte*, std::byte*) {
  check(false, "this device has no kernels");
}
void HostStream::copy(std::byte* to, const std::byte* from, int64_t bytes) {
  move(to, from, bytes);
}
void HostStream::fill(std::byte* to, uint8_t byte, int64_t bytes) {
  if (bytes > 0) std::memset(to, byte, static_cast<size_t>(bytes));
}
void HostStream::upload(std::byte* to, const void* from, int64_t bytes) { move(to, from, bytes); }
void HostStream::download(void* to, const std::byte* from, int64_t bytes) { move(to, from, bytes); }
std::shared_ptr<const Event> HostStream::record() {
  static const auto past = std::make_shared<const PastEvent>();
  return past;
}

MemoryBlock allocate_on_host(int64_t bytes) {
  return Tensor::uninitialised(DType::U8, {bytes}).storage();
}

std::unique_ptr<Executable> Backend::load(std::shared_ptr<const Compiled> compiled) const {
  return load_program(std::move(compiled));
}

void Backend::register_kernel(const OpDef& op,
                              HostKernel) const {  // NOLINT(performance-unnecessary-value-param)
  fail(ErrorKind::unsupported, "kernel", "{}: the device {} takes no kernels of the user's",
       op.name, name(device()));
}

}  // namespace rlx
