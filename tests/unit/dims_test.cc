// Sizes with quotients, and bind_checked: what a program for all sizes must hold for some.
#include <gtest/gtest.h>

#include <random>

#include "../support/expect_error.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

Dim read(std::string_view text) {
  Lexer lex(text);
  Dim d = Dim::read(lex);
  EXPECT_TRUE(lex.done()) << text;
  return d;
}

const Dim n = Dim::symbol("n"), m = Dim::symbol("m");

// ---- quotients

TEST(Quotients, AreNormalised) {
  for (const auto& [quotient, text] : std::vector<std::pair<Dim, std::string>>{
           {floor_div(n, 1), "?n"},
           {floor_div(4 * n + 6, 2), "2*?n+3"},
           {floor_div(n, 2), "floor(?n/2)"},
           {floor_div(n - 1, 2), "floor((?n+1)/2)-1"},
           {floor_div(3 * n + 5, 2), "?n+floor((?n+1)/2)+2"},
           {floor_div(-1 * n, 2), "-?n+floor(?n/2)"},
           {floor_div(2 * n + 3, 4), "floor((?n+1)/2)"},
           {floor_div(2 * n + 1, 2), "?n"},
           {floor_div(floor_div(n + 1, 2) + 1, 2), "floor((?n+3)/4)"},
           {floor_div(floor_div(n, 2) + m, 3), "floor((2*?m+?n)/6)"},
           {ceil_div(n, 2), "floor((?n+1)/2)"},
           {floor_mod(n, 2), "?n-2*floor(?n/2)"},
           {floor_mod(4 * n + 7, 4), "3"},
           {n * floor_div(m, 2) - n, "-?n+?n*floor(?m/2)"},
           {floor_div(n * m, 3) * 2, "2*floor(?m*?n/3)"},
           {floor_div(Dim(-7), 2), "-4"},
           {floor_div(Dim(7), 2), "3"},
       }) {
    EXPECT_EQ(quotient.to_string(), text);
    EXPECT_EQ(read(text), quotient) << text;
    EXPECT_EQ(read(text).hash(), quotient.hash());
  }
  EXPECT_EQ(floor_div(n, 2), floor_div(n, 2));
  EXPECT_FALSE(floor_div(n, 2) == floor_div(n, 3));
  EXPECT_FALSE(floor_div(n, 2) == floor_div(m, 2));
  EXPECT_FALSE(floor_div(n, 2) == n);
  EXPECT_EQ(floor_div(n, 2) * 2 - floor_div(n, 2), floor_div(n, 2));
  EXPECT_EQ((6 * floor_div(n, 2)).divide(3), 2 * floor_div(n, 2));
  EXPECT_EQ((m * floor_div(n, 2)).divide(floor_div(n, 2)), m);
  std::vector<std::string> names;
  (m + floor_div(n * m, 3)).collect_symbols(names);
  EXPECT_EQ(names, (std::vector<std::string>{"m", "n"}));
}

TEST(Quotients, ReadAsTheyAreWritten) {
  EXPECT_EQ(read("floor( ( 4*?n+?m+5 ) / 2 )"), read("2*?n+floor((?m+1)/2)+2"));
  EXPECT_EQ(read("2*floor(?n/2)*?m"), 2 * m * floor_div(n, 2));
  EXPECT_EQ(read("floor(7/2)"), Dim(3));
  expect_error("parse", "stands in brackets", [] { read("floor(?n+1/2)"); });
  expect_error("parse", "cannot be divided by 0", [] { read("floor(?n/0)"); });
  expect_error("parse", "cannot be divided by -2", [] { read("floor(?n/-2)"); });
  expect_error("parse", "expected '/'", [] { read("floor(?n)"); });
  expect_error("dim-division", "divided by 0", [] { floor_div(n, 0); });
}

// Each level has two quotients, so that they do not become one.
TEST(Quotients, NestingIsBounded) {
  Dim d = n;
  expect_error("dim-terms", "quotients in each other", [&] {
    for (int i = 0; i < 100; ++i) {
      d = floor_div(d * m, 3);
      EXPECT_EQ(read(d.to_string()), d);
    }
  });
  std::string deep = "?n", brackets;
  for (int i = 0; i < 100; ++i) deep = "floor(" + deep + "*?m/3)";
  expect_error("parse", "nested too deeply", [&] { read(deep); });
  for (int i = 0; i < 100000; ++i) brackets += "floor((";
  expect_error("parse", "nested too deeply", [&] { read(brackets); });
  Dim wide = 1;
  expect_error("dim-terms", "", [&] {
    for (int i = 0; i < 40; ++i)
      wide = floor_div(wide * (Dim::symbol(fmt::format("a{}", i)) + floor_div(wide, 2)), 3);
  });
}

