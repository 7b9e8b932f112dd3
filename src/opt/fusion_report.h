// What the named fusion passes made of a program, and what they could have made and did not.
//
//   auto report = opt::fusion_report::FusionReport::analyze(before, after);
//   report.summary_line();        // nodes=6→4 matmul=1→0 fused_mm_act=1 ...
//   report.missed;                // each with its reason and a hint
//
// A pattern counts as missed where a pass of the list would have taken it but for one thing: a plain linear layer is
// none. (rlx::FusionReport is the other one: of the regions that every program is made of.)
#pragma once

#include "rlx/ir/graph.h"

namespace rlx::opt::fusion_report {

enum class MissReason : uint8_t {
  multi_consumer,                   // the product has other readers, or is an output
  bias_shape,                       // what is added is no vector of the last axis
  unsupported_epilogue_activation,  // an activation that no kernel ends with
  shared_matmul_count,              // more than two products of one value
  swiglu_not_shared_input,          // gate and up are products of different values
  not_fused,                        // nothing stands in the way: the pass was not run
};
inline std::span<const std::string_view> enum_names(MissReason) {
  static constexpr std::string_view names[] = {
      "MultiConsumer",        "BiasShape", "UnsupportedEpilogueActivation", "SharedMatmulCount",
      "SwigluNotSharedInput", "NotFused"};
  return names;
}

struct MissedFusion {
  std::string pattern;  // "matmul_bias_act", "shared_input_matmul", "swiglu"
  Value node;
  MissReason reason;
  std::string detail;   // of the reason: a shape, a count, an op; or ""
  std::string context;  // the node's label, or its op
  std::string hint;
};

struct FusionReport {
  int nodes_before = 0, nodes_after = 0, matmul_before = 0, matmul_after = 0;
  // Of the graph after.
  int attention = 0, rope = 0, narrow = 0, silu = 0, mul = 0;
  int fused_matmul_bias_act = 0, fused_swiglu = 0, fused_residual_ln = 0,
      fused_residual_rms_norm = 0, fused_attention_block = 0, fused_transformer_layer = 0,
      elementwise_region = 0;
  std::vector<MissedFusion> missed;

  static FusionReport analyze(const Graph& before, const Graph& after);
  static FusionReport scan(const Graph& g) { return analyze(g, g); }
  int missed_matmul_bias_act() const { return count("matmul_bias_act"); }
  int missed_swiglu() const { return count("swiglu"); }
  int missed_shared_matmul() const { return count("shared_input_matmul"); }
  std::string summary_line() const;
  std::string to_string() const;
  std::string to_json() const;

 private:
  int count(std::string_view pattern) const;
};

}  // namespace rlx::opt::fusion_report
