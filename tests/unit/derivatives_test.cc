// Transforms made of transforms: Taylor mode, Jacobians, linear maps, the loss of a potential. Expectations come from
// the arithmetic of power series, from formulas, or from another transform.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "../support/expect_error.h"
#include "../support/op_checks.h"
#include "rlx/front/loops.h"
#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/rules.h"
#include "rlx/runtime/runtime.h"
#include "rlx/train/force_energy.h"
#include "rlx/transform/dependence.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

constexpr DType kF64 = DType::F64;

Tensor number(double v) { return Tensor::scalar(kF64, v); }

Tensor noise(const Ints& sizes, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Tensor t(kF64, sizes);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, uniform(random));
  return t;
}

void expect_close(const Tensor& found, const Tensor& expected, double bound) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  for (int64_t i = 0; i < found.elements(); ++i) {
    const double e = expected.get_float(i);
    EXPECT_NEAR(found.get_float(i), e, bound * std::max(1.0, std::fabs(e))) << "element " << i;
  }
}

Tensors outputs_of(const Graph& g, const NamedTensors& in) { return evaluate(g, in).outputs; }

// ---- power series: coefficient k of u(t) = sum u[k] t^k

using Series = std::vector<double>;

Series times(const Series& a, const Series& b) {
  Series c(a.size(), 0);
  for (size_t k = 0; k < c.size(); ++k)
    for (size_t j = 0; j <= k; ++j) c[k] += a[j] * b[k - j];
  return c;
}
Series over(const Series& a, const Series& b) {
  Series c(a.size(), 0);
  for (size_t k = 0; k < c.size(); ++k) {
    c[k] = a[k];
    for (size_t j = 0; j < k; ++j) c[k] -= c[j] * b[k - j];
    c[k] /= b[0];
  }
  return c;
}
Series plus(Series a, double b) {
  a[0] += b;
  return a;
}
Series exp_of(const Series& u) {
  Series e(u.size(), 0);
  e[0] = std::exp(u[0]);
  for (size_t k = 1; k < e.size(); ++k) {
    for (size_t j = 1; j <= k; ++j) e[k] += static_cast<double>(j) * u[j] * e[k - j];
    e[k] /= static_cast<double>(k);
  }
  return e;
}
Series sin_of(const Series& u) {
  Series s(u.size(), 0), c(u.size(), 0);
  s[0] = std::sin(u[0]), c[0] = std::cos(u[0]);
  for (size_t k = 1; k < s.size(); ++k) {
    for (size_t j = 1; j <= k; ++j) {
      s[k] += static_cast<double>(j) * u[j] * c[k - j];
      c[k] -= static_cast<double>(j) * u[j] * s[k - j];
    }
    s[k] /= static_cast<double>(k), c[k] /= static_cast<double>(k);
  }
  return s;
}
Series tanh_of(const Series& u) {  // (e^2u - 1) / (e^2u + 1)
  const Series e = exp_of(times(u, plus(Series(u.size(), 0), 2)));
  return over(plus(e, -1), plus(e, 1));
}
double factorial(size_t k) { return k < 2 ? 1 : static_cast<double>(k) * factorial(k - 1); }

// exp(x sin x) / (1 + x^2) + tanh(x)
Graph bent() {
  Builder b("bent");
  const Value x = b.input("x", {kF64, {}});
  const Value one = b.constant_like(x, 1);
  const Value quotient =
      op::div(b, op::exp(b, op::mul(b, x, op::sin(b, x))), op::add(b, one, op::mul(b, x, x)));
  b.output(op::add(b, quotient, op::tanh(b, x)));
  return b.finish();
}
Series bent(const Series& x) {
  Series y = over(exp_of(times(x, sin_of(x))), plus(times(x, x), 1));
  const Series t = tanh_of(x);
  for (size_t k = 0; k < y.size(); ++k) y[k] += t[k];
  return y;
}

TEST(Jet, DerivativesToTheTenthAlongACurve) {
  constexpr int kOrder = 10;
  const Graph g = jet(bent(), {"x"}, kOrder);
  EXPECT_EQ(g.name, "bent_jet");
  ASSERT_EQ(g.outputs.size(), 11u);
  for (const bool straight : {true, false}) {
    NamedTensors in{{"x", number(0.7)}};
    Series x{0.7};
    for (int k = 1; k <= kOrder; ++k) {
      const double slope = k == 1 ? 1 : straight ? 0 : 0.3 / k - 0.1 * (k % 3);
      in[fmt::format("d{}_x", k)] = number(slope);
      x.push_back(slope / factorial(static_cast<size_t>(k)));
    }
    const Tensors found = outputs_of(g, in);
    const Series expected = bent(x);
    for (size_t k = 0; k <= kOrder; ++k)
      expect_close(found[k], number(expected[k] * factorial(k)), 1e-11);
  }
}

