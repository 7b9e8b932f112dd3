// Derivatives under the names of the optimizer's documents, over transform/.
//
//   Graph g = opt::grad_with_loss(f, {"w", "b"});      // [loss, aux.., dw, db]
//   Graph h = opt::hvp(f, {"w"});                      // [loss, dw, <dw, v>, H v], v is "tangent_w"
//   Graph k = opt::grad_with_loss_module(module, {"w"});
//
// What is differentiated by is a leaf, by its name, or a value of the graph. A loss that is no scalar is weighed by the
// input "d_output", of its type; a scalar has none. Nothing needs to be prepared: the prepare_* functions give graphs in the
// form that their documents state, for those who walk over them.
#pragma once

#include <variant>

#include "rlx/opt/passes.h"
#include "rlx/stages/module.h"
#include "rlx/train/force_energy.h"
#include "rlx/transform/transform.h"

namespace rlx::opt {

class Wrt {
 public:
  Wrt(const char* leaf) : is_(std::string(leaf)) {}  // NOLINT: implicit by design
  Wrt(std::string leaf) : is_(std::move(leaf)) {}    // NOLINT: implicit by design
  Wrt(Value v) : is_(v) {}                           // NOLINT: implicit by design
  Value in(const Graph& g) const;                    // raises "no-leaf", "operand-value"
  std::string leaf_of(const Graph& g) const;         // raises "not-leaf" too

 private:
  std::variant<std::string, Value> is_;
};
using Wrts = std::vector<Wrt>;

// Why a derivative was refused: what an Error of this folder and of transform/ means in the documents' words.
enum class AutodiffError : uint8_t {
  wrong_stage,
  lower,
  no_rule,
  no_gradient,
  not_a_leaf,
  no_such_leaf,
  output_count,
  unbounded_while,
  body_contract,
  unsupported_dtype,
  unregistered,
};
inline std::span<const std::string_view> enum_names(AutodiffError) {
  static constexpr std::string_view names[] = {"WrongStage",       "Lower",          "NoRule",
                                               "NoGradient",       "NotALeaf",       "NoSuchLeaf",
                                               "OutputCount",      "UnboundedWhile", "BodyContract",
                                               "UnsupportedDtype", "Unregistered"};
  return names;
}
std::optional<AutodiffError> autodiff_error(const Error& e);

// ---- reverse mode

struct GradWithLossOptions {
  bool zero_missing_wrt = false;  // zeros, instead of an error, where no gradient arrives
  static constexpr GradWithLossOptions strict() { return {false}; }
  static constexpr GradWithLossOptions training() { return {true}; }
};
// Outputs: those of forward, the first of which is the loss, then the gradients.
Graph grad_with_loss_opts(const Graph& forward, const Wrts& wrt, GradWithLossOptions options);
inline Graph grad_with_loss(const Graph& forward, const Wrts& wrt) {
  return grad_with_loss_opts(forward, wrt, {});
}
Graph grad(const Graph& forward, const Wrts& wrt);  // the gradients alone
// Modules at HIR or MIR; at LIR Error(user, "autodiff-stage").
Graph grad_with_loss_module(const GraphModule& module, const Wrts& wrt);

// ---- forward mode, and both

Graph jvp(const Graph& forward, const Wrts& tangent_for);
Graph jvp_module(const GraphModule& module, const Wrts& tangent_for);
Graph hvp(const Graph& forward, const Wrts& wrt);
Graph hvp_module(const GraphModule& module, const Wrts& wrt);
// Inputs and parameters of these names gain an axis of batch_size in front.
Graph vmap(const Graph& forward, const std::vector<std::string>& batched_inputs,
           const Dim& batch_size);

// ---- higher orders

struct HigherOrderOptions {
  bool fuse_elementwise = false;
  static HigherOrderOptions make();  // true unless the variable RLX_HIGHER_ORDER_NO_FUSE is on
};
// The order-th derivative by a scalar leaf. Raises "output-count" unless there is one output.
Graph nth_order_grad_with_options(const Graph& forward, const std::string& wrt, int order,
                                  HigherOrderOptions options);
Graph nth_order_grad(const Graph& forward, const std::string& wrt, int order);
Graph nth_order_grad_module(const GraphModule& module, const std::string& wrt, int order);
Graph directional_nth_grad(const Graph& forward, const std::string& wrt,
                           const std::vector<std::string>& directions);
using rlx::build_force_energy_loss;
using rlx::ForceEnergyLossWeights;
using rlx::quantized_weight_bits;

// ---- graphs in a simpler form

// Without fused ops and regions, dot_general, cond, while with a bound, functions without derivatives of their own, and
// scans that are made of others.
Graph prepare_graph_for_ad(Graph g);
MirModule prepare_mir_for_ad(const MirModule& mir);
GraphModule prepare_module_for_ad(const GraphModule& module);  // at MIR
struct PrepareForAutodiff : Pass {
  std::string_view name() const override { return "prepare_for_autodiff"; }
  Graph run(Graph g) const override { return prepare_graph_for_ad(std::move(g)); }
};
// Functions that state neither derivative become their bodies.
Graph inline_custom_fn_for_autodiff(Graph g);
// Checkpointed scans and sweeps of scans become scans.
Graph convert_scans_for_ad(Graph g);
// Ops that the documents call backward become their definitions, and an input "d_output" ones.
Graph prepare_grad_graph_for_jvp(Graph g);
// The same of what grad_with_loss made, with the one gradient as its output. Raises "output-index".
Graph decompose_backward_for_ad(Graph g, size_t wrt_index);
// grad_with_loss in that form: [energy, gradients..].
Graph grad_subgraph(const Graph& forward, const Wrts& wrt);
Graph grad_subgraph_for_jvp(const Graph& forward, const Wrts& wrt);

struct MirAutodiffExt {
  static MirModule prepare_for_autodiff(const MirModule& mir) { return prepare_mir_for_ad(mir); }
  static Graph grad_with_loss(const MirModule& mir, const Wrts& wrt) {
    return opt::grad_with_loss(mir.as_graph(), wrt);
  }
};

}  // namespace rlx::opt
