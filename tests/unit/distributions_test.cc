// Distributions, drawn on the CPU with fixed keys, against what they promise: Kolmogorov-Smirnov
// distances, chi-square statistics and moments; keys derived from keys; sampling of tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "rlx/base/philox.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/ops/rules.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

constexpr int64_t kDraws = 20000;

using Doubles = std::vector<double>;
using Body = std::function<Value(Builder&, Value key)>;

Tensor key_of(uint32_t seed) { return Tensor::from<uint32_t>({2}, {seed, 77}); }

Doubles numbers(const Tensor& t) {
  Doubles out;
  for (int64_t i = 0; i < t.elements(); ++i) out.push_back(t.get_float(i));
  return out;
}

Graph graph_of(const Body& body, const Type& key = {DType::U32, {2}}) {
  Builder b("draw");
  b.output(body(b, b.input("key", key)));
  return b.finish();
}
Tensor run(const Graph& g, const Tensor& key, int threads = 2) {
  return Session("cpu").compile(g, {.threads = threads}).run(NamedTensors{{"key", key}})[0];
}
Doubles draw(const Body& body, uint32_t seed = 1) {
  return numbers(run(graph_of(body), key_of(seed)));
}

Value scalar(Builder& b, double v) { return b.constant(DType::F32, v); }

double mean_of(const Doubles& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}
double variance_of(const Doubles& x) {
  const double mean = mean_of(x);
  double sum = 0;
  for (double v : x) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(x.size());
}

// sqrt(n) times the largest distance between the distribution functions; above 1.95 once in a
// thousand.
double kolmogorov(Doubles x, const std::function<double(double)>& below) {
  std::sort(x.begin(), x.end());
  const auto n = static_cast<double>(x.size());
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double f = below(x[i]), k = static_cast<double>(i);
    most = std::max({most, f - k / n, (k + 1) / n - f});
  }
  return most * std::sqrt(n);
}

// Pearson's statistic of counts against probabilities, as distance from its mean in standard
// deviations.
double chi_square(const Doubles& counts, const Doubles& probabilities) {
  const double n = std::accumulate(counts.begin(), counts.end(), 0.0);
  double statistic = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = n * probabilities[i];
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  const auto freedom = static_cast<double>(counts.size() - 1);
  return std::fabs(statistic - freedom) / std::sqrt(2 * freedom);
}
constexpr double kDeviations = 4;

double normal_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// The regularised incomplete gamma function by its series.
double gamma_below(double a, double x) {
  double term = 1 / a, sum = term;
  for (int n = 1; n < 2000; ++n) sum += term *= x / (a + n);
  return sum * std::exp(a * std::log(x) - x - std::lgamma(a));
}

TEST(Distributions, StandardOnes) {
  for (DType d : {DType::F32, DType::F64}) {
    const RandomAttrs attrs{d, {kDraws}};
    EXPECT_LT(
        kolmogorov(draw([&](Builder& b, Value k) { return op::random_exponential(b, k, attrs); }),
                   [](double x) { return 1 - std::exp(-x); }),
        1.95);
    EXPECT_LT(kolmogorov(draw([&](Builder& b, Value k) { return op::random_gumbel(b, k, attrs); }),
                         [](double x) { return std::exp(-std::exp(-x)); }),
              1.95);
    EXPECT_LT(kolmogorov(draw([&](Builder& b, Value k) { return op::random_laplace(b, k, attrs); }),
                         [](double x) { return x < 0 ? std::exp(x) / 2 : 1 - std::exp(-x) / 2; }),
              1.95);
    EXPECT_LT(kolmogorov(draw([&](Builder& b, Value k) { return op::random_normal(b, k, attrs); }),
                         normal_below),
              1.95);
    EXPECT_LT(kolmogorov(draw([&](Builder& b, Value k) { return op::random_uniform(b, k, attrs); }),
                         [](double x) { return x; }),
              1.95);
  }
}

