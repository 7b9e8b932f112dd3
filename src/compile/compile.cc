#include "rlx/compile/compile.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_map>

#include "rlx/base/clock.h"
#include "rlx/base/file.h"
#include "rlx/base/parallel.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/text.h"
#include "rlx/ir/verify.h"
#include "rlx/lower/lower.h"
#include "rlx/ops/core.h"
#include "rlx/ops/region.h"
#include "rlx/ops/table.h"
#include "rlx/passes/passes.h"

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
  user_check(options.threads >= 0, "threads", "the number of threads cannot be {}; 0 means all",
             options.threads);
  const std::vector<std::string> symbols = g.symbols();
  auto known = [&](const std::string& s) {
    return std::find(symbols.begin(), symbols.end(), s) != symbols.end();
  };
  for (const auto& [name, size] : options.dims) {
    user_check(known(name), "dim-unknown", "graph \"{}\" has no dim ?{}; it has {}", g.name, name,
               symbols.empty() ? "none" : fmt::format("?{}", fmt::join(symbols, ", ?")));
    user_check(size >= 0, "negative-dim", "dim ?{} cannot have the size {}", name, size);
  }
  for (const std::string& s : symbols)
    user_check(
        options.dims.contains(s), "unbound-dim",
        "compile of \"{}\": the size of dim ?{} is not known; bind it in the compile options",
        g.name, s);
}

void count_work(const Program& p, CompileInfo& info) {
  for (const Step& s : p.steps) {
    ++info.kernels;
    if (s.kernel) info.flops += s.kernel->flops();
    for (const auto& body : s.bodies) count_work(*body, info);
  }
}

// One compilation: the stages of one graph, whose sizes are known.
class Driver {
 public:
  Driver(const Backend& backend, const CompileOptions& options, CompileReport& report)
      : backend_(backend),
        options_(options),
        report_(report),
        target_(backend.make_target(options)) {}
  bool has_target() const { return target_ != nullptr; }

  // Through the passes that lie between two stages.
  Graph pass(Graph g, CompileStage from, CompileStage to) {
    Pipeline pipeline;
    if (from < CompileStage::optimised && to >= CompileStage::optimised)
      pipeline = default_pipeline();
    if (from < CompileStage::fused && to >= CompileStage::fused)
      pipeline.push_back({pass::fuse_regions, {{"grow", options_.fuse ? "yes" : "no"}}});
    if (pipeline.empty()) return g;
    PassContext context;
    context.verify = options_.verify;
    context.dump_dir = options_.dump_dir;
    context.fast_math = options_.fast_math;
    context.report = &report_.passes;
    context.fusion = &report_.fusion;
    // Regions in the program as given are opened: the grower makes its own.
    context.keeps = [&](const Node& n, const Graph& at) {
      return n.op != &op::region && target().accepts(n, at);
    };
    context.schedule = target().schedule();
    context.alone = [&](const Node& n) { return target().goes_first(*n.op); };
    return run_passes(std::move(g), pipeline, context);
  }

  std::shared_ptr<const Program> plan(const Graph& fused) {
    verify(fused, "fuse_regions");
    return std::make_shared<const Program>(make_program(fused, target(), &report_.codegen_seconds));
  }

 private:
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

void map_params(Compiled& c) {
  const auto params = c.signature.params();
  c.param_updated.assign(params.size(), false);
  std::unordered_map<std::string_view, size_t> position;
  for (size_t k = 0; k < params.size(); ++k)
    position.emplace(c.signature.node(params[k]).get<LeafAttrs>().name, k);
  for (Value v : c.program->graph.params()) {
    const auto found = position.find(c.program->graph.node(v).get<LeafAttrs>().name);
    check(found != position.end(), "a pass invented a parameter");
    c.param_of.push_back(found->second);
  }
  check(c.param_of.size() == c.program->param_buffers.size(), "a pass lost a parameter");
  for (size_t k = 0; k < c.param_of.size(); ++k)
    c.param_updated[c.param_of[k]] = c.program->param_updated[k];
}

void describe(Compiled& c, const CompileReport& report, const CompileOptions& options) {
  CompileInfo& info = c.info;
  const Program& p = *c.program;
  info.codegen_seconds = report.codegen_seconds;
  count_work(p, info);
  info.generated = p.generated;
  info.cached = p.cached;
  info.kernels_before_fusion = info.kernels - report.fusion.regions + report.fusion.nodes_before;
  int64_t beside = p.scratch_bytes * c.threads;  // the arena
  for (const View& v : p.outputs) beside += v.type().bytes();
  info.planned_bytes = p.arena_bytes + beside;
  info.unshared_bytes = p.unshared_bytes + beside;
  for (Value v : c.signature.params()) info.param_bytes += c.signature.type(v).bytes();
  info.fusion_report = report.fusion.to_string();
  info.plan = to_string(p);
  if (options.dump_dir.empty()) return;
  write_file(options.dump_dir + "/fusion.txt", info.fusion_report);
  write_file(options.dump_dir + "/plan.txt", info.plan);
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

std::unique_ptr<Executable> compile_from(Graph g, CompileStage from,
                                         std::shared_ptr<const Program> plan,
                                         std::shared_ptr<const Backend> backend,
                                         const CompileOptions& options) {
  const auto start = Clock::now();
  check_options(g, options);
  verify(g);
  auto compiled = std::make_shared<Compiled>();
  Compiled& c = *compiled;
  c.backend = backend;
  c.info.nodes = g.size();
  c.threads = options.threads > 0 ? options.threads : hardware_threads();
  c.poison = options.poison;
  c.signature = options.dims.empty() ? std::move(g) : rlx::bind(g, options.dims);
  CompileReport report;
  if (!plan)
    if (Driver driver(*backend, options, report); driver.has_target())
      plan = driver.plan(driver.pass(c.signature, from, CompileStage::fused));
  if (plan) {
    c.program = std::move(plan);
    map_params(c);
    describe(c, report, options);
  }
  c.info.seconds = seconds_since(start);
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
    if (!options.dims.empty()) g = rlx::bind(g, options.dims);
    CompileReport own;
    Driver driver(backend, options, report ? *report : own);
    g = driver.pass(std::move(g), from, to);
    if (to != CompileStage::lir) return g;
    auto plan = driver.plan(g);
    return LirModule(std::move(g), std::move(plan));
  });
}

std::unique_ptr<Executable> compile(const Graph& g, std::shared_ptr<const Backend> backend,
                                    const CompileOptions& options) {
  return within_memory([&] { return compile(GraphModule(g), std::move(backend), options); });
}

std::unique_ptr<Executable> compile(GraphModule program, std::shared_ptr<const Backend> backend,
                                    const CompileOptions& options, CompileStage graph_is) {
  return within_memory([&] {
    const CompileStage from = stage_of(program, graph_is);
    std::shared_ptr<const Program> plan;
    if (has_plan_for(program, *backend)) plan = program.as_lir()->shared_plan();
    return compile_from(without_blocks(std::move(program)), from, std::move(plan),
                        std::move(backend), options);
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
