// Legalisation and dispatch: what a backend that claims a list of ops makes of a program, and what is left over.
//
//   opt::LegalizeResult bad = opt::legalize_for_backend(g, claim);         // empty: it takes all
//   auto [h, report] = opt::prepare_graph_for_backend_with_report(g, "npu", claim, {});
//   opt::format_dispatch_report(report);                                   // for people
//   report.to_json();                                                      // for programs
//
// A claim is as fusion.h says. What is not claimed is rewritten by its definition: composites become their parts, regions
// their nodes, cond and bounded while selections. What has none is left over and listed, all of it at once.
// Raises Error(user, "claim-op") for names that are none, in claims and in overrides.
#pragma once

#include "rlx/opt/fusion.h"

namespace rlx::opt {

struct Offender {
  Value node;         // of the graph; for a node inside a body, the one that has the body
  std::string kind;   // the op's name
  std::string where;  // in bodies: "%3.body/%1"; else "%1"
  bool operator==(const Offender&) const = default;
};
using LegalizeResult = std::vector<Offender>;  // in order; empty: the graph is legal

LegalizeResult legalize_for_backend(const Graph& g, const Claim& claim);
std::string format_legalize_error(std::string_view backend, const LegalizeResult& errors);
// Raises Error(unsupported, "legalise") with that text where something is left.
void require_legal(std::string_view backend, const LegalizeResult& errors);

enum class KernelDispatchPolicy : uint8_t {
  prefer_native,  // a kernel where it is claimed, else the definition
  force_common,   // every composite becomes its definition
  force_native,   // none does, claimed or not
};
inline std::span<const std::string_view> enum_names(KernelDispatchPolicy) {
  static constexpr std::string_view names[] = {"PreferNative", "ForceCommon", "ForceNative"};
  return names;
}
// The variable RLX_KERNEL_DISPATCH: common, force_common, ForceCommon, native, force_native, ForceNative; else prefer_native.
KernelDispatchPolicy kernel_dispatch_policy_from_env();

// The policy, and ops for which it is another, by name or kind; force_native goes first.
struct KernelDispatchConfig {
  KernelDispatchPolicy policy = KernelDispatchPolicy::prefer_native;
  Claim force_common_kinds = {}, force_native_kinds = {};
  static KernelDispatchConfig from_env() { return {kernel_dispatch_policy_from_env(), {}, {}}; }
};
// Whether a composite is replaced by its definition.
bool should_lower_to_common(const OpDef& op, const Claim& claim,
                            const KernelDispatchConfig& config);

Graph rewrite_for_backend_with_config(const Graph& g, const Claim& claim,
                                      const KernelDispatchConfig& config);
inline Graph rewrite_for_backend_with_dispatch(const Graph& g, const Claim& claim,
                                               KernelDispatchPolicy policy) {
  return rewrite_for_backend_with_config(g, claim, {policy, {}, {}});
}
inline Graph rewrite_for_backend(const Graph& g, const Claim& claim) {
  return rewrite_for_backend_with_config(g, claim, {});
}

// The rewritten graph, and what is left over.
struct Legalized {
  Graph graph;
  LegalizeResult errors;
};
Legalized legalize_or_rewrite_for_backend_with_config(const Graph& g, const Claim& claim,
                                                      const KernelDispatchConfig& config);
inline Legalized legalize_or_rewrite_for_backend_with_dispatch(const Graph& g, const Claim& claim,
                                                               KernelDispatchPolicy policy) {
  return legalize_or_rewrite_for_backend_with_config(g, claim, {policy, {}, {}});
}
inline Legalized legalize_or_rewrite_for_backend(const Graph& g, const Claim& claim) {
  return legalize_or_rewrite_for_backend_with_config(g, claim, {});
}

// ---- reports

enum class DispatchPath : uint8_t { native, common_ir, rewritten, unsupported };
inline std::span<const std::string_view> enum_names(DispatchPath) {
  static constexpr std::string_view names[] = {"native", "common-ir", "rewritten", "unsupported"};
  return names;
}
std::string_view label(DispatchPath path);

struct KindDispatchSummary {
  std::string kind;  // the op's name
  int node_count = 0;
  DispatchPath path = DispatchPath::native;
  std::string logical_name;  // the documents' name for it, where it differs; else ""
};
struct KernelDispatchReport {
  std::string backend_name;
  KernelDispatchPolicy policy = KernelDispatchPolicy::prefer_native;
  int supported_claim_count = 0;
  std::vector<KindDispatchSummary> summaries;  // by name
  std::vector<std::string> common_lowered_kinds;
  LegalizeResult still_unsupported;
  bool compile_ready = true;
  std::string to_json() const;
};

// As the graph stands: nothing is rewritten, so what is not claimed is unsupported.
KernelDispatchReport analyze_dispatch(const Graph& g, std::string_view backend, const Claim& claim,
                                      const KernelDispatchConfig& config = {});
// Rewritten, and what became of each op of the graph as it was given.
std::pair<Graph, KernelDispatchReport> prepare_graph_for_backend_with_report(
    const Graph& g, std::string_view backend, const Claim& claim,
    const KernelDispatchConfig& config = {});
std::string format_dispatch_report(const KernelDispatchReport& report);
// On standard error where the variable RLX_DISPATCH_REPORT or RLX_VERBOSE is on.
void maybe_log_dispatch_report(const KernelDispatchReport& report);

}  // namespace rlx::opt
