// Order along an axis: sorting, the k largest, search, order statistics.
//
//   Value order = op::argsort(b, scores, {.axis = -1, .descending = true});
//   Values best = b.emit(op::topk.def, TopkAttrs{.k = 5}, Values{scores});    // values, indices
//   Value middle = op::median(b, x, {.axis = 0});
//
// Everywhere NaN is the largest, -0 equals 0, and equals stay in the order of their positions, also
// when descending. Gradients follow the elements. Wrong attributes raise "topk-k", "sort-values",
// "search-shape", "quantile-q", "reduce-empty", "axis-range".
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct SortAttrs {
  int64_t axis = -1;
  bool descending = false;
  static constexpr auto fields() { return Fields<&SortAttrs::axis, &SortAttrs::descending>(); }
};
struct TopkAttrs {
  int64_t k = 1, axis = -1;
  bool largest = true;
  DType index_dtype = DType::I64;
  static constexpr auto fields() {
    return Fields<&TopkAttrs::k, &TopkAttrs::axis, &TopkAttrs::largest, &TopkAttrs::index_dtype>();
  }
};
struct SearchAttrs {
  bool right = false;
  static constexpr auto fields() { return Fields<&SearchAttrs::right>(); }
};
struct KthAttrs {
  int64_t k = 1, axis = -1;
  bool keepdims = false;
  static constexpr auto fields() {
    return Fields<&KthAttrs::k, &KthAttrs::axis, &KthAttrs::keepdims>();
  }
};
struct MedianAttrs {
  int64_t axis = -1;
  bool keepdims = false;
  static constexpr auto fields() { return Fields<&MedianAttrs::axis, &MedianAttrs::keepdims>(); }
};
enum class Interpolation : uint8_t { linear, lower, higher, nearest, midpoint };
inline std::span<const std::string_view> enum_names(Interpolation) {
  static constexpr std::string_view names[] = {"linear", "lower", "higher", "nearest", "midpoint"};
  return names;
}
struct QuantileAttrs {
  double q = 0.5;
  int64_t axis = -1;
  bool keepdims = false;
  Interpolation interpolation = Interpolation::linear;
  static constexpr auto fields() {
    return Fields<&QuantileAttrs::q, &QuantileAttrs::axis, &QuantileAttrs::keepdims,
                  &QuantileAttrs::interpolation>();
  }
};

namespace op {
extern const Op<SortAttrs> argsort;         // i64; primitive
extern const Op<SortAttrs> sort;            // x[argsort(x)]
extern const Op<SortAttrs> sort_by_key;     // keys, x..: all in the order of the keys
extern const Op<TopkAttrs> topk;            // values, indices
extern const Op<SearchAttrs> searchsorted;  // sorted [n] or [l.., n], values [l.., m] -> i64
extern const Op<KthAttrs> kth_value;
extern const Op<MedianAttrs> median;
extern const Op<QuantileAttrs> quantile;
}  // namespace op

extern const Family kSorting;

}  // namespace rlx
