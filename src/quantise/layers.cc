#include "rlx/quantise/layers.h"

#include <set>

#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/nn/experts.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/passes/weights.h"

namespace rlx {

namespace {

bool holds_plain_products(const OpDef& op) {
  const auto fused = kFused.ops;
  return op.stage() == Stage::hir || &op == &op::dot_general || &op == &op::lora_matmul ||
         std::find(fused.begin(), fused.end(), &op) != fused.end();
}

bool is_layer_op(const OpDef* op) {
  return op == &op::matmul || op == &op::conv || op == &op::gather;
}

bool holds_layers(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    if (is_layer_op(n.op) || holds_plain_products(*n.op)) return true;
    const auto inside = bodies(n.attrs);
    return std::any_of(inside.begin(), inside.end(),
                       [](const NamedBody& b) { return holds_layers(b.graph); });
  });
}

// What matters where a program is differentiated alone, and cells that are repeated.
bool wraps_layers(const Node& n) {
  if (n.op == &op::rnn || n.op == &op::gru || n.op == &op::lstm) return true;
  if (n.op == &op::custom_fn) return holds_layers(*n.get<CustomFnAttrs>().fwd);
  if (n.op == &op::checkpoint) return holds_layers(*n.get<CheckpointAttrs>().body);
  return n.op == &op::scan_checkpointed && holds_layers(*n.get<ScanCheckpointedAttrs>().body);
}

// A graph with the graphs around it, and the node of the next one out that holds it.
struct Scope {
  const Graph& graph;
  std::span<const Update> updates;  // of the program
  const Scope* outer = nullptr;
  const Node* holder = nullptr;

  // What comes in as an input in every step alike; kNone for carries and rows.
  Value given(int32_t input) const {
    if (!outer) return kNone;
    const Values inputs = graph.inputs();
    const auto k = std::find(inputs.begin(), inputs.end(), Value{input, 0}) - inputs.begin();
    const Operands in = holder->in;
    if (holder->op == &op::cond) return in[at(k + 1)];
    const bool is_scan = holder->op == &op::scan;
    const int64_t changing =
        is_scan ? holder->get<ScanAttrs>().num_carries + holder->get<ScanAttrs>().num_xs
                : holder->get<WhileAttrs>().num_carries;
    return k < changing ? kNone : in[at(k)];
  }
  bool is_weight(Value v) const {
    return is_of_weights(graph, v, updates, [&](int32_t input) {
      const Value from = given(input);
      return from.valid() && outer->is_weight(from);
    });
  }
  // A value that is made of weights, in the program itself.
  Value outside(Builder& b, Value v) const {
    if (!outer) return v;
    const Node& n = graph.node(v);
    if (n.op == &op::input) return outer->outside(b, given(v.node));
    Values in;
    for (Value operand : n.in) in.push_back(outside(b, operand));
    return b.clone(n, in)[at(v.index)];
  }
};

// The parameter that v is made of by movement and arithmetic; the first one.
std::string parameter_of(const Graph& g, Value v) {
  const Node& n = g.node(v);
  if (n.op == &op::param) return n.get<LeafAttrs>().name;
  for (Value in : n.in)
    if (std::string name = parameter_of(g, in); !name.empty()) return name;
  return "";
}

// Node i of the scope as a layer, or none.
std::optional<Layer> as_layer(const Scope& s, int32_t i) {
  const Node& n = s.graph.node(i);
  if (!is_layer_op(n.op) || !is_float(n.type().dtype)) return std::nullopt;
  const auto is_weight = [&](size_t k) { return s.is_weight(n.in[k]); };
  Layer l{.node = i, .op = n.op};
  if (n.op == &op::gather) {
    if (!is_weight(0) || n.get<AxisAttrs>().axis != 0 || s.graph.type(n.in[0]).rank() != 2)
      return std::nullopt;
    l.x = 1, l.weight = 0, l.has_weight = true, l.channel_axis = 0;
  } else if (n.op == &op::conv) {
    l.has_weight = is_weight(1), l.channel_axis = 0;
  } else {
    const auto& m = n.get<MatmulAttrs>();
    if (!is_weight(1) && is_weight(0)) std::swap(l.x, l.weight);
    l.has_weight = is_weight(l.weight);
    const bool columns = l.weight == 1, transposed = columns ? m.transpose_b : m.transpose_a;
    l.channel_axis = s.graph.type(n.in[l.weight]).rank() - (columns == transposed ? 2 : 1);
  }
  if (is_weight(l.x)) return std::nullopt;
  return l;
}

class LayerFinder {
 public:
  LayerFinder(const Graph& g, bool in_bodies) : g_(g), in_bodies_(in_bodies) {
    b_.mutable_graph() = g;
  }

  AllLayers run() {
    visit({g_, g_.updates}, {});
    out_.graph = std::move(b_.mutable_graph());
    return std::move(out_);
  }

 private:
  void visit(const Scope& s, const std::vector<BodyPlace>& in) {
    for (int32_t i = 0; i < s.graph.size(); ++i) {
      const Node& n = s.graph.node(i);
      if (std::optional<Layer> l = as_layer(s, i)) add(s, in, std::move(*l));
      if (!in_bodies_ || (n.op != &op::scan && n.op != &op::while_loop && n.op != &op::cond))
        continue;
      const std::vector<NamedBody> inside = bodies(n.attrs);
      for (size_t k = 0; k < inside.size(); ++k) {
        std::vector<BodyPlace> place = in;
        place.push_back({i, k});
        visit({inside[k].graph, s.updates, &s, &n}, place);
      }
    }
  }

  void add(const Scope& s, const std::vector<BodyPlace>& in, Layer l) {
    const Node& n = s.graph.node(l.node);
    const Value weight = l.has_weight ? s.outside(b_, n.in[l.weight]) : kNone;
    std::string name = weight.valid() ? parameter_of(b_.graph(), weight) : "";
    if (name.empty()) name = n.origin.label.str();
    if (name.empty()) name = fmt::format("%{} {}", l.node, n.op->name);
    l.name = name;
    for (int count = 2; !taken_.insert(l.name).second; ++count)
      l.name = fmt::format("{}#{}", name, count);
    l.in = in;
    out_.layers.push_back(std::move(l));
    out_.weights.push_back(weight);
  }

  const Graph& g_;
  bool in_bodies_;
  Builder b_;
  AllLayers out_;
  std::set<std::string> taken_;
};

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

Graph plain_products_to_run(Graph g) {
  static constexpr Pass plain{
      "plain_products_to_run", "Fused ops and what wraps layers become their parts.",
      [](Graph&& at, const PassOptions&) {
        return decompose_composites(std::move(at), "quantise", [](const Node& n, const Graph&) {
          return !holds_plain_products(*n.op) && !wraps_layers(n);
        });
      }};
  return run_pass(std::move(g), plain);
}

std::vector<Layer> find_layers(const Graph& g) { return LayerFinder(g, false).run().layers; }
AllLayers find_all_layers(const Graph& g) { return LayerFinder(g, true).run(); }

const Graph& graph_of(const Graph& g, const Layer& l) {
  const Graph* at = &g;
  for (const BodyPlace& p : l.in) at = &bodies(at->node(p.node).attrs)[p.body].graph;
  return *at;
}

bool name_matches(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

}  // namespace rlx
