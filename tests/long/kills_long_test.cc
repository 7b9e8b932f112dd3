// 1,000 kills: of processes that save checkpoints and graphs at any moment, and of `rlx train` after
// any call that changes files. Old or new, never neither; what goes on gives the same bits.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "../support/tool.h"
#include "rlx/base/error.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/graph_file.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;
using testing::run_tool_in_child;
using testing::with;
using testing::Words;

class Kills : public testing::ToolFolder {};

// A child saves versions one after the other; it is killed after a random time.
template <class F>
void kill_savers(int kills, uint64_t seed, const F& save_and_check) {
  std::mt19937_64 random(seed);
  for (int k = 0; k < kills; ++k) {
    const pid_t child = fork();
    if (child == 0)
      for (int version = 1 + k % 50;; ++version) save_and_check(version, true);
    ::usleep(static_cast<useconds_t>(random() % 20000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    save_and_check(0, false);
  }
}

TEST_F(Kills, ThreeHundredOfCheckpoints) {
  const fs::path file = folder / "c.ckpt";
  auto tensor = [](int version) { return Tensor::full(DType::F32, {400000}, version); };
  save_checkpoint(file, {{"w", tensor(1)}});
  kill_savers(300, 1, [&](int version, bool save) {
    if (save) return save_checkpoint(file, {{"w", tensor(version)}});
    const Tensor found = load_checkpoint(file).at("w");
    ASSERT_TRUE(found.same_bits(tensor(static_cast<int>(found.get_float(0)))));
  });
  save_checkpoint(file, {});
  EXPECT_EQ(files(), 1u);
}

TEST_F(Kills, ThreeHundredOfGraphs) {
  const fs::path file = folder / "g.rlx";
  auto graph = [](int version) {
    Builder b("g");
    const Value x = b.input("x", {DType::F32, {100000}});
    b.output(op::add(b, x, b.constant(Tensor::full(DType::F32, {100000}, version))));
    return b.finish();
  };
  save_graph(file, graph(1));
  kill_savers(300, 2, [&](int version, bool save) {
    if (save) return save_graph(file, graph(version));
    ASSERT_NO_THROW(load_graph(file));
  });
  save_graph(file, graph(1));
  EXPECT_EQ(files(), 2u);
}

TEST_F(Kills, FourHundredOfTraining) {
  write_file(at("t.txt"), testing::some_text());
  const auto training = [&](const std::string& out) {
    return with(testing::tiny_training(at("t.txt"), at(out)), {"--save-every", "1"});
  };
  int calls = 0;
  ASSERT_EQ(run_tool_in_child(training("whole"), {}, &calls).status, 0);
  const std::string whole = read_file(at("whole/train.ckpt"));
  // Runs that are killed again and again, each time a little further on.
  for (int k = 0; k < 400;) {
    Words again = training("run");
    for (int at_call = k % 17; k < 400; at_call += 5, ++k) {
      if (fs::exists(at("run/train.ckpt")))
        again = with(training("run"), {"--resume", at("run/train.ckpt")});
      if (run_tool_in_child(again, {.at = at_call, .kill = true}).status == 0) break;
    }
    if (fs::exists(at("run/train.ckpt")))
      again = with(training("run"), {"--resume", at("run/train.ckpt")});
    ASSERT_EQ(run_tool_in_child(again).status, 0);
    ASSERT_TRUE(read_file(at("run/train.ckpt")) == whole) << k;
    ASSERT_EQ(files("run"), 2u);
    fs::remove_all(at("run"));
  }
}

}  // namespace
}  // namespace rlx
