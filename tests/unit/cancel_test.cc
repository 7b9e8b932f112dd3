// Cancelling: what still runs after the request, counted in blocks of work; what a stopped training step
// leaves behind; and the signals of the tool.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <vector>

#include "rlx/backend/cpu/backend.h"
#include "rlx/backend/cpu/block_kernel.h"
#include "rlx/backend/cpu/kernels/indexing/sort.h"
#include "rlx/backend/cpu/kernels/sequence/state_space.h"
#include "rlx/cli/interrupt.h"
#include "rlx/lower/lower.h"
#include "rlx/models/trainer.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/custom.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

constexpr int kThreads = 3;
constexpr int64_t kBlocks = 1000, kLast = 17;  // the request comes in block kLast

struct Counter {
  std::atomic<bool> cancel{false};
  std::atomic<int> begun{0}, late{0};  // late: begun after the request
};

// Every block is worth a look at the request; `rows`: one row of f32 per block.
class CountingKernel final : public cpu::BlockKernel {
 public:
  CountingKernel(Counter& c, bool rows, bool withdraws)
      : c_(c), rows_(rows), withdraws_(withdraws) {}
  std::string name() const override { return "counting"; }
  int64_t blocks() const override { return kBlocks; }
  int64_t work() const override { return kBlocks << 22; }
  int64_t rows() const override { return rows_ ? kBlocks : 0; }
  int64_t rows_per_block() const override { return 1; }
  void run(const cpu::StepMemory& m, int64_t begin, int64_t end) const override {
    for (int64_t block = begin; block < end; ++block) {
      if (c_.cancel) ++c_.late;
      ++c_.begun;
      if (block == kLast) {
        c_.cancel = true;
        EXPECT_EQ(m.cancelled(), m.cancellation->watched());
        if (withdraws_) c_.cancel = false;  // seen is seen
      }
    }
  }

 private:
  Counter& c_;
  bool rows_, withdraws_;
};

// A program of these kernels of kBlocks blocks in one chain; `rows`: over one row after the other.
std::unique_ptr<Executable> program_of(
    const std::vector<std::shared_ptr<const StepKernel>>& kernels, bool rows, int threads) {
  auto compiled = std::make_shared<Compiled>();
  compiled->backend = cpu::make_cpu_backend();
  compiled->threads = threads;
  auto program = std::make_shared<Program>();
  Program& p = *program;
  for (const auto& kernel : kernels) {
    Step step;
    step.label = "counting";
    step.kernel = kernel;
    p.steps.push_back(std::move(step));
  }
  p.chains.push_back({0, static_cast<int32_t>(kernels.size()), rows ? kBlocks : 0, rows ? 1 : 0});
  auto bound = std::make_shared<Bound>();
  bound->program = std::move(program);
  compiled->bound = std::move(bound);
  return load_program(std::move(compiled));
}

std::unique_ptr<Executable> counting_program(Counter& c, int steps, bool withdraws = false) {
  std::vector<std::shared_ptr<const StepKernel>> kernels;
  for (int s = 0; s < steps; ++s)
    kernels.push_back(std::make_shared<CountingKernel>(c, steps > 1, withdraws));
  return program_of(kernels, steps > 1, kThreads);
}

void expect_cancelled(FunctionRef<void()> f) {
  try {
    f();
    ADD_FAILURE() << "the run was not cancelled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), "cancelled") << e.what();
  }
}

TEST(Cancel, IsSeenBetweenTheBlocksOfOneKernel) {
  Counter c;
  const auto f = counting_program(c, 1);
  expect_cancelled([&] { f->run(nullptr, nullptr, {.cancel = &c.cancel}); });
  EXPECT_LE(c.late, kThreads);
  EXPECT_LT(c.begun, kBlocks);
  c.cancel = false, c.begun = 0, c.late = 0;  // the next run is whole, without a request
  f->run(nullptr, nullptr, {});
  EXPECT_EQ(c.begun, kBlocks);
}

TEST(Cancel, IsSeenBetweenTheStepsOfAChain) {
  Counter c;
  const auto f = counting_program(c, 3);
  expect_cancelled([&] { f->run(nullptr, nullptr, {.cancel = &c.cancel}); });
  EXPECT_LE(c.late, kThreads);
}

TEST(Cancel, ARequestThatSomebodySawCounts) {
  Counter c;
  const auto f = counting_program(c, 1, /*withdraws=*/true);
  expect_cancelled([&] { f->run(nullptr, nullptr, {.cancel = &c.cancel}); });
  EXPECT_LT(c.begun, kBlocks);
}

