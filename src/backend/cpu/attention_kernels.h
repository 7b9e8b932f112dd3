// Attention as native kernels; the rows are in sequence_kernels.cc.
#pragma once

#include "rlx/backend/cpu/kernel_list.h"

namespace rlx::cpu {

Decision attention_accepts(const Node& n, const Graph& g);
Decision attention_view(const Node& n, size_t i, const View& v);
std::shared_ptr<const StepKernel> make_attention(Isa isa, const Node& n, std::span<const View> in,
                                                 std::span<const View> out);
std::shared_ptr<const StepKernel> make_attention_backward(Isa isa, const Node& n,
                                                          std::span<const View> in,
                                                          std::span<const View> out);

}  // namespace rlx::cpu
