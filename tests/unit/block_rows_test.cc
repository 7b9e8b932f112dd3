// Products of rows with weights in ggml's blocks against loops in double over what quant/format.h decodes: every
// instruction set of this machine, every format with a kernel of its own, x as it is and rounded to 8 bits.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "native_util.h"
#include "rlx/backend/cpu/kernels/matmul/dequant.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {
namespace {

using testing::Bytes;

constexpr const char* kSchemes[] = {"gguf_q8_0", "gguf_q4_0", "gguf_q4k",
                                    "gguf_q5k",  "gguf_q6k",  "gguf_iq4_xs"};

std::vector<DotIsa> row_isas() {
  std::vector<DotIsa> out;
  for (const DotIsa isa :
       {DotIsa::Baseline, DotIsa::Avx2, DotIsa::Avx512, DotIsa::AvxVnni, DotIsa::Avx512Vnni})
    if (dot_isa_supported(isa)) out.push_back(isa);
  return out;
}

// Random bytes with scales of moderate size: all codes there are, also those that no encoder makes.
std::vector<uint8_t> random_blocks(const FormatInfo& f, int64_t count, std::mt19937& random) {
  std::vector<uint8_t> out(static_cast<size_t>(count * f.block_bytes));
  for (uint8_t& b : out) b = static_cast<uint8_t>(random());
  const bool two = f.format == QuantFormat::q4_k || f.format == QuantFormat::q5_k;
  for (int64_t i = 0; i < count; ++i)
    for (int s = 0; s <= two; ++s) {
      uint8_t* at = out.data() + i * f.block_bytes + (f.format == QuantFormat::q6_k ? 208 : 2 * s);
      const uint16_t half = float_to_f16(0.001f + 0.01f * static_cast<float>(random() % 100));
      at[0] = static_cast<uint8_t>(half), at[1] = static_cast<uint8_t>(half >> 8);
    }
  return out;
}

struct Rows {
  QuantScheme scheme;
  int64_t m, n, k;
  std::vector<uint8_t> w;
  std::vector<float> numbers, x;

  Rows(const char* name, int64_t m_, int64_t n_, int64_t k_)
      : scheme(parse_scheme(name)), m(m_), n(n_), k(k_) {
    std::mt19937 random(static_cast<uint32_t>(1000 * m + 10 * n + k));
    w = random_blocks(scheme.info(), n * k / scheme.info().block_elements, random);
    numbers.resize(static_cast<size_t>(n * k));
    decode_blocks(scheme.info(), w.data(), n * k, numbers.data());
    std::uniform_real_distribution<float> real(-2, 2);
    for (int64_t i = 0; i < m * k; ++i) x.push_back(real(random));
  }

  // x in blocks of 32, each rounded to 8 bits by the plain formula.
  std::vector<double> rounded() const {
    std::vector<double> out;
    for (size_t b = 0; b < x.size(); b += 32) {
      float most = 0;
      for (size_t i = b; i < b + 32; ++i) most = std::max(most, std::fabs(x[i]));
      const float scale = std::max(std::max(most, static_cast<float>(127e-12)) / 127, 1e-12f);
      for (size_t i = b; i < b + 32; ++i) {
        const double q = std::round(x[i] / scale);  // halves away from 0
        out.push_back(std::clamp(q, -127.0, 127.0) * scale);
      }
    }
    return out;
  }

