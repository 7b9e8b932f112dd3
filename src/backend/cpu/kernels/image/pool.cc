#include "rlx/backend/cpu/kernels/image/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rlx/backend/cpu/kernels/lines/line_sums.h"
#include "rlx/backend/cpu/kernels/lines/lines.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kBlockWork = 1 << 14;  // taps
constexpr int64_t kPoolRun = 16;         // terms of a float sum that are added plainly

template <class S>
constexpr bool kInteger = std::is_integral_v<S>;
template <class S>
constexpr bool kPooled = !std::is_same_v<S, c64_t> && !std::is_same_v<S, bool_t>;

// What windows are folded in: integers as signed 64-bit ones, so that they compare and divide as
// they are.
template <class S>
struct FoldType {
  using type = Compute<S>;
};
template <class S>
  requires kInteger<S>
struct FoldType<S> {
  using type = int64_t;
};
template <class S>
using Fold = typename FoldType<S>::type;

template <class S>
Fold<S> value_of(S x) {
  if constexpr (kInteger<S>)
    return x;
  else
    return Element<S>::get(x);
}
template <class S>
S stored(Fold<S> v) {
  if constexpr (kInteger<S>)
    return static_cast<S>(v);
  else
    return Element<S>::put(v);
}

template <class S, PoolFold fold>
constexpr Fold<S> initial() {
  using T = Fold<S>;
  if constexpr (fold == PoolFold::Prod) return 1;
  if constexpr (fold != PoolFold::Max && fold != PoolFold::Min) return 0;
  constexpr bool low = fold == PoolFold::Max;
  if constexpr (kInteger<S>)
    return low ? std::numeric_limits<S>::min() : std::numeric_limits<S>::max();
  else
    return low ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
}

template <PoolFold fold, class T>
T combine(T a, T v) {
  if constexpr (fold == PoolFold::Max) {
    return a != a ? a : v > a || v != v ? v : a;
  } else if constexpr (fold == PoolFold::Min) {
    return a != a ? a : v < a || v != v ? v : a;
  } else {
    using Wrapping = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>;
    const auto left = static_cast<Wrapping>(a), right = static_cast<Wrapping>(v);
    return static_cast<T>(fold == PoolFold::Prod ? left * right : left + right);
  }
}

// The taps [begin, end) of window `o` of an axis that lie in [first, limit).
struct TapRange {
  int64_t begin, end;
  TapRange(const PoolProblem& p, size_t axis, int64_t o, int64_t first, int64_t limit) {
    const int64_t start = o * p.stride[axis] - p.low[axis], step = p.dilation[axis];
    begin = std::min(p.kernel[axis], start < first ? ceil_div(first - start, step) : 0);
    end = std::clamp<int64_t>(start < limit ? (limit - 1 - start) / step + 1 : 0, begin,
                              p.kernel[axis]);
  }
  int64_t count() const { return end - begin; }
};
TapRange real_taps(const PoolProblem& p, size_t axis, int64_t o) {
  return {p, axis, o, 0, p.x[axis]};
}
TapRange counted_taps(const PoolProblem& p, size_t axis, int64_t o) {
  return p.count_padding
             ? TapRange(p, axis, o, -p.low[axis], p.x[axis] + std::max<int64_t>(0, p.high[axis]))
             : real_taps(p, axis, o);
}

// The results i of a line whose tap k along the last axis is real, and where the first of them
// reads.
struct Columns {
  int64_t begin, end, start, stride;
  Columns(const PoolProblem& p, int64_t k) : stride(p.stride[2]) {
    const int64_t first = k * p.dilation[2] - p.low[2];
    begin = std::min(p.y[2], first < 0 ? ceil_div(-first, stride) : 0);
    end =
        std::clamp<int64_t>(first < p.x[2] ? (p.x[2] - 1 - first) / stride + 1 : 0, begin, p.y[2]);
    start = first;
  }
};

// Calls f(offset of a line of x in its plane) for the real taps of a line of results.
template <class F>
void for_each_line(const PoolProblem& p, int64_t line, F f) {
  const int64_t d = line / p.y[1], h = line % p.y[1];
  const TapRange depth = real_taps(p, 0, d), rows = real_taps(p, 1, h);
  for (int64_t kd = depth.begin; kd < depth.end; ++kd)
    for (int64_t kh = rows.begin; kh < rows.end; ++kh) {
      const int64_t xd = d * p.stride[0] + kd * p.dilation[0] - p.low[0];
      const int64_t xh = h * p.stride[1] + kh * p.dilation[1] - p.low[1];
      f((xd * p.x[1] + xh) * p.x[2]);
    }
}