// What the same operations on numbers give, at many sizes; text and bytes give the dim back.
TEST(Quotients, MeanWhatTheySay) {
  std::mt19937 random(7);
  auto below = [&](int k) { return static_cast<int64_t>(random() % static_cast<unsigned>(k)); };
  for (int round = 0; round < 2000; ++round) {
    const DimBinding sizes[] = {{{"n", below(50)}, {"m", below(50)}}, {{"n", 0}, {"m", 1}}};
    std::vector<Dim> dims{n, m, Dim(below(9) - 4)};
    std::vector<std::array<int64_t, 2>> values;
    for (const Dim& d : dims)
      values.push_back({d.bind(sizes[0]).value(), d.bind(sizes[1]).value()});
    for (int step = 0; step < 5; ++step) {
      const size_t i = random() % dims.size(), j = random() % dims.size();
      const int64_t k = 1 + below(6);
      const int64_t kind = below(5);
      const auto apply = [&](auto a, auto b, auto floor) {
        return kind == 0 ? a + b : kind == 1 ? a - b : kind == 2 ? a * b : floor(a + k - 3, k);
      };
      const auto floor = [](int64_t a, int64_t b) {
        return static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
      };
      Dim next = 0;
      try {
        next = apply(dims[i], dims[j], [](const Dim& a, int64_t b) { return floor_div(a, b); });
      } catch (const Error& e) {
        ASSERT_TRUE(e.code() == "dim-terms" || e.code() == "size-overflow") << e.what();
        break;
      }
      dims.push_back(next);
      values.push_back({});
      for (size_t s = 0; s < 2; ++s) {
        values.back()[s] = apply(values[i][s], values[j][s], floor);
        ASSERT_EQ(next.bind(sizes[s]), Dim(values.back()[s])) << next.to_string();
        DimValues known(sizes[s]);
        ASSERT_EQ(known(next), values.back()[s]) << next.to_string();
        ASSERT_EQ(next.bind({{"n", sizes[s].at("n")}}).bind(sizes[s]), Dim(values.back()[s]));
      }
      ASSERT_EQ(read(next.to_string()), next);
      ByteWriter w;
      Codec<Dim>::write(w, next);
      ByteReader r(w.out, "dim");
      Dim loaded;
      Codec<Dim>::load(r, loaded);
      ASSERT_EQ(loaded, next);
    }
  }
}

TEST(Quotients, StandInGraphs) {
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {n, 3 * m}});
  b.output(op::slice(b, x, {{0, 1}, {}, {2, 3}}));
  const Graph g = b.finish();
  EXPECT_EQ(g.output_types()[0].shape.to_string(), "[floor((?n+1)/2), ?m]");
  EXPECT_EQ(parse(print(g)), g);
  EXPECT_EQ(from_bytes(to_bytes(g)), g);
  EXPECT_EQ(bind(g, {{"n", 5}, {"m", 2}}).output_types()[0].shape, (Shape{3, 2}));
}

// ---- bind_checked

Graph binary(const OpDef& op, const Shape& a, const Shape& b) {
  Builder builder("g");
  const Value x = builder.input("x", {DType::F32, a}), y = builder.input("y", {DType::F32, b});
  builder.output(builder.emit(op, Attrs(op.attr_type, op.attr_type->make()), Values{x, y})[0]);
  return builder.finish();
}

// A bound is one at every size that the hints allow; where the polynomial only grows, it is the least of them.
TEST(SizeBounds, HoldForAllSizesOfTheHints) {
  std::mt19937_64 random(5);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  int unknown = 0;
  for (int trial = 0; trial < 300; ++trial) {
    SizeHints hints;
    for (const char* name : {"n", "m"}) {
      const int64_t min = draw(0, 9), multiple_of = draw(1, 4);
      hints[name] = {min, draw(min, 20) / multiple_of * multiple_of + multiple_of, multiple_of};
    }
    const bool grows = trial % 2;
    const auto coefficient = [&] { return draw(grows ? 0 : -5, 5); };
    const Dim d = Dim(coefficient()) * n + Dim(coefficient()) * m * n + Dim(draw(-50, 50)) +
                  Dim(coefficient()) * floor_div(Dim(draw(1, 3)) * n + Dim(draw(0, 4)) * m, 3);
    int64_t least = INT64_MAX;
    for (int64_t i = 1; i <= hints["n"].max; ++i)
      for (int64_t j = 1; j <= hints["m"].max; ++j)
        if (hints["n"].allows(i) && hints["m"].allows(j))
          least = std::min(least, d.bind({{"n", i}, {"m", j}}).value());
    const auto bound = d.least(hints);
    ASSERT_TRUE(bound) << d.to_string();
    EXPECT_LE(*bound, least) << d.to_string();
    if (grows && hints["n"].min > 0 && hints["m"].min > 0) {
      EXPECT_EQ(*bound, least) << d.to_string();
    }
    if (!grows) unknown += !d.least();
  }
  EXPECT_GT(unknown, 50);  // without hints
}

