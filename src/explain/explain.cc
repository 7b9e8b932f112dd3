#include "rlx/explain/explain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rlx/base/clock.h"
#include "rlx/base/parallel.h"
#include "rlx/base/suggest.h"
#include "rlx/explain/graph_json.h"
#include "rlx/explain/program_json.h"
#include "rlx/lower/lower.h"
#include "rlx/ops/core.h"
#include "rlx/ops/region.h"
#include "rlx/runtime/sizes.h"
#include "rlx/version.h"

namespace rlx {

namespace {

using explaining::Json;

constexpr int kVersion = 1;  // of the document; docs/explain.md
constexpr size_t kTrafficBytes = size_t{1} << 26;

std::string_view stage_name(CompileStage s) { return enum_names(s)[static_cast<size_t>(s)]; }

// ---- passes, stages

// A program on its way, with what there is to tell of it.
class Journey {
 public:
  Journey(GraphModule program, const Backend& backend, const ExplainOptions& options)
      : module_(std::move(program)), backend_(backend), options_(options.compile) {
    report_.watch = [this](const PassRecord& record, const Graph& after) { note(record, after); };
    at_ = module_.stage() == GraphStage::hir   ? CompileStage::hir
          : module_.stage() == GraphStage::lir ? CompileStage::lir
                                               : options.graph_is;
  }

  void run() {
    show(module_.stage() == GraphStage::hir ? module_.as_hir()->graph() : *module_.as_graph());
    if (at_ == CompileStage::lir) return advance(CompileStage::lir);
    while (at_ < CompileStage::lir) advance(static_cast<CompileStage>(static_cast<int>(at_) + 1));
  }

  const GraphModule& module() const { return module_; }
  const Program& program() const { return module_.as_lir()->plan(); }
  const CompileReport& report() const { return report_; }
  const Graph* optimised() const { return optimised_ ? &*optimised_ : nullptr; }
  Json take_stages() { return std::move(stages_); }
  Json take_passes() { return std::move(passes_); }

 private:
  void advance(CompileStage to) {
    before_ = module_.stage() == GraphStage::hir ? module_.as_hir()->graph() : *module_.as_graph();
    if (!options_.dims.empty() && to >= CompileStage::optimised)
      before_ = rlx::bind(before_, options_.dims);
    module_ = lower_to(to, std::move(module_), backend_, options_, at_, &report_);
    if (to >= CompileStage::optimised)
      options_.dims.clear(), options_.hints.clear();  // are numbers by now
    at_ = to;
    if (to == CompileStage::lir) return;  // the graph is the fused one; what is new is the program
    if (to == CompileStage::optimised) optimised_ = *module_.as_graph();
    show(*module_.as_graph());
  }

  void show(const Graph& g) {
    stages_.push_back({{"stage", stage_name(at_ == CompileStage::lir ? CompileStage::fused : at_)},
                       {"graph", explaining::graph_json(g)}});
  }

  void note(const PassRecord& r, const Graph& after) {
    Json j = {{"pass", r.pass},
              {"seconds", r.seconds},
              {"nodes_before", r.nodes_before},
              {"nodes_after", r.nodes_after}};
    j.update(explaining::changes_json(before_, after));
    for (const auto& [rule, count] : r.rules.hits) j["rules"][rule] = count;
    passes_.push_back(std::move(j));
    before_ = after;
  }

