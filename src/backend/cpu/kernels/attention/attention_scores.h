// Scores beyond scale * q k^T: soft caps, biases, masks. Included only by the attention_<isa>.cc
// files.
//
// Scores are in units of log2. Where scores are capped, the raw product is 2 log2(e) / c times the
// score instead, so that 2^raw = e^(2 s / c).
#pragma once

#include "rlx/backend/cpu/kernels/attention/attention.h"
#include "rlx/backend/cpu/kernels/simd_math.h"

namespace rlx::cpu {

// tanh(x ln(2) / 2) = (2^x - 1) / (2^x + 1), accurate near 0, too.
template <class T, int W>
[[gnu::always_inline]] inline Vec<T, W> tanh_of_log2(Vec<T, W> x) {
  const Vec<T, W> limit = splat<T, W>(T{60});  // the quotient is +-1 from there on
  const Vec<T, W> grown = exp2_minus_one<T, W>(x > limit ? limit : x < -limit ? -limit : x);
  return grown / (grown + T{2});
}

// The optional operands of one batch and head, at query 0 and key 0.
template <class S>
struct HeadOperands {
  using T = Compute<S>;
  const uint8_t* mask = nullptr;  // bytes 0 and 1
  const S* bias = nullptr;        // one of the two
  const T* wide_bias = nullptr;
  int64_t mask_row = 0, bias_row = 0;  // strides of the queries
  T cap = 0;                           // of scores in log2; 0: none
};

template <class S>
HeadOperands<S> head_operands(const AttentionProblem& p, const void* mask, const void* bias,
                              int64_t b, int64_t h) {
  HeadOperands<S> o;
  if (p.has_mask)
    o.mask = static_cast<const uint8_t*>(mask) + b * p.mask_at.batch + h * p.mask_at.head;
  const int64_t at = b * p.bias_at.batch + h * p.bias_at.head;
  if (p.has_bias && p.wide_bias)
    o.wide_bias = static_cast<const Compute<S>*>(bias) + at;
  else if (p.has_bias)
    o.bias = static_cast<const S*>(bias) + at;
  o.mask_row = p.mask_at.seq, o.bias_row = p.bias_at.seq;
  o.cap = static_cast<Compute<S>>(p.softcap * 1.4426950408889634074);
  return o;
}

template <class T, int W>
struct Score {
  Vec<T, W> s;
  Vec<typename Exp2<T>::Bits, W> hidden;  // lanes of all ones
  Vec<T, W> slope;                        // of the soft cap
};

// The scores of query i with the keys [j, j + count) from their raw products; at most one vector.
template <class S, int W>
[[gnu::always_inline]] inline Score<Compute<S>, W> finish_scores(const HeadOperands<S>& o,
                                                                 int64_t i, int64_t j,
                                                                 int64_t count,
                                                                 Vec<Compute<S>, W> raw) {
  using T = Compute<S>;
  constexpr int L = kLanes<T, W>;
  constexpr T kLog2e = 1.4426950408889634074, kMasked = -1e9 * 1.4426950408889634074;
  Score<T, W> r{raw, {}, splat<T, W>(T{1})};
  if (o.cap > 0) {
    const Vec<T, W> t = tanh_of_log2<T, W>(raw);
    r.s = t * o.cap;
    r.slope = T{1} - t * t;
  }
  const Vec<T, W> masked = splat<T, W>(kMasked);
  if (o.bias || o.wide_bias) {
    const int64_t at = i * o.bias_row + j;
    r.s += (o.bias ? load_first<S, W>(o.bias + at, count)
                   : load_first<T, W>(o.wide_bias + at, count)) *
           kLog2e;
    r.hidden |= r.s <= masked;
  }
  if (o.mask) {
    T keep[L] = {};
    const uint8_t* const from = o.mask + i * o.mask_row + j;
    for (int64_t lane = 0; lane < (count < L ? count : L); ++lane) keep[lane] = from[lane];
    r.hidden |= load<T, W>(keep) == Vec<T, W>{};
  }
  r.s = r.hidden ? masked : r.s;
  return r;
}

}  // namespace rlx::cpu
