// Attention kernels against the definition, in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "../support/worse.h"
#include "native_util.h"
#include "rlx/backend/cpu/kernels/attention/attention.h"
#include "rlx/backend/cpu/kernels/attention/attention_scores.h"
#include "rlx/backend/cpu/kernels/simd_math.h"
#include "rlx/base/error.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {
namespace {

using testing::Bytes;
using testing::TypedBuffer;

// The forward and backward of one problem, straight from the formulas.
struct Reference {
  std::vector<double> out, lse, dq, dk, dv, dbias;
};

class Case {
 public:
  explicit Case(const AttentionProblem& problem)
      : p(problem),
        q(p.dtype, extent(p.q, p.q_len, p.heads)),
        k(p.dtype, extent(p.k, p.kv_len, p.kv_heads)),
        v(p.dtype, extent(p.v, p.kv_len, p.kv_heads)),
        dout(p.dtype, extent(p.dout, p.q_len, p.heads)),
        bias(p.dtype, p.has_bias ? p.heads * p.q_len * p.kv_len : 0),
        sinks(p.dtype, p.has_sinks ? p.heads : 0),
        mask(static_cast<size_t>(p.has_mask ? p.batch * p.q_len * p.kv_len : 0)) {
    std::mt19937 random(7);
    for (TypedBuffer* b : {&q, &k, &v, &dout, &bias, &sinks}) b->fill_random(random);
    // Every seventh query sees no key, the others most of them.
    for (size_t i = 0; i < mask.size(); ++i)
      mask[i] = static_cast<int64_t>(i) / p.kv_len % 7 != 3 && random() % 5 != 0;
    p.mask_at = {p.q_len * p.kv_len, p.kv_len, 0};  // [batch, q_len, kv_len]
    p.bias_at = {0, p.kv_len, p.q_len * p.kv_len};  // [heads, q_len, kv_len]
  }

  bool hidden(int64_t b, int64_t i, int64_t j) const {
    const int64_t a = i + std::max<int64_t>(p.kv_len - p.q_len, 0);
    if (p.mask != AttentionMask::None && j > a) return true;
    if (p.mask == AttentionMask::Window && j < a - p.window) return true;
    return p.has_mask && !mask[static_cast<size_t>((b * p.q_len + i) * p.kv_len + j)];
  }

  int64_t extent(const AttentionStrides& s, int64_t len, int64_t heads) const {
    if (p.batch * len * heads * p.head_dim == 0) return 0;
    return (p.batch - 1) * s.batch + (len - 1) * s.seq + (heads - 1) * s.head + p.head_dim;
  }
  DType lse_dtype() const { return p.dtype == DType::F64 ? DType::F64 : DType::F32; }

