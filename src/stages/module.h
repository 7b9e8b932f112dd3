// The stages of a program as values: HIR (blocks), MIR (a Graph), LIR (a Graph with its plan), and
// GraphModule, which holds any one of them.
//
//   GraphModule m = GraphModule::define("mlp", [](HirModule& h) {
//     const HirNodeId x = h.input("x", {DType::F32, {2, 8}}), w = h.param("w", {DType::F32, {8, 8}});
//     return h.linear(x, w);
//   });                                              // stage hir
//   m = std::move(m).lower();                        // stage mir; m->nodes is the graph's
//   Graph g = std::move(m).into_graph();
//
// Asking a module for what its stage does not have raises Error(user, "stage") with the stage it is at.
#pragma once

#include <variant>

#include "rlx/lower/target.h"
#include "rlx/stages/hir.h"

namespace rlx {

// A graph at the stage of tensor ops.
class MirModule {
 public:
  explicit MirModule(std::string module_name) { graph_.name = std::move(module_name); }
  MirModule(Graph g) : graph_(std::move(g)) {}  // NOLINT: implicit by design
  static MirModule from_graph(Graph g) { return {std::move(g)}; }
  operator Graph() const { return graph_; }  // NOLINT: implicit by design

  Graph into_graph() && { return std::move(graph_); }
  Graph into_graph() const& { return graph_; }
  const Graph& as_graph() const { return graph_; }
  Graph& as_graph_mut() { return graph_; }
  const std::string& name() const { return graph_.name; }
  size_t len() const { return graph_.nodes.size(); }
  bool is_empty() const { return graph_.nodes.empty(); }
  const Values& outputs() const { return graph_.outputs; }
  void set_outputs(Values outputs);  // raises "operand-value"
  std::string to_string() const;     // "mir @" and the graph's text
  bool operator==(const MirModule&) const = default;

 private:
  Graph graph_;
};

struct LirIoManifest {
  std::vector<std::pair<std::string, NodeId>> inputs, params;
  Values outputs;
  static LirIoManifest collect(const Graph& g);
};

// What a step of a streaming run belongs to: leaves are loaded, the body repeats, sampling and what
// follows the last product ends it.
enum class Phase : uint8_t { prologue, steady_state, epilogue };
std::string_view name(Phase phase);                // "Prologue", "SteadyState", "Epilogue"
std::vector<Phase> derive_phases(const Graph& g);  // one per node

// A graph with its kernels and memory plan, made by plan_lir. A module with symbols has no plan until
// they are bound (specialize_lir).
class LirModule {
 public:
  explicit LirModule(MirModule m, std::shared_ptr<const Program> p = nullptr)
      : mir_(std::move(m)), plan_(std::move(p)) {}

  const MirModule& mir() const { return mir_; }
  MirModule& mir_mut() { return plan_.reset(), mir_; }  // the plan would be that of another graph
  MirModule into_mir() && { return std::move(mir_); }
  const std::string& name() const { return mir_.name(); }
  bool has_plan() const { return plan_ != nullptr; }
  const Program& plan() const;  // raises "no-plan"
  std::shared_ptr<const Program> shared_plan() const { return plan_; }
  int64_t arena_size() const { return plan().arena_bytes; }
  // Of the arena: what its buffers would take without sharing, and what sharing saved.
  int64_t total_unshared_bytes() const { return plan().unshared_bytes; }
  int64_t bytes_saved() const {
    return std::max<int64_t>(0, total_unshared_bytes() - arena_size());
  }
  uint64_t fingerprint() const;  // of the graph with all attributes, and of the plan
  Graph into_graph() const { return mir_.into_graph(); }
  const Graph& as_graph() const { return mir_.as_graph(); }
  std::vector<std::string> dynamic_symbols() const { return as_graph().symbols(); }
  bool has_dynamic_dims() const { return !dynamic_symbols().empty(); }
  bool is_fully_static() const { return !has_dynamic_dims(); }

