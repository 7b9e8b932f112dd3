// random_gamma_grad over alpha from 1e-30 to 1e30 and numbers from 0 to 1e30, against tests/golden/gamma_grad.txt: it ends, is
// finite and right everywhere; and draws of extreme distributions end.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "rlx/ops/evaluate.h"
#include "rlx/ops/random/distributions.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

struct Row {
  double alpha, x, value;
};

std::vector<Row> rows() {
  std::ifstream file(RLX_SOURCE_DIR "/tests/golden/gamma_grad.txt");
  std::string line, a, x, v;
  std::getline(file, line);  // versions
  std::vector<Row> out;
  while (file >> a >> x >> v)
    out.push_back({std::strtod(a.c_str(), nullptr), std::strtod(x.c_str(), nullptr),
                   std::strtod(v.c_str(), nullptr)});
  return out;
}

struct Results {
  Tensor cpu, reference;
};

Results slopes(const std::vector<Row>& list, DType d, bool log) {
  const Ints sizes{static_cast<int64_t>(list.size())};
  Tensor alpha(d, sizes), y(d, sizes);
  for (size_t i = 0; i < list.size(); ++i) {
    alpha.set_float(static_cast<int64_t>(i), list[i].alpha);
    y.set_float(static_cast<int64_t>(i), log ? std::log(list[i].x) : list[i].x);
  }
  Builder b("slopes");
  const Value a = b.input("alpha", alpha.type()), x = b.input("x", y.type());
  b.output(op::random_gamma_grad(b, a, x, {log}));
  const Graph g = b.finish();
  return {Session("cpu").compile(g, {.threads = 1}).run({{"alpha", alpha}, {"x", y}})[0],
          evaluate(g, std::array{alpha, y})[0]};
}

TEST(GammaGrad, MatchesTheDerivativeOfTheDistribution) {
  const std::vector<Row> list = rows();
  ASSERT_GT(list.size(), 500u);
  for (DType d : {DType::F32, DType::F64}) {
    const Results r = slopes(list, d, false);
    for (size_t i = 0; i < list.size(); ++i)
      for (const Tensor* t : {&r.cpu, &r.reference}) {
        const double got = t->get_float(static_cast<int64_t>(i)), want = list[i].value;
        const double units = d == DType::F32 ? 0x1p-23 : 1e-12;
        const double least = d == DType::F32 ? 0x1p-149 : 0;
        EXPECT_LE(std::fabs(got - want), units * std::fabs(want) + least)
            << "alpha " << list[i].alpha << ", x " << list[i].x << ": " << got << ", not " << want;
      }
  }
}

// d log x / d alpha = (dx / d alpha) / x. The logarithm's last digit counts alpha times, so alpha is moderate.
TEST(GammaGrad, OfLogarithms) {
  std::vector<Row> list;
  for (const Row& r : rows())
    if (r.x > 0) list.push_back(r);
  const Results log = slopes(list, DType::F64, true);
  for (size_t i = 0; i < list.size(); ++i) {
    const double got = log.cpu.get_float(static_cast<int64_t>(i));
    EXPECT_TRUE(std::isfinite(got)) << list[i].alpha << ' ' << list[i].x;
    const double want = list[i].value / list[i].x;
    if (list[i].alpha < 1e4) {
      EXPECT_NEAR(got / want, 1, 1e-9) << list[i].alpha << ' ' << list[i].x;
    }
  }
}

TEST(GammaGrad, LimitsAndNonsense) {
  const std::vector<Row> list = {
      {INFINITY, 3, 0},  {INFINITY, INFINITY, 1}, {2, INFINITY, INFINITY}, {0, 1, NAN},
      {-1, 1, NAN},      {NAN, 1, NAN},           {1, NAN, NAN},           {1, -1, NAN},
      {1e308, 1e308, 1}, {5e-324, 0.25, INFINITY}};
  const Results r = slopes(list, DType::F64, false);
  for (size_t i = 0; i < list.size(); ++i) {
    const double got = r.cpu.get_float(static_cast<int64_t>(i)), want = list[i].value;
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(got)) << list[i].alpha << ' ' << list[i].x;
    else if (std::isinf(want))
      EXPECT_EQ(got, want) << list[i].alpha << ' ' << list[i].x;
    else
      EXPECT_NEAR(got, want, 1e-9) << list[i].alpha << ' ' << list[i].x;
  }
}

TEST(GammaGrad, DrawsOfExtremeDistributionsEnd) {
  for (double p : {1e-300, 1e-30, 1e12, 1e30, 1e300}) {
    Builder b("draws");
    const Value key = b.constant(Tensor::from<uint32_t>({2}, {3, 4})),
                v = b.constant(DType::F64, p);
    b.output(op::random_gamma(b, key, v, {{1000}}));
    b.output(op::random_poisson(b, key, v, {{1000}}));
    const Tensors out = evaluate(b.finish(), Tensors{});
    for (const Tensor& t : out)
      for (int64_t i = 0; i < t.elements(); ++i) {
        const double x = t.get_float(i);
        ASSERT_TRUE(std::isfinite(x) && x >= 0) << p;
        if (p >= 1e12) {
          ASSERT_NEAR(x / p, 1, 10 / std::sqrt(p) + 1e-12) << p;
        }
      }
  }
}

}  // namespace
}  // namespace rlx