// best[i] = combine(best[i], x[i])
template <class S, PoolFold fold>
void combine_line(const LineFns& fns, Fold<S>* best, const S* x, int64_t n) {
  if constexpr (std::is_same_v<S, float> && fold != PoolFold::Prod) {
    if (fold == PoolFold::Max) return fns.max(best, x, n);
    if (fold == PoolFold::Min) return fns.min(best, x, n);
    return fns.add_scaled(best, x, 1.0f, n);
  }
  for (int64_t i = 0; i < n; ++i) best[i] = combine<fold>(best[i], value_of<S>(x[i]));
}

// Calls f(next) to fold terms into `line`: f calls next() before each. Float sums are formed in runs,
// in two more lines behind `runs`.
template <class S, PoolFold fold, class F>
void fold_line(const LineFns& fns, Fold<S>* line, int64_t n, std::byte* runs, size_t line_bytes,
               F f) {
  if constexpr (std::is_floating_point_v<Fold<S>> &&
                (fold == PoolFold::Sum || fold == PoolFold::Mean)) {
    LineSums<Fold<S>> sums(fns, kPoolRun, line, reinterpret_cast<Fold<S>*>(runs),
                           reinterpret_cast<Fold<S>*>(runs + line_bytes), n);
    f([&] { sums.next(); });
    sums.finish();
  } else {
    std::fill(line, line + n, initial<S, fold>());
    f([] {});
  }
}

size_t line_bytes(const PoolProblem& p, int64_t element = 8) {
  return static_cast<size_t>(align_up(std::max(p.x[2], p.y[2]) * element, 64));
}
// What a line is folded in.
size_t folded_bytes(const PoolProblem& p) {
  return line_bytes(p, is_float(p.dtype) && p.dtype != DType::F64 ? 4 : 8);
}

// First the lines of x are folded into one (`column`), then its elements.
template <class S, PoolFold fold>
void pool_line(const PoolProblem& p, const LineFns& fns, const S* plane, int64_t line, S* y,
               std::byte* scratch) {
  auto* const sums = reinterpret_cast<Fold<S>*>(scratch);
  auto* const column = reinterpret_cast<Fold<S>*>(scratch + folded_bytes(p));
  std::byte* const runs = scratch + 2 * folded_bytes(p);
  fold_line<S, fold>(fns, column, p.x[2], runs, folded_bytes(p), [&](auto next) {
    for_each_line(p, line, [&](int64_t offset) {
      next();
      combine_line<S, fold>(fns, column, plane + offset, p.x[2]);
    });
  });
  fold_line<S, fold>(fns, sums, p.y[2], runs, folded_bytes(p), [&](auto next) {
    for (int64_t k = 0; k < p.kernel[2]; ++k) {
      const Columns c(p, k);
      next();
      for (int64_t i = c.begin; i < c.end; ++i)
        sums[i] = combine<fold>(sums[i], column[c.start + i * c.stride]);
    }
  });
  if constexpr (fold == PoolFold::Mean) {
    const int64_t others =
        counted_taps(p, 0, line / p.y[1]).count() * counted_taps(p, 1, line % p.y[1]).count();
    for (int64_t i = 0; i < p.y[2]; ++i) {
      const int64_t count = others * counted_taps(p, 2, i).count();
      if (!kInteger<S> || count > 0) sums[i] /= static_cast<Fold<S>>(count);
    }
  }
  for (int64_t i = 0; i < p.y[2]; ++i) y[i] = stored<S>(sums[i]);
}

template <class S, PoolFold fold>
void find_line(const PoolProblem& p, const S* plane, int64_t line, Fold<S>* best, int64_t* place) {
  std::fill(best, best + p.y[2], initial<S, fold>());
  std::fill(place, place + p.y[2], -1);
  for_each_line(p, line, [&](int64_t offset) {
    for (int64_t k = 0; k < p.kernel[2]; ++k) {
      const Columns c(p, k);
      for (int64_t i = c.begin; i < c.end; ++i) {
        const int64_t at = offset + c.start + i * c.stride;
        const Fold<S> v = value_of<S>(plane[at]);
        const bool better = fold == PoolFold::Max ? v > best[i] : v < best[i];
        const bool first_nan = v != v && best[i] == best[i];
        if (place[i] >= 0 && !better && !first_nan) continue;
        best[i] = v, place[i] = at;
      }
    }
  });
}

