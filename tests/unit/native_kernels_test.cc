// Philox, strided copies, gather, scatter, cumsum, argmax and the machine's limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "native_util.h"
#include "rlx/backend/cpu/kernels/indexing/gather.h"
#include "rlx/backend/cpu/kernels/indexing/scatter.h"
#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/limits/machine_limits.h"
#include "rlx/backend/cpu/kernels/movement/copy.h"
#include "rlx/backend/cpu/kernels/reduce/axis_kernels.h"
#include "rlx/base/error.h"
#include "rlx/base/philox.h"

namespace rlx::cpu {
namespace {

using testing::Bytes;
using testing::TypedBuffer;
using testing::Value;

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32(philox_key(0), {}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(philox_key(42), {}),
            (PhiloxBlock{0x9ceaf053, 0x77f5493b, 0x12bf50ad, 0x5742b3d7}));
  EXPECT_EQ(philox4x32(philox_key(0xDEADBEEF), {}),
            (PhiloxBlock{0xcab08791, 0x5fe5ff83, 0xec61bd87, 0x82a4e06b}));
  // From the paper's test vectors.
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(philox_key(0), {}, kPhiloxReferenceM0),
            (PhiloxBlock{0xab45d93f, 0x7d18eb7f, 0x4ba0ff59, 0x6af5bcc1}));
  EXPECT_EQ(philox4x32(philox_key(42), {}, kPhiloxReferenceM0),
            (PhiloxBlock{0x6f7f8f0f, 0x3aba8be4, 0xe86385de, 0x11f82253}));
  EXPECT_EQ(philox4x32(philox_key(0xDEADBEEF), {}, kPhiloxReferenceM0),
            (PhiloxBlock{0xe521d285, 0x1257b335, 0x4b20321f, 0xd9249ec2}));
}

TEST(Philox, UniformStaysBelowOne) {
  EXPECT_EQ(philox_uniform(0u), 0.f);
  EXPECT_LT(philox_uniform(0xffffffffu), 1.f);
  EXPECT_LT(philox_uniform(0xffffffffu, 0xffffffffu), 1.0);
}

// Every element must land where the strides say; blocks run in reverse order.
void check_copy(size_t bytes, std::vector<int64_t> dims, std::vector<int64_t> from,
                std::vector<int64_t> to) {
  int64_t low = 0, high = 0, last = 0, count = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    (from[i] < 0 ? low : high) += (dims[i] - 1) * from[i];
    last += (dims[i] - 1) * to[i];
    count *= dims[i];
  }
  Bytes source(static_cast<size_t>(count ? high - low + 1 : 0) * bytes);
  Bytes target(static_cast<size_t>(count ? last + 1 : 0) * bytes);
  std::mt19937 random(3);
  for (size_t i = 0; i < source.size(); ++i) source.data()[i] = static_cast<uint8_t>(random());
  const uint8_t* const origin = source.data() - low * static_cast<int64_t>(bytes);
  const CopyPlan plan = CopyPlan::make(bytes, dims, from, to);
  for (int64_t b = plan.blocks() - 1; b >= 0; --b) plan.run(origin, target.data(), b, b + 1);
  EXPECT_TRUE(target.guard_intact());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, s = 0, t = 0;
    for (size_t d = dims.size(); d-- > 0;) {
      s += rest % dims[d] * from[d];
      t += rest % dims[d] * to[d];
      rest /= dims[d];
    }
    ASSERT_EQ(std::memcmp(origin + s * static_cast<int64_t>(bytes),
                          target.data() + t * static_cast<int64_t>(bytes), bytes),
              0)
        << "element " << i;
  }
}

