// Sums inside native kernels (products, convolutions, windows, attention, scattered updates, scans)
// keep their digits however many terms they have. docs/ir.md states the bounds.
#include <gtest/gtest.h>

#include "../support/exact_sums.h"
#include "rlx/ops/attention/attention.h"
#include "rlx/ops/core.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/indexing/scatter.h"
#include "rlx/ops/nn/experts.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

using Inputs = std::map<std::string, Tensor>;

// What kernels add plainly, in epsilons: some 400 terms, half an epsilon each.
constexpr double kEpsilons = 200;

template <class F>
Tensor filled(DType dtype, const Ints& sizes, F value) {
  Tensor t(dtype, sizes);
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (dtype == DType::F32)
      t.mutable_data<float>()[i] = static_cast<float>(value(i));
    else
      t.set_float(i, value(i));
  }
  return t;
}
double as_stored(DType dtype, double v) {
  if (dtype == DType::F64) return v;
  if (dtype == DType::F32) return static_cast<float>(v);
  return filled(dtype, {1}, [&](int64_t) { return v; }).get_float(0);
}

// A power of two, so that it scales sums without rounding them.
double scale_of(int64_t i, int64_t period) {
  return std::ldexp(1, static_cast<int>(i % period) - 1);
}

void add_product(ExactSum& s, double a, double b) {
  const double p = a * b, magnitude = s.magnitude + std::fabs(p);
  s.add(p);
  s.add(std::fma(a, b, -p));
  s.magnitude = magnitude;
}

// The sum over p < n of input(p) * other.
ExactSum products(DType dtype, const SumInput& input, int64_t n, double other) {
  ExactSum s;
  for (int64_t p = 0; p < n; ++p)
    add_product(s, as_stored(dtype, input.value(p, n)), as_stored(dtype, other));
  return s;
}

// Element i of the result is scale(i) times `want`.
template <class F>
void expect_sums(const std::string& what, const Tensor& got, const ExactSum& want, F scale,
                 double epsilons = kEpsilons) {
  const DType accumulator = got.dtype() == DType::F64 ? DType::F64 : DType::F32;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double s = scale(i), value = s * want.value();
    const double rounding =
        accumulator == got.dtype() ? 0 : epsilon_of(got.dtype()) / 2 * std::fabs(value);
    const double off = std::fabs(got.get_float(i) - value) - rounding;
    const double relative =
        off / (epsilon_of(accumulator) * std::fabs(s) * want.magnitude + 1e-300);
    ASSERT_LE(relative, epsilons) << what << ", element " << i << ": " << got.get_float(i)
                                  << " instead of " << value;
  }
}

struct Product {
  int64_t m, n;
  bool transpose_a = false, transpose_b = false, packed = false;
};

void expect_product(DType dtype, const Product& c, int64_t k, const SumInput& input,
                    int vector_bits = 0) {
  Builder b("product");
  const Ints a_sizes = c.transpose_a ? Ints{k, c.m} : Ints{c.m, k},
             b_sizes = c.transpose_b ? Ints{c.n, k} : Ints{k, c.n};
  const Type right{dtype, Shape::of(b_sizes)};
  b.output(op::matmul(b, b.input("a", {dtype, Shape::of(a_sizes)}),
                      c.packed ? b.param("b", right) : b.input("b", right),
                      {.transpose_a = c.transpose_a, .transpose_b = c.transpose_b}));
  CompiledGraph f = Session("cpu").compile(b.finish(), {.threads = 1, .vector_bits = vector_bits});
  const double other = 0.1;
  const Tensor left = filled(dtype, a_sizes, [&](int64_t i) {
    const int64_t row = c.transpose_a ? i % c.m : i / k, p = c.transpose_a ? i / c.m : i % k;
    return input.value(p, k) * scale_of(row, 3);
  });
  const Tensor weights = filled(dtype, b_sizes, [&](int64_t i) {
    return other * scale_of(c.transpose_b ? i / k : i % c.n, 4);
  });
  Inputs inputs{{"a", left}};
  if (c.packed)
    f.set_param("b", weights);
  else
    inputs.insert({"b", weights});
  expect_sums(
      fmt::format("{} product {}x{}x{}{}{}{}, {}, {} bits", dtype, c.m, k, c.n,
                  c.transpose_a ? ", a transposed" : "", c.transpose_b ? ", b transposed" : "",
                  c.packed ? ", packed" : "", input.name, vector_bits),
      f.run(inputs)[0], products(dtype, input, k, other),
      [&](int64_t i) { return scale_of(i / c.n, 3) * scale_of(i % c.n, 4); });
}