  void check(const std::vector<float>& y, std::span<const double> left, double units,
             const std::string& what) const {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double term = left[static_cast<size_t>(i * k + p)] *
                              static_cast<double>(numbers[static_cast<size_t>(j * k + p)]);
          sum += term, size += std::fabs(term);
        }
        ASSERT_NEAR(y[static_cast<size_t>(i * n + j)], sum, units * 0x1p-24 * size)
            << what << " " << scheme.to_string() << " " << m << "x" << n << "x" << k << " at " << i
            << ", " << j;
      }
  }

  std::vector<float> exact(DotIsa isa) const {
    std::vector<float> y(static_cast<size_t>(m * n), NAN);
    block_row_fns(*row_format(scheme.format), isa)
        .exact({.m = m,
                .n = n,
                .k = k,
                .x = x.data(),
                .x_row = k,
                .rounded = {},
                .w = w.data(),
                .y = y.data(),
                .y_row = n});
    return y;
  }
  std::vector<float> in_integers(DotIsa isa) const {
    std::vector<float> y(static_cast<size_t>(m * n), NAN);
    const auto blocks = static_cast<size_t>(m * k / kXBlock);
    std::vector<float> scale(blocks), sum(blocks);
    Bytes code(static_cast<size_t>(m * k));
    const BlockX to{reinterpret_cast<int8_t*>(code.data()), scale.data(), sum.data()};
    const BlockRowFns f = block_row_fns(*row_format(scheme.format), isa);
    f.round(x.data(), k, m, k, to);
    EXPECT_TRUE(code.guard_intact());
    f.rounded({.m = m,
               .n = n,
               .k = k,
               .x = nullptr,
               .x_row = 0,
               .rounded = to,
               .w = w.data(),
               .y = y.data(),
               .y_row = n});
    return y;
  }

  void check_all() const {
    const std::vector<double> plain(x.begin(), x.end()), left = rounded();
    for (const DotIsa isa : row_isas()) {
      const std::string name(dot_isa_name(isa));
      check(exact(isa), plain, 40, name + " exact");
      // Minima are multiplied apart from the codes.
      check(in_integers(isa), left, 100, name + " rounded");
      std::vector<float> all(numbers.size());
      block_row_fns(*row_format(scheme.format), isa).unpack(w.data(), n, k, all.data());
      for (size_t i = 0; i < all.size(); ++i)
        ASSERT_NEAR(all[i], numbers[i], 1e-6 * std::max(1.0f, std::fabs(numbers[i])))
            << name << " " << scheme.to_string() << " " << i;
    }
  }
};

TEST(BlockRows, SizesAroundTheBlocks) {
  for (const char* name : kSchemes) {
    const bool small = parse_scheme(name).info().block_elements == 32;
    for (const int64_t m : {1, 3, 4, 5})
      for (const int64_t n : {1, 7, 17})
        for (const int64_t k : {small ? 32 : 256, small ? 96 : 512, small ? 288 : 768}) {
          Rows(name, m, n, k).check_all();
          if (HasFatalFailure()) return;
        }
  }
}

TEST(BlockRows, DeepSums) {
  for (const char* name : kSchemes) Rows(name, 1, 2, 256 * 90).check_all();
}

// -128 times 127, pairs of which are more than 16 bits hold.
TEST(BlockRows, CodesAtTheEnds) {
  for (const uint8_t byte : {0x80, 0x7f, 0xff, 0x00}) {
    Rows r("gguf_q8_0", 2, 3, 64);
    for (size_t b = 0; b < r.w.size(); b += 34)
      std::fill_n(r.w.begin() + static_cast<long>(b) + 2, 32, byte);
    decode_blocks(r.scheme.info(), r.w.data(), r.n * r.k, r.numbers.data());
    for (size_t i = 0; i < r.x.size(); ++i) r.x[i] = i < 64 ? -2.0f : 2.0f;
    r.check_all();
  }
}

TEST(BlockRows, NaNAndInfinityMakeTheirRowNaN) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Rows r("gguf_q4k", 2, 3, 256);
    r.x[300] = bad;
    for (const DotIsa isa : row_isas()) {
      const std::vector<float> y = r.in_integers(isa);
      for (int j = 0; j < 3; ++j) {
        EXPECT_TRUE(std::isfinite(y[static_cast<size_t>(j)]));
        EXPECT_TRUE(std::isnan(y[static_cast<size_t>(3 + j)]));
      }
    }
  }
}

