// Clones of one compiled graph in several threads: each gives what a single one gives.
#include <gtest/gtest.h>

#include <thread>

#include "../support/gpt_case.h"
#include "rlx/ops/core.h"

namespace rlx::testing {
namespace {

TEST(Clones, TrainingInThreadsGivesEqualResults) {
  const GptCase gpt;
  CompiledGraph f = Session("cpu").compile(gpt.graph, {.threads = 1});
  const Tensors alone = gpt.train(f, 3);
  std::vector<CompiledGraph> clones;
  for (int i = 0; i < 3; ++i) clones.push_back(f.clone());
  std::vector<Tensors> results(clones.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clones.size(); ++i)
    threads.emplace_back([&, i] { results[i] = gpt.train(clones[i], 3); });
  for (std::thread& t : threads) t.join();
  for (const Tensors& r : results) EXPECT_TRUE(same_bits(r, alone));
}

// Parameters that no update writes are shared; each clone has its own inputs and outputs.
TEST(Clones, ReadersShareParameters) {
  const GptCase gpt;
  const Graph graph = gpt_loss(gpt.config);
  CompiledGraph f = Session("cpu").compile(graph, {.threads = 2});
  f.set_params(gpt_init(gpt.config, 3));
  std::vector<Tensor> expected;
  for (uint64_t i = 0; i < 4; ++i)
    expected.push_back(f.run({{"x", gpt.tokens(i)}, {"y", gpt.tokens(i + 1)}})[0]);
  std::vector<CompiledGraph> clones;
  for (int i = 0; i < 4; ++i) clones.push_back(f.clone());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t i = 0; i < clones.size(); ++i)
    threads.emplace_back([&, i] {
      for (int run = 0; run < 10; ++run) {
        const Tensors out = clones[i].run({{"x", gpt.tokens(i)}, {"y", gpt.tokens(i + 1)}});
        wrong += !out[0].same_bits(expected[i]);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// y = x @ w with weights that lie in their kernel's own form.
struct Product {
  Tensor x = Tensor::full(DType::F32, {64, 128}, 1), w = Tensor::full(DType::F32, {128, 128}, 0.5);
  CompiledGraph f = [] {
    Builder b("product");
    b.output(op::matmul(b, b.input("x", {DType::F32, {64, 128}}),
                        b.param("w", {DType::F32, {128, 128}})));
    return Session("cpu").compile(b.finish(), {.threads = 1});
  }();
  Product() {
    f.set_param("w", w);
    f.set_input("x", x);
  }
  static float value(CompiledGraph& f) {
    f.run();
    return *static_cast<const float*>(f.output(0));
  }
};

// clone() changes nothing in its source: preparing the weights is a step of its own.
TEST(Clones, AreMadeOfASourceThatStaysAsItIs) {
  Product p;
  const int64_t plain = p.f.resident_bytes();
  CompiledGraph early = p.f.clone();
  EXPECT_EQ(p.f.resident_bytes(), plain);
  p.f.prepare();
  const int64_t prepared = p.f.resident_bytes();
  EXPECT_GE(prepared, plain + static_cast<int64_t>(p.w.bytes()));
  CompiledGraph late = p.f.clone();
  EXPECT_EQ(late.resident_bytes(), prepared);  // shares the prepared form
  EXPECT_EQ(early.resident_bytes(), plain);
  for (CompiledGraph* f : {&p.f, &early, &late}) EXPECT_EQ(Product::value(*f), 64);
  late.set_param("w", Tensor::full(DType::F32, {128, 128}, 0.25));
  EXPECT_EQ(Product::value(late), 32);
  EXPECT_EQ(Product::value(p.f), 64);
  p.f.set_param("w", Tensor::full(DType::F32, {128, 128}, 1));
  EXPECT_EQ(Product::value(p.f), 128);
  EXPECT_EQ(Product::value(early), 64);
  EXPECT_EQ(Product::value(late), 32);
}

// Cloning what another thread runs is refused or done, and harms neither.
TEST(Clones, CloningWhileTheSourceRuns) {
  Product p;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, runs{0};
  std::thread runner([&] {
    while (!stop) {
      try {
        wrong += Product::value(p.f) != 64;
        ++runs;
      } catch (const Error& e) {
        wrong += e.code() != "running";
      }
    }
  });
  while (runs < 1) std::this_thread::yield();
  for (int i = 0; i < 200; ++i) {
    try {
      CompiledGraph copy = p.f.clone();
      wrong += Product::value(copy) != 64;
    } catch (const Error& e) {
      wrong += e.code() != "running";
    }
  }
  stop = true;
  runner.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Clones, CompilingInThreadsGivesEqualPrograms) {
  const GptCase gpt;
  std::vector<Tensors> results(3);
  std::vector<std::thread> threads;
  for (Tensors& r : results)
    threads.emplace_back([&] {
      CompiledGraph f = Session("cpu").compile(gpt.graph, {.threads = 1});
      r = gpt.train(f, 2);
    });
  for (std::thread& t : threads) t.join();
  for (const Tensors& r : results) EXPECT_TRUE(same_bits(r, results[0]));
}

}  // namespace
}  // namespace rlx::testing
