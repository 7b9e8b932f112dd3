// Ten shapes and more of every differentiable op: how they are made of the sample table's rows, that
// there are enough, and both derivatives at each of them. Second order and vmap have programs of their
// own (variants_second_order_test, variants_vmap_test).
#include "../support/shape_variants.h"

#include <gtest/gtest.h>

#include <iostream>

#include "../support/op_checks.h"

namespace rlx::testing {
namespace {

std::vector<std::string> made_of(const std::string& text, size_t wanted) {
  const Sample row = read_sample(text, "here:1");
  std::vector<std::string> out;
  for (const Sample& s : shape_variants({&row}, wanted).variants)
    out.push_back((s.attrs == row.attrs ? "" : s.attrs + " ") + operands_text(s));
  return out;
}

using Lines = std::vector<std::string>;

TEST(ShapeVariants, AnElementwiseOp) {
  EXPECT_EQ(made_of("add T[2, 3] T[3]", 9),
            (Lines{"T[0, 3] T[3]", "T[] T[]", "T[1, 3] T[3]", "T[2, 1] T[1]", "T[2, 0] T[0]",
                   "T[2, 2, 3] T[2, 3]", "T[2, 1] T[3]", "T[3, 3] T[3]"}));
}

TEST(ShapeVariants, SizesThatBelongTogetherChangeTogether) {
  EXPECT_EQ(made_of("matmul T[2, 3] T[3, 4]", 8),
            (Lines{"T[0, 3] T[3, 4]", "T[2, 2, 3] T[2, 3, 4]", "T[1, 3] T[3, 4]", "T[2, 1] T[1, 4]",
                   "T[2, 0] T[0, 4]", "T[2, 2, 3] T[3, 4]", "T[2, 3] T[3, 1]"}));
}

TEST(ShapeVariants, AttributesThatHoldSizesFollow) {
  EXPECT_EQ(made_of("reshape {shape=[3, 2]} T[2, 3]", 5),
            (Lines{"{shape=[3, 0]} T[0, 3]", "{shape=[]} T[]", "{shape=[3, 1]} T[1, 3]",
                   "{shape=[1, 2]} T[2, 1]"}));
}

TEST(ShapeVariants, IndicesStayInside) {
  EXPECT_EQ(made_of("gather T[4, 3] i64[5]:index<4", 6),
            (Lines{"T[4, 0] i64[5]:index<4", "T[4, 3] i64[2, 5]:index<4", "T[4, 1] i64[5]:index<4",
                   "T[1, 3] i64[5]:index<1", "T[4, 3] i64[0]:index<4"}));
}

TEST(ShapeVariants, BodiesAreResizedWithTheOperands) {
  EXPECT_EQ(made_of("scan {length=4, num_carries=1, body=graph @f {\n"
                    " %0 = input() {name=\"y\", dtype=$T, shape=[2]} : [2] $T\n"
                    " %1 = mul(%0, %0) : [2] $T\n"
                    " return %1\n"
                    "}} T[2]:unit",
                    2),
            (Lines{"{length=4, num_carries=1, body=graph @f {\n"
                   " %0 = input() {name=\"y\", dtype=$T, shape=[0]} : [0] $T\n"
                   " %1 = mul(%0, %0) : [0] $T\n"
                   " return %1\n"
                   "}} T[0]:unit"}));
}

TEST(ShapeVariants, WhatInferenceRefusesIsCounted) {
  const Sample row = read_sample("concat T[2, 3] T[1, 3]", "here:1");
  EXPECT_GT(shape_variants({&row}, kShapes).refused, 0);
}

const std::vector<Combination>& all() {
  static const std::vector<Combination> made = combinations(kShapes);
  return made;
}

// Combinations with fewer shapes, and why.
const std::map<std::string, std::string> kFewer = {
    {"einsum {equation=\",->\"}", "both operands have rank 0"},
    {"dynamic_slice {sizes=[]}", "x has rank 0"},
    {"tile {repeats=[]}", "x has rank 0"},
    {"broadcast_in_dim {shape=[2], dims=[]}", "x has rank 0"},
    {"broadcast {shape=[2]}", "x is [], [1] or [2]"},
};

struct Coverage {
  std::set<std::vector<Ints>> shapes;
  bool empty = false, scalar = false, broadcast = false;

  void add(const Sample& s) {
    shapes.insert(shapes_of(s));
    for (const OperandSpec& o : s.operands) {
      empty |= std::count(o.sizes.begin(), o.sizes.end(), 0) > 0;
      scalar |= o.sizes.empty();
      broadcast |= o.sizes != s.operands[0].sizes;
    }
  }
};

TEST(ShapeVariants, EveryDifferentiableOpHasTenShapes) {
  std::map<std::string, Coverage> ops;
  size_t variants = 0;
  int64_t refused = 0;
  for (const Combination& c : all()) {
    for (const Sample* row : c.rows) ops[c.op].add(*row);
    for (const Sample& s : c.variants) ops[c.op].add(s);
    variants += c.variants.size(), refused += c.refused;
    const std::string name = c.op + " " + c.attrs;
    EXPECT_EQ(c.rows.size() + c.variants.size() < kShapes, kFewer.contains(name)) << name;
  }
  std::vector<size_t> counts;
  size_t empty = 0, scalar = 0;
  for (const auto& [name, op] : ops) {
    counts.push_back(op.shapes.size());
    empty += op.empty, scalar += op.scalar;
    EXPECT_GE(op.shapes.size(), kShapes) << name;
    const OpDef& def = *op_table().find(name);
    if (def.kind != Kind::elementwise) continue;
    EXPECT_TRUE(op.empty && op.scalar) << name;
    EXPECT_TRUE(op.broadcast || def.arity == 1) << name;
  }
  if (ops.empty()) return;
  std::sort(counts.begin(), counts.end());
  std::cout << fmt::format(
      "{} ops, {} to {} shapes each, median {}; {} with empty ones, {} with rank 0\n"
      "{} combinations of attributes, {} variants ({} candidates refused)\n",
      ops.size(), counts.front(), counts.back(), counts[counts.size() / 2], empty, scalar,
      all().size(), variants, refused);
}

TEST(ShapeVariants, ForwardDerivativeAgainstDifferences) {
  for_each_variant(all(), [](const Case& c) {
    if (c.sample->differences) check_forward(c);
  });
}

TEST(ShapeVariants, ReverseIsTheTransposeOfForward) {
  for_each_variant(all(), [](const Case& c) { check_transpose(c); });
}

}  // namespace
}  // namespace rlx::testing