// The program must not double with each order.
TEST(Jet, GrowsWithAPowerOfTheOrder) {
  const auto nodes = [](int order) { return jet(bent(), {"x"}, order).size(); };
  const int32_t five = nodes(5), ten = nodes(10);
  EXPECT_LT(ten, 6 * five) << five << " and " << ten;  // 2^5 = 32 times if it doubled
}

Graph network(int64_t rows, int64_t width) {
  Builder b("network");
  const Value x = b.input("x", {kF64, {rows, 5}});
  const Value w = b.param("w", {kF64, {5, width}}), v = b.param("v", {kF64, {width, 3}});
  const Value h = op::tanh(b, op::matmul(b, x, w));
  const Value y = op::softmax(b, op::matmul(b, h, v), {.axis = -1});
  b.output(op::reduce_sum(b, op::square(b, y), {.axes = {0, 1}}));
  return b.finish();
}

// Two leaves that move at once, against reverse mode: along a line the k-th derivative contracts the k-th gradient.
TEST(Jet, AgreesWithGradientsOfGradients) {
  constexpr int kOrder = 4;
  for (const int64_t width : {9, 70}) {
    const Graph f = network(4, width);
    NamedTensors in{
        {"x", noise({4, 5}, 1)}, {"w", noise({5, width}, 2)}, {"v", noise({width, 3}, 3)}};
    const Tensor direction = noise({5, width}, 4);
    NamedTensors along = in, lines = in;
    along["d1_w"] = direction;
    std::vector<std::string> names;
    for (int k = 1; k <= kOrder; ++k) {
      if (k > 1) along[fmt::format("d{}_w", k)] = Tensor(kF64, {5, width});
      names.push_back(fmt::format("u{}", k));
      lines[names.back()] = direction;
    }
    const Tensors found = outputs_of(jet(f, {"w"}, kOrder), along);
    for (int k = 1; k <= kOrder; ++k) {
      const auto many = static_cast<size_t>(k);
      const Graph nth = directional_nth_grad(f, "w", {names.begin(), names.begin() + k});
      NamedTensors given = in;
      for (size_t i = 0; i < many; ++i) given[names[i]] = direction;
      expect_close(found[many], outputs_of(nth, given)[0], 1e-9);
    }
  }
}

TEST(Jet, SecondDerivativesOfTheCurveCount) {
  const Graph f = network(4, 9);
  NamedTensors in{{"x", noise({4, 5}, 1)}, {"w", noise({5, 9}, 2)}, {"v", noise({9, 3}, 3)}};
  const Tensor d1x = noise({4, 5}, 5), d2x = noise({4, 5}, 6), d1v = noise({9, 3}, 7),
               d2v = noise({9, 3}, 8);
  NamedTensors along = in, first = in;
  along["d1_x"] = d1x, along["d2_x"] = d2x, along["d1_v"] = d1v, along["d2_v"] = d2v;
  const Tensors found = outputs_of(jet(f, {"x", "v"}, 2), along);
  // y'' = d/dt of the jvp along (d1x, d1v): its own jvp along x, v and along the tangents.
  const Graph twice = jvp(jvp(f, {"x", "v"}), {"x", "v", "tangent_x", "tangent_v"});
  first["tangent_x"] = d1x, first["tangent_v"] = d1v;
  first["tangent_x_1"] = d1x, first["tangent_v_1"] = d1v;
  first["tangent_tangent_x"] = d2x, first["tangent_tangent_v"] = d2v;
  const Tensors second = outputs_of(twice, first);
  expect_close(found[1], second[1], 1e-12);
  expect_close(found[2], second[3], 1e-11);
}

TEST(Jet, ThroughALoopAndIntegers) {
  Builder b("counts");
  const Value x = b.input("x", {kF64, {3}});
  b.output(op::argmax(b, x, {.axis = 0}));
  b.output(op::cumprod(b, x, {.axis = 0}));
  const Graph g = jet(b.finish(), {"x"}, 3);
  ASSERT_EQ(g.outputs.size(), 5u);  // no derivatives of positions
  const Tensors found =
      outputs_of(g, {{"x", Tensor::from<double>({3}, std::vector<double>{2, 3, 5})},
                     {"d1_x", Tensor::from<double>({3}, std::vector<double>{1, 1, 1})},
                     {"d2_x", Tensor(kF64, {3})},
                     {"d3_x", Tensor(kF64, {3})}});
  // (2+t)(3+t)(5+t) = 30 + 31 t + 10 t^2 + t^3
  EXPECT_NEAR(found[2].get_float(2), 31, 1e-12);
  EXPECT_NEAR(found[3].get_float(2), 20, 1e-12);
  EXPECT_NEAR(found[4].get_float(2), 6, 1e-12);
  EXPECT_NEAR(found[4].get_float(1), 0, 1e-12);
}

