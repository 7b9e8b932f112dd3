// Native kernels: Gaussian splats.
#include <algorithm>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/splat/splat.h"
#include "rlx/ops/splat/splat_bin.h"

namespace rlx::cpu {

namespace {

// One block: the lists depend on the order of all splats.
Plan plan_bin(const Node& n, std::span<const View> in, std::span<const View>) {
  const auto p = n.get<GaussianSplatRenderParams>();
  const int64_t splats = in[3].dims[0];
  const bool wide = in[0].dtype == DType::F64;
  return {.work = 64 * splats + p.max_list_entries,
          .scratch = splat::bin_scratch_bytes(splats, p),
          .run = [=](const StepMemory& m, int64_t, int64_t) {
            void* const* o = m.operands;
            const splat::BinLists lists{static_cast<bool*>(o[5]), static_cast<int32_t*>(o[6]),
                                        static_cast<int32_t*>(o[7])};
            const auto run = [&]<class T>() {
              const auto numbers = [&](int i) { return static_cast<const T*>(o[i]); };
              splat::bin<T>(splats, p, {numbers(0), numbers(1), numbers(2), numbers(3), numbers(4)},
                            lists, m.scratch);
            };
            wide ? run.template operator()<double>() : run.template operator()<float>();
          }};
}

SplatProblem problem_of(const GaussianSplatRasterParams& p, const View& color_alpha) {
  return {color_alpha.dtype, color_alpha.dims[0], p.width,        p.height,
          p.tile_size,       p.max_list_entries,  p.alpha_cutoff, p.transmittance_threshold};
}

SplatBuffers buffers_of(void* const* o) {
  return {o[0],
          o[1],
          o[2],
          o[3],
          o[4],
          o[5],
          static_cast<const int32_t*>(o[6]),
          static_cast<const int32_t*>(o[7])};
}

// A rough guess: a pixel looks at some tens of splats.
int64_t pairs(const SplatProblem& p) {
  return p.width * p.height * (1 + std::min<int64_t>(p.longest(), 32));
}

std::shared_ptr<const StepKernel> make_raster(Isa isa, const Node& n, std::span<const View> in,
                                              std::span<const View>) {
  const SplatProblem p = problem_of(n.get<GaussianSplatRasterParams>(), in[0]);
  return function_kernel(n.op->name,
                         {.blocks = p.tiles(),
                          .work = 8 * pairs(p),
                          .scratch = splat_scratch_bytes(p),
                          .run = [p, isa](const StepMemory& m, int64_t begin, int64_t end) {
                            void* const* o = m.operands;
                            if (!splat_raster(p, buffers_of(o), o[8], begin, end, m.scratch, isa))
                              report(m.flag, RunFault::index_range);
                          }});
}

std::shared_ptr<const StepKernel> make_raster_backward(Isa isa, const Node& n,
                                                       std::span<const View> in,
                                                       std::span<const View>) {
  const auto& attrs = n.get<GaussianSplatRasterBackwardParams>();
  SplatProblem p = problem_of(attrs, in[0]);
  p.alpha_grad_clip = attrs.alpha_grad_clip.value_or(0);
  return function_kernel(n.op->name,
                         {.blocks = p.tiles(),
                          .work = 32 * pairs(p),
                          .scratch = splat_backward_scratch_bytes(p),
                          .run = [p, isa](const StepMemory& m, int64_t begin, int64_t end) {
                            void* const* o = m.operands;
                            if (!splat_raster_backward(p, buffers_of(o), {o[8], o[9], o[10], o[11]},
                                                       begin, end, m.scratch, isa))
                              report(m.flag, RunFault::index_range);
                          }});
}

constexpr KernelRow kSplatKernels[] = {
    dense_kernel<plan_bin>(&op::gaussian_splat_bin),
    {&op::gaussian_splat_raster, "gaussian_splat_raster", always, dense_only, make_raster},
    {&op::gaussian_splat_raster_backward, "gaussian_splat_raster_backward", always, dense_only,
     make_raster_backward},
};

}  // namespace

std::span<const KernelRow> splat_kernels() { return kSplatKernels; }

}  // namespace rlx::cpu
