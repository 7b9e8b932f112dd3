// The passes that the optimizer's documents know by name: rewrites that make the named composites (ops/blocks/fused.h), and
// lowerings to primitives. The default pipeline needs none of them: it recognises and grows regions, and ends in the same
// kernels. They are for those who look at programs in these terms, and for devices that have such kernels.
//
//   Graph h = run_passes(g, parse_pipeline("fuse_matmul_bias_act,fuse_residual_ln,dead_code"));
//
// What a rewrite folds away has no other reader and is no output. f16 and bf16 are fused under fast_math only: the
// composites round once where their parts round each.
#pragma once

#include "rlx/passes/pass.h"

namespace rlx {

namespace pass {
// matmul, add of a bias [N], and an activation of the list -> fused_matmul_bias_act
extern const Pass fuse_matmul_bias_act;
// add [, add of a bias [D]], norm over the last axis -> fused_residual_ln, fused_residual_rms_norm
extern const Pass fuse_residual_ln, fuse_residual_rms_norm;
extern const Pass fuse_rms_norm_reshape;     // rows of an rms_norm are merged before it
extern const Pass fuse_swiglu_dual_matmul;   // silu(x @ gate) * (x @ up), weights joined
extern const Pass fuse_shared_input_matmul;  // products of one value with weights, joined
extern const Pass fuse_swiglu;               // silu and product of two halves -> fused_swiglu
extern const Pass fuse_attention_block;      // after fuse_matmul_bias_act
extern const Pass fuse_transformer_layer;    // after fuse_attention_block and fuse_residual_ln
extern const Pass mark_elementwise_regions, unfuse_elementwise_regions;
// cond becomes select of both, while with a bound so many steps. See inline_if, unroll_while.
extern const Pass lower_control_flow;
extern const Pass lower_dot_general;   // to transpose, reshape, matmul
extern const Pass legalize_broadcast;  // operands that are broadcast inside are broadcast by a node
}  // namespace pass

// The rules behind the first of them, for documentation and tests.
const RuleSet& named_fusion_rules();

// How large an elementwise region may be: nodes and operands.
struct RegionLimits {
  int64_t steps = INT64_MAX, inputs = INT64_MAX;
};
// Elementwise nodes of one shape whose values are read by each other alone become regions of one result, of two nodes or
// more. Operands from outside are of that shape, one element, or its last axes.
Graph mark_elementwise_regions(const Graph& g, const RegionLimits& limits = {});
Graph unfuse_elementwise_regions(Graph g);
// Only those that are too large.
Graph clip_elementwise_regions(Graph g, const RegionLimits& limits);

// Every cond computes both bodies and selects: what fails in the body that is not chosen fails, and is waited for.
Graph inline_if(const Graph& g);
// Every while is its bound's number of steps, each selected while the condition holds. Raises Error(user,
// "while-unbounded") unless those without a bound shall stay, and Error(unsupported, "unroll-size") beyond kMaxUnrolled
// nodes.
Graph unroll_while(const Graph& g, bool keep_unbounded = false);
inline constexpr int64_t kMaxUnrolled = 100'000;

// legalize_broadcast, and what became of each value of g.
std::pair<Graph, ResultMap<Values>> legalize_broadcast_with_map(const Graph& g);

}  // namespace rlx