// Every op of the table, third derivatives along a line against forward mode three times over.
TEST(Jet, OfEveryOpAgreesWithNestedForwardMode) {
  constexpr int kOrder = 3;
  int compared = 0;
  testing::for_each_case(testing::samples(), {kF64}, [&](const testing::Case& c) {
    if (!testing::has_derivatives(c) || !c.sample->differences || !c.sample->second) return;
    const std::vector<std::string> wrt = testing::names(c.swept);
    NamedTensors in, line;
    for (size_t i = 0; i < c.operands.size(); ++i) in[std::to_string(i)] = c.operands[i];
    NamedTensors curve = in;
    line = in;
    for (size_t i = 0; i < wrt.size(); ++i) {
      const Tensor& x = in.at(wrt[i]);
      const Tensor v = noise(x.sizes(), static_cast<unsigned>(i));
      for (int k = 1; k <= kOrder; ++k) {
        curve[fmt::format("d{}_{}", k, wrt[i])] = k == 1 ? v : Tensor(kF64, x.sizes());
        line[fmt::format("tangent_{}{}", wrt[i], k == 1 ? "" : fmt::format("_{}", k - 1))] = v;
      }
    }
    const Tensors found = outputs_of(jet(c.graph, wrt, kOrder), curve);
    Graph nested = c.graph;
    size_t at = c.graph.outputs.size();
    for (int k = 1; k <= kOrder; ++k) {
      Graph moved = jvp(nested, wrt);
      moved.outputs.erase(moved.outputs.begin(),
                          moved.outputs.begin() + static_cast<int64_t>(nested.outputs.size()));
      nested = drop_dead(std::move(moved), true);
      NamedTensors given;
      for (const auto& [name, value] : line)
        if (nested.find_leaf(name).valid()) given[name] = value;
      const Tensors expected = outputs_of(nested, given);
      for (const Tensor& e : expected) {
        const Tensor& f = found.at(at++);
        double largest = 1e-3;
        for (int64_t i = 0; i < e.elements(); ++i)
          if (std::isfinite(e.get_float(i))) largest = std::max(largest, std::fabs(e.get_float(i)));
        for (int64_t i = 0; i < e.elements(); ++i) {
          if (std::isnan(e.get_float(i)) && std::isnan(f.get_float(i))) continue;
          if (e.get_float(i) == f.get_float(i)) continue;
          EXPECT_NEAR(f.get_float(i), e.get_float(i), 1e-9 * largest)
              << testing::row(c) << ", order " << k << ", element " << i;
          if (::testing::Test::HasFailure()) return;
        }
        ++compared;
      }
    }
  });
  EXPECT_GT(compared, 1000);
}

TEST(Jet, Refusals) {
  expect_error("order-range", "1 or more, not 0", [&] { jet(bent(), {"x"}, 0); });
  expect_error("no-leaf", "\"z\"", [&] { jet(bent(), {"z"}, 2); });
}

// ---- Jacobians

// y = A x with a bend, z = sum of x, an integer beside.
Graph fields(const Dim& n) {
  Builder b("fields");
  const Value x = b.input("x", {kF64, {n}}), a = b.param("a", {kF64, {3, n}});
  const Value column = op::reshape(b, x, {.shape = {n, 1}});
  b.output(op::sin(b, op::matmul(b, a, column)));  // [3, 1]
  b.output(op::argmax(b, x, {.axis = 0}));
  b.output(op::reduce_sum(b, x, {.axes = {0}}));
  return b.finish();
}

