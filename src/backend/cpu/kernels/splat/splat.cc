#include "rlx/backend/cpu/kernels/splat/splat.h"

#include "rlx/base/error.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {
namespace {

SplatFns splat_fns_for(DType dtype, Isa isa) {
  check(dtype == DType::F32 || dtype == DType::F64, "splats of {}", dtype);
  return for_isa(isa, [&](auto width) {
    return dtype == DType::F32 ? splat_fns<float, width>() : splat_fns<double, width>();
  });
}

size_t column_bytes(const SplatProblem& p) {
  return static_cast<size_t>(splat_column(p)) * size_of(p.dtype);
}

}  // namespace

size_t splat_scratch_bytes(const SplatProblem& p) { return kSplatColumns * column_bytes(p); }
size_t splat_backward_scratch_bytes(const SplatProblem& p) {
  return kSplatBackwardColumns * column_bytes(p);
}

bool splat_raster(const SplatProblem& p, const SplatBuffers& buffers, void* out, int64_t begin,
                  int64_t end, void* scratch, Isa isa) {
  return splat_fns_for(p.dtype, isa).raster(p, buffers, out, begin, end, scratch);
}

bool splat_raster_backward(const SplatProblem& p, const SplatBuffers& buffers,
                           const SplatGradients& gradients, int64_t begin, int64_t end,
                           void* scratch, Isa isa) {
  return splat_fns_for(p.dtype, isa).backward(p, buffers, gradients, begin, end, scratch);
}

}  // namespace rlx::cpu
