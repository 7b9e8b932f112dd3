#include "rlx/backend/cpu/kernels/attention/attention.h"

#include <algorithm>

#include "rlx/backend/cpu/kernels/attention/attention_tile.h"
#include "rlx/backend/cpu/kernels/element.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/error.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {
namespace {

AttentionFns attention_fns_for(const AttentionProblem& p, Isa isa) {
  return for_isa(isa, [&](auto width) {
    return visit_float(p.dtype, [&]<class S>() { return attention_fns<S, width>(p.general()); });
  });
}

// Enough for whichever instruction set of this machine runs.
size_t largest(const AttentionProblem& p,
               int64_t (*AttentionFns::*scratch)(const AttentionProblem&)) {
  int64_t bytes = 0;
  for (Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512}) {
    if (isa_supported(isa)) bytes = std::max(bytes, (attention_fns_for(p, isa).*scratch)(p));
  }
  return static_cast<size_t>(bytes);
}

}  // namespace

void AttentionProblem::set_dense() {
  const AttentionStrides of_q{q_len * heads * head_dim, heads * head_dim, head_dim};
  const AttentionStrides of_k{kv_len * kv_heads * head_dim, kv_heads * head_dim, head_dim};
  q = out = dout = dq = of_q;
  k = v = dk = dv = of_k;
}

void attention_check(const AttentionProblem& p) {
  user_check(kFloats.has(p.dtype), "attention-problem", "attention: dtype {} is not a float",
             p.dtype);
  user_check(p.batch >= 0 && p.q_len >= 0 && p.kv_len >= 0 && p.head_dim >= 0 && p.heads >= 0,
             "attention-problem",
             "attention: a size is negative (batch {}, heads {}, query {}, key {}, head_dim {})",
             p.batch, p.heads, p.q_len, p.kv_len, p.head_dim);
  user_check(p.kv_heads > 0 && p.heads % p.kv_heads == 0, "attention-problem",
             "attention: {} query heads cannot share {} key/value heads evenly", p.heads,
             p.kv_heads);
  user_check(p.window >= 0 && p.softcap >= 0, "attention-problem",
             "attention: window ({}) and softcap ({}) cannot be negative", p.window, p.softcap);
}

int64_t attention_forward_blocks(const AttentionProblem& p) {
  return p.batch * p.heads * ((p.q_len + kForwardRows - 1) / kForwardRows);
}

int64_t attention_backward_blocks(const AttentionProblem& p) {
  return p.heads == 0 ? 0 : p.batch * p.kv_heads;
}

size_t attention_forward_scratch_bytes(const AttentionProblem& p) {
  return largest(p, &AttentionFns::forward_scratch);
}

size_t attention_backward_scratch_bytes(const AttentionProblem& p) {
  return largest(p, &AttentionFns::backward_scratch);
}

void attention_forward(const AttentionProblem& p, const AttentionForwardBuffers& buffers,
                       int64_t begin, int64_t end, void* scratch, Isa isa) {
  attention_fns_for(p, isa).forward(p, buffers, begin, end, scratch);
}

void attention_backward(const AttentionProblem& p, const AttentionBackwardBuffers& buffers,
                        int64_t begin, int64_t end, void* scratch, Isa isa) {
  attention_fns_for(p, isa).backward(p, buffers, begin, end, scratch);
}

}  // namespace rlx::cpu
