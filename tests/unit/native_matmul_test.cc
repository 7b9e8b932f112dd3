// Matrix-product plans against three loops, in double (integers: exact, cut to the dtype).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "native_util.h"
#include "rlx/backend/cpu/kernels/matmul/matmul.h"
#include "rlx/base/error.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {
namespace {

using testing::Bytes;
using testing::TypedBuffer;
using testing::Value;

// Elements that strided indices reach.
int64_t extent(std::initializer_list<std::pair<int64_t, int64_t>> dims) {
  int64_t last = 0;
  for (auto [size, stride] : dims) {
    if (size == 0) return 0;
    last += (size - 1) * stride;
  }
  return last + 1;
}

class Case {
 public:
  explicit Case(const MatmulProblem& problem)
      : p(problem), a(p.dtype, size_a()), b(p.dtype, size_b()) {
    std::mt19937 random(11);
    a.fill_random(random);
    b.fill_random(random);
  }
  TypedBuffer fresh_c() const {
    int64_t last = extent({{p.m, p.c_row}, {p.n, p.c_col}});
    for (const MatmulBatch& x : p.batch)
      last = last == 0 || x.size == 0 ? 0 : last + (x.size - 1) * x.c;
    TypedBuffer c(p.out_dtype, last);
    std::mt19937 random(13);
    c.fill_random(random);
    return c;
  }

  MatmulProblem p;
  TypedBuffer a, b;

