#include "rlx/compile/compile.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_map>

#include "rlx/base/clock.h"
#include "rlx/base/file.h"
#include "rlx/base/parallel.h"
#include "rlx/compile/bindings.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/equal_symbols.h"
#include "rlx/ir/text.h"
#include "rlx/ir/verify.h"
#include "rlx/lower/kept_bytes.h"
#include "rlx/lower/outline.h"
#include "rlx/ops/core.h"
#include "rlx/ops/region.h"
#include "rlx/ops/table.h"
#include "rlx/passes/auto_mixed_precision.h"
#include "rlx/passes/passes.h"
#include "rlx/passes/rematerialise.h"

namespace rlx {

bool CompileOptions::verify_by_default() {
#ifndef NDEBUG
  return true;
#else
  static const bool wanted = [] {
    const char* text = std::getenv("RLX_VERIFY");
    return text && std::string_view(text) == "1";
  }();
  return wanted;
#endif
}

namespace {

void check_options(const Graph& g, const CompileOptions& options) {
  user_check(options.memory_budget >= 0, "memory-budget",
             "a memory budget of {} bytes; it must be positive", options.memory_budget);
  user_check(options.threads >= 0, "threads", "the number of threads cannot be {}; 0 means all",
             options.threads);
  const std::vector<std::string> symbols = g.symbols();
  const auto require = [&](const std::string& name) {
    user_check(std::find(symbols.begin(), symbols.end(), name) != symbols.end(), "dim-unknown",
               "graph \"{}\" has no dim ?{}; it has {}", g.name, name,
               symbols.empty() ? "none" : fmt::format("?{}", fmt::join(symbols, ", ?")));
  };
  for (const auto& [name, size] : options.dims) {
    require(name);
    user_check(size >= 0, "negative-dim", "dim ?{} cannot have the size {}", name, size);
  }
  for (const auto& [name, hint] : options.hints) {
    require(name);
    check_hint(name, hint);
  }
  check_by_hints(options.hints, options.dims);
  if (options.donate.empty()) return;
  const size_t inputs = g.inputs().size();
  for (const size_t i : options.donate)
    user_check(i < inputs, "donate",
               "graph \"{}\" has no input {} that could be donated; it has {}", g.name, i, inputs);
}

void require_sizes(const Graph& g, const CompileOptions& options) {
  for (const std::string& s : g.symbols())
    user_check(
        options.dims.contains(s), "unbound-dim",
        "compile of \"{}\": the size of dim ?{} is not known; bind it in the compile options",
        g.name, s);
}

// The default one, in which mixed precision finds whole what was written out.
Pipeline pipeline_for(const PrecisionPolicy& policy) {
  Pipeline out = default_pipeline();
  if (policy.is_f32()) return out;
  const auto recognise = std::find_if(
      out.begin(), out.end(), [](const PassUse& use) { return use.pass == &pass::recognise; });
  check(recognise != out.end(), "the default pipeline recognises nothing");
  out.insert(recognise + 1, AutoMixedPrecision{policy});
  return out;
}

// What has been through the passes has its dtypes.
void check_precision(const CompileOptions& options, CompileStage from) {
  user_check(options.precision.is_f32() || from < CompileStage::optimised, "stage",
             "a precision policy is applied to programs at the stage hir or mir, not {}",
             enum_names(from)[static_cast<size_t>(from)]);
}

void count_work(const Program& p, CompileInfo& info) {
  for (const Step& s : p.steps) {
    ++info.kernels;
    if (s.kernel) info.flops += s.kernel->flops();
    for (const auto& body : s.bodies) count_work(*body, info);
  }
}

constexpr int kBudgetAttempts = 6;

// One compilation: the stages of one graph, whose sizes are known.
class Driver {
 public:
  Driver(const Backend& backend, const CompileOptions& options, CompileReport& report)
      : backend_(backend),
        options_(options),
        report_(report),
        target_(backend.make_target(options)) {}
  bool has_target() const { return target_ != nullptr; }

