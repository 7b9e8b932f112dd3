// Random numbers of further distributions, keys derived from keys, and sampling of tokens.
//
//   Value keys = op::random_split(b, key, {.n = 2});                       // u32 [2, 2]
//   Value x = op::random_gamma(b, key, alpha, {.shape = {64}});
//   Value token = op::sample(b, logits, {.top_k = 40, .top_p = 0.9, .temperature = 0.8, .seed = 7});
//
// All are pure functions of a key (u32 [2]; keys [k.., 2] give [k.., *shape], each key its own
// stream), the same on every backend. Parameters are operands that broadcast to the result.
// Raises "random-key" and "random-shape" for operands of the wrong form, "random-range" for bounds
// that leave nothing to draw from, "sample-row" for rows of no elements.
#pragma once

#include <cmath>

#include "rlx/ops/random/random.h"

namespace rlx {

struct KeyCountAttrs {  // random_split, random_permutation
  Dim n = 2;
  static constexpr auto fields() { return Fields<&KeyCountAttrs::n>(); }
};
struct RandintAttrs {
  DType dtype = DType::I32;
  Shape shape;
  int64_t low = 0, high = 1;  // [low, high), at most 2^31 of them
  static constexpr auto fields() {
    return Fields<&RandintAttrs::dtype, &RandintAttrs::shape, &RandintAttrs::low,
                  &RandintAttrs::high>();
  }
};
struct TruncatedNormalAttrs {
  DType dtype = DType::F32;
  Shape shape;
  double lower = -2, upper = 2;
  static constexpr auto fields() {
    return Fields<&TruncatedNormalAttrs::dtype, &TruncatedNormalAttrs::shape,
                  &TruncatedNormalAttrs::lower, &TruncatedNormalAttrs::upper>();
  }
};
struct GammaAttrs {
  Shape shape;
  bool log = false;  // the logarithm of the number
  static constexpr auto fields() { return Fields<&GammaAttrs::shape, &GammaAttrs::log>(); }
};
struct GammaGradAttrs {
  bool log = false;
  static constexpr auto fields() { return Fields<&GammaGradAttrs::log>(); }
};
struct TopKFilterAttrs {
  int64_t k = 0;  // 0: all
  double fill = -INFINITY;
  static constexpr auto fields() { return Fields<&TopKFilterAttrs::k, &TopKFilterAttrs::fill>(); }
};
struct TopPFilterAttrs {
  double p = 1;
  double fill = -INFINITY;
  static constexpr auto fields() { return Fields<&TopPFilterAttrs::p, &TopPFilterAttrs::fill>(); }
};
struct TopKMaskAttrs {
  int64_t k = 0;
  static constexpr auto fields() { return Fields<&TopKMaskAttrs::k>(); }
};
struct TopPMaskAttrs {
  double p = 1;
  static constexpr auto fields() { return Fields<&TopPMaskAttrs::p>(); }
};
struct SampleAttrs {
  int64_t top_k = 0;  // 0: all
  double top_p = 1;   // 1: all
  double temperature = 1;
  int64_t seed = 0;  // 0: a fresh one of a process-wide counter, taken when the node is built
  DType dtype = DType::F32;
  static constexpr auto fields() {
    return Fields<&SampleAttrs::top_k, &SampleAttrs::top_p, &SampleAttrs::temperature,
                  &SampleAttrs::seed, &SampleAttrs::dtype>();
  }
};

namespace op {
extern const Op<KeyCountAttrs> random_split;        // key -> n keys
extern const Op<> random_fold_in;                   // key, integers -> keys
extern const Op<KeyCountAttrs> random_permutation;  // key -> 0 .. n - 1 in random order, i64
extern const Op<RandintAttrs> random_randint;
extern const Op<RandomAttrs> random_exponential, random_gumbel, random_laplace;
extern const Op<TruncatedNormalAttrs> random_truncated_normal;
extern const Op<BitsAttrs> random_bernoulli;    // key, p -> bool
extern const Op<BitsAttrs> random_categorical;  // key, logits [.., V] -> i64 [*shape]
extern const Op<GammaAttrs> random_gamma;       // key, alpha
extern const Op<GammaGradAttrs>
    random_gamma_grad;                        // alpha, gamma number -> its derivative by alpha
extern const Op<BitsAttrs> random_beta;       // key, a, b
extern const Op<BitsAttrs> random_dirichlet;  // key, alpha [.., n]; the shape's last axis is n
extern const Op<BitsAttrs> random_poisson;    // key, rate; whole numbers in rate's dtype

// Which elements of every row (last axis) are among the k largest (ties at the boundary all are),
// or in the smallest set of likeliest ones whose softmax reaches p.
extern const Op<TopKMaskAttrs> top_k_mask;
extern const Op<TopPMaskAttrs> top_p_mask;
extern const Op<TopKFilterAttrs> top_k_filter;  // x where the mask is true, else fill
extern const Op<TopPFilterAttrs> top_p_filter;
extern const Op<SampleAttrs> sample;  // logits [.., V] [, key] -> [..] token ids
}  // namespace op

extern const Family kDistributions;

}  // namespace rlx