TEST(Distributions, TruncatedNormal) {
  const std::pair<double, double> bounds[] = {
      {-2, 2}, {0.5, 1}, {-INFINITY, -1}, {3, INFINITY}, {-INFINITY, INFINITY}, {6, 7}};
  for (const auto& [lower, upper] : bounds) {
    const TruncatedNormalAttrs attrs{DType::F64, {kDraws}, lower, upper};
    const Doubles x =
        draw([&](Builder& b, Value k) { return op::random_truncated_normal(b, k, attrs); });
    for (double v : x) ASSERT_TRUE(v >= lower && v <= upper) << v;
    // In the upper tail the probabilities of the mirrored numbers have digits.
    auto tail = [](double v) { return 0.5 * std::erfc(v / std::sqrt(2.0)); };
    const double l = lower, u = upper;
    EXPECT_LT(kolmogorov(x, [&](double v) { return (tail(l) - tail(v)) / (tail(l) - tail(u)); }),
              1.95)
        << lower;
  }
}

TEST(Distributions, Gamma) {
  for (double alpha : {0.1, 0.7, 1.0, 2.5, 30.0}) {
    for (bool log : {false, true}) {
      Doubles x = draw([&](Builder& b, Value k) {
        return op::random_gamma(b, k, b.constant(DType::F64, alpha), {{kDraws}, log});
      });
      if (log)
        for (double& v : x) v = std::exp(v);
      EXPECT_LT(kolmogorov(x, [&](double v) { return gamma_below(alpha, v); }), 1.95) << alpha;
    }
  }
  const Doubles tiny = draw(
      [](Builder& b, Value k) { return op::random_gamma(b, k, scalar(b, 1e-3), {{100}, true}); });
  for (double v : tiny) EXPECT_TRUE(std::isfinite(v));
  const Doubles special = draw([](Builder& b, Value k) {
    return op::random_gamma(b, k, b.constant(Tensor::from<float>({3}, {0, -1, NAN})), {{3}});
  });
  EXPECT_EQ(special[0], 0);
  EXPECT_TRUE(std::isnan(special[1]) && std::isnan(special[2]));
}

// E[x] = alpha and E[x^2] = alpha^2 + alpha: the means of the derivatives are theirs by alpha.
TEST(Distributions, GammaMovesWithItsParameter) {
  for (double alpha : {0.4, 3.0, 50.0}) {
    Builder b("slope");
    const Value k = b.input("key", {DType::U32, {2}}), a = b.constant(DType::F64, alpha);
    const Value x = op::random_gamma(b, k, a, {{kDraws}});
    const Value each = broadcast_to(b, a, Shape{kDraws});
    b.output(x);
    b.output(op::random_gamma_grad(b, each, x));
    const Tensors out =
        Session("cpu").compile(b.finish(), {}).run(NamedTensors{{"key", key_of(4)}});
    const Doubles values = numbers(out[0]), slopes = numbers(out[1]);
    Doubles squares;
    for (size_t i = 0; i < values.size(); ++i) squares.push_back(2 * values[i] * slopes[i]);
    EXPECT_NEAR(mean_of(slopes), 1, 4 * std::sqrt(variance_of(slopes) / kDraws)) << alpha;
    EXPECT_NEAR(mean_of(squares), 2 * alpha + 1, 4 * std::sqrt(variance_of(squares) / kDraws));
  }
}

