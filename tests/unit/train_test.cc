// Initialisers, losses, schedules, optimisers and training steps, on the reference evaluator
// against loops in double.
#include <gtest/gtest.h>

#include <cmath>

#include "../support/expect_error.h"
#include "rlx/train/functions.h"
#include "rlx/train/init.h"
#include "rlx/train/train_step.h"

namespace rlx {
namespace {

Tensor doubles(Ints sizes, std::vector<double> v) {
  return Tensor::from<double>(std::move(sizes), v);
}

// ---- initialisers

struct Moments {
  double mean = 0, deviation = 0, low = 0, high = 0;
};
Moments moments(const Tensor& t) {
  Moments m;
  const auto n = static_cast<double>(t.elements());
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double x = t.get_float(i);
    m.mean += x / n, m.deviation += x * x / n;
    m.low = std::min(m.low, x), m.high = std::max(m.high, x);
  }
  m.deviation = std::sqrt(m.deviation - m.mean * m.mean);
  return m;
}

TEST(Init, SeedAndNameDecide) {
  const Init a(1), b(2);
  EXPECT_TRUE(a.normal("w", {8, 8}).same_bits(Init(1).normal("w", {8, 8})));
  EXPECT_FALSE(a.normal("w", {8, 8}).same_bits(a.normal("v", {8, 8})));
  EXPECT_FALSE(a.normal("w", {8, 8}).same_bits(b.normal("w", {8, 8})));
  EXPECT_EQ(Init(1, DType::BF16).normal("w", {4}).dtype(), DType::BF16);
}

TEST(Init, Distributions) {
  const Init init(7);
  const Moments normal = moments(init.normal("n", {40000}, 0.5, 3));
  EXPECT_NEAR(normal.mean, 3, 0.01);
  EXPECT_NEAR(normal.deviation, 0.5, 0.01);
  const Moments uniform = moments(init.uniform("u", {40000}, -1, 3));
  EXPECT_NEAR(uniform.mean, 1, 0.03);
  EXPECT_NEAR(uniform.deviation, 4 / std::sqrt(12), 0.02);
  const Moments cut = moments(init.trunc_normal("t", {40000}, 2));
  EXPECT_LE(std::max(-cut.low, cut.high), 4);
  EXPECT_NEAR(cut.deviation, 2 * 0.8796, 0.02);
  EXPECT_NEAR(moments(init.xavier_uniform("x", {100, 200})).high, std::sqrt(6.0 / 300), 1e-3);
  EXPECT_NEAR(moments(init.kaiming_normal("k", {200, 100})).deviation, std::sqrt(2.0 / 200), 2e-3);
  EXPECT_EQ(init.ones({2}).get_float(1), 1);
  expect_error("init-fan", "\"b\"", [&] { init.xavier_uniform("b", {3}); });
  expect_error("init-range", "empty", [&] { init.uniform("b", {3}, 1, 0); });
}

// ---- losses and dropout

template <class F>
double of_pair(Tensor a, Tensor b, F&& f) {
  Graph g = trace("f", [&](Tracer& t) {
    return f(t.input("a", a.type().shape, a.dtype()), t.input("b", b.type().shape, b.dtype()));
  });
  return evaluate(g, {{"a", a}, {"b", b}}).outputs[0].get_float(0);
}

TEST(Losses, AgreeWithTheirFormulas) {
  const Tensor a = doubles({2, 2}, {1, 2, 3, 0.5}), b = doubles({2, 2}, {0, 1, 0, 1});
  EXPECT_NEAR(of_pair(a, b, mse), (1 + 1 + 9 + 0.25) / 4, 1e-12);
  EXPECT_NEAR(of_pair(a, b, mean_absolute_error), (1 + 1 + 3 + 0.5) / 4, 1e-12);
  EXPECT_NEAR(of_pair(a, b, [](auto x, auto y) { return huber(x, y, 2); }),
              (0.5 + 0.5 + 4 + 0.125) / 4, 1e-12);
  auto bce = [](double z, double y) { return std::log1p(std::exp(z)) - z * y; };
  EXPECT_NEAR(of_pair(a, b, binary_cross_entropy),
              (bce(1, 0) + bce(2, 1) + bce(3, 0) + bce(0.5, 1)) / 4, 1e-12);
  const Tensor labels = Tensor::from<int32_t>({2}, {1, 0});
  const double row0 = std::log1p(std::exp(-1.0)), row1 = std::log1p(std::exp(-2.5));
  EXPECT_NEAR(of_pair(a, labels, [](auto x, auto y) { return cross_entropy(x, y); }),
              (row0 + row1) / 2, 1e-12);
  const double other = (row0 + 1 + row1 + 2.5) / 2;  // the loss of the other class
  EXPECT_NEAR(of_pair(a, labels, [](auto x, auto y) { return cross_entropy(x, y, 0.2); }),
              0.9 * (row0 + row1) / 2 + 0.1 * other, 1e-12);
}

TEST(Losses, DoNotBroadcast) {
  trace("f", [](Tracer& t) {
    auto column = t.input("column", {64, 1}), flat = t.input("flat", {64});
    expect_error("loss-shape", "mse: the prediction is [64, 1] f32, the target [64] f32",
                 [&] { mse(column, flat); });
    expect_error("loss-shape", "mean_absolute_error", [&] { mean_absolute_error(flat, column); });
    expect_error("loss-shape", "huber", [&] { huber(column, flat); });
    expect_error("loss-shape", "binary_cross", [&] { binary_cross_entropy(column, flat); });
    return column;
  });
}

TEST(Dropout, KeepsTheMeanAndFollowsItsKey) {
  auto dropped = [](uint32_t seed, bool train) {
    Graph g = trace("f", [&](Tracer& t) {
      return dropout(t.ones({100, 100}), t.input("key", {2}, DType::U32), 0.25, train);
    });
    return evaluate(g, {{"key", Tensor::from<uint32_t>({2}, {seed, 0})}}).outputs[0];
  };
  const Tensor y = dropped(3, true);
  int64_t zeros = 0;
  for (int64_t i = 0; i < y.elements(); ++i) {
    zeros += y.get_float(i) == 0;
    EXPECT_TRUE(y.get_float(i) == 0 || std::abs(y.get_float(i) - 1 / 0.75) < 1e-6);
  }
  EXPECT_NEAR(static_cast<double>(zeros), 2500, 150);
  EXPECT_TRUE(y.same_bits(dropped(3, true)));
  EXPECT_FALSE(y.same_bits(dropped(4, true)));
  EXPECT_TRUE(dropped(3, false).same_bits(Init(0).ones({100, 100})));
  trace("f", [&](Tracer& t) {
    auto x = t.input("x", {2}), key = t.input("key", {2}, DType::U32);
    expect_error("dropout-rate", "1.5", [&] { dropout(x, key, 1.5); });
    return x;
  });
}

TEST(Dropout, KeysDiffer) {
  Graph g = trace("keys", [](Tracer& t) -> TracedTensors {
    auto key = t.input("key", {2}, DType::U32), n = t.input("n", {}, DType::I32);
    auto keys = split_key(key, 2);
    return {keys[0], keys[1], fold_in(key, n)};
  });
  auto run = [&](int32_t n) {
    return evaluate(g, {{"key", Tensor::from<uint32_t>({2}, {1, 2})},
                        {"n", Tensor::from<int32_t>({}, {n})}})
        .outputs;
  };
  const Tensors a = run(0), b = run(1);
  EXPECT_FALSE(a[0].same_bits(a[1]));
  EXPECT_TRUE(a[0].same_bits(b[0]));
  EXPECT_FALSE(a[2].same_bits(b[2]));
  EXPECT_FALSE(a[2].same_bits(a[0]));
  EXPECT_FALSE(a[2].same_bits(a[1]));
}

// ---- schedules

double rate_at(const Schedule& s, double step) {
  Graph g = trace("rate", [&](Tracer& t) { return s(t.input("step", {}, DType::F64)); });
  return evaluate(g, {{"step", Tensor::scalar(DType::F64, step)}}).outputs[0].get_float(0);
}

TEST(Schedule, WarmupThenCosineThenFloor) {
  const Schedule s = warmup_cosine({.peak = 2e-3, .warmup = 100, .total = 1000, .floor = 0.1});
  auto expected = [](double i) {
    return i < 100 ? 2e-3 * (i + 1) / 100
                   : 2e-3 * (0.1 + 0.9 * (1 + std::cos(M_PI * std::min(1.0, (i - 100) / 900))) / 2);
  };
  for (double i : {0, 1, 50, 99, 100, 101, 550, 999, 1000, 5000})
    EXPECT_NEAR(rate_at(s, i), expected(i), 1e-15) << i;
  EXPECT_NEAR(rate_at(warmup_cosine({.peak = 1, .warmup = 0, .total = 10, .floor = 0}), 0), 1,
              1e-15);
  EXPECT_EQ(rate_at(constant_rate(0.5), 7), 0.5);
  EXPECT_NEAR(rate_at(linear_rate(1, 0, 4), 3), 0.25, 1e-15);
  EXPECT_NEAR(rate_at(linear_rate(1, 0, 4), 9), 0, 1e-15);
  expect_error("schedule", "warmup < total",
               [] { warmup_cosine({.peak = 1, .warmup = 5, .total = 5, .floor = 0}); });
}

// ---- optimisers: loss = sum(w^2 c) + sum(b d), so that dw = 2 w c and db = d

struct Problem {
  std::vector<double> w{0.5, -1, 2, 0.1}, b{1, -2};
  std::vector<double> c{1, 0.3, -0.2, 4}, d{0.5, -3};

