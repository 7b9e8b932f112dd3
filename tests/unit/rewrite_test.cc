// Patterns and the rewrite driver on rules made for the purpose.
#include "rlx/rewrite/rewrite.h"

#include <gtest/gtest.h>

#include "rlx/ir/verify.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

using namespace rule_words;

const Type kVector{DType::F32, {4}};

TEST(Pattern, CommutativeOperandsMatchInBothOrders) {
  const RuleSet rules{{"mul-two", pat(op::mul, {x, two}),
                       [](Builder& b, const Match& m) { return op::add(b, m[x], m[x]); }}};
  for (bool swapped : {false, true}) {
    Builder b("g");
    const Value v = b.input("x", kVector), k = b.constant(DType::F32, 2);
    b.output(swapped ? op::mul(b, k, v) : op::mul(b, v, k));
    EXPECT_EQ(rewrite(b.finish(), rules).nodes.back().op, &op::add);
  }
}

TEST(Pattern, RepeatedVariablesMustBeTheSameValue) {
  const RuleSet rules{{"self", pat(op::sub, {x, x}),
                       [](Builder& b, const Match& m) { return full(b, m.type(), 0); }}};
  RewriteStats stats;
  Builder b("g");
  const Value v = b.input("x", kVector), w = b.input("y", kVector);
  b.output(op::sub(b, v, w));
  b.output(op::sub(b, v, v));
  rewrite(b.finish(), rules, {}, &stats);
  EXPECT_EQ(stats.hits.at("self"), 1);
  EXPECT_EQ(stats.sweeps, 2);
}

TEST(Pattern, InnerNodesCanBeNamed) {
  const RuleSet rules{
      {"casts", pat(op::cast, {pat(op::cast, {x}).as(y)}),
       [](const Match& m) { return m.get<CastAttrs>(y).to == DType::F64; },
       [](Builder& b, const Match& m) { return cast_to(b, m[x], m.get<CastAttrs>().to); }}};
  Builder b("g");
  const Value v = b.input("x", kVector);
  b.output(op::cast(b, op::cast(b, v, {DType::F64}), {DType::F16}));
  b.output(op::cast(b, op::cast(b, v, {DType::BF16}), {DType::F16}));
  const Graph g = rewrite(b.finish(), rules);
  EXPECT_EQ(g.node(g.outputs[0]).in[0], g.inputs()[0]);
  EXPECT_NE(g.node(g.outputs[1]).in[0], g.inputs()[0]);
}

TEST(Pattern, SplatsAreSeenThroughBroadcastAndReshape) {
  Builder b("g");
  const Value all = b.constant(Tensor::from<float>({2, 2}, {3, 3, 3, 3}));
  const Value moved = op::reshape(b, op::broadcast(b, all, {{5, 2, 2}}), {{20}});
  EXPECT_EQ(splat_value(b.graph(), moved), Complex(3));
  EXPECT_FALSE(splat_value(b.graph(), b.constant(Tensor::from<float>({2}, {0.0f, -0.0f}))));
  EXPECT_FALSE(splat_value(b.graph(), b.constant(Tensor(DType::F32, {0}))));
  EXPECT_FALSE(splat_value(b.graph(), b.input("x", kVector)));
}

TEST(Driver, ChainsSettleInOneSweep) {
  const RuleSet rules{{"neg-neg", pat(op::neg, {pat(op::neg, {x})}),
                       [](Builder&, const Match& m) { return m[x]; }}};
  Builder b("g");
  Value v = b.input("x", kVector);
  for (int i = 0; i < 1000; ++i) v = op::neg(b, v);
  b.output(v);
  RewriteStats stats;
  EXPECT_EQ(rewrite(b.finish(), rules, {}, &stats).size(), 1);
  EXPECT_EQ(stats.sweeps, 2);
  EXPECT_EQ(stats.hits.at("neg-neg"), 500);
}

