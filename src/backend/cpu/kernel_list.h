// The native kernels of the CPU, a list of rows per file, and what makes a row short to write.
//
//   Plan plan_sort(const Node& n, std::span<const View> in, std::span<const View> out) {
//     ...
//     return {.blocks = lines, .work = elements,
//             .run = [=](const StepMemory& m, int64_t begin, int64_t end) { ... }};
//   }
//   constexpr KernelRow kSortingKernels[] = {dense_kernel<plan_sort>(&op::sort)};
#pragma once

#include <functional>

#include "rlx/backend/cpu/kernels/stop_poll.h"
#include "rlx/backend/cpu/target.h"
#include "rlx/ir/op.h"
#include "rlx/lower/host_kernel.h"

namespace rlx::cpu {

// All built-in rows, best first for each op. The user's (backend.h) come before them.
const std::vector<KernelRow>& kernel_list();

// The user's kernels at this moment; a compilation keeps the map it began with.
using UserKernels = std::map<const OpDef*, std::shared_ptr<const HostKernel>>;
std::shared_ptr<const UserKernels> user_kernels();
std::shared_ptr<const StepKernel> user_step(std::shared_ptr<const HostKernel> kernel, const Node& n,
                                            std::span<const View> in, std::span<const View> out);

std::span<const KernelRow> core_kernels();
std::span<const KernelRow> integer_kernels();
std::span<const KernelRow> complex_kernels();
std::span<const KernelRow> custom_kernels();
std::span<const KernelRow> array_kernels();
std::span<const KernelRow> conv_kernels();
std::span<const KernelRow> channels_last_kernels();
std::span<const KernelRow> lapack_kernels();
std::span<const KernelRow> fft_kernels();
std::span<const KernelRow> quant_kernels();
std::span<const KernelRow> sequence_kernels();
std::span<const KernelRow> random_kernels();
std::span<const KernelRow> splat_kernels();

// A kernel as a function: blocks [begin, end) of the work, which must not depend on how they are
// shared out. `run` may be called by several threads at once; scratch is the worker's own.
struct Plan {
  int64_t blocks = 1;
  int64_t work = 1 << 20;  // rough cost in elements; small steps run on the calling thread
  size_t scratch = 0;      // bytes per worker
  double flops = 0;
  int in_place = -1;   // the operand in whose memory result 0 may lie
  int64_t tables = 0;  // bytes that `run` keeps beside itself
  std::function<void(const StepMemory& memory, int64_t begin, int64_t end)> run;
};
std::shared_ptr<const StepKernel> function_kernel(std::string_view name, Plan plan);

// For kernels whose single blocks may take long.
inline StopPoll stop_poll(const StepMemory& m) {
  if (!m.cancellation || !m.cancellation->watched()) return {};
  return {[](void* c) { return static_cast<Cancellation*>(c)->poll(); }, m.cancellation};
}

int64_t product_of(const Ints& dims, size_t begin, size_t end);

inline Decision always(const Node&, const Graph&) { return Decision::yes(); }
inline Decision dense_only(const Node&, size_t, const View&) {
  return Decision::no("the kernel reads dense tensors only");
}

using MakePlan = Plan (*)(const Node& n, std::span<const View> in, std::span<const View> out);

// A row for an op whose operands and results are dense.
template <MakePlan make>
constexpr KernelRow dense_kernel(const OpDef* op,
                                 Decision (*accepts)(const Node&, const Graph&) = always) {
  return {op, "", accepts, dense_only,
          [](Isa, const Node& n, std::span<const View> in, std::span<const View> out) {
            return function_kernel(n.op->name, make(n, in, out));
          }};
}

}  // namespace rlx::cpu
