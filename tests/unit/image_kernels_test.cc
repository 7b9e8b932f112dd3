// The kernels of resampling and of pools with channels first against plain loops in f64, on every instruction set of the
// machine: sizes on both sides of vectors, parts and blocks, one to three axes, all storage types they have vectors for.
#include <gtest/gtest.h>

#include <algorithm>

#include "native_util.h"
#include "rlx/backend/cpu/kernels/image/pool.h"
#include "rlx/backend/cpu/kernels/image/resample.h"
#include "rlx/backend/cpu/kernels/indexing/gather.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

using testing::Bytes;

std::vector<Isa> isas() {
  std::vector<Isa> out;
  for (Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512})
    if (isa_supported(isa)) out.push_back(isa);
  return out;
}

int64_t product(const Ints& sizes) {
  int64_t p = 1;
  for (int64_t s : sizes) p *= s;
  return p;
}

// A dense array of one of the float types in guarded memory.
struct Array : testing::TypedBuffer {
  Array(DType d, const Ints& sizes) : TypedBuffer(d, product(sizes)) {}
  void draw(std::mt19937& random) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < size(); ++i) set(i, normal(random));
  }
};

// Half of what lies between the smallest numbers.
double least(DType d) { return d == DType::F16 ? 1.0 / (1 << 24) : 0; }
double epsilon(DType d) {
  return d == DType::F16 ? 1.0 / 1024 : d == DType::BF16 ? 1.0 / 128 : 1.0 / (1 << 23);
}

// ---- resampling

struct Resampling {
  Ints sizes;
  std::vector<ResamplePlan::Axis> axes;  // from front to back
  std::string text() const {
    std::string out = fmt::format("sizes {}", fmt::join(sizes, "x"));
    for (const auto& a : axes) out += fmt::format(", axis {} to {} by {}", a.axis, a.to, a.taps);
    return out;
  }
};

ResamplePlan::Axis axis_of(int64_t axis, int64_t from, int64_t to, int64_t taps,
                           std::mt19937& random) {
  ResamplePlan::Axis a{axis, to, taps, {}, {}};
  std::uniform_real_distribution<float> weight(-0.5f, 1.0f);
  for (int64_t o = 0; o < to; ++o)
    for (int64_t t = 0; t < taps; ++t) {
      a.indices.push_back(std::clamp<int64_t>(o * from / to + t - taps / 2, 0, from - 1));
      a.weights.push_back(weight(random));
    }
  return a;
}

// Values and the sums of the magnitudes of what they are made of, along one axis.
using Sums = std::pair<std::vector<double>, std::vector<double>>;
Sums along(const Sums& x, Ints& sizes, const ResamplePlan::Axis& a) {
  const auto at = static_cast<size_t>(a.axis);
  const int64_t from = sizes[at], outer = product(Ints(sizes.begin(), sizes.begin() + a.axis)),
                inner = product(Ints(sizes.begin() + a.axis + 1, sizes.end()));
  sizes[at] = a.to;
  Sums y;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < a.to; ++i)
      for (int64_t r = 0; r < inner; ++r) {
        double sum = 0, size = 0;
        for (int64_t t = 0; t < a.taps; ++t) {
          const auto k = static_cast<size_t>(i * a.taps + t);
          const auto place = static_cast<size_t>((o * from + a.indices[k]) * inner + r);
          sum += static_cast<double>(a.weights[k]) * x.first[place];
          size += std::fabs(static_cast<double>(a.weights[k])) * x.second[place];
        }
        y.first.push_back(sum), y.second.push_back(size);
      }
  return y;
}

void check_resampling(const Resampling& c, DType dtype, Isa isa) {
  std::mt19937 random(5);
  Array x(dtype, c.sizes);
  x.draw(random);
  Sums want;
  for (int64_t i = 0; i < x.size(); ++i)
    want.first.push_back(x.get(i).real()), want.second.push_back(std::fabs(x.get(i).real()));
  ResamplePlan plan(dtype, c.sizes, isa);
  Ints sizes = c.sizes;
  for (const auto& a : c.axes) {
    plan.add(a);
    want = along(want, sizes, a);
  }
  plan.finish();
  Array y(dtype, sizes);
  Bytes scratch(plan.scratch_bytes());
  const std::string what = fmt::format("{}, {}: {}", isa_name(isa), dtype, c.text());
  for (int64_t b = plan.blocks(); b-- > 0;)  // each alone, the last one first
    plan.run(x.data(), y.data(), b, b + 1, reinterpret_cast<std::byte*>(scratch.data()));
  ASSERT_TRUE(x.guard_intact() && y.guard_intact() && scratch.guard_intact()) << what;
  for (int64_t i = 0; i < y.size(); ++i) {
    const double v = want.first[static_cast<size_t>(i)], size = want.second[static_cast<size_t>(i)];
    ASSERT_LE(std::fabs(y.get(i).real() - v),
              least(dtype) + epsilon(dtype) * std::fabs(v) + 60 * epsilon(DType::F32) * size)
        << what << ", element " << i;
  }
}

