#include "rlx/opt/dispatch.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/opt/environment.h"
#include "rlx/stages/builders/vocabulary.h"

namespace rlx::opt {

namespace {

// The bodies that a backend runs: those of control flow. A region's is one kernel.
std::vector<NamedBody> run_bodies(const Node& n) {
  return n.op == &op::region ? std::vector<NamedBody>() : bodies(n.attrs);
}

void find_offenders(const Graph& g, const Claim& claim, const std::string& prefix, int32_t outer,
                    LegalizeResult& out) {
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    const int32_t owner = outer < 0 ? i : outer;
    const std::string here = fmt::format("{}%{}", prefix, i);
    if (!supports_op(claim, *n.op)) out.push_back({{owner, 0}, std::string(n.op->name), here});
    for (const NamedBody& body : run_bodies(n))
      find_offenders(body.graph, claim, fmt::format("{}.{}/", here, body.field), owner, out);
  }
}

bool contains(const Claim& list, const OpDef& op) { return !list.empty() && supports_op(list, op); }

void check_config(const Claim& claim, const KernelDispatchConfig& config) {
  check_claim(claim);
  check_claim(config.force_common_kinds);
  check_claim(config.force_native_kinds);
}

bool never_rewritten(const OpDef& op, const KernelDispatchConfig& config) {
  return config.policy == KernelDispatchPolicy::force_native
             ? !contains(config.force_common_kinds, op)
             : contains(config.force_native_kinds, op);
}

bool has_unclaimed(const Graph& g, const OpDef& op, const Claim& claim) {
  return !supports_op(claim, op) &&
         std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == &op; });
}

Graph rewrite_body(Graph g, const Claim& claim, const KernelDispatchConfig& config) {
  for (Node& n : g.nodes)
    if (!run_bodies(n).empty())
      n.attrs = map_bodies(
          n.attrs, [&](const Body& body) { return Body(rewrite_body(*body, claim, config)); });
  g = decompose_composites(std::move(g), "rewrite_for_backend", [&](const Node& n, const Graph&) {
    return !should_lower_to_common(*n.op, claim, config);
  });
  if (has_unclaimed(g, op::cond.def, claim) && !never_rewritten(op::cond.def, config))
    g = inline_if(g);
  if (has_unclaimed(g, op::while_loop.def, claim) && !never_rewritten(op::while_loop.def, config))
    g = unroll_while(g, true);
  return g;
}

}  // namespace

LegalizeResult legalize_for_backend(const Graph& g, const Claim& claim) {
  check_claim(claim);
  LegalizeResult out;
  if (!claim.empty()) find_offenders(g, claim, "", -1, out);
  return out;
}

std::string format_legalize_error(std::string_view backend, const LegalizeResult& errors) {
  std::string out = fmt::format("backend \"{}\" does not claim {} op kind(s) of this graph:\n",
                                backend, errors.size());
  bool custom = false;
  for (const Offender& e : errors) {
    out += fmt::format("  - node {}: {}\n", e.where, e.kind);
    custom |= e.kind == "custom";
  }
  out += "  Claim them, or rewrite the graph before (rewrite_for_backend).\n";
  if (custom)
    out +=
        "  A custom op needs a kernel of its own on each backend: register_kernel "
        "(docs/devices.md).\n";
  return out;
}

void require_legal(std::string_view backend, const LegalizeResult& errors) {
  if (!errors.empty())
    raise(ErrorKind::unsupported, "legalise", format_legalize_error(backend, errors));
}

KernelDispatchPolicy kernel_dispatch_policy_from_env() {
  const char* const text = std::getenv("RLX_KERNEL_DISPATCH");
  const std::string_view value = text ? text : "";
  if (value == "common" || value == "force_common" || value == "ForceCommon")
    return KernelDispatchPolicy::force_common;
  if (value == "native" || value == "force_native" || value == "ForceNative")
    return KernelDispatchPolicy::force_native;
  return KernelDispatchPolicy::prefer_native;
}

bool should_lower_to_common(const OpDef& op, const Claim& claim,
                            const KernelDispatchConfig& config) {
  if (!op.decompose || contains(config.force_native_kinds, op)) return false;
  if (contains(config.force_common_kinds, op)) return true;
  if (config.policy == KernelDispatchPolicy::force_common) return true;
  if (config.policy == KernelDispatchPolicy::force_native) return false;
  return !supports_op(claim, op);
}

Graph rewrite_for_backend_with_config(const Graph& g, const Claim& claim,
                                      const KernelDispatchConfig& config) {
  check_config(claim, config);
  Graph out = rewrite_body(g, claim, config);
  return out == g ? g : drop_dead(std::move(out));
}

Legalized legalize_or_rewrite_for_backend_with_config(const Graph& g, const Claim& claim,
                                                      const KernelDispatchConfig& config) {
  Graph out = rewrite_for_backend_with_config(g, claim, config);
  LegalizeResult errors = legalize_for_backend(out, claim);
  return {std::move(out), std::move(errors)};
}

// ---- reports

std::string_view label(DispatchPath path) { return enum_names(path)[static_cast<size_t>(path)]; }

