#include "nested_transforms.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "differences.h"
#include "nested_steps.h"
#include "random_checks.h"
#include "rlx/base/hash.h"

namespace rlx::testing {

namespace {

// How often a step is of each kind.
struct Chance {
  NestedKind kind;
  std::string_view name;
  int weight;
};
constexpr Chance kChances[] = {
    {NestedKind::grad, "grad", 6},
    {NestedKind::jvp, "jvp", 4},
    {NestedKind::vjp, "vjp", 3},
    {NestedKind::hvp, "hvp", 3},
    {NestedKind::linearize, "linearize", 3},
    {NestedKind::transpose, "transpose", 2},
    {NestedKind::jacfwd, "jacfwd", 2},
    {NestedKind::jacrev, "jacrev", 2},
    {NestedKind::hessian, "hessian", 1},
    {NestedKind::jet, "jet", 1},
    {NestedKind::vmap, "vmap", 5},
    {NestedKind::checkpoint, "checkpoint", 3},
    {NestedKind::scan_over, "scan over", 2},
    {NestedKind::scan_again, "scan again", 2},
    {NestedKind::cond, "cond", 2},
};
static_assert(std::size(kChances) == kNestedKinds);

NestedKind random_kind(std::mt19937_64& random) {
  int all = 0;
  for (const Chance& c : kChances) all += c.weight;
  auto at = static_cast<int>(random() % static_cast<uint64_t>(all));
  for (const Chance& c : kChances)
    if ((at -= c.weight) < 0) return c.kind;
  std::abort();
}

constexpr int kDepth = 3;
// Programs that have grown beyond this are not transformed again.
constexpr int kMostNodes = 4000;

int size_with_bodies(const Graph& g) {
  OpCounts counts;
  count_ops(g, counts);
  int sum = 0;
  for (const auto& [op, n] : counts) sum += n;
  return sum;
}

}  // namespace

std::string_view name_of(NestedKind kind) { return kChances[static_cast<size_t>(kind)].name; }

NestedCase nested_case(uint64_t number) {
  NestedCase c{random_smooth_program(number), {}};
  std::mt19937_64 random(mix(number, 91));
  for (int i = 0; i < kDepth; ++i) c.steps.push_back({random_kind(random), random()});
  return c;
}

std::string to_string(const NestedCase& c) {
  std::string out;
  for (const NestedStep& s : c.steps) out += fmt::format("# {} {}\n", name_of(s.kind), s.seed);
  return out + to_string(c.program);
}

std::string check_nested(const NestedCase& c, NestedReport& report, bool on_cpu) {
  std::string done;
  try {
    Nested at{c.program.graph, c.program.leaves};
    if (!keep_some_outputs(at, 0)) return {};
    int depth = 0;
    std::optional<NestedKind> last;
    for (const NestedStep& s : c.steps) {
      if (size_with_bodies(at.graph) > kMostNodes) break;
      done += fmt::format("{}{}", done.empty() ? "" : ", ", name_of(s.kind));
      DifferenceCounts counts;
      const auto start = std::chrono::steady_clock::now();
      std::optional<Nested> next = step_of(s, at, counts);
      report.seconds[std::string(name_of(s.kind))] +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      report.elements += counts.elements, report.unstable += counts.unstable;
      if (!next) continue;  // nothing to differentiate, or too much
      if (!next->fault.empty()) return fmt::format("{}: {}", done, next->fault);
      ++report.steps[std::string(name_of(s.kind))];
      if (last) ++report.nestings[fmt::format("{} of {}", name_of(s.kind), name_of(*last))];
      last = s.kind, ++depth;
      at = std::move(*next);
      if (!keep_some_outputs(at, s.seed)) break;
    }
    ++report.depths[depth];
    if (!on_cpu) return {};
    const auto start = std::chrono::steady_clock::now();
    const std::string why =
        compare_on_cpu(at.graph, at.leaves, c.steps.empty() ? 0 : c.steps[0].seed, &report.cpu);
    report.seconds["(cpu)"] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return why.empty() ? "" : fmt::format("{}, on the CPU: {}", done, why);
  } catch (const Error& e) {
    // The derivative of a determinant solves a system, which has no solution where it is 0.
    if (e.code() == "singular") return ++report.singular, "";
    return fmt::format("{}: {}", done, e.what());
  } catch (const std::exception& e) {
    return fmt::format("{}: {}", done, e.what());
  }
}

namespace {

NestedCase shrunk(NestedCase c) {
  NestedReport ignored;
  const auto fails = [&](const NestedCase& d) { return !check_nested(d, ignored).empty(); };
  for (size_t i = 0; i < c.steps.size();) {
    NestedCase fewer = c;
    fewer.steps.erase(fewer.steps.begin() + static_cast<int64_t>(i));
    if (fails(fewer))
      c = std::move(fewer), i = 0;
    else
      ++i;
  }
  c.program = shrink(c.program, [&](const RandomProgram& p) { return fails({p, c.steps}); });
  return c;
}

}  // namespace

void run_nested(uint64_t begin, uint64_t end, NestedReport& report,
                FunctionRef<void(uint64_t)> progress) {
  for (uint64_t number = begin; number < end; ++number) {
    const NestedCase c = nested_case(number);
    count_ops(c.program.graph, report.ops);
    const bool on_cpu = number % report.cpu_every == 0;
    if (std::string why = check_nested(c, report, on_cpu); !why.empty()) {
      NestedReport ignored;
      const NestedCase small = shrunk(c);
      report.failures.push_back(fmt::format("case {}: {}\nshrunk: {}\n{}", number, why,
                                            check_nested(small, ignored), to_string(small)));
    }
    progress(number + 1);
  }
}

std::string NestedReport::to_string() const {
  std::string out =
      fmt::format("compared with differences: {}, unstable {}; singular programs {}\n", elements,
                  unstable, singular);
  out += fmt::format("on the CPU: {}, exact {}, unstable {}, loose {}\n", cpu.elements, cpu.exact,
                     cpu.unstable, cpu.loose);
  for (const auto& [depth, n] : depths) out += fmt::format("depth {}: {} programs\n", depth, n);
  for (const auto& [kind, n] : steps) {
    const auto time = seconds.find(kind);
    out +=
        fmt::format("{}: {} steps, {:.1f} s\n", kind, n, time == seconds.end() ? 0 : time->second);
  }
  if (seconds.count("(cpu)")) out += fmt::format("on the CPU: {:.1f} s\n", seconds.at("(cpu)"));
  out += fmt::format("{} nestings; nodes by op:", nestings.size());
  for (const auto& [op, n] : ops) out += fmt::format(" {} {}", op, n);
  return out + "\n";
}

}  // namespace rlx::testing
