// Training in mixed precision: master parameters, loss scaling, steps that overflow, runs that go on from their state.
#include "rlx/train/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../support/expect_error.h"
#include "../support/gpt_case.h"
#include "../support/worse.h"
#include "rlx/front/trace.h"
#include "rlx/train/functions.h"
#include "rlx/train/init.h"
#include "rlx/train/train_step.h"
#include "rlx/transform/reverse.h"

namespace rlx::testing {
namespace {

double rounding(Precision p) { return std::ldexp(1.0, -info(dtype(p)).digits); }

// mean((x @ w)^2): the gradient is 2 x^T (x w) / n.
Graph squares() {
  return trace("squares", [](Tracer& t) {
    return t.input("x", {9, 8}).matmul(t.param("w", {8, 3})).square().mean();
  });
}
NamedTensors weights() { return {{"w", Init(5).normal("w", {8, 3}, 0.5)}}; }
Tensor batch(double size) { return Init(6).normal("x", {9, 8}, size); }

TrainOptions f16_options(LossScaleOptions scale = {}) {
  TrainOptions o;
  o.optimizer = adamw({.rate = constant_rate(0.01)});
  o.precision = PrecisionPolicy::mixed(Precision::F16);
  o.loss_scale = scale;
  return o;
}

// Both evaluators run the step; `state` is what a run leaves.
struct Stepper {
  explicit Stepper(const TrainOptions& o, const char* device = "cpu")
      : step(train_step(squares(), weights(), o)), f(Session(device).compile(step.graph)) {
    f.set_params(step.state);
  }
  double run(double size) { return f.run({{"x", batch(size)}})[0].get_float(0); }
  double at(const std::string& name) const { return f.param(name).get_float(0); }
  int64_t count(const std::string& name) const { return f.param(name).get_int(0); }
  TrainStep step;
  CompiledGraph f;
};

constexpr const char *kScale = "loss_scale", *kGood = "loss_scale.good_steps",
                     *kSkipped = "loss_scale.skipped_steps";

// Of a parameter without elements the gradient is finite.
TEST(LossScale, EmptyParametersAreTrainedBeside) {
  const Graph loss = trace("loss", [](Tracer& t) {
    const TracedTensor w = t.param("w", {2, 1}), u = t.param("u", {0, 2});
    return t.input("x", {4, 2}).matmul(w).square().mean() + (u * u).sum();
  });
  const NamedTensors params{{"w", Tensor::full(DType::F32, {2, 1}, 1)},
                            {"u", Tensor(DType::F32, {0, 2})}};
  const TrainStep step = train_step(loss, params, f16_options());
  CompiledGraph f = Session("cpu").compile(step.graph);
  f.set_params(step.state);
  for (int i = 0; i < 30; ++i) f.run({{"x", Tensor::full(DType::F32, {4, 2}, 1)}});
  EXPECT_LT(f.param(kSkipped).get_int(0), 20) << "the scale is found";
  EXPECT_LT(f.param("w").get_float(0), 1);
  const Graph nothing = trace("nothing", [](Tracer& t) {
    const TracedTensor u = t.param("u", {0, 2});
    return t.input("x", {4, 2}).matmul(u.t()).sum();
  });
  const TrainStep empty = train_step(nothing, {{"u", Tensor(DType::F32, {0, 2})}}, f16_options());
  CompiledGraph g = Session("cpu").compile(empty.graph);
  g.set_params(empty.state);
  for (int i = 0; i < 3; ++i) g.run({{"x", Tensor::full(DType::F32, {4, 2}, 1)}});
  EXPECT_EQ(g.param(kSkipped).get_int(0), 0);
  EXPECT_NO_THROW(train_step(squares(), weights(), f16_options({.interval = int64_t{1} << 40})));
  for (double norm : {-1.0, std::nan(""), double(INFINITY)})
    expect_error("clip-norm", "finite", [&] {
      train_step(loss, params, {.optimizer = sgd({.rate = constant_rate(0.1)}), .clip_norm = norm});
    });
}

TEST(LossScale, OnlyF16IsScaledByItself) {
  const auto has_scale = [](TrainOptions o) {
    return train_step(squares(), weights(), o).state.contains(kScale);
  };
  TrainOptions o = f16_options();
  EXPECT_TRUE(has_scale(o));
  o.loss_scale.mode = LossScaleMode::none;
  EXPECT_FALSE(has_scale(o));
  o = f16_options();
  o.precision = PrecisionPolicy::mixed(Precision::BF16);
  EXPECT_FALSE(has_scale(o));
  o.loss_scale.mode = LossScaleMode::fixed;
  EXPECT_TRUE(has_scale(o));
  EXPECT_FALSE(has_scale({}));
}

// 3e4 squared is no f16, so the gradient of x = 3e4 overflows; that of x = 0.01 does not, 65536 times.
TEST(LossScale, AStepThatOverflowsIsSkippedAndCounted) {
  for (const char* device : {"cpu", "reference"}) {
    Stepper s(f16_options(), device);
    s.run(0.01);
    EXPECT_EQ(s.count("step"), 1);
    EXPECT_EQ(s.count(kGood), 1);
    EXPECT_EQ(s.count(kSkipped), 0);
    EXPECT_EQ(s.at(kScale), 65536);
    const NamedTensors before = s.f.params();
    s.run(3e4);
    for (const auto& [name, value] : s.f.params()) {
      if (name.starts_with(kScale)) continue;
      EXPECT_TRUE(value.same_bits(before.at(name))) << device << " " << name;
    }
    EXPECT_EQ(s.count("step"), 1);
    EXPECT_EQ(s.count(kGood), 0);
    EXPECT_EQ(s.count(kSkipped), 1);
    EXPECT_EQ(s.at(kScale), 32768);
    s.run(0.01);
    EXPECT_FALSE(s.f.param("w").same_bits(before.at("w")));
    EXPECT_EQ(s.count("step"), 2);
    EXPECT_EQ(s.count(kSkipped), 1);
  }
}

// NaN in the data is no finite gradient either.
TEST(LossScale, NanIsSkippedToo) {
  Stepper s(f16_options());
  Tensor x = batch(1);
  x.set_float(5, std::nan(""));
  s.f.run({{"x", x}});
  EXPECT_EQ(s.count(kSkipped), 1);
  EXPECT_TRUE(s.f.param("w").same_bits(weights().at("w")));
}

// A step of two runs, the first of which overflows; clipping must not hide it.
TEST(LossScale, StepsOfSeveralRunsAreSkippedWhole) {
  TrainOptions o = f16_options();
  o.accumulate = 2, o.clip_value = 0.5, o.ema = 0.9;
  Stepper s(o);
  const NamedTensors before = s.f.params();
  s.run(3e4);
  EXPECT_EQ(s.count(kSkipped), 0) << "the step is not over";
  EXPECT_EQ(s.at(kScale), 65536);
  s.run(0.01);
  EXPECT_EQ(s.count(kSkipped), 1);
  EXPECT_EQ(s.at(kScale), 32768);
  for (const auto& [name, value] : s.f.params())
    if (!name.starts_with(kScale)) {
      EXPECT_TRUE(value.same_bits(before.at(name))) << name;
    }
  s.run(0.01), s.run(0.01);
  EXPECT_EQ(s.count("step"), 1);
  EXPECT_EQ(s.count(kGood), 1);
  EXPECT_FALSE(s.f.param("w").same_bits(before.at("w")));
  EXPECT_TRUE(std::isfinite(s.at("w")));
}

TEST(LossScale, GrowsAndBacksOffWithinItsLimits) {
  Stepper s(f16_options({.initial = 256, .interval = 3, .least = 128, .most = 1024}));
  const double scales[] = {256, 256, 512, 512, 512, 1024, 1024, 1024, 1024, 1024};
  for (const double scale : scales) {
    s.run(1);
    EXPECT_EQ(s.at(kScale), scale);
  }
  for (const double scale : {512, 256, 128, 128}) {
    s.run(3e4);
    EXPECT_EQ(s.at(kScale), scale);
  }
  EXPECT_EQ(s.count(kSkipped), 4);
  EXPECT_EQ(s.count("step"), 10);
}

TEST(LossScale, AFixedOneStays) {
  Stepper s(f16_options({.mode = LossScaleMode::fixed, .initial = 512, .interval = 1}));
  s.run(1), s.run(3e4), s.run(1);
  EXPECT_EQ(s.at(kScale), 512);
  EXPECT_EQ(s.count(kSkipped), 1);
  EXPECT_EQ(s.count("step"), 2);
}

// The gradient is about 1e-9, of which f16 keeps nothing unless the loss is scaled. In f32 it is the same to the digits of
// f16. One step of plain descent shows it.
TEST(LossScale, KeepsWhatF16WouldRoundAway) {
  const auto moved = [](const TrainOptions& options) {
    Stepper s(options);
    s.run(1e-4);
    std::vector<double> out;
    const Tensor w = s.f.param("w");
    for (int64_t i = 0; i < w.elements(); ++i)
      out.push_back(w.get_float(i) - weights().at("w").get_float(i));
    return out;
  };
  TrainOptions o = f16_options();
  o.optimizer = sgd({.rate = constant_rate(1e6)});
  const std::vector<double> scaled = moved(o);
  o.loss_scale.mode = LossScaleMode::none;
  const std::vector<double> plain = moved(o);
  o.precision = {};
  const std::vector<double> exact = moved(o);
  double norm = 0, off = 0, rest = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    norm += exact[i] * exact[i], off += std::pow(scaled[i] - exact[i], 2),
        rest += std::fabs(plain[i]);
  EXPECT_GT(norm, 0);
  EXPECT_EQ(rest, 0);
  EXPECT_LT(std::sqrt(off / norm), 0.1);  // x itself is a subnormal f16 of some 10 bits at most
}

// Parameters, moments and clipping are those of f32, given the gradient of the mixed program.
TEST(MixedTraining, MastersAreUpdatedInF32) {
  TrainOptions o;
  o.optimizer = sgd({.rate = constant_rate(1e-4)});
  o.precision = PrecisionPolicy::mixed(Precision::BF16);
  Stepper s(o);
  s.run(1);
  const Tensor w = s.f.param("w"), start = weights().at("w");
  EXPECT_EQ(w.dtype(), DType::F32);
  const Graph mixed = mixed_precision(squares(), o.precision);
  const Tensor g = evaluate(grad(mixed, {"w"}), {{"x", batch(1)}, {"w", start}}).outputs[0];
  int moved = 0;
  for (int64_t i = 0; i < w.elements(); ++i) {
    const double want = start.get_float(i) - 1e-4 * g.get_float(i);
    EXPECT_NEAR(w.get_float(i), want, 1e-4 * std::fabs(g.get_float(i)) * 2e-2 + 1e-7);
    moved += w.get_float(i) != start.get_float(i);  // a step that bf16 would not see
  }
  EXPECT_EQ(moved, w.elements());
  for (const auto& [name, value] : s.f.params())
    EXPECT_TRUE(value.dtype() == DType::F32 || value.dtype() == DType::I32) << name;
}

TEST(MixedTraining, MistakesAreNamed) {
  const auto check = [](std::string_view part, LossScaleOptions o) {
    expect_error("loss-scale", part, [&] { train_step(squares(), weights(), f16_options(o)); });
  };
  check("no range", {.least = 4, .most = 2});
  check("no range", {.least = 0});
  check("does not lie between 1 and 16777216", {.initial = 0.5});
  check("factor of 1 or more, not 0.5", {.growth = 0.5});
  check("factor in (0, 1], not 2", {.backoff = 2});
  check("1 step or more, not 0", {.interval = 0});
  const Graph taken = trace("taken", [](Tracer& t) {
    return (t.input("x", {9, 8}).matmul(t.param("loss_scale", {8, 3}))).sum();
  });
  expect_error("reserved-name", "loss_scale",
               [&] { train_step(taken, {{"loss_scale", weights().at("w")}}, f16_options()); });
  TrainOptions idle;
  idle.precision = PrecisionPolicy::mixed(Precision::BF16).allow({"matmul"});
  const Graph none = trace("none", [](Tracer& t) { return t.param("w", {8, 3}).square().sum(); });
  expect_error("policy-idle", "none", [&] { train_step(none, weights(), idle); });
}

// ---- a whole model

std::vector<double> losses(Precision p, int steps, NamedTensors* last = nullptr,
                           const NamedTensors* from = nullptr) {
  GptCase c;
  c.config.precision = p;
  c.config.rate = 3e-3;
  c.graph = gpt_train_step(c.config);
  c.state = gpt_train_state(c.config, gpt_init(c.config, 3));
  CompiledGraph f = Session("cpu").compile(c.graph);
  f.set_params(from ? *from : c.state);
  std::vector<double> out;
  for (int i = 0; i < steps; ++i) out.push_back(f.run(c.inputs)[0].get_float(0));
  if (last) *last = f.params();
  return out;
}

// The curve of a run that learns one batch by heart, from log(31) to a half of it. Each step's loss is within a few
// roundings of f32's: what is off in one step is not made larger by those that follow.
TEST(MixedTraining, TheLossFollowsThatOfF32) {
  constexpr int kSteps = 40;
  const std::vector<double> exact = losses(Precision::F32, kSteps);
  EXPECT_LT(exact.back(), exact.front() / 2);
  for (const Precision p : {Precision::BF16, Precision::F16}) {
    const std::vector<double> ours = losses(p, kSteps);
    double worst = 0;
    for (int i = 0; i < kSteps; ++i) {
      const auto k = static_cast<size_t>(i);
      worst = worse(worst, std::fabs(ours[k] - exact[k]) / exact[k]);
    }
    EXPECT_LT(worst, 4 * rounding(p)) << to_string(p);
    EXPECT_GT(worst, 0) << to_string(p);
  }
}

TEST(MixedTraining, GoesOnFromItsStateBitForBit) {
  for (const Precision p : {Precision::BF16, Precision::F16}) {
    NamedTensors whole, half, rest;
    const std::vector<double> all = losses(p, 6, &whole), first = losses(p, 4, &half),
                              second = losses(p, 2, &rest, &half);
    EXPECT_EQ(all[5], second[1]);
    ASSERT_EQ(whole.size(), rest.size());
    for (const auto& [name, value] : whole) EXPECT_TRUE(value.same_bits(rest.at(name))) << name;
  }
}

}  // namespace
}  // namespace rlx::testing
