// Graph: a tensor program as a value.
//
//   Builder b("double");                         // builder.h
//   Value x = b.input("x", {DType::F32, {4}});
//   b.output(op::add(b, x, x));
//   Graph g = b.finish();
//   print(g);                                    // text.h
//
// Nodes stand in topological order: the operands of a node come before it. A node has one or more
// results; a Value names one of them. Graphs are pure; what a run shall write back is listed in
// `updates` (parameter <- value). Bodies of control flow and regions are graphs inside attributes;
// their inputs are bound in order.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rlx/base/few.h"
#include "rlx/base/fields.h"
#include "rlx/base/format.h"
#include "rlx/base/function_ref.h"
#include "rlx/base/shared_text.h"
#include "rlx/ir/shape.h"
#include "rlx/ir/tensor.h"

namespace rlx {

struct OpDef;

struct Value {
  int32_t node = -1;
  int32_t index = 0;
  bool valid() const { return node >= 0; }
  explicit operator bool() const { return valid(); }
  auto operator<=>(const Value&) const = default;
};

using Values = Few<Value, 2>;
using Types = std::vector<Type>;  // references to types outlive the growth of their graph

inline constexpr Value kNone{};  // no value; as a tangent or cotangent: a symbolic zero

// Where a node comes from: the user's label (a block, a layer) and the pass or transform that made
// it.
struct Origin {
  SharedText label;
  SharedText pass;
  bool operator==(const Origin&) const = default;
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  Values in;
  Types out;
  Origin origin;

  template <class A>
  const A& get() const {
    return attrs.get<A>();
  }
  const Type& type() const { return out[0]; }
};

struct Update {
  std::string param;
  Value value;
  bool operator==(const Update&) const = default;
};

class Graph {
 public:
  std::string name;
  std::vector<Node> nodes;
  Values outputs;
  std::vector<Update> updates;

  Node& node(int32_t i) { return nodes[static_cast<size_t>(i)]; }
  const Node& node(int32_t i) const { return nodes[static_cast<size_t>(i)]; }
  const Node& node(Value v) const { return node(v.node); }
  const Type& type(Value v) const { return node(v).out[static_cast<size_t>(v.index)]; }
  int32_t size() const { return static_cast<int32_t>(nodes.size()); }

  Values inputs() const;                         // the `input` leaves in order
  Values params() const;                         // the `param` leaves in order
  Value find_leaf(std::string_view name) const;  // input or param of that name, or kNone
  Types output_types() const;
  std::vector<std::string> symbols() const;  // of all shapes and attributes, bodies included

  uint64_t hash() const;
};

// Deep structural equality: names, ops, attributes (bodies too), operands, types, origins, outputs,
// updates.
bool operator==(const Graph& a, const Graph& b);
bool operator==(const Node& a, const Node& b);

// A nested graph as an attribute.
struct Body {
  std::shared_ptr<const Graph> graph;
  Body();
  Body(Graph g);  // NOLINT: implicit by design
  const Graph& operator*() const { return *graph; }
  const Graph* operator->() const { return graph.get(); }
};

template <>
struct Codec<Body> {
  static std::string type() { return "graph"; }
  static void print(Printer& p, const Body& v);
  static void read(Reader& r, Body& v);
  static void write(ByteWriter& w, const Body& v);
  static void load(ByteReader& r, Body& v);
  static uint64_t hash(const Body& v) { return v.graph->hash(); }
  static bool equal(const Body& a, const Body& b) {
    return a.graph == b.graph || *a.graph == *b.graph;
  }
};
extern template struct MemberTypeOf<Body>;

// The bodies among attributes, with the names of their fields.
struct NamedBody {
  std::string_view field;
  const Graph& graph;
};
std::vector<NamedBody> bodies(const Attrs& attrs);
// The attributes with f(body) for each body; with f(dim) for each dim outside of bodies.
Attrs map_bodies(const Attrs& attrs, FunctionRef<Body(const Body&)> f);
Attrs map_dims(const Attrs& attrs, FunctionRef<Dim(const Dim&)> f);

// Whether a symbol stands in the attributes, the types or attributes of the node, or the graph; bodies count.
bool has_symbols(const Attrs& attrs);
bool has_symbols(const Node& n);
bool has_symbols(const Graph& g);

// Something for each result of each node of a graph: values of another graph, tensors.
//
//   ResultMap<Values> map(g);
//   map[i] = b.clone(g.node(i), map.at(g.node(i).in));
//   b.output(map.at(g.outputs[0]));
template <class Row>
class ResultMap {
 public:
  explicit ResultMap(const Graph& g) : rows_(g.nodes.size()) {}
  Row& operator[](int32_t node) { return rows_[static_cast<size_t>(node)]; }
  const auto& at(Value v) const {
    return rows_[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
  }
  Row at(std::span<const Value> values) const {
    Row out;
    for (Value v : values) out.push_back(at(v));
    return out;
  }

 private:
  std::vector<Row> rows_;
};

// Who reads each result, and how often; outputs and updates count as uses.
class Uses {
 public:
  explicit Uses(const Graph& g);
  int count(Value v) const {
    return counts_[first_result_[static_cast<size_t>(v.node)] + static_cast<size_t>(v.index)];
  }
  int count(int32_t node) const;                        // over all results
  std::span<const int32_t> users(int32_t node) const {  // ascending, each once
    const size_t i = static_cast<size_t>(node);
    return std::span(users_).subspan(first_user_[i], first_user_[i + 1] - first_user_[i]);
  }
  bool is_output(int32_t node) const { return output_[static_cast<size_t>(node)]; }

 private:
  // Of node i: counts_ and users_ from first_...[i] to first_...[i + 1].
  std::vector<size_t> first_result_, first_user_;
  std::vector<int> counts_;
  std::vector<int32_t> users_;
  std::vector<bool> output_;
};

// The last node that reads each node; outputs and updates count as a reader behind the end.
std::vector<int32_t> last_readers(const Graph& g);

std::string to_string(Value v);

// Leaves. Their declared types are attributes, so every type in a graph is inferred.
struct LeafAttrs {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  static constexpr auto fields() {
    return Fields<&LeafAttrs::name, &LeafAttrs::dtype, &LeafAttrs::shape>();
  }
};

struct ConstantAttrs {
  Tensor value;
  static constexpr auto fields() { return Fields<&ConstantAttrs::value>(); }
};

}  // namespace rlx

template <>
struct fmt::formatter<rlx::Value> : rlx::TextFormatter {
  auto format(const rlx::Value& v, fmt::format_context& c) const {
    return put(c, rlx::to_string(v));
  }
};
