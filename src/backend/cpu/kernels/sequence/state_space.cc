#include "rlx/backend/cpu/kernels/sequence/state_space.h"

#include <algorithm>

#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {
namespace {

StateSpaceFns state_space_fns_for(DType dtype, Isa isa) {
  return for_isa(isa, [&](auto width) {
    return visit_float(dtype, [&]<class S>() { return state_space_fns<S, width>(); });
  });
}

size_t compute_bytes(DType dtype) { return static_cast<size_t>(size_of(wide_of(dtype))); }

}  // namespace

int64_t selective_scan_blocks(const SelectiveScanProblem& p) {
  return p.batch * ceil_div(p.channels, kScanChannels);
}

size_t selective_scan_scratch_bytes(const SelectiveScanProblem& p) {
  return 2 * compute_bytes(p.dtype) * static_cast<size_t>(p.states * kScanChannels);
}

// Enough for whichever instruction set of this machine runs.
size_t selective_scan_backward_scratch_bytes(const SelectiveScanProblem& p) {
  int64_t bytes = 0;
  for (Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512})
    if (isa_supported(isa))
      bytes = std::max(bytes, state_space_fns_for(p.dtype, isa).selective_scan_backward_scratch(p));
  return static_cast<size_t>(bytes);
}

// The state, and rows for q, k, v, d and o, all as wide as whole vectors of any width.
size_t delta_net_scratch_bytes(const DeltaNetProblem& p) {
  return compute_bytes(p.dtype) * static_cast<size_t>((p.size + 5) * align_up(p.size, 16));
}

void selective_scan(const SelectiveScanProblem& p, const SelectiveScanBuffers& buffers,
                    int64_t begin, int64_t end, void* scratch, Isa isa) {
  state_space_fns_for(p.dtype, isa).selective_scan(p, buffers, begin, end, scratch);
}

void selective_scan_backward(const SelectiveScanProblem& p, const SelectiveScanGradients& buffers,
                             int64_t begin, int64_t end, void* scratch, Isa isa) {
  state_space_fns_for(p.dtype, isa).selective_scan_backward(p, buffers, begin, end, scratch);
}

void delta_net(const DeltaNetProblem& p, const DeltaNetBuffers& buffers, int64_t begin, int64_t end,
               void* scratch, Isa isa) {
  state_space_fns_for(p.dtype, isa).delta_net(p, buffers, begin, end, scratch);
}

}  // namespace rlx::cpu
