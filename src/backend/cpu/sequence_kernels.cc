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
class CacheAppendKernel final : public BlockKernel {
 public:
  CacheAppendKernel(const View& cache, const View& rows, DType position, size_t axis)
      : position_(position), places_(cache.dims[axis]), rows_(rows.dims[axis]) {
    for (size_t i = 0; i < axis; ++i) outer_ *= cache.dims[i];
    row_bytes_ = size_of(cache.dtype);
    for (size_t i = axis + 1; i < cache.dims.size(); ++i) row_bytes_ *= cache.dims[i];
  }
  std::string name() const override { return "kv_cache_append"; }
  int64_t blocks() const override { return ceil_div(outer_ * places_, per_block()); }
  int64_t work() const override { return outer_ * places_ * row_bytes_ / 16; }
  bool may_share(int in, int out) const override { return in == 0 && out == 0; }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    const auto* const cache = static_cast<const char*>(m.operands[0]);
    const auto* const rows = static_cast<const char*>(m.operands[1]);
    auto* const out = static_cast<char*>(m.operands[3]);
    const int64_t first =
        rows_ == 0 ? 0 : Index(m.operands[2], position_, places_ - rows_ + 1, m.flag)(0);
    const int64_t last = std::min(end * per_block(), outer_ * places_);
    for (int64_t i = begin * per_block(); i < last; ++i) {
      const int64_t row = i % places_ - first;
      if (row >= 0 && row < rows_)
        std::memcpy(out + i * row_bytes_, rows + (i / places_ * rows_ + row) * row_bytes_,
                    static_cast<size_t>(row_bytes_));
      else if (out != cache)
        std::memcpy(out + i * row_bytes_, cache + i * row_bytes_, static_cast<size_t>(row_bytes_));
    }
  }

 private:
  int64_t per_block() const {
    return std::max<int64_t>(1, (64 << 10) / std::max<int64_t>(row_bytes_, 1));
  }
  DType position_;
  int64_t places_, rows_, outer_ = 1, row_bytes_ = 1;
};

std::shared_ptr<const StepKernel> make_cache_append(Isa, const Node& n, std::span<const View> in,
                                                    std::span<const View>) {
  return std::make_shared<CacheAppendKernel>(in[0], in[1], in[2].dtype,
                                             static_cast<size_t>(n.get<CacheAttrs>().axis));
}

constexpr KernelRow kSequenceKernels[] = {
    {&op::attention, "attention", attention_accepts, attention_view, make_attention},
    {&op::attention_backward, "attention_backward", attention_accepts, attention_view,
     make_attention_backward},
    {&op::selective_scan, "selective_scan", always, dense_only, make_selective_scan},
    {&op::selective_scan_backward, "selective_scan_backward", always, dense_only,
     make_selective_scan_backward},
    {&op::gated_delta_net, "gated_delta_net", delta_net_accepts, dense_only, make_delta_net},
    {&op::kv_cache_append, "kv_cache_append", always, dense_only, make_cache_append},
};

}  // namespace

std::span<const KernelRow> sequence_kernels() { return kSequenceKernels; }

}  // namespace rlx::cpu