  // Through the passes that lie between two stages. `budget`: of bytes, 0 for none.
  Graph pass(Graph g, CompileStage from, CompileStage to, int64_t budget) {
    if (from >= CompileStage::optimised) require_regions(g);
    Pipeline pipeline;
    if (from < CompileStage::optimised && to >= CompileStage::optimised)
      pipeline = pipeline_for(options_.precision);
    if (from < CompileStage::fused && to >= CompileStage::fused) {
      if (budget > 0)
        pipeline.push_back({pass::rematerialise, {{"budget", std::to_string(budget)}}});
      pipeline.push_back({pass::fuse_regions, {{"grow", options_.fuse ? "yes" : "no"}}});
    }
    if (pipeline.empty()) return g;
    const HintScope hints(options_.hints);
    PassContext context;
    context.verify = options_.verify;
    context.dump_dir = options_.dump_dir;
    context.fast_math = options_.fast_math;
    context.report = &report_.passes;
    context.fusion = &report_.fusion;
    context.watch = report_.watch;
    // Regions in the program as given are opened: the grower makes its own.
    context.keeps = [&](const Node& n, const Graph& at) {
      if (n.op == &op::region) return false;
      const Decision takes = target().accepts(n, at);
      if (!takes)
        report_.decomposed.push_back(
            {std::string(n.op->name), n.origin.label.str(), n.out, takes.why()});
      return static_cast<bool>(takes);
    };
    context.schedule = target().schedule();
    context.alone = [&](const Node& n) { return is_alone(n); };
    return run_passes(std::move(g), pipeline, context);
  }

  Graph pass(Graph g, CompileStage from, CompileStage to) {
    return pass(std::move(g), from, to, options_.memory_budget);
  }

  // The program of a graph at that stage, within the budget if there is one: what the rematerialiser takes for it is
  // less than the plan by what kernels need besides, so it is asked for less until the plan fits.
  std::shared_ptr<const Program> plan(Graph g, CompileStage from) {
    const int64_t budget = options_.memory_budget;
    if (budget == 0 || from >= CompileStage::fused)
      return plan(pass(std::move(g), from, CompileStage::fused));
    const Graph optimised = pass(std::move(g), from, CompileStage::optimised);
    const auto bytes_of = [&](const Graph& fused) {
      const auto trial = backend_.make_target(options_);  // its kernels go with it
      return lower(fused, *trial).arena_bytes;
    };
    const auto fuse = [&](const Graph& graph, int64_t goal) {
      report_.fusion = {};
      return pass(graph, CompileStage::optimised, CompileStage::fused, goal);
    };
    int64_t goal = budget;
    for (int attempt = 0; attempt < kBudgetAttempts; ++attempt) try {
        const Graph fused = fuse(optimised, goal);
        const int64_t bytes = bytes_of(fused);
        if (bytes <= budget) return plan(fused);
        goal = std::max<int64_t>(1, goal - (bytes - budget) - budget / 100);
      } catch (const Error& e) {
        if (e.code() != "memory-budget" || has_symbols(optimised)) throw;
        break;
      }
    const auto alone = [&](const Node& n) { return is_alone(n); };
    const Graph tightest =
        fuse(rematerialise(optimised, 1, {options_.fuse, alone, target().schedule()}).graph, 0);
    const int64_t least = bytes_of(tightest);
    user_check(least <= budget, "memory-budget",
               "\"{}\": the values of a run need at least {} bytes at once; the budget is {}",
               optimised.name, least, budget);
    return plan(tightest);
  }

  std::shared_ptr<const Program> plan(const Graph& fused) {
    verify(fused, "fuse_regions");
    return std::make_shared<const Program>(
        make_program(fused, target(), &report_.codegen_seconds, options_.donate));
  }

  // Code for all sizes; programs are made with the target from then on.
  std::shared_ptr<const Outline> outline(const Graph& fused) {
    verify(fused, "fuse_regions");
    const HintScope hints(options_.hints);
    auto out = std::make_shared<const Outline>(fused, target());
    const auto start = Clock::now();
    target().finish();
    report_.codegen_seconds = seconds_since(start);
    return out;
  }
  std::shared_ptr<Target> take_target() { return std::move(target_); }

 private:
  bool is_alone(const Node& n) { return target().goes_first(*n.op); }
  Target& target() {
    user_check(has_target(), "stage",
               "the device {} walks programs as they are written: its way ends at the stage mir",
               name(backend_.device()));
    return *target_;
  }