const std::vector<Product>& product_forms() {
  static const std::vector<Product> forms{{1, 1},
                                          {1, 37},
                                          {1, 5, false, true},
                                          {3, 5, false, true},
                                          {7, 64},
                                          {20, 33},
                                          {20, 33, true},
                                          {20, 33, false, true},
                                          {20, 33, true, true},
                                          {20, 33, false, false, true},
                                          {2, 33, false, false, true}};
  return forms;
}

// Both sides of a block of k, of a run of blocks, of the runs of dot products.
TEST(KernelSums, Products) {
  for (const Product& c : product_forms())
    for (int64_t k : {321, 2561, 5119, 5121, 10'241})
      expect_product(DType::F32, c, k, sum_inputs()[static_cast<size_t>(k % 4)]);
}

TEST(KernelSums, LongProducts) {
  for (const Product& c :
       {Product{3, 9}, {20, 5, true}, {9, 3, false, true}, {9, 5, false, false, true}})
    expect_product(DType::F32, c, 300'007, sum_inputs()[0]);
  for (const SumInput& input : sum_inputs()) {
    expect_product(DType::F32, {1, 2}, 1'000'003, input);
    expect_product(DType::F32, {1, 1, false, true}, 1'000'003, input);
  }
}

TEST(KernelSums, ProductsOfOtherDtypesAndWidths) {
  for (const Product& c : {Product{1, 1}, {2, 9}, {3, 5, false, true}, {10, 9}}) {
    for (DType d : {DType::F64, DType::F16, DType::BF16})
      expect_product(d, c, 100'003, sum_inputs()[0]);
    for (DType d : {DType::F32, DType::F64}) {
      expect_product(d, c, 2'000, sum_inputs()[0], 256);
      expect_product(d, c, 100'003, sum_inputs()[0], 256);
    }
  }
}

TEST(KernelSums, ComplexProducts) {
  for (int64_t k : {2560, 2561, 200'003, 1'000'003}) {
    const int64_t rows = k > 500'000 ? 1 : 3, columns = k > 500'000 ? 2 : 5;
    Builder b("product");
    b.output(op::matmul(b, b.input("a", {DType::C64, {rows, k}}),
                        b.input("b", {DType::C64, {k, columns}})));
    Tensor x(DType::C64, {rows, k}), y(DType::C64, {k, columns});
    for (int64_t i = 0; i < x.elements(); ++i) x.set_complex(i, {0.1, 0});
    for (int64_t i = 0; i < y.elements(); ++i) y.set_complex(i, {0.1, -0.2});
    const Tensor got =
        Session("cpu").compile(b.finish(), {.threads = 1}).run({{"a", x}, {"b", y}})[0];
    const double tenth = as_stored(DType::F32, 0.1), fifth = as_stored(DType::F32, 0.2),
                 n = static_cast<double>(k), epsilon = epsilon_of(DType::F32);
    for (int64_t i = 0; i < got.elements(); ++i) {
      const Complex v = got.get_complex(i);
      EXPECT_NEAR(v.real(), tenth * tenth * n, kEpsilons * epsilon * 0.01 * n) << k;
      EXPECT_NEAR(v.imag(), -tenth * fifth * n, kEpsilons * epsilon * 0.02 * n) << k;
    }
  }
}

Tensor indices(int64_t n, int32_t value) {
  Tensor t(DType::I32, {n});
  for (int64_t i = 0; i < n; ++i) t.mutable_data<int32_t>()[i] = value;
  return t;
}

TEST(KernelSums, GroupedProducts) {
  for (const int64_t k : {320, 321, 5121, 100'003})
    for (const bool transposed : {false, true}) {
      constexpr int64_t m = 6, n = 37;
      Builder b("grouped");
      const Ints w_sizes = transposed ? Ints{2, n, k} : Ints{2, k, n};
      b.output(op::grouped_matmul(b, b.input("x", {DType::F32, {m, k}}),
                                  b.input("w", {DType::F32, Shape::of(w_sizes)}),
                                  b.input("ids", {DType::I32, {m}}), {transposed}));
      const SumInput& input = sum_inputs()[0];
      const Tensor x = filled(DType::F32, {m, k}, [&](int64_t i) {
        return input.value(i % k, k) * scale_of(i / k, 3);
      });
      const Tensor w = filled(DType::F32, w_sizes, [&](int64_t i) {
        return 0.1 * scale_of(transposed ? i / k % n : i % n, 4);
      });
      const Tensor got = Session("cpu")
                             .compile(b.finish(), {.threads = 1})
                             .run({{"x", x}, {"w", w}, {"ids", indices(m, 1)}})[0];
      expect_sums(fmt::format("grouped product, k {}{}", k, transposed ? ", transposed" : ""), got,
                  products(DType::F32, input, k, 0.1),
                  [](int64_t i) { return scale_of(i / n, 3) * scale_of(i % n, 4); });
    }
}

TEST(KernelSums, GroupedOuterProducts) {
  for (const int64_t m : {63, 65, 5121, 300'007}) {
    constexpr int64_t k = 17, n = 18;
    Builder b("outer");
    b.output(op::grouped_outer(b, b.input("x", {DType::F32, {m, k}}),
                               b.input("y", {DType::F32, {m, n}}),
                               b.input("ids", {DType::I32, {m}}), {.experts = 2}));
    const SumInput& input = sum_inputs()[0];
    const Tensor x = filled(DType::F32, {m, k},
                            [&](int64_t i) { return input.value(i / k, m) * scale_of(i % k, 3); });
    const Tensor y =
        filled(DType::F32, {m, n}, [&](int64_t i) { return 0.1 * scale_of(i % n, 4); });
    const Tensor got = Session("cpu")
                           .compile(b.finish(), {.threads = 1})
                           .run({{"x", x}, {"y", y}, {"ids", indices(m, 1)}})[0];
    expect_sums(fmt::format("grouped outer product of {} rows", m), got,
                products(DType::F32, input, m, 0.1), [](int64_t i) {
                  return i < k * n ? 0.0 : scale_of(i % (k * n) / n, 3) * scale_of(i % n, 4);
                });
  }
}

// Codes and scales hold the weights exactly.
TEST(KernelSums, QuantisedProducts) {
  const double weight = std::ldexp(127, -10);
  for (const int64_t k : {320, 5152, 200'000}) {
    const SumInput& input = sum_inputs()[0];
    const Tensor x = filled(DType::F32, {3, k}, [&](int64_t i) { return input.value(i % k, k); });
    const ExactSum want = products(DType::F32, input, k, weight);
    const auto one = [](int64_t) { return 1.0; };
    {
      constexpr int64_t n = 9;
      Builder b("packed");
      const QuantScheme scheme{QuantFormat::q8_0};
      const Value w = op::quantise_blocks(b, b.input("w", {DType::F32, {n, k}}), {scheme});
      b.output(op::dequant_matmul(b, b.input("x", {DType::F32, {3, k}}), w, {scheme}));
      const Tensor w_values = filled(DType::F32, {n, k}, [&](int64_t) { return weight; });
      expect_sums(
          fmt::format("q8_0 product, k {}", k),
          Session("cpu").compile(b.finish(), {.threads = 1}).run({{"x", x}, {"w", w_values}})[0],
          want, one);
    }
    {
      constexpr int64_t n = 37;
      Builder b("codes");
      const QuantScheme scheme{QuantFormat::int8_block, 32};
      b.output(op::dequant_matmul(b, b.input("x", {DType::F32, {3, k}}),
                                  b.input("w", {DType::I8, {k, n}}),
                                  b.input("scale", {DType::F32, {k / 32, n}}), {scheme}));
      const Tensor codes = filled(DType::I8, {k, n}, [](int64_t) { return 127; });
      const Tensor scales =
          filled(DType::F32, {k / 32, n}, [](int64_t) { return std::ldexp(1, -10); });
      expect_sums(fmt::format("int8 product, k {}", k),
                  Session("cpu")
                      .compile(b.finish(), {.threads = 1})
                      .run({{"x", x}, {"w", codes}, {"scale", scales}})[0],
                  want, one);
    }
  }
}

Tensor run(Builder& b, const Inputs& inputs) {
  return Session("cpu").compile(b.finish(), {.threads = 1}).run(inputs)[0];
}
Type f32(const Ints& sizes) { return {DType::F32, Shape::of(sizes)}; }
Tensor constant(const Ints& sizes, double value) {
  return filled(DType::F32, sizes, [&](int64_t) { return value; });
}
double one(int64_t) { return 1; }

// Results of one window that covers x: w varies along the window, x does not. With one channel in
// and out per group, and with more.
TEST(KernelSums, Convolutions) {
  for (const int64_t channels : {1, 2})
    for (const int64_t taps : {321, 5121, 200'003}) {
      const SumInput& input = sum_inputs()[0];
      Builder b("conv");
      b.output(op::conv(b, b.input("x", f32({1, channels, taps + 2})),
                        b.input("w", f32({channels, channels, taps}))));
      const Tensor w = filled(DType::F32, {channels, channels, taps}, [&](int64_t i) {
        return input.value(i % taps, taps) * scale_of(i / (taps * channels), 3);
      });
      ExactSum want = products(DType::F32, input, taps, 0.1);
      want.sum *= static_cast<double>(channels), want.lost *= static_cast<double>(channels);
      want.magnitude *= static_cast<double>(channels);
      expect_sums(fmt::format("convolution, {} channels, {} taps", channels, taps),
                  run(b, {{"x", constant({1, channels, taps + 2}, 0.1)}, {"w", w}}), want,
                  [](int64_t i) { return scale_of(i / 3, 3); });
    }
}

// An element of x gets one term from each position that a tap takes there: the middle one n.
TEST(KernelSums, ConvolutionsByTheirInput) {
  constexpr int64_t n = 20'001;
  Builder b("by_x");
  b.output(op::conv_backward_input(b, b.input("dy", f32({1, 1, n})), b.input("w", f32({1, 1, n})),
                                   ConvBackwardInputAttrs{{}, Shape{2 * n - 1}}));
  const Tensor got = run(b, {{"dy", constant({1, 1, n}, 0.1)}, {"w", constant({1, 1, n}, 0.1)}});
  for (int64_t i : {int64_t{400}, n / 2, n - 1, n, 2 * n - 400}) {
    const int64_t terms = std::min(i + 1, 2 * n - 1 - i);
    const ExactSum want = products(DType::F32, sum_inputs()[0], terms, 0.1);
    EXPECT_NEAR(got.get_float(i), want.value(), kEpsilons * epsilon_of(DType::F32) * want.magnitude)
        << i;
  }
}

TEST(KernelSums, ConvolutionsByTheirWeight) {
  for (const Ints& sizes : {Ints{1, 320}, {1, 500'003}, {321, 1}, {30'011, 1}, {700, 331}}) {
    const int64_t images = sizes[0], positions = sizes[1], n = images * positions;
    for (const DType dtype : {DType::F32, DType::F16}) {
      if (dtype == DType::F16 && n > 300'000) continue;
      const SumInput& input = sum_inputs()[0];
      Builder b("by_w");
      const Ints x{images, 2, positions + 2}, dy{images, 3, positions};
      b.output(op::conv_backward_weight(b, b.input("x", {dtype, Shape::of(x)}),
                                        b.input("dy", {dtype, Shape::of(dy)}),
                                        ConvBackwardWeightAttrs{{}, Ints{3}}));
      const Tensor got = run(b, {{"x", filled(dtype, x, [](int64_t) { return 0.1; })},
                                 {"dy", filled(dtype, dy, [&](int64_t i) {
                                    return input.value(i, n) * scale_of(i / positions % 3, 3);
                                  })}});
      expect_sums(
          fmt::format("{} convolution by its weight, {} images of {}", dtype, images, positions),
          got, products(dtype, input, n, 0.1), [](int64_t i) { return scale_of(i / 6, 3); });
    }
  }
}

ExactSum plain_sum(const SumInput& input, int64_t n) {
  ExactSum s;
  for (int64_t i = 0; i < n; ++i) s.add(as_stored(DType::F32, input.value(i, n)));
  return s;
}

TEST(KernelSums, Windows) {
  for (const SumInput& input : sum_inputs())
    for (const Ints& sizes : {Ints{1, 320}, {1, 321}, {321, 1}, {700, 450}, {1, 1'000'003}}) {
      const int64_t n = sizes[0] * sizes[1];
      const Ints x{2, sizes[0], sizes[1]};
      const Tensor data = filled(
          DType::F32, x, [&](int64_t i) { return input.value(i % n, n) * scale_of(i / n, 2); });
      const auto scale = [](int64_t i) { return scale_of(i, 2); };
      const std::string what = fmt::format("windows of {}x{}, {}", sizes[0], sizes[1], input.name);
      Builder sum("sum"), mean("mean");
      sum.output(op::pool(sum, sum.input("x", f32(x)), {.kind = PoolKind::sum, .kernel = sizes}));
      const double epsilons = 16 + std::log2(std::max(1.0, static_cast<double>(n) / 128));
      expect_sums("sums of " + what, run(sum, {{"x", data}}), plain_sum(input, n), scale, epsilons);
      mean.output(
          op::pool(mean, mean.input("x", f32(x)), {.kind = PoolKind::mean, .kernel = sizes}));
      expect_sums(
          "means of " + what, run(mean, {{"x", data}}), plain_sum(input, n),
          [&](int64_t i) { return scale(i) / static_cast<double>(n); }, epsilons);
    }
}

TEST(KernelSums, WindowsOfOtherKinds) {
  constexpr int64_t n = 400'009;
  const SumInput& input = sum_inputs()[0];
  const Tensor x = filled(DType::F32, {1, 1, n}, [&](int64_t i) { return input.value(i, n); });
  const double mean = plain_sum(input, n).value() / n, epsilon = epsilon_of(DType::F32);
  Builder adaptive("adaptive"), global("global"), lp("lp");
  adaptive.output(op::adaptive_avg_pool(adaptive, adaptive.input("x", f32({1, 1, n})), {{1}}));
  EXPECT_NEAR(run(adaptive, {{"x", x}}).get_float(0), mean, 28 * epsilon * mean);
  global.output(op::global_avg_pool(global, global.input("x", f32({1, 1, n}))));
  EXPECT_NEAR(run(global, {{"x", x}}).get_float(0), mean, 28 * epsilon * mean);
  lp.output(op::lp_pool(lp, lp.input("x", f32({1, 1, n})), {.p = 2, .kernel = {n}}));
  const double norm = std::sqrt(products(DType::F32, input, n, 0.1).value());
  EXPECT_NEAR(run(lp, {{"x", x}}).get_float(0), norm, 28 * epsilon * norm);
}

// Every window takes the element in the middle of x.
TEST(KernelSums, GradientOfMaxima) {
  constexpr int64_t n = 5'001;
  Builder b("backward");
  b.output(op::max_pool_backward(b, b.input("x", f32({1, 1, 2 * n - 1})),
                                 b.input("dy", f32({1, 1, n})), {.kernel = {n}}));
  const Tensor x = filled(DType::F32, {1, 1, 2 * n - 1}, [&](int64_t i) { return i == n - 1; });
  const SumInput& input = sum_inputs()[0];
  const Tensor dy = filled(DType::F32, {1, 1, n}, [&](int64_t i) { return input.value(i, n); });
  expect_sums(
      "maxima", run(b, {{"x", x}, {"dy", dy}}), plain_sum(input, n),
      [](int64_t i) { return i == n - 1 ? 1.0 : 0.0; }, 1);
}

// What these data lose in a tile, and little more; plain sums of tiles lose more.
constexpr double kTileEpsilons = 40;

// Scores that are all equal: the mean of the values, and the logarithm of their number.
TEST(KernelSums, AttentionOverManyKeys) {
  constexpr int64_t d = 3;
  for (const bool masked : {false, true})
    for (const int64_t keys : {256, 4096, 4097, 200'003}) {
      Builder b("attention");
      Values operands{b.input("q", f32({2, d})), b.input("k", f32({keys, d})),
                      b.input("v", f32({keys, d}))};
      // A row without visible keys averages all.
      if (masked) operands.push_back(b.input("mask", {DType::Bool, {1, keys}}));
      const Values out =
          b.emit(op::attention.def, AttentionAttrs{.num_heads = 1, .has_mask = masked}, operands);
      b.output(out[0]);
      b.output(out[1]);
      const SumInput& input = sum_inputs()[0];
      Inputs inputs{{"q", constant({2, d}, 0)},
                    {"k", constant({keys, d}, 1)},
                    {"v", filled(DType::F32, {keys, d}, [&](int64_t i) {
                       return input.value(i / d, keys) * scale_of(i % d, 3);
                     })}};
      if (masked) inputs.insert({"mask", Tensor(DType::Bool, {1, keys})});
      const std::vector<Tensor> got =
          Session("cpu").compile(b.finish(), {.threads = 1}).run(inputs);
      const std::string what =
          fmt::format("attention over {} keys{}", keys, masked ? ", masked" : "");
      expect_sums(
          what, got[0], plain_sum(input, keys),
          [&](int64_t i) { return scale_of(i % d, 3) / static_cast<double>(keys); }, kTileEpsilons);
      if (masked) continue;
      const double lse = std::log(static_cast<double>(keys));
      EXPECT_NEAR(got[1].get_float(0), lse, epsilon_of(DType::F32) * (16 + lse)) << what;
    }
}

// Scores that rise by little at a time, up to where the logsumexp is about 0: moving the largest one
// must not round each time.
TEST(KernelSums, AttentionOverRisingScores) {
  constexpr int64_t keys = 400'003;
  for (const double slope : {1e-4, 3e-5}) {
    Builder b("attention");
    const Values out = b.emit(op::attention.def, AttentionAttrs{.num_heads = 1, .scale = 1.0},
                              Values{b.input("q", f32({1, 1})), b.input("k", f32({keys, 1})),
                                     b.input("v", f32({keys, 1}))});
    b.output(out[1]);
    const auto score = [&](int64_t j) {
      return as_stored(DType::F32, slope * static_cast<double>(j - keys) + std::log(slope));
    };
    const Tensor got = run(b, {{"q", constant({1, 1}, 1)},
                               {"k", filled(DType::F32, {keys, 1}, score)},
                               {"v", constant({keys, 1}, 1)}});
    ExactSum weights;
    for (int64_t j = 0; j < keys; ++j) weights.add(std::exp(score(j)));
    // The scores that count are about 10 and rounded in units of log2.
    EXPECT_NEAR(got.get_float(0), std::log(weights.value()), 20 * epsilon_of(DType::F32)) << slope;
  }
}

// Weights of 1 / keys, gradients of the scores of 1 / keys in turn with signs.
TEST(KernelSums, AttentionGradients) {
  constexpr int64_t d = 2;
  const SumInput& input = sum_inputs()[0];
  for (const Ints& sizes : {Ints{2, 2048}, {2, 2050}, {2, 400'000}, {2050, 2}, {700'000, 2}}) {
    const int64_t queries = sizes[0], keys = sizes[1];
    const auto sign = [](int64_t i) { return i % 2 ? -1.0 : 1.0; };
    for (const int wrt : {0, 1, 2}) {
      if (wrt == 0 ? keys < queries : keys > queries) continue;
      Builder b("backward");
      const Values out =
          b.emit(op::attention_backward.def, AttentionBackwardAttrs{{.num_heads = 1, .scale = 1.0}},
                 Values{b.input("q", f32({queries, d})), b.input("k", f32({keys, d})),
                        b.input("v", f32({keys, d})), b.input("out", f32({queries, d})),
                        b.input("lse", f32({1, 1, queries})), b.input("dout", f32({queries, d}))});
      b.output(out[static_cast<size_t>(wrt)]);
      const auto first = [&](int64_t rows, auto value) {  // in the first channel alone
        return filled(DType::F32, {rows, d}, [&](int64_t i) { return i % d ? 0.0 : value(i / d); });
      };
      // dq: k is `input` with the sign of v. dk: so is q. dv: so is dout.
      const Tensor got = run(
          b,
          {{"q", wrt == 1 ? first(queries, [&](int64_t i) { return input.value(i, queries); })
                          : constant({queries, d}, 0)},
           {"k", wrt == 0 ? first(keys, [&](int64_t j) { return sign(j) * input.value(j, keys); })
                          : constant({keys, d}, 0)},
           {"v", first(keys, sign)},
           {"out", constant({queries, d}, 0)},
           {"lse", constant({1, 1, queries}, std::log(static_cast<double>(keys)))},
           {"dout",
            first(queries, [&](int64_t i) { return wrt == 2 ? input.value(i, queries) : 1.0; })}});
      const ExactSum want = plain_sum(input, wrt == 0 ? keys : queries);
      expect_sums(
          fmt::format("gradient {} of attention, {} queries, {} keys", wrt, queries, keys), got,
          want,
          [&](int64_t i) {
            return i % d ? 0.0 : (wrt == 1 ? sign(i / d) : 1.0) / static_cast<double>(keys);
          },
          kTileEpsilons);
    }
  }
}

TEST(KernelSums, ScatteredUpdates) {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16})
    for (const int64_t n : {320, 321, 300'007}) {
      constexpr int64_t width = 3;
      Builder b("scatter");
      b.output(op::scatter_add(b, b.input("updates", {dtype, {n, width}}),
                               b.input("at", {DType::I32, {n}}), {.axis = 0, .size = 4}));
      const SumInput& input = sum_inputs()[0];
      const Tensor updates = filled(dtype, {n, width}, [&](int64_t i) {
        return input.value(i / width, n) * scale_of(i % width, 3);
      });
      const Tensor got = run(b, {{"updates", updates}, {"at", indices(n, 2)}});
      expect_sums(fmt::format("{} updates of {}", n, dtype), got, products(dtype, input, n, 1),
                  [](int64_t i) { return i / width == 2 ? scale_of(i % width, 3) : 0.0; });
    }
}

// a = 0: the state is the sum of the inputs so far, and every step adds it to the gradient of a.
TEST(KernelSums, GradientsOfScans) {
  constexpr int64_t channels = 3, states = 2;
  for (const int64_t steps : {32, 33, 100'003}) {
    Builder b("scan");
    const Values out = b.emit(
        op::selective_scan_backward.def, Attrs(),
        Values{b.input("x", f32({1, steps, channels})), b.input("delta", f32({1, steps, channels})),
               b.input("a", f32({channels, states})), b.input("b", f32({1, steps, states})),
               b.input("c", f32({1, steps, states})), b.input("dy", f32({1, steps, channels}))});
    b.output(out[2]);
    // Only the first step puts 1 into the state, which stays; only the last one's result counts.
    // So each later step adds delta to da.
    const auto at = [&](int64_t wanted, int64_t width) {
      return filled(DType::F32, {1, steps, width},
                    [&](int64_t i) { return i / width == wanted ? 1.0 : 0.0; });
    };
    const float tenth = 0.1f;
    const Tensor got = run(b, {{"x", at(0, channels)},
                               {"delta", constant({1, steps, channels}, tenth)},
                               {"a", constant({channels, states}, 0)},
                               {"b", at(0, states)},
                               {"c", at(steps - 1, states)},
                               {"dy", at(steps - 1, channels)}});
    ExactSum want;
    for (int64_t t = 1; t < steps; ++t) add_product(want, tenth, tenth);
    expect_sums(fmt::format("gradient of a scan of {} steps", steps), got, want, one);
  }
}

}  // namespace
}  // namespace rlx::testing
