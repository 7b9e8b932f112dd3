// The loops of lines.h. Included only by the lines_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/lines/lines.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

template <int W>
struct Lines {
  static constexpr int L = kLanes<float, W>;

  static void add_scaled(float* sums, const float* x, float scale, int64_t n) {
    const Vec<float, W> s = splat<float, W>(scale);
    int64_t i = 0;
    for (; i + L <= n; i += L)
      store<float, W>(sums + i, load<float, W>(sums + i) + s * load<float, W>(x + i));
    for (; i < n; ++i) sums[i] += scale * x[i];
  }

  static void add_run(float* whole, float* lost, const float* run, int64_t n) {
    int64_t i = 0;
    for (; i + L <= n; i += L) {
      Vec<float, W> sum = load<float, W>(whole + i), rest = load<float, W>(lost + i);
      cpu::add_run(sum, rest, load<float, W>(run + i));
      store<float, W>(whole + i, sum);
      store<float, W>(lost + i, rest);
    }
    for (; i < n; ++i) cpu::add_run(whole[i], lost[i], run[i]);
  }

  static void add_running(const float* whole, const float* lost, float* run, const float* x,
                          float* y, int64_t n) {
    int64_t i = 0;
    for (; i + L <= n; i += L) {
      const Vec<float, W> now = load<float, W>(run + i) + load<float, W>(x + i);
      store<float, W>(run + i, now);
      store<float, W>(y + i, load<float, W>(whole + i) + (load<float, W>(lost + i) + now));
    }
    for (; i < n; ++i) {
      run[i] += x[i];
      y[i] = whole[i] + (lost[i] + run[i]);
    }
  }

  template <bool largest>
  static void extreme(float* best, const float* x, int64_t n) {
    int64_t i = 0;
    for (; i + L <= n; i += L) {
      const Vec<float, W> b = load<float, W>(best + i), v = load<float, W>(x + i);
      const auto better = largest ? v > b : v < b;
      store<float, W>(best + i, b != b ? b : (better | (v != v)) ? v : b);
    }
    for (; i < n; ++i) {
      const float b = best[i], v = x[i];
      best[i] = b != b ? b : (largest ? v > b : v < b) || v != v ? v : b;
    }
  }
};

template <int W>
LineFns line_fns_of() {
  return {&Lines<W>::add_scaled, &Lines<W>::template extreme<true>,
          &Lines<W>::template extreme<false>, &Lines<W>::add_run, &Lines<W>::add_running};
}

template LineFns line_fns_of<kVectorBytes>();

}  // namespace rlx::cpu
