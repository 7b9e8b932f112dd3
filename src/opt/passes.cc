#include "rlx/opt/passes.h"

#include "rlx/compile/options.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/nn/experts.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/opt/environment.h"
#include "rlx/opt/fusion_report.h"

namespace rlx::opt {

Graph TablePass::run(Graph g) const {
  return rlx::run_passes(std::move(g), {PassUse(pass_, arguments_)},
                         {.verify = false, .fast_math = fast_math_});
}

std::string TablePass::text() const { return to_string(Pipeline{PassUse(pass_, arguments_)}); }

namespace {

template <class P>
NamedPass as_row(std::string_view cls) {
  return {cls, std::make_shared<const P>()};
}

}  // namespace

std::vector<NamedPass> named_passes() {
  return {
      as_row<ConstantFolding>("ConstantFolding"),
      as_row<DeadCodeElimination>("DeadCodeElimination"),
      as_row<AlgebraicSimplify>("AlgebraicSimplify"),
      as_row<LegalizeBroadcast>("LegalizeBroadcast"),
      as_row<LowerControlFlow>("LowerControlFlow"),
      as_row<LowerDotGeneral>("LowerDotGeneral"),
      as_row<FuseMatMulBiasAct>("FuseMatMulBiasAct"),
      as_row<FuseResidualLN>("FuseResidualLN"),
      as_row<FuseResidualRmsNorm>("FuseResidualRmsNorm"),
      as_row<FuseRmsNormReshape>("FuseRmsNormReshape"),
      as_row<FuseSwiGLUDualMatmul>("FuseSwiGLUDualMatmul"),
      as_row<FuseSharedInputMatMul>("FuseSharedInputMatMul"),
      as_row<FuseSwiGLU>("FuseSwiGLU"),
      as_row<FuseAttentionBlock>("FuseAttentionBlock"),
      as_row<FuseTransformerLayer>("FuseTransformerLayer"),
      as_row<UnfuseElementwiseRegions>("UnfuseElementwiseRegions"),
  };
}

Graph run_passes(Graph g, const Passes& passes, bool verbose) {
  const bool report = environment_flag("RLX_FUSION_REPORT");
  const Graph before = report ? g : Graph();
  for (const PassPtr& pass : passes) {
    if (verbose) fmt::print(stderr, "--- before {} ---\n{}\n", pass->name(), print(g));
    g = pass->run(std::move(g));
    if (CompileOptions::verify_by_default()) verify(g, pass->name());
  }
  if (verbose) fmt::print(stderr, "--- final ---\n{}\n", print(g));
  if (report) fmt::print(stderr, "{}", fusion_report::FusionReport::analyze(before, g).to_string());
  return g;
}

Graph cse(Graph g) {
  Graph out = run_pass(std::move(g), rlx::pass::cse);
  out.name += "_cse";
  return out;
}

namespace {

bool is_fused(const OpDef& op) {
  static const std::vector<const OpDef*> others{&op::region, &op::lora_matmul, &op::selective_scan,
                                                &op::gated_delta_net};
  const auto has = [&](const auto& list) {
    return std::find(list.begin(), list.end(), &op) != list.end();
  };
  return op.stage() == Stage::hir || has(kFused.ops) || has(others);
}

}  // namespace

Graph unfuse_fused_for_autodiff(Graph g) {
  static constexpr rlx::Pass unfuse{
      "unfuse_fused", "Fused ops become their parts.", [](Graph&& at, const PassOptions&) {
        return decompose_composites(std::move(at), "unfuse_fused",
                                    [](const Node& n, const Graph&) { return !is_fused(*n.op); });
      }};
  return run_pass(std::move(g), unfuse);
}

// ---- inlining

namespace {

// A leaf of this name and type in b: the one that is there, or a new one.
Value shared_leaf(Builder& b, const Node& n) {
  const auto& leaf = n.get<LeafAttrs>();
  const Value there = b.find_leaf(leaf.name);
  if (!there.valid()) return b.clone(n, {})[0];
  user_check(b.type(there) == n.type(), "leaf-type", "{} {} is {}, and {} where it is put into",
             n.op->name, quote(leaf.name), n.type(), b.type(there));
  return there;
}

// What is put into a program gives values alone: it would lose its updates, or make them twice.
void check_no_updates(const Graph& g, std::string_view who) {
  user_check(g.updates.empty(), "update-inline",
             "{}: \"{}\" updates the parameter {}, which a program that it is put into would not",
             who, g.name, g.updates.empty() ? "" : quote(g.updates[0].param));
}

}  // namespace

Values inline_subgraph_into_outputs(const Graph& sub, Operands captures, Builder& out) {
  check_no_updates(sub, "inline_subgraph_into");
  const Values inputs = sub.inputs();
  user_check(inputs.size() == captures.size(), "body-inputs",
             "inline_subgraph_into: \"{}\" has {} inputs, not {}", sub.name, inputs.size(),
             captures.size());
  ResultMap<Values> map(sub);
  size_t next = 0;
  for (int32_t i = 0; i < sub.size(); ++i) {
    const Node& n = sub.node(i);
    if (n.op == &op::input)
      map[i] = {captures[next++]};
    else if (n.op == &op::param)
      map[i] = {shared_leaf(out, n)};
    else
      map[i] = out.clone(n, map.at(n.in));
  }
  return map.at(sub.outputs);
}

Value inline_subgraph_into(const Graph& sub, Operands captures, Builder& out) {
  user_check(!sub.outputs.empty(), "output-index", "inline_subgraph_into: \"{}\" has no output",
             sub.name);
  return inline_subgraph_into_outputs(sub, captures, out)[0];
}

Values inline_into(Builder& target, const Graph& source, const LeafMap& inputs,
                   const LeafMap* params) {
  check_no_updates(source, "inline_into");
  const auto bound = [&](const Node& n, const LeafMap& map, std::string_view code) {
    const std::string& name = n.get<LeafAttrs>().name;
    const auto at = map.find(name);
    user_check(at != map.end(), code, "inline_into: {} {} of \"{}\" is not bound", n.op->name,
               quote(name), source.name);
    user_check(target.type(at->second) == n.type(), "leaf-type",
               "inline_into: {} {} is {}, and what it is bound to {}", n.op->name, quote(name),
               n.type(), target.type(at->second));
    return at->second;
  };
  for (const Node& n : source.nodes) {  // nothing is appended before all is known
    if (n.op == &op::input) bound(n, inputs, "unbound-input");
    if (n.op == &op::param && params) bound(n, *params, "unbound-param");
  }
  ResultMap<Values> map(source);
  for (int32_t i = 0; i < source.size(); ++i) {
    const Node& n = source.node(i);
    if (n.op == &op::input)
      map[i] = {bound(n, inputs, "unbound-input")};
    else if (n.op == &op::param)
      map[i] = {params ? bound(n, *params, "unbound-param") : shared_leaf(target, n)};
    else
      map[i] = target.clone(n, map.at(n.in));
  }
  return map.at(source.outputs);
}

// ---- parameters

namespace {

void check_not_updated(const Graph& g, const std::string& name, std::string_view code,
                       std::string_view what) {
  for (const Update& u : g.updates)
    user_check(u.param != name, code, "{}: \"{}\" updates the parameter {}", what, g.name,
               quote(name));
}

}  // namespace

Graph promote_params_to_inputs(const Graph& g, const std::vector<std::string>& names) {
  const auto is_named = [&](const Node& n) {
    return n.op == &op::param &&
           std::find(names.begin(), names.end(), n.get<LeafAttrs>().name) != names.end();
  };
  for (const Node& n : g.nodes)
    if (is_named(n))
      check_not_updated(g, n.get<LeafAttrs>().name, "update-input", "promote_params_to_inputs");
  return rebuild(g, [&](Builder& b, int32_t i, Operands in) -> Values {
    const Node& n = g.node(i);
    return is_named(n) ? b.emit(op::input.def, n.attrs, {}) : b.clone(n, in);
  });
}

Graph specialize_params(const Graph& g, const std::map<std::string, Tensor>& values) {
  for (const auto& [name, value] : values) {
    const Value leaf = g.find_leaf(name);
    user_check(leaf.valid() && g.node(leaf).op == &op::param, "no-leaf",
               "specialize_params: \"{}\" has no parameter {}", g.name, quote(name));
    user_check(g.type(leaf) == value.type(), "leaf-type",
               "specialize_params: the parameter {} is {}, not {}", quote(name), g.type(leaf),
               value.type());
    check_not_updated(g, name, "update-constant", "specialize_params");
  }
  return rebuild(g, [&](Builder& b, int32_t i, Operands in) -> Values {
    const Node& n = g.node(i);
    const auto at = n.op == &op::param ? values.find(n.get<LeafAttrs>().name) : values.end();
    return at == values.end() ? b.clone(n, in) : Values{b.constant(at->second)};
  });
}

}  // namespace rlx::opt
