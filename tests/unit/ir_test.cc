// Programs as values: their text and what it may not ask for, dims, and the verifier.
#include <gtest/gtest.h>

#include "rlx/ir/verify.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

void expect_error(const std::string& code, const std::string& message,
                  const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << "no error " << code;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
  }
}

std::string constant_text(const std::string& type, const std::string& value) {
  return fmt::format(
      "graph @\"g\" {{\n  %0 = constant() {{value={}[1]{{{}}}}} : [1] {}\n  return %0\n}}\n", type,
      value, type);
}

Tensor constant(const std::string& type, const std::string& value) {
  return parse(constant_text(type, value)).nodes[0].get<ConstantAttrs>().value;
}

TEST(TensorText, NumbersThatDoNotFitAreErrors) {
  for (auto [type, value] : {std::pair{"i8", "300"},
                             {"i8", "-129"},
                             {"u8", "256"},
                             {"u32", "-1"},
                             {"i32", "2147483648"},
                             {"bool", "2"},
                             {"f32", "1e300"},
                             {"f16", "70000"},
                             {"f8e4m3fn", "465"},
                             {"f8e4m3fn", "inf"},
                             {"f8e5m2", "61440"},
                             {"bf16", "-1e39"}}) {
    SCOPED_TRACE(fmt::format("{} {}", type, value));
    expect_error("parse", fmt::format("fits in {}", type), [&] { constant(type, value); });
  }
  try {
    constant("i8", "300");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::data);
    EXPECT_EQ(e.where(), "2:32");  // of the number
  }
}

TEST(TensorText, TheLargestNumbersFit) {
  EXPECT_EQ(constant("i8", "-128").get_int(0), -128);
  EXPECT_EQ(constant("u32", "4294967295").get_int(0), 4294967295);
  EXPECT_EQ(constant("bool", "1").get_int(0), 1);
  EXPECT_EQ(constant("f16", "65504").get_float(0), 65504);
  EXPECT_EQ(constant("f32", "-inf").get_float(0), -INFINITY);
  EXPECT_TRUE(std::isnan(constant("bf16", "nan").get_float(0)));
  EXPECT_EQ(constant("f32", "1e-300").get_float(0), 0);  // rounds
}

std::string joined(int count, const std::string& separator, const std::string& format) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += (i ? separator : "") + fmt::format(fmt::runtime(format), i);
  return out;
}

std::string input_text(const std::string& shape) {
  return fmt::format("graph @\"g\" {{\n  %0 = input() {{name=\"x\", shape=[{}]}} : [{}] f32\n",
                     shape, shape);
}

// Multiplied out, 40 factors a + 1 have 2^40 terms.
TEST(Dims, ProductsOfSumsAreBounded) {
  const std::string text = input_text(joined(40, ", ", "?a{}+1")) +
                           "  %1 = reshape(%0) {shape=[-1]} : [?n] f32\n  return %1\n}\n";
  expect_error("parse", "more than 256 terms", [&] { parse(text); });
  Dim product(1);
  expect_error("dim-terms", "more than 256 terms", [&] {
    for (int i = 0; i < 40; ++i) product = product * (Dim::symbol(fmt::format("a{}", i)) + 1);
  });
}

TEST(Dims, LongSumsAndProductsAreRefusedByTheReader) {
  auto read = [](const std::string& shape) { parse(input_text(shape) + "  return %0\n}\n"); };
  expect_error("parse", "more than 256 terms", [&] { read(joined(100000, "+", "?a{}")); });
  expect_error("parse", "more than 64 symbols", [&] { read(joined(100000, "*", "?a{}")); });
  expect_error("parse", "does not fit in 64 bits", [&] { read("4294967296*4294967296"); });
  read(joined(256, "+", "?a{}"));
  read(joined(64, "*", "?a{}"));
}

TEST(Dims, ReadAsTheyPrint) {
  for (const char* text : {"?b", "2*?b+1", "-?a+?b*?c-3", "?a*?a", "12"}) {
    Lexer lex(text);
    EXPECT_EQ(Dim::read(lex).to_string(), text);
  }
  Lexer lex("?b*2+?a*?b-?b*?a+1-?b");
  EXPECT_EQ(Dim::read(lex), Dim::symbol("b") + 1);
}

TEST(Shapes, RankIsBounded) {
  Builder b("g");
  b.input("x", {DType::F32, Shape(std::vector<Dim>(64, Dim(1)))});
  expect_error("rank", "rank 65, the most is 64",
               [&] { b.input("y", {DType::F32, Shape(std::vector<Dim>(65, Dim(1)))}); });
  Graph g = b.finish();
  auto attrs = g.nodes[0].get<LeafAttrs>();
  attrs.shape.push_back(1);
  g.nodes[0].attrs = attrs;
  g.nodes[0].out[0].shape = attrs.shape;
  EXPECT_EQ(violations(g).size(), 1u);
}

TEST(Verify, UpdatesNameTheirParameters) {
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {}}), w = b.param("w", {DType::F32, {}});
  b.param("v", {DType::F32, {2}});
  b.output(x);
  Graph g = b.finish();
  auto rules = [&](std::vector<Update> updates) {
    g.updates = std::move(updates);
    std::string out;
    for (const Violation& v : violations(g)) out += v.message + "; ";
    return out;
  };
  EXPECT_EQ(rules({{"w", w}}), "");
  EXPECT_EQ(rules({{"x", w}, {"nobody", w}}),
            "there is no such parameter; there is no such parameter; ");
  EXPECT_EQ(rules({{"v", w}}), "[2] f32 written with [] f32; ");
  EXPECT_EQ(rules({{"w", w}, {"w", x}}), "written twice; ");
}

}  // namespace
}  // namespace rlx
