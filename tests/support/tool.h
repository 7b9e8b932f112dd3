// The rlx tool in tests: called in this process, or in a child that may meet faults and die.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "file_faults.h"

namespace rlx::testing {

struct ToolResult {
  int status;  // of the exit; -1: killed
  std::string out, err;
};

using Words = std::vector<std::string>;

// The words and more words.
Words with(Words words, const Words& more);

// In this process.
ToolResult run_tool(const Words& args);

// In a child of this process, which must not have used threads before.
ToolResult run_tool_in_child(const Words& args, FileFault fault = {}, int* calls = nullptr);
// The same after `prepare`, which the child runs first.
ToolResult run_tool_in_child(const Words& args, const std::function<void()>& prepare);

// The program itself, after `prepare` has run in its process; raises a skip where there is none.
std::filesystem::path tool_path();
ToolResult start_tool(const Words& args, const std::function<void()>& prepare = [] {});

// A folder of its own for each test.
class ToolFolder : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  std::string at(const std::string& name) const { return (folder / name).string(); }
  size_t files(const std::string& sub = "") const;
  std::filesystem::path folder;
};

// The code in "rlx: error: user error [code]: ..", of a command that failed.
std::string code_of(const ToolResult& r);

// A text to learn, and `rlx train` with a model that takes no time.
std::string some_text();
Words tiny_training(const std::string& text, const std::string& out);

}  // namespace rlx::testing
