// Memory for elements. Large blocks lie on huge pages where the system gives them, and a few of those that were freed are
// kept for the next of their size: a result that is mapped anew at each run spends longer on finding its pages than many a
// kernel spends on filling them.
//
//   std::shared_ptr<std::byte[]> data = allocate_block(bytes);   // 64-byte aligned, not initialised
//   drop_kept_blocks();                                          // gives back what is kept
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace rlx {

// The last reference frees the block, on whatever thread. Error(resource, "out-of-memory") where there is none left.
std::shared_ptr<std::byte[]> allocate_block(size_t bytes);

// At most so many bytes of freed blocks are kept, 256 MiB unless told; what is more is given back, the oldest first. Builds
// with a sanitizer keep none, so that what is freed is seen to be.
void keep_blocks(int64_t bytes);
int64_t kept_block_bytes();
void drop_kept_blocks();

}  // namespace rlx
