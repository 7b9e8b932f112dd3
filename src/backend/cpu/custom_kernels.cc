// The op `custom`: the user's function on copies of its operands.
#include <cstring>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/ops/custom.h"
#include "rlx/ops/evaluate.h"

namespace rlx::cpu {

namespace {

Decision computes(const Node& n, const Graph&) {
  const auto op = find_custom_op(n.get<CustomAttrs>().name);
  return op && op->compute ? Decision::yes() : Decision::no("it states a decomposition only");
}

Plan plan_custom(const Node& n, std::span<const View> in, std::span<const View>) {
  return {.work = 0,
          .run = [n, in = std::vector<View>(in.begin(), in.end())](const StepMemory& m, int64_t,
                                                                   int64_t) {
            Tensors operands;
            for (size_t i = 0; i < in.size(); ++i)
              operands.push_back(Tensor::from_bytes(in[i].dtype, in[i].dims, m.operands[i],
                                                    static_cast<size_t>(in[i].type().bytes())));
            const Tensors out = evaluate_node(n, operands);
            for (size_t i = 0; i < out.size(); ++i)
              if (out[i].bytes())
                std::memcpy(m.operands[in.size() + i], out[i].raw(), out[i].bytes());
          }};
}

constexpr KernelRow kCustomKernels[] = {dense_kernel<plan_custom>(&op::custom, computes)};

}  // namespace

std::span<const KernelRow> custom_kernels() { return kCustomKernels; }

}  // namespace rlx::cpu