TEST(Copy, TransposesSlicesBroadcasts) {
  for (size_t bytes : {1, 2, 4, 8}) {
    check_copy(bytes, {}, {}, {});
    check_copy(bytes, {5}, {1}, {1});
    check_copy(bytes, {0, 3}, {3, 1}, {3, 1});
    check_copy(bytes, {33, 47}, {1, 33}, {47, 1});
    check_copy(bytes, {300, 130}, {1, 300}, {130, 1});
    check_copy(bytes, {33, 47}, {47, 1}, {1, 33});  // target transposed
    check_copy(bytes, {4, 17, 9, 5}, {17 * 45, 5, 17 * 5, 1},
               {17 * 45, 45, 5, 1});  // heads and positions swapped
    check_copy(bytes, {3, 20, 18}, {1, 3, 60}, {360, 18, 1});
    check_copy(bytes, {6, 7, 8}, {0, 8, 1}, {56, 8, 1});
    check_copy(bytes, {6, 7, 8}, {8, 1, 0}, {56, 8, 1});
    check_copy(bytes, {9, 10}, {-10, -1}, {10, 1});
    check_copy(bytes, {9, 10}, {40, 2}, {30, 3});
    check_copy(bytes, {2, 20000}, {20000, 1}, {20001, 1});
    check_copy(bytes, {20000, 2}, {2, 1}, {1, 20000});
  }
}

// Lines that more than one block share, read at every kind of stride: forwards, backwards, with gaps, one element only.
TEST(Copy, LinesLongerThanABlock) {
  constexpr int64_t n = 40000;
  for (size_t bytes : {1, 2, 4, 8}) {
    for (int64_t step : {-3, -1, 0, 1, 2}) {
      check_copy(bytes, {n}, {step}, {1});
      check_copy(bytes, {3, n}, {5, step}, {n, 1});
      check_copy(bytes, {2, n}, {-7, step}, {1, 2});
    }
    check_copy(bytes, {2, n, 3}, {-3 * n, -3, 1}, {3 * n, 3, 1});  // rows from the last one on
  }
}

TEST(Copy, RectanglesOfAnySizeOnEveryInstructionSet) {
  for (Isa isa : testing::host_isas())
    for (size_t bytes : {1, 2, 4, 8})
      for (int64_t rows : {1, 3, 4, 7, 8, 15, 16, 17, 40})
        for (int64_t cols : {1, 2, 8, 15, 16, 31, 33}) {
          const int64_t source_col = rows + 3, target_row = cols + 5;
          Bytes source(bytes * static_cast<size_t>(cols * source_col));
          Bytes target(bytes * static_cast<size_t>(rows * target_row));
          for (size_t i = 0; i < source.size(); ++i)
            source.data()[i] = static_cast<uint8_t>(7 * i % 251);
          std::memset(target.data(), 0xee, target.size());
          transpose_fn(isa, bytes)(source.data(), source_col, target.data(), target_row, rows,
                                   cols);
          EXPECT_TRUE(target.guard_intact());
          for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < target_row; ++j)
              for (size_t b = 0; b < bytes; ++b) {
                const auto at = [&](int64_t element) {
                  return static_cast<size_t>(element) * bytes + b;
                };
                ASSERT_EQ(target.data()[at(i * target_row + j)],
                          j < cols ? source.data()[at(i + j * source_col)] : 0xee)
                    << isa_name(isa) << " " << bytes << " bytes, " << rows << "x" << cols;
              }
        }
}

TEST(Copy, RejectsOtherElementSizes) { EXPECT_THROW(CopyPlan::make(3, {}, {}, {}), Error); }

