// Convolution and its transpose in x with one channel in and one out per group: a plane is a block,
// and every tap adds a scaled line to a line of sums.
#include <algorithm>
#include <type_traits>

#include "rlx/backend/cpu/kernels/conv_lines.h"
#include "rlx/backend/cpu/kernels/lines.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"

namespace rlx::cpu {
namespace {

// to[i * to_stride] += scale * from[i * from_stride]
template <class S, class T>
void add_line(const LineFns& fns, T* to, int64_t to_stride, const S* from, int64_t from_stride,
              T scale, int64_t n) {
  if constexpr (std::is_same_v<S, float>)
    if (to_stride == 1 && from_stride == 1) return fns.add_scaled(to, from, scale, n);
  for (int64_t i = 0; i < n; ++i)
    to[i * to_stride] =
        static_cast<T>(to[i * to_stride] + scale * Element<S>::get(from[i * from_stride]));
}

class DirectConv final : public ConvPlan {
 public:
  DirectConv(const ConvProblem& p, ConvSum sum, Isa isa)
      : p_(p), forward_(sum == ConvSum::y), fns_(line_fns(isa)) {}

  int64_t blocks() const override { return p_.images * p_.groups; }
  // Sums of a line of results, or of a whole plane of x.
  size_t scratch_bytes() const override {
    return static_cast<size_t>(forward_ ? p_.y[2] : p_.pixels()) * sizeof(double);
  }
  void run(int64_t block, const void* a, const void* w, void* out,
           std::byte* scratch) const override {
    visit_dtype(p_.dtype, [&]<class S>() {
      if constexpr (!std::is_same_v<S, c64_t> && !std::is_same_v<S, bool_t>) {
        const S* const kernel = static_cast<const S*>(w) + block % p_.groups * p_.taps();
        auto* const sums = reinterpret_cast<Compute<S>*>(scratch);
        if (forward_)
          sum_by_y(static_cast<const S*>(a) + block * p_.pixels(), kernel,
                   static_cast<S*>(out) + block * p_.positions(), sums);
        else
          sum_by_x(static_cast<const S*>(a) + block * p_.positions(), kernel,
                   static_cast<S*>(out) + block * p_.pixels(), sums);
      }
    });
  }

 private:
  // Calls f(tap, the line of the plane it meets, the valid columns of the line of results).
  template <class E, class F>
  void for_each_tap(E* plane, int64_t line, F f) const {
    for (int64_t k = 0; k < p_.taps(); ++k) {
      const Tap tap = tap_of(p_, k);
      E* const met = line_of(p_, plane, tap, line);
      if (!met) continue;
      const int64_t start = start_of(p_, tap, 0);
      const Valid valid(start, p_.stride[2], p_.x[2], p_.y[2]);
      if (valid.begin < valid.end) f(k, met + start + valid.begin * p_.stride[2], valid);
    }
  }

  template <class S>
  void sum_by_y(const S* x, const S* kernel, S* y, Compute<S>* sums) const {
    for (int64_t line = 0; line < p_.y[0] * p_.y[1]; ++line, y += p_.y[2]) {
      std::fill(sums, sums + p_.y[2], Compute<S>{});
      for_each_tap(x, line, [&](int64_t k, const S* from, const Valid& valid) {
        add_line(fns_, sums + valid.begin, 1, from, p_.stride[2], Element<S>::get(kernel[k]),
                 valid.end - valid.begin);
      });
      for (int64_t i = 0; i < p_.y[2]; ++i) y[i] = Element<S>::put(sums[i]);
    }
  }

  template <class S>
  void sum_by_x(const S* dy, const S* kernel, S* dx, Compute<S>* sums) const {
    std::fill(sums, sums + p_.pixels(), Compute<S>{});
    for (int64_t line = 0; line < p_.y[0] * p_.y[1]; ++line, dy += p_.y[2])
      for_each_tap(sums, line, [&](int64_t k, Compute<S>* to, const Valid& valid) {
        add_line(fns_, to, p_.stride[2], dy + valid.begin, 1, Element<S>::get(kernel[k]),
                 valid.end - valid.begin);
      });
    for (int64_t i = 0; i < p_.pixels(); ++i) dx[i] = Element<S>::put(sums[i]);
  }

  ConvProblem p_;
  bool forward_;
  LineFns fns_;
};

}  // namespace

std::unique_ptr<const ConvPlan> make_direct_conv(const ConvProblem& p, ConvSum sum, Isa isa) {
  return std::make_unique<DirectConv>(p, sum, isa);
}

}  // namespace rlx::cpu
