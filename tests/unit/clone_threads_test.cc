// Clones of one compiled graph in several threads: each gives what a single one gives.
#include <gtest/gtest.h>

#include <thread>

#include "../support/gpt_case.h"

namespace rlx::testing {
namespace {

TEST(Clones, TrainingInThreadsGivesEqualResults) {
  const GptCase gpt;
  CompiledGraph f = Session(Device::cpu).compile(gpt.graph, {.threads = 1});
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
  CompiledGraph f = Session(Device::cpu).compile(graph, {.threads = 2});
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

TEST(Clones, CompilingInThreadsGivesEqualPrograms) {
  const GptCase gpt;
  std::vector<Tensors> results(3);
  std::vector<std::thread> threads;
  for (Tensors& r : results)
    threads.emplace_back([&] {
      CompiledGraph f = Session(Device::cpu).compile(gpt.graph, {.threads = 1});
      r = gpt.train(f, 2);
    });
  for (std::thread& t : threads) t.join();
  for (const Tensors& r : results) EXPECT_TRUE(same_bits(r, results[0]));
}

}  // namespace
}  // namespace rlx::testing