TEST(BlockRows, BlocksOfZerosAndTinyNumbers) {
  for (const char* name : kSchemes) {
    Rows r(name, 1, 3, 512);
    std::fill(r.x.begin(), r.x.begin() + 64, 0.0f);
    for (size_t i = 64; i < 128; ++i) r.x[i] *= 1e-20f;
    r.check_all();
  }
}

// The whole kernel: cut into blocks, few rows and many, weights in panels, on any number of threads.
struct Way {
  int64_t m;
  bool rounded, packed;
};

std::vector<float> whole_product(const Rows& r, Isa isa, const Way& way, int threads) {
  const DequantProblem p{.m = r.m, .k = r.k, .n = r.n, .scheme = r.scheme, .rounded = way.rounded};
  const DequantProduct product(p, isa, way.packed);
  Bytes packed(way.packed ? static_cast<size_t>(product.packed_bytes()) : 0);
  if (way.packed) product.pack_w(r.w.data(), packed.data());
  EXPECT_TRUE(packed.guard_intact());
  const void* const w = way.packed ? static_cast<const void*>(packed.data()) : r.w.data();
  Bytes y(static_cast<size_t>(4 * r.m * r.n));
  std::vector<Bytes> scratch;
  for (int i = 0; i < threads; ++i) scratch.emplace_back(product.scratch_bytes());
  parallel_for_worker(threads, product.blocks(), [&](int worker, int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      product.run({r.x.data(), w, nullptr, nullptr}, reinterpret_cast<float*>(y.data()), b, b + 1,
                  reinterpret_cast<std::byte*>(scratch[static_cast<size_t>(worker)].data()));
  });
  for (const Bytes& s : scratch) EXPECT_TRUE(s.guard_intact());
  EXPECT_TRUE(y.guard_intact());
  std::vector<float> out(static_cast<size_t>(r.m * r.n));
  std::memcpy(out.data(), y.data(), y.size());
  return out;
}

bool has_panels(const Rows& r, Isa isa) {
  return DequantProduct({.m = 9, .k = r.k, .n = r.n, .scheme = r.scheme, .rounded = true}, isa)
      .takes_panels();
}

TEST(BlockRows, AnyNumberOfThreads) {
  for (const char* name : kSchemes)
    for (const Way& way : {Way{1, false, false}, Way{9, false, false}, Way{1, true, false},
                           Way{9, true, false}, Way{131, true, true}}) {
      const Rows r(name, way.m, 203, 512);
      if (way.packed && !has_panels(r, host_isa())) continue;
      const std::vector<float> first = whole_product(r, host_isa(), way, 1);
      for (const int threads : {2, 3, 7}) {
        const std::vector<float> y = whole_product(r, host_isa(), way, threads);
        EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * 4), 0) << name << " " << threads;
      }
      const std::vector<double> left =
          way.rounded ? r.rounded() : std::vector<double>(r.x.begin(), r.x.end());
      r.check(first, left, 100, way.rounded ? "rounded" : "exact");
    }
}

TEST(BlockRows, Panels) {
  for (const char* name : kSchemes) {
    const bool small = parse_scheme(name).info().block_elements == 32;
    for (const int64_t m : {5, 6, 7, 13})
      for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 65})
        for (const int64_t k : {small ? 32 : 256, small ? 288 : 512}) {
          const Rows r(name, m, n, k);
          for (const Isa isa : testing::host_isas())
            if (has_panels(r, isa))
              r.check(whole_product(r, isa, {m, true, true}, 1), r.rounded(), 100,
                      std::string(isa_name(isa)) + " panels");
          if (HasFatalFailure()) return;
        }
    const Rows deep(name, 5, 3, 256 * 45);
    if (has_panels(deep, host_isa()))
      deep.check(whole_product(deep, host_isa(), {5, true, true}, 1), deep.rounded(), 100, "deep");
  }
}

}  // namespace
}  // namespace rlx::cpu
