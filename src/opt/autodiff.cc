#include "rlx/opt/autodiff.h"

#include <numeric>

#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/support.h"
#include "rlx/opt/environment.h"
#include "rlx/transform/walk.h"

namespace rlx::opt {

Value Wrt::in(const Graph& g) const {
  if (const auto* leaf = std::get_if<std::string>(&is_)) return find_leaves(g, {*leaf}, "grad")[0];
  const Value v = std::get<Value>(is_);
  user_check(v.node >= 0 && v.node < g.size() && v.index >= 0 &&
                 static_cast<size_t>(v.index) < g.node(v).out.size(),
             "operand-value", "grad: graph \"{}\" has no value {}", g.name, v);
  return v;
}

std::string Wrt::leaf_of(const Graph& g) const {
  const Node& n = g.node(in(g));
  user_check(n.op == &op::input || n.op == &op::param, "not-leaf",
             "jvp: {} is no input and no parameter", describe(g, in(g)));
  return n.get<LeafAttrs>().name;
}

std::optional<AutodiffError> autodiff_error(const Error& e) {
  static const std::map<std::string_view, AutodiffError> meaning{
      {"autodiff-stage", AutodiffError::wrong_stage},
      {"declared-shape", AutodiffError::lower},
      {"wrong-input-count", AutodiffError::lower},
      {"no-rule", AutodiffError::no_rule},
      {"no-gradient", AutodiffError::no_gradient},
      {"not-leaf", AutodiffError::not_a_leaf},
      {"no-leaf", AutodiffError::no_such_leaf},
      {"output-index", AutodiffError::output_count},
      {"output-count", AutodiffError::output_count},
      {"while-unbounded", AutodiffError::unbounded_while},
      {"body-inputs", AutodiffError::body_contract},
      {"body-outputs", AutodiffError::body_contract},
      {"custom-fn", AutodiffError::body_contract},
      {"wrt-dtype", AutodiffError::unsupported_dtype},
      {"loss-type", AutodiffError::unsupported_dtype},
      {"custom-unknown", AutodiffError::unregistered},
      {"custom-rule", AutodiffError::unregistered},
  };
  const auto at = meaning.find(e.code());
  return at == meaning.end() ? std::nullopt : std::optional(at->second);
}

namespace {

Values values_of(const Graph& g, const Wrts& wrt) {
  Values out;
  for (const Wrt& w : wrt) out.push_back(w.in(g));
  return out;
}

std::vector<std::string> leaves_of(const Graph& g, const Wrts& wrt) {
  std::vector<std::string> out;
  for (const Wrt& w : wrt) out.push_back(w.leaf_of(g));
  return out;
}

Graph graph_of(const GraphModule& module) {
  user_check(module.stage() != GraphStage::lir, "autodiff-stage",
             "autodiff: cannot run on {} stage — use the graph inside (into_graph), or build it "
             "again",
             name(module.stage()));
  if (const HirModule* hir = module.as_hir())
    return unfuse_fused_for_autodiff(hir->lower_for_autodiff().into_graph());
  return *module.as_graph();
}

// The gradients as values of b, which holds forward.
Values gradients_of(Builder& b, const Graph& forward, const Values& wrt, bool zero_missing) {
  user_check(!forward.outputs.empty(), "output-index", "grad: graph \"{}\" has no output",
             forward.name);
  Value loss = forward.outputs[0];
  const Type& type = forward.type(loss);
  if (type.rank() > 0 && kFloats.has(type.dtype)) {
    const Value weights = b.input(free_name(b, "d_output"), type);
    Ints axes(static_cast<size_t>(type.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    loss = sum_axes(b, op::mul(b, loss, weights), axes);
  }
  return gradients(b, loss, wrt, {.zero_missing = zero_missing});
}

Graph gradient_graph(const Graph& forward, const Wrts& wrt, bool zero_missing, bool keep_values) {
  return within_memory([&] {
    Builder b = builder_of(forward, "_grad");
    const Values found = gradients_of(b, forward, values_of(forward, wrt), zero_missing);
    if (keep_values)
      for (Value v : forward.outputs) b.output(v);
    for (Value v : found) b.output(v);
    return drop_dead(b.finish(), true);
  });
}

// In bodies too.
Graph expand_ops(Graph g, std::string_view pass, FunctionRef<bool(const Node&)> expands) {
  for (Node& n : g.nodes)
    if (!bodies(n.attrs).empty())
      n.attrs = map_bodies(
          n.attrs, [&](const Body& body) { return Body(expand_ops(*body, pass, expands)); });
  return decompose_composites(std::move(g), pass,
                              [&](const Node& n, const Graph&) { return !expands(n); });
}

bool is_backward(const OpDef& op) {
  const std::vector<std::string> names = reference_names(op);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& n) { return n.find("Backward") != n.npos; });
}

Graph ones_for_cotangent(const Graph& g) {
  const Value leaf = g.find_leaf("d_output");
  if (!leaf.valid() || g.node(leaf).op != &op::input) return g;
  return rebuild(g, [&](Builder& b, int32_t i, Operands in) -> Values {
    return i == leaf.node ? Values{full(b, g.type(leaf), 1)} : b.clone(g.node(i), in);
  });
}

// What a pass makes of g, with every leaf kept: also those that a derivative does not depend on.
Graph with_all_leaves(Graph g, FunctionRef<Graph(Graph)> pass) {
  const size_t outputs = g.outputs.size();
  for (int32_t i = 0; i < g.size(); ++i)
    if (g.node(i).op == &op::param) g.outputs.push_back({i, 0});
  Graph out = pass(std::move(g));
  out.outputs.resize(outputs);
  return out;
}

void check_one_output(const Graph& g, std::string_view what) {
  user_check(g.outputs.size() == 1, "output-count", "{}: graph \"{}\" has {} outputs, not one",
             what, g.name, g.outputs.size());
}

}  // namespace

Graph grad_with_loss_opts(const Graph& forward, const Wrts& wrt, GradWithLossOptions options) {
  return gradient_graph(forward, wrt, options.zero_missing_wrt, true);
}
Graph grad(const Graph& forward, const Wrts& wrt) {
  return gradient_graph(forward, wrt, false, false);
}
Graph grad_with_loss_module(const GraphModule& module, const Wrts& wrt) {
  return grad_with_loss(graph_of(module), wrt);
}

Graph jvp(const Graph& forward, const Wrts& tangent_for) {
  return rlx::jvp(forward, leaves_of(forward, tangent_for));
}
Graph jvp_module(const GraphModule& module, const Wrts& tangent_for) {
  return opt::jvp(graph_of(module), tangent_for);
}
Graph hvp(const Graph& forward, const Wrts& wrt) {
  return rlx::hvp(forward, leaves_of(forward, wrt));
}
Graph hvp_module(const GraphModule& module, const Wrts& wrt) {
  return opt::hvp(graph_of(module), wrt);
}
Graph vmap(const Graph& forward, const std::vector<std::string>& batched_inputs,
           const Dim& batch_size) {
  std::map<std::string, int64_t> axes;
  for (const std::string& name : batched_inputs) axes.emplace(name, 0);
  return rlx::vmap(forward, axes, batch_size);
}

HigherOrderOptions HigherOrderOptions::make() {
  return {!environment_flag("RLX_HIGHER_ORDER_NO_FUSE")};
}

Graph nth_order_grad_with_options(const Graph& forward, const std::string& wrt, int order,
                                  HigherOrderOptions options) {
  check_one_output(forward, "nth_order_grad");
  Graph g = rlx::nth_order_grad(forward, wrt, order);
  if (order == 0) return g;
  return with_all_leaves(std::move(g), [&](Graph whole) {
    whole = run_pass(std::move(whole), rlx::pass::cse);
    return options.fuse_elementwise ? fuse_elementwise(std::move(whole)) : whole;
  });
}
Graph nth_order_grad(const Graph& forward, const std::string& wrt, int order) {
  return nth_order_grad_with_options(forward, wrt, order, {});
}
Graph nth_order_grad_module(const GraphModule& module, const std::string& wrt, int order) {
  return opt::nth_order_grad(graph_of(module), wrt, order);
}
Graph directional_nth_grad(const Graph& forward, const std::string& wrt,
                           const std::vector<std::string>& directions) {
  check_one_output(forward, "directional_nth_grad");
  return rlx::directional_nth_grad(forward, wrt, directions);
}

Graph inline_custom_fn_for_autodiff(Graph g) {
  return expand_ops(std::move(g), "inline_custom_fn", [](const Node& n) {
    if (n.op != &op::custom_fn) return false;
    const auto& c = n.get<CustomFnAttrs>();
    return c.vjp->outputs.empty() && c.jvp->outputs.empty();
  });
}

Graph convert_scans_for_ad(Graph g) {
  return expand_ops(std::move(g), "convert_scans", [](const Node& n) {
    return n.op == &op::scan_checkpointed || n.op == &op::scan_backward ||
           n.op == &op::scan_backward_xs;
  });
}

Graph prepare_graph_for_ad(Graph g) {
  g = unfuse_fused_for_autodiff(std::move(g));
  g = LowerDotGeneral().run(std::move(g));
  g = unroll_while(inline_if(g), true);
  return convert_scans_for_ad(inline_custom_fn_for_autodiff(std::move(g)));
}
MirModule prepare_mir_for_ad(const MirModule& mir) { return prepare_graph_for_ad(mir.as_graph()); }
GraphModule prepare_module_for_ad(const GraphModule& module) {
  return MirModule(prepare_graph_for_ad(graph_of(module)));
}

Graph prepare_grad_graph_for_jvp(Graph g) {
  return ones_for_cotangent(expand_ops(std::move(g), "decompose_backward",
                                       [](const Node& n) { return is_backward(*n.op); }));
}

Graph decompose_backward_for_ad(Graph g, size_t wrt_index) {
  user_check(!g.outputs.empty() && wrt_index < g.outputs.size() - 1, "output-index",
             "decompose_backward_for_ad: graph \"{}\" has {} outputs, no gradient {}", g.name,
             g.outputs.size(), wrt_index);
  g.outputs = {g.outputs[wrt_index + 1]};
  return prepare_grad_graph_for_jvp(drop_dead(std::move(g), true));
}

Graph grad_subgraph(const Graph& forward, const Wrts& wrt) {
  return prepare_grad_graph_for_jvp(grad_with_loss(forward, wrt));
}
Graph grad_subgraph_for_jvp(const Graph& forward, const Wrts& wrt) {
  return grad_subgraph(forward, wrt);
}

}  // namespace rlx::opt
