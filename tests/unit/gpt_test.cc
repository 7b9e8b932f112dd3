// The character GPT: its sizes, its loss before training, its gradient against a finite difference,
// and that it learns.
#include "rlx/models/gpt.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rlx/runtime/runtime.h"
#include "rlx/transform/reverse.h"

namespace rlx {
namespace {

GptConfig tiny(DType dtype) {
  GptConfig c;
  c.vocab = 11, c.width = 8, c.layers = 2, c.heads = 2, c.block = 6, c.batch = 2, c.dtype = dtype;
  return c;
}

Tensor tokens(const GptConfig& c, int64_t offset) {
  Tensor t(DType::I32, {c.batch, c.block});
  for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, (i * 5 + offset * 3) % c.vocab);
  return t;
}

NamedTensors leaves(const GptConfig& c, NamedTensors params) {
  params["x"] = tokens(c, 0), params["y"] = tokens(c, 1);
  return params;
}

double loss_of(const GptConfig& c, const NamedTensors& all) {
  return evaluate(gpt_loss(c), all).outputs[0].get_float(0);
}

TEST(Gpt, ParametersAreThoseOfTheDefinition) {
  const GptConfig c;
  const NamedTensors p = gpt_init(c, 1);
  EXPECT_EQ(p.size(), 2u + 12u * 4 + 3);
  EXPECT_EQ(p.at("tok_emb").sizes(), (Ints{96, 128}));
  EXPECT_EQ(p.at("l3.w1").sizes(), (Ints{128, 512}));
  EXPECT_EQ(p.at("l0.w2").sizes(), (Ints{512, 128}));
  EXPECT_EQ(p.at("lnf.g").get_float(5), 1);
  double squares = 0;
  for (int64_t i = 0; i < p.at("l1.wo").elements(); ++i)
    squares += std::pow(p.at("l1.wo").get_float(i), 2);
  EXPECT_NEAR(std::sqrt(squares / (128 * 128)), 0.02 / std::sqrt(8), 2e-4);
  const Graph step = gpt_train_step(c);
  EXPECT_EQ(step.params().size(), 3 * p.size() + 1);
  EXPECT_EQ(step.updates.size(), 3 * p.size() + 1);
  EXPECT_EQ(step.outputs.size(), 1u);
}

TEST(Gpt, LossAtTheStartIsThatOfGuessing) {
  const GptConfig c = tiny(DType::F32);
  EXPECT_NEAR(loss_of(c, leaves(c, gpt_init(c, 3))), std::log(11), 0.05);
}

// Larger matrices than those at the start, and no zeros, so that every part matters.
NamedTensors shaken(const GptConfig& c) {
  NamedTensors p = gpt_init(c, 3);
  int64_t k = 0;
  for (auto& [name, value] : p) {
    const double scale = value.rank() == 2 ? 10 : 1;
    for (int64_t i = 0; i < value.elements(); ++i)
      value.set_float(i, value.get_float(i) * scale + 0.1 * std::sin(static_cast<double>(++k)));
  }
  return p;
}

TEST(Gpt, GradientAgreesWithAFiniteDifference) {
  const GptConfig c = tiny(DType::F64);
  const NamedTensors params = shaken(c);
  std::vector<std::string> names;
  for (const auto& [name, value] : params) names.push_back(name);
  const Tensors g = evaluate(grad(gpt_loss(c), names), leaves(c, params)).outputs;
  // Along a direction that is different in every parameter: one at a time, so that a wrong one is
  // named.
  for (size_t n = 0; n < names.size(); ++n) {
    NamedTensors up = leaves(c, params), down = up;
    Tensor &u = up[names[n]], &d = down[names[n]];
    const Tensor& p = params.at(names[n]);
    u = Tensor(p.dtype(), p.sizes()), d = Tensor(p.dtype(), p.sizes());
    double expected = 0;
    const double h = 1e-5;
    for (int64_t i = 0; i < p.elements(); ++i) {
      const double along = std::cos(static_cast<double>(i * 7));
      u.set_float(i, p.get_float(i) + h * along), d.set_float(i, p.get_float(i) - h * along);
      expected += g[n].get_float(i) * along;
    }
    EXPECT_NEAR((loss_of(c, up) - loss_of(c, down)) / (2 * h), expected,
                1e-7 + 1e-6 * std::abs(expected))
        << names[n];
  }
}

TEST(Gpt, AFewStepsLearnABatch) {
  GptConfig c = tiny(DType::F32);
  c.warmup = 2, c.steps = 30, c.rate = 1e-2;
  const Graph step = gpt_train_step(c);
  NamedTensors all = leaves(c, gpt_train_state(c, gpt_init(c, 3)));
  double first = 0, last = 0;
  for (int i = 0; i < 30; ++i) {
    const Evaluated r = evaluate(step, all);
    last = r.outputs[0].get_float(0);
    if (i == 0) first = last;
    for (const auto& [name, value] : r.updates) all[name] = value;
  }
  EXPECT_NEAR(first, std::log(11), 0.05);
  EXPECT_LT(last, first - 1);
}

TEST(Gpt, DevicesAgreeOnTheFirstSteps) {
  GptConfig c = tiny(DType::F32);
  c.warmup = 2, c.steps = 30;
  const Graph step = gpt_train_step(c);
  NamedTensors all = leaves(c, gpt_train_state(c, shaken(c)));
  for (Device device : available_devices()) {
    CompiledGraph f = Session(device).compile(step);
    NamedTensors expected = all;
    for (const auto& [name, value] : all)
      if (name != "x" && name != "y") f.set_param(name, value);
    for (int i = 0; i < 5; ++i) {
      const double loss = f.run({{"x", all["x"]}, {"y", all["y"]}})[0].get_float(0);
      const Evaluated r = evaluate(step, expected);
      EXPECT_NEAR(loss, r.outputs[0].get_float(0), 2e-5) << name(device) << " step " << i;
      for (const auto& [param, value] : r.updates) expected[param] = value;
    }
    EXPECT_EQ(f.param("step").get_int(0), 5);
  }
}

TEST(Gpt, LogitsSeeOnlyThePast) {
  const GptConfig c = tiny(DType::F64);
  NamedTensors all = shaken(c);
  all["position"] = Tensor::from<int32_t>({}, {3});
  all["x"] = tokens(c, 0);
  const Graph g = gpt_logits(c);
  const Tensor a = evaluate(g, all).outputs[0];
  EXPECT_EQ(a.sizes(), (Ints{2, 11}));
  Tensor later = tokens(c, 0), earlier = tokens(c, 0);
  later.set_int(4, 1), earlier.set_int(2, 1);
  all["x"] = later;
  const Tensor b = evaluate(g, all).outputs[0];
  all["x"] = earlier;
  const Tensor other = evaluate(g, all).outputs[0];
  double unchanged = 0, changed = 0;
  for (int64_t i = 0; i < 11; ++i) {
    unchanged += std::abs(a.get_float(i) - b.get_float(i));
    changed += std::abs(a.get_float(i) - other.get_float(i));
  }
  EXPECT_LT(unchanged, 1e-12);
  EXPECT_GT(changed, 1e-3);
}

TEST(Gpt, RefusesSizesThatDoNotFit) {
  GptConfig c;
  c.heads = 3;
  try {
    gpt_loss(c);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), "gpt-config");
  }
}

}  // namespace
}  // namespace rlx
