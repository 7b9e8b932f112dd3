#include "rlx/opt/fusion_report.h"

#include <nlohmann/json.hpp>

#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/core.h"
#include "rlx/stages/builders/vocabulary.h"

namespace rlx::opt::fusion_report {

namespace {

int count_of(const Graph& g, const OpDef& op) {
  return static_cast<int>(
      std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == &op; }));
}

std::string hint_of(MissReason reason) {
  switch (reason) {
    case MissReason::multi_consumer:
      return "let one reader have the product, or write it as a fused linear layer";
    case MissReason::bias_shape:
      return "a bias is a vector as long as the product's last axis";
    case MissReason::unsupported_epilogue_activation:
      return "fuse_matmul_bias_act takes a list of epilogues";
    case MissReason::shared_matmul_count:
    case MissReason::not_fused:
      return "run the pass of that name";
    case MissReason::swiglu_not_shared_input:
      return "gate and up must be products of one value";
  }
  return {};
}

class Scanner {
 public:
  explicit Scanner(const Graph& g) : g_(g), uses_(g) {
    for (int32_t i = 0; i < g.size(); ++i) {
      const Node& n = g.node(i);
      if (n.op == &op::matmul) {
        product(i, n);
        if (is_weight(n)) by_input_[n.in[0]].push_back(i);
      }
      if (n.op == &op::mul) gated(i, n);
    }
    for (const auto& [input, products] : by_input_) shared(products);
  }
  std::vector<MissedFusion> take() && { return std::move(missed_); }

 private:
  void miss(std::string_view pattern, int32_t i, MissReason reason, std::string detail = {}) {
    const Node& n = g_.node(i);
    missed_.push_back({std::string(pattern), Value{i, 0}, reason, std::move(detail),
                       n.origin.label.empty() ? std::string(n.op->name) : n.origin.label.str(),
                       hint_of(reason)});
  }

  bool is_weight(const Node& n) const {
    const Node& w = g_.node(n.in[1]);
    return w.type().rank() == 2 && (w.op == &op::param || w.op == &op::constant);
  }

  // A product that a vector is added to.
  void product(int32_t i, const Node& n) {
    for (int32_t user : uses_.users(i)) {
      const Node& add = g_.node(user);
      if (add.op != &op::add) continue;
      const Value other = add.in[0].node == i ? add.in[1] : add.in[0];
      const Shape& bias = g_.type(other).shape;
      const bool is_vector = bias == Shape{n.type().shape.back()};
      if (uses_.count(i) > 1) {
        if (is_vector) miss("matmul_bias_act", i, MissReason::multi_consumer);
      } else if (is_vector) {
        miss("matmul_bias_act", i, MissReason::not_fused);
      } else if (bias.size() <= 1 || bias.elements() == n.type().shape.back()) {
        miss("matmul_bias_act", i, MissReason::bias_shape, g_.type(other).to_string());
      }
    }
  }

  void shared(const std::vector<int32_t>& products) {
    if (products.size() < 2) return;
    if (products.size() == 2)
      miss("shared_input_matmul", products[0], MissReason::not_fused);
    else
      miss("shared_input_matmul", products[0], MissReason::shared_matmul_count,
           std::to_string(products.size()));
  }

  // mul(matmul, silu(matmul))
  void gated(int32_t i, const Node& n) {
    for (size_t k : {0, 1}) {
      const Node &silu = g_.node(n.in[k]), &up = g_.node(n.in[1 - k]);
      if (silu.op != &op::silu || up.op != &op::matmul) continue;
      const Node& gate = g_.node(silu.in[0]);
      if (gate.op != &op::matmul) continue;
      miss("swiglu", i,
           gate.in[0] == up.in[0] ? MissReason::not_fused : MissReason::swiglu_not_shared_input);
      return;
    }
  }

  const Graph& g_;
  Uses uses_;
  std::map<Value, std::vector<int32_t>> by_input_;
  std::vector<MissedFusion> missed_;
};