TEST(Jacobians, BothModesGiveTheFormula) {
  for (const int64_t n : {1, 9, 70}) {
    const NamedTensors in{{"x", noise({n}, 1)}, {"a", noise({3, n}, 2)}};
    Tensor by_x(kF64, {3, 1, n}), by_a(kF64, {3, 1, 3, n});
    for (int64_t r = 0; r < 3; ++r) {
      double angle = 0;
      for (int64_t c = 0; c < n; ++c)
        angle += in.at("a").get_float(r * n + c) * in.at("x").get_float(c);
      for (int64_t c = 0; c < n; ++c) {
        by_x.set_float(r * n + c, std::cos(angle) * in.at("a").get_float(r * n + c));
        by_a.set_float((r * 3 + r) * n + c, std::cos(angle) * in.at("x").get_float(c));
      }
    }
    Tensor ones(kF64, {n}), nothing(kF64, {3, n});
    for (int64_t c = 0; c < n; ++c) ones.set_float(c, 1);
    for (const Graph& g : {jacfwd(fields(n), {"x", "a"}), jacrev(fields(n), {"x", "a"})}) {
      ASSERT_EQ(g.outputs.size(), 4u) << g.name;
      const Tensors found = outputs_of(g, in);
      expect_close(found[0], by_x, 1e-12);
      expect_close(found[1], by_a, 1e-12);
      expect_close(found[2], ones, 1e-12);
      expect_close(found[3], nothing, 1e-12);
    }
  }
}

TEST(Jacobians, OfSymbolicSizes) {
  const Dim n = Dim::symbol("n");
  const NamedTensors in{{"x", noise({6}, 1)}, {"a", noise({3, 6}, 2)}};
  for (const bool forward : {true, false}) {
    const auto of = [&](const Graph& g) { return forward ? jacfwd(g, {"x"}) : jacrev(g, {"x"}); };
    const Tensors found = outputs_of(bind(of(fields(n)), {{"n", 6}}), in);
    const Tensors expected = outputs_of(of(fields(6)), in);
    for (size_t i = 0; i < expected.size(); ++i) expect_close(found[i], expected[i], 1e-14);
  }
}

TEST(Jacobians, HessianOfAForm) {
  for (const int64_t n : {3, 40}) {
    Builder b("form");
    const Value x = b.input("x", {kF64, {n}}), y = b.input("y", {kF64, {2}});
    const Value a = b.input("a", {kF64, {n, n}});
    const Value row = op::reshape(b, x, {.shape = {1, n}}),
                column = op::reshape(b, x, {.shape = {n, 1}});
    const Value form =
        op::reduce_sum(b, op::matmul(b, op::matmul(b, row, a), column), {.axes = {0, 1}});
    const Value cubes = op::reduce_sum(b, op::mul(b, y, op::mul(b, y, y)), {.axes = {0}});
    b.output(op::add(b, form, cubes));
    const Graph g = hessian(b.finish(), {"x", "y"});
    EXPECT_EQ(g.name, "form_hessian");
    const NamedTensors in{{"x", noise({n}, 1)}, {"y", noise({2}, 3)}, {"a", noise({n, n}, 2)}};
    const Tensors found = outputs_of(g, in);
    ASSERT_EQ(found.size(), 4u);
    Tensor xx(kF64, {n, n}), xy(kF64, {n, 2}), yx(kF64, {2, n}), yy(kF64, {2, 2});
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        xx.set_float(i * n + j, in.at("a").get_float(i * n + j) + in.at("a").get_float(j * n + i));
    for (int64_t i = 0; i < 2; ++i) yy.set_float(3 * i, 6 * in.at("y").get_float(i));
    expect_close(found[0], xx, 1e-12);
    expect_close(found[1], xy, 1e-12);
    expect_close(found[2], yx, 1e-12);
    expect_close(found[3], yy, 1e-12);
  }
}

// ---- linear maps

int count(const Graph& g, const OpDef* op) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == op;
  return n;
}

TEST(Linearize, TheTangentOfAPointIsAppliedManyTimes) {
  const Graph f = network(4, 9);
  const Linearized l = linearize(f, {"x", "w"});
  EXPECT_EQ(l.value.outputs.size(), 1 + l.residuals);
  EXPECT_EQ(count(l.tangent, &op::tanh.def), 0) << "what is not linear is computed once";
  EXPECT_EQ(count(l.value, &op::tanh.def), 1);
  EXPECT_FALSE(l.value.find_leaf("tangent_x").valid());
  EXPECT_FALSE(l.tangent.find_leaf("x").valid());
  const NamedTensors in{{"x", noise({4, 5}, 1)}, {"w", noise({5, 9}, 2)}, {"v", noise({9, 3}, 3)}};
  const Tensors value = outputs_of(l.value, in);
  expect_close(value[0], outputs_of(f, in)[0], 1e-15);
  for (const unsigned seed : {10u, 20u}) {
    NamedTensors given;
    for (size_t i = 0; i < l.residuals; ++i) given[fmt::format("residual_{}", i)] = value[1 + i];
    given["tangent_x"] = noise({4, 5}, seed), given["tangent_w"] = noise({5, 9}, seed + 1);
    NamedTensors both = in;
    both["tangent_x"] = given["tangent_x"], both["tangent_w"] = given["tangent_w"];
    expect_close(outputs_of(l.tangent, given)[0], outputs_of(jvp(f, {"x", "w"}), both)[1], 1e-13);
  }
}

