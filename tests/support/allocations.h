// Counts the allocations of a test program, and lets one of them fail. Included by exactly one source
// of it: replaces operator new and, without sanitizers, malloc and its kin.
//
//   AllocationCounter counter;
//   f.run();
//   counter.ours();     // through operator new
//   counter.others();   // straight from malloc: the C library and libraries in C
//   counter.bytes();    // through operator new and not given back yet
//
//   FailingAllocation failure(7);   // the seventh from now on, of this thread
//   run();
//   failure.reached();
#pragma once

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace rlx::testing {
inline std::atomic<long> allocations_ours{0}, allocations_all{0}, allocated_bytes{0};

class AllocationCounter {
 public:
  AllocationCounter() : ours_(allocations_ours), all_(allocations_all), bytes_(allocated_bytes) {}
  long ours() const { return allocations_ours - ours_; }
  long others() const { return std::max(0L, allocations_all - all_ - ours()); }
  long bytes() const { return allocated_bytes - bytes_; }

 private:
  long ours_, all_, bytes_;
};

// How many allocations of this thread are left until one fails; 0: none does.
inline thread_local long until_failure = 0;
inline bool fails_now() { return until_failure > 0 && --until_failure == 0; }

class FailingAllocation {
 public:
  explicit FailingAllocation(long n) { until_failure = n; }
  ~FailingAllocation() { until_failure = 0; }
  FailingAllocation(const FailingAllocation&) = delete;
  static bool reached() { return until_failure == 0; }
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kReplacesMalloc = false;
#else
constexpr bool kReplacesMalloc = true;
#endif

inline void* counted_new(size_t size, size_t alignment) {
  ++allocations_ours;
  if ((alignment != 0 || !kReplacesMalloc) && fails_now()) return nullptr;
  void* p = nullptr;
  if (alignment == 0)
    p = std::malloc(size ? size : 1);
  else if (posix_memalign(&p, std::max(alignment, sizeof(void*)), size) != 0)
    p = nullptr;
  if (p) allocated_bytes += static_cast<long>(malloc_usable_size(p));
  return p;
}

inline void* counted_or_throw(size_t size, size_t alignment) {
  if (void* p = counted_new(size, alignment)) return p;
  throw std::bad_alloc();
}

// Not inlined: GCC would see `free` beside the library's own `new` and call it a mismatch.
[[gnu::noinline]] inline void release(void* p) noexcept {
  if (p) allocated_bytes -= static_cast<long>(malloc_usable_size(p));
  std::free(p);
}
}  // namespace rlx::testing

void* operator new(size_t n) { return rlx::testing::counted_or_throw(n, 0); }
void* operator new[](size_t n) { return rlx::testing::counted_or_throw(n, 0); }
void* operator new(size_t n, std::align_val_t a) {
  return rlx::testing::counted_or_throw(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, std::align_val_t a) {
  return rlx::testing::counted_or_throw(n, static_cast<size_t>(a));
}
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return rlx::testing::counted_new(n, 0);
}
void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return rlx::testing::counted_new(n, 0);
}
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return rlx::testing::counted_new(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return rlx::testing::counted_new(n, static_cast<size_t>(a));
}
void operator delete(void* p) noexcept { rlx::testing::release(p); }
void operator delete[](void* p) noexcept { rlx::testing::release(p); }
void operator delete(void* p, size_t) noexcept { rlx::testing::release(p); }
void operator delete[](void* p, size_t) noexcept { rlx::testing::release(p); }
void operator delete(void* p, std::align_val_t) noexcept { rlx::testing::release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { rlx::testing::release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { rlx::testing::release(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { rlx::testing::release(p); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // kReplacesMalloc
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* malloc(size_t n) {
  ++rlx::testing::allocations_all;
  if (rlx::testing::fails_now()) return nullptr;
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t m) {
  ++rlx::testing::allocations_all;
  if (rlx::testing::fails_now()) return nullptr;
  return __libc_calloc(n, m);
}
void* realloc(void* p, size_t n) {
  ++rlx::testing::allocations_all;
  if (n > 0 && rlx::testing::fails_now()) return nullptr;
  return __libc_realloc(p, n);
}
}
#endif
