#include "tool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "rlx/cli/tool.h"

namespace rlx::testing {

namespace fs = std::filesystem;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

ToolResult run_tool(const Words& args) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int status = cli::run(args);
  std::fflush(stdout);
  return {status, ::testing::internal::GetCapturedStdout(),
          ::testing::internal::GetCapturedStderr()};
}

namespace {

std::string temporary_folder() {
  std::string name = (fs::temp_directory_path() / "rlx-tool-XXXXXX").string();
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  return name;
}

// What `body` says in a child, whose exit status it returns.
ToolResult in_child(const std::function<int()>& body) {
  const fs::path folder = temporary_folder(), out = folder / "out", err = folder / "err";
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [file, fd] : {std::pair{out, STDOUT_FILENO}, std::pair{err, STDERR_FILENO}})
      if (::dup2(::open(file.c_str(), O_WRONLY | O_CREAT, 0600), fd) < 0) _exit(99);
    const int status = body();
    std::fflush(nullptr);
    _exit(status);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  ToolResult result{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  fs::remove_all(folder);
  return result;
}

}  // namespace

ToolResult run_tool_in_child(const Words& args, FileFault fault, int* calls) {
  const fs::path folder = temporary_folder(), count = folder / "calls";
  ToolResult result = in_child([&] {
    int status = 0, made = 0;
    {
      const FileFaults faults(fault);
      status = cli::run(args);
      made = faults.calls();
    }
    write_file(count, std::to_string(made));
    return status;
  });
  if (calls) *calls = std::stoi(read_file(count));
  fs::remove_all(folder);
  return result;
}

ToolResult run_tool_in_child(const Words& args, const std::function<void()>& prepare) {
  return in_child([&] {
    prepare();
    return cli::run(args);
  });
}

fs::path tool_path() {
  return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "rlx";
}

ToolResult start_tool(const Words& args, const std::function<void()>& prepare) {
  const std::string tool = tool_path().string();
  return in_child([&] {
    std::vector<char*> argv{const_cast<char*>(tool.c_str())};
    Words copy = args;
    for (std::string& a : copy) argv.push_back(a.data());
    argv.push_back(nullptr);
    prepare();
    ::execv(tool.c_str(), argv.data());
    return 99;
  });
}

void ToolFolder::SetUp() { folder = temporary_folder(); }
void ToolFolder::TearDown() { fs::remove_all(folder); }
size_t ToolFolder::files(const std::string& sub) const {
  return static_cast<size_t>(std::distance(fs::recursive_directory_iterator(folder / sub), {}));
}

std::string code_of(const ToolResult& r) {
  EXPECT_EQ(r.status, 1) << r.out;
  const size_t open = r.err.find('['), close = r.err.find(']');
  EXPECT_LT(open, close) << r.err;
  return open < close ? r.err.substr(open + 1, close - open - 1) : "";
}

std::string some_text() {
  std::string out;
  for (int i = 0; i < 400; ++i)
    out += fmt::format("line {} of the text, {} times\n", i, i * i % 17);
  return out;
}

Words tiny_training(const std::string& text, const std::string& out) {
  return {"train", "--text",   text, "--out",    out,  "--steps",   "6", "--validate-every",
          "2",     "--layers", "1",  "--width",  "16", "--heads",   "2", "--block",
          "16",    "--batch",  "4",  "--sample", "20", "--threads", "2"};
}

}  // namespace rlx::testing