TEST(Linearize, UpdatesConstantsAndZeros) {
  Builder b("f");
  const Value x = b.input("x", {kF64, {3}}), w = b.param("w", {kF64, {3}});
  const Value c = b.constant(Tensor::from<double>({3}, std::vector<double>{1, 2, 3}));
  b.output(op::mul(b, x, c));
  b.output(op::mul(b, w, c));  // does not move
  b.update("w", op::add(b, w, x));
  const Linearized l = linearize(b.finish(), {"x"});
  EXPECT_EQ(l.residuals, 0u) << "constants are part of the tangent";
  ASSERT_EQ(l.value.updates.size(), 1u);
  EXPECT_TRUE(l.tangent.updates.empty());
  const Tensors found = outputs_of(l.tangent, {{"tangent_x", noise({3}, 1)}});
  ASSERT_EQ(found.size(), 2u);
  expect_close(found[1], Tensor(kF64, {3}), 0);
}

// <A x, y> = <x, A' y> for what is linear in both its leaves together.
TEST(LinearTranspose, TurnsTheInnerProduct) {
  for (const int64_t n : {9, 70}) {
    Builder b("map");
    const Value x = b.input("x", {kF64, {n, 4}}), z = b.input("z", {kF64, {4}});
    const Value a = b.param("a", {kF64, {7, n}});
    const Value ax = op::matmul(b, a, x);
    b.output(op::add(b, op::cumsum(b, ax, {.axis = 0}), z));  // [7, 4]
    const Graph f = b.finish();
    const Graph t = linear_transpose(f, {"x", "z"});
    EXPECT_EQ(t.name, "map_transpose");
    EXPECT_FALSE(t.find_leaf("x").valid());
    ASSERT_EQ(t.outputs.size(), 2u);
    const Tensor xs = noise({n, 4}, 1), zs = noise({4}, 2), as = noise({7, n}, 3),
                 ys = noise({7, 4}, 4);
    const Tensor y = outputs_of(f, {{"x", xs}, {"z", zs}, {"a", as}})[0];
    const Tensors back = outputs_of(t, {{"a", as}, {"d_output", ys}});
    const auto inner = [](const Tensor& p, const Tensor& q) {
      double sum = 0;
      for (int64_t i = 0; i < p.elements(); ++i) sum += p.get_float(i) * q.get_float(i);
      return sum;
    };
    EXPECT_NEAR(inner(y, ys), inner(xs, back[0]) + inner(zs, back[1]), 1e-10);
  }
}

double inner_product(const Tensors& p, const Tensors& q) {
  double sum = 0;
  for (size_t k = 0; k < p.size(); ++k)
    for (int64_t i = 0; i < p[k].elements(); ++i) sum += p[k].get_float(i) * q[k].get_float(i);
  return sum;
}

