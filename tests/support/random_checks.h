// What must hold for every random program (random_graph.h). Each check returns an empty string, or
// what went wrong.
//
//   RandomReport report;
//   run_random_programs(0, 1000, report, [](uint64_t done) {});
//
// Each program draws one of: a single pass, compared by the evaluator; some passes in any order, or the whole pipeline,
// compared on the CPU. The other checks take every program or one of a few.
#pragma once

#include "error_bound.h"
#include "random_graph.h"

namespace rlx::testing {

struct RandomCheck {
  static constexpr int kNever = 0;
  std::string_view name;
  std::string_view doc;
  int every;  // of how many programs it takes one; kNever where a program may draw it
  std::string (*run)(const RandomProgram& p, uint64_t seed, CompareStats* stats);
  bool large = false;  // also of large and square programs
};
std::span<const RandomCheck> random_checks();

// The program compiled in a way that the seed chooses, against the reference, and run twice.
std::string compare_on_cpu(const Graph& g, const NamedTensors& leaves, uint64_t seed,
                           CompareStats* stats);

// Runs a check, errors included.
std::string run_check(const RandomCheck& c, const RandomProgram& p, uint64_t seed,
                      CompareStats* stats = nullptr);

// Runs the checks of programs [begin, end), with one of kLargeEvery of them those of a large one, and with one of
// kSquareEvery those of a square one;
// the failures, shrunk, as text. Calls `progress` after each program.
inline constexpr uint64_t kLargeEvery = 50, kSquareEvery = 2;
struct RandomReport {
  OpCounts ops;
  CompareStats stats;
  std::map<std::string, int> runs;        // by check
  std::map<std::string, double> seconds;  // by check
  std::vector<std::string> failures;
  std::string to_string() const;
};
void run_random_programs(uint64_t begin, uint64_t end, RandomReport& report,
                         FunctionRef<void(uint64_t done)> progress);

}  // namespace rlx::testing
