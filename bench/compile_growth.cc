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

#include "rlx/backend/cpu/backend.h"
#include "rlx/backend/cpu/target.h"
#include "rlx/ir/text.h"
#include "rlx/ir/verify.h"
#include "rlx/lower/lower.h"
#include "rlx/models/gpt.h"
#include "rlx/ops/core.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"

namespace rlx {
namespace {

constexpr double kLimit = 1.15;  // of compiling as a whole
// A stage alone walks over graphs that fit into a cache at the smallest size and into none at the largest, which alone makes a
// linear walk look like 1.1 to 1.4; a search of everything by everything is 2.
constexpr double kStageLimit = 1.5;
// A stage that takes less than this at the largest size shows the clock and the caches, not its growth.
constexpr double kLeastSeconds = 2e-3;

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// ---- the programs

const Type kVector{DType::F32, {64}};

// n elementwise ops one after the other; every third reads the input again.
Graph chain(int64_t n) {
  Builder b("chain");
  const Value x = b.input("x", kVector);
  Value v = x;
  for (int64_t i = 0; i < n; ++i)
    v = i % 3 == 0 ? op::add(b, v, x) : i % 3 == 1 ? op::tanh(b, v) : op::neg(b, v);
  b.output(v);
  return b.finish();
}

// n products and sums, each with a constant of its own.
Graph constants(int64_t n) {
  Builder b("constants");
  Value v = b.input("x", kVector);
  for (int64_t i = 0; i < n / 2; ++i) {
    const Value c = b.constant(DType::F32, 0.5 + 0.37 * static_cast<double>(i));
    v = i % 2 ? op::add(b, v, c) : op::mul(b, v, c);
  }
  b.output(v);
  return b.finish();
}

// Dense layers: a product, a bias, relu.
Graph layers(int64_t n) {
  Builder b("layers");
  Value v = b.input("x", {DType::F32, {8, 16}});
  for (int64_t i = 0; i < n / 5; ++i) {
    const Value w = b.param(fmt::format("w{}", i), {DType::F32, {16, 16}}),
                bias = b.param(fmt::format("b{}", i), {DType::F32, {16}});
    v = op::relu(b, op::add(b, op::matmul(b, v, w), bias));
  }
  b.output(v);
  return b.finish();
}

// Many branches from one value, added up pairwise; a product keeps every other branch out of the regions.
Graph wide(int64_t n) {
  Builder b("wide");
  const Value x = b.input("x", {DType::F32, {16, 16}}), y = op::tanh(b, x);
  std::vector<Value> level;
  for (int64_t i = 0; i < n / 3; ++i) {
    const Value scaled = op::mul(b, y, b.input(fmt::format("s{}", i), {DType::F32, {16, 16}}));
    level.push_back(i % 2 ? scaled : op::matmul(b, scaled, x));
  }
  while (level.size() > 1) {
    std::vector<Value> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      next.push_back(op::add(b, level[i], level[i + 1]));
    if (level.size() % 2) next.push_back(level.back());
    level = std::move(next);
  }
  b.output(level[0]);
  return b.finish();
}

// One value that everybody reads, and results that stay alive to the end.
Graph fan(int64_t n) {
  Builder b("fan");
  const Value x = b.input("x", {DType::F32, {16, 16}}), y = op::tanh(b, x);
  Value sum = y;
  std::vector<Value> kept;
  for (int64_t i = 0; i < n / 4; ++i) {
    kept.push_back(op::matmul(b, sum, x));
    sum = op::add(b, op::sin(b, kept.back()), y);
  }
  for (size_t i = kept.size(); i-- > 0;) sum = op::add(b, op::matmul(b, sum, kept[i]), y);
  b.output(sum);
  return b.finish();
}

GptConfig small_gpt(int64_t layers) {
  GptConfig c;
  c.vocab = 16, c.width = 16, c.heads = 2, c.block = 8, c.batch = 2, c.layers = layers;
  return c;
}

// p <- p - rate * (p * x)
Graph updates(int64_t n) {
  Builder b("updates");
  const Value x = b.input("x", kVector), rate = b.input("rate", {DType::F32, {}});
  std::vector<std::pair<std::string, Value>> found;
  for (int64_t i = 0; i < n; ++i) {
    const std::string name = fmt::format("p{}", i);
    const Value p = b.param(name, kVector);
    found.emplace_back(name, op::sub(b, p, op::mul(b, rate, op::mul(b, p, x))));
  }
  for (auto& [name, v] : found) b.update(name, v);
  b.output(x);
  return b.finish();
}

// Scans of length 2, one inside the other, some work at every level.
Graph scans(int64_t n) {
  Builder inner("step");
  const Value c = inner.input("c", kVector);
  inner.output(op::tanh(inner, c));
  Graph body = inner.finish();
  for (int64_t i = 0; i < n; ++i) {
    Builder b("step");
    Value v = b.input("c", kVector);
    v = b.emit(op::scan.def, ScanAttrs{.body = std::move(body), .length = 2, .num_carries = 1},
               Values{op::mul(b, v, v)})[0];
    b.output(op::sin(b, v));
    body = b.finish();
  }
  return body;
}

struct Case {
  const char* name;
  std::vector<int64_t> sizes;
  Graph (*make)(int64_t);
};

const std::vector<int64_t> kNodes{1000, 2000, 4000, 8000, 16000}, kLayers{12, 24, 48, 96, 192},
    kParams{500, 1000, 2000, 4000, 8000}, kDepths{1, 2, 4, 8, 16, 32};

const Case kCases[] = {
    {"chain", kNodes, chain},
    {"constants", kNodes, constants},
    {"layers", kNodes, layers},
    {"wide", kNodes, wide},
    {"fan", kNodes, fan},
    {"gpt", kLayers, [](int64_t n) { return gpt_loss(small_gpt(n)); }},
    {"gpt_train", kLayers, [](int64_t n) { return gpt_train_step(small_gpt(n)); }},
    {"updates", kParams, updates},
    {"scans", kDepths, scans},
};

// ---- the stages

enum Stage { build, verifying, text, passes, fuse, lowering, plan, codegen, all, kStages };
constexpr const char* kStageNames[] = {"build", "verify", "text",    "passes", "fuse",
                                       "lower", "plan",   "codegen", "all"};

using Seconds = std::array<double, kStages>;

// The program and its bodies as if they had not been planned.
void add_unplanned(const Program& program, std::vector<Program>& out) {
  Program& p = out.emplace_back(program);
  for (Buffer& b : p.buffers) b.offset = 0, b.first = b.last = b.shares = -1;
  p.arena_bytes = p.unshared_bytes = 0;
  for (const Step& s : program.steps)
    for (const auto& body : s.bodies) add_unplanned(*body, out);
}

Seconds measure_once(const Case& c, int64_t size) {
  Seconds t{};
  auto timed = [&](Stage stage, auto&& work) {
    const double start = cpu_seconds();
    auto result = work();
    t[stage] = cpu_seconds() - start;
    return result;
  };
  const Graph g = timed(build, [&] { return c.make(size); });
  timed(verifying, [&] { return violations(g); });
  timed(text, [&] {
    TextStore store;
    return parse(print(g, &store), &store);
  });
  cpu::CpuTarget target({.compile_threads = 1});
  PassContext context;
  context.verify = false;
  context.keeps = [&](const Node& n, const Graph& at) {
    return n.op != &op::region && target.accepts(n, at);
  };
  const Graph optimised = timed(passes, [&] { return run_passes(g, default_pipeline(), context); });
  const Graph fused = timed(fuse, [&] { return fuse_program(optimised); });
  const Program program = timed(lowering, [&] { return lower(fused, target); });
  std::vector<Program> unplanned;
  add_unplanned(program, unplanned);
  timed(plan, [&] {
    for (Program& p : unplanned) plan_memory(p);
    return 0;
  });
  timed(codegen, [&] {
    target.finish();
    return 0;
  });
  const auto backend = cpu::make_cpu_backend();
  timed(all, [&] { return backend->compile(g, {.threads = 1}); });
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
  std::printf("\n%s above %.2f for the whole or %.2f for a stage.\n",
              fine ? "No exponent is" : "Some exponents are", kLimit, kStageLimit);
  return check && !fine ? 1 : 0;
}

}  // namespace
}  // namespace rlx

int main(int argc, char** argv) { return rlx::run(argc, argv); }