// <A x, y> = <x, A' y> of programs with control flow, linear in h [4] and xs [6, 4] together; w [4] is a constant of the map.
TEST(LinearTranspose, GoesThroughLoopsAndBranches) {
  using Map =
      TracedTensors (*)(Tracer&, TracedTensor h, TracedTensor xs, TracedTensor w, TracedTensor p);
  const std::pair<const char*, Map> maps[] = {
      {"scan",
       [](Tracer& t, auto h, auto xs, auto w, auto) -> TracedTensors {
         const ScanResult r =
             t.scan({h}, {xs}, [&](Tracer&, const TracedTensors& c, const TracedTensors& x) {
               const TracedTensor next = c[0] * w + x[0] * 2;
               return ScanResult{{next}, {next - x[0]}};
             });
         return {r.carries[0], r.ys[0]};
       }},
      {"scan in reverse, with checkpoints",
       [](Tracer& t, auto h, auto xs, auto w, auto) -> TracedTensors {
         return t
             .scan({h}, {xs},
                   [&](Tracer&, const TracedTensors& c, const TracedTensors& x) {
                     return ScanResult{{c[0] * w.sin() + x[0]}, {}};
                   },
                   {.reverse = true, .checkpoints = 2})
             .carries;
       }},
      {"scan, with binomial checkpoints",
       [](Tracer& t, auto h, auto xs, auto w, auto) -> TracedTensors {
         return t
             .scan({h}, {xs},
                   [&](Tracer&, const TracedTensors& c, const TracedTensors& x) {
                     return ScanResult{{c[0] * w + x[0].cumsum(0)}, {}};
                   },
                   {.checkpoints = 2, .binomial = true})
             .carries;
       }},
      {"fori_loop",
       [](Tracer& t, auto h, auto xs, auto w, auto) -> TracedTensors {
         return fori_loop(t, 0, 5, {h + xs.narrow(0, 2, 1).reshape({4})},
                          [&](Tracer&, const TracedTensor& i, const TracedTensors& c) {
                            return TracedTensors{c[0] * w * i.to(kF64)};
                          });
       }},
      {"cond",
       [](Tracer& t, auto h, auto xs, auto w, auto p) -> TracedTensors {
         return t.cond(
             p, [&](Tracer&) { return h * w + xs.narrow(0, 1, 1).reshape({4}); },
             [&](Tracer&) { return h.cumsum(0) * 3; });
       }},
      {"scan of cond",
       [](Tracer& t, auto h, auto xs, auto w, auto p) -> TracedTensors {
         return t
             .scan({h}, {xs},
                   [&](Tracer& s, const TracedTensors& c, const TracedTensors& x) {
                     return ScanResult{s.cond(
                                           p, [&](Tracer&) { return c[0] * w; },
                                           [&](Tracer&) { return c[0] - x[0]; }),
                                       {}};
                   })
             .carries;
       }},
  };
  for (const auto& [name, map] : maps)
    for (bool p : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", name, p));
      const Graph f = trace("map", [&](Tracer& t) {
        return map(t, t.input("h", {4}, kF64), t.input("xs", {6, 4}, kF64), t.param("w", {4}, kF64),
                   t.input("p", {}, DType::Bool));
      });
      const Graph t = linear_transpose(f, {"h", "xs"});
      EXPECT_FALSE(t.find_leaf("h").valid());
      EXPECT_FALSE(t.find_leaf("xs").valid());
      NamedTensors at{{"h", noise({4}, 1)},
                      {"xs", noise({6, 4}, 2)},
                      {"w", noise({4}, 3)},
                      {"p", Tensor::scalar(DType::Bool, p)}};
      const Tensors y = outputs_of(f, at), x{at.at("h"), at.at("xs")};
      Tensors ct;
      NamedTensors back{{"w", at.at("w")}, {"p", at.at("p")}};
      for (size_t k = 0; k < y.size(); ++k) {
        ct.push_back(noise(y[k].sizes(), 5 + static_cast<int>(k)));
        back[y.size() == 1 ? "d_output" : fmt::format("d_{}", k)] = ct.back();
      }
      const Tensors turned = outputs_of(t, back);
      EXPECT_NEAR(inner_product(y, ct), inner_product(x, turned), 1e-10);
      CompiledGraph run = Session("cpu").compile(t);
      run.set_param("w", at.at("w"));
      back.erase("w");
      EXPECT_NEAR(inner_product(y, ct), inner_product(x, run.run(back)), 1e-10);
    }
}

TEST(LinearTranspose, RefusesLoopsThatAreNotLinear) {
  const Graph f = trace("loop", [](Tracer& t) {
    auto h = t.input("h", {4}, kF64), xs = t.input("xs", {6, 4}, kF64);
    return t
        .scan({h}, {xs},
              [](Tracer&, const TracedTensors& c, const TracedTensors& x) {
                return ScanResult{{c[0] * x[0]}, {}};
              })
        .carries;
  });
  expect_error("not-linear", "not linear in h, xs", [&] { linear_transpose(f, {"h", "xs"}); });
  const Graph t = linear_transpose(f, {"h"});  // in each alone it is
  EXPECT_TRUE(t.find_leaf("xs").valid());
  expect_error("not-linear", "not linear in p", [] {
    linear_transpose(trace("choice",
                           [](Tracer& t) {
                             auto x = t.input("p", {}, kF64);
                             return t.cond(
                                 x > 0, [&](Tracer&) { return x; }, [&](Tracer&) { return x * 2; });
                           }),
                     {"p"});
  });
}

// x' = tanh(x + u) * z with z carried along, which moves for itself: a scan of two carries.
Graph scan_of_two(int64_t length) {
  Builder step("step");
  const Value x = step.input("x", {kF64, {3}}), z = step.input("z", {kF64, {3}}),
              u = step.input("u", {kF64, {3}});
  step.output(op::mul(step, op::tanh(step, op::add(step, x, u)), z));
  step.output(op::sin(step, z));
  Builder b("two");
  const Values in{b.input("x", {kF64, {3}}), b.input("z", {kF64, {3}}),
                  b.input("us", {kF64, {length, 3}})};
  const ScanAttrs attrs{.body = step.finish(), .length = length, .num_carries = 2, .num_xs = 1};
  b.output(b.emit(op::scan.def, attrs, in)[0]);
  return b.finish();
}

