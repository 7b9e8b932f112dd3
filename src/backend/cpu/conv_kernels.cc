// Native kernels: convolution, pooling and resampling.
#include <map>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/image/conv.h"
#include "rlx/backend/cpu/kernels/image/pool.h"
#include "rlx/backend/cpu/kernels/image/resample.h"
#include "rlx/backend/cpu/product_views.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/image/resize.h"

namespace rlx::cpu {
namespace {

// The last `axes` entries of a list as three spatial axes, the missing ones in front.
Sizes3 spatial(const Ints& list, size_t axes, int64_t missing) {
  Sizes3 out{missing, missing, missing};
  for (size_t i = 0; i < axes; ++i) out[3 - axes + i] = list[list.size() - axes + i];
  return out;
}

}  // namespace

// ---- convolution

ConvProblem conv_problem(const ConvAttrs& c, const View& x, const View& w, const View& y) {
  const size_t axes = x.dims.size() - 2;
  ConvProblem p;
  p.dtype = x.dtype;
  p.images = x.dims[0], p.groups = c.groups.value();
  p.in = w.dims[1], p.out = w.dims[0] / p.groups;
  p.x = spatial(x.dims, axes, 1), p.y = spatial(y.dims, axes, 1);
  p.kernel = spatial(w.dims, axes, 1);
  p.stride = spatial(c.stride, axes, 1), p.dilation = spatial(c.dilation, axes, 1);
  p.low = spatial(c.low, axes, 0);
  return p;
}

namespace {

Plan plan_sum(const ConvProblem& p, ConvSum sum, Isa isa) {
  const std::shared_ptr<const ConvPlan> plan = make_conv(p, sum, isa);
  const double flops = 2.0 * static_cast<double>(p.images * p.groups * p.out) *
                       static_cast<double>(p.positions()) * static_cast<double>(p.depth());
  return {.blocks = plan->blocks(),
          .work = static_cast<int64_t>(flops / 8),
          .scratch = plan->scratch_bytes(),
          .flops = flops,
          .run = [plan](const StepMemory& m, int64_t begin, int64_t end) {
            for (int64_t block = begin; block < end; ++block)
              plan->run(block, m.operands[0], m.operands[1], m.operands[2], m.scratch);
          }};
}

using Views = std::span<const View>;

Plan plan_conv(Isa isa, const Node& n, Views in, Views out) {
  return plan_sum(conv_problem(n.get<ConvAttrs>(), in[0], in[1], out[0]), ConvSum::y, isa);
}
Plan plan_backward_input(Isa isa, const Node& n, Views in, Views out) {
  return plan_sum(conv_problem(n.get<ConvBackwardInputAttrs>(), out[0], in[1], in[0]), ConvSum::x,
                  isa);
}
Plan plan_backward_weight(Isa isa, const Node& n, Views in, Views out) {
  return plan_sum(conv_problem(n.get<ConvBackwardWeightAttrs>(), in[0], out[0], in[1]), ConvSum::w,
                  isa);
}

// ---- pooling

PoolProblem pool_problem(const Node& n, const View& x, const View& y) {
  const auto& a = n.get<PoolAttrs>();
  const size_t axes = a.kernel.size();
  PoolProblem p;
  p.dtype = x.dtype;
  p.fold = static_cast<PoolFold>(a.kind);
  for (size_t i = 0; i < x.dims.size() - axes; ++i) p.planes *= x.dims[i];
  p.x = spatial(x.dims, axes, 1), p.y = spatial(y.dims, axes, 1);
  p.kernel = spatial(a.kernel, axes, 1), p.stride = spatial(a.stride, axes, 1);
  p.dilation = spatial(a.dilation, axes, 1);
  p.low = spatial(a.low, axes, 0), p.high = spatial(a.high, axes, 0);
  p.count_padding = a.count_include_pad;
  return p;
}

Plan plan_pool(Isa isa, const Node& n, Views in, Views out) {
  const PoolProblem p = pool_problem(n, in[0], out[0]);
  return {.blocks = pool_blocks(p),
          .work = p.work(),
          .scratch = pool_scratch_bytes(p),
          .run = [p, isa](const StepMemory& m, int64_t begin, int64_t end) {
            pool(p, isa, m.operands[0], m.operands[1], begin, end, m.scratch);
          }};
}

Plan plan_pool_with_positions(Isa, const Node& n, Views in, Views out) {
  const PoolProblem p = pool_problem(n, in[0], out[0]);
  return {.blocks = pool_blocks(p),
          .work = p.work(),
          .scratch = pool_scratch_bytes(p),
          .run = [p](const StepMemory& m, int64_t begin, int64_t end) {
            pool_with_positions(p, m.operands[0], m.operands[1],
                                static_cast<int64_t*>(m.operands[2]), begin, end, m.scratch);
          }};
}

Plan plan_pool_backward(Isa, const Node& n, Views in, Views) {
  const PoolProblem p = pool_problem(n, in[0], in[1]);
  return {.blocks = p.planes,
          .work = p.work(),
          .scratch = pool_backward_scratch_bytes(p),
          .run = [p](const StepMemory& m, int64_t begin, int64_t end) {
            pool_backward(p, m.operands[0], m.operands[1], m.operands[2], begin, end, m.scratch);
          }};
}

// ---- resampling

Decision takes_resize(const Node& n, const Graph& g) {
  const DType dtype = g.type(n.in[0]).dtype;
  if (n.get<ResizeAttrs>().mode == ResizeMode::nearest)
    return Decision::no("the nearest elements are gathered");
  if (dtype != DType::F32 && !is_narrow(dtype))
    return Decision::no("it sums in f32, and not {}", dtype);
  return Decision::yes();
}

// Axes are resampled from front to back, in whatever order they are named.
Plan plan_resize(Isa isa, const Node& n, Views in, Views out) {
  const auto& r = n.get<ResizeAttrs>();
  const auto plan = std::make_shared<ResamplePlan>(in[0].dtype, in[0].dims, isa);
  std::map<int64_t, size_t> by_place;
  for (size_t i = 0; i < r.axes.size(); ++i) by_place[r.axes[i]] = i;
  for (const auto& [axis, i] : by_place) {
    const int64_t from = in[0].dims[static_cast<size_t>(axis)],
                  to = out[0].dims[static_cast<size_t>(axis)];
    const Taps taps = resize_taps(r, i, from, to);
    if (changes_nothing(taps, from)) continue;
    ResamplePlan::Axis a{
        .axis = axis, .to = to, .taps = taps.indices.sizes()[1], .indices = {}, .weights = {}};
    for (int64_t k = 0; k < taps.indices.elements(); ++k) {
      a.indices.push_back(taps.indices.get_int(k));
      a.weights.push_back(static_cast<float>(taps.weights.get_float(k)));
    }
    plan->add(std::move(a));
  }
  plan->finish();
  return {.blocks = plan->blocks(),
          .work = plan->taps() / 2,
          .scratch = plan->scratch_bytes(),
          .flops = 2.0 * static_cast<double>(plan->taps()),
          .tables = plan->kept_bytes(),
          .run = [plan](const StepMemory& m, int64_t begin, int64_t end) {
            plan->run(m.operands[0], m.operands[1], begin, end, m.scratch);
          }};
}

template <Plan (*plan)(Isa, const Node&, Views, Views)>
std::shared_ptr<const StepKernel> make(Isa isa, const Node& n, Views in, Views out) {
  return function_kernel(n.op->name, plan(isa, n, in, out));
}

constexpr KernelRow kConvKernels[] = {
    {&op::conv, "conv", always, dense_only, make<plan_conv>},
    {&op::conv_backward_input, "conv_backward_input", always, dense_only,
     make<plan_backward_input>},
    {&op::conv_backward_weight, "conv_backward_weight", always, dense_only,
     make<plan_backward_weight>},
    {&op::pool, "pool", always, dense_only, make<plan_pool>},
    {&op::max_pool_with_indices, "max_pool_with_indices", always, dense_only,
     make<plan_pool_with_positions>},
    {&op::max_pool_backward, "max_pool_backward", always, dense_only, make<plan_pool_backward>},
    {&op::resize, "resize", takes_resize, dense_only, make<plan_resize>},
};

}  // namespace

std::span<const KernelRow> conv_kernels() { return kConvKernels; }

}  // namespace rlx::cpu
