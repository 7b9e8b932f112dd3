#include <algorithm>
#include <mutex>

#include "rlx/backend/built_in/built_in.h"
#include "rlx/runtime/runtime.h"

namespace rlx {

namespace {

using Backends = std::vector<std::shared_ptr<const Backend>>;

class Registry {
 public:
  Registry() : backends_(built_in_backends()) {}
  void put(std::shared_ptr<const Backend> backend) {
    const std::lock_guard lock(mutex_);
    const auto found = find(backend->device());
    if (found != backends_.end())
      *found = std::move(backend);
    else
      backends_.push_back(std::move(backend));
  }
  void remove(const Device& d) {
    const std::lock_guard lock(mutex_);
    if (const auto found = find(d); found != backends_.end()) backends_.erase(found);
  }
  std::shared_ptr<const Backend> get(const Device& d) {
    const std::lock_guard lock(mutex_);
    const auto found = find(d);
    return found != backends_.end() ? *found : nullptr;
  }
  Backends all() {
    const std::lock_guard lock(mutex_);
    return backends_;
  }

 private:
  Backends::iterator find(const Device& d) {
    return std::find_if(backends_.begin(), backends_.end(),
                        [&](const auto& b) { return b->device() == d; });
  }
  std::mutex mutex_;
  Backends backends_;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

bool is_available(const Device& d) { return registry().get(d) != nullptr; }

std::vector<Device> available_devices() {
  std::vector<Device> out;
  for (const auto& b : registry().all()) out.push_back(b->device());
  return out;
}

const Device& default_device() {
  static const Device first = registry().all().at(0)->device();
  return first;
}

void register_backend(std::shared_ptr<const Backend> backend) {
  user_check(backend != nullptr, "device", "there is no backend to register");
  registry().put(std::move(backend));
}

void unregister_backend(const Device& d) { registry().remove(d); }

std::shared_ptr<const Backend> backend_for(const Device& d) {
  auto backend = registry().get(d);
  if (!backend) {
    std::vector<std::string> names;
    for (const Device& other : available_devices()) names.push_back(name(other));
    fail(ErrorKind::unsupported, "device", "the device {} is not available here; there is {}",
         name(d), fmt::join(names, ", "));
  }
  return backend;
}

}  // namespace rlx
