#include "rlx/backend/cpu/kernels/image/conv.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/image/conv_lines.h"
#include "rlx/backend/cpu/kernels/matmul/matmul.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kTileBytes = 1 << 20;  // of an unfolded tile

const std::byte* advance(const void* p, DType d, int64_t elements) {
  return static_cast<const std::byte*>(p) + elements * size_of(d);
}
std::byte* advance(void* p, DType d, int64_t elements) {
  return static_cast<std::byte*>(p) + elements * size_of(d);
}

// Rows [row, row + rows) of the matrix of windows [in * taps, positions], columns [begin, end), of a
// group's planes x.
template <class E>
void unfold(const ConvProblem& p, const E* x, int64_t row, int64_t rows, int64_t begin, int64_t end,
            E* to) {
  const int64_t width = end - begin, stride = p.stride[2];
  for (int64_t r = row; r < row + rows; ++r, to += width) {
    const E* const plane = x + r / p.taps() * p.pixels();
    const Tap tap = tap_of(p, r % p.taps());
    for_each_piece(p, begin, end, [&](int64_t line, int64_t column, int64_t count, int64_t at) {
      const E* const from = line_of(p, plane, tap, line);
      const int64_t start = start_of(p, tap, column);
      const Valid valid = from ? Valid(start, stride, p.x[2], count) : Valid(0, 1, 0, count);
      E* const target = to + at;
      std::fill(target, target + valid.begin, E{});
      if (stride == 1 && valid.end > valid.begin)
        std::memcpy(target + valid.begin, from + start + valid.begin,
                    static_cast<size_t>(valid.end - valid.begin) * sizeof(E));
      else
        for (int64_t i = valid.begin; i < valid.end; ++i) target[i] = from[start + i * stride];
      std::fill(target + valid.end, target + count, E{});
    });
  }
}

// Unfolding moves elements without looking at them; all zero bits are 0 in every dtype.
void unfold_any(const ConvProblem& p, const void* x, int64_t row, int64_t rows, int64_t begin,
                int64_t end, void* to) {
  auto run = [&]<class E>(E) {
    unfold(p, static_cast<const E*>(x), row, rows, begin, end, static_cast<E*>(to));
  };
  switch (size_of(p.dtype)) {
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    default:
      return run(uint64_t{});
  }
}

template <class T>
T sum_of(T a, T b) {  // integers wrap
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                          static_cast<std::make_unsigned_t<T>>(b));
  else
    return a + b;
}

// The transpose: adds rows of the matrix of windows to the planes x, all in the type of sums.
template <class T>
void fold(const ConvProblem& p, const T* from, int64_t rows, int64_t begin, int64_t end, T* x) {
  const int64_t width = end - begin, stride = p.stride[2];
  for (int64_t r = 0; r < rows; ++r, from += width) {
    T* const plane = x + r / p.taps() * p.pixels();
    const Tap tap = tap_of(p, r % p.taps());
    for_each_piece(p, begin, end, [&](int64_t line, int64_t column, int64_t count, int64_t at) {
      T* const to = line_of(p, plane, tap, line);
      if (!to) return;
      const int64_t start = start_of(p, tap, column);
      const Valid valid(start, stride, p.x[2], count);
      for (int64_t i = valid.begin; i < valid.end; ++i)
        to[start + i * stride] = sum_of(to[start + i * stride], from[at + i]);
    });
  }
}

void fold_any(const ConvProblem& p, const void* from, int64_t rows, int64_t begin, int64_t end,
              void* x) {
  visit_dtype(wide_of(p.dtype), [&]<class S>() {
    if constexpr (std::is_same_v<S, float> || std::is_same_v<S, double> || std::is_integral_v<S> ||
                  std::is_same_v<S, c64_t>)
      fold(p, static_cast<const S*>(from), rows, begin, end, static_cast<S*>(x));
  });
}

// f32 sums as the halves that are stored.
void store_halves(DType d, const float* from, int64_t rows, int64_t columns, int64_t row,
                  void* to) {
  visit_dtype(d, [&]<class S>() {
    if constexpr (std::is_same_v<S, f16_t> || std::is_same_v<S, bf16_t>)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          static_cast<S*>(to)[i * row + j] = Element<S>::put(from[i * columns + j]);
  });
}