// Counts the runs of each block, of which many are run between two looks at a request.
class OnceKernel final : public cpu::BlockKernel {
 public:
  OnceKernel(int64_t work, bool rows) : runs(kBlocks), work_(work), rows_(rows) {}
  std::string name() const override { return "once"; }
  int64_t blocks() const override { return kBlocks; }
  int64_t work() const override { return work_; }
  int64_t rows() const override { return rows_ ? kBlocks : 0; }
  int64_t rows_per_block() const override { return 1; }
  void run(const cpu::StepMemory&, int64_t begin, int64_t end) const override {
    outside += begin < 0 || begin > end || end > kBlocks;
    for (int64_t b = begin; b < std::min(end, kBlocks); ++b) ++runs[static_cast<size_t>(b)];
  }
  mutable std::vector<std::atomic<int>> runs;
  mutable std::atomic<int> outside{0};

 private:
  int64_t work_;
  bool rows_;
};

// Watched or not, whatever divides a thread's share: those between two looks are of that share, and none is left out.
TEST(Cancel, BlocksOfEveryShareRunOnce) {
  for (const int threads : {1, 3, 4})
    for (const int64_t blocks_a_look : {int64_t{1}, int64_t{7}, int64_t{60}, 2 * kBlocks})
      for (const bool rows : {false, true}) {
        const int64_t work = (int64_t{1} << 20) * kBlocks / blocks_a_look;
        std::vector<std::shared_ptr<OnceKernel>> kernels;
        for (int k = 0; k <= int{rows}; ++k)
          kernels.push_back(std::make_shared<OnceKernel>(work / (1 + int{rows}), rows));
        const auto f = program_of({kernels.begin(), kernels.end()}, rows, threads);
        const std::atomic<bool> no{false};
        f->run(nullptr, nullptr, {});
        f->run(nullptr, nullptr, {.cancel = &no});
        for (const auto& k : kernels) {
          EXPECT_EQ(k->outside, 0) << threads << " threads, " << blocks_a_look << " blocks";
          for (const auto& n : k->runs) ASSERT_EQ(n, 2);
        }
      }
}

// ---- inside long blocks

// Says stop at the second question.
struct Asked {
  int times = 0;
  cpu::StopPoll stop() {
    return {[](void* of) { return ++static_cast<Asked*>(of)->times >= 2; }, this};
  }
};

TEST(Cancel, IsSeenWhileALongLineIsSorted) {
  const cpu::SortProblem p{.n = 1 << 21, .k = 1 << 21};
  std::vector<float> x(1 << 21), y(1 << 21);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761u % 1000003);
  std::vector<uint64_t> scratch(cpu::sort_scratch_bytes(p) / 8);
  Asked asked;
  cpu::sort(p, x.data(), y.data(), nullptr, 0, 1, scratch.data(), asked.stop());
  EXPECT_EQ(asked.times, 2);
  cpu::sort(p, x.data(), y.data(), nullptr, 0, 1, scratch.data());
  EXPECT_TRUE(std::is_sorted(y.begin(), y.end()));
}

TEST(Cancel, IsSeenWhileTheFirstOfALongLineAreSelected) {
  for (const int64_t inner : {1, 2}) {
    const cpu::SortProblem p{.descending = true, .n = 1 << 22, .inner = inner, .k = 3};
    std::vector<float> x(static_cast<size_t>(p.n * inner)), y(6);
    std::vector<uint64_t> scratch(cpu::sort_scratch_bytes(p) / 8);
    Asked asked;
    cpu::sort(p, x.data(), y.data(), nullptr, 0, 1, scratch.data(), asked.stop());
    EXPECT_EQ(asked.times, 2);
  }
}

// 64-byte-aligned scratch.
struct Scratch {
  explicit Scratch(size_t bytes) : memory(DType::U8, {static_cast<int64_t>(bytes)}) {}
  Tensor memory;
  void* data() { return memory.mutable_raw(); }
};

TEST(Cancel, IsSeenInRecurrences) {
  const int64_t steps = 200;
  const Tensor wide(DType::F32, {steps * 64 * 4});
  Tensor out = Tensor(DType::F32, {steps * 64 * 4});
  const void* in = wide.raw();
  std::vector<Tensor> results(5, Tensor());
  for (Tensor& t : results) t = Tensor(DType::F32, {steps * 64 * 4});
  const cpu::SelectiveScanProblem p{DType::F32, 1, steps, 64, 4};
  Asked forward, backward, delta;
  Scratch a(cpu::selective_scan_scratch_bytes(p)), b(cpu::selective_scan_backward_scratch_bytes(p));
  cpu::selective_scan(p, {in, in, in, in, in, out.mutable_raw(), forward.stop()}, 0, 1, a.data());
  auto result = [&](size_t i) { return results[i].mutable_raw(); };
  cpu::selective_scan_backward(p,
                               {in, in, in, in, in, in, result(0), result(1), result(2), result(3),
                                result(4), backward.stop()},
                               0, 1, b.data());
  const cpu::DeltaNetProblem d{DType::F32, 1, steps, 1, 16};
  Scratch c(cpu::delta_net_scratch_bytes(d));
  cpu::delta_net(d, {in, in, in, in, in, nullptr, result(0), result(1), delta.stop()}, 0, 1,
                 c.data());
  EXPECT_EQ(forward.times, 2);
  EXPECT_EQ(backward.times, 2);
  EXPECT_EQ(delta.times, 2);
}