// What linearize makes of control flow carries values and tangents side by side: linear in the tangents nevertheless.
TEST(LinearTranspose, LooksIntoControlFlow) {
  Builder once("once"), kept("kept");
  const Value v = once.input("v", {kF64, {3}});
  once.output(op::mul(once, op::sin(once, v), v));
  const Graph body = once.finish();
  const Value w = kept.input("x", {kF64, {3}});
  kept.output(kept.emit(op::checkpoint.def, CheckpointAttrs{.body = body}, Values{w})[0]);
  Builder chosen("chosen");
  const Value x = chosen.input("x", {kF64, {3}}), yes = chosen.input("yes", {DType::Bool, {}});
  Builder other("other");
  other.output(op::exp(other, other.input("v", {kF64, {3}})));
  chosen.output(chosen.emit(op::cond.def, CondAttrs{body, other.finish()}, Values{yes, x})[0]);
  NamedTensors leaves{{"x", noise({3}, 1)},
                      {"z", noise({3}, 2)},
                      {"us", noise({5, 3}, 3)},
                      {"yes", Tensor::scalar(DType::Bool, 1)}};
  for (const Graph& f : {scan_of_two(5), kept.finish(), chosen.finish()}) {
    SCOPED_TRACE(f.name);
    const Linearized l = linearize(f, {"x"});
    const Graph t = linear_transpose(l.tangent, {"tangent_x"}), pull = vjp(f, {"x"});
    NamedTensors own;
    for (Value leaf : f.inputs()) {
      const std::string& name = f.node(leaf).get<LeafAttrs>().name;
      own[name] = leaves.at(name);
    }
    const Tensors values = outputs_of(l.value, own);
    NamedTensors residuals{{"d_output", noise({3}, 4)}};
    for (size_t i = 0; i < l.residuals; ++i)
      residuals[fmt::format("residual_{}", i)] = values[values.size() - l.residuals + i];
    own["d_output"] = noise({3}, 4);
    const Tensor got = outputs_of(t, residuals)[0], want = outputs_of(pull, own)[1];
    for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(got.get_float(i), want.get_float(i), 1e-12);
  }
  // A carry that the leaf moves, and that moves what comes out, is not linear.
  expect_error("not-linear", "not linear in z", [&] { linear_transpose(scan_of_two(5), {"z"}); });
}

// Of a carry, what it takes: all that its body reads, in any step, and nothing else.
TEST(Dependence, GoesByCarries) {
  Graph g = scan_of_two(5);
  const int32_t scan = g.outputs[0].node;
  const auto on = [&](std::string_view name) {
    const ResultFlags f =
        dependence(g, [&](const Node& leaf) { return leaf.get<LeafAttrs>().name == name; });
    return f[static_cast<size_t>(scan)];
  };
  EXPECT_EQ(on("x"), (std::vector<bool>{true, false}));
  EXPECT_EQ(on("z"), (std::vector<bool>{true, true}));
  EXPECT_EQ(on("us"), (std::vector<bool>{true, false}));
  EXPECT_EQ(on("nothing"), (std::vector<bool>{false, false}));
}

// A loop that is linear in its carries is turned around in one sweep: what its steps saw on the way is not computed again,
// however much of it the derivative would keep.
TEST(LinearTranspose, OfLoopsComputesNothingAgain) {
  for (const auto& [checkpoints, binomial] :
       {std::pair(int64_t{0}, false), {int64_t{2}, false}, {int64_t{2}, true}}) {
    const Graph f = trace("loop", [&](Tracer& t) {
      auto h = t.input("h", {4}, kF64), xs = t.input("xs", {6, 4}, kF64),
           w = t.input("w", {4}, kF64);
      return t
          .scan({h}, {xs},
                [&](Tracer&, const TracedTensors& c, const TracedTensors& x) {
                  return ScanResult{{c[0] * w.sin() + x[0]}, {}};
                },
                {.checkpoints = checkpoints, .binomial = binomial})
          .carries;
    });
    const Graph t = linear_transpose(f, {"h", "xs"});
    int loops = 0;
    for (const Node& n : t.nodes)
      if (!bodies(n.attrs).empty()) {
        ++loops;
        ASSERT_EQ(n.op, &op::scan.def) << checkpoints << binomial;
        EXPECT_EQ(n.get<ScanAttrs>().num_carries, 1);  // the cotangent
      }
    EXPECT_EQ(loops, 1) << checkpoints << " " << binomial << print(t);
  }
}