// Sums that are formed in runs (compensated.h): `run`, whose rows are `run_row` apart, is added to
// `whole` and `lost`, which are dense.
void add_run_any(DType d, int64_t rows, int64_t columns, void* run, int64_t run_row, void* whole,
                 void* lost, bool last) {
  auto add = [&]<class T>(T, int64_t parts) {  // parts of an element
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns * parts; ++j) {
        T& x = static_cast<T*>(run)[i * run_row * parts + j];
        const int64_t at = i * columns * parts + j;
        add_run(static_cast<T*>(whole)[at], static_cast<T*>(lost)[at], x);
        x = last ? static_cast<T*>(whole)[at] + static_cast<T*>(lost)[at] : T{};
      }
  };
  if (d == DType::F64) return add(double{}, 1);
  add(float{}, d == DType::C64 ? 2 : 1);
}

// ---- products -----------------------------------------------------------------------------------

// Plans of one product with sizes of whole parts and of last ones.
class Products {
 public:
  template <class F>
  Products(const Parts& m, const Parts& n, Isa isa, F make) {
    for (int64_t i : {int64_t{0}, m.count() - 1})
      for (int64_t j : {int64_t{0}, n.count() - 1})
        plans_.push_back(m.count() && n.count() ? MatmulPlan::make(make(m.size(i), n.size(j)), isa)
                                                : nullptr);
    for (const auto& plan : plans_)
      if (plan) {
        packed_ = std::max(packed_, align_up(static_cast<int64_t>(plan->packed_b_bytes()), 64));
        scratch_ = std::max(scratch_, static_cast<int64_t>(plan->scratch_bytes()));
      }
  }
  int64_t packed_bytes() const { return packed_; }
  int64_t scratch_bytes() const { return packed_ + scratch_; }
  void run(bool last_m, bool last_n, const void* a, const void* b, void* c,
           std::byte* scratch) const {
    const MatmulPlan& plan = *plans_[static_cast<size_t>(2 * last_m + last_n)];
    plan.pack_b(b, scratch);
    for (int64_t t = 0; t < plan.tiles(); ++t)
      plan.run_tile_packed(t, a, scratch, c, scratch + packed_);
  }

 private:
  std::vector<std::shared_ptr<const MatmulPlan>> plans_;
  int64_t packed_ = 0, scratch_ = 0;
};

int64_t tile_columns(int64_t rows, DType d) {
  const int64_t fit = kTileBytes / std::max<int64_t>(rows * size_of(d), 1);
  return std::clamp<int64_t>(fit / kStep * kStep, 3 * kStep, 1024);
}

// y[out, positions] = w[out, depth] * windows[depth, positions]; a block is one image and group, a
// part of the outputs and a tile of positions.
class SumByY final : public ConvPlan {
 public:
  SumByY(const ConvProblem& p, Isa isa)
      : p_(p),
        columns_(cut(p.positions(), tile_columns(p.depth(), p.dtype))),
        rows_(share(p.out,
                    kBlocksWanted / std::max<int64_t>(1, p.images * p.groups * columns_.count()),
                    4 * kStep)),
        products_(rows_, columns_, isa, [&](int64_t m, int64_t n) {
          MatmulProblem q{.dtype = p.dtype, .out_dtype = p.dtype, .m = m, .n = n, .k = p.depth()};
          q.a_row = q.k, q.a_col = 1;
          q.b_row = pointwise() ? p.positions() : n, q.b_col = 1;
          q.c_row = p.positions(), q.c_col = 1;
          return q;
        }) {}

  int64_t blocks() const override {
    return p_.images * p_.groups * rows_.count() * columns_.count();
  }
  size_t scratch_bytes() const override {
    return static_cast<size_t>(products_.scratch_bytes() + unfolded_bytes());
  }
  void run(int64_t block, const void* x, const void* w, void* y,
           std::byte* scratch) const override {
    const int64_t column = block % columns_.count(), row = block / columns_.count() % rows_.count();
    const int64_t plane = block / columns_.count() / rows_.count();  // image * groups + group
    const int64_t begin = columns_.first(column), end = begin + columns_.size(column);
    const std::byte* const image = advance(x, p_.dtype, plane * p_.in * p_.pixels());
    const int64_t first = plane % p_.groups * p_.out + rows_.first(row);
    const void* windows = advance(image, p_.dtype, begin);
    if (!pointwise()) {
      unfold_any(p_, image, 0, p_.depth(), begin, end, scratch);
      windows = scratch;
    }
    products_.run(
        rows_.is_last(row), columns_.is_last(column), advance(w, p_.dtype, first * p_.depth()),
        windows, advance(y, p_.dtype, (plane * p_.out + rows_.first(row)) * p_.positions() + begin),
        scratch + unfolded_bytes());
  }