  const Backend& backend_;
  const CompileOptions& options_;
  CompileReport& report_;
  std::unique_ptr<Target> target_;
};

// Where the parameters of a graph stand among those of its signature, by name.
std::unordered_map<std::string_view, size_t> param_positions(const Graph& signature) {
  std::unordered_map<std::string_view, size_t> position;
  for (Value v : signature.params())
    position.emplace(signature.node(v).get<LeafAttrs>().name, position.size());
  return position;
}

std::vector<size_t> param_order(const Graph& signature, const Program& program) {
  const auto position = param_positions(signature);
  std::vector<size_t> out;
  for (Value v : program.graph.params()) {
    const auto found = position.find(program.graph.node(v).get<LeafAttrs>().name);
    check(found != position.end(), "a pass invented a parameter");
    out.push_back(found->second);
  }
  check(out.size() == program.param_buffers.size(), "a pass lost a parameter");
  return out;
}

void describe(const CompileReport& report, CompileInfo& info) {
  info.codegen_seconds = report.codegen_seconds;
  info.recognition_report = report.passes.recognition();
  info.fusion_report = report.fusion.to_string();
}

int64_t text_bytes(const CompileInfo& info) {
  return KeptBytes::allocated(info.recognition_report.size()) +
         KeptBytes::allocated(info.fusion_report.size()) +
         KeptBytes::allocated(info.per_size.size());
}

void add(KeptBytes& kept, const Bound& b) {
  kept.add(static_cast<int64_t>(sizeof(Bound)) + text_bytes(b.info));
  for (const Types* types : {&b.inputs, &b.params, &b.outputs})
    kept.add(KeptBytes::allocated(types->capacity() * sizeof(Type)));
  kept.add(KeptBytes::allocated(b.donors.capacity() * sizeof(int32_t)));
  if (b.program) kept.add(*b.program);
  if (b.graph) kept.add(*b.graph);
}

// What is known of a program at certain sizes. `info`: of the compilation.
std::shared_ptr<Bound> make_bound(DimBinding sizes, std::shared_ptr<const Graph> signature,
                                  std::shared_ptr<const Program> program, CompileInfo info,
                                  int threads) {
  auto bound = std::make_shared<Bound>();
  bound->sizes = std::move(sizes);
  for (Value v : signature->inputs()) bound->inputs.push_back(signature->type(v));
  for (Value v : signature->params()) bound->params.push_back(signature->type(v));
  bound->outputs = signature->output_types();
  for (const Type& t : bound->params) info.param_bytes += t.bytes();
  if (program) {
    const Program& p = *program;
    count_work(p, info);
    info.generated = p.generated;
    info.cached = p.cached;
    info.kernels_before_fusion += info.kernels;
    int64_t beside = p.scratch_bytes * threads;  // the arena
    if (std::find(p.donated.begin(), p.donated.end(), true) != p.donated.end())
      for (size_t k = 0; k < p.outputs.size(); ++k) bound->donors.push_back(donor_of(p, k));
    for (size_t k = 0; k < p.outputs.size(); ++k)
      if (bound->donor(k) < 0) beside += p.outputs[k].type().bytes();
    info.planned_bytes = p.arena_bytes + beside;
    info.unshared_bytes = p.unshared_bytes + beside;
    info.program = program;
    bound->param_of = param_order(*signature, p);
  }
  bound->program = std::move(program);
  if (!bound->program) bound->graph = std::move(signature);
  bound->info = std::move(info);
  KeptBytes kept;
  add(kept, *bound);
  bound->bytes = kept.total();
  return bound;
}

// How far a module has come.
CompileStage stage_of(const GraphModule& m, CompileStage graph_is) {
  switch (m.stage()) {
    case GraphStage::hir:
      return CompileStage::hir;
    case GraphStage::lir:
      return CompileStage::lir;
    case GraphStage::mir:
      break;
  }
  user_check(graph_is != CompileStage::hir && graph_is != CompileStage::lir, "stage",
             "\"{}\" is a graph; it can be at mir, optimised or fused, not at {}", m.name(),
             enum_names(graph_is)[static_cast<size_t>(graph_is)]);
  return graph_is;
}

// The program with its blocks lowered. Raises "stage" for MIR that has some: only HIR says how.
Graph without_blocks(GraphModule m) {
  Graph g = std::move(m).into_graph();
  user_check(!has_blocks(g), "stage", "\"{}\" has blocks of HIR at the stage mir; lower it first",
             g.name);
  return g;
}

// Whether it is LIR with kernels of this backend.
bool has_plan_for(const GraphModule& m, const Backend& backend) {
  const LirModule* lir = m.as_lir();
  return lir && lir->has_plan() && lir->plan().target == backend.device().kind;
}

// The hints for symbols of which some are one: all that is known of a symbol is known of the one that stays.
SizeHints hints_of_equals(SizeHints hints, const SymbolNames& equal) {
  for (const auto& [symbol, stays] : equal) {
    const auto found = hints.find(symbol);
    if (found == hints.end()) continue;
    SizeHint& both = hints[stays];
    const SizeHint more = found->second;
    const SizeHint met{std::max(both.min, more.min), std::min(both.max, more.max),
                       std::max(both.multiple_of, more.multiple_of)};
    if (met.least() <= met.most()) both = met;
  }
  return hints;
}

// What is at odds where symbols that are one program's one have these sizes; empty: nothing.
std::string unequal(const SymbolNames& equal, const DimBinding& sizes) {
  for (const auto& [symbol, stays] : equal)
    if (const int64_t a = sizes.at(stays), b = sizes.at(symbol); a != b)
      return fmt::format("?{} = {} and ?{} = {} are one in code for all sizes", stays, a, symbol,
                         b);
  return {};
}

// One compilation for all sizes; where that cannot be, one for each.
void compile_symbolic(Compiled& c, CompileStage from, const Backend& backend,
                      const CompileOptions& options) {
  // What makes programs: the code for all sizes and the target that knows it; none where the backend has no target.
  std::shared_ptr<const Outline> outline;
  std::shared_ptr<Target> target;
  CompileReport report;
  const SymbolNames equal = equal_symbols(c.signature);
  CompileOptions for_all = options;
  for_all.hints = hints_of_equals(options.hints, equal);
  Driver driver(backend, for_all, report);
  if (driver.has_target()) {
    try {
      Graph program = equal.empty() ? c.signature : rename_symbols(c.signature, equal);
      outline = driver.outline(driver.pass(std::move(program), from, CompileStage::fused));
      describe(report, c.info);
      c.info.kernels_before_fusion = report.fusion.nodes_before - report.fusion.regions;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::user && e.kind() != ErrorKind::unsupported) throw;
      c.info.per_size = e.message();
    }
    target = driver.take_target();
  }
  const auto make = [outline, target, equal, from, &backend, options, signature = c.signature,
                     info = c.info, threads = c.threads](const DimBinding& sizes) {
    check_by_hints(options.hints, sizes);
    auto bound = std::make_shared<const Graph>(bind_checked(signature, sizes));
    CompileInfo own = info;
    std::shared_ptr<const Program> program;
    int64_t own_code = 0;
    if (outline) own.per_size = unequal(equal, sizes);  // one of them is 1 and broadcasts
    if (outline && own.per_size.empty()) try {
        Program p = outline->at(sizes, *target, options.donate);
        describe_target(p, *target);
        program = std::make_shared<const Program>(std::move(p));
      } catch (const Error& e) {  // a rule took two sizes for one that these are not: a symbol is 1
        if (e.code() != "dim-guard") throw;
        own.per_size = e.message();
      }
    if (target && !program) {
      CompileReport per_size;
      Driver again(backend, options, per_size);
      program = again.plan(*bound, from);
      own_code = program->code_bytes;
      describe(per_size, own);
      own.kernels_before_fusion = per_size.fusion.nodes_before - per_size.fusion.regions;
    }
    const auto made =
        make_bound(sizes, std::move(bound), std::move(program), std::move(own), threads);
    made->bytes += own_code;
    return made;
  };
  KeptBytes kept;
  if (outline) {
    const Graph& g = outline->graph();
    for (const Node& n : g.nodes)  // an executable counts them
      if (n.op == &op::constant) kept.skip(n.get<ConstantAttrs>().value);
    kept.add(g);
    kept.add(target->code_bytes() + target->form_bytes());
  }
  kept.add(c.signature);
  c.bytes = kept.total() + text_bytes(c.info);
  const auto bindings = std::make_shared<Bindings>(make);
  c.bind = [bindings, keep = c.backend](const DimBinding& sizes) { return bindings->at(sizes); };
  c.bound_bytes = [bindings] { return bindings->bytes(); };
}

std::unique_ptr<Executable> compile_from(Graph g, CompileStage from,
                                         std::shared_ptr<const Program> plan,
                                         const std::shared_ptr<const Backend>& backend,
                                         const CompileOptions& options) {
  const auto start = Clock::now();
  check_options(g, options);
  verify(g);
  user_check(options.memory_budget == 0 || backend->make_target(options), "memory-budget",
             "the device {} plans no memory: it has no budget", name(backend->device()));
  auto compiled = std::make_shared<Compiled>();
  Compiled& c = *compiled;
  c.backend = backend;
  c.info.nodes = g.size();
  c.threads = options.threads > 0 ? options.threads : hardware_threads();
  c.poison = options.poison;
  c.signature = options.dims.empty() ? std::move(g) : rlx::bind(g, options.dims);
  check_precision(options, from);
  // What the policy has nothing to do with is said now, and not when sizes are bound.
  if (!options.precision.is_f32()) {
    Graph mixed = mixed_precision(c.signature, options.precision);
    if (!backend->make_target(options)) c.signature = std::move(mixed);
  }
  c.param_updated.assign(c.signature.params().size(), false);
  const auto position = param_positions(c.signature);
  for (const Update& u : c.signature.updates) c.param_updated[position.at(u.param)] = true;
  if (!options.donate.empty()) c.donated.resize(c.signature.inputs().size());
  for (const size_t i : options.donate) c.donated[i] = true;
  if (plan) c.donated = plan->donated;  // LIR runs with the plan it has
  if (has_symbols(c.signature)) {
    compile_symbolic(c, from, *backend, options);
    c.info.seconds = seconds_since(start);
    return backend->load(std::move(compiled));
  }
  CompileReport report;
  if (!plan)
    if (Driver driver(*backend, options, report); driver.has_target())
      plan = driver.plan(c.signature, from);
  // What was fused or lowered before is taken as it is.
  user_check(options.memory_budget == 0 || !plan || plan->arena_bytes <= options.memory_budget,
             "memory-budget",
             "\"{}\": as it was fused, the values of a run need {} bytes at once; the budget is {}",
             c.signature.name, plan ? plan->arena_bytes : 0, options.memory_budget);
  if (plan) {
    describe(report, c.info);
    c.info.kernels_before_fusion = report.fusion.nodes_before - report.fusion.regions;
    if (!options.dump_dir.empty()) {
      write_file(options.dump_dir + "/recognition.txt", c.info.recognition_report);
      write_file(options.dump_dir + "/fusion.txt", c.info.fusion_report);
      write_file(options.dump_dir + "/plan.txt", to_string(*plan));
    }
  }
  c.info.seconds = seconds_since(start);
  c.bound = make_bound({}, std::make_shared<const Graph>(c.signature), std::move(plan), c.info,
                       c.threads);
  c.info = c.bound->info;
  KeptBytes kept;
  add(kept, *c.bound);
  kept.add(c.signature);
  c.bytes = kept.total() + text_bytes(c.info);
  if (c.bound->program) c.bytes += c.bound->program->code_bytes;
  return backend->load(std::move(compiled));
}

}  // namespace

