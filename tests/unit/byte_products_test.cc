// Products of bytes against loops in 64-bit integers, cut to 32 bits: every instruction set of this machine, sizes on both
// sides of panels, blocks and groups, all kinds of bytes and zero points, the numbers at the ends of their ranges.
#include <gtest/gtest.h>

#include <random>

#include "native_util.h"
#include "rlx/backend/cpu/kernels/matmul/byte_product.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {
namespace {

using testing::Bytes;

constexpr DType kByteTypes[] = {DType::U8, DType::I8};

std::vector<DotIsa> host_dot_isas() {
  std::vector<DotIsa> out;
  for (const DotIsa isa :
       {DotIsa::Baseline, DotIsa::Avx2, DotIsa::Avx512, DotIsa::AvxVnni, DotIsa::Avx512Vnni})
    if (dot_isa_supported(isa)) out.push_back(isa);
  return out;
}

int64_t number(const Bytes& b, int64_t i, DType d) {
  const uint8_t byte = b.data()[i];
  return d == DType::I8 ? static_cast<int8_t>(byte) : byte;
}

enum class Fill { random, lowest, highest, mixed };

Bytes bytes_of(int64_t count, DType d, Fill fill, uint32_t seed) {
  Bytes out(static_cast<size_t>(count));
  std::mt19937 random(seed);
  const uint8_t low = d == DType::I8 ? 0x80 : 0, high = d == DType::I8 ? 0x7f : 0xff;
  for (int64_t i = 0; i < count; ++i)
    out.data()[i] = fill == Fill::lowest    ? low
                    : fill == Fill::highest ? high
                    : fill == Fill::mixed   ? (random() % 2 ? low : high)
                                            : static_cast<uint8_t>(random());
  return out;
}

struct Product {
  ByteProblem p;
  Bytes a, b, a_zero, b_zero;

  Product(ByteProblem problem, Fill fill)
      : p(std::move(problem)),
        a(bytes_of(
            extent(p.product.m, p.product.a_row, p.product.k, p.product.a_col, &MatmulBatch::a),
            p.product.dtype, fill, 1)),
        b(bytes_of(
            extent(p.product.k, p.product.b_row, p.product.n, p.product.b_col, &MatmulBatch::b),
            p.b_dtype, fill, 2)),
        a_zero(bytes_of(p.a_zeros, p.product.dtype, Fill::random, 3)),
        b_zero(bytes_of(p.b_zeros, p.b_dtype, Fill::random, 4)) {}

  int64_t extent(int64_t rows, int64_t row, int64_t cols, int64_t col,
                 int64_t MatmulBatch::* step) const {
    if (rows == 0 || cols == 0) return 0;
    int64_t last = (rows - 1) * row + (cols - 1) * col;
    for (const MatmulBatch& x : p.product.batch) last += (x.size - 1) * (x.*step);
    return last + 1;
  }

  std::vector<int32_t> expected() const {
    const MatmulProblem& q = p.product;
    const MatmulTiles tiles(q, {1, 1});
    std::vector<int32_t> out(static_cast<size_t>(tiles.batches() * q.m * q.n));
    for (int64_t batch = 0; batch < tiles.batches(); ++batch) {
      const auto at = tiles.offsets(batch);
      for (int64_t i = 0; i < q.m; ++i)
        for (int64_t j = 0; j < q.n; ++j) {
          const int64_t za =
              p.a_zeros ? number(a_zero, p.a_zeros == 1 ? 0 : i % p.a_zeros, q.dtype) : 0;
          const int64_t zb = p.b_zeros ? number(b_zero, p.b_zeros == 1 ? 0 : j, p.b_dtype) : 0;
          int64_t sum = 0;
          for (int64_t k = 0; k < q.k; ++k)
            sum += (number(a, at.a + i * q.a_row + k * q.a_col, q.dtype) - za) *
                   (number(b, at.b + k * q.b_row + j * q.b_col, p.b_dtype) - zb);
          out[static_cast<size_t>(at.c + i * q.c_row + j)] = static_cast<int32_t>(sum);
        }
    }
    return out;
  }

  std::vector<int32_t> run(DotIsa isa, bool packed, int threads) const {
    const ByteProduct product(p, isa, packed);
    const MatmulTiles tiles(p.product, {1, 1});
    std::vector<int32_t> out(static_cast<size_t>(tiles.batches() * p.product.m * p.product.n), 77);
    Bytes weights(packed ? product.packed_bytes() : 0);
    if (packed) product.pack_b(b.data(), weights.data());
    EXPECT_TRUE(weights.guard_intact());
    std::vector<Bytes> scratch;
    for (int i = 0; i < threads; ++i) scratch.emplace_back(product.scratch_bytes());
    parallel_for_worker(threads, product.tiles(), [&](int worker, int64_t begin, int64_t end) {
      auto* own = reinterpret_cast<std::byte*>(scratch[static_cast<size_t>(worker)].data());
      for (int64_t t = begin; t < end; ++t)
        product.run_tile(t,
                         {a.data(), packed ? weights.data() : b.data(), a_zero.data(),
                          b_zero.data(), out.data()},
                         own);
    });
    for (const Bytes& s : scratch) EXPECT_TRUE(s.guard_intact());
    return out;
  }

