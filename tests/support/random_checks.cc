#include "random_checks.h"

#include <chrono>
#include <cstring>
#include <random>

#include "lowered.h"
#include "rlx/ops/core.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/passes.h"
#include "rlx/passes/rematerialise.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"
#include "samples.h"

namespace rlx::testing {

namespace {

std::string leaf_name(const Node& n) { return n.get<LeafAttrs>().name; }

bool is_leaf(const Node& n) { return n.op == &op::input || n.op == &op::param; }

// The leaves that g still has.
NamedTensors leaves_of(const Graph& g, const NamedTensors& all) {
  NamedTensors out;
  for (const Node& n : g.nodes)
    if (is_leaf(n)) out[leaf_name(n)] = all.at(leaf_name(n));
  return out;
}

std::string compare(const BoundedRun& expected, const Evaluated& got, CompareStats* stats) {
  if (got.outputs.size() != expected.outputs.size()) return "another number of outputs";
  for (size_t i = 0; i < got.outputs.size(); ++i)
    if (std::string why = expected.outputs[i].mismatch(got.outputs[i], {stats}); !why.empty())
      return fmt::format("output {}: {}", i, why);
  for (const auto& [name, bounded] : expected.updates) {
    if (!got.updates.count(name)) return fmt::format("update of {} is gone", name);
    if (std::string why = bounded.mismatch(got.updates.at(name), {stats}); !why.empty())
      return fmt::format("update of {}: {}", name, why);
  }
  return {};
}

// ---- text and bytes

std::string check_text(const RandomProgram& p, uint64_t, CompareStats*) {
  TextStore store;
  const std::string text = print(p.graph, &store);
  const Graph back = parse(text, &store);
  if (!(back == p.graph)) return "parse(print(g)) differs from g";
  return print(back, &store) == text ? "" : "print(parse(print(g))) differs from print(g)";
}

std::string check_bytes(const RandomProgram& p, uint64_t, CompareStats*) {
  const std::string bytes = to_bytes(p.graph);
  const Graph back = from_bytes(bytes);
  if (!(back == p.graph)) return "from_bytes(to_bytes(g)) differs from g";
  return to_bytes(back) == bytes ? "" : "to_bytes(from_bytes(b)) differs from b";
}

// ---- the reference itself

std::string check_definition(const RandomProgram& p, uint64_t seed, CompareStats* stats) {
  const BoundedRun run = evaluate_bounded(p.graph, p.leaves, seed, 12);
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    if (run.outputs[i].exact()) continue;
    Bounded rest = run.outputs[i];
    const Tensor one = rest.draws.back();
    if (std::string why = rest.mismatch(one, {stats, false}); !why.empty())
      return fmt::format("output {}: the ops' definitions disagree with their values: {}", i, why);
  }
  return {};
}

// ---- passes

// Passes that must not change a bit: they move, share or remove nodes.
bool keeps_bits(const Pass& p) {
  return &p == &pass::cse || &p == &pass::dead_code || &p == &pass::fuse_regions ||
         &p == &pass::fold_constants || &p == &pass::hoist_invariants || &p == &pass::rematerialise;
}

std::string same_bits(const Evaluated& a, const Evaluated& b) {
  for (size_t i = 0; i < a.outputs.size(); ++i)
    if (!a.outputs[i].same_bits(b.outputs[i]))
      return fmt::format("output {} differs in its bits", i);
  for (const auto& [name, t] : a.updates)
    if (!b.updates.at(name).same_bits(t))
      return fmt::format("update of {} differs in its bits", name);
  return {};
}

// The program after a pass; nothing where the pass says that it does not take such programs.
std::optional<Graph> after_pass(const Graph& g, const Pass& pass) {
  // A budget that nothing meets: as much is computed again as can be.
  if (&pass == &pass::rematerialise) return rematerialise(g, 1, {}).graph;
  try {
    return run_passes(g, {pass});
  } catch (const Error& e) {
    if (e.code() != "while-unbounded") throw;  // such a loop cannot be unrolled
    return std::nullopt;
  }
}

std::vector<const Pass*> passes_that_keep_signatures() {
  std::vector<const Pass*> out;
  for (const Pass* pass : all_passes())
    if (pass->keeps_signature) out.push_back(pass);
  return out;
}

std::string check_pass(const RandomProgram& p, const Pass& pass, const Evaluated& plain,
                       FunctionRef<const BoundedRun&()> expected, CompareStats* stats) {
  const std::optional<Graph> after = after_pass(p.graph, pass);
  if (!after || *after == p.graph) return {};  // what was allowed is counted once
  const Evaluated got = evaluate(*after, leaves_of(*after, p.leaves));
  const std::string why =
      keeps_bits(pass) ? same_bits(plain, got) : compare(expected(), got, stats);
  return why.empty() ? "" : fmt::format("{}: {}", pass.name, why);
}

std::string check_passes(const RandomProgram& p, uint64_t seed, CompareStats* stats) {
  const Evaluated plain = evaluate(p.graph, p.leaves);
  const BoundedRun expected = evaluate_bounded(p.graph, p.leaves, seed);
  for (const Pass* pass : passes_that_keep_signatures())
    if (std::string why = check_pass(
            p, *pass, plain, [&]() -> const BoundedRun& { return expected; }, stats);
        !why.empty())
      return why;
  Pipeline pipeline = default_pipeline();
  pipeline.emplace_back(pass::fuse_regions);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2; ++round) {
    const Graph after = run_passes(p.graph, pipeline);
    if (std::string why = compare(expected, evaluate(after, leaves_of(after, p.leaves)), stats);
        !why.empty())
      return fmt::format("{}: {}", to_string(pipeline), why);
    pipeline.pop_back();  // then in any order
    std::shuffle(pipeline.begin(), pipeline.end(), random);
    pipeline.resize(1 + random() % pipeline.size(), pass::cse);
    pipeline.emplace_back(pass::fuse_regions);
  }
  return {};
}

