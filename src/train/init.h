// Initial values of parameters, from Philox streams: the same seed and name give the same tensor,
// whatever else is made.
//
//   Init init(42);
//   NamedTensors p{{"w", init.kaiming_normal("w", {784, 128})}, {"b", init.zeros({128})}};
//
// Matrices are [in, out], as in x @ w: fan_in is the size of all axes but the last, fan_out that of
// the last. Weights of convolutions are [out, in, window..] (Fans::out_in): fan_in is the size of all
// axes but the first, fan_out that of all but the second. Numbers are drawn in double and rounded once to the dtype. Raises Error(user)
// "init-fan" for a shape without fans, "init-range" for an empty range.
#pragma once

#include <string_view>

#include "rlx/base/philox.h"
#include "rlx/ir/tensor.h"

namespace rlx {

enum class Fans { in_out, out_in };

class Init {
 public:
  explicit Init(uint64_t seed, DType dtype = DType::F32) : seed_(seed), dtype_(dtype) {}

  Tensor zeros(Ints sizes) const { return constant(std::move(sizes), 0); }
  Tensor ones(Ints sizes) const { return constant(std::move(sizes), 1); }
  Tensor constant(Ints sizes, double value) const {
    return Tensor::full(dtype_, std::move(sizes), value);
  }
  Tensor normal(std::string_view name, Ints sizes, double std = 1, double mean = 0) const;
  Tensor uniform(std::string_view name, Ints sizes, double low, double high) const;
  // Normal numbers, drawn again while outside mean +- cut * std.
  Tensor trunc_normal(std::string_view name, Ints sizes, double std = 1, double mean = 0,
                      double cut = 2) const;
  // Uniform in +- gain * sqrt(6 / (fan_in + fan_out)).
  Tensor xavier_uniform(std::string_view name, Ints sizes, double gain = 1,
                        Fans fans = Fans::in_out) const;
  // Normal with deviation gain * sqrt(2 / (fan_in + fan_out)).
  Tensor xavier_normal(std::string_view name, Ints sizes, double gain = 1,
                       Fans fans = Fans::in_out) const;
  // Uniform in +- gain * sqrt(3 / fan_in); the default gain suits relu.
  Tensor kaiming_uniform(std::string_view name, Ints sizes, double gain = 1.4142135623730951,
                         Fans fans = Fans::in_out) const;
  // Normal with deviation gain / sqrt(fan_in).
  Tensor kaiming_normal(std::string_view name, Ints sizes, double gain = 1.4142135623730951,
                        Fans fans = Fans::in_out) const;

  // The stream of a name, also usable as the key of random ops.
  PhiloxKey key(std::string_view name) const;

 private:
  uint64_t seed_;
  DType dtype_;
};

}  // namespace rlx