  GraphModule module_;
  const Backend& backend_;
  CompileOptions options_;
  CompileStage at_;
  CompileReport report_;
  Graph before_;
  std::optional<Graph> optimised_;
  Json stages_ = Json::array(), passes_ = Json::array();
};

// ---- fusion

std::string inside(const std::string& where, int32_t node, std::string_view field) {
  return fmt::format("{}{}%{}.{}", where, where.empty() ? "" : "/", node, field);
}

// Nodes that are in no region, and why.
void list_alone(const Graph& g, const std::string& where, const FusionReport& report, Json& out) {
  std::vector<bool> grouped(g.nodes.size());
  for (const FusionReport::Group& group : report.groups)
    if (group.where == where)
      for (int32_t i : group.nodes) grouped[static_cast<size_t>(i)] = true;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    if (n.op->kind == Kind::leaf || grouped[static_cast<size_t>(i)]) continue;
    const Decision fits = fusible(n, g);
    Json j = {{"node", i}, {"op", n.op->name}};
    if (!where.empty()) j["where"] = where;
    j["why"] = n.op->kind == Kind::movement && is_lowered(*n.op)
                   ? "lowering makes it a view or a copy"
               : n.op->kind == Kind::control ? "control flow runs its bodies"
               : fits                        ? "a kernel of the user's goes first"
                                             : fits.why();
    out.push_back(std::move(j));
    if (n.op->kind == Kind::control)
      for (const NamedBody& body : bodies(n.attrs))
        list_alone(body.graph, inside(where, i, body.field), report, out);
  }
}

Json fusion_json(const FusionReport& r, const Graph* optimised) {
  Json groups = Json::array(), refusals = Json::array(), alone = Json::array();
  for (const FusionReport::Group& g : r.groups) {
    Json j = {{"region", g.region}, {"nodes", g.nodes}};
    if (!g.where.empty()) j["where"] = g.where;
    groups.push_back(std::move(j));
  }
  for (const FusionReport::Refusal& f : r.refusals) {
    Json j = {{"producer", f.producer_node}, {"consumer", f.consumer_node}, {"why", f.why}};
    if (f.producer_node < 0 || f.consumer_node < 0) j["names"] = {f.producer, f.consumer};
    if (!f.where.empty()) j["where"] = f.where;
    refusals.push_back(std::move(j));
  }
  if (optimised) list_alone(*optimised, "", r, alone);
  return {{"nodes", r.nodes_before},
          {"regions", r.regions},
          {"groups", std::move(groups)},
          {"refusals", std::move(refusals)},
          {"alone", std::move(alone)}};
}

// ---- dispatch

Json dispatch_of(const Graph& g, const Target& target) {
  Json out = Json::array();
  for (const Node& n : g.nodes) {
    Json j;
    if (n.op->kind == Kind::leaf) {
      j["path"] = "leaf";
    } else if (n.op->kind == Kind::control) {
      j["path"] = "control";
      for (const NamedBody& body : bodies(n.attrs))
        j["bodies"].push_back(dispatch_of(body.graph, target));
    } else if (n.op == &op::region) {
      j["path"] = "region";
    } else if (is_lowered(*n.op)) {
      j["path"] = "view";
    } else {
      const Target::Choice choice = target.choice(n, g);
      j["path"] = choice.kernel.empty() ? "unsupported" : "native";
      if (!choice.kernel.empty()) j["kernel"] = choice.kernel;
      for (const auto& [name, why] : choice.refused)
        j["refused"].push_back({{"kernel", name}, {"why", why}});
    }
    out.push_back(std::move(j));
  }
  return out;
}

Json dispatch_json(const Graph& fused, const Target& target, const CompileReport& report) {
  Json decomposed = Json::array();
  for (const CompileReport::Decomposed& d : report.decomposed) {
    Json j = {{"op", d.op}, {"out", explaining::types_json(d.types)}};
    if (!d.label.empty()) j["label"] = d.label;
    j["why"] = d.why;
    decomposed.push_back(std::move(j));
  }
  return {{"target", target.name()},
          {"nodes", dispatch_of(fused, target)},
          {"decomposed", std::move(decomposed)}};
}

// ---- measuring

// Floats that no function minds; integers that are an index of everything.
Tensor made_up(const Type& t) {
  Tensor out(t.dtype, t.shape.sizes());
  if (!is_float(t.dtype)) return out;
  for (int64_t i = 0; i < out.elements(); ++i)
    out.set_float(i, static_cast<double>(i * 7 % 31 - 15) / 16);
  return out;
}

void check_names(const NamedTensors& given, const Graph& g, const Values& leaves,
                 std::string_view what) {
  std::vector<std::string_view> names;
  for (Value v : leaves) names.push_back(g.node(v).get<LeafAttrs>().name);
  for (const auto& [name, tensor] : given)
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail(ErrorKind::user, fmt::format("{}-unknown", what),
           "there is no {0} {1}{2}; the {0}s are {3}", what, name, did_you_mean(name, names),
           names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

struct Measurement {
  std::vector<double> seconds;  // of each launch
  double total = 0;
  std::vector<double> runs;  // whole ones, in which no kernel is timed, the shortest first
  std::vector<std::string> made_up;
};

Measurement measure(const GraphModule& lir, const Device& device, const ExplainOptions& options) {
  Measurement out;
  CompileOptions compile = options.compile;
  compile.dims.clear(), compile.hints.clear();
  CompiledGraph f = Session(device).compile(lir, compile);
  const Graph& g = f.signature();
  const auto value = [&](Value v, const NamedTensors& given) {
    const std::string& name = g.node(v).get<LeafAttrs>().name;
    const auto found = given.find(name);
    if (found != given.end()) return found->second;
    out.made_up.push_back(name);
    return made_up(g.type(v));
  };
  for (Value v : g.params()) f.set_param(g.node(v).get<LeafAttrs>().name, value(v, options.params));
  for (Value v : g.inputs()) f.set_input(g.node(v).get<LeafAttrs>().name, value(v, options.inputs));
  const std::vector<Chain>& launches = lir.as_lir()->plan().chains;
  out.seconds.assign(launches.size(), std::numeric_limits<double>::infinity());
  out.total = out.seconds.empty() ? 0 : std::numeric_limits<double>::infinity();
  for (int i = 0; i < options.runs; ++i) {
    f.run({.cancel = options.cancel, .profile = true});
    const std::vector<StepTime> times = f.times();
    double total = 0;
    for (size_t c = 0; c < launches.size(); ++c) {
      const double seconds = times[static_cast<size_t>(launches[c].begin)].seconds;
      out.seconds[c] = std::min(out.seconds[c], seconds);
      total += seconds;
    }
    out.total = std::min(out.total, total);
  }
  for (int i = 0; i < options.runs; ++i) {
    const auto start = Clock::now();
    f.run({.cancel = options.cancel});
    out.runs.push_back(seconds_since(start));
  }
  std::ranges::sort(out.runs);
  return out;
}

Json measured_json(const Measurement& m) {
  const auto at = [&](size_t quarter) { return m.runs[(m.runs.size() - 1) * quarter / 4]; };
  return {{"runs", m.runs.size()},
          {"seconds", m.total},
          {"run", {{"least", m.runs[0]}, {"low", at(1)}, {"median", at(2)}, {"high", at(3)}}},
          {"made_up", m.made_up}};
}

Json limits_json(const Backend& backend, const ExplainOptions& options, int threads) {
  if (options.limits)
    return {{"source", "given"},
            {"gflops", options.limits->gflops},
            {"gbytes", options.limits->gbytes}};
  if (!options.run) return nullptr;
  const double gflops = backend.peak_gflops(threads),
               seconds = backend.traffic_seconds(threads, kTrafficBytes, kTrafficBytes);
  if (gflops <= 0 || seconds <= 0) return nullptr;
  return {{"source", "measured"},
          {"gflops", gflops},
          {"gbytes", 2 * static_cast<double>(kTrafficBytes) / seconds * 1e-9}};
}

// The least time of each launch: its operations at the one limit or its bytes at the other.
void add_limits(Json& program, const Json& limits) {
  if (limits.is_null()) return;
  for (Json& launch : program["launches"])
    launch["limit_seconds"] =
        std::max(launch["flops"].get<double>() / limits["gflops"].get<double>(),
                 launch["bytes"].get<double>() / limits["gbytes"].get<double>()) *
        1e-9;
}

// ---- around it

Json environment_json(const Backend& backend, const CompileOptions& o, const DimBinding& sizes,
                      int threads) {
  Json libraries = Json::array();
  const std::string text = backend.libraries();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    libraries.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  Json out = {
      {"rlx", RLX_VERSION},
      {"device", name(backend.device())},
      {"threads", threads},
      {"machine_threads", hardware_threads()},
      {"libraries", std::move(libraries)},
      {"options", {{"fuse", o.fuse}, {"fast_math", o.fast_math}, {"vector_bits", o.vector_bits}}},
      {"sizes", Json::object()}};
  for (const auto& [symbol, size] : sizes) out["sizes"][symbol] = size;
  return out;
}

void check_request(const ExplainOptions& o) {
  user_check(o.runs >= 1, "runs", "a program is measured by at least one run, not {}", o.runs);
  if (o.limits)
    user_check(o.limits->gflops > 0 && o.limits->gbytes > 0 && std::isfinite(o.limits->gflops) &&
                   std::isfinite(o.limits->gbytes),
               "limits", "the limits of a machine are positive numbers, not {} GF/s and {} GB/s",
               o.limits->gflops, o.limits->gbytes);
}

// What symbols stand for: as said, and as the given tensors have it.
DimBinding sizes_of(const Graph& g, const ExplainOptions& o) {
  std::vector<SizedLeaf> leaves;
  for (const auto& [given, what] : {std::pair(&o.inputs, "input"), {&o.params, "param"}})
    for (const auto& [leaf, tensor] : *given) {
      const Type& t = g.type(g.find_leaf(leaf));
      user_check(t.rank() == tensor.rank() && t.dtype == tensor.dtype(),
                 fmt::format("{}-type", what), "{} {} is {}, given is {}", what, leaf, t,
                 tensor.type());
      leaves.push_back({fmt::format("{} \"{}\"", what, leaf), &t.shape, &tensor.sizes()});
    }
  DimBinding sizes = infer_sizes(leaves, o.compile.dims);
  for (const std::string& symbol : g.symbols())
    user_check(sizes.contains(symbol), "unbound-dim",
               "the size of dim ?{0} is not known: no tensor that is given has it; bind it in the "
               "compile options (--dim {0}=SIZE)",
               symbol);
  return sizes;
}

}  // namespace

Explanation explain(GraphModule program, const Device& device, const ExplainOptions& given) {
  check_request(given);
  const auto backend = backend_for(device);
  ExplainOptions options = given;
  const Graph written =
      program.stage() == GraphStage::hir ? program.as_hir()->graph() : *program.as_graph();
  check_names(options.inputs, written, written.inputs(), "input");
  check_names(options.params, written, written.params(), "param");
  options.compile.dims = sizes_of(written, options);
  const auto target = backend->make_target(options.compile);
  const int threads = options.compile.threads > 0 ? options.compile.threads : hardware_threads();

  Journey journey(std::move(program), *backend, options);
  journey.run();
  Measurement measured;
  if (options.run) measured = measure(journey.module(), device, options);
  const Json limits = limits_json(*backend, options, threads);

  Json out = {{"format", "rlx.explain"}, {"version", kVersion}, {"name", written.name}};
  out["environment"] = environment_json(*backend, options.compile, options.compile.dims, threads);
  out["stages"] = journey.take_stages();
  out["passes"] = journey.take_passes();
  out["fusion"] = fusion_json(journey.report().fusion, journey.optimised());
  out["dispatch"] = dispatch_json(*journey.module().as_graph(), *target, journey.report());
  out["program"] = explaining::program_json(journey.program(), measured.seconds);
  add_limits(out["program"], limits);
  out["codegen"] = {{"seconds", journey.report().codegen_seconds},
                    {"kernels", journey.program().generated},
                    {"cached", journey.program().cached},
                    {"bytes", journey.program().code_bytes}};
  out["limits"] = limits;
  out["measured"] = options.run ? measured_json(measured) : Json(nullptr);
  return Explanation(out.dump(-1, ' ', true, Json::error_handler_t::replace));
}

}  // namespace rlx