TEST(Distributions, BetaAndDirichlet) {
  const Doubles x = draw([](Builder& b, Value k) {
    return op::random_beta(b, k, scalar(b, 2), scalar(b, 5), {{kDraws}});
  });
  EXPECT_NEAR(mean_of(x), 2.0 / 7, 4 * std::sqrt(10.0 / 392 / kDraws));
  EXPECT_NEAR(variance_of(x), 10.0 / 392, 1e-3);
  const Doubles y = draw([](Builder& b, Value k) {
    const Value alpha = b.constant(Tensor::from<float>({3}, {0.5, 1, 2.5}));
    return op::random_dirichlet(b, k, alpha, {{kDraws, 3}});
  });
  double means[3] = {};
  for (size_t i = 0; i < y.size(); i += 3) {
    ASSERT_NEAR(y[i] + y[i + 1] + y[i + 2], 1, 1e-6);
    for (size_t j = 0; j < 3; ++j) means[j] += y[i + j] / kDraws;
  }
  EXPECT_NEAR(means[0], 0.125, 0.006);
  EXPECT_NEAR(means[1], 0.25, 0.008);
  EXPECT_NEAR(means[2], 0.625, 0.009);
}

TEST(Distributions, Poisson) {
  for (double rate : {0.0, 0.3, 4.0, 9.9, 10.0, 42.0}) {
    const Doubles x = draw(
        [&](Builder& b, Value k) { return op::random_poisson(b, k, scalar(b, rate), {{kDraws}}); });
    const auto bins = static_cast<size_t>(rate + 3 * std::sqrt(rate)) + 2;
    Doubles counts(bins), probabilities(bins);
    for (double v : x) ++counts[std::min(static_cast<size_t>(v), bins - 1)];
    const float exact = static_cast<float>(rate);
    double left = 1;
    for (size_t k = 0; k + 1 < bins; ++k) {
      const auto count = static_cast<double>(k);
      probabilities[k] =
          rate == 0 ? k == 0
                    : std::exp(count * std::log(double{exact}) - exact - std::lgamma(count + 1));
      left -= probabilities[k];
    }
    probabilities.back() = std::max(left, 1e-12);
    EXPECT_NEAR(mean_of(x), rate, 4 * std::sqrt(rate / kDraws)) << rate;
    // Bins of the lower tail that expect less than five are left to the mean.
    size_t first = 0;
    while (first + 2 < bins && probabilities[first] * kDraws < 5) ++first;
    Doubles c(counts.begin() + static_cast<long>(first), counts.end()),
        p(probabilities.begin() + static_cast<long>(first), probabilities.end());
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& v : p) v /= total;
    if (rate > 0) {
      EXPECT_LT(chi_square(c, p), kDeviations) << rate;
    }
  }
}

TEST(Distributions, Bernoulli) {
  for (double p : {0.0, 0.1, 0.5, 1.0}) {
    const Doubles x = draw(
        [&](Builder& b, Value k) { return op::random_bernoulli(b, k, scalar(b, p), {{kDraws}}); });
    EXPECT_NEAR(mean_of(x), p, 4 * std::sqrt(p * (1 - p) / kDraws) + 1e-12);
  }
}

TEST(Distributions, Categorical) {
  const Doubles probabilities = {0.05, 0.6, 0.1, 0.25};
  const Doubles x = draw([&](Builder& b, Value k) {
    std::vector<float> logits;
    for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
    return op::random_categorical(b, k, b.constant(Tensor::from<float>({4}, logits)), {{kDraws}});
  });
  Doubles counts(4);
  for (double v : x) ++counts[static_cast<size_t>(v)];
  EXPECT_LT(chi_square(counts, probabilities), kDeviations);
}

TEST(Distributions, Randint) {
  const Doubles x = draw(
      [](Builder& b, Value k) { return op::random_randint(b, k, {DType::I16, {kDraws}, -3, 8}); });
  Doubles counts(11);
  for (double v : x) {
    ASSERT_TRUE(v >= -3 && v < 8);
    ++counts[static_cast<size_t>(v + 3)];
  }
  EXPECT_LT(chi_square(counts, Doubles(11, 1.0 / 11)), kDeviations);
  const Doubles wide = draw([](Builder& b, Value k) {
    return op::random_randint(
        b, k, {DType::I64, {kDraws}, 5'000'000'000, 5'000'000'000 + (int64_t{1} << 31)});
  });
  EXPECT_LT(kolmogorov(wide, [](double v) { return (v - 5e9) / 0x1p31; }), 1.95);
}

