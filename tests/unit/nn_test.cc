// Neural-network composites: values against formulas written out, gradients of the stated rules
// against those of the decompositions, and the messages for wrong operands. The sample table tests
// the rest.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "../support/expect_error.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

Tensor noise(Ints sizes, unsigned seed, DType dtype = DType::F64) {
  Tensor t(dtype, std::move(sizes));
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> draw(-1, 1);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, draw(rng));
  return t;
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance, std::string_view what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  for (int64_t i = 0; i < a.elements(); ++i)
    ASSERT_NEAR(a.get_float(i), b.get_float(i), tolerance) << what << " element " << i;
}

// ---- attention

struct Problem {
  AttentionAttrs attrs;
  Ints q, k;
};

const Problem kProblems[] = {
    {{.num_heads = 2}, {3, 4}, {3, 4}},
    {{.num_heads = 2, .mask = MaskKind::causal}, {2, 3, 4}, {2, 3, 4}},
    {{.num_heads = 2, .mask = MaskKind::causal}, {1, 2, 4}, {1, 4, 4}},
    {{.num_heads = 4, .num_kv_heads = 2, .mask = MaskKind::causal, .scale = 0.7},
     {2, 3, 8},
     {2, 3, 4}},
    {{.num_heads = 4, .num_kv_heads = 1}, {2, 4, 2, 3}, {2, 1, 3, 3}},
    {{.num_heads = 1, .mask = MaskKind::causal}, {4, 2}, {2, 2}},
};

// sum(c * out), with attention whole or as primitives.
Graph attention_loss(const Problem& p, bool whole) {
  Builder b("loss");
  const Shape q = Shape::of(p.q), k = Shape::of(p.k);
  const Values in{b.input("q", {DType::F64, q}), b.input("k", {DType::F64, k}),
                  b.input("v", {DType::F64, k})};
  const Value c = b.input("c", {DType::F64, q});
  Values out = b.emit(op::attention.def, p.attrs, in);
  if (!whole) {
    const Types types{{DType::F64, q}, {DType::F64, k}, {DType::F64, k}};
    out = b.inline_graph(decomposed(b.node(out[0]), types), in);
  }
  Ints axes;
  for (int64_t i = 0; i < q.rank(); ++i) axes.push_back(i);
  b.output(sum_axes(b, op::mul(b, out[0], c), axes));
  return drop_dead(b.finish());
}

bool uses(const Graph& g, const OpDef* op) {
  for (const Node& n : g.nodes)
    if (n.op == op) return true;
  return false;
}

NamedTensors leaves_of(const Problem& p) {
  return {{"q", noise(p.q, 1)}, {"k", noise(p.k, 2)}, {"v", noise(p.k, 3)}, {"c", noise(p.q, 4)}};
}

TEST(Attention, GradientsAreThoseOfTheDecomposition) {
  for (const Problem& p : kProblems) {
    const std::vector<std::string> wrt{"q", "k", "v"};
    const Graph whole = grad(attention_loss(p, true), wrt),
                parts = grad(attention_loss(p, false), wrt);
    EXPECT_TRUE(uses(whole, &op::attention_backward));
    const Evaluated a = evaluate(whole, leaves_of(p)), b = evaluate(parts, leaves_of(p));
    for (size_t i = 0; i < 3; ++i) expect_near(a.outputs[i], b.outputs[i], 1e-12, wrt[i]);
  }
}

TEST(Attention, SecondDerivativesAreThoseOfTheDecomposition) {
  for (const Problem& p : kProblems)
    for (const std::string wrt : {"q", "k", "v"}) {
      NamedTensors leaves = leaves_of(p);
      leaves["u"] = noise(wrt == "q" ? p.q : p.k, 5);
      leaves["w"] = noise(wrt == "q" ? p.q : p.k, 6);
      const std::vector<std::string> along{"u", "w"};
      const Evaluated a =
          evaluate(directional_nth_grad(attention_loss(p, true), wrt, along), leaves);
      const Evaluated b =
          evaluate(directional_nth_grad(attention_loss(p, false), wrt, along), leaves);
      expect_near(a.outputs[0], b.outputs[0], 1e-11, wrt);
    }
}

