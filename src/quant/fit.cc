#include "rlx/quant/fit.h"

#include <algorithm>
#include <cmath>

#include "rlx/quant/blocks.h"

namespace rlx::quant {
namespace {

// The element furthest from 0.
float extreme(const float* x, int n) {
  return *std::max_element(x, x + n, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

// For codes q of x: the best scale is <x, q> / <q, q>, and it lowers the squared error by <x, q>^2 / <q, q>.
struct Products {
  double xq = 0, qq = 0;
  void add(double x, double q) { xq += x * q, qq += q * q; }
  double gain() const { return qq > 0 ? xq * xq / qq : 0; }
  float scale() const { return qq > 0 ? static_cast<float>(xq / qq) : 0; }
};

constexpr int kTries = 10;  // on either side of the plain choice, in steps of 1% to 10% of a level

}  // namespace

float fit_scale(const float* x, int n, int limit) {
  const float most = extreme(x, n);
  Products best;
  for (int k = -kTries; k <= kTries && most != 0; ++k) {
    const float to_code = -(static_cast<float>(limit) + 0.1f * static_cast<float>(k)) / most;
    Products p;
    for (int i = 0; i < n; ++i)
      p.add(x[i], clamp_int(std::nearbyint(x[i] * to_code), -limit, limit - 1));
    if (p.gain() > best.gain()) best = p;
  }
  return best.scale();
}

ScaleMin fit_scale_min(const float* x, int n, int levels) {
  const float low = std::min(0.0f, *std::min_element(x, x + n)), high = *std::max_element(x, x + n);
  ScaleMin best{0, -low};
  double least = INFINITY;
  for (int k = -kTries; k <= 2 * kTries && high > low; ++k) {
    const float to_code =
        (static_cast<float>(levels) + 0.1f * static_cast<float>(k)) / (high - low);
    double sq = 0, sqq = 0, sx = 0, sxq = 0, sxx = 0;
    for (int i = 0; i < n; ++i) {
      const double q = clamp_int(std::nearbyint((x[i] - low) * to_code), 0, levels);
      sq += q, sqq += q * q, sx += x[i], sxq += x[i] * q, sxx += static_cast<double>(x[i]) * x[i];
    }
    // Least squares for x ~ scale * q + offset, the offset not above 0.
    const double determinant = n * sqq - sq * sq;
    double scale = 0, offset = sx / n;
    if (determinant > 0) scale = (n * sxq - sx * sq) / determinant, offset = (sx - scale * sq) / n;
    // One above 0 is none; so is the mean of numbers whose codes are all alike, which only numbers above 0 have.
    if (sqq > 0 && offset > 0) scale = sxq / sqq, offset = 0;
    const double error = sxx + scale * scale * sqq + n * offset * offset - 2 * scale * sxq -
                         2 * offset * sx + 2 * scale * offset * sq;
    if (error < least) {
      least = error;
      best = {static_cast<float>(scale), static_cast<float>(-offset)};
    }
  }
  return best;
}

int nearest_value(float x, const float* values, int count) {
  const auto above = static_cast<int>(std::lower_bound(values, values + count, x) - values);
  if (above == 0) return 0;
  if (above == count) return count - 1;
  return x - values[above - 1] < values[above] - x ? above - 1 : above;
}

float fit_values(const float* x, int n, const float* values, int count) {
  const float most = extreme(x, n);
  Products best;
  for (const float end : {values[0], values[count - 1]})
    for (int k = -kTries; k <= kTries && most != 0; ++k) {
      const float to_value = end * (1 + 0.02f * static_cast<float>(k)) / most;
      Products p;
      for (int i = 0; i < n; ++i)
        p.add(x[i], values[nearest_value(x[i] * to_value, values, count)]);
      if (p.gain() > best.gain()) best = p;
    }
  return best.scale();
}

}  // namespace rlx::quant