// ---- the CPU

// One in three programs is cut as another target might want it, into pieces so small that small programs have seams.
CompileOptions cpu_options(uint64_t seed) {
  CompileOptions o{.threads = static_cast<int>(1 + seed % 4),
                   .fuse = seed % 5 != 4,
                   .vector_bits = seed / 2 % 2 ? 256 : 0,
                   .poison = true};
  const uint64_t cut = seed / 3;
  if (seed % 3 == 2)
    o.schedule = RegionSchedule{.nodes = 4 + cut % 8,
                                .split_elements = 16,
                                .few_rows = 4,
                                .few_columns = 3,
                                .many_rows = 5,
                                .tile = 64,
                                .rows_per_block = static_cast<int64_t>(1 + cut % 4),
                                .columns = 8,
                                .part = 64,
                                .part_align = 8,
                                .stage_bytes = static_cast<int64_t>(256 * (cut % 3))};
  return o;
}

Evaluated run_cpu(CompiledGraph& f, const NamedTensors& leaves) {
  NamedTensors inputs, params;
  for (const Node& n : f.signature().nodes)
    if (is_leaf(n)) (n.op == &op::param ? params : inputs)[leaf_name(n)] = leaves.at(leaf_name(n));
  f.set_params(params);
  Evaluated out{f.run(inputs), {}};
  for (const auto& [name, t] : params) out.updates[name] = f.param(name);
  return out;
}

// What a run refuses: "" when it does not.
std::string refusal(FunctionRef<void()> run) {
  try {
    run();
    return {};
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return std::string(e.code());
  }
}

// What the reference refuses of g once dead nodes are gone.
std::string refused_by_reference(const Graph& g, const NamedTensors& leaves) {
  return refusal([&] {
    const Graph alive = run_passes(g, {pass::dead_code});
    evaluate(alive, leaves_of(alive, leaves));
  });
}

constexpr int kManyDraws = 100;

// Inputs that are given away; none in one of three programs.
std::vector<size_t> some_inputs(const Graph& g, uint64_t seed) {
  std::vector<size_t> out;
  const uint64_t draw = mix(seed, 31);
  for (size_t i = 0; draw % 3 != 0 && i < g.inputs().size(); ++i)
    if (draw >> (2 + i % 60) & 1) out.push_back(i);
  return out;
}