TEST(Attention, ForwardOverReverse) {
  for (const Problem& p : kProblems) {
    NamedTensors leaves = leaves_of(p);
    leaves["tangent_k"] = noise(p.k, 7);
    const Evaluated a = evaluate(hvp(attention_loss(p, true), {"k"}), leaves);
    const Evaluated b = evaluate(hvp(attention_loss(p, false), {"k"}), leaves);
    for (size_t i = 0; i < a.outputs.size(); ++i)
      expect_near(a.outputs[i], b.outputs[i], 1e-11, "hvp");
  }
}

// One query row at a time, as the definition reads.
TEST(Attention, ValuesByTheDefinition) {
  const Problem p{
      {.num_heads = 4, .num_kv_heads = 2, .mask = MaskKind::causal}, {2, 3, 8}, {2, 5, 4}};
  const Tensor q = noise(p.q, 1), k = noise(p.k, 2), v = noise(p.k, 3);
  Builder b;
  const Values in{b.input("q", q.type()), b.input("k", k.type()), b.input("v", v.type())};
  for (Value r : b.emit(op::attention.def, p.attrs, in)) b.output(r);
  const Tensors got = evaluate(b.finish(), Tensors{q, k, v});
  const int64_t heads = 4, group = 2, queries = 3, keys = 5, width = 2;
  Tensor out(DType::F64, p.q), lse(DType::F64, {2, heads, queries});
  for_each_index({2, heads, queries}, [&](const Ints& at) {
    const int64_t row = (at[0] * queries + at[2]) * heads * width + at[1] * width;
    const auto key = [&](int64_t j) {
      return (at[0] * keys + j) * 2 * width + at[1] / group * width;
    };
    std::vector<double> weight;
    double total = 0;
    for (int64_t j = 0; j <= at[2] + keys - queries; ++j) {
      double s = 0;
      for (int64_t d = 0; d < width; ++d) s += q.get_float(row + d) * k.get_float(key(j) + d);
      total += weight.emplace_back(std::exp(s / std::sqrt(2.0)));
    }
    for (int64_t d = 0; d < width; ++d) {
      double sum = 0;
      for (size_t j = 0; j < weight.size(); ++j)
        sum += weight[j] * v.get_float(key(static_cast<int64_t>(j)) + d);
      out.set_float(row + d, sum / total);
    }
    lse.set_float((at[0] * heads + at[1]) * queries + at[2], std::log(total));
  });
  expect_near(got[0], out, 1e-12, "out");
  expect_near(got[1], lse, 1e-12, "logsumexp");
}

TEST(Attention, SymbolicLengths) {
  const Dim s = Dim::symbol("s"), t = Dim::symbol("t");
  Builder b;
  const Values in{b.input("q", {DType::F64, {s, 4}}), b.input("k", {DType::F64, {t, 4}}),
                  b.input("v", {DType::F64, {t, 4}})};
  const AttentionAttrs attrs{.num_heads = 2, .mask = MaskKind::causal};
  for (Value r : b.emit(op::attention.def, attrs, in)) b.output(r);
  const Graph g = b.finish();
  EXPECT_EQ(g.output_types()[1].to_string(), "[1, 2, ?s] f64");
  for (const auto& [rows, keys] : {std::pair<int64_t, int64_t>{2, 5}, {3, 3}, {4, 2}}) {
    const Tensor q = noise({rows, 4}, 1), k = noise({keys, 4}, 2), v = noise({keys, 4}, 3);
    Builder fixed;
    const Values bound{fixed.input("q", q.type()), fixed.input("k", k.type()),
                       fixed.input("v", v.type())};
    for (Value r : fixed.emit(op::attention.def, attrs, bound)) fixed.output(r);
    const Tensors a = evaluate(g, Tensors{q, k, v}), e = evaluate(fixed.finish(), Tensors{q, k, v});
    expect_near(a[0], e[0], 0, "out");
  }
}