// Activations that stay behind a fused product of their own.
void unsupported_epilogues(const Graph& g, std::vector<MissedFusion>& out) {
  const Uses uses(g);
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    if (n.op != &op::fused_matmul_bias_act || !n.get<FusedMatmulAttrs>().activation.empty())
      continue;
    if (uses.count(i) != 1 || uses.users(i).empty()) continue;
    const Node& reader = g.node(uses.users(i)[0]);
    if (op_kind(*reader.op) != "Activation") continue;
    const MissReason why = MissReason::unsupported_epilogue_activation;
    out.push_back({"matmul_bias_act", Value{i, 0}, why, std::string(reader.op->name),
                   n.origin.label.empty() ? std::string(n.op->name) : n.origin.label.str(),
                   hint_of(why)});
  }
}

}  // namespace

FusionReport FusionReport::analyze(const Graph& before, const Graph& after) {
  FusionReport r;
  r.nodes_before = before.size(), r.nodes_after = after.size();
  r.matmul_before = count_of(before, op::matmul.def);
  r.matmul_after = count_of(after, op::matmul.def);
  r.attention = count_of(after, op::attention.def);
  r.rope = count_of(after, op::rope.def);
  r.narrow = count_of(after, op::slice.def);
  r.silu = count_of(after, op::silu.def);
  r.mul = count_of(after, op::mul.def);
  r.fused_matmul_bias_act = count_of(after, op::fused_matmul_bias_act.def);
  r.fused_swiglu = count_of(after, op::fused_swiglu.def);
  r.fused_residual_ln = count_of(after, op::fused_residual_ln.def);
  r.fused_residual_rms_norm = count_of(after, op::fused_residual_rms_norm.def);
  r.fused_attention_block = count_of(after, op::fused_attention_block.def);
  r.fused_transformer_layer = count_of(after, op::fused_transformer_layer.def);
  r.elementwise_region = count_of(after, op::region.def);
  r.missed = Scanner(after).take();
  unsupported_epilogues(after, r.missed);
  return r;
}

int FusionReport::count(std::string_view pattern) const {
  return static_cast<int>(std::count_if(
      missed.begin(), missed.end(), [&](const MissedFusion& m) { return m.pattern == pattern; }));
}

std::string FusionReport::summary_line() const {
  return fmt::format(
      "nodes={}→{} matmul={}→{} fused_mm_act={} fused_swiglu={} elementwise_region={} "
      "missed_mm_act={} missed_swiglu={} missed_shared_mm={}",
      nodes_before, nodes_after, matmul_before, matmul_after, fused_matmul_bias_act, fused_swiglu,
      elementwise_region, missed_matmul_bias_act(), missed_swiglu(), missed_shared_matmul());
}

namespace {
std::string reason_text(const MissedFusion& m) {
  const std::string_view name = enum_names(m.reason)[static_cast<size_t>(m.reason)];
  return m.detail.empty() ? std::string(name) : fmt::format("{}({})", name, m.detail);
}
}  // namespace

std::string FusionReport::to_string() const {
  std::string out = "fusion report:\n  " + summary_line() + "\n";
  if (!missed.empty()) out += "  missed patterns:\n";
  for (const MissedFusion& m : missed)
    out += fmt::format("    {} @ {} ({}) — {} → {}\n", m.pattern, m.node, m.context, reason_text(m),
                       m.hint);
  return out;
}

std::string FusionReport::to_json() const {
  nlohmann::ordered_json j{{"nodes_before", nodes_before},
                           {"nodes_after", nodes_after},
                           {"matmul_before", matmul_before},
                           {"matmul_after", matmul_after},
                           {"fused_matmul_bias_act", fused_matmul_bias_act},
                           {"fused_swiglu", fused_swiglu},
                           {"fused_residual_ln", fused_residual_ln},
                           {"fused_residual_rms_norm", fused_residual_rms_norm},
                           {"fused_attention_block", fused_attention_block},
                           {"fused_transformer_layer", fused_transformer_layer},
                           {"elementwise_region", elementwise_region}};
  j["missed"] = nlohmann::ordered_json::array();
  for (const MissedFusion& m : missed)
    j["missed"].push_back({{"pattern", m.pattern},
                           {"node", m.node.node},
                           {"reason", reason_text(m)},
                           {"context", m.context},
                           {"hint", m.hint}});
  return j.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace rlx::opt::fusion_report
