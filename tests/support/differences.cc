#include "differences.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "rlx/base/error.h"
#include "rlx/base/format.h"

namespace rlx::testing {

namespace {

constexpr double kWithin = 1e-6, kOfValue = 1e-3, kNearly = 1e-8;

double largest(const Tensor& t) {
  double out = 0;
  for (int64_t i = 0; i < t.elements(); ++i)
    if (std::isfinite(t.get_float(i))) out = std::max(out, std::fabs(t.get_float(i)));
  return out;
}

// The values around t = 0 at one step: f(-2h), f(-h), f(h), f(2h).
struct Around {
  double step;
  Tensors at[4];

  double slope(size_t output, int64_t i) const {
    const auto y = [&](int k) { return at[k][output].get_float(i); };
    return (8 * (y(2) - y(1)) - (y(3) - y(0))) / (12 * step);
  }
  // How far the slopes before and behind 0 are apart.
  double bend(size_t output, int64_t i, double value) const {
    return std::fabs(at[1][output].get_float(i) + at[2][output].get_float(i) - 2 * value) / step;
  }
};

std::optional<Around> around(FunctionRef<Tensors(double)> f, double step) {
  try {
    return Around{step, {f(-2 * step), f(-step), f(step), f(2 * step)}};
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return std::nullopt;  // an index or a matrix that depends on what moves
  }
}

}  // namespace

std::string against_differences(FunctionRef<Tensors(double)> f, const Tensors& stated,
                                DifferenceCounts& counts) {
  const Tensors values = f(0);
  if (values.size() != stated.size())
    return fmt::format("{} results have {} derivatives", values.size(), stated.size());
  std::vector<Around> steps;
  const auto one_more = [&](double step) {
    if (auto a = around(f, step)) steps.push_back(std::move(*a));
  };
  one_more(0x1p-8);
  for (size_t o = 0; o < stated.size(); ++o) {
    if (values[o].sizes() != stated[o].sizes())
      return fmt::format("result {} is {}, its derivative {}", o, values[o].type(),
                         stated[o].type());
    const double floor = std::max({largest(stated[o]), kOfValue * largest(values[o]), kOfValue});
    for (int64_t i = 0; i < stated[o].elements(); ++i) {
      const double want = stated[o].get_float(i), value = values[o].get_float(i);
      const auto agrees = [&](const Around& a) {
        const double s = a.slope(o, i);
        return std::fabs(s - want) <= kWithin * std::max(floor, std::fabs(s));
      };
      ++counts.elements;
      // 0 * NaN of a value that nothing reads in the end, a carry of a scan that is overwritten, say.
      if (!std::isfinite(want)) {
        ++counts.unstable;
        continue;
      }
      bool fine = std::isfinite(value) && !steps.empty() && agrees(steps[0]);
      if (fine) continue;
      if (steps.size() <= 1)
        for (double step : {0x1p-11, 0x1p-14, 0x1p-17}) one_more(step);
      fine = std::any_of(steps.begin(), steps.end(), agrees);
      if (fine) continue;
      double low = INFINITY, high = -INFINITY, bend = 0, bend_before = 0;
      bool finite = std::isfinite(value) && steps.size() > 1;
      for (const Around& a : steps) {
        const double s = a.slope(o, i);
        finite = finite && std::isfinite(s);
        if (a.step < 0x1p-10) low = std::min(low, s), high = std::max(high, s);
        bend_before = std::exchange(bend, a.bend(o, i, value));
      }
      const double scale = std::max({floor, std::fabs(low), std::fabs(high)});
      const bool kink = bend > kWithin * scale && bend > bend_before / 2;
      if (!finite || high - low > 100 * kWithin * scale || kink) {
        ++counts.unstable;
        continue;
      }
      return fmt::format("result {}, element {}: {} where differences give {} to {}", o, i, want,
                         low, high);
    }
  }
  return {};
}

std::string nearly_equal(const Tensor& a, const Tensor& b, double scale, bool derivatives) {
  if (a.sizes() != b.sizes()) return fmt::format("{} and {}", a.type(), b.type());
  const double all = std::max({largest(a), largest(b), scale});
  for (int64_t i = 0; i < a.elements(); ++i) {
    const double v = a.get_float(i), w = b.get_float(i);
    const bool finite[] = {std::isfinite(v), std::isfinite(w)};
    if (derivatives ? !(finite[0] && finite[1]) : !finite[0] && !finite[1]) continue;
    if (!(std::fabs(v - w) <= kNearly * all)) return fmt::format("element {}: {} and {}", i, v, w);
  }
  return {};
}

}  // namespace rlx::testing
