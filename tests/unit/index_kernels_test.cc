// The native kernels of indices and order against loops over single elements: on every instruction set
// where they are compiled for several, at sizes on both sides of vectors, runs and blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <limits>
#include <numeric>

#include "native_util.h"
#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/indexing/extremes.h"
#include "rlx/backend/cpu/kernels/indexing/gather.h"
#include "rlx/backend/cpu/kernels/indexing/index.h"
#include "rlx/backend/cpu/kernels/indexing/row_sums.h"
#include "rlx/backend/cpu/kernels/indexing/scatter.h"
#include "rlx/backend/cpu/kernels/indexing/sort.h"
#include "rlx/backend/cpu/kernels/reduce/axis_kernels.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"

namespace rlx::cpu {
namespace {

using testing::Bytes;
using testing::TypedBuffer;

std::vector<Isa> isas() {
  std::vector<Isa> out;
  for (Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512})
    if (isa_supported(isa)) out.push_back(isa);
  return out;
}

std::vector<DType> ordered_dtypes() {
  std::vector<DType> out;
  for (const DTypeInfo& d : kDTypes)
    if (!is_complex(d.dtype) && !kStored.has(d.dtype)) out.push_back(d.dtype);
  return out;
}

// Few different values, so that there are equals; among floats both zeros, infinities and, when asked
// for, NaNs of both signs.
void fill_with_equals(TypedBuffer& x, std::mt19937& random, bool nans) {
  const DType d = x.dtype();
  for (int64_t i = 0; i < x.size(); ++i) {
    const uint32_t pick = random() % 64;
    double v = static_cast<double>(random() % 13);
    if (is_bool(d)) v = random() % 2;
    if (is_float(d) || (is_int(d) && info(d).is_signed)) v -= 6;
    if (is_float(d)) {
      if (v == 0 && pick % 2) v = -0.0;
      if (pick == 1) v = std::numeric_limits<double>::infinity();
      if (pick == 2) v = -std::numeric_limits<double>::infinity();
      if (nans && pick == 3) v = std::copysign(NAN, random() % 2 ? 1.0 : -1.0);
    }
    x.set(i, v);
  }
}

// The order of sorting: NaN is the largest.
bool before(double a, double b) { return std::isnan(a) ? false : std::isnan(b) || a < b; }

// ---- extremes -----------------------------------------------------------------------------------

int64_t extreme_by_loop(const TypedBuffer& x, int64_t first, int64_t n, int64_t step, bool minimum,
                        bool last) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    const double v = x.get(first + i * step).real(), b = x.get(first + best * step).real();
    const bool nan = std::isnan(v), nan_best = std::isnan(b);
    bool wins = nan && (last || !nan_best);
    if (!nan && !nan_best) wins = last ? (minimum ? v <= b : v >= b) : (minimum ? v < b : v > b);
    if (wins) best = i;
  }
  return best;
}

TEST(Extremes, PositionsOfLines) {
  std::mt19937 random(1);
  for (DType d : ordered_dtypes())
    for (int64_t n : {1,  2,   3,   7,   8,   15,  16,   17,   31,   33,   63,  64,
                      65, 127, 129, 255, 256, 257, 1023, 1024, 1025, 2049, 5000})
      for (int kind = 0; kind < 4; ++kind) {  // equals, equals and NaN, all the same, ascending
        TypedBuffer x(d, n);
        if (kind < 2)
          fill_with_equals(x, random, kind == 1);
        else
          for (int64_t i = 0; i < n; ++i)
            x.set(i, kind == 2 || is_bool(d) ? 1 : static_cast<double>(i % 120));
        visit_dtype(d, [&]<class S>() {
          if constexpr (!std::is_same_v<S, c64_t>) {
            for (Isa isa : isas())
              for (bool minimum : {false, true})
                for (bool last : {false, true}) {
                  ASSERT_EQ(extreme_fns<S>(isa).positions[minimum][last](
                                static_cast<const S*>(x.data()), n),
                            extreme_by_loop(x, 0, n, 1, minimum, last))
                      << info(d).name << " " << n << " " << kind << " " << isa_name(isa) << " "
                      << minimum << last;
                }
          }
        });
      }
}

