// Recurrences whose state stays in scratch while time runs, over dense operands.
//
// selective_scan: h = exp(delta a) h + delta b x, y = sum of c h; x, delta, y [batch, steps,
// channels], a [channels, states], b, c [batch, steps, states]. A block is up to kScanChannels
// channels of one batch; vectors lie across the channels.
//
// selective_scan_backward: its gradients; da is [batch, channels, states] of the type of
// computation. A block is one batch, whose channels add to db and dc one part after the other.
// States are kept every kScanSteps steps and computed again in between.
//
// delta_net: per batch and head S = e^g S; d = beta (v - S^T k); S += k d^T; o = S^T q / sqrt(size);
// q, k, v, o [batch, steps, heads, size], g, beta [batch, steps, heads], states [batch, heads,
// size, size]. A block is one head of one batch; vectors lie across the columns of S.
//
// dtype F32, F64, F16, BF16; f16 and bf16 are computed in f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/stop_poll.h"

namespace rlx {
enum class DType : uint8_t;  // rlx/ir/dtype.h, not included here: this header is compiled per
                             // instruction set
}

namespace rlx::cpu {

inline constexpr int64_t kScanChannels = 64;
inline constexpr int64_t kScanSteps = 32;

struct SelectiveScanProblem {
  DType dtype{};
  int64_t batch = 0, steps = 0, channels = 0, states = 0;
};
struct SelectiveScanBuffers {
  const void *x, *delta, *a, *b, *c;
  void* y;
  StopPoll stop = {};  // asked between steps, here and below
};

struct SelectiveScanGradients {
  const void *x, *delta, *a, *b, *c, *dy;
  void *dx, *ddelta, *da, *db, *dc;
  StopPoll stop = {};
};

struct DeltaNetProblem {
  DType dtype{};
  int64_t batch = 0, steps = 0, heads = 0, size = 0;
  bool wide_state = false;  // states are of the type of computation, not of the operands'
};
struct DeltaNetBuffers {
  const void *q, *k, *v, *g, *beta;
  const void* state;  // nullptr: zeros
  void *out, *last;
  StopPoll stop = {};
};

// Numbers of blocks, and bytes of 64-byte-aligned scratch per thread.
int64_t selective_scan_blocks(const SelectiveScanProblem& p);
size_t selective_scan_scratch_bytes(const SelectiveScanProblem& p);
inline int64_t selective_scan_backward_blocks(const SelectiveScanProblem& p) { return p.batch; }
size_t selective_scan_backward_scratch_bytes(const SelectiveScanProblem& p);
inline int64_t delta_net_blocks(const DeltaNetProblem& p) { return p.batch * p.heads; }
size_t delta_net_scratch_bytes(const DeltaNetProblem& p);

// Run blocks [begin, end).
void selective_scan(const SelectiveScanProblem& p, const SelectiveScanBuffers& buffers,
                    int64_t begin, int64_t end, void* scratch, Isa isa = host_isa());
void selective_scan_backward(const SelectiveScanProblem& p, const SelectiveScanGradients& buffers,
                             int64_t begin, int64_t end, void* scratch, Isa isa = host_isa());
void delta_net(const DeltaNetProblem& p, const DeltaNetBuffers& buffers, int64_t begin, int64_t end,
               void* scratch, Isa isa = host_isa());

// The code of one instruction set, for operands of storage type S and vectors of W bytes.
struct StateSpaceFns {
  void (*selective_scan)(const SelectiveScanProblem&, const SelectiveScanBuffers&, int64_t begin,
                         int64_t end, void* scratch);
  void (*selective_scan_backward)(const SelectiveScanProblem&, const SelectiveScanGradients&,
                                  int64_t begin, int64_t end, void* scratch);
  int64_t (*selective_scan_backward_scratch)(const SelectiveScanProblem&);
  void (*delta_net)(const DeltaNetProblem&, const DeltaNetBuffers&, int64_t begin, int64_t end,
                    void* scratch);
};
template <class S, int W>
StateSpaceFns state_space_fns();

}  // namespace rlx::cpu