  AttentionProblem p;
  TypedBuffer q, k, v, dout, bias, sinks;
  std::vector<uint8_t> mask;
};

size_t at(const AttentionStrides& s, int64_t b, int64_t i, int64_t h) {
  return static_cast<size_t>(b * s.batch + i * s.seq + h * s.head);
}

Reference evaluate(const Case& c) {
  const AttentionProblem& p = c.p;
  const int64_t D = p.head_dim;
  Reference r;
  r.dbias.resize(static_cast<size_t>(p.batch * p.heads * p.q_len * p.kv_len));
  r.out.resize(static_cast<size_t>(c.extent(p.out, p.q_len, p.heads)));
  r.dq.resize(static_cast<size_t>(c.extent(p.dq, p.q_len, p.heads)));
  r.dk.resize(static_cast<size_t>(c.extent(p.dk, p.kv_len, p.kv_heads)));
  r.dv.resize(static_cast<size_t>(c.extent(p.dv, p.kv_len, p.kv_heads)));
  r.lse.resize(static_cast<size_t>(p.batch * p.heads * p.q_len), -INFINITY);
  for (size_t i = 0; p.has_sinks && p.kv_len == 0 && i < r.lse.size(); ++i)
    r.lse[i] = c.sinks.get(static_cast<int64_t>(i) / p.q_len % p.heads).real();
  if (p.kv_len == 0) return r;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t g = h / (p.heads / p.kv_heads);
      for (int64_t i = 0; i < p.q_len; ++i) {
        const size_t qi = at(p.q, b, i, h);
        std::vector<double> s(static_cast<size_t>(p.kv_len)), dp(s.size()), slope(s.size(), 1);
        for (int64_t j = 0; j < p.kv_len; ++j) {
          double dot = 0, ddot = 0;
          for (int64_t d = 0; d < D; ++d) {
            dot += c.q.get(qi + d).real() * c.k.get(at(p.k, b, j, g) + d).real();
            ddot +=
                c.dout.get(at(p.dout, b, i, h) + d).real() * c.v.get(at(p.v, b, j, g) + d).real();
          }
          s[j] = dot * p.scale;
          if (p.softcap > 0) {
            const double t = std::tanh(s[j] / p.softcap);
            s[j] = p.softcap * t;
            slope[j] = 1 - t * t;
          }
          if (p.has_bias) s[j] += c.bias.get((h * p.q_len + i) * p.kv_len + j).real();
          if (c.hidden(b, i, j)) s[j] = -1e9;
          dp[j] = ddot;
        }
        const double sink = p.has_sinks ? c.sinks.get(h).real() : -INFINITY;
        const double top = std::max(*std::max_element(s.begin(), s.end()), sink);
        double total = std::exp(sink - top), delta = 0;
        for (double& x : s) total += x = std::exp(x - top);
        r.lse[static_cast<size_t>((b * p.heads + h) * p.q_len + i)] = top + std::log(total);
        for (size_t j = 0; j < s.size(); ++j) delta += (s[j] /= total) * dp[j];
        for (int64_t j = 0; j < p.kv_len; ++j) {
          const double dscore = c.hidden(b, i, j) ? 0 : s[j] * (dp[j] - delta);
          const double ds = dscore * slope[j] * p.scale;
          r.dbias[static_cast<size_t>(((b * p.heads + h) * p.q_len + i) * p.kv_len + j)] = dscore;
          for (int64_t d = 0; d < D; ++d) {
            r.out[at(p.out, b, i, h) + d] += s[j] * c.v.get(at(p.v, b, j, g) + d).real();
            r.dv[at(p.dv, b, j, g) + d] += s[j] * c.dout.get(at(p.dout, b, i, h) + d).real();
            r.dq[at(p.dq, b, i, h) + d] += ds * c.k.get(at(p.k, b, j, g) + d).real();
            r.dk[at(p.dk, b, j, g) + d] += ds * c.q.get(qi + d).real();
          }
        }
      }
    }
  }
  return r;
}

struct Results {
  TypedBuffer out, lse, dq, dk, dv, dbias;
  explicit Results(const Case& c)
      : out(c.p.dtype, c.extent(c.p.out, c.p.q_len, c.p.heads)),
        lse(c.lse_dtype(), c.p.batch * c.p.heads * c.p.q_len),
        dq(c.p.dtype, c.extent(c.p.dq, c.p.q_len, c.p.heads)),
        dk(c.p.dtype, c.extent(c.p.dk, c.p.kv_len, c.p.kv_heads)),
        dv(c.p.dtype, c.extent(c.p.dv, c.p.kv_len, c.p.kv_heads)),
        dbias(c.lse_dtype(), c.p.has_bias ? c.p.batch * c.p.heads * c.p.q_len * c.p.kv_len : 0) {}
};

