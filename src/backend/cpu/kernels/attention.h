// Attention in tiles: out = softmax(scale * q k^T + mask) v, forward and backward, without the S x
// S scores.
//
//   AttentionProblem p{.batch = 16, .heads = 4, .kv_heads = 4, .q_len = 128, .kv_len = 128,
//                      .head_dim = 32, .mask = AttentionMask::Causal, .scale = 0.17677669};
//   p.set_dense();                  // [B,S,H,D]; or fill p.q, p.k, ... for other layouts
//   parallel_for(threads, attention_forward_blocks(p), [&](int64_t begin, int64_t end) {
//     attention_forward(p, {q, k, v, out, lse}, begin, end, scratch_of_this_thread);
//   });
//
// For query i, key j and offset o = max(kv_len - q_len, 0): Causal masks j > o + i. Query head h
// reads key/value head h / (heads / kv_heads). Masked keys have weight zero, which is what a score
// of -1e9 gives; with these masks no row is masked whole (key 0 is always visible). kv_len == 0
// gives zeros and lse = -inf.
//
// dtype F32, F64, F16, BF16; f16 and bf16 are computed in f32. lse[b,h,i] = log sum_j exp(score) is
// f32, or f64 for F64, dense [batch, heads, q_len]; the forward may be told not to write it
// (nullptr).
//
// Backward: one block per (batch, kv head) computes dq of all query heads of the group and dk, dv,
// in a fixed order: no atomics, equal bit for bit for any number of threads. Nothing is accumulated
// into the outputs: they are overwritten. No output may overlap an input.
//
// Raises (attention_check): user error `attention-problem` for sizes that do not fit each other or
// a dtype that is not a float. The other calls assume a checked problem.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx {
enum class DType : uint8_t;  // rlx/ir/dtype.h, not included here: this header is compiled per
                             // instruction set
}

namespace rlx::cpu {

enum class AttentionMask : uint8_t { None, Causal };

// Strides in elements; head_dim has stride 1.
struct AttentionStrides {
  int64_t batch = 0, seq = 0, head = 0;
};

struct AttentionProblem {
  DType dtype{};  // F32 unless told
  int64_t batch = 1, heads = 1, kv_heads = 1, q_len = 0, kv_len = 0, head_dim = 0;
  AttentionMask mask = AttentionMask::None;
  double scale = 1.0;
  AttentionStrides q, k, v, out;
  AttentionStrides dout, dq, dk, dv;  // backward only

  // Every operand dense as [batch, seq, heads, head_dim].
  void set_dense();
};

struct AttentionForwardBuffers {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  void* lse = nullptr;  // may be nullptr
};

struct AttentionBackwardBuffers {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* out = nullptr;
  const void* lse = nullptr;
  const void* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
};

void attention_check(const AttentionProblem& problem);

// Number of blocks, and bytes of 64-byte-aligned scratch per thread.
int64_t attention_forward_blocks(const AttentionProblem& problem);
size_t attention_forward_scratch_bytes(const AttentionProblem& problem);
int64_t attention_backward_blocks(const AttentionProblem& problem);
size_t attention_backward_scratch_bytes(const AttentionProblem& problem);

// Runs blocks [begin, end).
void attention_forward(const AttentionProblem& problem, const AttentionForwardBuffers& buffers,
                       int64_t begin, int64_t end, void* scratch, Isa isa = host_isa());
void attention_backward(const AttentionProblem& problem, const AttentionBackwardBuffers& buffers,
                        int64_t begin, int64_t end, void* scratch, Isa isa = host_isa());

}  // namespace rlx::cpu
