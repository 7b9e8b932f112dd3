// A line of float sums to which terms are added element by element, in runs (compensated.h).
//
//   LineSums<float> sums(fns, 16, run, whole, lost, n);      // n elements each; run is cleared
//   for (...) { sums.next(); add_a_line_to(run); }
//   sums.finish();                                           // run holds the sums
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/lines/lines.h"

namespace rlx::cpu {

template <std::floating_point T>
class LineSums {
 public:
  // plain: how many terms a run has.
  LineSums(const LineFns& fns, int64_t plain, T* run, T* whole, T* lost, int64_t n)
      : fns_(fns), plain_(plain), run_(run), whole_(whole), lost_(lost), n_(n) {
    std::fill_n(run, n, T{});
  }
  // Before each term (at most one of each element).
  void next() {
    if (++terms_ > plain_) fold(), terms_ = 1;
  }
  void finish() {
    if (!folded_) return;
    fold();
    for (int64_t i = 0; i < n_; ++i) run_[i] = whole_[i] + lost_[i];
  }

 private:
  void fold() {
    if (!folded_) std::fill_n(whole_, n_, T{}), std::fill_n(lost_, n_, T{});
    folded_ = true;
    if constexpr (std::is_same_v<T, float>) {
      fns_.add_run(whole_, lost_, run_, n_);
    } else {
      for (int64_t i = 0; i < n_; ++i) add_run(whole_[i], lost_[i], run_[i]);
    }
    std::fill_n(run_, n_, T{});
  }

  const LineFns& fns_;
  int64_t plain_;
  T *run_, *whole_, *lost_;
  int64_t n_, terms_ = 0;
  bool folded_ = false;
};

}  // namespace rlx::cpu
