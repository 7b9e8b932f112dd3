// Builder: appends checked nodes to a graph. Every node's types are inferred; bad operands raise
// Error(user) that names the op, the operand types and what is allowed, and leave the graph as it
// was.
//
//   Builder b("mlp");
//   Value x = b.input("x", {DType::F32, {8, 4}}), w = b.param("w", {DType::F32, {4, 2}});
//   b.output(op::tanh(b, op::matmul(b, x, w)));
//   Graph g = b.finish();                       // verified
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "rlx/ir/op.h"

namespace rlx {

class Builder {
 public:
  explicit Builder(std::string name = "main");

  Value input(std::string name, Type type);
  Value param(std::string name, Type type);
  Value constant(Tensor value);
  Value constant(DType dtype, Complex value) {
    return constant(Tensor::scalar(dtype, value));
  }  // rank 0
  Value constant_like(Value x, Complex value) {
    return constant(type(x).dtype, value);
  }  // rank 0, x's dtype

  // Appends a node; returns its results.
  Values emit(const OpDef& op, Attrs attrs, Operands in);
  // Appends a copy of `n` (of any graph) on other operands, with types inferred anew.
  Values clone(const Node& n, Operands in);
  // Appends the definition of a composite `n` on other operands; returns its results. Every
  // decomposition is written by this call. A definition has at most kMaxDefinition nodes, or four for each
  // operand where that is more, those of bodies apart: an op whose attributes ask for more raises
  // Error(unsupported, "definition-size").
  Values expand(const Node& n, Operands in);
  static constexpr int32_t kMaxDefinition = 4096;
  // Appends the nodes of `body` with its inputs bound in order; returns the values of its outputs.
  Values inline_graph(const Graph& body, Operands inputs);

  // Graph::find_leaf without a walk over all nodes each time.
  Value find_leaf(std::string_view name) const;

  void output(Value v) { graph_.outputs.push_back(v); }
  void update(std::string param, Value v);
  // Sets the label of nodes made from now on; returns the previous one.
  SharedText set_label(SharedText label) { return std::exchange(label_, std::move(label)); }
  SharedText set_pass(SharedText pass) { return std::exchange(pass_, std::move(pass)); }
  void set_origin(const Origin& o) { label_ = o.label, pass_ = o.pass; }

  const Type& type(Value v) const;
  const Shape& shape(Value v) const { return type(v).shape; }
  const Node& node(Value v) const { return graph_.node(v); }
  const Graph& graph() const { return graph_; }
  Graph& mutable_graph() {
    if (names_.nodes > 0 || names_.updates > 0) names_ = {};  // the caller may change any name
    return graph_;
  }
  Graph finish();  // verifies and hands the graph over

 private:
  // The names in graph_, as far as they were read.
  struct Names {
    size_t nodes = 0, updates = 0;
    std::unordered_map<std::string, Value> leaves;  // inputs and parameters
    std::unordered_set<std::string> updated;
  };
  const Names& names() const;  // of all of graph_

  Graph graph_;
  mutable Names names_;
  SharedText label_, pass_;
  const OpDef* expanding_ = nullptr;  // while expand() runs: of which op, and where it must end
  int32_t start_ = 0, limit_ = 0;
};

// Labels nodes while it lives:  Label scope(b, "layer0");
class Label {
 public:
  Label(Builder& b, SharedText label) : b_(b), saved_(b.set_label(std::move(label))) {}
  ~Label() { b_.set_label(std::move(saved_)); }
  Label(const Label&) = delete;

 private:
  Builder& b_;
  std::string saved_;
};

// The three leaves; defined in ir because graphs need them.
namespace op {
extern const Op<LeafAttrs> input, param;
extern const Op<ConstantAttrs> constant;
}  // namespace op

// The result types of a node by the op's rule. Raises what the rule raises, and "rank".
Types infer_types(const OpDef& op, const Attrs& attrs, std::span<const Type> in);

// Substitutes sizes for symbols in all types and attributes, bodies included, and infers everything
// anew. Raises Error(user) "dim-unknown" for a symbol that the graph does not have, "bind-size".
Graph bind(const Graph& g, const DimBinding& binding);
// The same for a program that was made for all sizes and must hold for these: every node's results, inferred anew,
// must be what was inferred for symbols. Where they are not (?n against ?m gave ?n, and ?n is 1 and ?m is 5), and where
// the op refuses the sizes, raises Error(user) "dim-guard" with the op's message, the symbols and their values: "add:
// ?n = 5 and ?m = 7 must be equal". All symbols must be bound ("unbound-dim"); a name that the graph does not have is
// ignored, since passes remove nodes. Nodes without symbols are copied as they are.
Graph bind_checked(const Graph& g, const DimBinding& binding);
// Whether that raises nothing at node n of g, its operands being what was inferred for them.
bool holds_at(const Graph& g, const Node& n, const DimBinding& binding);
// Removes what no output or update needs; `input` leaves stay in the signature, and `param` leaves
// too when asked.
Graph drop_dead(Graph g, bool keep_params = false);

// g node by node: make() gives the results of node i over operands of the new graph. Nodes carry the origin of
// node i unless it says otherwise.
Graph rebuild(const Graph& g, FunctionRef<Values(Builder&, int32_t, Operands)> make);

}  // namespace rlx
