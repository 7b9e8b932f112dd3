#include "rlx/stages/module.h"

#include <algorithm>

#include "rlx/base/hash.h"
#include "rlx/lower/lower.h"
#include "rlx/ops/table.h"
#include "rlx/stages/inspect.h"

namespace rlx {

void MirModule::set_outputs(Values outputs) {
  GraphBuilder g(std::move(graph_));
  // The graph comes back whatever happens.
  const auto restore = [&] { graph_ = std::move(g.builder().mutable_graph()); };
  try {
    g.set_outputs(std::move(outputs));
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

std::string MirModule::to_string() const { return "mir @" + print(graph_); }

// ---- LIR

LirIoManifest LirIoManifest::collect(const Graph& g) {
  LirIoManifest out;
  for (Value v : g.inputs()) out.inputs.emplace_back(g.node(v).get<LeafAttrs>().name, v);
  for (Value v : g.params()) out.params.emplace_back(g.node(v).get<LeafAttrs>().name, v);
  out.outputs = g.outputs;
  return out;
}

std::string_view name(Phase phase) {
  static constexpr std::string_view names[] = {"Prologue", "SteadyState", "Epilogue"};
  return names[static_cast<size_t>(phase)];
}

std::vector<Phase> derive_phases(const Graph& g) {
  int32_t last_product = -1, last_token = -1;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Role role = g.node(i).op->role;
    if (role == Role::product) last_product = i;
    if (role == Role::token) last_token = i;
  }
  std::vector<Phase> out;
  for (int32_t i = 0; i < g.size(); ++i) {
    const OpDef& op = *g.node(i).op;
    const bool ends =
        (last_product >= 0 && i > last_product) || (last_token >= 0 && i > last_token);
    out.push_back(op.kind == Kind::leaf            ? Phase::prologue
                  : op.role == Role::token || ends ? Phase::epilogue
                                                   : Phase::steady_state);
  }
  return out;
}

const Program& LirModule::plan() const {
  user_check(has_plan(), "no-plan", "\"{}\" has no plan: {}", name(),
             has_dynamic_dims() ? "its symbols are not bound" : "it was changed after planning");
  return *plan_;
}

uint64_t LirModule::fingerprint() const {
  uint64_t h = as_graph().hash();
  if (!has_plan()) return h;
  h = mix(h, static_cast<uint64_t>(plan_->arena_bytes));
  for (const Buffer& b : plan_->buffers)
    h = mix(mix(h, static_cast<uint64_t>(b.place)), static_cast<uint64_t>(b.offset));
  return mix(h, plan_->steps.size());
}

LirModule plan_lir(const MirModule& mir, Target& target) {
  if (has_symbols(mir.as_graph())) return LirModule(mir);
  return LirModule(mir, std::make_shared<Program>(make_program(mir.as_graph(), target)));
}

LirModule specialize_lir(const LirModule& lir, const DimBinding& binding, Target& target) {
  return plan_lir(bind(lir.as_graph(), binding), target);
}

// ---- GraphModule

std::string_view name(GraphStage stage) {
  static constexpr std::string_view names[] = {"HIR", "MIR", "LIR"};
  return names[static_cast<size_t>(stage)];
}

GraphModule::GraphModule(Graph g) : stage_(MirModule(std::string())) {
  if (has_blocks(g))
    stage_ = HirModule::from_graph(std::move(g));
  else
    stage_ = MirModule(std::move(g));
}

GraphModule GraphModule::define(std::string name, FunctionRef<HirNodeId(HirModule&)> build) {
  HirModule m(std::move(name));
  m.set_outputs({build(m)});
  return m;
}

const std::string& GraphModule::name() const {
  return as_hir() ? as_hir()->name() : as_mir()->name();
}
size_t GraphModule::len() const { return as_hir() ? as_hir()->len() : as_mir()->len(); }

std::string GraphModule::inspect() const {
  if (as_hir()) return inspect_hir(*as_hir());
  return as_lir() ? inspect_lir(*as_lir()) : inspect_mir(*as_mir());
}

std::string GraphModule::to_string() const {
  if (as_hir()) return as_hir()->to_string();
  return as_lir() ? "lir @" + name() : as_mir()->to_string();
}

HirModule& GraphModule::hir_mut() {
  user_check(stage() == GraphStage::hir, "stage",
             "\"{}\" is at stage {}; blocks are built at stage HIR", name(), rlx::name(stage()));
  return std::get<HirModule>(stage_);
}

std::optional<FusionPolicy> GraphModule::fusion_policy() const {
  return as_hir() ? std::optional(as_hir()->fusion_policy) : std::nullopt;
}

GraphModule& GraphModule::with_fusion_policy(FusionPolicy policy) {
  hir_mut().with_fusion_policy(policy);
  return *this;
}

void GraphModule::set_outputs(const HirModule::Ids& ids) {
  if (as_hir()) return hir_mut().set_outputs(ids);
  Values values;
  for (HirNodeId id : ids) values.push_back({id.index, id.result});
  if (auto* lir = std::get_if<LirModule>(&stage_)) {
    lir->mir_mut().set_outputs(std::move(values));
  } else {
    std::get<MirModule>(stage_).set_outputs(std::move(values));
  }
}

GraphModule GraphModule::finish_hir(HirNodeId output) && {
  set_outputs({output});
  return std::move(*this);
}

HirNodeId GraphModule::leaf(const Op<LeafAttrs>& op, const std::string& leaf_name,
                            const Type& shape) {
  GraphBuilder g(*as_graph());
  const NodeId id = g.add_node({op, {leaf_name, shape.dtype, shape.shape}}, {});
  MirModule changed(std::move(g.builder().mutable_graph()));
  if (as_lir())
    stage_ = LirModule(std::move(changed));
  else
    stage_ = std::move(changed);
  return {id.node};
}

HirNodeId GraphModule::input(const std::string& leaf_name, const Type& shape) {
  return as_hir() ? hir_mut().input(leaf_name, shape) : leaf(op::input, leaf_name, shape);
}
HirNodeId GraphModule::param(const std::string& leaf_name, const Type& shape) {
  return as_hir() ? hir_mut().param(leaf_name, shape) : leaf(op::param, leaf_name, shape);
}

GraphModule GraphModule::lower() && {
  if (as_hir()) return as_hir()->lower_to_mir();
  return std::move(*this);
}

std::optional<HirModule> GraphModule::into_hir() && {
  if (!as_hir()) return std::nullopt;
  return std::move(std::get<HirModule>(stage_));
}

MirModule GraphModule::into_mir() && {
  if (as_hir()) return as_hir()->lower_to_mir();
  if (as_lir()) return std::move(std::get<LirModule>(stage_)).into_mir();
  return std::move(std::get<MirModule>(stage_));
}

std::optional<LirModule> GraphModule::into_lir() && {
  if (!as_lir()) return std::nullopt;
  return std::move(std::get<LirModule>(stage_));
}

GraphModule::operator Graph() const {
  GraphModule copy = *this;
  return std::move(copy).into_graph();
}

const MirModule* GraphModule::as_mir() const {
  return as_lir() ? &as_lir()->mir() : std::get_if<MirModule>(&stage_);
}

const Graph* GraphModule::operator->() const {
  user_check(stage() != GraphStage::hir, "stage", "\"{}\" is at stage HIR; lower it first", name());
  return as_graph();
}

MirModule* GraphModule::as_mir_mut() {
  if (auto* lir = std::get_if<LirModule>(&stage_)) {
    return &lir->mir_mut();
  }
  return std::get_if<MirModule>(&stage_);
}

Graph hir_to_graph(const HirModule& hir) { return hir.lower_to_mir().into_graph(); }

}  // namespace rlx
