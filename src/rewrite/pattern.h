// Patterns: what a rewrite rule looks for, written the way one writes the expression.
//
//   pat(op::mul, {x, one})                                   x * 1, either order: commutative
//   pat(op::transpose, {pat(op::transpose, {x}).as(y)})      y names the inner transpose
//   pat(op::sub, {x, x})                                     the same value twice
//   pat(op::concat)                                          a concat of any operands
//   pat({op::reduce_max, op::reduce_min}, {x})               any of these ops
//   pat(Kind::elementwise)                                   any op of the kind
//
// A pattern without an op and a test is a variable: it matches every value. A splat pattern (`one`,
// `zero`, `splat`) matches a constant whose elements all have the same bits, also behind broadcast
// and reshape. Operands of commutative ops are tried in both orders.
#pragma once

#include <array>
#include <string>
#include <unordered_map>

#include "rlx/ops/core.h"

namespace rlx {

// A named slot that a match fills. Comparing and binding go by id.
struct Var {
  int id;
};
inline constexpr int kMaxVars = 6;

// Whether all elements (at least one) have the same bits; the first one as a tensor of rank 0.
bool is_splat(const Tensor& t);
Tensor first_element(const Tensor& t);
// The one value that all elements of `v` have, when v is a constant of equal elements, perhaps
// broadcast or reshaped.
std::optional<Complex> splat_value(const Graph& g, Value v);
// Whether two values have one and the same bits in all their elements, as far as is known.
bool same_elements(const Graph& g, Value a, Value b);
// That value as a rank-0 constant of the same bits. v must be such a constant.
Value splat_scalar(Builder& b, Value v);

struct Pattern {
  using SplatTest = bool (*)(DType, Complex);
  enum class Form : uint8_t { variable, splat, node };

  Form form = Form::variable;
  int var = -1;  // the slot filled by what this pattern matches
  SplatTest test = nullptr;
  std::vector<const OpDef*> ops;  // empty in a node pattern: any op of `kind`
  Kind kind = Kind::leaf;
  std::optional<std::vector<Pattern>> operands;  // none: any operands

  Pattern(Var v) : var(v.id) {}  // NOLINT: implicit by design
  explicit Pattern(Form f) : form(f) {}

  Pattern as(Var v) const {
    Pattern p = *this;
    p.var = v.id;
    return p;
  }
};

// The ops a pattern may name: implicit from any Op<A>.
struct OpRef {
  const OpDef* op;
  template <class A>
  OpRef(const Op<A>& o) : op(&o) {}  // NOLINT: implicit by design
};

Pattern pat(OpRef op);
Pattern pat(OpRef op, std::vector<Pattern> operands);
Pattern pat(std::initializer_list<OpRef> ops);
Pattern pat(std::initializer_list<OpRef> ops, std::vector<Pattern> operands);
Pattern pat(Kind kind);

Pattern constant_splat(Pattern::SplatTest test);

// The words of rules: variables and constants. Files with rules say `using namespace rule_words`.
namespace rule_words {
inline constexpr Var x{0}, y{1}, z{2}, c{3}, d{4}, e{5};
inline const Pattern any_splat = constant_splat([](DType, Complex) { return true; });
inline const Pattern zero = constant_splat([](DType, Complex v) { return v == Complex(0); });
inline const Pattern one = constant_splat([](DType, Complex v) { return v == Complex(1); });
inline const Pattern two = constant_splat([](DType, Complex v) { return v == Complex(2); });
inline const Pattern minus_one = constant_splat([](DType, Complex v) { return v == Complex(-1); });
}  // namespace rule_words

// What a walk knows beside the graph.
struct Walk {
  bool fast_math;
  std::span<const int> uses;  // readers of each node
  std::span<const Update> updates;
  std::unordered_map<int32_t, Shape>& notes;  // by node
};

// What a condition and a replacement see: the bound values, and the node that is to be replaced
// (not part of the graph yet).
class Match {
 public:
  Match(const Graph& graph, const Node& root, const Walk& walk, const Node* reader)
      : graph_(graph), root_(root), walk_(walk), reader_(reader) {}

  Value operator[](Var v) const { return values_[static_cast<size_t>(v.id)]; }
  const Type& type(Var v) const { return graph_.type((*this)[v]); }
  const Shape& shape(Var v) const { return type(v).shape; }
  const Node& node(Var v) const { return graph_.node((*this)[v]); }
  const Node& root() const { return root_; }
  const Type& type() const { return root_.type(); }
  template <class A>
  const A& get() const {
    return root_.get<A>();
  }
  template <class A>
  const A& get(Var v) const {
    return node(v).get<A>();
  }
  Complex splat(Var v) const { return *splat_value(graph_, (*this)[v]); }
  const Graph& graph() const { return graph_; }
  // Those of the whole program: which parameters are written. Their values are not of graph().
  std::span<const Update> updates() const { return walk_.updates; }
  // The option of that name; rules that may change a value ask for it.
  bool fast_math() const { return walk_.fast_math; }
  // Nobody but the matched expression reads the node of `v`, as far as the walk has come.
  bool single_use(Var v) const { return single_use((*this)[v]); }
  bool single_use(Value v) const { return walk_.uses[static_cast<size_t>(v.node)] <= 1; }
  // The node that alone reads the root, as it was before the walk; nullptr where there are more, or none, or it is not known.
  const Node* reader() const { return reader_; }
  // What a rule found out about the node of an operand, empty at first; it stays for this walk.
  Shape& note(Var v) const { return walk_.notes[(*this)[v].node]; }

  // A near miss: what a rule looks for is there but for this. For the report; false, as the condition is then. The first
  // reason stands.
  bool refuse(std::string why) const {
    if (why_.empty()) why_ = std::move(why);
    return false;
  }
  const std::string& refusal() const { return why_; }  // empty: none

  // Matches the root against a node pattern and fills the slots.
  bool run(const Pattern& p);

 private:
  bool match_value(const Pattern& p, Value v);
  bool match_operands(const Pattern& p, const Node& n);
  bool bind(int var, Value v);

  const Graph& graph_;
  const Node& root_;
  Walk walk_;
  const Node* reader_;
  std::array<Value, kMaxVars> values_{};
  mutable std::string why_;
};

bool matches_op(const Pattern& p, const OpDef& op);

}  // namespace rlx
