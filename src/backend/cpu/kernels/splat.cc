#include "rlx/backend/cpu/kernels/splat.h"

#include "rlx/base/error.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {
namespace {

template <class T>
SplatFns for_isa(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::Avx512) return splat_fns<T, 64>();
  if (isa == Isa::Avx2) return splat_fns<T, 32>();
#endif
  check(isa == Isa::Baseline, "splats: this machine has no {}", isa_name(isa));
  return splat_fns<T, 16>();
}

SplatFns find_fns(DType dtype, Isa isa) {
  check(dtype == DType::F32 || dtype == DType::F64, "splats of {}", dtype);
  return dtype == DType::F32 ? for_isa<float>(isa) : for_isa<double>(isa);
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
  return find_fns(p.dtype, isa).raster(p, buffers, out, begin, end, scratch);
}

bool splat_raster_backward(const SplatProblem& p, const SplatBuffers& buffers,
                           const SplatGradients& gradients, int64_t begin, int64_t end,
                           void* scratch, Isa isa) {
  return find_fns(p.dtype, isa).backward(p, buffers, gradients, begin, end, scratch);
}

}  // namespace rlx::cpu