// Runs all blocks, one call per block in the given order.
Results run(const Case& c, Isa isa, bool reversed = false) {
  Results r(c);
  attention_check(c.p);
  Bytes scratch(attention_forward_scratch_bytes(c.p)), more(attention_backward_scratch_bytes(c.p));
  const int64_t forward = attention_forward_blocks(c.p), backward = attention_backward_blocks(c.p);
  for (int64_t i = 0; i < forward; ++i) {
    const int64_t b = reversed ? forward - 1 - i : i;
    attention_forward(c.p,
                      {c.q.data(), c.k.data(), c.v.data(), r.out.data(), r.lse.data(),
                       c.mask.data(), c.bias.data(), c.sinks.data()},
                      b, b + 1, scratch.data(), isa);
  }
  for (int64_t i = 0; i < backward; ++i) {
    const int64_t b = reversed ? backward - 1 - i : i;
    attention_backward(c.p,
                       {c.q.data(), c.k.data(), c.v.data(), r.out.data(), r.lse.data(),
                        c.dout.data(), r.dq.data(), r.dk.data(), r.dv.data(), c.mask.data(),
                        c.bias.data(), c.p.has_bias ? r.dbias.data() : nullptr},
                       b, b + 1, more.data(), isa);
  }
  EXPECT_TRUE(scratch.guard_intact() && more.guard_intact()) << "scratch overrun";
  for (TypedBuffer* b : {&r.out, &r.lse, &r.dq, &r.dk, &r.dv, &r.dbias})
    EXPECT_TRUE(b->guard_intact());
  return r;
}

// Compares the elements that the strides address.
void expect_near(const char* what, const AttentionProblem& p, const TypedBuffer& got,
                 const std::vector<double>& want, const AttentionStrides& s, int64_t len,
                 int64_t heads, double tolerance) {
  double worst = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < len; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t d = 0; d < p.head_dim; ++d) {
          const size_t x = at(s, b, i, h) + static_cast<size_t>(d);
          const double error = std::abs(got.get(static_cast<int64_t>(x)).real() - want[x]);
          worst = std::isnan(error)
                      ? INFINITY
                      : std::max(worst, error - testing::roundoff(p.dtype) * std::abs(want[x]));
        }
      }
    }
  }
  EXPECT_LE(worst, tolerance) << what;
}

// Errors grow with the lengths of the sums (d for scores, keys or queries for the rest); values are
// of order 1. For f16 and bf16 the backward starts from a rounded `out`.
void expect_matches(const Case& c, const Results& r, const Reference& want) {
  const AttentionProblem& p = c.p;
  const double eps = testing::compute_roundoff(p.dtype);
  const double score = 2 * eps * static_cast<double>(p.head_dim + 8);
  const double group = static_cast<double>(p.heads / p.kv_heads);
  const double keys = static_cast<double>(std::max<int64_t>(p.kv_len, 1)),
               rows = static_cast<double>(p.q_len) * group;
  const double forward = score * 4 + eps * std::sqrt(keys) * 2;
  const double delta = static_cast<double>(p.head_dim) * testing::roundoff(p.dtype) + forward * 8;
  expect_near("out", p, r.out, want.out, p.out, p.q_len, p.heads, forward);
  expect_near("dq", p, r.dq, want.dq, p.dq, p.q_len, p.heads, delta * 4);
  expect_near("dk", p, r.dk, want.dk, p.dk, p.kv_len, p.kv_heads,
              delta * std::max(4.0, std::sqrt(rows)));
  expect_near("dv", p, r.dv, want.dv, p.dv, p.kv_len, p.kv_heads,
              forward * std::max(4.0, std::sqrt(rows)));
  for (int64_t i = 0; i < r.dbias.size(); ++i)
    ASSERT_NEAR(r.dbias.get(i).real(), want.dbias[static_cast<size_t>(i)], delta * 4) << "dbias";
  for (int64_t i = 0; i < r.lse.size(); ++i) {
    const double x = want.lse[static_cast<size_t>(i)];
    if (std::isinf(x)) {
      EXPECT_EQ(r.lse.get(i).real(), x);
    } else {
      ASSERT_NEAR(r.lse.get(i).real(), x, forward * 8 + 2 * eps * std::abs(x)) << i;
    }
  }
}

void check_problem(const AttentionProblem& p) {
  const Case c(p);
  const Reference want = evaluate(c);
  for (Isa isa : testing::host_isas()) {
    SCOPED_TRACE(std::string(isa_name(isa)) + " B" + std::to_string(p.batch) + " H" +
                 std::to_string(p.heads) + "/" + std::to_string(p.kv_heads) + " Sq" +
                 std::to_string(p.q_len) + " Sk" + std::to_string(p.kv_len) + " D" +
                 std::to_string(p.head_dim) + (p.mask == AttentionMask::Causal ? " causal " : " ") +
                 (p.mask == AttentionMask::Window ? "window " + std::to_string(p.window) : "") +
                 (p.softcap > 0 ? " cap" : "") + (p.has_mask ? " mask" : "") +
                 (p.has_bias ? " bias" : "") + (p.has_sinks ? " sinks " : " ") +
                 std::string(to_string(p.dtype)));
    expect_matches(c, run(c, isa), want);
  }
}

