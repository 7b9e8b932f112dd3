// Optimisers, clipping, accumulation, averages and schedules of training steps on the CPU against PyTorch and Optax
// (tests/golden/optim.py). Python's rlx.optim is held against the same file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "../support/expect_error.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/runtime/runtime.h"
#include "rlx/train/functions.h"
#include "rlx/train/init.h"
#include "rlx/train/train_step.h"

namespace rlx {
namespace {

using Numbers = std::vector<double>;

struct GoldenCase {
  std::string name;
  DType dtype;
  std::map<int, Numbers> after;  // by steps: w, then b
};
struct OptimGoldens {
  std::map<std::string, Numbers> data, schedules;
  std::vector<GoldenCase> cases;
};

const OptimGoldens& goldens() {
  static const OptimGoldens all = [] {
    OptimGoldens out;
    std::ifstream file(RLX_SOURCE_DIR "/tests/golden/optim.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string kind, name, word;
      words >> kind >> name;
      if (kind == "case") {
        words >> word;
        out.cases.push_back({name, word == "f64" ? DType::F64 : DType::F32, {}});
        continue;
      }
      Numbers values;
      while (words >> word) values.push_back(std::strtod(word.c_str(), nullptr));
      if (kind == "data") out.data[name] = values;
      if (kind == "schedule") out.schedules[name] = values;
      if (kind == "after") out.cases.back().after[std::stoi(name)] = values;
    }
    return out;
  }();
  return all;
}

Tensor data(const std::string& name, Ints sizes, DType dtype, int64_t from = 0) {
  const Numbers& all = goldens().data.at(name);
  Tensor t(dtype, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, all[static_cast<size_t>(from * t.elements() + i)]);
  return t;
}

std::map<std::string, TrainOptions> optimizers() {
  auto with = [](Optimizer o) {
    TrainOptions options;
    options.optimizer = std::move(o);
    return options;
  };
  std::map<std::string, TrainOptions> out;
  SgdOptions s;
  s.rate = constant_rate(0.1);
  out["sgd"] = with(sgd(s));
  s.rate = constant_rate(0.05), s.momentum = 0.9;
  out["sgd-momentum"] = with(sgd(s));
  s.nesterov = true, s.weight_decay = 0.05;
  out["sgd-nesterov"] = with(sgd(s));
  AdamOptions a;
  a.rate = constant_rate(0.02);
  out["adam"] = with(adam(a));
  a.beta1 = 0.8, a.beta2 = 0.95, a.eps = 1e-6, a.weight_decay = 0.1;
  out["adam-decay"] = with(adam(a));
  AdamWOptions w;
  w.rate = constant_rate(0.02), w.weight_decay = 0.1;
  out["adamw"] = with(adamw(w));
  w.rate = cosine_rate(0.05, 8, 0.1), w.weight_decay = 0.3, w.decays = is_matrix;
  out["adamw-mask"] = with(adamw(w));
  LionOptions l;
  l.rate = constant_rate(0.01), l.beta2 = 0.95, l.weight_decay = 0.1;
  out["lion"] = with(lion(l));
  SgdOptions fast;
  fast.rate = constant_rate(0.3);
  out["clip-norm"] = out["clip-value"] = out["ema"] = with(sgd(fast));
  out["clip-norm"].clip_norm = 0.5;
  out["clip-value"].clip_value = 0.05;
  out["ema"].ema = 0.8;
  AdamOptions slow;
  slow.rate = constant_rate(0.05);
  out["accumulate"] = with(adam(slow));
  out["accumulate"].accumulate = 3, out["accumulate"].clip_norm = 0.5;
  return out;
}

Graph loss_of(DType dtype) {
  return trace("loss", [&](Tracer& t) {
    auto x = t.input("x", {7, 9}, dtype), y = t.input("y", {7, 5}, dtype);
    return mse(linear(x, t.param("w", {9, 5}, dtype), t.param("b", {5}, dtype)).tanh(), y) * 10;
  });
}

TEST(Optim, StepsAreThoseOfTorchAndOptax) {
  const auto all = optimizers();
  size_t met = 0;
  for (const GoldenCase& c : goldens().cases) {
    SCOPED_TRACE(fmt::format("{} {}", c.name, c.dtype));
    const TrainStep step = train_step(
        loss_of(c.dtype), {{"w", data("w", {9, 5}, c.dtype)}, {"b", data("b", {5}, c.dtype)}},
        all.at(c.name));
    CompiledGraph f = Session("cpu").compile(step.graph, {.threads = 1});
    f.set_params(step.state);
    const std::string shown = c.name == "ema" ? ".ema" : "";
    for (int t = 0; t < c.after.rbegin()->first; ++t) {
      f.run({{"x", data("x", {7, 9}, c.dtype, t % 3)}, {"y", data("y", {7, 5}, c.dtype, t % 3)}});
      const auto expected = c.after.find(t + 1);
      if (expected == c.after.end()) continue;
      const Tensor w = f.param("w" + shown), b = f.param("b" + shown);
      const double tolerance = c.dtype == DType::F64 ? 1e-9 : 3e-6;
      for (int64_t i = 0; i < 50; ++i)
        EXPECT_NEAR(i < 45 ? w.get_float(i) : b.get_float(i - 45),
                    expected->second[static_cast<size_t>(i)], tolerance)
            << "step " << t + 1 << " element " << i;
      ++met;
    }
  }
  EXPECT_EQ(met, all.size() * 2 * 3);  // every optimiser, in two dtypes, at three steps
}

TEST(Optim, SchedulesAreThoseOfOptax) {
  const std::map<std::string, Schedule> all{
      {"linear", linear_rate(0.5, 0.1, 16)},
      {"cosine", cosine_rate(0.3, 20, 0.05)},
      {"exponential", exponential_rate(0.2, 0.6, 7)},
      {"staircase", exponential_rate(0.2, 0.6, 7, true)},
      {"piecewise", piecewise_rate(0.4, {{5, 0.5}, {11, 0.1}})},
      {"join",
       join_rates({linear_rate(0, 0.4, 6), exponential_rate(0.4, 0.5, 4), constant_rate(0.01)},
                  {6, 18})},
      {"warmup", warmup(cosine_rate(0.3, 20, 0.05), 6)},
      {"warmup-cosine", warmup_cosine({.peak = 0.2, .warmup = 4, .total = 20, .floor = 0.1})},
  };
  EXPECT_EQ(all.size(), goldens().schedules.size());
  for (const auto& [name, expected] : goldens().schedules) {
    const Graph g =
        trace(name, [&](Tracer& t) { return all.at(name)(t.input("step", {}, DType::F64)); });
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor step = Tensor::scalar(DType::F64, static_cast<double>(i));
      EXPECT_NEAR(evaluate(g, {{"step", step}}).outputs[0].get_float(0), expected[i], 1e-12)
          << name << " at step " << i;
    }
  }
}

TEST(Optim, ProgramsOfTheirOwnAreTheStep) {
  const Optimizer o = adamw({});
  const Graph prepare = prepare_program(o, DType::F64),
              update = update_program(o, "w", {DType::F64, {9, 5}}, 3);
  EXPECT_EQ(prepare.outputs.size(), 3u);
  const Tensor g = data("w", {9, 5}, DType::F64), zero(DType::F64, {9, 5});
  const Tensors scalars = evaluate(prepare, std::array{Tensor::scalar(DType::F64, 0)});
  const Tensors next =
      evaluate(update, std::array{g, g, zero, zero, scalars[0], scalars[1], scalars[2]});
  ASSERT_EQ(next.size(), 3u);
  for (int64_t i = 0; i < 45; ++i) {
    const double p = g.get_float(i), sign = p > 0 ? 1 : -1;
    EXPECT_NEAR(next[0].get_float(i), p * (1 - 1e-5) - 1e-3 * sign, 1e-7) << i;
    EXPECT_NEAR(next[2].get_float(i), 1e-3 * p * p, 1e-15) << i;
  }
}

TEST(Optim, AccumulationAndAveragesGoOnFromACheckpoint) {
  TrainOptions options = optimizers().at("accumulate");
  options.ema = 0.9;
  const NamedTensors params{{"w", data("w", {9, 5}, DType::F32)},
                            {"b", data("b", {5}, DType::F32)}};
  auto run = [&](const NamedTensors& from, int first, int last) {
    const TrainStep step = train_step(loss_of(DType::F32), from, options);
    CompiledGraph f = Session("cpu").compile(step.graph, {.threads = 1});
    f.set_params(step.state);
    for (int t = first; t < last; ++t)
      f.run({{"x", data("x", {7, 9}, DType::F32, t % 3)},
             {"y", data("y", {7, 5}, DType::F32, t % 3)}});
    NamedTensors out;
    for (const auto& [name, value] : step.state) out[name] = f.param(name);
    return out;
  };
  const NamedTensors whole = run(params, 0, 11);
  for (int stop : {1, 3, 8}) {
    const NamedTensors resumed = run(run(params, 0, stop), stop, 11);
    ASSERT_EQ(resumed.size(), whole.size());
    for (const auto& [name, value] : whole)
      EXPECT_TRUE(value.same_bits(resumed.at(name))) << name << " stopped at " << stop;
  }
  EXPECT_EQ(whole.at("step").get_int(0), 3);
  EXPECT_EQ(whole.at("run").get_int(0), 2);
}

// Python's half is test_saving.py.
TEST(Optim, CheckpointsArePythonsToo) {
  const std::string formats = RLX_SOURCE_DIR "/tests/formats/";
  const NamedTensors tree = load_checkpoint(formats + "tree.ckpt");
  ASSERT_EQ(tree.size(), 4u);
  EXPECT_TRUE(tree.at("params.0.w").same_bits(Tensor::from<float>({2, 2}, {1, 2, 3, 4})));
  EXPECT_EQ(tree.at("params.0.b").dtype(), DType::BF16);
  EXPECT_EQ(tree.at("params.0.b").get_float(1), -0.5);
  EXPECT_EQ(tree.at("step").get_int(0), 7);
  EXPECT_EQ(tree.at("#tree").dtype(), DType::U8);

  const Graph loss = trace("loss", [](Tracer& t) { return t.param("w", {2, 3}).square().sum(); });
  TrainStep step = train_step(loss,
                              {{"w", Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6})},
                               {"step", Tensor::from<int32_t>({}, {2})}},
                              {.optimizer = adamw({})});
  if (std::getenv("RLX_UPDATE_TEXT")) save_checkpoint(formats + "step.ckpt", step.state);
  const NamedTensors saved = load_checkpoint(formats + "step.ckpt");
  ASSERT_EQ(saved.size(), step.state.size());
  for (const auto& [name, value] : step.state) EXPECT_TRUE(value.same_bits(saved.at(name))) << name;
}

