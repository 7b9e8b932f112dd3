// Networks learn handwritten digits, and a run that is stopped at any step goes on bit for bit. test_mnist.py does the same in
// Python.
#include "../support/mnist.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include "rlx/formats/checkpoint.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/runtime/runtime.h"
#include "rlx/train/functions.h"
#include "rlx/train/init.h"
#include "rlx/train/train_step.h"

namespace rlx::testing {
namespace {

constexpr int64_t kBatch = 50, kStepsPerEpoch = Mnist::kTrain / kBatch;

struct Network {
  Shape image;  // without the batch
  TracedTensor (*logits)(Tracer& t, const TracedTensor& x);
  NamedTensors params;
  int64_t epochs;
  double rate;
};

Network mlp() {
  const Init init(11);
  return {{Mnist::kPixels},
          [](Tracer& t, const TracedTensor& x) {
            auto h = linear(x, t.param("w1", {Mnist::kPixels, 64}), t.param("b1", {64})).relu();
            return linear(h, t.param("w2", {64, 10}), t.param("b2", {10}));
          },
          {{"w1", init.kaiming_normal("w1", {Mnist::kPixels, 64})},
           {"b1", init.zeros({64})},
           {"w2", init.xavier_uniform("w2", {64, 10})},
           {"b2", init.zeros({10})}},
          3,
          3e-3};
}

Network conv_net() {
  const Init init(12);
  return {
      {1, 28, 28},
      [](Tracer& t, const TracedTensor& x) {
        auto conv = [&](const TracedTensor& in, const std::string& w, Shape shape, int64_t stride) {
          const TracedTensor bias = t.param("b" + w, {shape[0], 1, 1});
          ConvAttrs attrs;
          attrs.stride = {stride, stride}, attrs.low = attrs.high = {2, 2};
          return (op::conv(in, t.param("w" + w, std::move(shape)), attrs) + bias).relu();
        };
        auto h = conv(conv(x, "1", {8, 1, 5, 5}, 2), "2", {16, 8, 5, 5}, 1);
        PoolAttrs pool;
        pool.kernel = pool.stride = {2, 2};
        return linear(op::pool(h, pool).flatten(1), t.param("w3", {784, 10}), t.param("b3", {10}));
      },
      {{"w1", init.kaiming_normal("w1", {8, 1, 5, 5}, M_SQRT2, Fans::out_in)},
       {"b1", init.zeros({8, 1, 1})},
       {"w2", init.kaiming_normal("w2", {16, 8, 5, 5}, M_SQRT2, Fans::out_in)},
       {"b2", init.zeros({16, 1, 1})},
       {"w3", init.xavier_uniform("w3", {784, 10})},
       {"b3", init.zeros({10})}},
      2,
      5e-3};
}

Shape batched(int64_t count, const Shape& image) {
  Shape out{count};
  out.insert(out.end(), image.begin(), image.end());
  return out;
}

class Training {
 public:
  Training(const Mnist& data, const Network& network, const NamedTensors& from)
      : data_(data), sizes_(batched(kBatch, network.image).sizes()) {
    const Graph loss = trace("loss", [&](Tracer& t) {
      auto x = t.input("x", batched(kBatch, network.image)), y = t.input("y", {kBatch}, DType::I32);
      return cross_entropy(network.logits(t, x), y);
    });
    TrainOptions options;
    options.optimizer = adamw(
        {.rate = cosine_rate(network.rate, network.epochs * kStepsPerEpoch), .decays = is_matrix});
    const TrainStep step = train_step(loss, from, options);
    program_ = Session("cpu").compile(step.graph);
    program_->set_params(step.state);
    for (const auto& [name, value] : step.state) names_.push_back(name);
  }
  // Step i, on its batch of the images, which each epoch shuffles anew.
  void step(int64_t i) {
    if (const int64_t epoch = i / kStepsPerEpoch; epoch != epoch_) {
      order_.resize(Mnist::kTrain);
      std::iota(order_.begin(), order_.end(), 0);
      std::shuffle(order_.begin(), order_.end(), std::mt19937_64(static_cast<uint64_t>(epoch)));
      epoch_ = epoch;
    }
    const auto begin = order_.begin() + i % kStepsPerEpoch * kBatch;
    const std::vector<int64_t> which(begin, begin + kBatch);
    program_->run({{"x", data_.images(which, sizes_)}, {"y", data_.labels(which)}});
  }
  NamedTensors state() {
    NamedTensors out;
    for (const std::string& name : names_) out[name] = program_->param(name);
    return out;
  }

 private:
  const Mnist& data_;
  Ints sizes_;
  std::optional<CompiledGraph> program_;
  std::vector<std::string> names_;
  std::vector<int64_t> order_;
  int64_t epoch_ = -1;
};

double share_right(const Mnist& data, const Network& network, const NamedTensors& state) {
  const Graph g = trace("classify", [&](Tracer& t) {
    return network.logits(t, t.input("x", batched(Mnist::kTest, network.image))).argmax(-1);
  });
  CompiledGraph f = Session("cpu").compile(g);
  for (const auto& [name, value] : network.params) f.set_param(name, state.at(name));
  const Tensor x = Tensor::from_bytes(DType::F32, batched(Mnist::kTest, network.image).sizes(),
                                      data.test_images.raw(), data.test_images.bytes());
  const Tensor guess = f.run({{"x", x}})[0];
  int right = 0;
  for (int64_t i = 0; i < Mnist::kTest; ++i)
    right += guess.get_int(i) == data.test_labels.get_int(i);
  return right / static_cast<double>(Mnist::kTest);
}

// Trains; at a step that differs from run to run the state is saved, loaded into a program of its own, which then takes
// `further` steps beside the first.
void learns(const Network& network, double share, int64_t further) {
  const std::optional<Mnist> data = load_mnist();
  if (!data) GTEST_SKIP() << "../shared/data/mnist is not there";
  const int64_t total = network.epochs * kStepsPerEpoch;
  const auto stop =
      static_cast<int64_t>(std::random_device{}() % static_cast<uint64_t>(total - further));
  SCOPED_TRACE(fmt::format("stopped at step {}", stop));
  const auto file = std::filesystem::temp_directory_path() / fmt::format("mnist{}.ckpt", getpid());
  Training whole(*data, network, network.params);
  NamedTensors later;
  for (int64_t i = 0; i < total; ++i) {
    if (i == stop) save_checkpoint(file, whole.state());
    whole.step(i);
    if (i + 1 == stop + further) later = whole.state();
  }
  EXPECT_GE(share_right(*data, network, whole.state()), share);

  Training resumed(*data, network, load_checkpoint(file));
  std::filesystem::remove(file);
  for (int64_t i = stop; i < stop + further; ++i) resumed.step(i);
  const NamedTensors state = resumed.state();
  ASSERT_EQ(state.size(), later.size());
  for (const auto& [name, value] : later) EXPECT_TRUE(value.same_bits(state.at(name))) << name;
}

TEST(Mnist, AnMlpIsRightOn93Percent) { learns(mlp(), 0.93, 40); }
TEST(Mnist, AConvNetIsRightOn97Percent) { learns(conv_net(), 0.97, 15); }

}  // namespace
}  // namespace rlx::testing