// What was made of the program, compiled, against the plain reference, and a second run against the first. What the
// reference refuses (the derivative of a singular determinant, say), the CPU must refuse alike.
std::string compare_cpu(const Graph& g, const Graph& made, const NamedTensors& leaves,
                        uint64_t seed, CompareStats* stats, const CompileOptions& options) {
  CompileOptions donating = options;
  donating.donate = some_inputs(made, seed);
  CompiledGraph f = Session("cpu").compile(made, donating);
  if (!refusal([&] { evaluate(g, leaves); }).empty()) {
    const std::string refused = refused_by_reference(g, leaves);
    const std::string also = refusal([&] { run_cpu(f, leaves); });
    return also == refused ? ""
                           : fmt::format("the reference refuses [{}], the CPU [{}]", refused, also);
  }
  BoundedRun expected = evaluate_bounded(g, leaves, seed);
  const Evaluated first = run_cpu(f, leaves);
  if (!compare(expected, first, nullptr).empty()) {
    // What rounds to nothing in a few draws may round to one unit in many: ((p + q) - q) - p. And sums of what chains in
    // halves did not round are further from those that did than an operation is.
    expected = evaluate_bounded(g, leaves, seed, kManyDraws, true);
  }
  if (std::string why = compare(expected, first, stats); !why.empty()) return why;
  for (const auto& [name, t] : first.updates)
    if (!expected.updates.count(name) && !t.same_bits(leaves.at(name)))
      return fmt::format("parameter {} changed without an update", name);
  const std::string why = same_bits(first, run_cpu(f, leaves));
  return why.empty() ? "" : "second run: " + why;
}

std::string check_cpu(const RandomProgram& p, uint64_t seed, CompareStats* stats) {
  return compare_cpu(p.graph, p.graph, p.leaves, seed, stats, cpu_options(seed));
}

// ---- what each program draws one of

// A single pass, by the evaluator.
std::string check_one_pass(const RandomProgram& p, uint64_t seed, uint64_t draw,
                           CompareStats* stats) {
  const auto passes = passes_that_keep_signatures();
  std::optional<BoundedRun> run;
  const auto expected = [&]() -> const BoundedRun& {
    return run ? *run : run.emplace(evaluate_bounded(p.graph, p.leaves, seed));
  };
  return check_pass(p, *passes[draw % passes.size()], evaluate(p.graph, p.leaves), expected, stats);
}

// One to eight passes in any order, as often as they come, and then the CPU.
std::string check_any_order(const RandomProgram& p, uint64_t seed, uint64_t draw,
                            CompareStats* stats) {
  const auto passes = passes_that_keep_signatures();
  std::mt19937_64 random(draw);
  Graph made = p.graph;
  std::string order;
  for (uint64_t k = 1 + random() % 8; k > 0; --k) {
    const Pass& pass = *passes[random() % passes.size()];
    order += fmt::format("{}{}", order.empty() ? "" : ",", pass.name);
    try {
      if (std::optional<Graph> after = after_pass(made, pass)) made = std::move(*after);
    } catch (const std::exception& e) {
      return fmt::format("{}: {}", order, e.what());
    }
  }
  const std::string why = compare_cpu(p.graph, made, p.leaves, seed, stats, cpu_options(seed));
  return why.empty() ? "" : fmt::format("{}: {}", order, why);
}

std::string check_drawn(const RandomProgram& p, uint64_t seed, CompareStats* stats) {
  const uint64_t draw = mix(seed, 23);
  switch (draw % 4) {
    case 0:
      return check_one_pass(p, seed, draw / 4, stats);
    case 1:
      return check_any_order(p, seed, draw / 4, stats);
    default:
      return check_cpu(p, seed, stats);
  }
}

// ---- gradients

struct Gradients {
  Graph graph;
  NamedTensors leaves;
};

// A sum of one float output, weighted at random, and its gradients by all float leaves; nothing when no output depends on
// one. (Not of squares: those of what is normalised add up to a constant, whose gradient is noise.)
std::optional<Gradients> with_gradients(const RandomProgram& p, uint64_t seed) {
  const Graph& g = p.graph;
  Builder b(g.name);
  std::vector<Values> map(g.nodes.size());
  std::vector<std::string> wrt;
  auto at = [&](Value v) { return map[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)]; };
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    Values in;
    for (Value v : g.nodes[i].in) in.push_back(at(v));
    map[i] = b.clone(g.nodes[i], in);
    if (is_leaf(g.nodes[i]) && kFloats.has(g.nodes[i].type().dtype))
      wrt.push_back(leaf_name(g.nodes[i]));
  }
  Values floats;
  for (Value v : g.outputs)
    if (kFloats.has(b.type(at(v)).dtype) && b.shape(at(v)).elements() != Dim(0))
      floats.push_back(at(v));
  if (floats.empty() || wrt.empty()) return std::nullopt;
  const Value y = floats[seed % floats.size()];
  const Type type = b.type(y);
  Gradients out{{}, p.leaves};
  out.leaves["weights of the sum"] =
      make_operand({"T", type.shape.sizes(), ""}, type.dtype, mix(seed, 17));
  const Value weights = b.input("weights of the sum", type);
  Ints axes(static_cast<size_t>(type.rank()));
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  b.output(op::reduce_mean(b, op::mul(b, y, weights), {axes}));
  out.graph = value_and_grad(b.finish(), wrt, {.zero_missing = true});
  return out;
}