 private:
  int64_t size_a() const {
    int64_t last = extent({{p.m, p.a_row}, {p.k, p.a_col}});
    for (const MatmulBatch& x : p.batch)
      last = last == 0 || x.size == 0 ? 0 : last + (x.size - 1) * x.a;
    return last;
  }
  int64_t size_b() const {
    int64_t last = extent({{p.k, p.b_row}, {p.n, p.b_col}});
    for (const MatmulBatch& x : p.batch)
      last = last == 0 || x.size == 0 ? 0 : last + (x.size - 1) * x.b;
    return last;
  }
};

enum class Path { Plain, Reversed, Packed };

TypedBuffer run(const Case& c, Isa isa, Path path = Path::Plain) {
  TypedBuffer out = c.fresh_c();
  const auto plan = MatmulPlan::make(c.p, isa);
  Bytes scratch(plan->scratch_bytes());
  Bytes packed(path == Path::Packed ? plan->packed_b_bytes() : 0);
  if (path == Path::Packed) plan->pack_b(c.b.data(), packed.data());
  for (int64_t i = 0; i < plan->tiles(); ++i) {
    const int64_t t = path == Path::Reversed ? plan->tiles() - 1 - i : i;
    if (path == Path::Packed) {
      plan->run_tile_packed(t, c.a.data(), packed.data(), out.data(), scratch.data());
    } else {
      plan->run_tile(t, c.a.data(), c.b.data(), out.data(), scratch.data());
    }
  }
  EXPECT_TRUE(scratch.guard_intact()) << "scratch overrun";
  EXPECT_TRUE(packed.guard_intact()) << "packed overrun";
  EXPECT_TRUE(out.guard_intact()) << "output overrun";
  return out;
}

// The value that an exact sum takes in the output dtype.
Value cut(Value v, DType dtype) {
  if (!is_int(dtype)) return is_bool(dtype) ? Value(v.real() != 0) : v;
  TypedBuffer one(dtype, 1);
  one.set(0, v);
  return one.get(0);
}

void expect_matches(const Case& c, const TypedBuffer& got) {
  const MatmulProblem& p = c.p;
  const TypedBuffer before = c.fresh_c();
  const double depth = 2 * static_cast<double>(p.k) + 4;
  const double bound = depth * testing::compute_roundoff(p.dtype) * (is_complex(p.dtype) ? 4 : 1);
  int64_t batches = 1;
  for (const MatmulBatch& x : p.batch) batches *= x.size;
  for (int64_t batch = 0; batch < batches; ++batch) {
    int64_t at_a = 0, at_b = 0, at_c = 0, rest = batch;
    for (auto x = p.batch.rbegin(); x != p.batch.rend(); ++x) {
      at_a += rest % x->size * x->a;
      at_b += rest % x->size * x->b;
      at_c += rest % x->size * x->c;
      rest /= x->size;
    }
    for (int64_t m = 0; m < p.m; ++m) {
      for (int64_t n = 0; n < p.n; ++n) {
        const int64_t at = at_c + m * p.c_row + n * p.c_col;
        Value sum = p.accumulate ? before.get(at) : 0;
        for (int64_t k = 0; k < p.k; ++k) {
          sum +=
              c.a.get(at_a + m * p.a_row + k * p.a_col) * c.b.get(at_b + k * p.b_row + n * p.b_col);
        }
        const double error = std::abs(got.get(at) - cut(sum, p.out_dtype));
        ASSERT_LE(error, bound + testing::roundoff(p.out_dtype) * std::abs(sum))
            << "m " << m << " n " << n;
      }
    }
  }
}

std::string describe(const MatmulProblem& p, Isa isa) {
  return std::string(isa_name(isa)) + " " + std::string(to_string(p.dtype)) + " -> " +
         std::string(to_string(p.out_dtype)) + " m" + std::to_string(p.m) + " n" +
         std::to_string(p.n) + " k" + std::to_string(p.k) + " strides " + std::to_string(p.a_row) +
         "," + std::to_string(p.a_col) + " " + std::to_string(p.b_row) + "," +
         std::to_string(p.b_col) + " " + std::to_string(p.c_row) + "," + std::to_string(p.c_col) +
         (p.accumulate ? " accumulate" : "");
}

void check_problem(const MatmulProblem& p) {
  const Case c(p);
  for (Isa isa : testing::host_isas()) {
    SCOPED_TRACE(describe(p, isa));
    const TypedBuffer plain = run(c, isa);
    expect_matches(c, plain);
    EXPECT_TRUE(plain.same_bits(run(c, isa, Path::Reversed)));
    expect_matches(c, run(c, isa, Path::Packed));
  }
}

MatmulProblem dense(int64_t m, int64_t n, int64_t k, DType dtype = DType::F32) {
  MatmulProblem p{.dtype = dtype, .m = m, .n = n, .k = k};
  p.set_dense();
  return p;
}

// Transposed operands (bits: A, B, C), rows padded by `pad`.
MatmulProblem layout(MatmulProblem p, int transposed, int64_t pad) {
  const auto set = [&](bool flip, int64_t rows, int64_t cols, int64_t& row, int64_t& col) {
    row = flip ? 1 : cols + pad;
    col = flip ? rows + pad : 1;
  };
  set(transposed & 1, p.m, p.k, p.a_row, p.a_col);
  set(transposed & 2, p.k, p.n, p.b_row, p.b_col);
  set(transposed & 4, p.m, p.n, p.c_row, p.c_col);
  return p;
}

TEST(NativeMatmul, SizesAroundTheBlocks) {
  for (int64_t m : {1, 2, 8, 9, 14, 15, 29, 130}) {
    for (int64_t n : {1, 7, 16, 31, 32, 33, 65}) {
      for (int64_t k : {1, 5, 16, 33, 330}) check_problem(dense(m, n, k));
    }
  }
}

// Packed panels read several at a time, in halves of the rows, and the panels that are left over.
TEST(NativeMatmul, FewRows) {
  for (int64_t m = 1; m <= 16; ++m)
    for (int64_t n : {64, 127, 128, 129, 300})
      for (int64_t k : {7, 330, 700}) {
        MatmulProblem p = dense(m, n, k);
        check_problem(p);
        p.accumulate = true;
        p.dtype = p.out_dtype = m % 2 == 0 ? DType::F32 : DType::F64;
        check_problem(p);
      }
  check_problem(dense(3, 140, 5300));  // in runs
}

TEST(NativeMatmul, EveryLayout) {
  for (int transposed = 0; transposed < 8; ++transposed) {
    for (int64_t pad : {0, 3}) {
      for (auto [m, n, k] :
           {std::tuple{40, 70, 50}, {1, 70, 50}, {70, 1, 50}, {5, 40, 321}, {33, 32, 1}}) {
        MatmulProblem p = layout(dense(m, n, k), transposed, pad);
        check_problem(p);
        p.accumulate = true;
        check_problem(p);
      }
    }
  }
}

TEST(NativeMatmul, EveryDtype) {
  for (const DTypeInfo& d : kDTypes) {
    if (kStored.has(d.dtype)) continue;
    for (int transposed = 0; transposed < 8; ++transposed) {
      MatmulProblem p = layout(dense(35, 41, 37, d.dtype), transposed, 2);
      check_problem(p);
      p.accumulate = true;
      check_problem(p);
    }
    check_problem(dense(3, 70, 700, d.dtype));
    check_problem(dense(1, 33, 50, d.dtype));
  }
}

TEST(NativeMatmul, WiderOutputs) {
  for (auto [in, out] : {std::pair{DType::F16, DType::F32},
                         {DType::BF16, DType::F32},
                         {DType::I8, DType::I32},
                         {DType::U8, DType::I32},
                         {DType::I16, DType::I32}}) {
    for (int transposed : {0, 1, 2, 4}) {
      MatmulProblem p = layout(dense(30, 45, 340, in), transposed, 1);
      p.out_dtype = out;
      check_problem(p);
      p.accumulate = true;
      check_problem(p);
    }
  }
}

TEST(NativeMatmul, DimsOfSizeOneTakeAnyStride) {
  MatmulProblem p = dense(1, 40, 50);
  p.a_col = 3;
  check_problem(p);
  p = dense(20, 1, 50);
  p.b_row = 3;
  p.c_row = 2;
  check_problem(p);
  p = dense(20, 30, 1);
  p.a_row = 7;
  p.b_col = 2;
  check_problem(p);
}

TEST(NativeMatmul, NarrowIntegersWrap) {
  MatmulProblem p = dense(2, 3, 300, DType::I8);
  Case c(p);
  for (int64_t i = 0; i < c.a.size(); ++i) c.a.set(i, 7);
  for (int64_t i = 0; i < c.b.size(); ++i) c.b.set(i, -5);
  for (Isa isa : testing::host_isas()) expect_matches(c, run(c, isa));
}

TEST(NativeMatmul, EmptyDims) {
  for (auto [m, n, k] : {std::tuple{0, 4, 5}, {4, 0, 5}, {4, 5, 0}, {0, 0, 0}}) {
    MatmulProblem p = dense(m, n, k);
    check_problem(p);
    p.accumulate = true;
    check_problem(p);
    check_problem(dense(m, n, k, DType::BF16));
    check_problem(dense(m, n, k, DType::C64));
  }
}

TEST(NativeMatmul, BatchesAndBroadcast) {
  MatmulProblem p = dense(20, 36, 17);
  p.batch = {{.size = 2, .a = 3 * 20 * 17, .b = 0, .c = 3 * 20 * 36},
             {.size = 3, .a = 20 * 17, .b = 17 * 36, .c = 20 * 36}};
  check_problem(p);
  p.batch = {{.size = 4, .a = 0, .b = 17 * 36, .c = 20 * 36}};
  check_problem(p);
  p.batch = {{.size = 5, .a = 20 * 17, .b = 0, .c = 20 * 36}};
  check_problem(p);
  p.batch = {{.size = 0, .a = 20 * 17, .b = 0, .c = 20 * 36}};
  check_problem(p);
}

TEST(NativeMatmul, ManyTiles) {
  check_problem(dense(300, 200, 130));                // several row tiles
  check_problem(layout(dense(128, 96, 1500), 1, 0));  // a weight gradient
  check_problem(dense(5, 2500, 40));                  // several column tiles
}

TEST(NativeMatmul, TilesCoverEachElementOnce) {
  for (auto [m, n, k] :
       {std::tuple{2048, 512, 128}, {128, 512, 2048}, {1, 50000, 64}, {3000, 17, 9}, {7, 1, 1}}) {
    const auto plan = MatmulPlan::make(dense(m, n, k));
    int64_t area = 0;
    for (int64_t i = 0; i < plan->tiles(); ++i) {
      const MatmulTile t = plan->tile(i);
      EXPECT_LT(t.m_begin, t.m_end);
      EXPECT_LT(t.n_begin, t.n_end);
      EXPECT_LE(t.m_end, m);
      EXPECT_LE(t.n_end, n);
      EXPECT_EQ(plan->c_offset(i), t.m_begin * n + t.n_begin);
      area += (t.m_end - t.m_begin) * (t.n_end - t.n_begin);
    }
    EXPECT_EQ(area, static_cast<int64_t>(m) * n);
  }
}

TEST(NativeMatmul, LargeProductsHaveWorkForEightThreads) {
  for (auto [m, n, k] :
       {std::tuple{2048, 512, 128}, {128, 512, 2048}, {128, 128, 2048}, {1, 4096, 4096}}) {
    EXPECT_GE(MatmulPlan::make(dense(m, n, k))->tiles(), 8) << m << " " << n << " " << k;
  }
  EXPECT_TRUE(MatmulPlan::make(dense(2048, 512, 128))->full_rows());
}

TEST(NativeMatmul, ATileMayLandInAPrivateBuffer) {
  const Case c(dense(300, 64, 32));
  const TypedBuffer want = run(c, host_isa());
  const auto plan = MatmulPlan::make(c.p);
  Bytes scratch(plan->scratch_bytes());
  for (int64_t i = 0; i < plan->tiles(); ++i) {
    const MatmulTile t = plan->tile(i);
    const int64_t count = (t.m_end - t.m_begin) * 64;
    TypedBuffer mine(DType::F32, count);
    plan->run_tile(i, c.a.data(), c.b.data(), static_cast<float*>(mine.data()) - plan->c_offset(i),
                   scratch.data());
    EXPECT_TRUE(mine.guard_intact());
    for (int64_t x = 0; x < count; ++x) ASSERT_EQ(mine.get(x), want.get(t.m_begin * 64 + x));
  }
}

TEST(NativeMatmul, SameBitsOnAnyThreads) {
  const Case c(layout(dense(500, 130, 300), 2, 1));
  for (Isa isa : testing::host_isas()) {
    const TypedBuffer want = run(c, isa);
    const auto plan = MatmulPlan::make(c.p, isa);
    for (int threads : {2, 3, 5}) {
      TypedBuffer out = c.fresh_c();
      std::vector<Bytes> scratch;
      for (int i = 0; i < threads; ++i) scratch.emplace_back(plan->scratch_bytes());
      parallel_for_worker(threads, plan->tiles(), [&](int worker, int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          plan->run_tile(t, c.a.data(), c.b.data(), out.data(),
                         scratch[static_cast<size_t>(worker)].data());
        }
      });
      EXPECT_TRUE(out.same_bits(want));
    }
  }
}