 private:
  // The planes of x are the windows.
  bool pointwise() const {
    return p_.taps() == 1 && p_.x == p_.y && p_.stride == Sizes3{1, 1, 1} &&
           p_.low == Sizes3{0, 0, 0};
  }
  int64_t unfolded_bytes() const {
    return pointwise() ? 0 : align_up(p_.depth() * columns_.step * size_of(p_.dtype), 64);
  }

  ConvProblem p_;
  Parts columns_, rows_;
  Products products_;
};

// windows[channels * taps, positions] = w^T * dy, folded into dx tile by tile; a block is one image
// and group and a part of its channels.
class SumByX final : public ConvPlan {
 public:
  SumByX(const ConvProblem& p, Isa isa)
      : p_(p),
        columns_(cut(p.positions(), 16 * kStep)),
        channels_(cut(
            p.in, std::min(std::max<int64_t>(
                               1, kTileBytes / (p.taps() * columns_.step * size_of(p.dtype))),
                           ceil_div(p.in, std::max<int64_t>(
                                              1, kBlocksWanted /
                                                     std::max<int64_t>(1, p.images * p.groups)))))),
        products_(
            {channels_.n * p.taps(), channels_.step * p.taps()}, columns_, isa,
            [&](int64_t m, int64_t n) {
              MatmulProblem q{
                  .dtype = p.dtype, .out_dtype = wide_of(p.dtype), .m = m, .n = n, .k = p.out};
              q.a_row = 1, q.a_col = p.depth();
              q.b_row = p.positions(), q.b_col = 1;
              q.c_row = n, q.c_col = 1;
              return q;
            }) {}

  int64_t blocks() const override { return p_.images * p_.groups * channels_.count(); }
  size_t scratch_bytes() const override {
    return static_cast<size_t>(products_.scratch_bytes() + windows_bytes() + sums_bytes());
  }
  void run(int64_t block, const void* dy, const void* w, void* dx,
           std::byte* scratch) const override {
    const int64_t part = block % channels_.count(), plane = block / channels_.count();
    const int64_t first = channels_.first(part), rows = channels_.size(part) * p_.taps();
    const int64_t elements = channels_.size(part) * p_.pixels();
    std::byte* const target = advance(dx, p_.dtype, (plane * p_.in + first) * p_.pixels());
    std::byte* const windows = scratch;
    std::byte* const sums = sums_bytes() ? scratch + windows_bytes() : target;
    std::memset(sums, 0, static_cast<size_t>(elements * size_of(wide_of(p_.dtype))));
    const int64_t group = plane % p_.groups;
    for (int64_t c = 0; c < columns_.count(); ++c) {
      const int64_t begin = columns_.first(c);
      products_.run(channels_.is_last(part), columns_.is_last(c),
                    advance(w, p_.dtype, group * p_.out * p_.depth() + first * p_.taps()),
                    advance(dy, p_.dtype, plane * p_.out * p_.positions() + begin), windows,
                    scratch + windows_bytes() + sums_bytes());
      fold_any(p_, windows, rows, begin, begin + columns_.size(c), sums);
    }
    if (sums_bytes())
      store_halves(p_.dtype, reinterpret_cast<const float*>(sums), 1, elements, elements, target);
  }

 private:
  int64_t windows_bytes() const {
    return align_up(channels_.step * p_.taps() * columns_.step * size_of(wide_of(p_.dtype)), 64);
  }
  int64_t sums_bytes() const {
    return wide_of(p_.dtype) == p_.dtype ? 0 : align_up(channels_.step * p_.pixels() * 4, 64);
  }

  ConvProblem p_;
  Parts columns_, channels_;
  Products products_;
};

// dw[out, depth] = sum over images of dy[out, positions] * windows^T; a block is one group, a part of
// the outputs and a part of the depth.
class SumByW final : public ConvPlan {
 public:
  SumByW(const ConvProblem& p, Isa isa)
      : p_(p),
        depths_(share(p.depth(), kBlocksWanted / std::max<int64_t>(1, p.groups), 4 * kStep)),
        rows_(share(p.out, kBlocksWanted / std::max<int64_t>(1, p.groups * depths_.count()),
                    2 * kStep)),
        positions_(cut(p.positions(), tile_columns(depths_.step, p.dtype))),
        whole_(make(isa, positions_.size(0))),
        last_(make(isa, positions_.size(positions_.count() - 1))) {}