AttentionProblem dense(int64_t b, int64_t h, int64_t kv, int64_t sq, int64_t sk, int64_t d,
                       AttentionMask mask, DType dtype = DType::F32) {
  AttentionProblem p{.dtype = dtype,
                     .batch = b,
                     .heads = h,
                     .kv_heads = kv,
                     .q_len = sq,
                     .kv_len = sk,
                     .head_dim = d,
                     .mask = mask,
                     .scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(d, 1)))};
  p.set_dense();
  return p;
}

constexpr AttentionMask kMasks[] = {AttentionMask::None, AttentionMask::Causal};

TEST(NativeAttention, SizesAroundTheTiles) {
  for (AttentionMask mask : kMasks) {
    for (int64_t s : {1, 2, 5, 13, 14, 15, 31, 32, 33, 127, 128, 129, 150}) {
      for (int64_t d : {1, 7, 16, 32, 40}) check_problem(dense(1, 1, 1, s, s, d, mask));
    }
    check_problem(dense(2, 3, 3, 300, 300, 64, mask));
    check_problem(dense(1, 1, 1, 64, 600, 32, mask));
  }
}

TEST(NativeAttention, QueriesAndKeysOfDifferentLength) {
  for (AttentionMask mask : kMasks) {
    for (auto [sq, sk] :
         {std::pair{1, 200}, {200, 1}, {17, 270}, {270, 17}, {129, 128}, {128, 257}}) {
      check_problem(dense(2, 2, 2, sq, sk, 24, mask));
    }
  }
}

// Keys and values are read where they lie: on both sides of each vector, tile of keys and run of tiles.
TEST(NativeAttention, FewQueries) {
  for (AttentionMask mask : kMasks)
    for (int64_t sq : {1, 2, 4, 5})
      for (int64_t sk : {1, 15, 16, 17, 255, 257, 530})
        for (int64_t d : {16, 48, 64, 80}) check_problem(dense(1, 2, 1, sq, sk, d, mask));
  for (DType dtype : {DType::F64, DType::F16, DType::BF16})
    for (int64_t sk : {33, 300})
      check_problem(dense(2, 2, 2, 3, sk, 32, AttentionMask::None, dtype));
  check_problem(dense(1, 1, 1, 2, 4500, 16, AttentionMask::None));
  check_problem(dense(1, 1, 1, 130, 140, 32, AttentionMask::Causal));  // two rows in the last block
  for (int options = 0; options < 16; ++options) {
    AttentionProblem p = dense(1, 2, 1, 3, 290, 32, AttentionMask::Window);
    p.window = 100;
    p.softcap = options & 1 ? 0.8 : 0;
    p.has_mask = options & 2, p.has_bias = options & 4, p.has_sinks = options & 8;
    p.v = {290 * 40, 40, 290 * 40};
    check_problem(p);
  }
}

TEST(NativeAttention, EmptyOperands) {
  for (AttentionMask mask : kMasks) {
    check_problem(dense(1, 2, 2, 3, 0, 8, mask));
    check_problem(dense(1, 2, 2, 0, 3, 8, mask));
    check_problem(dense(0, 2, 2, 3, 3, 8, mask));
    check_problem(dense(1, 2, 2, 3, 3, 0, mask));
  }
}

TEST(NativeAttention, SharedKeyValueHeads) {
  for (AttentionMask mask : kMasks) {
    check_problem(dense(2, 8, 2, 70, 70, 16, mask));
    check_problem(dense(1, 6, 1, 33, 140, 32, mask));
  }
}