TEST(Extremes, PositionsOfLinesSideBySide) {
  std::mt19937 random(2);
  for (DType d : ordered_dtypes())
    for (int64_t n : {1, 2, 9, 70})
      for (int64_t count : {1, 3, 4, 15, 16, 17, 40, 64}) {
        const int64_t step = count + 5;
        TypedBuffer x(d, n * step);
        fill_with_equals(x, random, n > 2);
        visit_dtype(d, [&]<class S>() {
          if constexpr (!std::is_same_v<S, c64_t>)
            for (Isa isa : isas())
              for (bool minimum : {false, true})
                for (bool last : {false, true}) {
                  std::vector<int64_t> got(static_cast<size_t>(count), -1);
                  const int64_t done = extreme_fns<S>(isa).columns[minimum][last](
                      static_cast<const S*>(x.data()), n, step, count, got.data());
                  const auto vector = vector_bytes(isa) / static_cast<int64_t>(sizeof(S));
                  ASSERT_EQ(done, sizeof(S) >= 4 ? count / vector * vector : 0);
                  for (int64_t c = 0; c < count; ++c)
                    ASSERT_EQ(got[static_cast<size_t>(c)],
                              c < done ? extreme_by_loop(x, c, n, step, minimum, last) : -1)
                        << info(d).name << " " << n << "x" << count << " " << isa_name(isa);
                }
        });
      }
}

TEST(Extremes, NextBeyondALimit) {
  std::mt19937 random(3);
  for (DType d : ordered_dtypes())
    for (int64_t n : {1, 5, 16, 64, 65, 257, 700}) {
      TypedBuffer x(d, n), limit(d, 1);
      fill_with_equals(x, random, true);
      for (int64_t rare = 0; rare < 2; ++rare) {
        if (rare)  // all the same but for one
          for (int64_t i = 0; i < n; ++i) x.set(i, i == n * 3 / 4 ? 1 : 0);
        for (double bound : {0.0, 1.0, is_float(d) ? INFINITY : 5.0, is_float(d) ? -2.5 : 2.0}) {
          limit.set(0, bound);
          bound = limit.get(0).real();
          for (bool largest : {false, true})
            for (int64_t from : {int64_t{0}, n / 3, n}) {
              int64_t want = from;
              const auto wanted = [&](double v) {
                return largest ? before(bound, v) : before(v, bound);
              };
              while (want < n && !wanted(x.get(want).real())) ++want;
              visit_dtype(d, [&]<class S>() {
                if constexpr (!std::is_same_v<S, c64_t>)
                  for (Isa isa : isas()) {
                    int64_t got =
                        next_beyond<S>(isa, largest)(static_cast<const S*>(x.data()), from, n,
                                                     *static_cast<const S*>(limit.data()));
                    // A NaN may be found that is not before the limit.
                    while (got < want && std::isnan(x.get(got).real()))
                      got = next_beyond<S>(isa, largest)(static_cast<const S*>(x.data()), got + 1,
                                                         n, *static_cast<const S*>(limit.data()));
                    ASSERT_EQ(got, want) << info(d).name << " " << isa_name(isa) << " " << bound;
                  }
              });
            }
        }
      }
    }
}

// ---- sums of rows -------------------------------------------------------------------------------

