// Bitwise equal results run after run, for any number of threads and in every process; a run allocates
// nothing of ours.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "../support/allocations.h"
#include "../support/gpt_case.h"
#include "../support/random_graph.h"
#include "rlx/base/parallel.h"
#include "rlx/ops/core.h"

namespace rlx::testing {
namespace {

constexpr int kThreads[] = {1, 2, 3, 4, 7, 16};

// Runs f; how many kernels were shared out meanwhile. Equal results prove nothing where one thread does it all.
int64_t shared_by(FunctionRef<void()> f) {
  const int64_t before = shared_loops();
  f();
  return shared_loops() - before;
}

TEST(Determinism, TrainingIsBitwiseTheSameForAnyNumberOfThreads) {
  const GptCase gpt;
  Tensors first;
  for (const int threads : kThreads) {
    CompiledGraph f = Session("cpu").compile(gpt.graph, {.threads = threads});
    Tensors result;
    const int64_t shared = shared_by([&] { result = gpt.train(f, 4); });
    if (threads == 1)
      EXPECT_EQ(shared, 0);
    else
      EXPECT_GE(shared, 8) << threads << " threads";  // two kernels or more in each step
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
  const Value z = op::matmul(b, y, y, {.transpose_a = true});
  b.output(z);
  // Sums in parts, whose order must not be that of the threads; each rounds differently.
  for (Value v :
       {op::sin(b, z), op::cos(b, y), op::exp(b, op::tanh(b, z)), op::square(b, op::sin(b, y))})
    b.output(op::reduce_sum(b, v, {{0, 1}}));
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
  for (const int threads : kThreads) {
    CompiledGraph f = Session("cpu").compile(large_steps(), {.threads = threads});
    for (int run = 0; run < 3; ++run) {
      Tensors result;
      const int64_t shared = shared_by([&] { result = f.run(inputs); });
      // The softmax and its product are one chain; then reductions, the running sum, the last product.
      if (threads == 1)
        EXPECT_EQ(shared, 0);
      else
        EXPECT_GE(shared, 5) << threads << " threads";
      if (first.empty()) first = result;
      EXPECT_TRUE(same_bits(result, first)) << threads << " threads, run " << run;
    }
  }
}

Tensors run_once(CompiledGraph& f, const RandomProgram& p) {
  NamedTensors inputs, params;
  for (const auto& [name, t] : p.leaves)
    (p.graph.node(p.graph.find_leaf(name)).op == &op::param ? params : inputs)[name] = t;
  f.set_params(params);
  Tensors result = f.run(inputs);
  for (auto& [name, t] : f.params()) result.push_back(t);
  return result;
}

// How many kernels were shared out.
int64_t expect_same_for_all_threads(const RandomProgram& p) {
  Tensors first;
  int64_t shared = 0;
  for (const int threads : kThreads) {
    CompiledGraph f = Session("cpu").compile(p.graph, {.threads = threads});
    for (int run = 0; run < 2; ++run) {
      Tensors result;
      shared += shared_by([&] { result = run_once(f, p); });
      if (first.empty()) first = result;
      EXPECT_TRUE(same_bits(result, first))
          << p.graph.name << ", " << threads << " threads, run " << run;
    }
  }
  return shared;
}

TEST(Determinism, RandomGraphs) {
  for (uint64_t seed = 0; seed < 8; ++seed) expect_same_for_all_threads(random_program(seed));
}

// Sixteen programs that have kernels to share out; what one thread takes alone counts for nothing here.
TEST(Determinism, LargeRandomGraphs) {
  int programs = 0;
  int64_t shared = 0;
  for (uint64_t seed = 0; programs < 16; ++seed) {
    ASSERT_LT(seed, 40u) << "too few of the programs are shared out";
    const int64_t own = expect_same_for_all_threads(random_large_program(seed));
    programs += own > 0;
    shared += own;
  }
  const auto runs = static_cast<int64_t>(2 * (std::size(kThreads) - 1));  // with several threads
  EXPECT_GT(shared, 24 * runs);
}

// ---- two processes

// What compiling and running leaves behind: the program after each pass, kernels as IR and assembly,
// the plan, the results. Run by the test below, in processes of their own.
TEST(Determinism, DISABLED_WriteDumps) {
  const std::filesystem::path folder = std::getenv("RLX_TEST_DUMPS");
  auto write = [&](const std::string& name, const Tensors& results) {
    std::ofstream file(folder / name / "results.bin", std::ios::binary);
    for (const Tensor& t : results)
      file.write(reinterpret_cast<const char*>(t.raw()), static_cast<std::streamsize>(t.bytes()));
  };
  auto options = [&](const std::string& name) {
    std::filesystem::create_directories(folder / name);
    return CompileOptions{.threads = 4, .dump_dir = (folder / name).string()};
  };
  const GptCase gpt;
  CompiledGraph trained = Session("cpu").compile(gpt.graph, options("gpt"));
  write("gpt", gpt.train(trained, 2));
  for (uint64_t seed = 0; seed < 4; ++seed)
    for (const RandomProgram& p : {random_program(seed), random_large_program(seed)}) {
      CompiledGraph f = Session("cpu").compile(p.graph, options(p.graph.name));
      write(p.graph.name, run_once(f, p));
    }
}

std::map<std::string, std::string> files_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    out[std::filesystem::relative(entry.path(), folder).string()] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  return out;
}

// Addresses differ between the two, and what malloc hands out: nothing may hang on either.
TEST(Determinism, TwoProcessesLeaveTheSameDumps) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("rlx_dumps_{}", getpid());
  std::map<std::string, std::string> first;
  for (const char* name : {"a", "b"}) {
    const std::filesystem::path own = folder / name;
    std::filesystem::create_directories(own);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      setenv("RLX_TEST_DUMPS", own.c_str(), 1);
      setenv("MALLOC_PERTURB_", name[0] == 'a' ? "17" : "201", 1);
      execl("/proc/self/exe", "determinism_test", "--gtest_filter=Determinism.DISABLED_WriteDumps",
            "--gtest_also_run_disabled_tests", nullptr);
      _exit(127);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const auto files = files_in(own);
    if (name[0] == 'a') {
      first = files;
      EXPECT_GT(files.size(), 100u);
      continue;
    }
    ASSERT_EQ(files.size(), first.size());
    for (const auto& [path, text] : files)
      EXPECT_TRUE(first.contains(path) && first.at(path) == text) << path;
  }
  std::filesystem::remove_all(folder);
}

TEST(Determinism, CompilingTwiceGivesTheSamePlan) {
  const GptCase gpt;
  const CompiledGraph a = Session("cpu").compile(gpt.graph), b = Session("cpu").compile(gpt.graph);
  EXPECT_EQ(a.info().plan(), b.info().plan());
  EXPECT_EQ(a.info().planned_bytes, b.info().planned_bytes);
}

TEST(Allocations, ARunMakesNone) {
  const GptCase gpt;
  for (const int threads : {1, 2, 4}) {
    CompiledGraph f = Session("cpu").compile(gpt.graph, {.threads = threads});
    gpt.train(f, 2);  // threads are started
    f.run();          // its results have memory
    const AllocationCounter counter;
    for (int i = 0; i < 5; ++i) f.run();
    const long ours = counter.ours(), others = counter.others();
    EXPECT_EQ(ours, 0) << threads << " threads";
    std::cout << threads << " threads: allocations of libraries in 5 runs: " << others << "\n";
  }
}

}  // namespace
}  // namespace rlx::testing
