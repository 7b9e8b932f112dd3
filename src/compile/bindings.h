// Bindings: programs of one compilation by the sizes of its symbols. Made when a size is first seen and kept for those
// seen last; several executables, also of several threads, ask the same one.
#pragma once

#include <list>
#include <mutex>

#include "rlx/device/executable.h"

namespace rlx {

class Bindings {
 public:
  using Make = std::function<std::shared_ptr<const Bound>(const DimBinding& sizes)>;
  static constexpr size_t kMost = 256;  // programs that are kept

  explicit Bindings(Make make) : make_(std::move(make)) {}

  std::shared_ptr<const Bound> at(const DimBinding& sizes) {
    const std::lock_guard lock(mutex_);
    const auto found = by_sizes_.find(sizes);
    if (found != by_sizes_.end()) {
      kept_.splice(kept_.begin(), kept_, found->second);
      return kept_.front();
    }
    kept_.push_front(make_(sizes));
    bytes_ += kept_.front()->bytes;
    by_sizes_.emplace(sizes, kept_.begin());
    if (kept_.size() > kMost) {
      by_sizes_.erase(kept_.back()->sizes);
      bytes_ -= kept_.back()->bytes;
      kept_.pop_back();
    }
    return kept_.front();
  }
  // Of the programs that are kept.
  int64_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  std::mutex mutex_;
  Make make_;
  int64_t bytes_ = 0;
  std::list<std::shared_ptr<const Bound>> kept_;  // last used first
  std::map<DimBinding, std::list<std::shared_ptr<const Bound>>::iterator> by_sizes_;
};

}  // namespace rlx