TEST(NativeAttention, EveryFloatDtype) {
  for (DType dtype : {DType::F64, DType::F16, DType::BF16}) {
    for (AttentionMask mask : kMasks) {
      check_problem(dense(1, 2, 1, 45, 45, 20, mask, dtype));
      check_problem(dense(1, 2, 2, 140, 300, 32, mask, dtype));
    }
  }
}

TEST(NativeAttention, StridedLayouts) {
  // Head-major [B,H,S,D] for q and k, v a slice of a fused [B,S,3,H,D], padded outputs.
  AttentionProblem p = dense(2, 4, 4, 37, 37, 12, AttentionMask::Causal);
  p.q = p.k = {4 * 37 * 12, 12, 37 * 12};
  p.v = {37 * 3 * 48, 3 * 48, 12};
  p.out = p.dq = {40 * 60, 60, 15};
  p.dk = {4 * 37 * 12, 12, 37 * 12};
  check_problem(p);
}

TEST(NativeAttention, LargeScoresStayFinite) {
  AttentionProblem p = dense(1, 1, 1, 40, 40, 16, AttentionMask::Causal);
  p.scale = 300;
  const Case c(p);
  for (Isa isa : testing::host_isas()) {
    const Results r = run(c, isa);
    for (const TypedBuffer* b : {&r.out, &r.lse, &r.dq, &r.dk, &r.dv}) {
      for (int64_t i = 0; i < b->size(); ++i) ASSERT_TRUE(std::isfinite(b->get(i).real()));
    }
  }
}

TEST(NativeAttention, NanOfAQueryStaysInItsRow) {
  Case c(dense(1, 1, 1, 20, 20, 8, AttentionMask::None));
  c.q.set(3 * 8, NAN);
  for (Isa isa : testing::host_isas()) {
    const Results r = run(c, isa);
    for (int64_t i = 0; i < 20 * 8; ++i)
      EXPECT_EQ(std::isnan(r.out.get(i).real()), i / 8 == 3) << i;
  }
}

TEST(NativeAttention, SameBitsInAnyOrderAndOnAnyThreads) {
  const Case c(dense(3, 4, 2, 150, 150, 32, AttentionMask::Causal));
  for (Isa isa : testing::host_isas()) {
    const Results a = run(c, isa), b = run(c, isa, true);
    Results threads(c);
    const int kThreads = 4;
    std::vector<Bytes> scratch;
    for (int i = 0; i < kThreads; ++i) {
      scratch.emplace_back(attention_forward_scratch_bytes(c.p) +
                           attention_backward_scratch_bytes(c.p));
    }
    parallel_for_worker(
        kThreads, attention_forward_blocks(c.p), [&](int worker, int64_t begin, int64_t end) {
          attention_forward(
              c.p, {c.q.data(), c.k.data(), c.v.data(), threads.out.data(), threads.lse.data()},
              begin, end, scratch[static_cast<size_t>(worker)].data(), isa);
        });
    parallel_for_worker(
        kThreads, attention_backward_blocks(c.p), [&](int worker, int64_t begin, int64_t end) {
          attention_backward(
              c.p,
              {c.q.data(), c.k.data(), c.v.data(), threads.out.data(), threads.lse.data(),
               c.dout.data(), threads.dq.data(), threads.dk.data(), threads.dv.data()},
              begin, end, scratch[static_cast<size_t>(worker)].data(), isa);
        });
    for (const Results* other : {&b, static_cast<const Results*>(&threads)}) {
      EXPECT_TRUE(a.out.same_bits(other->out));
      EXPECT_TRUE(a.lse.same_bits(other->lse));
      EXPECT_TRUE(a.dq.same_bits(other->dq));
      EXPECT_TRUE(a.dk.same_bits(other->dk));
      EXPECT_TRUE(a.dv.same_bits(other->dv));
    }
  }
}