// The other way too: what a rule made is looked at again at once.
TEST(Driver, ChainsTowardsOperandsSettleInOneSweep) {
  const RuleSet rules{{"neg-first", pat(op::neg, {pat(op::sin, {x}).as(y)}),
                       [](const Match& m) { return m.single_use(y); },
                       [](Builder& b, const Match& m) { return op::sin(b, op::neg(b, m[x])); }}};
  for (bool shared : {false, true}) {
    Builder b("g");
    Value v = b.input("x", kVector);
    for (int i = 0; i < 1000; ++i) {
      v = op::sin(b, v);
      if (shared && i == 499) b.output(v);
    }
    b.output(op::neg(b, v));
    RewriteStats stats;
    const Graph g = rewrite(b.finish(), rules, {}, &stats);
    EXPECT_EQ(g.size(), 1002);
    EXPECT_EQ(stats.sweeps, 2);
    EXPECT_EQ(stats.hits.at("neg-first"), shared ? 500 : 1000);
    EXPECT_EQ(g.nodes[shared ? 501 : 1].op, &op::neg);
  }
}

// Who reads what is known while rules apply: what one of them left is read no longer, and what another reads twice is.
TEST(Driver, CountsReadersAsRulesApply) {
  const RuleSet rules{
      {"double", pat(op::mul, {x, two}),
       [](Builder& b, const Match& m) { return op::add(b, m[x], m[x]); }},
      {"once", pat(op::exp, {pat(op::neg, {x}).as(y)}),
       [](const Match& m) { return m.single_use(y); },
       [](Builder& b, const Match& m) { return op::reciprocal(b, op::exp(b, m[x])); }}};
  Builder b("g");
  const Value n = op::neg(b, b.input("x", kVector));
  b.output(op::mul(b, n, b.constant(DType::F32, 2)));
  b.output(op::exp(b, n));
  const Graph g = rewrite(b.finish(), rules);
  for (const Node& made : g.nodes) EXPECT_NE(made.op, &op::reciprocal);
}

// Rules without an end come to one, however much they make.
TEST(Driver, RulesThatGrowEnd) {
  const RuleSet rules{{"grow", pat(op::sin, {x}),
                       [](Builder& b, const Match& m) { return op::sin(b, op::sin(b, m[x])); }}};
  Builder b("g");
  b.output(op::sin(b, b.input("x", kVector)));
  EXPECT_THROW(rewrite(b.finish(), rules, {.max_sweeps = 8}), Error);
}

