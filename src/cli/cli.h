// The commands of the rlx tool: one file each; cli.cc lists them.
//
// What a command computes goes to stdout, progress and messages to stderr. Output files appear
// complete or not at all.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "rlx/runtime/runtime.h"

namespace rlx::cli {

// Options that every command understands, before or after its name.
struct Globals {
  uint64_t seed = 1;
  int threads = 0;  // 0: all
};

class Cli {
 public:
  Cli();
  CLI::App app;
  Globals globals;
  std::function<void()> action;  // set by the command that was chosen

  // A new command whose help ends with an example.
  CLI::App* command(const std::string& name, const std::string& doc, const std::string& example,
                    CLI::App* parent = nullptr);
};

// One per file.
void add_ops(Cli& cli);
void add_print(Cli& cli);
void add_verify(Cli& cli);
void add_opt(Cli& cli);
void add_lower(Cli& cli);
void add_quantise(Cli& cli);
void add_run(Cli& cli);
void add_explain(Cli& cli);
void add_train(Cli& cli);
void add_bench(Cli& cli);
void add_bench_train_step(Cli& cli, CLI::App* bench);

// rlx bench FILE.
struct BenchProgram {
  std::string file;
  std::vector<std::string> inputs, params, dims;
  int runs = 30;
  bool json = false;
};
void bench_program(const BenchProgram& b, const Globals& globals);

// A program's text to standard output: all of it, but for large constants on a terminal, which are
// named by their hashes.
void print_program(const Graph& g);
// What --threads means: at least 1.
int thread_count(const Globals& globals);
// The cpu device where there is one, else the reference.

}  // namespace rlx::cli