// Every combination of the options, of sizes around the tiles.
TEST(NativeAttention, GeneralScores) {
  for (int options = 0; options < 16; ++options) {
    for (AttentionMask mask : {AttentionMask::None, AttentionMask::Causal, AttentionMask::Window}) {
      for (auto [sq, sk] : {std::pair{5, 5}, {33, 140}, {140, 33}, {60, 290}}) {
        AttentionProblem p = dense(1, 2, 1, sq, sk, 12, mask);
        p.window = mask == AttentionMask::Window ? 20 : 0;
        p.softcap = options & 1 ? 0.8 : 0;
        p.has_mask = options & 2, p.has_bias = options & 4, p.has_sinks = options & 8;
        check_problem(p);
      }
    }
  }
}

// Windows whose last query, of the last key of a tile, is the first of a tile of queries, and those one shorter and longer;
// as many keys as queries, and more.
TEST(NativeAttention, WindowsThatEndAtATile) {
  for (int64_t window : {0, 1, 2, 127, 128, 129, 130})
    for (int64_t keys : {140, 141}) {
      AttentionProblem p = dense(1, 1, 1, 140, keys, 8, AttentionMask::Window);
      p.window = window;
      check_problem(p);
    }
}

TEST(NativeAttention, GeneralScoresOfEveryDtype) {
  for (DType dtype : {DType::F64, DType::F16, DType::BF16}) {
    AttentionProblem p = dense(1, 4, 2, 40, 150, 20, AttentionMask::Window, dtype);
    p.window = 70;
    p.softcap = 1.5;
    p.has_mask = p.has_bias = p.has_sinks = true;
    check_problem(p);
    p.kv_len = 0;
    check_problem(p);
  }
}

TEST(NativeAttention, TinyScoresKeepTheirBitsUnderACap) {
  for (double x : {1e-6, 1e-3, 0.3, 1.0, 30.0, 200.0}) {
    const double want = std::tanh(x);
    const double raw = x * 2 * 1.4426950408889634074;
    EXPECT_NEAR((tanh_of_log2<float, 16>(splat<float, 16>(static_cast<float>(raw)))[0]), want,
                1e-6 * want);
    EXPECT_NEAR((tanh_of_log2<double, 16>(splat<double, 16>(-raw))[0]), -want, 1e-14 * want);
  }
}

template <class T>
void check_exp2(T step) {
  double worst = 0;
  for (T x = -Exp2<T>::kLowest - 2; x > Exp2<T>::kLowest + 1; x -= step) {
    const double want = std::exp2(static_cast<double>(x)),
                 got = static_cast<double>(cpu::exp2<T>(x));
    worst = rlx::testing::worse(worst, std::abs(got - want) / want);
  }
  EXPECT_LE(worst, 2 * static_cast<double>(std::numeric_limits<T>::epsilon()));
  EXPECT_EQ(cpu::exp2<T>(0), T{1});
  EXPECT_EQ(cpu::exp2<T>(-INFINITY), T{0});
  EXPECT_EQ(cpu::exp2<T>(T{-1e9}), T{0});
  EXPECT_TRUE(std::isnan(cpu::exp2<T>(NAN)));
}

TEST(NativeAttention, Exp2IsWithinTwoUnitsInTheLastPlace) {
  check_exp2<float>(0.00037f);
  check_exp2<double>(0.0031);
}

TEST(NativeAttention, LseIsOptional) {
  const Case c(dense(1, 1, 1, 9, 9, 8, AttentionMask::Causal));
  Results r(c);
  Bytes scratch(attention_forward_scratch_bytes(c.p));
  attention_forward(c.p, {c.q.data(), c.k.data(), c.v.data(), r.out.data(), nullptr}, 0, 1,
                    scratch.data());
  EXPECT_TRUE(r.out.same_bits(run(c, host_isa()).out));
}

TEST(NativeAttention, RejectsProblemsThatDoNotFit) {
  AttentionProblem p = dense(1, 4, 3, 8, 8, 8, AttentionMask::None);
  EXPECT_THROW(attention_check(p), Error);
  p.kv_heads = 2;
  EXPECT_NO_THROW(attention_check(p));
  p.dtype = DType::I32;
  EXPECT_THROW(attention_check(p), Error);
  p.dtype = DType::F32;
  p.q_len = -1;
  EXPECT_THROW(attention_check(p), Error);
}

}  // namespace
}  // namespace rlx::cpu
