// Graphs written in older versions of the language keep their meaning: tests/formats/version1.rlx and .rlxb were written by a
// program that knew version 1 alone; version2.rlx says the same in version 2.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "../support/expect_error.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/stages/json.h"
#include "rlx/transform/reverse.h"

namespace rlx {
namespace {

std::string contents(const std::string& name) {
  std::ifstream file(RLX_SOURCE_DIR "/tests/formats/" + name, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

TEST(Versions, OldTextAndBytesMeanWhatTheyDid) {
  const std::string now = contents("version2.rlx");
  EXPECT_EQ(print(parse(contents("version1.rlx"))), now);
  EXPECT_EQ(print(from_bytes(contents("version1.rlxb"))), now);
  EXPECT_EQ(print(parse(now)), now);
  EXPECT_EQ(print(from_bytes(to_bytes(parse(now)))), now);
}

// The transforms by their definition, so that the names cannot all be wrong together.
TEST(Versions, OldNormsHaveTheirOldValues) {
  const Graph g = parse(contents("version1.rlx"));
  Tensor x(DType::F32, {2, 8});
  for (int64_t i = 0; i < 16; ++i) x.set_float(i, static_cast<double>(i * i % 7) - 2.5);
  const Tensors y = evaluate(g, std::array{x, Tensor::full(DType::F32, {4}, 1)});
  // fft and the inverse without a norm: 4 times x. That with norm=forward divides by 4.
  const auto blocks = [](const Tensor& t, int64_t k) {
    return Complex(t.get_float(k), t.get_float(k + 4));
  };
  for (int64_t k = 0; k < 4; ++k) {
    Complex want = 0, back = 0;
    for (int64_t n = 0; n < 4; ++n) {
      const double turn = 2 * M_PI * static_cast<double>(n * k) / 4;
      want += blocks(x, n) * std::polar(1.0, -turn);
      back += 4.0 * blocks(x, n) * std::polar(0.25, turn);
    }
    EXPECT_LT(std::abs(blocks(y[0], k) - want), 1e-5) << k;
    EXPECT_LT(std::abs(blocks(y[1], k) - 4.0 * blocks(x, k)), 1e-5) << k;
    EXPECT_LT(std::abs(blocks(y[2], k) - back), 1e-5) << k;
  }
}

TEST(Versions, OldRoundIsStraightThrough) {
  const char* program = R"(graph @f {
  %0 = input() {name="x", shape=[3]} : [3] f32
  %1 = round(%0) : [3] f32
  %2 = reduce_sum(%1) {axes=[0]} : [] f32
  return %2
})";
  const Graph old = grad(parse(program), {"x"}, {.zero_missing = true});
  const Graph now =
      grad(parse(fmt::format("version 2\n{}", program)), {"x"}, {.zero_missing = true});
  const Tensor x = Tensor::from<float>({3}, {-0.6f, 0.5f, 2});
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(evaluate(old, std::array{x})[0].get_float(i), 1);
    EXPECT_EQ(evaluate(now, std::array{x})[0].get_float(i), 0);
  }
}

// A text names a version only where an older one would read it differently.
TEST(Versions, TextNamesTheLowestVersionThatWillDo) {
  Builder b("f");
  const Value x = b.input("x", {DType::F32, {4}});
  b.output(op::exp(b, x));
  EXPECT_TRUE(print(b.graph()).starts_with("graph"));
  b.output(op::fft(b, x));
  EXPECT_TRUE(print(b.graph()).starts_with("version 2\ngraph"));
}

TEST(Versions, UnknownOnesAreRefused) {
  expect_error("parse", "reads 1 to 2", [] { parse("version 3\ngraph @f {\n}\n"); });
  expect_error("parse", "reads 1 to 2", [] { parse("version 0\ngraph @f {\n}\n"); });
  const char* none = R"(graph @f {
  %0 = input() {name="x", shape=[4]} : [4] f32
  %1 = fft(%0) {norm=none} : [4] f32
})";
  expect_error("parse", "version 1", [&] { parse(none); });
}

TEST(Versions, ModulesKeepTheirs) {
  HirModule m("m");
  const HirNodeId x = m.input("x", {DType::F32, {8}});
  m.set_outputs({m.mir(AnyOp{op::fft.def, FftAttrs{.inverse = true, .norm = FftNorm::none}}, {x})});
  std::string text = hir_to_json(m);
  const HirModule same = hir_from_json(text);
  EXPECT_EQ(hir_to_json(same), text);
  // As version 1 wrote it: no norm was named.
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 1");
  const size_t norm = text.find("\"norm\": \"none\"");
  ASSERT_NE(norm, std::string::npos) << text;
  const size_t comma = text.rfind(',', norm);
  text.erase(comma, norm + 14 - comma);
  EXPECT_EQ(hir_to_json(hir_from_json(text)), hir_to_json(m));
}

}  // namespace
}  // namespace rlx
