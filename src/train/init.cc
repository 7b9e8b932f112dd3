#include "rlx/train/init.h"

#include <cmath>

#include "rlx/base/error.h"
#include "rlx/base/hash.h"

namespace rlx {
namespace {

constexpr double kTwoPi = 6.283185307179586;

struct FanSizes {
  double in, out;
};

FanSizes fans_of(std::string_view name, const Ints& sizes, Fans fans) {
  user_check(sizes.size() >= 2, "init-fan",
             "\"{}\": an initialiser that scales by fans needs a matrix, got [{}]", name,
             fmt::join(sizes, ", "));
  const auto all = static_cast<double>(product(sizes));
  if (fans == Fans::out_in)
    return {all / static_cast<double>(sizes[0]), all / static_cast<double>(sizes[1])};
  const auto out = static_cast<double>(sizes.back());
  return {all / out, out};
}

// A standard normal number by Box and Muller from one block.
double normal_of(const PhiloxBlock& r) {
  const double u1 = 1 - philox_uniform(r[0], r[1]), u2 = philox_uniform(r[2], r[3]);
  return std::sqrt(-2 * std::log(u1)) * std::cos(kTwoPi * u2);
}

// Element i is draw(block), where `draw` may ask for block (i, attempt).
template <class F>
Tensor fill(DType dtype, Ints sizes, F&& draw) {
  Tensor t(dtype, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, draw(static_cast<uint64_t>(i)));
  return t;
}

PhiloxBlock block_of(PhiloxKey key, uint64_t i, uint32_t attempt = 0) {
  PhiloxBlock counter = philox_counter(i);
  counter[2] = attempt;
  return philox4x32(key, counter);
}

}  // namespace

PhiloxKey Init::key(std::string_view name) const {
  return philox_key(mix(mix(0, seed_), hash_text(name)));
}

Tensor Init::normal(std::string_view name, Ints sizes, double std, double mean) const {
  return fill(dtype_, std::move(sizes),
              [&, k = key(name)](uint64_t i) { return mean + std * normal_of(block_of(k, i)); });
}

Tensor Init::uniform(std::string_view name, Ints sizes, double low, double high) const {
  user_check(low <= high, "init-range", "\"{}\": the range [{}, {}) is empty", name, low, high);
  return fill(dtype_, std::move(sizes), [&, k = key(name)](uint64_t i) {
    const PhiloxBlock r = block_of(k, i);
    return low + (high - low) * philox_uniform(r[0], r[1]);
  });
}

Tensor Init::trunc_normal(std::string_view name, Ints sizes, double std, double mean,
                          double cut) const {
  user_check(cut >= 0.1, "init-range",
             "\"{}\": a cut of {} deviations leaves too little to draw from", name, cut);
  return fill(dtype_, std::move(sizes), [&, k = key(name)](uint64_t i) {
    for (uint32_t attempt = 0;; ++attempt) {
      const double z = normal_of(block_of(k, i, attempt));
      if (std::abs(z) <= cut) return mean + std * z;
    }
  });
}

Tensor Init::xavier_uniform(std::string_view name, Ints sizes, double gain, Fans fans) const {
  const FanSizes f = fans_of(name, sizes, fans);
  const double bound = gain * std::sqrt(6 / (f.in + f.out));
  return uniform(name, std::move(sizes), -bound, bound);
}

Tensor Init::xavier_normal(std::string_view name, Ints sizes, double gain, Fans fans) const {
  const FanSizes f = fans_of(name, sizes, fans);
  return normal(name, std::move(sizes), gain * std::sqrt(2 / (f.in + f.out)));
}

Tensor Init::kaiming_uniform(std::string_view name, Ints sizes, double gain, Fans fans) const {
  const double bound = gain * std::sqrt(3 / fans_of(name, sizes, fans).in);
  return uniform(name, std::move(sizes), -bound, bound);
}

Tensor Init::kaiming_normal(std::string_view name, Ints sizes, double gain, Fans fans) const {
  const double std = gain / std::sqrt(fans_of(name, sizes, fans).in);
  return normal(name, std::move(sizes), std);
}

}  // namespace rlx