TEST(Gather, EveryIndexDtype) {
  for (DType dtype : {DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U32,
                      DType::F32, DType::F64, DType::F16, DType::BF16}) {
    GatherProblem p{
        .element_bytes = 4, .index_dtype = dtype, .outer = 2, .axis = 11, .count = 9, .inner = 5};
    p.set_dense();
    TypedBuffer table(DType::F32, 2 * 11 * 5), index(dtype, 9), out(DType::F32, 2 * 9 * 5);
    std::mt19937 random(5);
    table.fill_random(random);
    for (int64_t i = 0; i < 9; ++i) index.set(i, static_cast<double>(i * 7 % 11));
    uint32_t flag = 0;
    for (int64_t b = gather_blocks(p) - 1; b >= 0; --b)
      gather(p, table.data(), index.data(), out.data(), &flag, b, b + 1);
    EXPECT_EQ(flag, 0u);
    for (int64_t o = 0; o < 2; ++o) {
      for (int64_t i = 0; i < 9; ++i) {
        for (int64_t t = 0; t < 5; ++t)
          ASSERT_EQ(out.get((o * 9 + i) * 5 + t), table.get((o * 11 + i * 7 % 11) * 5 + t));
      }
    }
  }
}

TEST(Gather, EveryElementSizeAndStrides) {
  for (DType dtype : {DType::I8, DType::F16, DType::F32, DType::C64}) {
    GatherProblem p{.element_bytes = static_cast<size_t>(size_of(dtype)),
                    .index_dtype = DType::I32,
                    .outer = 3,
                    .axis = 6,
                    .count = 4000,
                    .inner = 3,
                    .table_outer = 40,
                    .table_axis = 6,
                    .out_outer = 4000 * 4,
                    .out_count = 4};
    TypedBuffer table(dtype, 3 * 40), index(DType::I32, 4000), out(dtype, 3 * 4000 * 4);
    std::mt19937 random(5);
    table.fill_random(random);
    for (int64_t i = 0; i < 4000; ++i) index.set(i, static_cast<double>(random() % 6));
    gather(p, table.data(), index.data(), out.data(), nullptr, 0, gather_blocks(p));
    for (int64_t o = 0; o < 3; ++o) {
      for (int64_t i = 0; i < 4000; ++i) {
        const int64_t row = static_cast<int64_t>(index.get(i).real());
        for (int64_t t = 0; t < 3; ++t)
          ASSERT_EQ(out.get(o * 16000 + i * 4 + t), table.get(o * 40 + row * 6 + t));
      }
    }
  }
}

TEST(Gather, OutOfRangeSetsTheFlagAndClamps) {
  for (Value bad : {Value(-1), Value(4), Value(1e18), Value(-1e18)}) {
    GatherProblem p{.index_dtype = DType::I64, .axis = 4, .count = 1, .inner = 1};
    p.set_dense();
    TypedBuffer table(DType::F32, 4), index(DType::I64, 1), out(DType::F32, 1);
    for (int64_t i = 0; i < 4; ++i) table.set(i, static_cast<double>(i));
    index.set(0, bad);
    uint32_t flag = 0;
    gather(p, table.data(), index.data(), out.data(), &flag, 0, gather_blocks(p));
    EXPECT_EQ(flag, 1u);
    EXPECT_EQ(out.get(0).real(), bad.real() < 0 ? 0 : 3);
  }
  for (float bad : {NAN, INFINITY, -INFINITY, -1.f, 4.f, 3e30f}) {
    GatherProblem p{.index_dtype = DType::F32, .axis = 4, .count = 1, .inner = 1};
    p.set_dense();
    TypedBuffer table(DType::F32, 4), index(DType::F32, 1), out(DType::F32, 1);
    for (int64_t i = 0; i < 4; ++i) table.set(i, 1);
    index.set(0, bad);
    uint32_t flag = 0;
    gather(p, table.data(), index.data(), out.data(), &flag, 0, 1);
    EXPECT_EQ(flag, 1u) << bad;
    EXPECT_EQ(out.get(0).real(), 1);
  }
}

TEST(Gather, EmptyAxisGivesZerosAndTheFlag) {
  GatherProblem p{.index_dtype = DType::I32, .axis = 0, .count = 2, .inner = 3};
  p.set_dense();
  TypedBuffer index(DType::I32, 2), out(DType::F32, 6);
  index.set(0, 0);
  index.set(1, 5);
  uint32_t flag = 0;
  gather(p, nullptr, index.data(), out.data(), &flag, 0, gather_blocks(p));
  EXPECT_EQ(flag, 1u);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(out.get(i).real(), 0);
}