constexpr DType kStored[] = {DType::F32, DType::F16, DType::BF16};

TEST(Resample, OneAxisOnBothSidesOfVectors) {
  std::mt19937 random(1);
  for (Isa isa : isas())
    for (DType d : kStored)
      for (int64_t rest : {1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 31, 33, 64, 67, 130})
        for (int64_t rows : {1, 3, 16, 17})
          for (int64_t from : {1, 2, 5, 16, 19})
            for (int64_t to : {1, 3, 16, 23})
              check_resampling({{rows, from, rest}, {axis_of(1, from, to, 2, random)}}, d, isa);
}

TEST(Resample, TapsOnBothSidesOfRuns) {
  std::mt19937 random(2);
  for (Isa isa : isas())
    for (int64_t taps : {1, 2, 4, 15, 16, 17, 32, 33, 70})
      for (int64_t rest : {1, 20})
        check_resampling({{18, 90, rest}, {axis_of(1, 90, 31, taps, random)}}, DType::F32, isa);
}

// Rows longer than a part of what is turned, and more rows than a block.
TEST(Resample, PartsAndBlocks) {
  std::mt19937 random(3);
  for (Isa isa : isas()) {
    for (const auto& [from, to] : {std::pair(1500, 3000), {3000, 1025}, {40, 1024}, {5000, 2}})
      for (int64_t rows : {1, 17})
        check_resampling({{rows, from, 1}, {axis_of(1, from, to, 3, random)}}, DType::F32, isa);
    check_resampling({{3000, 7}, {axis_of(1, 7, 14, 2, random)}}, DType::F32, isa);
    check_resampling({{2, 9, 3000}, {axis_of(1, 9, 14, 2, random)}}, DType::F32, isa);
  }
}

TEST(Resample, SeveralAxes) {
  std::mt19937 random(4);
  const auto upto = [&](int64_t n) {
    return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int i = 0; i < 300; ++i) {
    Resampling c;
    const int64_t rank = 1 + upto(4);
    for (int64_t a = 0; a < rank; ++a) c.sizes.push_back(upto(a + 1 == rank ? 40 : 9));
    for (int64_t a = 0; a < rank; ++a)
      if (random() % 3 != 0)
        c.axes.push_back(axis_of(a, c.sizes[static_cast<size_t>(a)], upto(20), upto(4), random));
    if (i % 20 == 0)
      c.sizes[0] = 0, std::erase_if(c.axes, [](const auto& a) { return a.axis == 0; });
    for (Isa isa : isas()) check_resampling(c, kStored[i % 3], isa);
    if (HasFatalFailure()) return;
  }
}

// ---- pools

