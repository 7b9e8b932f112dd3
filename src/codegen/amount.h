// Amount: a number that a kernel is made with and may not know: a constant, a polynomial over sizes, or what a rule
// makes of them when they are bound (how long a part is).
#pragma once

#include <functional>
#include <memory>

#include "rlx/ir/shape.h"

namespace rlx::codegen {

class Amount {
 public:
  using Rule = std::function<int64_t(const DimBinding& sizes)>;

  Amount(int64_t n = 0) : dim_(n) {}     // NOLINT: implicit by design
  Amount(Dim d) : dim_(std::move(d)) {}  // NOLINT
  static Amount computed(Rule rule) {
    Amount a;
    a.rule_ = std::make_shared<const Rule>(std::move(rule));
    return a;
  }
  std::optional<int64_t> constant() const { return rule_ ? std::nullopt : dim_.static_value(); }
  bool is(int64_t n) const { return constant() == n; }
  int64_t at(const DimBinding& sizes) const {
    if (rule_) return (*rule_)(sizes);
    return dim_.is_static() ? dim_.value() : dim_.bind(sizes).value();
  }
  friend Amount operator*(const Amount& a, const Amount& b) {
    if (!a.rule_ && !b.rule_) return a.dim_ * b.dim_;
    if (a.is(0) || b.is(0)) return 0;
    if (a.is(1)) return b;
    if (b.is(1)) return a;
    return computed([a, b](const DimBinding& sizes) {
      return mul_or_fail(a.at(sizes), b.at(sizes), "kernel size");
    });
  }
  // Whether both are the same for all sizes, as far as is known.
  friend bool operator==(const Amount& a, const Amount& b) {
    return a.rule_ == b.rule_ && (a.rule_ || a.dim_ == b.dim_);
  }

 private:
  Dim dim_;
  std::shared_ptr<const Rule> rule_;  // instead
};

// How many blocks of `size` there are.
inline Amount parts_of(const Amount& total, const Amount& size) {
  const auto n = total.constant(), s = size.constant();
  if (n && s) return ceil_div(*n, *s);
  return Amount::computed(
      [total, size](const DimBinding& sizes) { return ceil_div(total.at(sizes), size.at(sizes)); });
}

}  // namespace rlx::codegen
