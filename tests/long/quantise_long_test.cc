// A network that learned handwritten digits here, in fewer bits: what it loses of its accuracy.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "../support/mnist.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/ops.h"
#include "rlx/quantise/qat.h"
#include "rlx/train/functions.h"
#include "rlx/train/init.h"
#include "rlx/train/train_step.h"

namespace rlx::testing {
namespace {

constexpr int64_t kBatch = 50, kSteps = Mnist::kTrain / kBatch;

// Kernels of 4 x 8 and 16 x 4 elements an output, so that all but the first are whole blocks of 32.
TracedTensor logits(Tracer& t, const TracedTensor& x) {
  const auto conv = [&](const TracedTensor& in, const std::string& n, Shape shape, int64_t stride) {
    const TracedTensor bias = t.param("b" + n, {shape[0], 1, 1});
    ConvAttrs c;
    c.stride = {stride, stride}, c.low = c.high = {2, 2};
    return (op::conv(in, t.param("w" + n, std::move(shape)), c) + bias).relu();
  };
  PoolAttrs pool;
  pool.kernel = pool.stride = {2, 2};
  const auto h = conv(conv(x, "1", {32, 1, 5, 5}, 2), "2", {32, 32, 5, 5}, 1);
  const auto flat = op::pool(h, pool).flatten(1);  // [n, 32 * 49]
  const auto hidden = linear(flat, t.param("w3", {1568, 64}), t.param("b3", {64})).relu();
  return linear(hidden, t.param("w4", {64, 10}), t.param("b4", {10}));
}

Graph network() {
  return trace("digits",
               [](Tracer& t) { return logits(t, t.input("x", {Dim::symbol("n"), 1, 28, 28})); });
}

Graph loss() {
  return trace("loss", [](Tracer& t) {
    return cross_entropy(logits(t, t.input("x", {kBatch, 1, 28, 28})),
                         t.input("y", {kBatch}, DType::I32));
  });
}

NamedTensors initial() {
  const Init init(21);
  return {{"w1", init.kaiming_normal("w1", {32, 1, 5, 5}, M_SQRT2, Fans::out_in)},
          {"b1", init.zeros({32, 1, 1})},
          {"w2", init.kaiming_normal("w2", {32, 32, 5, 5}, M_SQRT2, Fans::out_in)},
          {"b2", init.zeros({32, 1, 1})},
          {"w3", init.kaiming_normal("w3", {1568, 64})},
          {"b3", init.zeros({64})},
          {"w4", init.xavier_uniform("w4", {64, 10})},
          {"b4", init.zeros({10})}};
}

// The parameters after so many epochs.
NamedTensors train(const Mnist& data, const Graph& of, const NamedTensors& from,
                   const std::vector<std::string>& names, int64_t epochs, double rate) {
  TrainOptions o;
  o.optimizer = adamw({.rate = cosine_rate(rate, epochs * kSteps), .decays = is_matrix});
  o.params = names;
  const TrainStep step = train_step(of, from, o);
  CompiledGraph f = Session("cpu").compile(step.graph);
  f.set_params(step.state);
  std::vector<int64_t> order(Mnist::kTrain);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), std::mt19937_64(static_cast<uint64_t>(epoch)));
    for (int64_t i = 0; i < kSteps; ++i) {
      const auto begin = order.begin() + i * kBatch;
      const std::vector<int64_t> which(begin, begin + kBatch);
      f.run({{"x", data.images(which, {kBatch, 1, 28, 28})}, {"y", data.labels(which)}});
    }
  }
  NamedTensors out;
  for (const auto& [name, value] : from) out[name] = f.param(name);
  return out;
}

// In percent.
double accuracy(const Mnist& data, const Graph& g, const NamedTensors& params) {
  CompiledGraph f = Session("cpu").compile(g);
  for (Value v : g.params()) {
    const std::string& name = g.node(v).get<LeafAttrs>().name;
    f.set_param(name, params.at(name));
  }
  const Tensor y =
      f.run({{"x", Tensor::from_bytes(DType::F32, {Mnist::kTest, 1, 28, 28}, data.test_images.raw(),
                                      data.test_images.bytes())}})[0];
  int right = 0;
  for (int64_t i = 0; i < Mnist::kTest; ++i) {
    int64_t best = 0;
    for (int64_t k = 1; k < 10; ++k)
      if (y.get_float(i * 10 + k) > y.get_float(i * 10 + best)) best = k;
    right += best == data.test_labels.get_int(i);
  }
  return 100.0 * right / static_cast<double>(Mnist::kTest);
}

