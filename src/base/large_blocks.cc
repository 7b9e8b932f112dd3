#include "rlx/base/large_blocks.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>

#include "rlx/base/error.h"

namespace rlx {
namespace {

constexpr auto kAlignment = std::align_val_t(64);
constexpr size_t kHugePage = size_t{2} << 20;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kKept = 0;
#else
constexpr int64_t kKept = int64_t{256} << 20;
#endif

// `used` of the bytes are wanted: what lies behind the last whole huge page of them shall not take another one.
std::byte* map(size_t bytes, size_t used) {
  void* p = ::operator new[](bytes, std::align_val_t(kHugePage), std::nothrow);
#if defined(__linux__)
  if (p) madvise(p, used / kHugePage * kHugePage, MADV_HUGEPAGE);  // a wish
#endif
  return static_cast<std::byte*>(p);
}

void unmap(std::byte* p) { ::operator delete[](p, std::align_val_t(kHugePage)); }

// Blocks of whole huge pages. Those that are kept have no owner.
class LargeBlocks {
 public:
  std::byte* take(size_t bytes, size_t used) {
    {
      const std::scoped_lock lock(mutex_);
      // The youngest one: most of it may still be in the cache.
      const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                      [&](const Block& b) { return b.bytes == bytes; });
      if (found != kept_.rend()) {
        std::byte* p = found->p;
        kept_bytes_ -= static_cast<int64_t>(bytes);
        kept_.erase(std::next(found).base());
        return p;
      }
    }
    if (std::byte* p = map(bytes, used)) return p;
    drop_to(0);  // what is kept may be what is missing
    return map(bytes, used);
  }

  void give(std::byte* p, size_t bytes) noexcept {
    {
      const std::scoped_lock lock(mutex_);
      if (static_cast<int64_t>(bytes) <= limit_) {
        try {
          kept_.push_back({p, bytes});
          kept_bytes_ += static_cast<int64_t>(bytes);
          p = nullptr;
          // NOLINTNEXTLINE(bugprone-empty-catch): then this one is not kept
        } catch (const std::bad_alloc&) {
        }
      }
    }
    if (p) unmap(p);
    drop_to(limit());
  }

  void set_limit(int64_t bytes) {
    {
      const std::scoped_lock lock(mutex_);
      limit_ = std::min(std::max<int64_t>(bytes, 0), kKept);
    }
    drop_to(limit());
  }

  int64_t kept_bytes() const {
    const std::scoped_lock lock(mutex_);
    return kept_bytes_;
  }

  // Gives back the oldest ones, one at a time: to unmap takes long.
  void drop_to(int64_t limit) noexcept {
    while (true) {
      std::byte* p = nullptr;
      {
        const std::scoped_lock lock(mutex_);
        if (kept_bytes_ <= limit) return;
        p = kept_.front().p;
        kept_bytes_ -= static_cast<int64_t>(kept_.front().bytes);
        kept_.pop_front();
      }
      unmap(p);
    }
  }

 private:
  struct Block {
    std::byte* p;
    size_t bytes;
  };
  int64_t limit() const {
    const std::scoped_lock lock(mutex_);
    return limit_;
  }

  mutable std::mutex mutex_;
  std::deque<Block> kept_;  // the oldest first
  int64_t kept_bytes_ = 0, limit_ = kKept;
};

// Never destroyed: tensors may be the last things of a program.
LargeBlocks& large_blocks() {
  static auto* all = new LargeBlocks;
  return *all;
}

std::byte* allocate_small(size_t bytes) {
  const auto make = [&] {
    return static_cast<std::byte*>(
        ::operator new[](std::max<size_t>(bytes, 1), kAlignment, std::nothrow));
  };
  if (std::byte* p = make()) return p;
  drop_kept_blocks();
  return make();
}

}  // namespace

std::shared_ptr<std::byte[]> allocate_block(size_t bytes) {
  const bool large = bytes >= kHugePage && bytes <= SIZE_MAX - kHugePage;
  const size_t whole = large ? (bytes + kHugePage - 1) / kHugePage * kHugePage : bytes;
  std::byte* const p = large ? large_blocks().take(whole, bytes) : allocate_small(bytes);
  if (!p) fail(ErrorKind::resource, "out-of-memory", "cannot allocate {} bytes", bytes);
  if (large) return {p, [whole](std::byte* q) { large_blocks().give(q, whole); }};
  return {p, [](std::byte* q) { ::operator delete[](q, kAlignment); }};
}

void keep_blocks(int64_t bytes) { large_blocks().set_limit(bytes); }
void drop_kept_blocks() { large_blocks().drop_to(0); }
int64_t kept_block_bytes() { return large_blocks().kept_bytes(); }

}  // namespace rlx
