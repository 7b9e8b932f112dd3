// The optimizer's passes as objects, under the names of its documents. Each is a pass of passes/ (or a function over a
// graph) with its options; there is no second mechanism.
//
//   Graph h = opt::run_passes(g, {opt::pass_of<opt::FuseMatMulBiasAct>(), opt::pass_of<opt::DeadCodeElimination>()});
//   Graph k = opt::FuseMatMulBiasAct().run(g);
//
// Raises what the passes raise.
#pragma once

#include <memory>

#include "rlx/passes/named_passes.h"
#include "rlx/passes/passes.h"

namespace rlx::opt {

class Pass {
 public:
  virtual ~Pass() = default;
  virtual std::string_view name() const = 0;  // in logs and origins
  virtual Graph run(Graph g) const = 0;
};

using PassPtr = std::shared_ptr<const Pass>;
using Passes = std::vector<PassPtr>;

template <class P, class... Args>
PassPtr pass_of(Args&&... args) {
  return std::make_shared<const P>(std::forward<Args>(args)...);
}

// One after the other, verified in between where programs are (CompileOptions::verify_by_default). Verbose: the graph
// before each, and at last, on standard error. Where the variable RLX_FUSION_REPORT is on, what fused and what did not.
Graph run_passes(Graph g, const Passes& passes, bool verbose = false);

// A pass of passes/ under its document's name.
class TablePass : public Pass {
 public:
  std::string_view name() const override { return name_; }
  Graph run(Graph g) const override;
  std::string_view doc() const { return pass_.doc; }
  std::string text() const;  // as parse_pipeline reads it

 protected:
  TablePass(std::string_view name, const rlx::Pass& pass, PassArguments arguments = {},
            bool fast_math = false)
      : name_(name), pass_(pass), arguments_(std::move(arguments)), fast_math_(fast_math) {}

 private:
  std::string_view name_;
  const rlx::Pass& pass_;
  PassArguments arguments_;
  bool fast_math_;
};

struct ConstantFolding : TablePass {
  ConstantFolding() : TablePass("constant_folding", rlx::pass::fold_constants) {}
};
// Inputs stay in the signature, so that callers may still bind them; parameters that nobody reads go.
struct DeadCodeElimination : TablePass {
  DeadCodeElimination() : TablePass("dead_code_elimination", rlx::pass::dead_code) {}
};
// x + 0 and x * 0 change what NaN, infinity and -0 give: without fast_math they stay.
struct AlgebraicSimplify : TablePass {
  explicit AlgebraicSimplify(bool fast_math = true)
      : TablePass("algebraic_simplify", rlx::pass::simplify, {}, fast_math) {}
};
struct LegalizeBroadcast : TablePass {
  LegalizeBroadcast() : TablePass("legalize_broadcast", rlx::pass::legalize_broadcast) {}
};
// Whiles without a bound are refused ("while-unbounded"), or kept for targets that run loops.
struct LowerControlFlow : TablePass {
  explicit LowerControlFlow(bool keep_unbounded = false)
      : TablePass("LowerControlFlow", rlx::pass::lower_control_flow,
                  {{"unbounded", keep_unbounded ? "keep" : "refuse"}}) {}
};
struct LowerDotGeneral : TablePass {
  LowerDotGeneral() : TablePass("lower_dot_general", rlx::pass::lower_dot_general) {}
};

// ---- fusion

// The activations that end a product, by the names of their ops.
struct FuseMatMulBiasAct : TablePass {
  explicit FuseMatMulBiasAct(const std::vector<std::string>& epilogues = {"gelu", "silu"})
      : TablePass("fuse_matmul_bias_act", rlx::pass::fuse_matmul_bias_act,
                  {{"epilogues", fmt::format("{}", fmt::join(epilogues, "|"))}}) {}
};
struct FuseResidualLN : TablePass {
  FuseResidualLN() : TablePass("fuse_residual_ln", rlx::pass::fuse_residual_ln) {}
};
struct FuseResidualRmsNorm : TablePass {
  FuseResidualRmsNorm() : TablePass("fuse_residual_rms_norm", rlx::pass::fuse_residual_rms_norm) {}
};
struct FuseRmsNormReshape : TablePass {
  FuseRmsNormReshape() : TablePass("fuse_rms_norm_reshape", rlx::pass::fuse_rms_norm_reshape) {}
};
struct FuseSwiGLUDualMatmul : TablePass {
  FuseSwiGLUDualMatmul()
      : TablePass("fuse_swiglu_dual_matmul", rlx::pass::fuse_swiglu_dual_matmul) {}
};
struct FuseSharedInputMatMul : TablePass {
  FuseSharedInputMatMul()
      : TablePass("fuse_shared_input_matmul", rlx::pass::fuse_shared_input_matmul) {}
};
struct FuseSwiGLU : TablePass {
  FuseSwiGLU() : TablePass("fuse_swiglu", rlx::pass::fuse_swiglu) {}
};
// Made where the first two axes of some input have at most `threshold` places.
inline constexpr int64_t kAttentionThreshold = 64;
struct FuseAttentionBlock : TablePass {
  explicit FuseAttentionBlock(int64_t threshold = kAttentionThreshold)
      : TablePass("fuse_attention_block", rlx::pass::fuse_attention_block,
                  {{"threshold", std::to_string(threshold)}}) {}
};
struct FuseTransformerLayer : TablePass {
  explicit FuseTransformerLayer(int64_t threshold = kAttentionThreshold)
      : TablePass("fuse_transformer_layer", rlx::pass::fuse_transformer_layer,
                  {{"threshold", std::to_string(threshold)}}) {}
};

// How large regions may be.
struct FusionLimits {
  int64_t max_elementwise_steps = 32, max_elementwise_inputs = 16;
  static FusionLimits gpu_native() { return {}; }
  static FusionLimits unbounded() { return {INT64_MAX, INT64_MAX}; }
  RegionLimits regions() const { return {max_elementwise_steps, max_elementwise_inputs}; }
  bool operator==(const FusionLimits&) const = default;
};
class MarkElementwiseRegions : public Pass {
 public:
  explicit MarkElementwiseRegions(FusionLimits limits = {}) : limits_(limits) {}
  std::string_view name() const override { return "mark_elementwise_regions"; }
  Graph run(Graph g) const override { return mark_elementwise_regions(g, limits_.regions()); }