void check_pool(const PoolProblem& p, Isa isa, std::mt19937& random, const std::string& text) {
  Array x(p.dtype, {p.planes, p.x[0], p.x[1], p.x[2]}),
      y(p.dtype, {p.planes, p.y[0], p.y[1], p.y[2]});
  x.draw(random);
  if (is_float(p.dtype) && random() % 4 == 0) x.set(static_cast<int64_t>(random()) % x.size(), NAN);
  Bytes scratch(pool_scratch_bytes(p));
  for (int64_t b = pool_blocks(p); b-- > 0;)
    pool(p, isa, x.data(), y.data(), b, b + 1, reinterpret_cast<std::byte*>(scratch.data()));
  const std::string what = fmt::format("{}, {}: {}", isa_name(isa), p.dtype, text);
  ASSERT_TRUE(x.guard_intact() && y.guard_intact() && scratch.guard_intact()) << what;
  const bool largest = p.fold == PoolFold::Max, extreme = largest || p.fold == PoolFold::Min;
  for (int64_t e = 0; e < y.size(); ++e) {
    const int64_t at[3] = {e / (p.y[1] * p.y[2]) % p.y[0], e / p.y[2] % p.y[1], e % p.y[2]};
    double best = largest ? -INFINITY : INFINITY, sum = 0, size = 0;
    int64_t counted = 0;
    for (int64_t k = 0; k < p.kernel[0] * p.kernel[1] * p.kernel[2]; ++k) {
      const int64_t tap[3] = {k / (p.kernel[1] * p.kernel[2]), k / p.kernel[2] % p.kernel[1],
                              k % p.kernel[2]};
      int64_t place = e / p.windows();
      bool inside = true, counts = true;
      for (size_t a = 0; a < 3; ++a) {
        const int64_t i = at[a] * p.stride[a] + tap[a] * p.dilation[a] - p.low[a];
        inside = inside && i >= 0 && i < p.x[a];
        counts = counts && i >= -p.low[a] && i < p.x[a] + p.high[a];
        place = place * p.x[a] + i;
      }
      counted += p.count_padding ? counts : inside;
      if (!inside) continue;
      const double v = x.get(place).real();
      if (std::isnan(v) || std::isnan(best))
        best = NAN;
      else
        best = largest ? std::max(best, v) : std::min(best, v);
      sum += v, size += std::fabs(v);
    }
    const auto divisor = p.fold == PoolFold::Mean ? static_cast<double>(counted) : 1.0;
    const double want = extreme ? best : sum / divisor, got = y.get(e).real();
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << what << ", element " << e;
    } else if (extreme) {
      ASSERT_EQ(got, want) << what << ", element " << e;
    } else {
      ASSERT_LE(std::fabs(got - want), least(p.dtype) + epsilon(p.dtype) * std::fabs(want) +
                                           30 * epsilon(DType::F32) * size / divisor)
          << what << ", element " << e;
    }
  }
}

TEST(PoolPlanes, WidthsOnBothSidesOfVectors) {
  std::mt19937 random(6);
  for (Isa isa : isas())
    for (DType d : kStored)
      for (PoolFold fold : {PoolFold::Max, PoolFold::Min, PoolFold::Sum, PoolFold::Mean})
        for (int64_t width : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 35, 50, 130})
          for (int64_t stride : {1, 2, 3, 5}) {
            PoolProblem p{.dtype = d, .fold = fold, .planes = 2};
            p.x = {1, 4, width}, p.kernel = {1, 3, 3}, p.stride = {1, 2, stride};
            p.low = {0, 1, 1}, p.high = {0, 1, 1};
            p.y = {1, 2, (width - 1) / stride + 1};
            p.count_padding = stride % 2 == 0;
            check_pool(p, isa, random, fmt::format("width {} by {}", width, stride));
            if (HasFatalFailure()) return;
          }
}

TEST(PoolPlanes, RandomWindows) {
  std::mt19937 random(7);
  const auto upto = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int i = 0; i < 600;) {
    PoolProblem p{
        .dtype = kStored[i % 3], .fold = static_cast<PoolFold>(i % 4), .planes = 1 + upto(3)};
    bool fits = true;
    for (auto a = static_cast<size_t>(upto(3)); a < 3; ++a) {
      p.x[a] = 1 + upto(a == 2 ? 40 : 7), p.kernel[a] = 1 + upto(i % 7 == 0 ? 20 : 4);
      p.stride[a] = 1 + upto(4), p.dilation[a] = 1 + upto(3) * upto(2);
      p.low[a] = upto(6) - 1, p.high[a] = upto(6) - 1;
      const int64_t room = p.x[a] + p.low[a] + p.high[a] - p.dilation[a] * (p.kernel[a] - 1) - 1;
      fits = fits && room >= 0;
      p.y[a] = fits ? room / p.stride[a] + 1 : 1;
    }
    if (!fits) continue;
    p.count_padding = i % 8 < 4;
    const std::string text = fmt::format(
        "{} planes, x {} kernel {} stride {} dilation {} low {} high {}, fold {}", p.planes,
        fmt::join(p.x, "x"), fmt::join(p.kernel, "x"), fmt::join(p.stride, "x"),
        fmt::join(p.dilation, "x"), fmt::join(p.low, ","), fmt::join(p.high, ","), i % 4);
    for (Isa isa : isas()) check_pool(p, isa, random, text);
    if (HasFatalFailure()) return;
    ++i;
  }
}

// Extrema of types without vectors of their own, element by element. Every window has a pixel: what integers give for none is another.
TEST(PoolPlanes, OtherTypes) {
  std::mt19937 random(11);
  for (DType d : {DType::F64, DType::I8, DType::I16, DType::I32, DType::I64, DType::U8})
    for (PoolFold fold : {PoolFold::Max, PoolFold::Min})
      for (int64_t width : {1, 4, 17, 40})
        for (int64_t stride : {1, 2}) {
          PoolProblem p{.dtype = d, .fold = fold, .planes = 9};
          p.x = {1, 5, width}, p.kernel = {1, 3, 3}, p.stride = {1, 2, stride};
          p.low = {0, 1, 1}, p.high = {0, 1, 1};
          p.y = {1, 3, (width - 1) / stride + 1};
          for (Isa isa : isas())
            check_pool(p, isa, random, fmt::format("width {} by {}", width, stride));
          if (HasFatalFailure()) return;
        }
}

