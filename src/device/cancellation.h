// Cancellation: the request to stop a run, as those who work on it see it.
#pragma once

#include <atomic>

namespace rlx {

// A request that anybody has seen counts, even when the caller takes it back: some work was left out.
class Cancellation {
 public:
  void begin(const std::atomic<bool>* request) {
    request_ = request;
    seen_.store(false, std::memory_order_relaxed);
  }
  bool watched() const { return request_ != nullptr; }
  bool poll() {
    if (!request_ || !request_->load(std::memory_order_relaxed)) return seen();
    seen_.store(true, std::memory_order_relaxed);
    return true;
  }
  bool seen() const { return seen_.load(std::memory_order_relaxed); }

 private:
  const std::atomic<bool>* request_ = nullptr;
  std::atomic<bool> seen_{false};
};

}  // namespace rlx