TEST(Driver, NamesTheRulesThatDoNotSettle) {
  const RuleSet rules{
      {"there", pat(op::sin, {x}), [](Builder& b, const Match& m) { return op::cos(b, m[x]); }},
      {"back", pat(op::cos, {x}), [](Builder& b, const Match& m) { return op::sin(b, m[x]); }},
      {"quiet", pat(op::tan, {x}), [](Builder&, const Match& m) { return m[x]; }},
  };
  Builder b("g");
  b.output(op::sin(b, b.input("x", kVector)));
  b.output(op::cos(b, b.graph().inputs()[0]));
  try {
    rewrite(b.finish(), rules, {.pass = "turn"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    EXPECT_EQ(e.message(), "turn: does not settle after 64 sweeps; still firing: back, there");
  }
}

TEST(Driver, StampsNewNodesAndKeepsLabels) {
  const RuleSet rules{{"square", pat(op::mul, {x, x}),
                       [](Builder& b, const Match& m) { return op::square(b, m[x]); }}};
  Builder b("g");
  const Value v = b.input("x", kVector);
  {
    Label scope(b, "layer1");
    b.output(op::exp(b, op::mul(b, v, v)));
  }
  const Graph g = rewrite(b.finish(), rules, {.pass = "demo"});
  EXPECT_EQ(g.nodes[1].origin, (Origin{"layer1", "demo"}));
  EXPECT_EQ(g.nodes[2].origin, (Origin{"layer1", ""}));
}

TEST(Driver, BroadcastsSmallerReplacementsAndRefusesOtherTypes) {
  Builder b("g");
  const Value v = b.input("x", kVector), w = b.input("y", {DType::F32, {2, 4}});
  b.output(op::add(b, v, w));
  const Graph before = b.finish();
  const RuleSet first{
      {"first", pat(op::add, {x, y}), [](Builder&, const Match& m) { return m[x]; }}};
  const Graph g = rewrite(before, first);
  EXPECT_EQ(g.nodes.back().op, &op::broadcast);
  EXPECT_EQ(g.output_types(), before.output_types());
  EXPECT_EQ(g.inputs().size(), 2u);
  const RuleSet wrong{{"wrong", pat(op::add, {x, y}),
                       [](Builder& b, const Match& m) { return op::cast(b, m[x], {DType::F64}); }}};
  try {
    rewrite(before, wrong);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "rule wrong: add [2, 4] f32 replaced by [4] f64");
  }
}

TEST(Driver, CountsReadersForConditions) {
  const RuleSet rules{
      {"once", pat(op::exp, {pat(op::neg, {x}).as(y)}),
       [](const Match& m) { return m.single_use(y); },
       [](Builder& b, const Match& m) { return op::reciprocal(b, op::exp(b, m[x])); }}};
  for (bool shared : {false, true}) {
    Builder b("g");
    const Value n = op::neg(b, b.input("x", kVector));
    b.output(op::exp(b, n));
    if (shared) b.output(n);
    RewriteStats stats;
    rewrite(b.finish(), rules, {}, &stats);
    EXPECT_EQ(stats.hits.size(), shared ? 0u : 1u);
  }
}

TEST(Rebuild, KeepsGraphsAsTheyAre) {
  Builder b("g");
  const Value v = b.input("x", kVector), w = b.param("w", kVector);
  b.output(op::add(b, v, w));
  b.update("w", op::neg(b, w));
  const Graph g = b.finish();
  Rebuild r(g);
  for (int32_t i = 0; i < r.size(); ++i) {
    EXPECT_EQ(r.node(i), g.nodes[static_cast<size_t>(i)]);
    r.keep(i);
  }
  EXPECT_FALSE(r.changed());
  EXPECT_EQ(r.finish(), g);
}

// Wherever the first change comes: what stood before it is there, and who reads what was replaced reads the new value.
TEST(Rebuild, ChangesFromAnyNodeOn) {
  Builder b("g");
  Value v = b.input("x", kVector);
  for (int i = 0; i < 4; ++i) v = op::tanh(b, op::neg(b, v));
  b.output(v);
  b.output(op::add(b, v, v));
  const Graph g = b.finish();
  for (int32_t at = 1; at < g.size(); ++at) {
    Rebuild r(g, "test");
    for (int32_t i = 0; i < r.size(); ++i) {
      const Node& n = r.node(i);
      if (i < at || n.op != g.nodes[static_cast<size_t>(at)].op) {
        r.keep(i);
        continue;
      }
      r.stamp(n);
      Builder& made = r.builder();
      // One node more than there was, so that all behind it move.
      r.replace(i, {op::neg(made, op::neg(made, made.emit(*n.op, n.attrs, n.in)[0]))});
    }
    EXPECT_TRUE(r.changed());
    const Graph changed = r.finish();
    EXPECT_GT(changed.size(), g.size());
    EXPECT_NO_THROW(verify(changed, "test"));
    const Tensor x = Tensor::from<float>({4}, std::vector<float>{0.5F, -2, 0, 1});
    const Tensors want = evaluate(g, Tensors{x}), got = evaluate(changed, Tensors{x});
    for (size_t k = 0; k < want.size(); ++k) EXPECT_TRUE(got[k].same_bits(want[k])) << at;
  }
}

}  // namespace
}  // namespace rlx
