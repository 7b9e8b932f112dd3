// Fits a line by gradient descent: the smallest whole program.
#include <fmt/format.h>
#include <rlx/rlx.h>

using namespace rlx;

int main() {
  // The loss of y = w x + b on 64 points.
  const Graph loss = trace("line", [](Tracer& t) {
    auto x = t.input("x", {64}), y = t.input("y", {64});
    auto w = t.param("w", {}), b = t.param("b", {});
    return mse(x * w + b, y);
  });

  // One program for a step: loss, gradients, update of w and b.
  const Init init(1);
  TrainOptions options;
  options.optimizer = sgd({.rate = constant_rate(0.2), .momentum = 0.5});
  const TrainStep step = train_step(loss, {{"w", init.zeros({})}, {"b", init.zeros({})}}, options);
  CompiledGraph f = Session("cpu").compile(step.graph);
  f.set_params(step.state);

  // Points on y = 3 x - 1 with some noise.
  const Tensor x = init.uniform("x", {64}, -1, 1), noise = init.normal("noise", {64}, 0.05);
  Tensor y(DType::F32, {64});
  for (int64_t i = 0; i < 64; ++i) y.set_float(i, 3 * x.get_float(i) - 1 + noise.get_float(i));

  for (int i = 0; i <= 100; ++i) {
    const double value = f.run({{"x", x}, {"y", y}})[0].get_float(0);
    if (i % 20 == 0) fmt::print("step {:3}  loss {:.5f}\n", i, value);
  }
  fmt::print("y = {:.3f} x + {:.3f}\n", f.param("w").get_float(0), f.param("b").get_float(0));
}