  int64_t blocks() const override { return p_.groups * rows_.count() * depths_.count(); }
  size_t scratch_bytes() const override {
    return static_cast<size_t>(std::max(whole_.scratch_bytes(), last_.scratch_bytes()) +
                               unfolded_bytes() + sums_bytes() + 2 * run_bytes());
  }
  void run(int64_t block, const void* x, const void* dy, void* dw,
           std::byte* scratch) const override {
    const int64_t part = block % depths_.count(), row = block / depths_.count() % rows_.count();
    const int64_t group = block / depths_.count() / rows_.count();
    const int64_t first = depths_.first(part), depth = depths_.size(part), rows = rows_.size(row);
    std::byte* const target =
        advance(dw, p_.dtype, (group * p_.out + rows_.first(row)) * p_.depth() + first);
    std::byte* const sums = sums_bytes() ? scratch + unfolded_bytes() : target;
    std::byte* const whole = scratch + unfolded_bytes() + sums_bytes();
    std::byte* const products = whole + 2 * run_bytes();
    std::memset(whole, 0, static_cast<size_t>(2 * run_bytes()));
    clear(sums, rows, depth);
    int64_t added = 0;
    for (int64_t n = 0; n < p_.images; ++n) {
      const int64_t plane = n * p_.groups + group;
      const std::byte* const image = advance(x, p_.dtype, plane * p_.in * p_.pixels());
      const std::byte* const results =
          advance(dy, p_.dtype, (plane * p_.out + rows_.first(row)) * p_.positions());
      for (int64_t c = 0; c < positions_.count(); ++c) {
        const int64_t begin = positions_.first(c), end = begin + positions_.size(c);
        unfold_any(p_, image, first, depth, begin, end, scratch);
        (positions_.is_last(c) ? last_ : whole_)
            .run(rows_.is_last(row), depths_.is_last(part), advance(results, p_.dtype, begin),
                 scratch, sums, products);
        added += adds_of(positions_.size(c));
        const bool last = n == p_.images - 1 && c == positions_.count() - 1;
        if (run_bytes() && (added >= kPlainTerms || last)) {
          add_run_any(wide_of(p_.dtype), rows, depth, sums, sums_bytes() ? depth : p_.depth(),
                      whole, whole + run_bytes(), last);
          added = 0;
        }
      }
    }
    if (sums_bytes())
      store_halves(p_.dtype, reinterpret_cast<const float*>(sums), rows, depth, p_.depth(), target);
  }

 private:
  Products make(Isa isa, int64_t positions) const {
    return Products(rows_, depths_, isa, [&](int64_t m, int64_t n) {
      MatmulProblem q{
          .dtype = p_.dtype, .out_dtype = wide_of(p_.dtype), .m = m, .n = n, .k = positions};
      q.a_row = p_.positions(), q.a_col = 1;
      q.b_row = 1, q.b_col = positions;
      q.c_row = sums_bytes() ? n : p_.depth(), q.c_col = 1;
      q.accumulate = true;
      return q;
    });
  }
  void clear(std::byte* sums, int64_t rows, int64_t depth) const {
    const int64_t bytes = size_of(wide_of(p_.dtype));
    const int64_t row = (sums_bytes() ? depth : p_.depth()) * bytes;
    for (int64_t i = 0; i < rows; ++i)
      std::memset(sums + i * row, 0, static_cast<size_t>(depth * bytes));
  }
  int64_t unfolded_bytes() const {
    return align_up(depths_.step * positions_.step * size_of(p_.dtype), 64);
  }
  int64_t sums_bytes() const {
    return wide_of(p_.dtype) == p_.dtype ? 0 : align_up(rows_.step * depths_.step * 4, 64);
  }
  // How often a product over so many positions adds to the sums.
  static int64_t adds_of(int64_t positions) { return ceil_div(positions, kPlainTerms); }
  // Of the sum of all runs, and of what it lost.
  int64_t run_bytes() const {
    const int64_t adds = p_.images * positions_.count() * adds_of(positions_.step);
    if (!(is_float(p_.dtype) || is_complex(p_.dtype)) || adds <= kPlainTerms) return 0;
    return align_up(rows_.step * depths_.step * size_of(wide_of(p_.dtype)), 64);
  }

  ConvProblem p_;
  Parts depths_, rows_, positions_;
  Products whole_, last_;
};

}  // namespace

std::unique_ptr<const ConvPlan> make_conv(const ConvProblem& p, ConvSum sum, Isa isa) {
  if (p.in == 1 && p.out == 1 && sum != ConvSum::w && !is_complex(p.dtype))
    return make_direct_conv(p, sum, isa);
  switch (sum) {
    case ConvSum::y:
      return std::make_unique<SumByY>(p, isa);
    case ConvSum::x:
      return std::make_unique<SumByX>(p, isa);
    case ConvSum::w:
      return std::make_unique<SumByW>(p, isa);
  }
  __builtin_unreachable();
}

}  // namespace rlx::cpu