TEST(Distributions, PermutationsAreAllEquallyLikely) {
  const Graph g = graph_of([](Builder& b, Value k) {
    return op::random_permutation(b, op::random_split(b, k, {kDraws}), {4});
  });
  const Doubles x = numbers(run(g, key_of(5)));
  std::map<Doubles, double> counts;
  for (size_t i = 0; i < x.size(); i += 4)
    ++counts[Doubles(x.begin() + static_cast<long>(i), x.begin() + static_cast<long>(i) + 4)];
  ASSERT_EQ(counts.size(), 24u);
  Doubles each;
  for (const auto& [order, count] : counts) each.push_back(count);
  EXPECT_LT(chi_square(each, Doubles(24, 1.0 / 24)), kDeviations);
  const Doubles large =
      draw([](Builder& b, Value k) { return op::random_permutation(b, k, {1000}); });
  EXPECT_EQ(std::set<double>(large.begin(), large.end()).size(), 1000u);
}

TEST(Keys, DerivedKeysAreDistinctAndIndependent) {
  const Tensor split =
      run(graph_of([](Builder& b, Value k) { return op::random_split(b, k, {500}); }), key_of(1));
  const Tensor folded =
      run(graph_of([](Builder& b, Value k) {
            return op::random_fold_in(b, k, op::iota(b, {}, {DType::I32, {500}, 0}));
          }),
          key_of(1));
  std::set<std::pair<int64_t, int64_t>> seen;
  for (const Tensor& t : {split, folded})
    for (int64_t i = 0; i < 500; ++i) seen.insert({t.get_int(2 * i), t.get_int(2 * i + 1)});
  EXPECT_EQ(seen.size(), 1000u);
  // Neighbouring seeds and integers do not meet: (seed, i + 1) is not (seed + 1, i).
  const Tensor next =
      run(graph_of([](Builder& b, Value k) {
            return op::random_fold_in(b, k, op::iota(b, {}, {DType::I32, {500}, 0}));
          }),
          key_of(2));
  for (int64_t i = 0; i < 500; ++i)
    EXPECT_FALSE(seen.contains({next.get_int(2 * i), next.get_int(2 * i + 1)}));
  // The first number of every key's stream is uniform.
  const Doubles u =
      numbers(run(graph_of([](Builder& b, Value k) {
                    return op::random_uniform(b, op::random_split(b, k, {5000}), {DType::F32, {}});
                  }),
                  key_of(9)));
  EXPECT_LT(kolmogorov(u, [](double x) { return x; }), 1.95);
}

TEST(Keys, ThreadsAndBackendsGiveTheSame) {
  const Graph g = graph_of([](Builder& b, Value k) {
    const Value rate = b.constant(Tensor::from<float>({2, 1}, {3, 30}));
    return op::add(b, op::random_gamma(b, k, rate, {{2, 3000}}),
                   op::random_poisson(b, k, rate, {{2, 3000}}));
  });
  const Tensor one = run(g, key_of(3), 1);
  EXPECT_TRUE(one.same_bits(run(g, key_of(3), 3)));
  const Tensor reference = evaluate(g, Tensors{key_of(3)})[0];
  for (int64_t i = 0; i < one.elements(); ++i)
    EXPECT_NEAR(one.get_float(i), reference.get_float(i), 1e-5 * (1 + reference.get_float(i)));
}

// ---- sampling

Doubles tokens(const Tensor& logits, const SampleAttrs& attrs, std::optional<Tensor> key = {}) {
  Builder b("sample");
  Values in = {b.input("logits", logits.type())};
  NamedTensors leaves{{"logits", logits}};
  if (key) in.push_back(b.input("key", key->type())), leaves["key"] = *key;
  b.output(b.emit(*&op::sample, attrs, in)[0]);
  return numbers(Session("cpu").compile(b.finish(), {}).run(leaves)[0]);
}