TEST(Optim, FansOfConvolutions) {
  const Init init(3);
  auto deviation = [](const Tensor& t) {
    double sum = 0, largest = 0;
    for (int64_t i = 0; i < t.elements(); ++i) {
      sum += t.get_float(i) * t.get_float(i) / static_cast<double>(t.elements());
      largest = std::max(largest, std::abs(t.get_float(i)));
    }
    return std::pair{std::sqrt(sum), largest};
  };
  const Ints conv{40, 20, 3, 5};  // fan_in 20 * 15, fan_out 40 * 15
  EXPECT_NEAR(deviation(init.kaiming_normal("a", conv, 1, Fans::out_in)).first,
              std::sqrt(1.0 / 300), 1e-3);
  EXPECT_NEAR(deviation(init.xavier_normal("a", conv, 1, Fans::out_in)).first, std::sqrt(2.0 / 900),
              1e-3);
  EXPECT_NEAR(deviation(init.kaiming_uniform("a", conv, 1, Fans::out_in)).second,
              std::sqrt(3.0 / 300), 1e-4);
  EXPECT_NEAR(deviation(init.xavier_uniform("a", conv, 1, Fans::out_in)).second,
              std::sqrt(6.0 / 900), 1e-4);
  EXPECT_NEAR(deviation(init.xavier_normal("a", {300, 100})).first, std::sqrt(2.0 / 400), 1e-3);
  EXPECT_NEAR(deviation(init.kaiming_uniform("a", {300, 100}, 2)).second, 2 * std::sqrt(3.0 / 300),
              1e-3);
}