std::string check_gradients(const RandomProgram& p, uint64_t seed, CompareStats* stats) {
  const std::optional<Gradients> g = with_gradients(p, seed);
  return g ? compare_cpu(g->graph, g->graph, g->leaves, seed, stats, cpu_options(seed)) : "";
}

// ---- vmap

// Copies of a leaf with their elements turned by 0, 1, 2.. places, so that its kind stays.
std::vector<Tensor> turned(const Tensor& t, int64_t copies) {
  std::vector<Tensor> out;
  const auto size = static_cast<size_t>(size_of(t.dtype()));
  for (int64_t k = 0; k < copies; ++k) {
    Tensor copy(t.dtype(), t.sizes());
    for (int64_t i = 0; i < t.elements(); ++i)
      std::memcpy(copy.mutable_raw() + static_cast<size_t>(i) * size,
                  t.raw() + static_cast<size_t>((i + k) % t.elements()) * size, size);
    out.push_back(std::move(copy));
  }
  return out;
}

Tensor stacked(const std::vector<Tensor>& parts) {
  Ints sizes = parts[0].sizes();
  sizes.insert(sizes.begin(), static_cast<int64_t>(parts.size()));
  Tensor out(parts[0].dtype(), sizes);
  for (size_t k = 0; k < parts.size(); ++k)
    std::memcpy(out.mutable_raw() + k * parts[k].bytes(), parts[k].raw(), parts[k].bytes());
  return out;
}

struct Batch {
  std::vector<NamedTensors> samples;
  NamedTensors leaves;
  std::map<std::string, int64_t> batched;
};

Batch make_batch(const RandomProgram& p, uint64_t seed, int64_t size) {
  Batch batch{std::vector<NamedTensors>(static_cast<size_t>(size), p.leaves), p.leaves, {}};
  std::mt19937_64 random(seed);
  for (const auto& [name, t] : p.leaves) {
    if (random() % 3 == 0) continue;
    const std::vector<Tensor> copies = turned(t, size);
    for (size_t k = 0; k < copies.size(); ++k) batch.samples[k][name] = copies[k];
    batch.leaves[name] = stacked(copies);
    batch.batched[name] = 0;
  }
  return batch;
}

std::string check_vmap(const RandomProgram& p, uint64_t seed, CompareStats* stats) {
  constexpr int64_t kSize = 3;
  Graph g = p.graph;
  g.updates.clear();
  const Batch batch = make_batch(p, seed, kSize);
  if (batch.batched.empty() || g.outputs.empty()) return {};
  const bool symbolic = seed % 2 == 0;
  const Graph many = vmap(g, batch.batched, symbolic ? Dim::symbol("n") : Dim(kSize));
  std::vector<BoundedRun> runs;
  try {
    for (const NamedTensors& sample : batch.samples)
      runs.push_back(evaluate_bounded(g, sample, seed));
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    // An index or a matrix computed from leaves that were turned: all together refuse it, too.
    std::string alone;
    for (const NamedTensors& sample : batch.samples)
      if (alone.empty()) alone = refused_by_reference(g, sample);
    const std::string together = refused_by_reference(many, batch.leaves);
    return together == alone ? ""
                             : fmt::format("one sample refuses [{}], vmap [{}]", alone, together);
  }
  const Tensors got = evaluate(many, batch.leaves).outputs;
  for (size_t i = 0; i < got.size(); ++i)
    for (size_t k = 0; k < runs.size(); ++k) {
      const Tensor& one = runs[k].outputs[i].value;
      const Tensor part =
          Tensor::from_bytes(one.dtype(), one.sizes(), got[i].raw() + k * one.bytes(), one.bytes());
      if (std::string why = runs[k].outputs[i].mismatch(part, {stats}); !why.empty())
        return fmt::format("vmap on the reference, sample {}, output {}: {}", k, i, why);
    }
  CompileOptions options = cpu_options(seed);
  if (symbolic && !many.symbols().empty()) options.dims["n"] = kSize;
  return compare_cpu(many, many, batch.leaves, seed, stats, options);
}