int64_t lines(const PoolProblem& p) { return p.y[0] * p.y[1]; }
int64_t lines_per_block(const PoolProblem& p) {
  const int64_t line = std::max<int64_t>(1, p.y[2] * p.kernel[0] * p.kernel[1] * p.kernel[2]);
  return std::clamp<int64_t>(kBlockWork / line, 1, std::max<int64_t>(1, lines(p)));
}
int64_t blocks_per_plane(const PoolProblem& p) { return ceil_div(lines(p), lines_per_block(p)); }

// Calls f(plane, line) for the lines of blocks [begin, end).
template <class F>
void for_each_result_line(const PoolProblem& p, int64_t begin, int64_t end, F f) {
  for (int64_t block = begin; block < end; ++block) {
    const int64_t plane = block / blocks_per_plane(p);
    const int64_t first = block % blocks_per_plane(p) * lines_per_block(p);
    for (int64_t l = first; l < std::min(first + lines_per_block(p), lines(p)); ++l) f(plane, l);
  }
}

// ---- by lines in vectors

// What a line is folded in, and around it as much as no window reaches beyond.
struct Column {
  int64_t before, size, counts;  // floats

  explicit Column(const PoolProblem& p)
      : before(std::max<int64_t>(p.low[2], 0)),
        size(align_up(before + std::max(p.x[2], reach(p)) + 2 * kVector, kVector)),
        counts(p.fold == PoolFold::Mean ? align_up(p.y[2], kVector) + kVector : 0) {}
  // Elements from the first of x to the last that a window reads.
  static int64_t reach(const PoolProblem& p) {
    return (align_up(p.y[2], kVector) - 1) * p.stride[2] + (p.kernel[2] - 1) * p.dilation[2] + 1 -
           p.low[2];
  }

 private:
  static constexpr int64_t kVector = 16;  // at least the lanes of one
};

// Windows that reach far beyond the lines, and sums in runs, are folded element by element.
bool goes_by_lines(const PoolProblem& p) {
  constexpr int64_t kFarthest = 1 << 12;
  if (!is_float(p.dtype) || p.dtype == DType::F64 || p.fold == PoolFold::Prod) return false;
  const bool near = std::abs(p.low[2]) <= kFarthest && p.stride[2] <= kFarthest &&
                    p.kernel[2] <= kFarthest && p.dilation[2] <= kFarthest / p.kernel[2];
  const bool sums = p.fold == PoolFold::Sum || p.fold == PoolFold::Mean;
  const bool plain = p.kernel[2] <= kPoolRun && std::min(p.kernel[0], p.x[0]) <= kPoolRun &&
                     std::min(p.kernel[1], p.x[1]) <= kPoolRun &&
                     std::min(p.kernel[0], p.x[0]) * std::min(p.kernel[1], p.x[1]) <= kPoolRun;
  return near && (plain || !sums);
}

PoolLineFns line_pool_fns(const PoolProblem& p, Isa isa) {
  return for_isa(isa, [&](auto width) {
    return p.dtype == DType::F16    ? pool_line_fns<f16_t, width>(p.fold)
           : p.dtype == DType::BF16 ? pool_line_fns<bf16_t, width>(p.fold)
                                    : pool_line_fns<float, width>(p.fold);
  });
}

void pool_by_lines(const PoolProblem& p, Isa isa, const char* x, char* y, int64_t begin,
                   int64_t end, float* scratch) {
  const PoolLineFns fns = line_pool_fns(p, isa);
  const Column c(p);
  float* const column = scratch;
  float* const counts = c.counts ? scratch + c.size : nullptr;
  std::fill_n(column, c.size, fns.initial);
  if (counts) std::fill_n(counts, c.counts, 1.0f);
  for (int64_t i = 0; counts && i < p.y[2]; ++i)
    counts[i] = static_cast<float>(counted_taps(p, 2, i).count());
  const PoolTaps taps{p.y[2], p.kernel[2], p.stride[2], p.dilation[2], c.before - p.low[2]};
  const int64_t bytes = size_of(p.dtype);
  for_each_result_line(p, begin, end, [&](int64_t plane, int64_t line) {
    const char* const from = x + plane * p.pixels() * bytes;
    const void* lines[kPoolRun];
    int64_t count = 0;
    bool fresh = true;
    const auto fold = [&] {
      fns.fold_lines(lines, count, p.x[2], fresh, column + c.before);
      count = 0, fresh = false;
    };
    for_each_line(p, line, [&](int64_t offset) {
      if (count == kPoolRun) fold();
      lines[count++] = from + offset * bytes;
    });
    if (count > 0 || fresh) fold();
    const int64_t others = counts ? counted_taps(p, 0, line / p.y[1]).count() *
                                        counted_taps(p, 1, line % p.y[1]).count()
                                  : 1;
    fns.fold_taps(taps, column, static_cast<float>(others), counts,
                  y + (plane * p.windows() + line * p.y[2]) * bytes);
  });
}

