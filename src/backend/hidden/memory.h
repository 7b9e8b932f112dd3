// HiddenMemory: addresses without access rights, and a window through which the device reaches what lies there.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "rlx/device/backend.h"

namespace rlx::hidden {

class HiddenMemory : public std::enable_shared_from_this<HiddenMemory> {
 public:
  HiddenMemory();
  ~HiddenMemory();
  HiddenMemory(const HiddenMemory&) = delete;

  MemoryBlock allocate(int64_t bytes);
  // Where the device finds it. Raises Error(internal) for an address of somebody else.
  std::byte* open(const void* address) const;

 private:
  void free(int64_t offset, int64_t bytes);

  std::byte* closed_;  // no access
  std::byte* window_;  // the same pages
  int file_;
  std::mutex mutex_;
  std::map<int64_t, int64_t> gaps_;  // free ranges, by offset: their sizes
};

}  // namespace rlx::hidden