TEST(Attention, HalfPrecisionIsComputedWide) {
  const Tensor x = noise({64, 8}, 1, DType::BF16);
  Builder b;
  const Value v = b.input("x", x.type());
  for (Value r : b.emit(op::attention.def, AttentionAttrs{.num_heads = 2}, Values{v, v, v}))
    b.output(r);
  const Graph g = b.finish();
  EXPECT_EQ(g.output_types()[0].dtype, DType::BF16);
  EXPECT_EQ(g.output_types()[1].dtype, DType::F32);
  Builder w;
  const Value wide = w.input("x", {DType::F64, {64, 8}});
  w.output(w.emit(op::attention.def, AttentionAttrs{.num_heads = 2}, Values{wide, wide, wide})[0]);
  const Tensors got = evaluate(g, Tensors{x}),
                want = evaluate(w.finish(), Tensors{cast_tensor(x, DType::F64)});
  for (int64_t i = 0; i < x.elements(); ++i)
    EXPECT_NEAR(got[0].get_float(i), want[0].get_float(i),
                0.00391 * std::fabs(want[0].get_float(i)) + 1e-6);
}

TEST(Attention, Refusals) {
  Builder b;
  auto x = [&, n = 0](Shape shape, DType d = DType::F32) mutable {
    return b.input(std::to_string(n++), {d, shape});
  };
  auto emit = [&](AttentionAttrs a, Value q, Value k, Value v) {
    b.emit(op::attention.def, a, Values{q, k, v});
  };
  const Value q = x({2, 3, 4});
  expect_error("attention-heads", "multiple of num_kv_heads (2)",
               [&] { emit({.num_heads = 3, .num_kv_heads = 2}, q, q, q); });
  expect_error("attention-heads", "num_heads (0)", [&] { emit({.num_heads = 0}, q, q, q); });
  expect_error("attention-shape", "[2, 3, 5] f32",
               [&] { emit({.num_heads = 2}, q, x({2, 3, 5}), q); });
  expect_error("attention-shape", "one length of their own",
               [&] { emit({.num_heads = 2}, q, q, x({2, 6, 4})); });
  expect_error("attention-shape", "operands",
               [&] { emit({.num_heads = 2}, q, x({3, 4}), x({3, 4})); });
  expect_error("attention-shape", "head dim", [&] {
    const Value s = x({2, Dim::symbol("d") * 2});
    emit({.num_heads = 2}, s, s, s);
  });
  expect_error("dtype-mixed", "cast to f64",
               [&] { emit({.num_heads = 2}, q, x({2, 3, 4}, DType::F64), q); });
  expect_error("dtype", "i32", [&] {
    const Value i = x({2, 3, 4}, DType::I32);
    emit({.num_heads = 2}, i, i, i);
  });
}

// ---- the others

Tensor run1(const OpDef& op, Attrs attrs, const Tensors& in) {
  Builder b;
  Values values;
  for (const Tensor& t : in) values.push_back(b.input(std::to_string(values.size()), t.type()));
  b.output(b.emit(op, std::move(attrs), values)[0]);
  return evaluate(b.finish(), in)[0];
}

TEST(Activations, KnownValues) {
  const Tensor x = Tensor::from<double>({3}, {-1, 0.5, 2});
  expect_near(
      run1(op::gelu.def, NoAttrs{}, {x}),
      Tensor::from<double>({3}, {-0.15865525393145707, 0.34573123063700656, 1.9544997361036416}),
      1e-15, "gelu");
  expect_near(
      run1(op::silu.def, NoAttrs{}, {x}),
      Tensor::from<double>({3}, {-0.2689414213699951, 0.3112296656009273, 1.7615941559557646}),
      1e-15, "silu");
  expect_near(
      run1(op::gelu_tanh.def, NoAttrs{}, {x}),
      Tensor::from<double>({3}, {-0.15880800939172324, 0.34571400982514394, 1.9545976940877748}),
      1e-12, "gelu_tanh");
}

TEST(Softmax, LargeValuesAndRowsOfMinusInfinity) {
  const Tensor x =
      Tensor::from<float>({2, 3}, {1e30f, 1e30f, -INFINITY, -INFINITY, -INFINITY, -INFINITY});
  const Tensor p = run1(op::softmax.def, SoftmaxAttrs{}, {x});
  EXPECT_EQ(p.get_float(0), 0.5);
  EXPECT_EQ(p.get_float(2), 0.0);
  EXPECT_TRUE(std::isnan(p.get_float(3)));
  EXPECT_NEAR(run1(op::log_softmax.def, SoftmaxAttrs{}, {x}).get_float(1), -std::log(2.0), 1e-7);
}