// NaN wins wherever a window has it, between larger and smaller numbers; the positions say where the first one is.
TEST(PoolPlanes, NanInEveryPlace) {
  for (Isa isa : isas())
    for (DType d : {DType::F64, DType::F32, DType::F16, DType::BF16})
      for (PoolFold fold : {PoolFold::Max, PoolFold::Min})
        for (int64_t low : {0, 5000})  // those far away are folded element by element
          for (int64_t i = 0; i < 24; ++i) {
            const int64_t place = i / 2, second = i % 2 ? 11 : place;
            PoolProblem p{.dtype = d, .fold = fold};
            p.x = {1, 3, 4}, p.kernel = {1, 3, 4 + 2 * low}, p.low[2] = p.high[2] = low;
            Array x(d, {12}), y(d, {1}), best(d, {1});
            for (int64_t k = 0; k < 12; ++k) x.set(k, static_cast<double>(k % 5 - 2));
            x.set(place, NAN), x.set(second, NAN);
            Bytes scratch(pool_scratch_bytes(p));
            auto* const own = reinterpret_cast<std::byte*>(scratch.data());
            pool(p, isa, x.data(), y.data(), 0, 1, own);
            int64_t position = -1;
            pool_with_positions(p, x.data(), best.data(), &position, 0, 1, own);
            EXPECT_TRUE(std::isnan(y.get(0).real()) && std::isnan(best.get(0).real()))
                << isa_name(isa) << " " << to_string(d) << " " << place;
            EXPECT_EQ(position, place) << isa_name(isa) << " " << to_string(d);
            EXPECT_TRUE(scratch.guard_intact());
          }
}

// Windows that reach far beyond the lines take another way to the same results.
TEST(PoolPlanes, FarWindows) {
  std::mt19937 random(8);
  for (Isa isa : isas())
    for (PoolFold fold : {PoolFold::Max, PoolFold::Mean})
      for (const auto& [low, dilation] : {std::pair(4095, 1), {4097, 1}, {9000, 4500}, {5, 5}}) {
        PoolProblem p{.fold = fold, .planes = 2};
        p.x[2] = 40, p.kernel[2] = 3, p.stride[2] = 700, p.dilation[2] = dilation;
        p.low[2] = low, p.high[2] = low;
        p.y[2] = (40 + 2 * low - 2 * dilation - 1) / 700 + 1;
        check_pool(p, isa, random, fmt::format("low {}, dilation {}", low, dilation));
      }
}

// ---- gathered rows

TEST(Gather, RowsOfAllSizes) {
  std::mt19937 random(9);
  for (size_t element : {1, 2, 4, 8, 16})
    for (int64_t inner : {1, 2, 3, 4, 5, 16})
      for (int64_t count : {1, 511, 512, 513, 1030, 40000}) {
        GatherProblem p{
            .element_bytes = element, .outer = 3, .axis = 7, .count = count, .inner = inner};
        p.set_dense();
        const int64_t row = inner * static_cast<int64_t>(element);
        Bytes table(static_cast<size_t>(3 * 7 * row)), out(static_cast<size_t>(3 * count * row));
        for (size_t i = 0; i < table.size(); ++i) table.data()[i] = static_cast<uint8_t>(random());
        std::vector<int64_t> at;
        for (int64_t i = 0; i < count; ++i) at.push_back(static_cast<int64_t>(random() % 7));
        uint32_t flag = 0;
        gather(p, table.data(), at.data(), out.data(), &flag, 0, gather_blocks(p));
        EXPECT_TRUE(out.guard_intact());
        EXPECT_EQ(flag, 0u);
        for (int64_t o = 0; o < 3; ++o)
          for (int64_t i = 0; i < count; ++i)
            ASSERT_EQ(std::memcmp(out.data() + (o * count + i) * row,
                                  table.data() + (o * 7 + at[static_cast<size_t>(i)]) * row,
                                  static_cast<size_t>(row)),
                      0)
                << element << " bytes, " << inner << " of them, index " << i << " of " << count;
      }
}

}  // namespace
}  // namespace rlx::cpu