TEST(RowSums, OfEveryWidthAsALoop) {
  std::mt19937 random(4);
  for (DType d : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (int64_t n : {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 40, 63, 64, 65, 100, 129})
      for (int64_t count : {1, 2, 40})
        for (bool keeps_lost : {false, true})
          for (int from = 0; from < 3; ++from) {  // zeros, other rows, in place
            constexpr int64_t kRows = 9;
            const int64_t stride = n + 3;
            TypedBuffer updates(d, kRows * stride), start(d, n), want(d, n);
            updates.fill_random(random);
            start.fill_random(random);
            if (n > 2) updates.set(2, INFINITY);
            std::vector<uint64_t> which;
            for (int64_t i = 0; i < count + 20; ++i)
              which.push_back(uint64_t{7} << 32 | random() % kRows);
            visit_dtype(d, [&]<class S>() {
              if constexpr (std::is_floating_point_v<Compute<S>>) {
                const auto* u = static_cast<const S*>(updates.data());
                const auto* s = static_cast<const S*>(start.data());
                for (int64_t t = 0; t < n; ++t) {
                  Compute<S> sum = from ? Element<S>::get(s[t]) : 0, lost = 0;
                  for (int64_t i = 0; i < count; ++i) {
                    const auto x = Element<S>::get(
                        u[static_cast<int64_t>(which[static_cast<size_t>(i)] & 0xff) * stride + t]);
                    if (keeps_lost)
                      add_run(sum, lost, x);
                    else
                      sum += x;
                  }
                  static_cast<S*>(want.data())[t] = Element<S>::put(sum + lost);
                }
                for (Isa isa : isas()) {
                  TypedBuffer out(d, n);
                  std::memcpy(out.data(), s, static_cast<size_t>(n) * sizeof(S));
                  auto* to = static_cast<S*>(out.data());
                  row_sum_fns(isa).of<S>()(to,
                                           from == 0   ? nullptr
                                           : from == 1 ? s
                                                       : to,
                                           u, stride, which.data(), count, count + 20, n,
                                           keeps_lost);
                  EXPECT_TRUE(out.guard_intact());
                  ASSERT_TRUE(out.same_bits(want)) << info(d).name << " " << n << " " << count
                                                   << " " << isa_name(isa) << " " << from;
                }
              }
            });
          }
}

// ---- scatter ------------------------------------------------------------------------------------

double combined(ScatterKind kind, double a, double b) {
  switch (kind) {
    case ScatterKind::set:
      return b;
    case ScatterKind::add:
      return a + b;
    case ScatterKind::mul:
      return a * b;
    case ScatterKind::min:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

// Small whole numbers: exact in every dtype. Any share of the blocks gives the same bits.
TEST(Scatter, EveryKindAndShareOfTheBlocks) {
  std::mt19937 random(5);
  struct Sizes {
    int64_t outer, axis, count, inner;
  };
  for (DType d : {DType::F32, DType::BF16, DType::F64, DType::I8, DType::I32})
    for (const Sizes& s : {Sizes{1, 37, 90, 8},
                           {1, 37, 90, 5},
                           {3, 37, 400, 16},
                           {20, 5, 330, 9},
                           {2, 600, 7, 3},
                           {2, 600, 7, 40},
                           {1, 600, 37, 1},
                           {1, 600, 38, 1},
                           {5, 1, 6, 17},
                           {1, 50, 0, 8},
                           {3, 4, 1, 64}})
      for (ScatterKind kind : {ScatterKind::set, ScatterKind::add, ScatterKind::mul,
                               ScatterKind::min, ScatterKind::max})
        for (int from = 0; from < 3; ++from)   // zeros, x, in place
          for (bool sorted : {false, true}) {  // indices
            ScatterProblem p{.kind = kind,
                             .dtype = d,
                             .index_dtype = DType::I64,
                             .outer = s.outer,
                             .axis = s.axis,
                             .count = s.count,
                             .inner = s.inner};
            p.set_dense();
            TypedBuffer x(d, s.outer * s.axis * s.inner), updates(d, s.outer * s.count * s.inner),
                index(DType::I64, s.count);
            for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(random() % 3));
            // Products and sums stay small.
            for (int64_t i = 0; i < updates.size(); ++i)
              updates.set(i, kind == ScatterKind::mul   ? (random() % 90 ? 1.0 : -1.0)
                             : kind == ScatterKind::add ? static_cast<double>(random() % 20 == 0)
                                                        : static_cast<double>(random() % 9));
            std::vector<int64_t> rows;
            for (int64_t u = 0; u < s.count; ++u)
              rows.push_back(static_cast<int64_t>(random() % static_cast<uint32_t>(s.axis)));
            if (sorted) std::ranges::sort(rows);
            for (int64_t u = 0; u < s.count; ++u)
              index.set(u, static_cast<double>(rows[static_cast<size_t>(u)]));
            std::vector<double> want;
            for (int64_t i = 0; i < x.size(); ++i) want.push_back(from ? x.get(i).real() : 0);
            for (int64_t o = 0; o < s.outer; ++o)
              for (int64_t u = 0; u < s.count; ++u)
                for (int64_t t = 0; t < s.inner; ++t) {
                  double& w = want[static_cast<size_t>(
                      (o * s.axis + rows[static_cast<size_t>(u)]) * s.inner + t)];
                  w = combined(kind, w, updates.get((o * s.count + u) * s.inner + t).real());
                }
            const int64_t blocks = scatter_blocks(p);
            for (int64_t share : {blocks, int64_t{1}, int64_t{3}}) {
              TypedBuffer out(d, x.size());
              if (from == 2)
                std::memcpy(out.data(), x.data(), static_cast<size_t>(x.size()) * size_of(d));
              Bytes scratch(scatter_scratch_bytes(p));
              uint32_t flag = 0;
              const void* start = from == 0 ? nullptr : from == 1 ? x.data() : out.data();
              for (int64_t b = 0; b < blocks; b += share)
                scatter(p, start, updates.data(), index.data(), out.data(), &flag, b,
                        std::min(blocks, b + share), scratch.data());
              EXPECT_EQ(flag, 0u);
              EXPECT_TRUE(out.guard_intact() && scratch.guard_intact());
              for (int64_t i = 0; i < out.size(); ++i)
                ASSERT_EQ(out.get(i).real(), want[static_cast<size_t>(i)])
                    << info(d).name << " kind " << static_cast<int>(kind) << " axis " << s.axis
                    << " count " << s.count << " inner " << s.inner << " share " << share;
            }
          }
}

// Both ways round alike: rows of 8 and of 7 columns of the same numbers.
TEST(Scatter, BothWaysGiveTheSameBits) {
  std::mt19937 random(6);
  for (DType d : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (int64_t count : {300, 321, 2000}) {
      constexpr int64_t axis = 3, wide = 8, narrow = 7;
      TypedBuffer all(d, count * wide), some(d, count * narrow), index(DType::I32, count);
      all.fill_random(random);
      for (int64_t i = 0; i < count * narrow; ++i)
        some.set(i, all.get(i / narrow * wide + i % narrow));
      for (int64_t i = 0; i < count; ++i) index.set(i, static_cast<double>(random() % axis));
      TypedBuffer a(d, axis * wide), b(d, axis * narrow);
      const auto run = [&](int64_t inner, const TypedBuffer& updates, TypedBuffer& out) {
        ScatterProblem p{
            .dtype = d, .index_dtype = DType::I32, .axis = axis, .count = count, .inner = inner};
        p.set_dense();
        Bytes scratch(scatter_scratch_bytes(p));
        uint32_t flag = 0;
        scatter(p, nullptr, updates.data(), index.data(), out.data(), &flag, 0, scatter_blocks(p),
                scratch.data());
      };
      run(wide, all, a);
      run(narrow, some, b);
      for (int64_t i = 0; i < axis * narrow; ++i)
        ASSERT_EQ(b.get(i), a.get(i / narrow * wide + i % narrow)) << info(d).name << " " << count;
    }
}

// Rows that no update meets stay as they are, -0 as well.
TEST(Scatter, WhatIsNotUpdatedKeepsItsSign) {
  for (DType d : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (int64_t count : {300, 400})
      for (int64_t inner : {1, 8}) {
        constexpr int64_t axis = 4;
        TypedBuffer x(d, axis * inner), updates(d, count * inner), index(DType::I32, count),
            out(d, axis * inner);
        for (int64_t i = 0; i < axis * inner; ++i) x.set(i, -0.0);
        for (int64_t i = 0; i < count; ++i) index.set(i, 1);
        for (int64_t i = 0; i < count * inner; ++i) updates.set(i, 1);
        ScatterProblem p{
            .dtype = d, .index_dtype = DType::I32, .axis = axis, .count = count, .inner = inner};
        p.set_dense();
        Bytes scratch(scatter_scratch_bytes(p));
        uint32_t flag = 0;
        scatter(p, x.data(), updates.data(), index.data(), out.data(), &flag, 0, scatter_blocks(p),
                scratch.data());
        for (int64_t i = 0; i < axis * inner; ++i) {
          const bool met = i / inner == 1;
          EXPECT_EQ(out.get(i), met ? static_cast<double>(count) : 0)
              << info(d).name << " " << count << " " << i;
          EXPECT_EQ(std::signbit(out.get(i).real()), !met)
              << info(d).name << " " << count << " " << i;
        }
      }
}

// Products of complex numbers restore infinities, as elementwise ones do: (1e20 + 1e20 i) (1e10 + 1e5 i)^k leaves f32.
TEST(ComplexProducts, RestoreInfinities) {
  const std::complex<float> first(1e20F, 1e20F), factor(1e10F, 1e5F);
  std::complex<float> want = first;
  std::vector<std::complex<float>> x{first}, running{first}, updates(10, factor), out(1);
  for (int i = 0; i < 10; ++i) {
    want *= factor;
    x.push_back(factor), running.push_back(want);
  }
  ASSERT_TRUE(std::isinf(want.real()) || std::isinf(want.imag()));
  const std::vector<int32_t> index(10, 0);
  ScatterProblem p{.kind = ScatterKind::mul,
                   .dtype = DType::C64,
                   .index_dtype = DType::I32,
                   .axis = 1,
                   .count = 10,
                   .inner = 1};
  p.set_dense();
  Bytes scratch(scatter_scratch_bytes(p));
  uint32_t flag = 0;
  scatter(p, x.data(), updates.data(), index.data(), out.data(), &flag, 0, scatter_blocks(p),
          scratch.data());
  const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  EXPECT_TRUE(same(out[0].real(), want.real()) && same(out[0].imag(), want.imag())) << out[0];
  const AxisProblem along{.dtype = DType::C64, .n = 11, .x_n = 1, .y_n = 1};
  std::vector<std::complex<float>> y(11);
  cumprod(along, {}, x.data(), y.data(), 0, axis_blocks(along));
  for (size_t i = 0; i < 11; ++i)
    EXPECT_TRUE(same(y[i].real(), running[i].real()) && same(y[i].imag(), running[i].imag()))
        << i << ": " << y[i] << " for " << running[i];
}

// Beyond 2^24 a float does not hold every size.
TEST(Indices, FloatsOfLongAxes) {
  constexpr int64_t limit = (int64_t{1} << 24) + 1;
  const float at[] = {16777216.F, 16777215.F, 16777218.F, -1.F, 1e30F};
  uint32_t flag = 0;
  const auto row = [&](int64_t i) {
    flag = 0;
    return Index(at, DType::F32, limit, &flag)(i);
  };
  EXPECT_EQ(row(0), 16777216);
  EXPECT_EQ(flag, 0U);
  EXPECT_EQ(row(1), 16777215);
  EXPECT_EQ(flag, 0U);
  for (const int64_t i : {2, 3, 4}) {
    EXPECT_EQ(row(i), i == 3 ? 0 : limit - 1);
    EXPECT_EQ(flag, 1U) << i;
  }
}

// ---- an index for each element ------------------------------------------------------------------

TEST(TakeAlong, EveryIndexDtypeElementAndLayout) {
  std::mt19937 random(7);
  struct Sizes {
    int64_t outer, axis, count, inner;
  };
  for (DType index_dtype : {DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U32,
                            DType::F32, DType::F64})
    for (DType d : {DType::I8, DType::BF16, DType::F32, DType::F64})
      for (const Sizes& s : {Sizes{1, 11, 5000, 1},
                             {40, 9, 130, 1},
                             {3, 7, 9, 700},
                             {9, 1, 1, 1},
                             {5000, 3, 1, 1},
                             {2, 100, 3, 3}}) {
        const TakeAlongProblem p{.element_bytes = static_cast<size_t>(size_of(d)),
                                 .index_dtype = index_dtype,
                                 .outer = s.outer,
                                 .axis = s.axis,
                                 .count = s.count,
                                 .inner = s.inner};
        TypedBuffer x(d, s.outer * s.axis * s.inner),
            index(index_dtype, s.outer * s.count * s.inner), out(d, index.size());
        x.fill_random(random);
        for (int64_t i = 0; i < index.size(); ++i)
          index.set(i, static_cast<double>(random() % static_cast<uint32_t>(s.axis)));
        uint32_t flag = 0;
        for (int64_t b = take_along_blocks(p); b-- > 0;)
          take_along(p, x.data(), index.data(), out.data(), &flag, b, b + 1);
        EXPECT_EQ(flag, 0u);
        EXPECT_TRUE(out.guard_intact());
        TypedBuffer whole(d, index.size());
        take_along(p, x.data(), index.data(), whole.data(), &flag, 0, take_along_blocks(p));
        EXPECT_TRUE(whole.same_bits(out));
        for (int64_t i = 0; i < out.size(); ++i) {
          const int64_t o = i / s.inner / s.count, t = i % s.inner,
                        row = static_cast<int64_t>(index.get(i).real());
          ASSERT_EQ(out.get(i), x.get((o * s.axis + row) * s.inner + t))
              << info(index_dtype).name << " " << info(d).name << " " << i;
        }
      }
}

TEST(TakeAlong, OutOfRangeSetsTheFlagAndClamps) {
  for (DType index_dtype : {DType::I64, DType::I32, DType::I16, DType::F32})
    for (int64_t inner : {1, 6})
      for (double bad : {-1.0, 5.0, 1e9, -1e9})
        for (int64_t axis : {0, 5}) {
          if (index_dtype == DType::I16 && std::abs(bad) > 1e4) continue;
          const TakeAlongProblem p{
              .index_dtype = index_dtype, .outer = 2, .axis = axis, .count = 3, .inner = inner};
          TypedBuffer x(DType::F32, 2 * axis * inner), index(index_dtype, 6 * inner),
              out(DType::F32, 6 * inner);
          for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i + 1));
          for (int64_t i = 0; i < index.size(); ++i) index.set(i, static_cast<double>(i % 5));
          const int64_t where = 4 * inner - 1;
          index.set(where, bad);
          uint32_t flag = 0;
          take_along(p, x.data(), index.data(), out.data(), &flag, 0, take_along_blocks(p));
          EXPECT_EQ(flag, 1u);
          for (int64_t i = 0; i < out.size(); ++i) {
            int64_t row = i == where ? (bad < 0 ? 0 : 4) : i % 5;
            const double want =
                axis ? x.get((i / inner / 3 * axis + row) * inner + i % inner).real() : 0;
            ASSERT_EQ(out.get(i).real(), want) << bad << " " << i;
          }
        }
}

// The one index that is wrong is seen wherever it lies in a run.
TEST(Indices, ReadInRunsAsOneByOne) {
  for (DType d : {DType::I64, DType::I32, DType::U32, DType::I8, DType::F64})
    for (int64_t n : {1, 511, 512, 513, 1300})
      for (int64_t wrong : {int64_t{-1}, int64_t{0}, n / 2, n - 1}) {
        TypedBuffer index(d, n);
        for (int64_t i = 0; i < n; ++i) index.set(i, static_cast<double>(i % 100));
        if (wrong >= 0) index.set(wrong, 100);
        uint32_t flag = 0;
        const Index at(index.data(), d, 100, &flag);
        int64_t next = 0;
        for_each_run(at, 0, n, [&](int64_t first, int64_t many, const int64_t* rows) {
          ASSERT_EQ(first, next);
          for (int64_t k = 0; k < many; ++k)
            ASSERT_EQ(rows[k], first + k == wrong ? 99 : (first + k) % 100);
          next = first + many;
        });
        EXPECT_EQ(next, n);
        EXPECT_EQ(flag, wrong >= 0 ? 1u : 0u);
      }
}

// ---- order --------------------------------------------------------------------------------------

TEST(TopK, AsSortingTheLine) {
  std::mt19937 random(8);
  for (DType d : ordered_dtypes())
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{135, 1},
                               {136, 1},
                               {137, 1},
                               {144, 2},
                               {700, 1},
                               {700, 5},
                               {700, 699},
                               {700, 700},
                               {3000, 40},
                               {3000, 359},
                               {3000, 360}})
      for (int64_t inner : {1, 3})
        for (int kind = 0; kind < 4; ++kind)  // equals and NaN, ascending, descending, all NaN
          for (bool descending : {false, true}) {
            TypedBuffer x(d, n * inner);
            fill_with_equals(x, random, true);
            for (int64_t i = 0; i < x.size() && kind; ++i) {
              const int64_t at = kind == 1 ? i / inner : n - i / inner;
              x.set(i, kind == 3 && is_float(d) ? NAN : static_cast<double>(at * 100 / n));
            }
            SortProblem p{.dtype = d, .descending = descending, .n = n, .inner = inner, .k = k};
            TypedBuffer values(d, k * inner), positions(DType::I64, k * inner);
            Bytes scratch(sort_scratch_bytes(p));
            sort(p, x.data(), values.data(), positions.data(), 0, sort_blocks(p), scratch.data());
            EXPECT_TRUE(values.guard_intact() && positions.guard_intact() &&
                        scratch.guard_intact());
            for (int64_t t = 0; t < inner; ++t) {
              const auto value = [&](int64_t i) { return x.get(i * inner + t).real(); };
              std::vector<int64_t> order(static_cast<size_t>(n));
              std::iota(order.begin(), order.end(), 0);
              std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
                return descending ? before(value(b), value(a)) : before(value(a), value(b));
              });
              for (int64_t i = 0; i < k; ++i) {
                const int64_t want = order[static_cast<size_t>(i)];
                ASSERT_EQ(positions.get(i * inner + t).real(), static_cast<double>(want))
                    << info(d).name << " " << n << " " << k << " kind " << kind << descending;
                ASSERT_EQ(
                    std::memcmp(
                        static_cast<const char*>(values.data()) + (i * inner + t) * size_of(d),
                        static_cast<const char*>(x.data()) + (want * inner + t) * size_of(d),
                        static_cast<size_t>(size_of(d))),
                    0);
              }
            }
          }
}