TEST(ScatterAdd, EveryDtypeAgainstALoop) {
  for (const DTypeInfo& d : kDTypes) {
    if (kStored.has(d.dtype)) continue;
    for (bool zero : {true, false}) {
      for (int64_t inner : {1, 5, 40}) {
        ScatterProblem p{.dtype = d.dtype,
                         .index_dtype = DType::I32,
                         .outer = 2,
                         .axis = 37,
                         .count = 90,
                         .inner = inner};
        p.set_dense();
        TypedBuffer updates(d.dtype, 2 * 90 * inner), index(DType::I32, 90),
            out(d.dtype, 2 * 37 * inner);
        std::mt19937 random(9);
        updates.fill_random(random);
        out.fill_random(random);
        for (int64_t i = 0; i < 90; ++i) index.set(i, static_cast<double>(random() % 37));
        std::vector<Value> want(static_cast<size_t>(out.size()));
        for (int64_t i = 0; i < out.size() && !zero; ++i) want[i] = out.get(i);
        for (int64_t o = 0; o < 2; ++o) {
          for (int64_t u = 0; u < 90; ++u) {
            const int64_t row = static_cast<int64_t>(index.get(u).real());
            for (int64_t t = 0; t < inner; ++t) {
              Value& w = want[(o * 37 + row) * inner + t];
              w += updates.get((o * 90 + u) * inner + t);
              if (is_bool(d.dtype)) w = w != 0.0;
            }
          }
        }
        uint32_t flag = 0;
        Bytes scratch(scatter_scratch_bytes(p));
        for (int64_t b = scatter_blocks(p) - 1; b >= 0; --b) {
          scatter(p, zero ? nullptr : out.data(), updates.data(), index.data(), out.data(), &flag,
                  b, b + 1, scratch.data());
        }
        EXPECT_EQ(flag, 0u);
        EXPECT_TRUE(out.guard_intact() && scratch.guard_intact());
        for (int64_t i = 0; i < out.size(); ++i) {
          const double bound = 90 * testing::compute_roundoff(d.dtype) +
                               testing::roundoff(d.dtype) * std::abs(want[i]);
          ASSERT_LE(std::abs(out.get(i) - want[i]), bound) << d.name << " " << i;
        }
      }
    }
  }
}

TEST(ScatterAdd, OutOfRangeSetsTheFlag) {
  for (int64_t axis : {0, 3}) {
    ScatterProblem p{.index_dtype = DType::I64, .axis = axis, .count = 2, .inner = 2};
    p.set_dense();
    TypedBuffer updates(DType::F32, 4), index(DType::I64, 2), out(DType::F32, axis * 2);
    for (int64_t i = 0; i < 4; ++i) updates.set(i, 1);
    index.set(0, 0);
    index.set(1, -7);
    uint32_t flag = 0;
    scatter(p, nullptr, updates.data(), index.data(), out.data(), &flag, 0, scatter_blocks(p),
            nullptr);
    EXPECT_EQ(flag, 1u);
    EXPECT_TRUE(out.guard_intact());
  }
}