 private:
  FusionLimits limits_;
};
struct UnfuseElementwiseRegions : TablePass {
  UnfuseElementwiseRegions()
      : TablePass("unfuse_elementwise_regions", rlx::pass::unfuse_elementwise_regions) {}
};
inline Graph clip_elementwise_regions(Graph g, const FusionLimits& limits) {
  return rlx::clip_elementwise_regions(std::move(g), limits.regions());
}

// The passes of the table above, with their defaults, under the names of their classes: for other languages.
struct NamedPass {
  std::string_view cls;
  std::shared_ptr<const TablePass> pass;
};
std::vector<NamedPass> named_passes();

// ---- single passes as functions

Graph cse(Graph g);  // the name gets the ending "_cse"
inline Graph algebraic_simplify(Graph g) { return AlgebraicSimplify().run(std::move(g)); }
inline Graph fuse_elementwise(Graph g) { return MarkElementwiseRegions().run(std::move(g)); }
using rlx::inline_if;
using rlx::unroll_while;
// Fused ops, regions, blocks of HIR, lora_matmul, selective_scan and gated_delta_net become what they are made of.
Graph unfuse_fused_for_autodiff(Graph g);

// ---- inlining and parameters

// Appends sub with its inputs bound in order; all its outputs, or the first. Parameters of sub are those of `out` with
// that name. Raises "body-inputs" where the counts differ, "output-index" where there is no output,
// "update-inline" for one that updates parameters.
Values inline_subgraph_into_outputs(const Graph& sub, Operands captures, Builder& out);
Value inline_subgraph_into(const Graph& sub, Operands captures, Builder& out);
// Appends source with its inputs, by name, and where a map is given its parameters too; without one they are those of
// target with that name, declared where there are none. Raises "unbound-input", "unbound-param", "leaf-type" and
// "update-inline".
using LeafMap = std::map<std::string, Value, std::less<>>;
Values inline_into(Builder& target, const Graph& source, const LeafMap& inputs,
                   const LeafMap* params = nullptr);
// Parameters of these names become inputs, in their places; other names mean nothing. Raises "update-input" for one that
// the graph updates.
Graph promote_params_to_inputs(const Graph& g, const std::vector<std::string>& names);
// Parameters become constants. Raises "no-leaf", "leaf-type" where a tensor is not of the parameter's type,
// "update-constant" for one that the graph updates.
Graph specialize_params(const Graph& g, const std::map<std::string, Tensor>& values);
class SpecializeParams : public Pass {
 public:
  explicit SpecializeParams(std::map<std::string, Tensor> values) : values_(std::move(values)) {}
  std::string_view name() const override { return "specialize_params"; }
  Graph run(Graph g) const override { return specialize_params(g, values_); }

 private:
  std::map<std::string, Tensor> values_;
};

}  // namespace rlx::opt