TEST(BindChecked, IsBindWhereAllHolds) {
  const Graph g = binary(op::add.def, {n, 2 * m}, {n, 1});
  for (int64_t size : {0, 1, 2, 7}) {
    const DimBinding sizes{{"n", size}, {"m", 3}};
    EXPECT_EQ(bind_checked(g, sizes), bind(g, sizes));
  }
  const Graph wide = binary(op::add.def, {n}, {m});
  EXPECT_EQ(bind_checked(wide, {{"n", 5}, {"m", 1}}).output_types()[0].shape, (Shape{5}));
  EXPECT_EQ(bind_checked(wide, {{"n", 5}, {"m", 5}, {"k", 3}}).output_types()[0].shape, (Shape{5}));
}

TEST(BindChecked, NamesWhatIsAtOdds) {
  const auto refuses = [](const Graph& g, const DimBinding& sizes, std::string_view part) {
    expect_error("dim-guard", part, [&] { bind_checked(g, sizes); });
  };
  const Graph add = binary(op::add.def, {n}, {m});
  refuses(add, {{"n", 5}, {"m", 7}},
          "add: ?n = 5 and ?m = 7 must be equal: the shapes do not broadcast");
  // Inference said ?n; the result would be [5].
  refuses(add, {{"n", 1}, {"m", 5}}, "add: ?n = 1 and ?m = 5 must be equal: the result is [5] f32");
  refuses(binary(op::matmul.def, {3, n}, {m, 4}), {{"n", 5}, {"m", 7}},
          "matmul: ?n = 5 and ?m = 7 must be equal");
  refuses(binary(op::add.def, {2 * n}, {m}), {{"n", 5}, {"m", 7}},
          "add: 2*?n = 10 and ?m = 7 must be equal");
  refuses(binary(op::add.def, {n}, {4}), {{"n", 5}}, "add: ?n = 5 must be 4");
  refuses(binary(op::add.def, {2 * n}, {4 * m + 1}), {{"n", 5}, {"m", 1}},
          "add: not for ?n = 5, ?m = 1: the shapes do not broadcast");
  expect_error("unbound-dim", "?m is not given", [&] { bind_checked(add, {{"n", 5}}); });
  expect_error("bind-size", "?n cannot be -1", [&] { bind_checked(add, {{"n", -1}}); });
}

TEST(BindChecked, NoSizeIsNegative) {
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {n}});
  b.output(op::slice(b, x, {{2}, {n}, {}}));
  b.output(op::broadcast(b, b.constant(DType::F32, 1), {{n - 3}}));
  const Graph g = b.finish();
  EXPECT_EQ(bind_checked(g, {{"n", 3}}).output_types()[0].shape, (Shape{1}));
  expect_error("dim-guard", "?n = 2", [&] { bind_checked(g, {{"n", 2}}); });
  expect_error("dim-guard", "slice: not for ?n = 1", [&] { bind_checked(g, {{"n", 1}}); });
}

TEST(BindChecked, BodiesAreBound) {
  const Graph g = parse(R"(graph @g {
  %0 = input() {name="c", shape=[?m]} : [?m] f32
  %1 = input() {name="x", shape=[?n, ?k]} : [?n, ?k] f32
  %2 = scan(%0, %1) {length=?n, num_carries=1, num_xs=1, body=graph @step {
    %0 = input() {name="c", shape=[?m]} : [?m] f32
    %1 = input() {name="x", shape=[?k]} : [?k] f32
    %2 = add(%0, %1) : [?m] f32
    return %2
  }} : [?m] f32
  return %2
})");
  const DimBinding good{{"n", 3}, {"m", 4}, {"k", 4}};
  EXPECT_EQ(bind_checked(g, good), bind(g, good));
  EXPECT_TRUE(bind_checked(g, good).symbols().empty());
  expect_error("dim-guard", "add: ?m = 4 and ?k = 2 must be equal",
               [&] { bind_checked(g, {{"n", 3}, {"m", 4}, {"k", 2}}); });
}

// Coefficients at the end of the numbers: n = 15 q + r, 0 <= r < 15, without a product beyond them.
TEST(Dims, QuotientsOfTheSmallestNumbers) {
  const Dim n = Dim::symbol("n");
  for (const int64_t c : {INT64_MIN, INT64_MIN + 1, INT64_MIN + 14, INT64_MAX}) {
    const int64_t floor = c / 15 - (c % 15 < 0), rest = c % 15 < 0 ? c % 15 + 15 : c % 15;
    EXPECT_EQ(floor_div(n * Dim(c), 15), n * Dim(floor) + floor_div(n * Dim(rest), 15)) << c;
    EXPECT_EQ(floor_div(n + Dim(c), 15), Dim(floor) + floor_div(n + Dim(rest), 15)) << c;
  }
}

}  // namespace
}  // namespace rlx
