// `rlx train` and its files: whatever fails or dies, a checkpoint stays that can be gone on from bit
// for bit. This process computes nothing, its children do: they must not inherit threads.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "../support/tool.h"
#include "rlx/base/error.h"
#include "rlx/formats/checkpoint.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;
using testing::run_tool_in_child;
using testing::start_tool;
using testing::ToolResult;
using testing::with;
using testing::Words;

class TrainSaves : public testing::ToolFolder {
 protected:
  void SetUp() override {
    ToolFolder::SetUp();
    file_calls().fsync = [](int) { return 0; };  // for the children; nobody pulls the plug here
    write_file(at("t.txt"), testing::some_text());
    if (!whole.empty()) return;
    const ToolResult r = run_tool_in_child(training("whole"), {}, &calls);
    ASSERT_EQ(r.status, 0) << r.err;
    whole = read_file(at("whole/train.ckpt"));
    picture = read_file(at("whole/loss.svg"));
  }
  Words training(const std::string& out) const {
    return with(testing::tiny_training(at("t.txt"), at(out)), {"--save-every", "1"});
  }
  int64_t steps_in(const std::string& checkpoint) const {
    return load_checkpoint(at(checkpoint)).at("run/training").elements();
  }
  // Of a run that nothing disturbed: its files, and how many calls change files.
  static inline std::string whole, picture;
  static inline int calls = 0;
};

TEST_F(TrainSaves, UnwritableFoldersAreFoundBeforeTheWork) {
  write_file(at("file"), "x");
  fs::create_directory(at("locked"));
  write_file(at("locked/train.ckpt"), "precious");
  fs::permissions(at("locked/train.ckpt"), fs::perms::owner_read);
  fs::create_directories(at("plot/loss.svg"));
  for (const char* out : {"file", "file/sub", "locked", "plot"}) {
    // The text is not read: there is none.
    const ToolResult r = run_tool_in_child(
        with(testing::tiny_training(at("no such text"), at(out)), {"--save-every", "1"}));
    EXPECT_EQ(testing::code_of(r), "file-open") << out;
    EXPECT_EQ(r.err.find("no such text"), std::string::npos) << r.err;
  }
  EXPECT_EQ(read_file(at("locked/train.ckpt")), "precious");
}

TEST_F(TrainSaves, AFailedSaveIsReportedAndTrainingGoesOn) {
  int warned = 0;
  for (int at_call = calls / 4; at_call < calls; at_call += calls / 4) {
    const ToolResult r = run_tool_in_child(training("once"), {.at = at_call, .error = ENOSPC});
    const bool warning = r.err.find("rlx: warning: step ") != std::string::npos;
    warned += warning;
    if (r.status == 0) {
      EXPECT_TRUE(read_file(at("once/train.ckpt")) == whole) << at_call;
    } else {  // the last save, or the picture
      EXPECT_EQ(r.status, 1) << r.err;
      EXPECT_NE(r.err.find("rlx: error: "), std::string::npos) << r.err;
      EXPECT_GE(steps_in("once/train.ckpt"), 5) << at_call;
    }
    EXPECT_NE(r.out.find("validation, this model"), std::string::npos) << "no report: " << r.err;
  }
  EXPECT_GT(warned, 0) << "no fault hit a save on the way";
}

TEST_F(TrainSaves, AFullDiskCostsTheCheckpointOnly) {
  const ToolResult r =
      run_tool_in_child(training("full"), {.at = calls / 2, .error = ENOSPC, .lasting = true});
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_NE(r.err.find("No space left"), std::string::npos) << r.err;
  EXPECT_NE(r.out.find("validation, this model"), std::string::npos) << r.out;
  const int64_t steps = steps_in("full/train.ckpt");
  EXPECT_TRUE(steps > 0 && steps < 6) << steps;
  ASSERT_EQ(run_tool_in_child(with(training("full"), {"--resume", at("full/train.ckpt")})).status,
            0);
  EXPECT_TRUE(read_file(at("full/train.ckpt")) == whole);
  EXPECT_EQ(files("full"), 2u);
}

