// What calibration keeps of the values that it saw, and the range that it makes of them.
//
//   Observer seen("x");                             // Observer("w", 0): a range for each index along axis 0
//   for (const Tensor& batch : data) seen.add(batch);
//   CalibrationEntry e = seen.entry({.method = CalibrationMethod::entropy});
//
// Magnitudes are counted in bins of equal width over [0, R), R a power of two that doubles when a value leaves it: bins
// then merge in pairs. So nothing depends on how the values were split into batches or in which order they came. Zeros, which
// every scale represents, are counted apart.
//
// Raises Error(user): "calibration-value" for NaN and infinities, "calibration-data" where nothing was seen, "axis-range",
// "calibration-shape" for a batch with another number of channels.
#pragma once

#include "rlx/passes/insert_q_dq.h"

namespace rlx {

enum class CalibrationMethod : uint8_t {
  min_max,     // all values are in range
  percentile,  // so many of a hundred magnitudes are
  entropy,  // the range whose codes lose the least information: the least Kullback-Leibler divergence,
            // among those that leave at most one value in a hundred out
  mse,      // the range with the least squared error
};
inline std::span<const std::string_view> enum_names(CalibrationMethod) {
  static constexpr std::string_view names[] = {"min_max", "percentile", "entropy", "mse"};
  return names;
}
// Raises "calibration-method" for a name that is none.
CalibrationMethod parse_calibration_method(std::string_view name);

// Symmetric: scale = range / 127, zero point 0. Asymmetric: the range from the lowest to the highest value, 0 among them,
// on all 256 codes.
struct RangeOptions {
  CalibrationMethod method = CalibrationMethod::min_max;
  double percentile = 99.99;  // in (0, 100]
  bool asymmetric = false;
  double smallest_scale = 1e-6;
};
// Raises "calibration-percentile", "calibration-scale" (a smallest scale of 0).
void check_range_options(const RangeOptions& options);

class Observer {
 public:
  explicit Observer(std::string name, std::optional<int64_t> axis = {});
  void add(const Tensor& values);
  CalibrationEntry entry(const RangeOptions& options) const;
  const std::string& name() const { return name_; }

 private:
  struct Channel {
    double low = 0, high = 0;  // of all values and 0
    double limit = 0;          // of the bins; 0: nothing but zeros was seen
    int64_t zeros = 0, total = 0;
    std::vector<int64_t> bins;
  };
  void count(Channel& c, double value);
  double threshold(const Channel& c, const RangeOptions& o) const;

  std::string name_;
  std::optional<int64_t> axis_;
  int64_t batches_ = 0;
  std::vector<Channel> channels_;
};

}  // namespace rlx