TEST(Norms, TheVarianceIsTakenInTwoPasses) {
  const Tensor x = Tensor::from<float>({1, 4}, {10001, 10002, 10003, 10004});
  const Tensor one = Tensor::full(DType::F32, {4}, 1), zero(DType::F32, {4});
  const Tensor y = run1(op::layer_norm.def, NormAttrs{-1, 0}, {x, one, zero});
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_NEAR(y.get_float(i), (static_cast<double>(i) - 1.5) / std::sqrt(1.25), 1e-6);
}

TEST(Norms, Refusals) {
  Builder b;
  const Value x = b.input("x", {DType::F32, {2, 4}}), g = b.input("g", {DType::F32, {4}}),
              two = b.input("h", {DType::F32, {2}});
  expect_error("norm-shape", "must be [4], the size of axis 1",
               [&] { op::layer_norm(b, x, two, g); });
  expect_error("norm-eps", "not -1", [&] { op::rms_norm(b, x, g, g, {-1, -1.0}); });
  expect_error("axis-range", "2", [&] { op::layer_norm(b, x, g, g, {2, 0.0}); });
  op::layer_norm(b, x, two, two, {-2, 1e-5});
}

TEST(CrossEntropy, LabelsOutsideTheClassesRaise) {
  const Tensor x = noise({2, 3}, 1);
  for (int64_t label : {-1, 3})
    expect_error("index-range", "", [&] {
      run1(op::softmax_cross_entropy.def, NoAttrs{}, {x, Tensor::from<int64_t>({2}, {0, label})});
    });
}

TEST(CrossEntropy, InfiniteLogitsOfOtherClassesAreFine) {
  const Tensor x = Tensor::from<double>({1, 3}, {0, -INFINITY, 0});
  EXPECT_NEAR(run1(op::softmax_cross_entropy.def, NoAttrs{}, {x, Tensor::from<int32_t>({1}, {2})})
                  .get_float(0),
              std::log(2.0), 1e-15);
}

TEST(CrossEntropy, Refusals) {
  Builder b;
  const Value x = b.input("x", {DType::F32, {2, 3}}), l = b.input("l", {DType::I64, {3}}),
              f = b.input("f", {DType::Bool, {2}});
  expect_error("labels", "without the last axis", [&] { op::softmax_cross_entropy(b, x, l); });
  expect_error("labels", "integers", [&] { op::softmax_cross_entropy(b, x, f); });
}

TEST(Rope, RotatesHalves) {
  const Tensor x = noise({2, 12}, 1),
               angle = noise({3, 3}, 2);  // two positions, two heads of 6 of which 4 turn
  Tensor cos(DType::F64, {3, 3}), sin(DType::F64, {3, 3}), want = Tensor(DType::F64, {2, 12});
  for (int64_t i = 0; i < 9; ++i)
    cos.set_float(i, std::cos(angle.get_float(i))), sin.set_float(i, std::sin(angle.get_float(i)));
  for_each_index({2, 2, 6}, [&](const Ints& at) {
    const int64_t head = at[0] * 12 + at[1] * 6, i = at[2] % 2;
    const double c = cos.get_float(at[0] * 3 + i), s = sin.get_float(at[0] * 3 + i);
    const double a = x.get_float(head + i), d = x.get_float(head + i + 2);
    want.set_float(head + at[2], at[2] < 2   ? a * c - d * s
                                 : at[2] < 4 ? d * c + a * s
                                             : x.get_float(head + at[2]));
  });
  expect_near(run1(op::rope.def, RopeAttrs{6, 4}, {x, cos, sin}), want, 1e-15, "rope");
}

TEST(Rope, Refusals) {
  Builder b;
  const Value x = b.input("x", {DType::F32, {4, 6}}), t = b.input("t", {DType::F32, {4, 3}}),
              u = b.input("u", {DType::F32, {3, 3}});
  expect_error("rope-heads", "n_rot 3", [&] { op::rope(b, x, t, t, {6, 3}); });
  expect_error("rope-shape", "heads * 4", [&] { op::rope(b, x, t, t, {4, 4}); });
  expect_error("rope-shape", "P >= 4", [&] { op::rope(b, x, u, u, {6, 6}); });
}

}  // namespace
}  // namespace rlx
