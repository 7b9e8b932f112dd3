#include "rlx/backend/hidden/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx::hidden {

namespace {

constexpr int64_t kBytes = int64_t{1} << 36;  // of addresses; pages come when they are written
constexpr int64_t kReturned = int64_t{1}
                              << 20;  // blocks from this size on give their pages back at once

void* map_pages(int rights, int flags, int file) {
  void* p = mmap(nullptr, kBytes, rights, flags, file, 0);
  if (p == MAP_FAILED)
    fail(ErrorKind::resource, "out-of-memory", "the hidden device gets no addresses: {}",
         std::strerror(errno));
  return p;
}

}  // namespace

HiddenMemory::HiddenMemory() : file_(memfd_create("rlx-hidden", MFD_CLOEXEC)) {
  if (file_ < 0 || ftruncate(file_, kBytes) != 0)
    fail(ErrorKind::resource, "out-of-memory", "the hidden device gets no memory: {}",
         std::strerror(errno));
  closed_ = static_cast<std::byte*>(
      map_pages(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1));
  window_ = static_cast<std::byte*>(map_pages(PROT_READ | PROT_WRITE, MAP_SHARED, file_));
  gaps_.emplace(0, kBytes);
}

HiddenMemory::~HiddenMemory() {
  munmap(closed_, kBytes);
  munmap(window_, kBytes);
  close(file_);
}

MemoryBlock HiddenMemory::allocate(int64_t bytes) {
  const int64_t size = align_up(std::max<int64_t>(bytes, 1), 64);
  const std::lock_guard lock(mutex_);
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const auto [offset, room] = *gap;
    if (room < size) continue;
    gaps_.erase(gap);
    if (room > size) gaps_.emplace(offset + size, room - size);
    return {closed_ + offset,
            [self = shared_from_this(), offset, size](std::byte*) { self->free(offset, size); }};
  }
  fail(ErrorKind::resource, "out-of-memory", "cannot allocate {} bytes", bytes);
}

void HiddenMemory::free(int64_t offset, int64_t bytes) {
  // Who still uses it is to notice.
  if (bytes >= kReturned)
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  else
    std::memset(window_ + offset, 0xff, static_cast<size_t>(bytes));
  const std::lock_guard lock(mutex_);
  auto at = gaps_.emplace(offset, bytes).first;
  if (const auto next = std::next(at);
      next != gaps_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    gaps_.erase(next);
  }
  if (at != gaps_.begin())
    if (const auto before = std::prev(at); before->first + before->second == at->first) {
      before->second += at->second;
      gaps_.erase(at);
    }
}

std::byte* HiddenMemory::open(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  check(p >= closed_ && p < closed_ + kBytes, "the hidden device was given an address of the host");
  return window_ + (p - closed_);
}

}  // namespace rlx::hidden