  void check() const {
    const auto want = expected();
    for (const DotIsa isa : host_dot_isas())
      for (const bool packed : {false, true})
        ASSERT_EQ(run(isa, packed, 1), want)
            << dot_isa_name(isa) << (packed ? " packed " : " ") << to_string(p.product.dtype) << " "
            << to_string(p.b_dtype) << " " << p.product.m << "x" << p.product.n << "x"
            << p.product.k << " zeros " << p.a_zeros << ", " << p.b_zeros;
  }
};

ByteProblem dense(int64_t m, int64_t n, int64_t k, DType a, DType b) {
  ByteProblem p{.product = {.dtype = a, .m = m, .n = n, .k = k}, .b_dtype = b};
  p.product.set_dense();
  p.product.out_dtype = DType::I32;
  return p;
}

TEST(ByteProducts, SizesAroundTheBlocks) {
  int turn = 0;
  for (const int64_t m : {1, 3, 13, 14, 15, 16, 17, 63, 129})
    for (const int64_t n : {1, 3, 15, 16, 17, 31, 32, 33, 65, 129})
      for (const int64_t k : {1, 3, 4, 15, 16, 17, 63, 64, 65}) {
        ++turn;
        ByteProblem p = dense(m, n, k, kByteTypes[turn % 2], kByteTypes[turn / 2 % 2]);
        p.a_zeros = turn / 4 % 3 == 2 ? m : turn / 4 % 3;
        p.b_zeros = turn / 12 % 3 == 2 ? n : turn / 12 % 3;
        Product(p, Fill::random).check();
        if (HasFatalFailure()) return;
      }
}

TEST(ByteProducts, DeepSums) {
  for (const DType a : kByteTypes)
    for (const DType b : kByteTypes)
      for (const int64_t k : {1023, 2047, 2048, 2049, 4100}) {
        ByteProblem p = dense(17, 37, k, a, b);
        Product(p, Fill::random).check();
        p.a_zeros = p.b_zeros = 1;
        Product(p, Fill::random).check();
        if (HasFatalFailure()) return;
      }
}

// 4 * 255 * 127 is more than 16 bits hold.
TEST(ByteProducts, NumbersAtTheEnds) {
  for (const DType a : kByteTypes)
    for (const DType b : kByteTypes)
      for (const Fill fill : {Fill::lowest, Fill::highest, Fill::mixed})
        for (const int64_t zeros : {0, 1}) {
          ByteProblem p = dense(15, 33, 130, a, b);
          p.a_zeros = p.b_zeros = zeros;
          Product(p, fill).check();
          if (HasFatalFailure()) return;
        }
}

TEST(ByteProducts, LayoutsAndBatches) {
  for (int turned = 0; turned < 4; ++turned)
    for (const DType a : kByteTypes) {
      ByteProblem p = dense(19, 35, 26, a, DType::I8);
      MatmulProblem& q = p.product;
      if (turned & 1) q.a_row = 1, q.a_col = q.m;
      if (turned & 2) q.b_row = 1, q.b_col = q.k;
      p.a_zeros = 19, p.b_zeros = 35;
      Product(p, Fill::random).check();
      q.batch = {{2, q.m * q.k, 0, 3 * q.m * q.n}, {3, 0, q.k * q.n, q.m * q.n}};
      Product(p, Fill::random).check();
      if (HasFatalFailure()) return;
    }
  for (const int64_t k : {3, 4, 1023, 1024, 1025, 2100}) {  // lines of B in parts
    ByteProblem p = dense(3, 34, k, DType::I8, DType::I8);
    p.product.b_row = 1, p.product.b_col = k;
    p.a_zeros = p.b_zeros = 1;
    Product(p, Fill::random).check();
    if (HasFatalFailure()) return;
  }
  ByteProblem rows = dense(12, 35, 26, DType::U8, DType::I8);  // three batches of four rows
  rows.a_zeros = 4;
  Product(rows, Fill::random).check();
}

TEST(ByteProducts, EmptySizes) {
  for (const auto& [m, n, k] : {std::tuple{0, 5, 3}, {5, 0, 3}, {5, 3, 0}, {0, 0, 0}}) {
    ByteProblem p = dense(m, n, k, DType::U8, DType::I8);
    Product(p, Fill::random).check();
    p.a_zeros = p.b_zeros = 1;
    Product(p, Fill::random).check();
  }
}

// Many tiles of both kinds: cut over rows, and over columns.
TEST(ByteProducts, AnyNumberOfThreads) {
  for (const auto& [m, n, k] : {std::tuple{1030, 70, 40}, {130, 700, 300}, {1, 900, 513}}) {
    ByteProblem p = dense(m, n, k, DType::I8, DType::I8);
    p.a_zeros = m, p.b_zeros = n;
    const Product product(p, Fill::random);
    const auto want = product.expected();
    for (const bool packed : {false, true})
      for (const int threads : {1, 2, 3, 7})
        EXPECT_EQ(product.run(dot_isa(host_isa()), packed, threads), want) << threads;
  }
}

}  // namespace
}  // namespace rlx::cpu