 private:
  MirModule mir_;
  std::shared_ptr<const Program> plan_;
};

// Kernels and memory for a graph that the target accepts as it stands (passes/ make it so).
LirModule plan_lir(const MirModule& mir, Target& target);
LirModule specialize_lir(const LirModule& lir, const DimBinding& binding, Target& target);

enum class GraphStage : uint8_t { hir, mir, lir };
std::string_view name(GraphStage stage);  // "HIR", "MIR", "LIR"

class GraphModule final : public HirBlocks {
 public:
  GraphModule(HirModule m) : stage_(std::move(m)) {}  // NOLINT: implicit by design
  GraphModule(MirModule m) : stage_(std::move(m)) {}  // NOLINT: implicit by design
  GraphModule(LirModule m) : stage_(std::move(m)) {}  // NOLINT: implicit by design
  GraphModule(Graph g);  // NOLINT: implicit by design; HIR where it has blocks, else MIR
  // The output is what `build` returns.
  static GraphModule define(std::string name, FunctionRef<HirNodeId(HirModule&)> build);
  static GraphModule hir(std::string name) { return HirModule(std::move(name)); }
  static GraphModule mir(std::string name) { return MirModule(std::move(name)); }
  static GraphModule from_hir(HirModule m) { return m; }
  static GraphModule from_mir(MirModule m) { return m; }
  static GraphModule from_lir(LirModule m) { return m; }
  static GraphModule from_graph(Graph g) { return g; }
  static HirNodeId block(HirModule& m, const std::string& name,
                         FunctionRef<HirNodeId(HirModule&)> build) {
    return m.named(name, build);
  }

  GraphStage stage() const { return static_cast<GraphStage>(stage_.index()); }
  const std::string& name() const;
  size_t len() const;
  std::string inspect() const;
  std::string to_string() const;

  std::optional<FusionPolicy> fusion_policy() const;
  GraphModule& with_fusion_policy(FusionPolicy policy);  // HIR
  void set_outputs(const HirModule::Ids& ids);           // MIR, LIR: the same numbers are node ids
  void set_hir_outputs(const HirModule::Ids& ids) { set_outputs(ids); }
  GraphModule finish_hir(HirNodeId output) &&;
  // Leaves at any stage. At LIR the plan is dropped: it no longer fits.
  HirNodeId input(const std::string& leaf_name, const Type& shape);
  HirNodeId param(const std::string& leaf_name, const Type& shape);

  // HIR: what the block builders call.
  HirNodeId push(const HirOp& op, const HirModule::Ids& inputs,
                 const Declared& declared = {}) override {
    return hir_mut().push(op, inputs, declared);
  }
  HirNodeId hir_mir(const AnyOp& op, const HirModule::Ids& inputs, const Declared& shape = {}) {
    return push(op, inputs, shape);
  }
  HirNodeId named(const std::string& node_name, FunctionRef<HirNodeId(HirModule&)> build) {
    return hir_mut().named(node_name, build);
  }

  GraphModule lower() &&;  // HIR to MIR; the others stay
  std::optional<HirModule> into_hir() &&;
  MirModule into_mir() &&;
  std::optional<LirModule> into_lir() &&;
  Graph into_graph() && { return std::move(*this).into_mir().into_graph(); }
  explicit operator Graph() const;  // lowers if need be
  const HirModule* as_hir() const { return std::get_if<HirModule>(&stage_); }
  HirModule* as_hir_mut() { return std::get_if<HirModule>(&stage_); }
  const MirModule* as_mir() const;  // of LIR: the graph inside
  const LirModule* as_lir() const { return std::get_if<LirModule>(&stage_); }
  const Graph* as_graph() const { return as_mir() ? &as_mir()->as_graph() : nullptr; }
  const Graph* operator->() const;  // the graph of MIR and LIR; raises "stage" at HIR
  // The same for writing. At LIR the plan is dropped: what is written may not fit it.
  MirModule* as_mir_mut();
  Graph* as_graph_mut() { return as_mir_mut() ? &as_mir_mut()->as_graph_mut() : nullptr; }

 private:
  HirModule& hir_mut();
  HirNodeId leaf(const Op<LeafAttrs>& op, const std::string& leaf_name, const Type& shape);

  std::variant<HirModule, MirModule, LirModule> stage_;
};

Graph hir_to_graph(const HirModule& hir);

}  // namespace rlx
