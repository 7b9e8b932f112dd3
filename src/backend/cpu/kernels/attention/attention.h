// Attention in tiles: out = softmax(scores) v, forward and backward, without the S x S scores.
//
//   AttentionProblem p{.batch = 16, .heads = 4, .kv_heads = 4, .q_len = 128, .kv_len = 128,
//                      .head_dim = 32, .mask = AttentionMask::Causal, .scale = 0.17677669};
//   p.set_dense();                  // [B,S,H,D]; or fill p.q, p.k, ... for other layouts
//   parallel_for(threads, attention_forward_blocks(p), [&](int64_t begin, int64_t end) {
//     attention_forward(p, {q, k, v, out, lse}, begin, end, scratch_of_this_thread);
//   });
//
// For query i, key j and offset o = max(kv_len - q_len, 0): Causal masks j > o + i, Window also j <
// o + i - window. Query head h reads key/value head h / (heads / kv_heads). softcap > 0 makes a
// score c tanh(s / c). Then a bias is added; a mask (bytes 0 and 1) hides keys where it is 0, a
// bias where it brings the score to -1e9. Masked keys have weight zero, which is what a score of
// -1e9 gives; a row with masked keys only averages all values. A sink is one more logit of the
// softmax, without a value. kv_len == 0 gives zeros and lse = -inf (or the sink).
//
// Problems with no more than a scale and None or Causal have code of their own.
//
// dtype F32, F64, F16, BF16; f16 and bf16 are computed in f32. lse[b,h,i] = log sum_j exp(score) is
// f32, or f64 for F64, dense [batch, heads, q_len]; the forward may be told not to write it
// (nullptr).
//
// Backward: one block per (batch, kv head) computes dq of all query heads of the group and dk, dv,
// in a fixed order: no atomics, equal bit for bit for any number of threads. Nothing is accumulated
// into the outputs: they are overwritten. No output may overlap an input. Sinks act through lse.
// dbias, when given, is dense [batch, heads, q_len, kv_len] of lse's type. A row with lse <= -5e8
// counts as one without visible keys.
//
// Raises (attention_check): user error `attention-problem` for sizes that do not fit each other or
// a dtype that is not a float. The other calls assume a checked problem.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/stop_poll.h"

namespace rlx {
enum class DType : uint8_t;  // rlx/ir/dtype.h, not included here: this header is compiled per
                             // instruction set
}

namespace rlx::cpu {

enum class AttentionMask : uint8_t { None, Causal, Window };

// Strides in elements; head_dim has stride 1.
struct AttentionStrides {
  int64_t batch = 0, seq = 0, head = 0;
};

struct AttentionProblem {
  DType dtype{};  // F32 unless told
  int64_t batch = 1, heads = 1, kv_heads = 1, q_len = 0, kv_len = 0, head_dim = 0;
  AttentionMask mask = AttentionMask::None;
  int64_t window = 0;
  double scale = 1.0, softcap = 0;
  bool has_mask = false, has_bias = false, has_sinks = false;
  bool wide_bias = false;  // the bias is of the type of computation, not of the operands'
  bool wide_sinks = false;
  AttentionStrides mask_at, bias_at;  // keys have stride 1
  int64_t sinks_batch = 0;            // stride; heads have stride 1
  AttentionStrides q, k, v, out;
  AttentionStrides dout, dq, dk, dv;  // backward only

  bool general() const {
    return mask == AttentionMask::Window || softcap > 0 || has_mask || has_bias || has_sinks;
  }
  // Every operand dense as [batch, seq, heads, head_dim].
  void set_dense();
};

struct AttentionForwardBuffers {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  void* lse = nullptr;  // may be nullptr
  const void* mask = nullptr;
  const void* bias = nullptr;
  const void* sinks = nullptr;
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
  const void* mask = nullptr;
  const void* bias = nullptr;
  void* dbias = nullptr;  // may be nullptr
  StopPoll stop;          // asked between tiles
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
