// Native kernels: attention, recurrences over time, caches.
#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/attention_kernels.h"
#include "rlx/backend/cpu/kernels/indexing/index.h"
#include "rlx/backend/cpu/kernels/sequence/state_space.h"
#include "rlx/base/checked.h"
#include "rlx/ops/sequence/sequence.h"

namespace rlx::cpu {

namespace {

// ---- state spaces

std::shared_ptr<const StepKernel> make_selective_scan(Isa isa, const Node& n,
                                                      std::span<const View> in,
                                                      std::span<const View>) {
  const Ints& x = in[0].dims;
  const SelectiveScanProblem p{in[0].dtype, x[0], x[1], x[2], in[2].dims[1]};
  const int64_t updates = x[0] * x[1] * x[2] * p.states;
  return function_kernel(n.op->name,
                         {.blocks = selective_scan_blocks(p),
                          .work = 4 * updates,
                          .scratch = selective_scan_scratch_bytes(p),
                          .flops = 7.0 * static_cast<double>(updates),
                          .run = [p, isa](const StepMemory& m, int64_t begin, int64_t end) {
                            void* const* o = m.operands;
                            selective_scan(p, {o[0], o[1], o[2], o[3], o[4], o[5], stop_poll(m)},
                                           begin, end, m.scratch, isa);
                          }});
}

std::shared_ptr<const StepKernel> make_selective_scan_backward(Isa isa, const Node& n,
                                                               std::span<const View> in,
                                                               std::span<const View>) {
  const Ints& x = in[0].dims;
  const SelectiveScanProblem p{in[0].dtype, x[0], x[1], x[2], in[2].dims[1]};
  const int64_t updates = x[0] * x[1] * x[2] * p.states;
  return function_kernel(
      n.op->name,
      {.blocks = selective_scan_backward_blocks(p),
       .work = 16 * updates,
       .scratch = selective_scan_backward_scratch_bytes(p),
       .flops = 30.0 * static_cast<double>(updates),
       .run = [p, isa](const StepMemory& m, int64_t begin, int64_t end) {
         void* const* o = m.operands;
         selective_scan_backward(
             p, {o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], o[8], o[9], o[10], stop_poll(m)},
             begin, end, m.scratch, isa);
       }});
}

std::shared_ptr<const StepKernel> make_delta_net(Isa isa, const Node& n, std::span<const View> in,
                                                 std::span<const View> out) {
  const Ints& q = in[0].dims;
  const DeltaNetProblem p{in[0].dtype, q[0], q[1], q[2], q[3], out[1].dtype != in[0].dtype};
  const int64_t updates = q[0] * q[1] * q[2] * q[3] * q[3];
  const bool carried = in.size() == 6;
  return function_kernel(
      n.op->name, {.blocks = delta_net_blocks(p),
                   .work = 4 * updates,
                   .scratch = delta_net_scratch_bytes(p),
                   .flops = 7.0 * static_cast<double>(updates),
                   .run = [p, isa, carried](const StepMemory& m, int64_t begin, int64_t end) {
                     void* const* o = m.operands;
                     void* const* results = o + (carried ? 6 : 5);
                     delta_net(p,
                               {o[0], o[1], o[2], o[3], o[4], carried ? o[5] : nullptr, results[0],
                                results[1], stop_poll(m)},
                               begin, end, m.scratch, isa);
                   }});
}

// f64 has no wider type of computation than its own.
Decision delta_net_accepts(const Node& n, const Graph& g) {
  if (n.in.size() == 6 && g.type(n.in[0]).dtype == DType::F64 &&
      g.type(n.in[5]).dtype != DType::F64)
    return Decision::no("a state of f32 with operands of f64");
  return Decision::yes();
}

// ---- caches

// Copies the rows over the cache, in place where the cache is not needed any more.
Plan plan_cache_append(const Node& n, std::span<const View> in, std::span<const View>) {
  const Ints& dims = in[0].dims;
  const auto axis = static_cast<size_t>(n.get<CacheAttrs>().axis);
  const DType index = in[2].dtype;
  const int64_t places = dims[axis], count = in[1].dims[axis],
                total = product_of(dims, 0, axis) * places;
  const auto bytes =
      static_cast<size_t>(size_of(in[0].dtype) * product_of(dims, axis + 1, dims.size()));
  const auto row_bytes = static_cast<int64_t>(bytes),
             per_block = std::max<int64_t>(1, (64 << 10) / std::max<int64_t>(row_bytes, 1));
  return {.blocks = ceil_div(total, per_block),
          .work = total * row_bytes / 16,
          .in_place = 0,
          .run = [=](const StepMemory& m, int64_t begin, int64_t end) {
            const auto* const cache = static_cast<const char*>(m.operands[0]);
            const auto* const rows = static_cast<const char*>(m.operands[1]);
            auto* const out = static_cast<char*>(m.operands[3]);
            const int64_t first =
                count == 0 ? 0 : Index(m.operands[2], index, places - count + 1, m.flag)(0);
            for (int64_t i = begin * per_block; i < std::min(end * per_block, total); ++i) {
              const int64_t row = i % places - first;
              if (row >= 0 && row < count)
                std::memcpy(out + i * row_bytes, rows + (i / places * count + row) * row_bytes,
                            bytes);
              else if (out != cache)
                std::memcpy(out + i * row_bytes, cache + i * row_bytes, bytes);
            }
          }};
}

constexpr KernelRow kSequenceKernels[] = {
    {&op::attention, "attention", attention_accepts, attention_view, make_attention},
    {&op::attention_backward, "attention_backward", attention_accepts, attention_view,
     make_attention_backward},
    {&op::selective_scan, "selective_scan", always, dense_only, make_selective_scan},
    {&op::selective_scan_backward, "selective_scan_backward", always, dense_only,
     make_selective_scan_backward},
    {&op::gated_delta_net, "gated_delta_net", delta_net_accepts, dense_only, make_delta_net},
    dense_kernel<plan_cache_append>(&op::kv_cache_append),
};

}  // namespace

std::span<const KernelRow> sequence_kernels() { return kSequenceKernels; }

}  // namespace rlx::cpu