GraphModule lower_to(CompileStage to, GraphModule program, const Backend& backend,
                     const CompileOptions& options, CompileStage graph_is, CompileReport* report) {
  return within_memory([&]() -> GraphModule {
    const CompileStage from = stage_of(program, graph_is);
    user_check(from <= to, "stage", "\"{}\" is at the stage {}, which lies behind {}",
               program.name(), enum_names(from)[static_cast<size_t>(from)],
               enum_names(to)[static_cast<size_t>(to)]);
    if (from == to && to != CompileStage::lir) return program;
    if (has_plan_for(program, backend)) return program;
    Graph g = without_blocks(std::move(program));
    verify(g);
    if (to == CompileStage::mir) return g;
    check_options(g, options);
    check_precision(options, from);
    if (to == CompileStage::lir) require_sizes(g, options);
    if (!options.dims.empty()) g = rlx::bind(g, options.dims);
    CompileReport own;
    Driver driver(backend, options, report ? *report : own);
    if (to != CompileStage::lir) return driver.pass(std::move(g), from, to);
    auto plan = driver.plan(std::move(g), from);
    return LirModule(plan->graph, plan);
  });
}

std::unique_ptr<Executable> compile(const Graph& g, const std::shared_ptr<const Backend>& backend,
                                    const CompileOptions& options) {
  return within_memory([&] { return compile(GraphModule(g), backend, options); });
}

std::unique_ptr<Executable> compile(GraphModule program,
                                    const std::shared_ptr<const Backend>& backend,
                                    const CompileOptions& options, CompileStage graph_is) {
  return within_memory([&] {
    const CompileStage from = stage_of(program, graph_is);
    std::shared_ptr<const Program> plan;
    if (has_plan_for(program, *backend)) plan = program.as_lir()->shared_plan();
    return compile_from(without_blocks(std::move(program)), from, std::move(plan), backend,
                        options);
  });
}

std::vector<std::string> native_ops(const Backend& backend) {
  const auto target = backend.make_target({});
  std::vector<std::string> names;
  for (const OpTable::Entry& entry : op_table().entries()) {
    const OpDef& op = *entry.op;
    if (!op.scalar && target && (is_lowered(op) || makes_regions(op) || target->has_kernel(op)))
      names.emplace_back(op.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace rlx