TEST(LinearTranspose, RefusesWhatIsNotLinear) {
  Builder b("bent");
  const Value x = b.input("x", {kF64, {3}}), w = b.input("w", {kF64, {3}});
  b.output(op::mul(b, x, op::mul(b, w, x)));
  const Graph f = b.finish();
  expect_error("not-linear", "not linear in x", [&] { linear_transpose(f, {"x"}); });
  expect_error("not-linear", "not linear in x, w", [&] { linear_transpose(f, {"x", "w"}); });
  const Graph t = linear_transpose(f, {"w"});  // but this is
  EXPECT_TRUE(t.find_leaf("x").valid());
}

// ---- the loss of a potential

// Springs of strength k to the origin: E = k/2 sum |x|^2, forces -k x.
Graph springs(const Shape& x, const Shape& energies) {
  Builder b("springs");
  const Value at = b.input("x", {kF64, x}), k = b.param("k", {kF64, {}});
  Ints axes;
  for (size_t i = energies.size(); i < x.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  const Value e = op::mul(b, op::mul(b, k, b.constant(kF64, 0.5)),
                          op::reduce_sum(b, op::square(b, at), {.axes = axes}));
  b.output(e);
  return b.finish();
}

TEST(ForceEnergyLoss, IsTheFormula) {
  const double k = 1.7, wf = 0.3, we = 2.5;
  for (const bool batch : {false, true}) {
    for (const bool masked : {false, true}) {
      const Ints sizes = batch ? Ints{3, 9, 3} : Ints{9, 3};
      const Ints count = batch ? Ints{3} : Ints{};
      Shape shape(sizes.begin(), sizes.end()), energies(count.begin(), count.end());
      ForceEnergyLossWeights weights{wf, we, {}};
      if (masked) weights.atoms = {"atoms"};
      const Graph g =
          build_force_energy_loss(springs(shape, energies), {"x"}, {"forces"}, "energy", weights);
      EXPECT_EQ(g.name, "springs_mlip_loss");
      ASSERT_EQ(g.outputs.size(), 1u);
      NamedTensors in{{"x", noise(sizes, 1)},
                      {"k", number(k)},
                      {"forces", noise(sizes, 2)},
                      {"energy", noise(count, 3)}};
      Ints atoms(sizes.begin(), sizes.end() - 1);
      Tensor mask(kF64, atoms);
      for (int64_t i = 0; i < mask.elements(); ++i) mask.set_float(i, masked ? i % 3 != 1 : 1);
      if (masked) in["atoms"] = mask;
      double force = 0, counted = 0, energy = 0;
      const int64_t batches = batch ? 3 : 1, each = 27;
      for (int64_t n = 0; n < batches; ++n) {
        double e = 0;
        for (int64_t i = n * each; i < (n + 1) * each; ++i) {
          const double x = in.at("x").get_float(i), w = mask.get_float(i / 3);
          e += 0.5 * k * x * x;
          force += w * std::pow(-k * x - in.at("forces").get_float(i), 2), counted += w;
        }
        energy += std::pow(e - in.at("energy").get_float(n), 2);
      }
      const double expected = wf * force / counted + we * energy / static_cast<double>(batches);
      expect_close(outputs_of(g, in)[0], number(expected), 1e-12);
      EXPECT_EQ(outputs_of(grad(g, {"k"}), in).size(), 1u);  // second order in the network
    }
  }
}

TEST(ForceEnergyLoss, Refusals) {
  const Graph e = springs({9, 3}, {});
  expect_error("no-leaf", "\"y\"", [&] { build_force_energy_loss(e, {"y"}, {"f"}, "e"); });
  expect_error("force-names", "1 positions, 2 forces",
               [&] { build_force_energy_loss(e, {"x"}, {"f", "g"}, "e"); });
  expect_error("leaf-name", "\"k\" is taken",
               [&] { build_force_energy_loss(e, {"x"}, {"k"}, "e"); });
  expect_error("energy-type", "scalar",
               [&] { build_force_energy_loss(springs({9, 3}, {9, 3}), {"x"}, {"f"}, "e"); });
}

// ---- errors

TEST(Paths, ErrorsSayTheWayFromTheLoss) {
  Builder b("f");
  const Value x = b.input("x", {kF64, {3}});
  const Value parts = op::floor(b, x);
  b.output(op::reduce_sum(b, op::square(b, op::cast(b, op::cast(b, parts, {DType::I64}), {kF64})),
                          {.axes = {0}}));
  expect_error("no-gradient", "reduce_sum <- ", [&] { grad(b.finish(), {"x"}); });
}

}  // namespace
}  // namespace rlx