TEST(Search, AsCounting) {
  std::mt19937 random(9);
  for (DType d : ordered_dtypes())
    for (int64_t n : {0, 1, 2, 3, 5, 8, 9, 100, 1000})
      for (int64_t m : {0, 1, 7, 8, 9, 300})
        for (bool one_line : {false, true})
          for (bool right : {false, true}) {
            constexpr int64_t lines = 3;
            TypedBuffer x(d, n * lines), values(d, m * lines), sorted(d, n * lines);
            fill_with_equals(x, random, true);
            fill_with_equals(values, random, true);
            for (int64_t l = 0; l < lines; ++l) {
              std::vector<double> line;
              for (int64_t i = 0; i < n; ++i) line.push_back(x.get(l * n + i).real());
              std::ranges::stable_sort(line, before);
              for (int64_t i = 0; i < n; ++i) sorted.set(l * n + i, line[static_cast<size_t>(i)]);
            }
            const SearchProblem p{
                .dtype = d, .right = right, .one_line = one_line, .lines = lines, .n = n, .m = m};
            std::vector<int64_t> out(static_cast<size_t>(m * lines), -1);
            for (int64_t b = search_blocks(p); b-- > 0;)
              search(p, sorted.data(), values.data(), out.data(), b, b + 1);
            for (int64_t i = 0; i < m * lines; ++i) {
              const double v = values.get(i).real();
              int64_t want = 0;
              for (int64_t j = 0; j < n; ++j) {
                const double s = sorted.get((one_line ? 0 : i / m) * n + j).real();
                want += right ? !before(v, s) : before(s, v);
              }
              ASSERT_EQ(out[static_cast<size_t>(i)], want)
                  << info(d).name << " " << v << " in " << n << (right ? " right" : " left");
            }
          }
}

}  // namespace
}  // namespace rlx::cpu
