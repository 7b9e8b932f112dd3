// Quantised ops beyond the sample table: errors, the state of a running scale, kernels of every instruction set and any
// number of threads.
#include <gtest/gtest.h>

#include <random>

#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/runtime/runtime.h"
#ifdef RLX_CPU
#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/matmul/row_products.h"
#endif

namespace rlx {
namespace {

Tensor normal(Ints sizes, uint64_t seed) {
  Tensor t(DType::F32, std::move(sizes));
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> d;
  for (int64_t i = 0; i < t.elements(); ++i) t.mutable_data<float>()[i] = d(rng);
  return t;
}

// ---- errors

template <class A>
std::string error_of(const OpDef& op, const A& attrs, const Types& types) {
  Builder b;
  Values in;
  for (const Type& t : types) in.push_back(b.input(std::to_string(in.size()), t));
  try {
    b.emit(op, attrs, in);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::user);
    EXPECT_NE(std::string(e.what()).find(op.name), std::string::npos) << e.what();
    return std::string(e.code());
  }
  return "none";
}

constexpr DType F32 = DType::F32, I8 = DType::I8, U8 = DType::U8, I32 = DType::I32;

TEST(QuantOps, ErrorsOfScales) {
  EXPECT_EQ(error_of(*&op::quantize, QuantizeAttrs{.axis = 1}, {{F32, {2, 3}}}), "quant-scales");
  EXPECT_EQ(error_of(*&op::quantize, QuantizeAttrs{.scales = {0}}, {{F32, {2}}}), "quant-scales");
  EXPECT_EQ(error_of(*&op::quantize, QuantizeAttrs{.zero_points = {128}}, {{F32, {2}}}),
            "quant-scales");
  EXPECT_EQ(error_of(*&op::quantize, QuantizeAttrs{.axis = 2}, {{F32, {2}}}), "axis-range");
  EXPECT_EQ(error_of(*&op::fake_quantize, FakeQuantizeAttrs{.bits = 1}, {{F32, {2}}}),
            "quant-bits");
  EXPECT_EQ(
      error_of(*&op::fake_quantize, FakeQuantizeAttrs{.scale_mode = ScaleMode::ema}, {{F32, {2}}}),
      "quant-state");
  EXPECT_EQ(error_of(*&op::fake_quantize, FakeQuantizeAttrs{}, {{F32, {2}}, {F32, {1}}}),
            "quant-state");
  EXPECT_EQ(error_of(*&op::fake_quantize_lsq, LsqAttrs{.axis = 0}, {{F32, {2}}, {F32, {3}}}),
            "quant-state");
  EXPECT_EQ(
      error_of(*&op::fake_quantize_backward, FakeQuantizeBackwardAttrs{}, {{F32, {2}}, {F32, {3}}}),
      "quant-operands");
  EXPECT_EQ(
      error_of(*&op::quantize_linear, QuantizeLinearAttrs{.dtype = I32}, {{F32, {2}}, {F32, {}}}),
      "dtype");
}

TEST(QuantOps, ErrorsOfPackedWeights) {
  const SchemeAttrs q4k{parse_scheme("gguf_q4k")}, int8{parse_scheme("int8/32")};
  EXPECT_EQ(error_of(*&op::quantise_blocks, int8, {{F32, {32}}}), "quant-scheme");
  EXPECT_EQ(error_of(*&op::quantise_blocks, q4k, {{F32, {2, 128}}}), "quant-block");
  EXPECT_EQ(error_of(*&op::dequantise_blocks, BlocksAttrs{q4k.scheme, {256}}, {{U8, {143}}}),
            "quant-bytes");
  EXPECT_EQ(error_of(*&op::dequant_matmul, DequantMatmulAttrs{q4k.scheme},
                     {{F32, {2, 256}}, {U8, {145}}}),
            "quant-bytes");
  EXPECT_EQ(
      error_of(*&op::dequant_matmul, DequantMatmulAttrs{q4k.scheme}, {{F32, {256}}, {U8, {144}}}),
      "matmul-rank");
  EXPECT_EQ(error_of(*&op::dequant_matmul, DequantMatmulAttrs{int8.scheme},
                     {{F32, {2, 64}}, {I8, {64, 3}}}),
            "quant-operands");
  EXPECT_EQ(error_of(*&op::dequant_matmul, DequantMatmulAttrs{int8.scheme},
                     {{F32, {2, 64}}, {I8, {64, 3}}, {F32, {3, 3}}}),
            "quant-operands");
  EXPECT_EQ(error_of(*&op::q_matmul, QMatmulAttrs{}, {{I8, {2, 3}}, {I8, {4, 5}}, {I32, {5}}}),
            "matmul-inner");
  EXPECT_EQ(error_of(*&op::q_conv2d, QConvAttrs{.groups = 2},
                     {{I8, {1, 3, 4, 4}}, {I8, {2, 1, 1, 1}}, {I32, {2}}}),
            "quant-conv");
}

TEST(QuantOps, ErrorsOfExperts) {
  EXPECT_EQ(error_of(*&op::grouped_matmul, GroupedMatmulAttrs{},
                     {{F32, {2, 3}}, {F32, {4, 5, 6}}, {I32, {2}}}),
            "experts-shape");
  EXPECT_EQ(error_of(*&op::moe_gate, MoeGateAttrs{.k = 4}, {{F32, {2, 3}}}), "experts-k");
  EXPECT_EQ(error_of(*&op::lora_matmul, LoraAttrs{},
                     {{F32, {2, 3}}, {F32, {3, 4}}, {F32, {3, 2}}, {F32, {3, 4}}}),
            "lora-shape");
}

// ---- meaning

TEST(QuantOps, ARunningScaleStartsWithTheFirstBatch) {
  Builder b;
  const Value x = b.input("x", {F32, {2}}), s = b.input("s", {F32, {1}});
  const FakeQuantizeAttrs attrs{.bits = 8, .scale_mode = ScaleMode::ema, .decay = 0.5};
  for (Value v : b.emit(*&op::fake_quantize, attrs, Values{x, s})) b.output(v);
  const Graph g = b.finish();
  Tensor state = Tensor::from<float>({1}, {0});
  for (float want : {1.0f, 2.0f, 2.5f}) {  // of batches with the scales 1, 3, 3
    const float most = want == 1.0f ? 127.0f : 381.0f;
    state = evaluate(g, std::vector{Tensor::from<float>({2}, {most, -1}), state})[1];
    EXPECT_FLOAT_EQ(state.data<float>()[0], want);
  }
}

TEST(QuantOps, BitsOfAValue) {
  Builder b;
  const Value x = b.input("x", {F32, {2}});
  const Value q = op::fake_quantize(b, x, {.bits = 4});
  EXPECT_EQ(quantized_weight_bits(b.graph(), q), 4);
  EXPECT_EQ(quantized_weight_bits(b.graph(), x), std::nullopt);
}

#ifdef RLX_CPU

// ---- kernels

TEST(QuantOps, RowProductsOfEveryInstructionSet) {
  using cpu::Isa;
  for (Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512}) {
    if (!cpu::isa_supported(isa)) continue;
    const cpu::RowProducts f = cpu::row_products(isa);
    for (int64_t m : {1, 3, 4, 9})
      for (int64_t n : {1, 4, 7, 70})
        for (int64_t k : {0, 1, 16, 83}) {
          const Tensor x = normal({m, k}, 1), w = normal({n, k}, 2), v = normal({k, n}, 3);
          std::vector<float> y(static_cast<size_t>(m * n), -1), z = y;
          f.dot(x.data<float>(), k, m, w.data<float>(), k, n, k, y.data(), n);
          f.combine(x.data<float>(), k, 1, m, v.data<float>(), n, n, k, z.data(), n);
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              double dot = 0, sum = 0;
              for (int64_t p = 0; p < k; ++p) {
                dot += x.get_float(i * k + p) * w.get_float(j * k + p);
                sum += x.get_float(i * k + p) * v.get_float(p * n + j);
              }
              EXPECT_NEAR(y[static_cast<size_t>(i * n + j)], dot, 1e-4) << m << n << k;
              EXPECT_NEAR(z[static_cast<size_t>(i * n + j)], sum, 1e-4) << m << n << k;
            }
        }
  }
}