std::vector<NamedTensors> calibration_data(const Mnist& data) {
  std::vector<NamedTensors> out;
  for (int64_t b = 0; b < 4; ++b) {
    std::vector<int64_t> which(100);
    std::iota(which.begin(), which.end(), 100 * b);
    out.push_back({{"x", data.images(which, {100, 1, 28, 28})}});
  }
  return out;
}

int count(const Graph& g, const OpDef& op) {
  return static_cast<int>(
      std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == &op; }));
}

class QuantisedDigits : public ::testing::Test {
 protected:
  // Trained once for all tests.
  static const NamedTensors& params(const Mnist& data) {
    static const NamedTensors trained = [&] {
      std::vector<std::string> names;
      for (const auto& [name, value] : initial()) names.push_back(name);
      return train(data, loss(), initial(), names, 3, 2e-3);
    }();
    return trained;
  }
  static double float_accuracy(const Mnist& data) {
    static const double share = accuracy(data, network(), params(data));
    return share;
  }
};

TEST_F(QuantisedDigits, Int8AfterTraining) {
  const auto data = load_mnist();
  if (!data) GTEST_SKIP() << "../shared/data/mnist is not there";
  const double before = float_accuracy(*data);
  EXPECT_GT(before, 96);
  for (const auto method : {CalibrationMethod::min_max, CalibrationMethod::percentile,
                            CalibrationMethod::entropy, CalibrationMethod::mse})
    for (bool asymmetric : {false, true}) {
      QuantiseOptions o;
      o.calibration.activations = {.method = method, .asymmetric = asymmetric};
      const Quantised q = quantise(network(), params(*data), calibration_data(*data), o);
      EXPECT_EQ(count(q.graph, *&op::conv_integer) + count(q.graph, *&op::matmul_integer), 4);
      const double after = accuracy(*data, q.graph, q.params);
      fmt::print("int8 {} {}: {:.2f} of {:.2f}\n", enum_names(method)[static_cast<size_t>(method)],
                 asymmetric ? "asymmetric" : "symmetric", after, before);
      EXPECT_GT(after, before - 0.5);
    }
}

TEST_F(QuantisedDigits, WeightsOfFourBits) {
  const auto data = load_mnist();
  if (!data) GTEST_SKIP() << "../shared/data/mnist is not there";
  const double before = float_accuracy(*data);
  for (const char* format : {"int4/32", "q4_0", "q4_1", "iq4_nl", "nvfp4/16"}) {
    const Quantised q =
        quantise(network(), params(*data), calibration_data(*data), {.format = format});
    const double after = accuracy(*data, q.graph, q.params);
    fmt::print("{}: {:.2f} of {:.2f}\n", format, after, before);
    EXPECT_GT(after, before - 1) << q.report.to_string();
    EXPECT_LT(q.report.bytes_after, q.report.bytes_before / 4) << q.report.to_string();
  }
}

TEST_F(QuantisedDigits, TrainedWithFourBits) {
  const auto data = load_mnist();
  if (!data) GTEST_SKIP() << "../shared/data/mnist is not there";
  const double before = float_accuracy(*data);
  for (bool learned : {false, true}) {
    const QatOptions o{.weight_bits = 4, .activation_bits = 0, .learned = learned};
    const QatProgram q = prepare_qat(loss(), params(*data), o);
    const NamedTensors trained = train(*data, q.graph, q.params, q.trained, 1, 5e-4);
    const Quantised r = convert_qat(prepare_qat(network(), params(*data), o).graph, trained);
    const double after = accuracy(*data, r.graph, r.params);
    fmt::print("QAT int4 {}: {:.2f} of {:.2f}\n", learned ? "learned" : "", after, before);
    EXPECT_GT(after, before - 0.5);
    EXPECT_LT(r.report.bytes_after, r.report.bytes_before / 6);
  }
}

}  // namespace
}  // namespace rlx::testing