// `rows` copies of the same logits.
Tensor repeated(const std::vector<float>& row, int64_t rows) {
  std::vector<float> all;
  for (int64_t i = 0; i < rows; ++i) all.insert(all.end(), row.begin(), row.end());
  return Tensor::from<float>({rows, static_cast<int64_t>(row.size())}, all);
}

TEST(Sample, FollowsTheSoftmax) {
  const std::vector<float> row = {0.5f, -1, 2, 0};
  Doubles p, counts(4);
  double total = 0;
  for (float l : row) total += std::exp(l / 0.8);
  for (float l : row) p.push_back(std::exp(l / 0.8) / total);
  for (double t : tokens(repeated(row, kDraws), {.temperature = 0.8, .seed = 4}))
    ++counts[static_cast<size_t>(t)];
  EXPECT_LT(chi_square(counts, p), kDeviations);
}

std::set<double> drawn(const std::vector<float>& row, const SampleAttrs& attrs) {
  const Doubles t = tokens(repeated(row, 4000), attrs);
  return {t.begin(), t.end()};
}

TEST(Sample, Filters) {
  const std::vector<float> row = {1, 3, 2, 3, 0};
  EXPECT_EQ(drawn(row, {.seed = 1}), (std::set<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(drawn(row, {.top_k = 3, .seed = 1}), (std::set<double>{1, 2, 3}));
  EXPECT_EQ(drawn(row, {.top_k = 1, .seed = 1}), (std::set<double>{1, 3}));  // ties survive
  EXPECT_EQ(drawn(row, {.top_k = 5, .seed = 1}), (std::set<double>{0, 1, 2, 3, 4}));
  // softmax: 0.054, 0.396, 0.146, 0.396, 0.02: the first of the equal ones comes first.
  EXPECT_EQ(drawn(row, {.top_p = 0.3, .seed = 1}), (std::set<double>{1}));
  EXPECT_EQ(drawn(row, {.top_p = 0.5, .seed = 1}), (std::set<double>{1, 3}));
  EXPECT_EQ(drawn(row, {.top_p = 0.8, .seed = 1}), (std::set<double>{1, 2, 3}));
  EXPECT_EQ(drawn(row, {.top_k = 3, .top_p = 0.5, .seed = 1}), (std::set<double>{1, 3}));
  EXPECT_EQ(drawn({1, 5, 2}, {.temperature = 0, .seed = 1}), (std::set<double>{1}));
}

// Row i takes element i of the stream of the seed.
TEST(Sample, DrawsAreTheSpecifiedOnes) {
  const Doubles t = tokens(repeated({0, 0, 0, 0}, 8), {.seed = 42});
  for (int64_t i = 0; i < 8; ++i) {
    const PhiloxBlock block =
        philox4x32(philox_key(42), philox_counter(static_cast<uint64_t>(i / 4)));
    EXPECT_EQ(t[static_cast<size_t>(i)],
              std::ceil(philox_uniform(block[static_cast<size_t>(i % 4)]) * 4) - 1)
        << i;
  }
}

TEST(Sample, SeedsAndKeys) {
  const Tensor logits = repeated({0, 0, 0, 0, 0, 0, 0, 0}, 64);
  EXPECT_EQ(tokens(logits, {.seed = 5}), tokens(logits, {.seed = 5}));
  EXPECT_NE(tokens(logits, {.seed = 5}), tokens(logits, {.seed = 6}));
  EXPECT_NE(tokens(logits, {}), tokens(logits, {}));  // seed 0: the next of a counter
  EXPECT_EQ(tokens(logits, {}, Tensor::from<uint32_t>({2}, {5, 0})), tokens(logits, {.seed = 5}));
  Builder b("sample");
  const Value y = op::sample(b, b.input("x", {DType::F32, {3}}));
  EXPECT_NE(b.node(y).get<SampleAttrs>().seed, 0);
}

}  // namespace
}  // namespace rlx
