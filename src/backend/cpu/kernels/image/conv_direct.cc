// Convolution and its transpose in x with one channel in and one out per group: a plane is a block,
// and every tap that meets a line of results adds a scaled line to it.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "rlx/backend/cpu/kernels/image/conv_lines.h"
#include "rlx/backend/cpu/kernels/lines/line_sums.h"
#include "rlx/backend/cpu/kernels/lines/lines.h"
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
      : p_(p), forward_(sum == ConvSum::y), fns_(line_fns(isa)), columns_(columns_of(p)) {}

  int64_t blocks() const override { return p_.images * p_.groups; }
  // A line of sums, and two more where they are formed in runs.
  size_t scratch_bytes() const override { return 3 * line_bytes(); }
  void run(int64_t block, const void* a, const void* w, void* out,
           std::byte* scratch) const override {
    visit_dtype(p_.dtype, [&]<class S>() {
      if constexpr (!std::is_same_v<S, c64_t> && !std::is_same_v<S, bool_t>) {
        const S* const kernel = static_cast<const S*>(w) + block % p_.groups * p_.taps();
        if (forward_)
          sum_by_y(static_cast<const S*>(a) + block * p_.pixels(), kernel,
                   static_cast<S*>(out) + block * p_.positions(), scratch);
        else
          sum_by_x(static_cast<const S*>(a) + block * p_.positions(), kernel,
                   static_cast<S*>(out) + block * p_.pixels(), scratch);
      }
    });
  }

 private:
  size_t line_bytes() const {
    return static_cast<size_t>(align_up((forward_ ? p_.y[2] : p_.x[2]) * 8, 64));
  }

  // Calls f(sums, next) for a line of n sums, then stores them; f calls next() before each tap.
  template <class S, class F>
  void sum_line(std::byte* scratch, int64_t n, S* to, F f) const {
    using T = Compute<S>;
    T* const sums = reinterpret_cast<T*>(scratch);
    if constexpr (std::is_floating_point_v<T>) {
      LineSums<T> runs(fns_, kPlainTerms, sums, reinterpret_cast<T*>(scratch + line_bytes()),
                       reinterpret_cast<T*>(scratch + 2 * line_bytes()), n);
      f(sums, [&] { runs.next(); });
      runs.finish();
    } else {
      std::fill(sums, sums + n, T{});
      f(sums, [] {});
    }
    for (int64_t i = 0; i < n; ++i) to[i] = Element<S>::put(sums[i]);
  }

  template <class S>
  void sum_by_y(const S* x, const S* kernel, S* y, std::byte* scratch) const {
    const auto& [kd, kh, kw] = p_.kernel;
    for (int64_t line = 0; line < p_.y[0] * p_.y[1]; ++line, y += p_.y[2])
      sum_line(scratch, p_.y[2], y, [&](Compute<S>* sums, auto next) {
        const S* tap = kernel;
        for (int64_t depth = 0; depth < kd; ++depth)
          for (int64_t row = 0; row < kh; ++row, tap += kw) {
            const S* const met = line_of(p_, x, {depth, row, 0}, line);
            if (!met) continue;
            for (const Column& c : columns_) {
              next();
              add_line(fns_, sums + c.begin, 1, met + c.x, p_.stride[2],
                       Element<S>::get(tap[c.tap]), c.count);
            }
          }
      });
  }

  // The position along `axis` whose tap `tap` meets element `at` of x; -1 when none does.
  int64_t position_of(size_t axis, int64_t at, int64_t tap) const {
    const int64_t offset = at + p_.low[axis] - tap * p_.dilation[axis];
    if (offset < 0 || offset % p_.stride[axis]) return -1;
    return offset / p_.stride[axis] < p_.y[axis] ? offset / p_.stride[axis] : -1;
  }

  template <class S>
  void sum_by_x(const S* dy, const S* kernel, S* dx, std::byte* scratch) const {
    const auto& [kd, kh, kw] = p_.kernel;
    for (int64_t line = 0; line < p_.x[0] * p_.x[1]; ++line, dx += p_.x[2])
      sum_line(scratch, p_.x[2], dx, [&](Compute<S>* sums, auto next) {
        for (int64_t depth = 0; depth < kd; ++depth) {
          const int64_t y_depth = position_of(0, line / p_.x[1], depth);
          for (int64_t row = 0; y_depth >= 0 && row < kh; ++row) {
            const int64_t y_row = position_of(1, line % p_.x[1], row);
            if (y_row < 0) continue;
            const S* const from = dy + (y_depth * p_.y[1] + y_row) * p_.y[2];
            for (const Column& c : columns_) {
              next();
              add_line(fns_, sums + c.x, p_.stride[2], from + c.begin, 1,
                       Element<S>::get(kernel[(depth * kh + row) * kw + c.tap]), c.count);
            }
          }
        }
      });
  }

  // A tap along the last axis: which results of a line it has a part in, and where the first of them
  // meets x.
  struct Column {
    int64_t tap, begin, count, x;
  };
  static std::vector<Column> columns_of(const ConvProblem& p) {
    std::vector<Column> columns;
    for (int64_t k = 0; k < p.kernel[2]; ++k) {
      const int64_t start = start_of(p, {0, 0, k}, 0);
      const Valid valid(start, p.stride[2], p.x[2], p.y[2]);
      if (valid.begin < valid.end)
        columns.push_back(
            {k, valid.begin, valid.end - valid.begin, start + valid.begin * p.stride[2]});
    }
    return columns;
  }

  ConvProblem p_;
  bool forward_;
  LineFns fns_;
  std::vector<Column> columns_;
};

}  // namespace

std::unique_ptr<const ConvPlan> make_direct_conv(const ConvProblem& p, ConvSum sum, Isa isa) {
  return std::make_unique<DirectConv>(p, sum, isa);
}

}  // namespace rlx::cpu
