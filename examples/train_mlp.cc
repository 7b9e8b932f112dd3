// Trains a small network to tell which of two interleaved spirals a point lies on.
#include <fmt/format.h>
#include <rlx/rlx.h>

#include <cmath>

using namespace rlx;

constexpr int64_t kPoints = 256, kHidden = 64;

// The network, written once for training and for use.
TracedTensor network(Tracer& t, const TracedTensor& x) {
  auto h = linear(x, t.param("w1", {2, kHidden}), t.param("b1", {kHidden})).tanh();
  h = linear(h, t.param("w2", {kHidden, kHidden}), t.param("b2", {kHidden})).gelu();
  return linear(h, t.param("w3", {kHidden, 2}), t.param("b3", {2}));
}

int main() {
  const Init init(7);
  NamedTensors params{
      {"w1", init.kaiming_normal("w1", {2, kHidden}, 3)},    {"b1", init.zeros({kHidden})},
      {"w2", init.kaiming_normal("w2", {kHidden, kHidden})}, {"b2", init.zeros({kHidden})},
      {"w3", init.xavier_uniform("w3", {kHidden, 2})},       {"b3", init.zeros({2})}};
  const Graph loss = trace("loss", [](Tracer& t) {
    auto x = t.input("x", {kPoints, 2}), y = t.input("y", {kPoints}, DType::I32);
    return cross_entropy(network(t, x), y);
  });
  const Graph classify = trace(
      "classify", [](Tracer& t) { return network(t, t.input("x", {kPoints, 2})).argmax(-1); });

  Tensor x(DType::F32, {kPoints, 2}), y(DType::I32, {kPoints});
  for (int64_t i = 0; i < kPoints; ++i) {
    const double r = 0.1 + 0.9 * static_cast<double>(i / 2) / (kPoints / 2);
    const double angle = 9 * r + M_PI * static_cast<double>(i % 2);
    x.set_float(2 * i, r * std::cos(angle)), x.set_float(2 * i + 1, r * std::sin(angle));
    y.set_int(i, i % 2);
  }

  TrainOptions options;
  options.optimizer =
      adamw({.rate = warmup_cosine({.peak = 1e-2, .warmup = 20, .total = 600, .floor = 0.05}),
             .decays = is_matrix});
  options.clip_norm = 1;
  const TrainStep step = train_step(loss, params, options);
  const Session session("cpu");
  CompiledGraph train = session.compile(step.graph);
  train.set_params(step.state);
  for (int i = 0; i <= 600; ++i) {
    const double value = train.run({{"x", x}, {"y", y}})[0].get_float(0);
    if (i % 100 == 0) fmt::print("step {:3}  loss {:.4f}\n", i, value);
  }

  CompiledGraph use = session.compile(classify);
  for (auto& [name, value] : params) use.set_param(name, train.param(name));
  const Tensor guess = use.run({{"x", x}})[0];
  int right = 0;
  for (int64_t i = 0; i < kPoints; ++i) right += guess.get_int(i) == y.get_int(i);
  fmt::print("{} of {} points right\n", right, kPoints);
  return right == kPoints ? 0 : 1;
}
