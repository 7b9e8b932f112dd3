// Golden values against the reference evaluator, and the comparison itself.
#include "../support/golden.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rlx::testing {
namespace {

TEST(Golden, ReferenceEvaluator) {
  const GoldenReport report =
      run_golden([](const Graph& g, const Tensors& in) { return evaluate(g, in); });
  EXPECT_TRUE(is_filtered() || report.samples > 1000);
  EXPECT_TRUE(report.clean()) << report.text();
}

TEST(Golden, WrongResultsAreFound) {
  const GoldenReport report = run_golden([](const Graph& g, const Tensors& in) {
    Tensors out = evaluate(g, in);
    if (g.nodes.back().op == &op::add && out[0].elements() && is_float(out[0].dtype()))
      out[0].set_float(0, out[0].get_float(0) * 1.5 + 1);
    return out;
  });
  EXPECT_TRUE(is_filtered() || report.mismatches.contains("add"));
}

TEST(Golden, OneBadSampleDoesNotSpoilItsBatch) {
  const auto j = [](const char* dtype, const char* want) {
    const std::string one =
        fmt::format(R"({{"dtype": "{}", "shape": [1], "data": "{}"}})", dtype, want);
    return Json::parse(fmt::format(
        R"({{"id": "neg", "op": "neg", "attrs": {{}}, "inputs": [{0}], "outputs": [{0}],
             "tol": [{{"rel": 0, "abs": 0, "any_zero": true}}]}})",
        one));
  };
  const auto run = [](const Graph& g, const Tensors& in) { return evaluate(g, in); };
  // -0 is 0, -1 is not 1, and there is no neg of bool.
  const std::vector<std::string> wrong =
      GoldenBatch{{j("i8", "00"), j("i8", "01"), j("bool", "01")}}.run(run);
  ASSERT_EQ(wrong.size(), 3u);
  EXPECT_EQ(wrong[0], "");
  EXPECT_NE(wrong[1].find("element 0"), std::string::npos) << wrong[1];
  EXPECT_NE(wrong[2].find("dtype"), std::string::npos) << wrong[2];
}

TEST(Golden, Comparison) {
  const double nan = std::nan(""), inf = INFINITY;
  EXPECT_TRUE(accept_real(nan, nan, {}));
  EXPECT_FALSE(accept_real(nan, 1, {1, 1}));
  EXPECT_FALSE(accept_real(inf, -inf, {1, 1}));
  EXPECT_FALSE(accept_real(1, inf, {1, 1}));
  EXPECT_FALSE(accept_real(0.0, -0.0, {}));
  EXPECT_TRUE(accept_real(0.0, -0.0, {.any_zero = true}));
  EXPECT_FALSE(accept_real(-0.0, 0.0, {.rel = 1, .abs = 1, .signed_zero = true}));
  EXPECT_FALSE(accept_real(1e-30, 0.0, {.rel = 1, .abs = 1, .signed_zero = true}));
  EXPECT_TRUE(accept_real(1.0 + 1e-7, 1, {.rel = 1e-6}));
  EXPECT_FALSE(accept_real(1.0 + 1e-5, 1, {.rel = 1e-6}));
}

}  // namespace
}  // namespace rlx::testing
