// Random numbers that take a varying number of random bits: by rejection, so every element has a
// stream of its own. Pure functions of (key, element, parameter), the same on every backend; the
// algorithms are part of the ops' meaning.
//
//   DrawStream s({k0, k1}, i);
//   double x = draw_gamma(s, 2.5, /*log=*/false);
#pragma once

#include <math.h>

#include <cmath>
#include <limits>
#include <utility>

#include "rlx/base/philox.h"

namespace rlx {

// Uniform and normal numbers for element i: words of the Philox blocks (i, block, 1), two for a
// uniform number. random_bits has 0 in the last place of its counters, so nothing is used twice.
class DrawStream {
 public:
  DrawStream(PhiloxKey key, uint64_t element) : key_(key), counter_(philox_counter(element)) {
    counter_[3] = 1;
  }
  // (the top 52 bits of two words + 1/2) 2^-52, in (0, 1).
  double uniform() {
    if (next_ == 0) {
      block_ = philox4x32(key_, counter_);
      ++counter_[2];
    }
    const uint64_t bits = uint64_t{block_[next_]} << 32 | block_[next_ + 1];
    next_ = 2 - next_;
    return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * M_PI * uniform());
  }

 private:
  PhiloxKey key_;
  PhiloxBlock counter_, block_{};
  size_t next_ = 0;
};

// Rejections that a draw takes before it gives the middle of its distribution: each has a chance below 1/2, so
// this many are never seen, but every loop ends.
inline constexpr int kMostRejections = 10000;

// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); for alpha < 1 a
// draw of alpha + 1 times u^(1/alpha). With `log` its logarithm, which no small alpha underflows. From
// 1e12 on fewer than one in 1e12 is rejected, and rounding would decide which: none is.
inline double draw_gamma(DrawStream& s, double alpha, bool log) {
  if (!(alpha >= 0)) return std::numeric_limits<double>::quiet_NaN();
  if (alpha == 0 || std::isinf(alpha)) return log ? std::log(alpha) : alpha;
  const double power = alpha < 1 ? std::log(s.uniform()) / alpha : 0;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  double v = 1;
  for (int tries = 0; tries < kMostRejections; ++tries) {
    const double z = s.normal(), root = 1 + c * z, u = s.uniform();
    if (root <= 0) continue;
    v = root * root * root;
    if (d > 1e12 || std::log(u) < 0.5 * z * z + d * (1 - v + std::log(v))) break;
  }
  return log ? std::log(d * v) + power : d * v * std::exp(power);
}

// psi(x) - log x for x >= 10, by its asymptotic series.
inline double digamma_minus_log(double x) {
  const double r = 1 / (x * x);
  const double tail =
      r * (1.0 / 12 - r * (1.0 / 120 -
                           r * (1.0 / 252 -
                                r * (1.0 / 240 - r * (1.0 / 132 - r * (691.0 / 32760 - r / 12))))));
  return -0.5 / x - tail;
}

// psi(x) for x > 0: up to 10 by psi(x) = psi(x + 1) - 1/x.
inline double digamma(double x) {
  double sum = 0;
  for (; x < 10; ++x) sum -= 1 / x;
  return sum + std::log(x) + digamma_minus_log(x);
}

// How a gamma number moves with alpha when its place in the distribution stays (implicit
// reparameterisation): -(dP/dalpha) / (dP/dx) for the distribution function P(alpha, x), divided by x.
//
// Below alpha, from the series P = x^alpha e^-x / Gamma(alpha + 1) sum_n t_n with t_n = x^n / ((alpha + 1) ..
// (alpha + n)): sum_n t_n (psi(alpha + n + 1) - log x) / alpha. For x <= 100 some 100 terms do.
inline double gamma_derivative_by_series(double alpha, double x, double log_x) {
  constexpr int kMostTerms = 400;
  double psi = digamma(alpha + 1), term = 1, sum = psi - log_x;
  for (int n = 1; n < kMostTerms && term > 1e-17 * std::fabs(sum); ++n) {
    psi += 1 / (alpha + n);
    term *= x / (alpha + n);
    sum += term * (psi - log_x);
  }
  return sum / alpha;
}

// e^v - 1 - v without cancelling.
inline double exponential_rest(double v) {
  if (std::fabs(v) > 0.5) return std::expm1(v) - v;
  double sum = 1;
  for (int k = 16; k > 2; --k) sum = 1 + sum * v / k;
  return 0.5 * v * v * sum;
}