  Graph loss(DType dtype) const {
    return trace("quadratic", [&](Tracer& t) {
      auto x = t.param("w", {2, 2}, dtype), y = t.param("b", {2}, dtype);
      auto scale = t.constant(cast_tensor(doubles({2, 2}, c), dtype)),
           slope = t.constant(cast_tensor(doubles({2}, d), dtype));
      return (x.square() * scale).sum() + (y * slope).sum();
    });
  }
  NamedTensors params(DType dtype) const {
    return {{"w", cast_tensor(doubles({2, 2}, w), dtype)},
            {"b", cast_tensor(doubles({2}, b), dtype)}};
  }
  std::vector<double> gradient() const {  // of w, then b
    std::vector<double> g;
    for (size_t i = 0; i < 4; ++i) g.push_back(2 * w[i] * c[i]);
    g.insert(g.end(), d.begin(), d.end());
    return g;
  }
  double& at(size_t i) { return i < 4 ? w[i] : b[i - 4]; }
  double value() const {
    double sum = 0;
    for (size_t i = 0; i < 4; ++i) sum += w[i] * w[i] * c[i];
    for (size_t i = 0; i < 2; ++i) sum += b[i] * d[i];
    return sum;
  }
};

// Runs the step and the hand-written loop side by side.
template <class Loop>
void compare(DType dtype, const TrainOptions& options, int steps, double tolerance,
             Loop&& by_hand) {
  Problem p;
  TrainStep step = train_step(p.loss(dtype), p.params(dtype), options);
  NamedTensors state = step.state;
  for (int i = 0; i < steps; ++i) {
    const Evaluated r = evaluate(step.graph, state);
    EXPECT_NEAR(r.outputs[0].get_float(0), p.value(), tolerance * 20) << "loss of step " << i;
    for (const auto& [name, value] : r.updates) state[name] = value;
    by_hand(p, i);
    for (size_t k = 0; k < 6; ++k)
      EXPECT_NEAR(k < 4 ? state["w"].get_float(static_cast<int64_t>(k))
                        : state["b"].get_float(static_cast<int64_t>(k) - 4),
                  p.at(k), tolerance)
          << "step " << i << " element " << k;
  }
  EXPECT_EQ(state["step"].get_int(0), steps);
}

// A limit that no gradient reaches changes nothing.
TEST(TrainStep, ClippingLeavesSmallGradientsAlone) {
  for (const double limit : {0.0, 1e6}) {
    TrainOptions options;
    options.optimizer = sgd({.rate = constant_rate(0.05)});
    options.clip_norm = limit;
    compare(DType::F64, options, 6, 1e-12, [&](Problem& p, int) {
      const std::vector<double> g = p.gradient();
      for (size_t k = 0; k < 6; ++k) p.at(k) -= 0.05 * g[k];
    });
  }
}

void compare_adamw(DType dtype, double tolerance) {
  TrainOptions options;
  options.optimizer =
      adamw({.rate = warmup_cosine({.peak = 0.05, .warmup = 3, .total = 8, .floor = 0.1}),
             .beta1 = 0.9,
             .beta2 = 0.95,
             .eps = 1e-8,
             .weight_decay = 0.1,
             .decays = is_matrix});
  options.clip_norm = 1;
  std::vector<double> m(6), v(6);
  compare(dtype, options, 12, tolerance, [&](Problem& p, int i) {
    std::vector<double> g = p.gradient();
    double norm = 0;
    for (double x : g) norm += x * x;
    norm = std::sqrt(norm);
    const double rate =
        i < 3 ? 0.05 * (i + 1) / 3
              : 0.05 * (0.1 + 0.9 * (1 + std::cos(M_PI * std::min(1.0, (i - 3) / 5.0))) / 2);
    for (size_t k = 0; k < 6; ++k) {
      g[k] *= std::min(1.0, 1 / (norm + 1e-6));
      if (k < 4) p.at(k) *= 1 - rate * 0.1;
      m[k] = 0.9 * m[k] + 0.1 * g[k];
      v[k] = 0.95 * v[k] + 0.05 * g[k] * g[k];
      p.at(k) -= rate * (m[k] / (1 - std::pow(0.9, i + 1))) /
                 (std::sqrt(v[k] / (1 - std::pow(0.95, i + 1))) + 1e-8);
    }
  });
}

TEST(AdamW, AgreesWithALoopInDouble) { compare_adamw(DType::F64, 1e-12); }
TEST(AdamW, InFloat) { compare_adamw(DType::F32, 2e-6); }

TEST(Sgd, MomentumNesterovAndDecay) {
  for (const bool nesterov : {false, true}) {
    TrainOptions options;
    options.optimizer = sgd({.rate = constant_rate(0.05),
                             .momentum = 0.9,
                             .nesterov = nesterov,
                             .weight_decay = 0.01,
                             .decays = all_params});
    std::vector<double> m(6);
    compare(DType::F64, options, 6, 1e-12, [&](Problem& p, int) {
      const std::vector<double> gradient = p.gradient();
      for (size_t k = 0; k < 6; ++k) {
        const double g = gradient[k] + 0.01 * p.at(k);
        m[k] = 0.9 * m[k] + g;
        p.at(k) -= 0.05 * (nesterov ? g + 0.9 * m[k] : m[k]);
      }
    });
  }
  expect_error("sgd", "momentum", [] {
    sgd({.rate = constant_rate(1),
         .momentum = 0,
         .nesterov = true,
         .weight_decay = 0,
         .decays = all_params});
  });
}

TEST(Sgd, PlainHasNoState) {
  TrainOptions options;
  options.optimizer = sgd({});
  options.params = {"w"};
  const TrainStep step =
      train_step(Problem().loss(DType::F32), Problem().params(DType::F32), options);
  EXPECT_EQ(step.state.size(), 3u);          // w, b, step
  EXPECT_EQ(step.graph.updates.size(), 2u);  // w, step
}

// ---- training steps

TEST(TrainStep, HalfPrecisionKeepsItsStateInFloat) {
  TrainOptions options;
  options.optimizer = adamw({.rate = constant_rate(0.1),
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .eps = 1e-8,
                             .weight_decay = 0,
                             .decays = all_params});
  const TrainStep step =
      train_step(Problem().loss(DType::BF16), Problem().params(DType::BF16), options);
  EXPECT_EQ(step.state.at("w.m").dtype(), DType::F32);
  const Evaluated r = evaluate(step.graph, step.state);
  EXPECT_EQ(r.updates.at("w").dtype(), DType::BF16);
  EXPECT_NEAR(r.updates.at("w").get_float(0), 0.4, 0.003);
}

TEST(TrainStep, ReportsTheNorm) {
  TrainOptions options;
  options.clip_norm = 1, options.report_norm = true;
  const TrainStep step =
      train_step(Problem().loss(DType::F64), Problem().params(DType::F64), options);
  double sum = 0;
  for (double g : Problem().gradient()) sum += g * g;
  EXPECT_NEAR(evaluate(step.graph, step.state).outputs.at(1).get_float(0), std::sqrt(sum), 1e-12);
}

TEST(TrainStep, LearnsARegression) {
  const Graph loss = trace("regression", [](Tracer& t) {
    auto x = t.input("x", {8, 2}), y = t.input("y", {8, 1});
    return mse(linear(x, t.param("w", {2, 1}), t.param("b", {1})), y);
  });
  const Init init(5);
  TrainOptions options;
  options.optimizer = sgd({.rate = constant_rate(0.1),
                           .momentum = 0.9,
                           .nesterov = true,
                           .weight_decay = 0,
                           .decays = all_params});
  const TrainStep step =
      train_step(loss, {{"w", init.normal("w", {2, 1})}, {"b", init.zeros({1})}}, options);
  NamedTensors leaves = step.state;
  leaves["x"] = init.normal("x", {8, 2});
  leaves["y"] = Tensor(DType::F32, {8, 1});
  for (int64_t i = 0; i < 8; ++i)
    leaves["y"].set_float(
        i, 2 * leaves["x"].get_float(2 * i) - leaves["x"].get_float(2 * i + 1) + 0.5);
  for (int i = 0; i < 200; ++i)
    for (const auto& [name, value] : evaluate(step.graph, leaves).updates) leaves[name] = value;
  EXPECT_NEAR(leaves["w"].get_float(0), 2, 1e-3);
  EXPECT_NEAR(leaves["w"].get_float(1), -1, 1e-3);
  EXPECT_NEAR(leaves["b"].get_float(0), 0.5, 1e-3);
}

TEST(TrainStep, GoesOnFromGivenState) {
  NamedTensors given = Problem().params(DType::F32);
  given["step"] = Tensor::from<int32_t>({}, {7});
  given["w.m"] = Tensor::full(DType::F32, given.at("w").sizes(), 0.5);
  const TrainStep step = train_step(Problem().loss(DType::F32), given, {});
  EXPECT_EQ(step.state.at("step").get_int(0), 7);
  EXPECT_EQ(step.state.at("w.m").get_float(0), 0.5);
  EXPECT_EQ(step.state.at("w.v").get_float(0), 0);
  EXPECT_EQ(evaluate(step.graph, step.state).updates.at("step").get_int(0), 8);
  given["step"] = Tensor::scalar(DType::I64, 7);
  expect_error("param-type", "\"step\" is [] i32, its initial value is [] i64",
               [&] { train_step(Problem().loss(DType::F32), given, {}); });
}

TEST(TrainStep, NamesOfItsOwn) {
  for (const std::string name : {"step", "w.m"}) {
    const Graph loss =
        trace("f", [&](Tracer& t) { return (t.param("w", {}) * t.param(name, {})).sum(); });
    expect_error("reserved-name", "train_step: \"" + name + "\"", [&] {
      train_step(loss, {{"w", Tensor(DType::F32, {})}, {name, Tensor(DType::F32, {})}}, {});
    });
  }
}

TEST(TrainStep, Refusals) {
  const Problem p;
  const Graph loss = p.loss(DType::F32);
  TrainOptions unknown;
  unknown.params = {"nobody"};
  expect_error("no-leaf", "nobody", [&] { train_step(loss, p.params(DType::F32), unknown); });
  expect_error("param-missing", "\"w\"", [&] { train_step(loss, {}, {}); });
  expect_error("param-type", "f64", [&] { train_step(loss, p.params(DType::F64), {}); });
  NamedTensors more = p.params(DType::F32);
  more["extra"] = Tensor(DType::F32, {1});
  expect_error("no-leaf", "extra", [&] { train_step(loss, more, {}); });
  expect_error("no-params", "no float", [&] {
    train_step(trace("f", [](Tracer& t) { return t.input("x", {3}).sum(); }), {}, {});
  });
  TrainOptions empty;
  empty.optimizer = {};
  expect_error("optimizer", "train_step: the optimiser \"\" has no function prepare",
               [&] { train_step(loss, p.params(DType::F32), empty); });
  empty.optimizer = adamw({});
  empty.optimizer.update = nullptr;
  expect_error("optimizer", "no function update",
               [&] { train_step(loss, p.params(DType::F32), empty); });
  const auto of = [](auto options, auto change) {
    change(options);
    return options;
  };
  const auto no_rate = [](auto& o) { o.rate = nullptr; };
  const auto no_filter = [](auto& o) { o.decays = nullptr; };
  expect_error("schedule", "sgd: a schedule is empty", [&] { sgd(of(SgdOptions{}, no_rate)); });
  expect_error("schedule", "adamw", [&] { adamw(of(AdamWOptions{}, no_rate)); });
  expect_error("schedule", "adam", [&] { adam(of(AdamOptions{}, no_rate)); });
  expect_error("schedule", "lion", [&] { lion(of(LionOptions{}, no_rate)); });
  expect_error("sgd", "filter", [&] { sgd(of(SgdOptions{}, no_filter)); });
  expect_error("lion", "filter", [&] { lion(of(LionOptions{}, no_filter)); });
  expect_error("schedule", "warmup", [] { warmup({}, 3); });
  expect_error("schedule", "join_rates", [] { join_rates({constant_rate(1), {}}, {3}); });
  expect_error("adamw", "eps", [] {
    AdamWOptions o;
    o.eps = 0;
    adamw(o);
  });
  expect_error("sgd", "momentum", [] {
    SgdOptions o;
    o.momentum = -0.1;
    sgd(o);
  });
  expect_error("adamw", "beta", [] {
    adamw({.rate = constant_rate(1),
           .beta1 = 1,
           .beta2 = 0.9,
           .eps = 0,
           .weight_decay = 0,
           .decays = all_params});
  });
}

TEST(Gradients, InsideATrace) {
  const Graph g = trace("newton", [](Tracer& t) {
    auto x = t.input("x", {}, DType::F64);
    auto y = x * x * x;
    auto slope = gradients(y, {x})[0], curvature = gradients(slope, {x})[0];
    return TracedTensors{slope, curvature};
  });
  const Tensors r = evaluate(g, {{"x", Tensor::scalar(DType::F64, 3)}}).outputs;
  EXPECT_NEAR(r[0].get_float(0), 27, 1e-12);
  EXPECT_NEAR(r[1].get_float(0), 18, 1e-12);
}

}  // namespace
}  // namespace rlx