int threads_of_this_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

TEST(NativeMatmul, ATileStartsNoThread) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    const Case c(dense(256, 512, 256, dtype));
    const int before = threads_of_this_process();
    run(c, host_isa());
    run(c, host_isa(), Path::Packed);
    EXPECT_EQ(threads_of_this_process(), before) << to_string(dtype);
  }
}

TEST(NativeMatmul, Bf16TilesOfEverySize) {
  for (bool accumulate : {false, true}) {
    for (auto [m, n, k] :
         {std::tuple{150, 70, 20}, {5, 1100, 9}, {1, 1, 1}, {1, 70, 5}, {70, 1, 5}}) {
      for (int transposed : {0, 1, 2, 3}) {
        MatmulProblem p = layout(dense(m, n, k, DType::BF16), transposed, 1);
        p.accumulate = accumulate;
        check_problem(p);
        p.out_dtype = DType::F32;
        check_problem(p);
      }
    }
  }
}

// An infinity times numbers that are not zero is an infinity, in its row (of A) or column (of B) alone.
TEST(NativeMatmul, InfinitiesStayInTheirPlace) {
  for (DType dtype : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (auto [m, n, k] : {std::tuple{3, 4, 3}, {1, 17, 5}, {17, 1, 2}, {150, 40, 9}})
      for (int transposed : {0, 1, 2, 3})
        for (int64_t pad : {0, 3})
          for (bool in_b : {false, true}) {
            const MatmulProblem p = layout(dense(m, n, k, dtype), transposed, pad);
            Case c(p);
            for (TypedBuffer* x : {&c.a, &c.b})
              for (int64_t i = 0; i < x->size(); ++i) x->set(i, 1);
            if (in_b)
              c.b.set((p.k - 1) * p.b_row + p.n / 2 * p.b_col, INFINITY);
            else
              c.a.set(p.m / 2 * p.a_row + (p.k - 1) * p.a_col, INFINITY);
            for (Isa isa : testing::host_isas())
              for (Path path : {Path::Plain, Path::Packed}) {
                const TypedBuffer got = run(c, isa, path);
                for (int64_t i = 0; i < p.m * p.n; ++i) {
                  const bool hit = in_b ? i % p.n == p.n / 2 : i / p.n == p.m / 2;
                  ASSERT_EQ(got.get(i / p.n * p.c_row + i % p.n * p.c_col).real(),
                            hit ? INFINITY : static_cast<double>(p.k))
                      << describe(p, isa) << " element " << i;
                }
              }
          }
}

// A reversed operand is a view with a negative stride whose first element lies at the end.
TEST(NativeMatmul, NegativeStrides) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    MatmulProblem p = dense(40, 70, 20, dtype);
    const Case c(p);
    TypedBuffer reversed(dtype, p.m * p.k);
    for (int64_t i = 0; i < p.m * p.k; ++i)
      reversed.set((p.m - 1 - i / p.k) * p.k + i % p.k, c.a.get(i));
    p.a_row = -p.k;
    for (Isa isa : testing::host_isas()) {
      TypedBuffer out = c.fresh_c();
      const auto plan = MatmulPlan::make(p, isa);
      Bytes scratch(plan->scratch_bytes());
      const auto* last = static_cast<const std::byte*>(std::as_const(reversed).data()) +
                         (p.m - 1) * p.k * size_of(dtype);
      for (int64_t t = 0; t < plan->tiles(); ++t)
        plan->run_tile(t, last, c.b.data(), out.data(), scratch.data());
      expect_matches(c, out);
    }
  }
}