// ---- bodies of control flow, on every device

Counter* counted = nullptr;

// x + 1, counted as a block.
void register_counting_op() {
  if (find_custom_op("test.count")) return;
  register_custom_op(
      {.name = "test.count",
       .infer = [](std::span<const Type> in, std::string_view) { return Types{in[0]}; },
       .compute =
           [](std::span<const Tensor> in, std::string_view) {
             if (counted->cancel) ++counted->late;
             if (++counted->begun == kLast) counted->cancel = true;
             Tensor out(in[0].dtype(), in[0].sizes());
             out.set_float(0, in[0].get_float(0) + 1);
             return Tensors{out};
           }});
}

Body body_of(FunctionRef<Value(Builder&, Value)> f) {
  Builder b("body");
  b.output(f(b, b.input("x", {DType::F32, {1}})));
  return Body(b.finish());
}
constexpr auto count_twice = [](Builder& b, Value x) {
  const Value once = custom_op(b, "test.count", "", Values{x})[0];
  return custom_op(b, "test.count", "", Values{once})[0];
};

class CancelOnDevice : public ::testing::TestWithParam<Device> {
 protected:
  void expect_stop(const Graph& g) {
    Counter c;
    counted = &c;
    CompiledGraph f = Session(GetParam()).compile(g);
    f.set_input("x", Tensor(DType::F32, {1}));
    expect_cancelled([&] { f.run({.cancel = &c.cancel}); });
    EXPECT_EQ(c.begun, kLast);
    EXPECT_EQ(c.late, 0);
  }
};
INSTANTIATE_TEST_SUITE_P(Cancel, CancelOnDevice, ::testing::ValuesIn(available_devices()),
                         [](const auto& info) { return name(info.param); });

TEST_P(CancelOnDevice, IsSeenInScans) {
  register_counting_op();
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {1}});
  b.output(op::scan(b, x, {.body = body_of(count_twice), .length = 1000, .num_carries = 1}));
  expect_stop(b.finish());
}

TEST_P(CancelOnDevice, IsSeenInNestedScans) {
  register_counting_op();
  auto inner = [](Builder& b, Value x) {
    return op::scan(b, x, {.body = body_of(count_twice), .length = 1000, .num_carries = 1});
  };
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {1}});
  b.output(op::scan(b, x, {.body = body_of(inner), .length = 1000, .num_carries = 1}));
  expect_stop(b.finish());
}

TEST_P(CancelOnDevice, IsSeenInLoopsThatNeverEnd) {
  register_counting_op();
  const Body forever = body_of([](Builder& b, Value x) {
    return op::reshape(b, op::ge(b, x, b.constant(DType::F32, 0)), {.shape = {}});
  });
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {1}});
  b.output(op::while_loop(b, x, {.cond = forever, .body = body_of(count_twice), .num_carries = 1}));
  expect_stop(b.finish());
}

// ---- training

TEST(Cancel, NoCheckpointAfterAStoppedStep) {
  namespace fs = std::filesystem;
  std::string text;
  for (size_t i = 0; i < 4000; ++i) text += "abcd\n"[i % 5];
  GptConfig config{.width = 8, .layers = 1, .heads = 1, .block = 8, .batch = 2};
  config.steps = 10, config.warmup = 1;
  const Corpus corpus = make_corpus(text, config.block);
  config.vocab = corpus.vocab();
  Trainer trainer(corpus, config, {});
  const fs::path path = fs::path(::testing::TempDir()) / "rlx_cancel_test.ckpt";
  fs::remove(path);
  trainer.step();
  const std::atomic<bool> cancel{true};
  expect_cancelled([&] { trainer.step({.cancel = &cancel}); });
  EXPECT_EQ(trainer.step_number(), 1);
  try {
    trainer.save(path);
    ADD_FAILURE() << "a state that is neither the old nor the new one was saved";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), "torn-state");
  }
  EXPECT_FALSE(fs::exists(path));
}

// ---- signals

// How a process ends that gets these signals inside the scope.
int status_after(std::initializer_list<int> signals) {
  const pid_t child = fork();
  if (child == 0) {
    const cli::InterruptScope scope;
    for (int s : signals) ::raise(s);
    _exit(cli::interrupted() ? 42 : 43);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(Cancel, TheSecondSignalEndsTheProcess) {
  EXPECT_EQ(WEXITSTATUS(status_after({})), 43);
  for (int first : {SIGINT, SIGTERM}) {
    EXPECT_EQ(WEXITSTATUS(status_after({first})), 42);
    for (int second : {SIGINT, SIGTERM}) {
      const int status = status_after({first, second});
      EXPECT_TRUE(WIFSIGNALED(status));
      EXPECT_EQ(WTERMSIG(status), second);
    }
  }
}

}  // namespace
}  // namespace rlx
