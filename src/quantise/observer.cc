#include "rlx/quantise/observer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rlx/base/suggest.h"
#include "rlx/ops/rules.h"

namespace rlx {

namespace {

// Bins of a whole tensor, and of each of its channels.
constexpr size_t kBins = 4096, kChannelBins = 1024;

// Codes for magnitudes: 0 to 127, or 0 to 255 where no value is negative and all codes are used.
int64_t levels_of(double low, const RangeOptions& o) {
  return o.asymmetric && low >= 0 ? 255 : 127;
}

// The distribution of the first `kept` bins, what lies beyond in the last of them, against the one that `levels + 1` codes
// leave of it: within a code all bins that hold something hold the same. Infinite where a code holds nothing that was kept.
double divergence(std::span<const int64_t> bins, size_t kept, int64_t outliers, size_t codes) {
  const auto count = [&](size_t i) {
    return static_cast<double>(bins[i] + (i + 1 == kept ? outliers : 0));
  };
  double all = 0, inside = 0;
  for (size_t i = 0; i < kept; ++i) all += count(i), inside += static_cast<double>(bins[i]);
  double sum = 0;
  for (size_t c = 0; c < codes; ++c) {
    const size_t begin = c * kept / codes, end = (c + 1) * kept / codes;
    double mass = 0;
    int64_t filled = 0;
    for (size_t i = begin; i < end; ++i) {
      mass += static_cast<double>(bins[i]);
      filled += count(i) > 0;
    }
    if (filled == 0) continue;
    if (mass == 0) return HUGE_VAL;
    const double q = mass / static_cast<double>(filled) / inside;
    for (size_t i = begin; i < end; ++i)
      if (const double p = count(i) / all; p > 0) sum += p * std::log(p / q);
  }
  return sum;
}

// The number of bins to keep: the most whose divergence is the least but for rounding, of those that leave at most one
// value in a hundred out. Divergence knows no distances: where most values are one (the background of an image), it would
// give up all others rather than have that one share its code.
size_t least_divergence(std::span<const int64_t> bins, size_t used, int64_t levels) {
  constexpr double kRounding = 1e-9;
  const auto codes = static_cast<size_t>(levels) + 1;
  std::vector<double> found;  // of all bins, all but one, ..
  const int64_t all = std::accumulate(bins.begin(), bins.end(), int64_t{0});
  int64_t outliers = 0;
  for (size_t kept = used; kept >= codes && outliers <= all / 100; --kept) {
    found.push_back(divergence(bins, kept, outliers, codes));
    outliers += bins[kept - 1];
  }
  if (found.empty()) return used;
  const double least = *std::min_element(found.begin(), found.end());
  const auto first =
      std::find_if(found.begin(), found.end(), [&](double d) { return d <= least + kRounding; });
  return used - static_cast<size_t>(first - found.begin());
}

double squared_error(std::span<const int64_t> bins, size_t used, double width, double range,
                     int64_t levels) {
  const double scale = range / static_cast<double>(levels);
  double sum = 0;
  for (size_t i = 0; i < used; ++i) {
    const double x = (static_cast<double>(i) + 0.5) * width;
    const double code = std::min(std::round(x / scale), static_cast<double>(levels));
    sum += static_cast<double>(bins[i]) * (x - code * scale) * (x - code * scale);
  }
  return sum;
}

// One of these parts of the whole range.
double least_squared_error(std::span<const int64_t> bins, size_t used, double width, double most,
                           int64_t levels) {
  constexpr int kParts = 128, kLeast = 16;
  double best = most, least = HUGE_VAL;
  for (int part = kParts; part >= kLeast; --part) {
    const double range = most * part / kParts;
    const double error = squared_error(bins, used, width, range, levels);
    if (error < least) least = error, best = range;
  }
  return best;
}

}  // namespace

CalibrationMethod parse_calibration_method(std::string_view name) {
  const auto names = enum_names(CalibrationMethod{});
  const auto found = std::find(names.begin(), names.end(), name);
  user_check(found != names.end(), "calibration-method",
             "there is no calibration method {}; there are {}{}", quote(name),
             fmt::join(names, ", "), did_you_mean(name, {names.begin(), names.end()}));
  return static_cast<CalibrationMethod>(found - names.begin());
}

void check_range_options(const RangeOptions& o) {
  user_check(o.percentile > 0 && o.percentile <= 100, "calibration-percentile",
             "calibrate: the percentile must be in (0, 100], not {}", o.percentile);
  user_check(o.smallest_scale > 0 && std::isfinite(o.smallest_scale), "calibration-scale",
             "calibrate: the smallest scale must be positive and finite, not {}", o.smallest_scale);
}

Observer::Observer(std::string name, std::optional<int64_t> axis)
    : name_(std::move(name)), axis_(axis) {}

void Observer::count(Channel& c, double value) {
  const double size = std::fabs(value);
  c.low = std::min(c.low, value);
  c.high = std::max(c.high, value);
  ++c.total;
  if (size == 0) {
    ++c.zeros;
    return;
  }
  if (c.limit == 0) {
    c.bins.assign(axis_ ? kChannelBins : kBins, 0);
    c.limit = std::ldexp(1.0, std::ilogb(size) + 1);
  }
  while (size >= c.limit) {
    for (size_t i = 0; i < c.bins.size() / 2; ++i) c.bins[i] = c.bins[2 * i] + c.bins[2 * i + 1];
    std::fill(c.bins.begin() + static_cast<int64_t>(c.bins.size() / 2), c.bins.end(), 0);
    c.limit *= 2;
  }
  ++c.bins[static_cast<size_t>(size / c.limit * static_cast<double>(c.bins.size()))];
}

void Observer::add(const Tensor& values) {
  int64_t channels = 1, inner = std::max<int64_t>(values.elements(), 1);
  if (axis_) {
    const size_t axis =
        at(normalise_axis(*axis_, static_cast<int64_t>(values.sizes().size()), "calibrate"));
    channels = values.sizes()[axis];
    inner = 1;
    for (size_t i = axis + 1; i < values.sizes().size(); ++i) inner *= values.sizes()[i];
  }
  if (batches_ == 0) channels_.resize(at(channels));
  user_check(at(channels) == channels_.size(), "calibration-shape",
             "calibrate: the tap {} has {} channels in batch {}, and {} in those before", name_,
             channels, batches_, channels_.size());
  const float* floats = values.dtype() == DType::F32 ? values.data<float>() : nullptr;
  for (int64_t i = 0; i < values.elements(); ++i) {
    const double v = floats ? static_cast<double>(floats[i]) : values.get_float(i);
    user_check(std::isfinite(v), "calibration-value", "calibrate: the tap {} has {} in batch {}",
               name_, v, batches_);
    count(channels_[at(inner > 0 ? i / inner % channels : 0)], v);
  }
  ++batches_;
}

double Observer::threshold(const Channel& c, const RangeOptions& o) const {
  const double most = std::max(-c.low, c.high);
  if (o.method == CalibrationMethod::min_max || c.limit == 0) return most;
  const double width = c.limit / static_cast<double>(c.bins.size());
  const size_t used = std::min(static_cast<size_t>(most / width) + 1, c.bins.size());
  const int64_t levels = levels_of(c.low, o);
  const auto edge = [&](size_t bin) { return std::min(most, static_cast<double>(bin) * width); };
  switch (o.method) {
    case CalibrationMethod::percentile: {
      const double wanted = o.percentile / 100 * static_cast<double>(c.total);
      auto seen = static_cast<double>(c.zeros);
      size_t bin = 0;
      while (bin < used && seen < wanted) seen += static_cast<double>(c.bins[bin++]);
      return edge(bin);
    }
    case CalibrationMethod::entropy:
      return edge(least_divergence(c.bins, used, levels));
    default:
      return least_squared_error(c.bins, used, width, most, levels);
  }
}

CalibrationEntry Observer::entry(const RangeOptions& o) const {
  check_range_options(o);
  user_check(batches_ > 0, "calibration-data", "calibrate: the tap {} has seen no data", name_);
  CalibrationEntry out{axis_, {}, {}};
  for (const Channel& c : channels_) {
    const double range = threshold(c, o);
    if (!o.asymmetric) {
      out.scales.push_back(std::max(range / 127, o.smallest_scale));
      out.zero_points.push_back(0);
      continue;
    }
    const double low = std::max(c.low, -range), high = std::min(c.high, range);
    const double scale = std::max((high - low) / 255, o.smallest_scale);
    out.scales.push_back(scale);
    out.zero_points.push_back(
        static_cast<int64_t>(std::clamp(std::nearbyint(-128 - low / scale), -128.0, 127.0)));
  }
  return out;
}

}  // namespace rlx
