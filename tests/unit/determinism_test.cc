// Bitwise equal results run after run and for any number of threads; a run allocates nothing of
// ours.
#include <gtest/gtest.h>

#include <iostream>

#include "../support/allocations.h"
#include "../support/gpt_case.h"
#include "../support/random_graph.h"
#include "rlx/ops/core.h"

namespace rlx::testing {
namespace {

TEST(Determinism, TrainingIsBitwiseTheSameForAnyNumberOfThreads) {
  const GptCase gpt;
  Tensors first;
  for (const int threads : {1, 2, 3, 4, 7}) {
    CompiledGraph f = Session(Device::cpu).compile(gpt.graph, {.threads = threads});
    const Tensors result = gpt.train(f, 4);
    if (first.empty()) first = result;
    EXPECT_TRUE(same_bits(result, first)) << threads << " threads";
    EXPECT_TRUE(same_bits(gpt.train(f, 4), first)) << "again with " << threads << " threads";
  }
}

// Rows, columns and contractions that are split among threads: sizes that no block divides.
Graph large_steps() {
  Builder b("large");
  const Value x = b.input("x", {DType::F32, {257, 131}}),
              w = b.input("w", {DType::F32, {131, 517}});
  const Value y = op::matmul(b, op::softmax(b, x), w);
  b.output(op::reduce_sum(b, op::tanh(b, y), {{0, 1}}));
  b.output(op::reduce_sum(b, y, {{0}}));
  b.output(op::reduce_max(b, y, {{1}}));
  b.output(op::cumsum(b, y, {.axis = 0}));
  b.output(op::matmul(b, y, y, {.transpose_a = true}));
  return b.finish();
}

Tensor ramp(const Ints& sizes) {
  Tensor t(DType::F32, sizes);
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, 0.01 * static_cast<double>(i * 7919 % 1001) - 5);
  return t;
}

TEST(Determinism, LargeStepsAreBitwiseTheSame) {
  const NamedTensors inputs{{"x", ramp({257, 131})}, {"w", ramp({131, 517})}};
  Tensors first;
  for (const int threads : {1, 2, 3, 4, 5, 8}) {
    CompiledGraph f = Session(Device::cpu).compile(large_steps(), {.threads = threads});
    for (int run = 0; run < 3; ++run) {
      const Tensors result = f.run(inputs);
      if (first.empty()) first = result;
      EXPECT_TRUE(same_bits(result, first)) << threads << " threads, run " << run;
    }
  }
}

TEST(Determinism, RandomGraphs) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const RandomProgram p = random_program(seed);
    Tensors first;
    for (const int threads : {1, 2, 3, 4}) {
      CompiledGraph f = Session(Device::cpu).compile(p.graph, {.threads = threads});
      for (int run = 0; run < 2; ++run) {
        NamedTensors inputs, params;
        for (const auto& [name, t] : p.leaves)
          (p.graph.node(p.graph.find_leaf(name)).op == &op::param ? params : inputs)[name] = t;
        f.set_params(params);
        Tensors result = f.run(inputs);
        for (auto& [name, t] : f.params()) result.push_back(t);
        if (first.empty()) first = result;
        EXPECT_TRUE(same_bits(result, first))
            << "program " << seed << ", " << threads << " threads, run " << run;
      }
    }
  }
}

TEST(Determinism, CompilingTwiceGivesTheSamePlan) {
  const GptCase gpt;
  const CompiledGraph a = Session(Device::cpu).compile(gpt.graph),
                      b = Session(Device::cpu).compile(gpt.graph);
  EXPECT_EQ(a.info().plan, b.info().plan);
  EXPECT_EQ(a.info().planned_bytes, b.info().planned_bytes);
}

TEST(Allocations, ARunMakesNone) {
  const GptCase gpt;
  for (const int threads : {1, 2, 4}) {
    CompiledGraph f = Session(Device::cpu).compile(gpt.graph, {.threads = threads});
    gpt.train(f, 2);  // threads are started
    const AllocationCounter counter;
    for (int i = 0; i < 5; ++i) f.run();
    const long ours = counter.ours(), others = counter.others();
    EXPECT_EQ(ours, 0) << threads << " threads";
    std::cout << threads << " threads: allocations of libraries in 5 runs: " << others << "\n";
  }
}

}  // namespace
}  // namespace rlx::testing
