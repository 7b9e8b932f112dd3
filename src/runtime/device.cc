#include <array>
#include <mutex>

#include "rlx/backend/reference/backend.h"
#include "rlx/runtime/runtime.h"
#ifdef RLX_CPU
#include "rlx/backend/cpu/backend.h"
#include "rlx/backend/cpu/kernels/isa.h"
#endif

namespace rlx {

namespace {

constexpr std::array<std::string_view, 2> kNames{"reference", "cpu"};

class Registry {
 public:
  Registry() {
    backends_[static_cast<size_t>(Device::reference)] = reference::make_reference_backend();
#ifdef RLX_CPU
    if (cpu::isa_supported(cpu::Isa::Avx2))
      backends_[static_cast<size_t>(Device::cpu)] = cpu::make_cpu_backend();
#endif
  }
  void set(Device d, std::shared_ptr<const Backend> backend) {
    const std::lock_guard lock(mutex_);
    backends_[static_cast<size_t>(d)] = std::move(backend);
  }
  std::shared_ptr<const Backend> get(Device d) {
    const std::lock_guard lock(mutex_);
    return backends_[static_cast<size_t>(d)];
  }

 private:
  std::mutex mutex_;
  std::array<std::shared_ptr<const Backend>, kNames.size()> backends_;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

std::string_view name(Device d) { return kNames[static_cast<size_t>(d)]; }

std::optional<Device> parse_device(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Device>(i);
  return std::nullopt;
}

bool is_available(Device d) { return registry().get(d) != nullptr; }

std::vector<Device> available_devices() {
  std::vector<Device> out;
  for (size_t i = 0; i < kNames.size(); ++i)
    if (is_available(static_cast<Device>(i))) out.push_back(static_cast<Device>(i));
  return out;
}

void register_backend(Device d, std::shared_ptr<const Backend> backend) {
  registry().set(d, std::move(backend));
}

std::shared_ptr<const Backend> backend_for(Device d) {
  auto backend = registry().get(d);
  if (!backend) {
    std::vector<std::string_view> names;
    for (Device other : available_devices()) names.push_back(name(other));
    fail(ErrorKind::unsupported, "device", "the device {} is not available here; there is {}",
         name(d), fmt::join(names, ", "));
  }
  return backend;
}

}  // namespace rlx