// Elsewhere from the integral on the side of x where the distribution's tail is: with t = x e^-v below x
// (x <= alpha) and t = x e^v above, dP/dalpha over x dP/dx is
//   integral over v > 0 of (v +- (psi(alpha) - log x)) exp(-|x - alpha| v - x (e^-+v - 1 +- v)),
// whose integrand neither oscillates nor cancels. In units of its width, by the trapezoidal rule under
// v = exp(s - exp(-s)) (Takahasi and Mori, "Double exponential formulas", 1974): 81 points for 15 digits.
inline double gamma_derivative_by_integral(double alpha, double x) {
  constexpr int kPoints = 81;
  struct Rule {
    double at[kPoints], weight[kPoints];
    Rule() {
      for (int i = 0; i < kPoints; ++i) {
        const double s = 0.1 * i - 3.8, e = std::exp(-s);
        at[i] = std::exp(s - e), weight[i] = 0.1 * at[i] * (1 + e);
      }
    }
  };
  static const Rule rule;
  const double ratio = alpha / x, near = (alpha - x) / x;  // log x - psi(alpha) may be tiny
  const double logs = ratio > 0.5 && ratio < 2 ? std::log1p(near) : std::log(alpha) - std::log(x);
  const double psi = alpha < 10 ? digamma(alpha) - std::log(x) : logs + digamma_minus_log(alpha);
  const double side = x <= alpha ? -1 : 1, away = std::fabs(x - alpha);
  const double width = 1 / (away + std::sqrt(0.5 * x));
  double sum = 0;
  for (int i = 0; i < kPoints; ++i) {
    const double v = width * rule.at[i];
    sum += rule.weight[i] * (v - side * psi) * std::exp(-away * v - x * exponential_rest(side * v));
  }
  return sum * width;
}

// The derivative by alpha of a gamma number y; with `log`, y is its logarithm and so is what moves. Of
// numbers that are not finite the limit.
inline double gamma_derivative(double alpha, double y, bool log) {
  if (!(alpha > 0) || std::isnan(y) || (!log && y < 0))
    return std::numeric_limits<double>::quiet_NaN();
  const double log_x = log ? y : std::log(y), x = log ? std::exp(y) : y;
  if (!log && x == 0) return 0;
  if (std::isinf(alpha)) return !log && std::isinf(x) ? 1 : 0;
  if (std::isinf(x)) return log ? 0 : x;
  const bool series = x <= 0.5 || (x <= 100 && x <= alpha + 1);
  const double moved =
      series ? gamma_derivative_by_series(alpha, x, log_x) : gamma_derivative_by_integral(alpha, x);
  return log ? moved : moved * x;
}

inline double log_factorial(double k) {
  int sign = 0;  // std::lgamma would write to a global
  return lgamma_r(k + 1, &sign);
}

// Below 10 products of uniform numbers (Knuth); from there Hoermann's transformed rejection PTRS
// ("The transformed rejection method for generating Poisson random variables", 1993).
inline double draw_poisson(DrawStream& s, double rate) {
  if (!(rate >= 0) || std::isinf(rate)) return std::numeric_limits<double>::quiet_NaN();
  if (rate < 10) {
    const double limit = std::exp(-rate);
    double count = 0;
    for (double product = s.uniform(); product > limit && count < kMostRejections;
         product *= s.uniform())
      ++count;
    return count;
  }
  const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), bound = 0.9277 - 3.6224 / (b - 2);
  for (int tries = 0; tries < kMostRejections; ++tries) {
    const double u = s.uniform() - 0.5, v = s.uniform(), left = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / left + b) * u + rate + 0.43);
    if (left >= 0.07 && v <= bound) return k;
    if (k < 0 || (left < 0.013 && v > left)) continue;
    if (std::log(v * inverse_alpha / (a / (left * left) + b)) <=
        k * std::log(rate) - rate - log_factorial(k))
      return k;
  }
  return std::floor(rate);
}

inline double normal_below(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

// The x that a standard normal number is below with probability p <= 1/2: a rational start
// (Abramowitz and Stegun 26.2.22), then Halley's iteration.
inline double normal_quantile(double p) {
  const double t = std::sqrt(-2 * std::log(p));
  double x = (2.30753 + 0.27061 * t) / (1 + 0.99229 * t + 0.04481 * t * t) - t;
  for (int i = 0; i < 3; ++i) {
    const double step = (normal_below(x) - p) * 2.50662827463100050242 * std::exp(0.5 * x * x);
    x -= step / (1 + 0.5 * x * step);
  }
  return x;
}

// A standard normal number between the bounds, by inverting the distribution in the lower half.
inline double draw_truncated_normal(DrawStream& s, double lower, double upper) {
  const bool mirrored = lower > 0;
  if (mirrored) std::swap(lower, upper), lower = -lower, upper = -upper;
  const double from = normal_below(lower), to = normal_below(upper);
  const double p = from + s.uniform() * (to - from);
  const double x = p <= 0.5 ? normal_quantile(p) : -normal_quantile(1 - p);
  const double inside = x < lower ? lower : x > upper ? upper : x;
  return mirrored ? -inside : inside;
}

// 0 .. n - 1 in random order (Fisher and Yates, from the end), from the stream of element 0.
inline void draw_permutation(PhiloxKey key, int64_t n, int64_t* out) {
  DrawStream s(key, 0);
  for (int64_t i = 0; i < n; ++i) out[i] = i;
  for (int64_t i = n - 1; i > 0; --i)
    std::swap(out[i], out[static_cast<int64_t>(s.uniform() * static_cast<double>(i + 1))]);
}

}  // namespace rlx