TEST_F(TrainSaves, AKilledRunGoesOnBitForBit) {
  int gone_on = 0;
  for (int k = 0; k < 4; ++k) {
    const int at_call = 11 + (calls - 11) * k / 4;
    SCOPED_TRACE(at_call);
    const std::string out = "kill" + std::to_string(k), checkpoint = out + "/train.ckpt";
    EXPECT_EQ(run_tool_in_child(training(out), {.at = at_call, .kill = true}).status, -1);
    Words again = training(out);
    if (fs::exists(at(checkpoint))) {
      EXPECT_GT(steps_in(checkpoint), 0);
      again = with(again, {"--resume", at(checkpoint)});
      ++gone_on;
    }
    ASSERT_EQ(run_tool_in_child(again).status, 0);
    EXPECT_TRUE(read_file(at(checkpoint)) == whole);
    EXPECT_EQ(read_file(at(out + "/loss.svg")), picture);
    EXPECT_EQ(files(out), 2u) << "something is left behind";
  }
  EXPECT_GE(gone_on, 3);
}

// From now on this process gets a SIGINT right after it has said `words` on standard error.
const char* words_to_stop_at = nullptr;
void stop_when_said(const char* words) {
  words_to_stop_at = words;
  const cookie_io_functions_t watched{
      nullptr,
      [](void*, const char* text, size_t size) {
        if (std::string_view(text, size).find(words_to_stop_at) != std::string_view::npos)
          ::raise(SIGINT);
        return ::write(STDERR_FILENO, text, size);
      },
      nullptr, nullptr};
  stderr = ::fopencookie(nullptr, "w", watched);
}

TEST_F(TrainSaves, ARequestToStopWhileValidatingCostsNoStep) {
  // Each step is reported before it is validated. The second one ends a run of its own, too.
  for (const Words& more : {Words{}, Words{"--stop-at", "2"}}) {
    const std::string out = "stopped" + std::to_string(more.size());
    const Words args = with(testing::tiny_training(at("t.txt"), at(out)), {"--save-every", "0"});
    const ToolResult r = run_tool_in_child(with(args, more), [] { stop_when_said("step 2/"); });
    EXPECT_EQ(r.status, 130) << r.err;
    EXPECT_NE(r.err.find("go on with --resume"), std::string::npos) << r.err;
    ASSERT_TRUE(fs::exists(at(out + "/train.ckpt")));
    EXPECT_EQ(steps_in(out + "/train.ckpt"), 2);
    ASSERT_EQ(run_tool_in_child(with(args, {"--resume", at(out + "/train.ckpt")})).status, 0);
    EXPECT_TRUE(read_file(at(out + "/train.ckpt")) == whole);
    EXPECT_EQ(read_file(at(out + "/loss.svg")), picture);
  }
}

TEST_F(TrainSaves, NobodyNeedsToListen) {
  if (!fs::exists(testing::tool_path())) GTEST_SKIP() << "no tool beside the tests";
  const std::pair<const char*, void (*)()> cases[] = {{"closed", [] { ::close(STDOUT_FILENO); }},
                                                      {"all closed",
                                                       [] {
                                                         for (int fd : {0, 1, 2}) ::close(fd);
                                                       }},
                                                      {"broken pipe",
                                                       [] {
                                                         int ends[2];
                                                         if (::pipe(ends) != 0) _exit(98);
                                                         ::dup2(ends[1], STDOUT_FILENO);
                                                         ::close(ends[0]);
                                                         ::close(ends[1]);
                                                       }},
                                                      {"messages nobody reads", [] {
                                                         int ends[2];
                                                         if (::pipe(ends) != 0) _exit(98);
                                                         ::dup2(ends[1], STDERR_FILENO);
                                                         ::close(ends[0]);
                                                         ::close(ends[1]);
                                                       }}};
  for (const auto& [name, prepare] : cases) {
    const ToolResult r = start_tool(training(name), prepare);
    EXPECT_EQ(r.status, 0) << name << ": " << r.err;
    EXPECT_EQ(r.err.find("error"), std::string::npos) << r.err;
    ASSERT_TRUE(fs::exists(at(std::string(name) + "/train.ckpt"))) << name;
    EXPECT_TRUE(read_file(at(std::string(name) + "/train.ckpt")) == whole) << name;
    EXPECT_EQ(files(name), 2u) << name;
  }
  // Where the output is the result, it must arrive.
  EXPECT_EQ(testing::code_of(start_tool({"ops"}, [] { ::close(STDOUT_FILENO); })), "output");
}

}  // namespace
}  // namespace rlx