namespace {

void count_ops(const Graph& g, std::map<const OpDef*, int>& out) {
  for (const Node& n : g.nodes) {
    ++out[n.op];
    for (const NamedBody& body : run_bodies(n)) count_ops(body.graph, out);
  }
}

std::string logical_name(const OpDef& op) {
  const std::string kind = op_kind(op);
  return op.decompose && kind != op.name ? kind : "";
}

KernelDispatchReport report_of(const Graph& before, const Graph& after, std::string_view backend,
                               const Claim& claim, const KernelDispatchConfig& config) {
  KernelDispatchReport r{std::string(backend),
                         config.policy,
                         static_cast<int>(claim.size()),
                         {},
                         {},
                         legalize_for_backend(after, claim),
                         true};
  r.compile_ready = r.still_unsupported.empty();
  std::set<std::string_view> unsupported;
  for (const Offender& o : r.still_unsupported) unsupported.insert(o.kind);
  std::map<const OpDef*, int> given, left;
  count_ops(before, given);
  count_ops(after, left);
  for (const auto& [op, count] : given) {
    const bool gone = !left.contains(op);
    const bool forced = config.policy == KernelDispatchPolicy::force_common ||
                        contains(config.force_common_kinds, *op);
    DispatchPath path = DispatchPath::native;
    if (gone)
      path = forced && op->decompose ? DispatchPath::common_ir : DispatchPath::rewritten;
    else if (unsupported.contains(op->name))
      path = DispatchPath::unsupported;
    r.summaries.push_back({std::string(op->name), count, path, logical_name(*op)});
    if (path == DispatchPath::common_ir) r.common_lowered_kinds.emplace_back(op->name);
  }
  std::sort(r.summaries.begin(), r.summaries.end(),
            [](const auto& a, const auto& b) { return a.kind < b.kind; });
  std::sort(r.common_lowered_kinds.begin(), r.common_lowered_kinds.end());
  return r;
}

std::string_view policy_name(KernelDispatchPolicy policy) {
  return enum_names(policy)[static_cast<size_t>(policy)];
}

}  // namespace

KernelDispatchReport analyze_dispatch(const Graph& g, std::string_view backend, const Claim& claim,
                                      const KernelDispatchConfig& config) {
  check_config(claim, config);
  return report_of(g, g, backend, claim, config);
}

std::pair<Graph, KernelDispatchReport> prepare_graph_for_backend_with_report(
    const Graph& g, std::string_view backend, const Claim& claim,
    const KernelDispatchConfig& config) {
  Graph out = rewrite_for_backend_with_config(g, claim, config);
  KernelDispatchReport report = report_of(g, out, backend, claim, config);
  return {std::move(out), std::move(report)};
}

std::string format_dispatch_report(const KernelDispatchReport& r) {
  std::string out =
      fmt::format("rlx dispatch report — backend \"{}\", policy {}, supported_ops claim={}\n",
                  r.backend_name, policy_name(r.policy), r.supported_claim_count);
  if (r.supported_claim_count == 0)
    out += "  (empty claim: everything is taken to run; advisory only)\n";
  const auto logical = [&](const std::string& kind) -> std::string {
    for (const KindDispatchSummary& s : r.summaries)
      if (s.kind == kind && !s.logical_name.empty()) return fmt::format(" ({})", s.logical_name);
    return {};
  };
  if (!r.common_lowered_kinds.empty())
    out += "  common-ir lowering (replaced by their definitions):\n";
  for (const std::string& kind : r.common_lowered_kinds)
    out += fmt::format("    - {}{}\n", kind, logical(kind));
  for (DispatchPath path : {DispatchPath::native, DispatchPath::common_ir, DispatchPath::rewritten,
                            DispatchPath::unsupported}) {
    std::string rows;
    for (const KindDispatchSummary& s : r.summaries)
      if (s.path == path)
        rows += fmt::format("    - {} ×{} nodes{}\n", s.kind, s.node_count,
                            s.logical_name.empty() ? "" : " logical=" + s.logical_name);
    if (!rows.empty()) out += fmt::format("  {}:\n{}", label(path), rows);
  }
  if (r.compile_ready) return out + "  compile-ready: yes\n";
  out += fmt::format("  still unsupported after rewrite ({} node(s)) — compile will fail:\n",
                     r.still_unsupported.size());
  for (const Offender& o : r.still_unsupported)
    out += fmt::format("    - node {}: {}\n", o.where, o.kind);
  return out + "  claim these ops, or rewrite the graph before\n";
}

std::string KernelDispatchReport::to_json() const {
  nlohmann::ordered_json j{{"backend", backend_name},
                           {"policy", policy_name(policy)},
                           {"supported_claim_count", supported_claim_count},
                           {"compile_ready", compile_ready},
                           {"common_lowered_kinds", common_lowered_kinds}};
  j["kinds"] = nlohmann::ordered_json::array();
  for (const KindDispatchSummary& s : summaries)
    j["kinds"].push_back({{"kind", s.kind},
                          {"nodes", s.node_count},
                          {"path", label(s.path)},
                          {"logical_name", s.logical_name}});
  j["still_unsupported"] = nlohmann::ordered_json::array();
  for (const Offender& o : still_unsupported)
    j["still_unsupported"].push_back({{"node", o.node.node}, {"where", o.where}, {"kind", o.kind}});
  return j.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

void maybe_log_dispatch_report(const KernelDispatchReport& report) {
  if (environment_flag("RLX_DISPATCH_REPORT") || environment_flag("RLX_VERBOSE"))
    fmt::print(stderr, "{}", format_dispatch_report(report));
}

}  // namespace rlx::opt