TEST(Optim, Refusals) {
  auto step_with = [](auto set) {
    TrainOptions o;
    set(o);
    return train_step(loss_of(DType::F32),
                      {{"w", Tensor(DType::F32, {9, 5})}, {"b", Tensor(DType::F32, {5})}}, o);
  };
  expect_error("accumulate", "at least one run, got 0",
               [&] { step_with([](auto& o) { o.accumulate = 0; }); });
  expect_error("ema", "[0, 1), got 1", [&] { step_with([](auto& o) { o.ema = 1; }); });
  expect_error("clip-value", "positive, got -1",
               [&] { step_with([](auto& o) { o.clip_value = -1; }); });
  expect_error("adam", "adam: a beta", [] {
    AdamOptions o;
    o.beta2 = 1;
    adam(o);
  });
  expect_error("lion", "lion: a beta", [] {
    LionOptions o;
    o.beta1 = -0.5;
    lion(o);
  });
  expect_error("schedule", "exponential_rate", [] { exponential_rate(1, 0, 5); });
  expect_error("schedule", "cosine_rate", [] { cosine_rate(1, 0); });
  expect_error("schedule", "piecewise_rate: its steps must be positive and ascend, got 5, 5",
               [] { piecewise_rate(1, {{5, 1.0}, {5, 1.0}}); });
  expect_error("schedule", "2 schedules need 1 boundaries, got 0",
               [] { join_rates({constant_rate(1), constant_rate(2)}, {}); });
  expect_error("schedule", "join_rates: its steps",
               [] { join_rates({constant_rate(1), constant_rate(2)}, {0}); });
  expect_error("schedule", "warmup", [] { warmup(constant_rate(1), 0); });
  expect_error("reserved-name", "\"run\"", [] {
    const Graph g = trace("f", [](Tracer& t) { return t.param("run", {2}).sum(); });
    TrainOptions o;
    o.accumulate = 2;
    train_step(g, {{"run", Tensor(DType::F32, {2})}}, o);
  });
}

}  // namespace
}  // namespace rlx