// ----

template <class F>
void visit_pooled(const PoolProblem& p, F f) {
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (kPooled<S>) {
      switch (p.fold) {
        case PoolFold::Max:
          return f.template operator()<S, PoolFold::Max>();
        case PoolFold::Mean:
          return f.template operator()<S, PoolFold::Mean>();
        case PoolFold::Sum:
          return f.template operator()<S, PoolFold::Sum>();
        case PoolFold::Min:
          return f.template operator()<S, PoolFold::Min>();
        case PoolFold::Prod:
          return f.template operator()<S, PoolFold::Prod>();
      }
    }
  });
}

}  // namespace

int64_t pool_blocks(const PoolProblem& p) { return p.planes * blocks_per_plane(p); }
size_t pool_scratch_bytes(const PoolProblem& p) {
  size_t by_lines = 0;
  if (goes_by_lines(p)) by_lines = static_cast<size_t>(Column(p).size + Column(p).counts) * 4;
  const bool runs = std::max(p.kernel[0] * p.kernel[1], p.kernel[2]) > kPoolRun;
  return std::max(by_lines, (runs ? 4 : 2) * folded_bytes(p));
}

void pool(const PoolProblem& p, Isa isa, const void* x, void* y, int64_t begin, int64_t end,
          std::byte* scratch) {
  if (goes_by_lines(p))
    return pool_by_lines(p, isa, static_cast<const char*>(x), static_cast<char*>(y), begin, end,
                         reinterpret_cast<float*>(scratch));
  const LineFns fns = line_fns(isa);
  visit_pooled(p, [&]<class S, PoolFold fold>() {
    for_each_result_line(p, begin, end, [&](int64_t plane, int64_t line) {
      pool_line<S, fold>(p, fns, static_cast<const S*>(x) + plane * p.pixels(), line,
                         static_cast<S*>(y) + plane * p.windows() + line * p.y[2], scratch);
    });
  });
}

void pool_with_positions(const PoolProblem& p, const void* x, void* y, int64_t* positions,
                         int64_t begin, int64_t end, std::byte* scratch) {
  visit_pooled(p, [&]<class S, PoolFold fold>() {
    for_each_result_line(p, begin, end, [&](int64_t plane, int64_t line) {
      auto* const best = reinterpret_cast<Fold<S>*>(scratch);
      const int64_t at = plane * p.windows() + line * p.y[2];
      find_line<S, fold>(p, static_cast<const S*>(x) + plane * p.pixels(), line, best,
                         positions + at);
      for (int64_t i = 0; i < p.y[2]; ++i) static_cast<S*>(y)[at + i] = stored<S>(best[i]);
    });
  });
}

size_t pool_backward_scratch_bytes(const PoolProblem& p) {
  return 2 * line_bytes(p) + static_cast<size_t>(p.pixels()) * sizeof(double);
}

void pool_backward(const PoolProblem& p, const void* x, const void* dy, void* dx, int64_t begin,
                   int64_t end, std::byte* scratch) {
  visit_pooled(p, [&]<class S, PoolFold fold>() {
    auto* const best = reinterpret_cast<Fold<S>*>(scratch);
    auto* const place = reinterpret_cast<int64_t*>(scratch + line_bytes(p));
    using Total = std::conditional_t<kInteger<S>, int64_t, double>;
    auto* const sums = reinterpret_cast<Total*>(scratch + 2 * line_bytes(p));
    for (int64_t plane = begin; plane < end; ++plane) {
      std::fill(sums, sums + p.pixels(), Total{});
      for (int64_t line = 0; line < lines(p); ++line) {
        find_line<S, fold>(p, static_cast<const S*>(x) + plane * p.pixels(), line, best, place);
        const S* const from = static_cast<const S*>(dy) + plane * p.windows() + line * p.y[2];
        for (int64_t i = 0; i < p.y[2]; ++i)
          if (place[i] >= 0) sums[place[i]] += value_of<S>(from[i]);
      }
      S* const to = static_cast<S*>(dx) + plane * p.pixels();
      for (int64_t i = 0; i < p.pixels(); ++i) to[i] = stored<S>(static_cast<Fold<S>>(sums[i]));
    }
  });
}

}  // namespace rlx::cpu
