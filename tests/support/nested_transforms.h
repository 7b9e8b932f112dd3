// Transforms nested in each other over random programs (random_smooth_program), and what each must agree with.
//
//   const NestedCase c = nested_case(7);            // a program and three steps, each over the last one's result
//   std::string why = check_nested(c, &stats);      // empty: all agree
//
// A step is a transform (grad, jvp, vjp, hvp, vmap, ..) or something around the program so far (a checkpoint, a loop, a
// branch). What it makes is compared, by the evaluator, with values that do not use it: differences of the program
// before it in f64, a loop over samples, the unrolled steps; and, more exactly, with the same derivative by another mode.
// So the results of all three are right when each step is. The last program runs on the CPU too, against the evaluator.
#pragma once

#include "error_bound.h"
#include "random_graph.h"

namespace rlx::testing {

enum class NestedKind : uint8_t {
  grad,
  jvp,
  vjp,
  hvp,
  linearize,
  transpose,  // of what linearize gives
  jacfwd,
  jacrev,
  hessian,
  jet,
  vmap,
  checkpoint,
  scan_over,   // a scan over samples
  scan_again,  // a scan or a loop that repeats the program on one of its leaves
  cond,
};
inline constexpr int kNestedKinds = static_cast<int>(NestedKind::cond) + 1;
std::string_view name_of(NestedKind kind);

struct NestedStep {
  NestedKind kind;
  uint64_t seed;
};

struct NestedCase {
  RandomProgram program;
  std::vector<NestedStep> steps;
};
NestedCase nested_case(uint64_t number);
std::string to_string(const NestedCase& c);

struct NestedReport {
  uint64_t cpu_every = 1;  // of how many cases the last program of one runs on the CPU
  // Compared with differences; of them those where differences say nothing.
  int64_t elements = 0, unstable = 0;
  int64_t singular = 0;                 // programs that end in a matrix without an inverse
  std::map<std::string, int> steps;     // by kind
  std::map<std::string, int> nestings;  // of two neighbours
  std::map<int, int> depths;            // how many steps were made
  std::map<std::string, double> seconds;
  OpCounts ops;
  CompareStats cpu;
  std::vector<std::string> failures;
  std::string to_string() const;
};

// Empty, or what does not agree with what.
std::string check_nested(const NestedCase& c, NestedReport& report, bool on_cpu = true);

// Cases [begin, end); failures are shrunk: fewer steps, then a smaller program.
void run_nested(uint64_t begin, uint64_t end, NestedReport& report,
                FunctionRef<void(uint64_t done)> progress);

}  // namespace rlx::testing
