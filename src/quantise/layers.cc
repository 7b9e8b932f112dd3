#include "rlx/quantise/layers.h"

#include <set>

#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/core.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/nn/experts.h"
#include "rlx/passes/weights.h"

namespace rlx {

namespace {

bool holds_plain_products(const OpDef& op) {
  const auto fused = kFused.ops;
  return op.stage() == Stage::hir || &op == &op::dot_general || &op == &op::lora_matmul ||
         std::find(fused.begin(), fused.end(), &op) != fused.end();
}

// The parameter that v is made of by movement and arithmetic; the first one.
std::string parameter_of(const Graph& g, Value v) {
  const Node& n = g.node(v);
  if (n.op == &op::param) return n.get<LeafAttrs>().name;
  for (Value in : n.in)
    if (std::string name = parameter_of(g, in); !name.empty()) return name;
  return "";
}

std::string name_of(const Graph& g, const Layer& l) {
  const Node& n = g.node(l.node);
  std::string name = l.has_weight ? parameter_of(g, n.in[l.weight]) : "";
  if (name.empty()) name = n.origin.label.str();
  return name.empty() ? fmt::format("%{} {}", l.node, n.op->name) : name;
}

// Node i as a layer, or none.
std::optional<Layer> as_layer(const Graph& g, int32_t i) {
  const Node& n = g.node(i);
  const auto is_weight = [&](size_t k) { return is_of_weights(g, n.in[k], g.updates); };
  Layer l{.node = i};
  if (n.op == &op::gather) {
    if (!is_weight(0) || n.get<AxisAttrs>().axis != 0 || g.type(n.in[0]).rank() != 2)
      return std::nullopt;
    l.x = 1, l.weight = 0, l.has_weight = true, l.channel_axis = 0;
  } else if (n.op == &op::conv) {
    l.has_weight = is_weight(1), l.channel_axis = 0;
  } else if (n.op == &op::matmul) {
    const auto& m = n.get<MatmulAttrs>();
    if (!is_weight(1) && is_weight(0)) std::swap(l.x, l.weight);
    l.has_weight = is_weight(l.weight);
    const bool columns = l.weight == 1, transposed = columns ? m.transpose_b : m.transpose_a;
    l.channel_axis = g.type(n.in[l.weight]).rank() - (columns == transposed ? 2 : 1);
  } else {
    return std::nullopt;
  }
  if (!is_float(n.type().dtype) || is_weight(l.x)) return std::nullopt;
  return l;
}

}  // namespace

Graph plain_products(Graph g) {
  static constexpr Pass plain{
      "plain_products", "Fused ops become their parts.", [](Graph&& at, const PassOptions&) {
        return decompose_composites(std::move(at), "quantise", [](const Node& n, const Graph&) {
          return !holds_plain_products(*n.op);
        });
      }};
  return run_pass(std::move(g), plain);
}

std::vector<Layer> find_layers(const Graph& g) {
  std::vector<Layer> out;
  std::set<std::string> taken;
  for (int32_t i = 0; i < g.size(); ++i) {
    std::optional<Layer> l = as_layer(g, i);
    if (!l) continue;
    const std::string name = name_of(g, *l);
    l->name = name;
    for (int count = 2; !taken.insert(l->name).second; ++count)
      l->name = fmt::format("{}#{}", name, count);
    out.push_back(std::move(*l));
  }
  return out;
}

bool name_matches(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

}  // namespace rlx