TEST(Cumsum, EveryDtypeDirectionAndLayout) {
  for (const DTypeInfo& d : kDTypes) {
    if (is_bool(d.dtype) || kStored.has(d.dtype)) continue;
    for (int mode = 0; mode < 4; ++mode) {
      for (auto [outer, n, inner] : {std::tuple{3, 17, 1}, {2, 9, 70}, {1, 0, 4}, {4, 1, 3}}) {
        AxisProblem p{.dtype = d.dtype, .outer = outer, .n = n, .inner = inner};
        p.set_dense();
        p.y_inner = n;  // the result transposed
        p.y_n = 1;
        const ScanOptions options{.exclusive = (mode & 1) != 0, .reverse = (mode & 2) != 0};
        TypedBuffer x(d.dtype, static_cast<int64_t>(outer) * n * inner), y(d.dtype, x.size());
        std::mt19937 random(2);
        x.fill_random(random);
        for (int64_t b = axis_blocks(p) - 1; b >= 0; --b)
          cumsum(p, options, x.data(), y.data(), b, b + 1);
        EXPECT_TRUE(y.guard_intact());
        for (int64_t o = 0; o < outer; ++o) {
          for (int64_t c = 0; c < inner; ++c) {
            Value sum = 0;
            for (int64_t step = 0; step < n; ++step) {
              const int64_t i = options.reverse ? n - 1 - step : step;
              const Value before = sum;
              sum += x.get((o * n + i) * inner + c);
              Value want = options.exclusive ? before : sum;
              TypedBuffer one(d.dtype, 1);
              one.set(0, want);
              if (is_int(d.dtype)) want = one.get(0);
              ASSERT_LE(std::abs(y.get((o * inner + c) * n + i) - want),
                        20 * testing::compute_roundoff(d.dtype) +
                            testing::roundoff(d.dtype) * std::abs(want));
            }
          }
        }
      }
    }
  }
}

TEST(Argmax, FirstOfEqualsAndNan) {
  for (const DTypeInfo& d : kDTypes) {
    if (is_complex(d.dtype) || kStored.has(d.dtype)) continue;
    for (bool minimum : {false, true}) {
      for (DType out_dtype : {DType::I64, DType::I32, DType::U8, DType::F32, DType::F16}) {
        AxisProblem p{.dtype = d.dtype, .outer = 3, .n = 13, .inner = 66};
        p.set_dense();
        TypedBuffer x(d.dtype, 3 * 13 * 66), out(out_dtype, 3 * 66);
        std::mt19937 random(4);
        x.fill_random(random);
        for (int64_t b = axis_blocks(p) - 1; b >= 0; --b)
          argmax(p, {minimum, out_dtype}, x.data(), out.data(), b, b + 1);
        EXPECT_TRUE(out.guard_intact());
        for (int64_t o = 0; o < 3; ++o) {
          for (int64_t c = 0; c < 66; ++c) {
            int64_t best = 0;
            for (int64_t i = 1; i < 13; ++i) {
              const double v = x.get((o * 13 + i) * 66 + c).real(),
                           b = x.get((o * 13 + best) * 66 + c).real();
              if (minimum ? v < b : v > b) best = i;
            }
            ASSERT_EQ(out.get(o * 66 + c).real(), best) << d.name;
          }
        }
      }
    }
  }
  for (DType dtype : {DType::F32, DType::F64, DType::F16, DType::BF16}) {
    AxisProblem p{.dtype = dtype, .n = 5};
    p.set_dense();
    TypedBuffer x(dtype, 5), out(DType::I64, 1);
    for (int64_t i = 0; i < 5; ++i) x.set(i, static_cast<double>(i));
    x.set(1, NAN);
    x.set(3, NAN);
    for (bool minimum : {false, true}) {
      argmax(p, {minimum, DType::I64}, x.data(), out.data(), 0, 1);
      EXPECT_EQ(out.get(0).real(), 1);
    }
  }
}

TEST(MachineLimits, ArePositive) {
  for (Isa isa : testing::host_isas())
    EXPECT_GT(measure_fma_peak(1, isa, 0.005), 0.1) << isa_name(isa);
  EXPECT_GT(measure_read_bandwidth(1, size_t{8} << 20), 0.1);
  EXPECT_GT(measure_traffic(1, size_t{1} << 20, size_t{1} << 20), 0);
  EXPECT_GT(measure_traffic(1, size_t{1} << 20, size_t{1} << 10), 0);
}

}  // namespace
}  // namespace rlx::cpu
