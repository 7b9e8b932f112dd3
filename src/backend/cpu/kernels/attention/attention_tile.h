// The interface between attention.cc and the code compiled per instruction set, and the sizes of
// the tiles.
#pragma once

#include <cstdint>

#include "rlx/backend/cpu/kernels/attention/attention.h"

namespace rlx::cpu {

inline constexpr int64_t kForwardRows =
    128;  // query rows of a forward block: they share the packed keys
inline constexpr int64_t kForwardKeys = 256;  // keys per step of the running softmax
// With no more query rows than this in a block, keys and values are read where they lie.
inline constexpr int64_t kFewQueries = 4;
inline constexpr int64_t kBackwardRows =
    128;  // query rows and keys of a tile in the backward sweep
inline constexpr int64_t kBackwardKeys = 128;
// Tiles whose sums are added plainly; with more of them, sums are formed in runs (compensated.h).
inline constexpr int64_t kRunTiles = 16;

struct AttentionFns {
  void (*forward)(const AttentionProblem&, const AttentionForwardBuffers&, int64_t begin,
                  int64_t end, void* scratch);
  void (*backward)(const AttentionProblem&, const AttentionBackwardBuffers&, int64_t begin,
                   int64_t end, void* scratch);
  int64_t (*forward_scratch)(const AttentionProblem&);
  int64_t (*backward_scratch)(const AttentionProblem&);
};

// For operands of storage type S and vectors of W bytes; `general` as AttentionProblem::general.
// Defined in the file compiled for that width.
template <class S, int W>
AttentionFns attention_fns(bool general);

}  // namespace rlx::cpu