// The packed product equals the product with the unpacked weight, and does not depend on threads.
TEST(QuantOps, PackedProductsAgreeForAnyNumberOfThreads) {
  for (const char* name : {"gguf_q4k", "gguf_q6k", "gguf_iq3_s", "gguf_q8_0"}) {
    const QuantScheme scheme = parse_scheme(name);
    const int64_t m = 5, k = 512, n = 150;
    Builder b;
    const Value x = b.input("x", {F32, {m, k}}), w = b.input("w", {F32, {n, k}});
    const Value packed = op::quantise_blocks(b, w, {scheme});
    b.output(op::dequant_matmul(b, x, packed, {scheme}));
    b.output(op::matmul(b, x, op::dequantise_blocks(b, packed, {scheme, {n, k}}),
                        MatmulAttrs{.transpose_b = true}));
    const Graph g = b.finish();
    const NamedTensors in{{"x", normal({m, k}, 5)}, {"w", normal({n, k}, 6)}};
    const std::vector<Tensor> one = Session("cpu").compile(g, {.threads = 1}).run(in);
    const std::vector<Tensor> four = Session("cpu").compile(g, {.threads = 4}).run(in);
    EXPECT_TRUE(one[0].same_bits(four[0])) << name;
    for (int64_t i = 0; i < one[0].elements(); ++i)
      EXPECT_NEAR(one[0].get_float(i), one[1].get_float(i), 2e-3) << name;
  }
}

#endif

}  // namespace
}  // namespace rlx
