// How the time to compile a program grows with the program.
//
//   compile_growth                      every case, a table of exponents
//   compile_growth --check              exit status 1 when one is above its limit
//   compile_growth gpt_train scans      these cases only
//   compile_growth --runs 1             a quick look
//
// A case is a family of programs, each size twice the last. Every stage of compiling runs five times on each
// size; the least CPU time counts, of all threads together, so that other work on the machine does not. The exponent of a stage is
// the slope of log(time) over log(size), fitted to all sizes: 1 is linear, 2 is quadratic.
//
// Stages: `build` makes the program (for training steps: differentiates it too), `verify` checks it, `text` prints and parses it,
// `passes` optimises, `fuse` groups nodes into regions, `lower` makes kernels and steps (planning included), `plan` places the
// buffers, `codegen` compiles the generated kernels, `all` is what Session::compile does.
#include <time.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "growth_cases.h"
#include "rlx/backend/cpu/backend.h"
#include "rlx/backend/cpu/target.h"
#include "rlx/compile/compile.h"

namespace rlx {
namespace {

using namespace growth;

constexpr double kLimit = 1.15;  // of compiling as a whole
// Of a stage. What it does is in proportion (growth_counts_test counts it), but a graph of 12 layers lies in a core's
// second cache and one of 192 in none, and a walk over memory that is nowhere near takes up to twice as long per node.
constexpr double kStageLimit = 1.35;
// A stage that takes less than this at the largest size shows the clock and the caches, not its growth.
constexpr double kLeastSeconds = 2e-3;

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// ---- the stages

using Seconds = std::array<double, kStages>;

Seconds measure_once(const Case& c, int64_t size) {
  Seconds t{};
  auto timed = [&](growth::Stage stage, auto&& work) {
    const double start = cpu_seconds();
    auto result = work();
    t[stage] = cpu_seconds() - start;
    return result;
  };
  cpu::CpuTarget target({.compile_threads = 1});
  const Graph g = each_stage(c, size, target, timed);
  timed(growth::codegen, [&] {
    target.finish();
    return 0;
  });
  const auto backend = cpu::make_cpu_backend();
  timed(all, [&] { return compile(g, backend, {.threads = 1}); });
  return t;
}

double exponent(const std::vector<int64_t>& sizes, const std::vector<double>& seconds) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  const auto n = static_cast<double>(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double x = std::log(static_cast<double>(sizes[i])), y = std::log(seconds[i]);
    sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

// Prints the rows of one case; false when a stage grows too fast.
bool run_case(const Case& c, int runs) {
  std::vector<Seconds> least(c.sizes.size());
  for (size_t i = 0; i < c.sizes.size(); ++i)
    for (int run = 0; run < runs; ++run) {
      const Seconds now = measure_once(c, c.sizes[i]);
      for (size_t s = 0; s < kStages; ++s)
        least[i][s] = run == 0 ? now[s] : std::min(least[i][s], now[s]);
    }
  bool fine = true;
  for (size_t s = 0; s < kStages; ++s) {
    std::vector<double> seconds;
    for (const Seconds& row : least) seconds.push_back(row[s]);
    const double e = exponent(c.sizes, seconds);
    const bool counts = seconds.back() >= kLeastSeconds,
               bad = counts && e > (s == all ? kLimit : kStageLimit);
    std::printf("| %s | %s |", s == 0 ? c.name : "", kStageNames[s]);
    for (size_t i = 0; i < seconds.size(); ++i) std::printf(" %.2f |", seconds[i] * 1e3);
    for (size_t i = seconds.size(); i < kDepths.size(); ++i) std::printf(" |");
    std::printf(" %.2f%s |\n", e, bad ? " above the limit" : counts ? "" : " (short)");
    fine = fine && !bad;
  }
  std::fflush(stdout);
  return fine;
}

int run(int argc, char** argv) {
  bool check = false, fine = true;
  int runs = 5;
  std::set<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--check")
      check = true;
    else if (word == "--runs" && i + 1 < argc)
      runs = std::max(1, std::atoi(argv[++i]));
    else
      wanted.insert(word);
  }
  for (const std::string& name : wanted) {
    bool known = false;
    for (const Case& c : kCases) known = known || name == c.name;
    if (known) continue;
    std::fprintf(stderr, "compile_growth: there is no case %s; cases are", name.c_str());
    for (const Case& c : kCases) std::fprintf(stderr, " %s", c.name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  std::printf("CPU milliseconds, least of %d; each column twice the size of the one before.\n\n",
              runs);
  std::printf("| case | stage |");
  for (size_t i = 0; i < kDepths.size(); ++i) std::printf(" x%d |", 1 << i);
  std::printf(" exponent |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const Case& c : kCases)
    if (wanted.empty() || wanted.contains(c.name)) fine = run_case(c, runs) && fine;
  std::printf("\n%s above its limit (%.2f for all, %.2f for a stage alone).\n",
              fine ? "No exponent is" : "Some exponent is", kLimit, kStageLimit);
  return check && !fine ? 1 : 0;
}

}  // namespace
}  // namespace rlx

int main(int argc, char** argv) { return rlx::run(argc, argv); }