// With vectors of either width, fused and lowered as compiling does it.
std::string check_plan(const RandomProgram& p, uint64_t seed, CompareStats*) {
  return plan_faults(
      lower_for_cpu(p.graph, seed % 2 ? 256 : 0, some_inputs(p.graph, seed)).program);
}

}  // namespace

std::string compare_on_cpu(const Graph& g, const NamedTensors& leaves, uint64_t seed,
                           CompareStats* stats) {
  return compare_cpu(g, g, leaves, seed, stats, cpu_options(seed));
}

std::span<const RandomCheck> random_checks() {
  static constexpr RandomCheck checks[] = {
      {"text", "printing and parsing", 1, check_text},
      {"bytes", "writing and reading as bytes", 1, check_bytes},
      {"definition", "values of composites against their definitions", 4, check_definition},
      {"drawn", "a pass by the evaluator, passes in any order or the pipeline on the CPU", 1,
       check_drawn},
      {"passes", "each pass alone, the pipeline, its passes in any order, by the evaluator", 4,
       check_passes},
      {"plan", "no two buffers that are alive at once overlap", 1, check_plan, true},
      {"cpu", "compiled against the plain reference", RandomCheck::kNever, check_cpu, true},
      {"gradients", "value_and_grad, compiled against the reference", 2, check_gradients, true},
      {"vmap", "vmap against a loop, then compiled", 4, check_vmap},
  };
  return checks;
}

std::string run_check(const RandomCheck& c, const RandomProgram& p, uint64_t seed,
                      CompareStats* stats) {
  try {
    return c.run(p, seed, stats);
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::string RandomReport::to_string() const {
  std::string out;
  for (const auto& [name, n] : runs)
    out += fmt::format("check {}: {} programs, {:.1f} s\n", name, n, seconds.at(name));
  out += fmt::format("elements compared: {}, of them exact {}, unstable {}, loose {}\nnodes by op:",
                     stats.elements, stats.exact, stats.unstable, stats.loose);
  for (const auto& [op, n] : ops) out += fmt::format(" {} {}", op, n);
  return out + "\n";
}

void run_random_programs(uint64_t begin, uint64_t end, RandomReport& report,
                         FunctionRef<void(uint64_t)> progress) {
  using Clock = std::chrono::steady_clock;
  auto timed = [&](const std::string& name, auto&& work) {
    const auto start = Clock::now();
    work();
    ++report.runs[name];
    report.seconds[name] += std::chrono::duration<double>(Clock::now() - start).count();
  };
  auto run = [&](const RandomProgram& p, uint64_t seed, const RandomCheck& c,
                 const std::string& kind = {}) {
    std::string why;
    timed(fmt::format("{}{}", kind, c.name), [&] { why = run_check(c, p, seed, &report.stats); });
    if (why.empty()) return;
    const RandomProgram small =
        shrink(p, [&](const RandomProgram& q) { return !run_check(c, q, seed).empty(); });
    report.failures.push_back(fmt::format("program {} fails {}: {}\nshrunk: {}\n{}", p.graph.name,
                                          c.name, why, run_check(c, small, seed),
                                          to_string(small)));
  };
  for (uint64_t seed = begin; seed < end; ++seed) {
    RandomProgram p;
    timed("(generation)", [&] { p = random_program(seed); });
    count_ops(p.graph, report.ops);
    for (const RandomCheck& c : random_checks())
      if (c.every != RandomCheck::kNever && seed % static_cast<uint64_t>(c.every) == 0)
        run(p, seed, c);
    const auto of_matrices = [&](const std::string& kind, uint64_t every,
                                 RandomProgram (*make)(uint64_t)) {
      if (seed % every != 0) return;
      timed(fmt::format("({} generation)", kind), [&] { p = make(seed / every); });
      for (const RandomCheck& c : random_checks())
        if (c.large) run(p, seed / every, c, kind + " ");
    };
    of_matrices("large", kLargeEvery, random_large_program);
    of_matrices("square", kSquareEvery, random_square_program);
    progress(seed + 1);
  }
}

}  // namespace rlx::testing