TEST(NativeMatmul, PlansLiveAsLongAsTheirUsers) {
  std::weak_ptr<const MatmulPlan> first = MatmulPlan::make(dense(63, 62, 61));
  EXPECT_TRUE(first.expired());
}

TEST(NativeMatmul, PlansAreShared) {
  EXPECT_EQ(MatmulPlan::make(dense(64, 64, 64)), MatmulPlan::make(dense(64, 64, 64)));
  EXPECT_NE(MatmulPlan::make(dense(64, 64, 64)), MatmulPlan::make(dense(64, 64, 65)));
}

void expect_error(const MatmulProblem& p, const std::string& code) {
  try {
    MatmulPlan::make(p);
    ADD_FAILURE() << "no error " << code;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code);
    EXPECT_EQ(e.kind(), ErrorKind::user);
  }
}

TEST(NativeMatmul, RejectsWhatItCannotDo) {
  MatmulProblem p = dense(4, 5, 6);
  p.a_row = 12;
  p.a_col = 2;
  expect_error(p, "matmul-strides");
  p = dense(4, 5, 6);
  p.out_dtype = DType::F16;
  expect_error(p, "matmul-dtype");
  p = dense(4, 5, 6);
  p.k = -1;
  expect_error(p, "matmul-dims");
}

}  // namespace
}  // namespace rlx::cpu
