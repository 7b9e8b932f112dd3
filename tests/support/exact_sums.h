// Sums to hold a backend's against: formed in double with every rounding error kept apart, inputs
// on which plain sums lose digits, and the error that a sum by halves may have.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "rlx/ir/tensor.h"

namespace rlx::testing {

// What was added and what the additions rounded away (Neumaier).
struct ExactSum {
  double sum = 0, lost = 0, magnitude = 0;
  void add(double x) {
    const double total = sum + x;
    lost += std::fabs(sum) >= std::fabs(x) ? (sum - total) + x : (x - total) + sum;
    sum = total;
    magnitude += std::fabs(x);
  }
  double value() const { return sum + lost; }
};

// The sums of x over `axes`, in the order of the result's elements; f maps each element first.
inline std::vector<ExactSum> exact_sums(const Tensor& x, const Ints& axes,
                                        const std::function<double(double)>& f = {}) {
  Ints step(x.sizes().size(), 0);  // in the result
  int64_t results = 1;
  for (size_t d = x.sizes().size(); d-- > 0;)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) == axes.end())
      step[d] = results, results *= x.sizes()[d];
  std::vector<ExactSum> out(static_cast<size_t>(results));
  Ints index(x.sizes().size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double v = x.dtype() == DType::F32 ? x.data<float>()[i] : x.get_float(i);
    out[static_cast<size_t>(at)].add(f ? f(v) : v);
    for (size_t d = index.size(); d-- > 0;) {
      at += step[d];
      if (++index[d] < x.sizes()[d]) break;
      at -= step[d] * index[d];
      index[d] = 0;
    }
  }
  return out;
}

inline double epsilon_of(DType d) {
  switch (d) {
    case DType::F64:
      return std::numeric_limits<double>::epsilon();
    case DType::F16:
      return std::ldexp(1, -10);
    case DType::BF16:
      return std::ldexp(1, -7);
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

// What a sum by halves that ends in blocks of 128, 8 of them side by side, may be off, and one
// rounding to the result's dtype. f16 and bf16 are summed in f32.
inline double sum_bound(const ExactSum& s, int64_t n, DType dtype) {
  const double depth = 16 + std::max(0.0, std::log2(static_cast<double>(n) / 128));
  const DType accumulator = dtype == DType::F64 ? DType::F64 : DType::F32;
  const double rounding = accumulator == dtype ? 0 : epsilon_of(dtype) / 2 * std::fabs(s.value());
  return depth * epsilon_of(accumulator) * s.magnitude + rounding;
}

// Inputs by name; the value of element i of n.
struct SumInput {
  std::string name;
  double (*value)(int64_t i, int64_t n);
};
inline const std::vector<SumInput>& sum_inputs() {
  static const std::vector<SumInput> inputs{
      {"constant 0.1", [](int64_t, int64_t) { return 0.1; }},
      {"alternating",
       [](int64_t i, int64_t) {
         return (i % 2 ? -1.0 : 1.0) * (1 + static_cast<double>(i * 7919 % 1009) / 1009);
       }},
      {"growing",
       [](int64_t i, int64_t n) {
         return std::exp2(12 * static_cast<double>(i) / static_cast<double>(n) - 10);
       }},
      // What is too small to change the first element alone adds up to half of it and more.
      {"one, then crumbs",
       [](int64_t i, int64_t) { return i == 0 ? 1.0 : std::ldexp(1.0 + (i % 3) / 4.0, -26); }},
  };
  return inputs;
}

inline Tensor sum_input(DType dtype, const Ints& sizes, const SumInput& input) {
  Tensor t(dtype, sizes);
  const int64_t n = t.elements();
  for (int64_t i = 0; i < n; ++i) {
    if (dtype == DType::F32)
      t.mutable_data<float>()[i] = static_cast<float>(input.value(i, n));
    else
      t.set_float(i, input.value(i, n));
  }
  return t;
}

}  // namespace rlx::testing
