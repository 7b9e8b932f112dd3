// The op table: an op is defined once, by one OpDef with its rules beside each other.
//
//   constinit const Op<ReduceAttrs> op::reduce_sum = OpDef{
//       .name = "reduce_sum",
//       .doc = "Sum of x over the given axes.",
//       .operands = "x",
//       .infer = infer_reduce,
//       .eval = ...,
//       .vjp = ...,
//       .vmap = shift_axes,
//   };
//   Value y = op::reduce_sum(b, x, {.axes = {0}});      // on a Builder
//   Tracer's tensors: op::reduce_sum(x, {.axes = {0}})
//
// Primitives state infer, eval and derivative rules. Composites state infer and decompose;
// everything else follows from the decomposition until a rule is stated. Elementwise ops state
// `eval` through pointwise helpers, `scalar` for the code generators and `derivative` for both
// modes.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/base/function_ref.h"
#include "rlx/ir/graph.h"
#include "rlx/ir/scalar.h"

namespace rlx {

class Builder;

using Operands = std::span<const Value>;
using Tensors = std::vector<Tensor>;

struct InferArgs {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const Type> in;
  template <class A>
  const A& get() const {
    return attrs.get<A>();
  }
  std::string name(size_t i) const;  // of operand i, for messages
};

// Runs a body graph on tensors; supplied by whoever evaluates.
using GraphEvaluator = FunctionRef<Tensors(const Graph&, std::span<const Tensor>)>;

struct EvalArgs {
  const Node& node;
  std::span<const Tensor> in;
  GraphEvaluator evaluate;
  template <class A>
  const A& get() const {
    return node.attrs.get<A>();
  }
  Tensor make(int result = 0) const {
    const Type& t = node.out[static_cast<size_t>(result)];
    return Tensor(t.dtype, t.shape.sizes());
  }
};

// The transforms of body graphs, for the rules of control flow; supplied by whoever runs the rule
// (ops/control/control_hooks.h).
struct BodyTransforms;

// What derivative rules see: the original node (attributes, types), and values in the graph being
// built. A kNone tangent or cotangent is a zero; a rule may return kNone for zero.
struct JvpArgs {
  const Node& node;
  Operands in;        // primal operands
  Operands out;       // primal results
  Operands tangents;  // one per operand
  const BodyTransforms* bodies = nullptr;
};
struct VjpArgs {
  const Node& node;
  Operands in;
  Operands out;
  Operands cotangents;       // one per result
  std::vector<bool> wanted;  // one per operand: somebody needs its gradient
  const BodyTransforms* bodies = nullptr;
};
// Batched operands carry the batch axis first. The rule returns every result batched, axis first.
struct VmapArgs {
  const Node& node;
  Operands in;
  std::vector<bool> batched;
  Dim size;
  const BodyTransforms* bodies = nullptr;
};

using InferRule = Types (*)(const InferArgs&);
using NormaliseRule = void (*)(void* attrs, std::string_view op, std::span<const Type> in);
using EvalRule = Tensors (*)(const EvalArgs&);
using DecomposeRule = Values (*)(Builder&, const Node&, Operands in);
using JvpRule = Values (*)(Builder&, const JvpArgs&);
using VjpRule = Values (*)(Builder&, const VjpArgs&);
using VmapRule = Values (*)(Builder&, const VmapArgs&);
using ScalarRule = Scalar (*)(const Node&, std::span<const Scalar> in);
// How many scalar operations the op's value takes, about, on operands of these types (static sizes).
using CostRule = double (*)(const Node&, std::span<const Type> in);
// Elementwise ops: t times the partial derivative by operand i, as a value of the result's shape.
// It is applied to tangents and to cotangents alike (complex ones conjugated).
using DerivativeRule = Value (*)(Builder&, const JvpArgs&, int i, Value t);

enum class Kind : uint8_t {
  leaf,         // input, param, constant
  elementwise,  // result[i] depends on operands[i], operands broadcast
  movement,     // elements are moved, never changed
  reduction,    // folds axes
  contraction,  // sums of products
  random,       // a function of a key
  control,      // has body graphs
  composite,    // defined by its decomposition
};
inline std::span<const std::string_view> enum_names(Kind) {
  static constexpr std::string_view names[] = {"leaf",      "elementwise", "movement",
                                               "reduction", "contraction", "random",
                                               "control",   "composite"};
  return names;
}

// What it is for a program that runs step after step, as a decoder does (stages/module.h, Phase).
enum class Role : uint8_t {
  plain,
  product,  // the work of a layer: products with weights, attention
  token,    // chooses what comes next
};

// What mixed precision (transform/precision.h) is to know of an op beyond its kind, its role and its definition.
enum class Numerics : uint8_t {
  plain,
  reduction,  // to be computed as reductions are: recurrences, norms by given statistics
  sensitive,  // leaves the range or the digits of 16 bits for usual operands; f32 where others follow theirs
  exact,  // f32, unless a policy names the op: losses, ops on quantised numbers
};

// The stage of programs that an op belongs to: blocks of HIR are replaced by their definitions
// (passes/lower_blocks.cc) before anything is chosen for a device.
enum class Stage : uint8_t { hir, mir };
inline std::span<const std::string_view> enum_names(Stage) {
  static constexpr std::string_view names[] = {"hir", "mir"};
  return names;
}

// What makes an op a block of HIR, and what that stage says about it. In label and text {field} is the
// value of an attribute, and {field?words} the words, with the value for *, where it is neither false nor none.
struct Block {
  std::string_view kind;   // in JSON and counts: "SwiGLU"
  std::string_view label;  // of nodes whose author gave none
  std::string_view text;   // in dumps: "rope(d={head_dim}, n_rot={n_rot})"
  // The definition in fused ops, for those who want these at once; none: `decompose` alone.
  DecomposeRule fused = nullptr;
};

inline constexpr int kVariadic = -1;

struct OpDef {
  std::string_view name;
  std::string_view doc;
  std::string_view reference = {};  // the specification's name for it
  const Block* block = nullptr;     // of HIR: an op of that stage
  Role role = Role::plain;
  Numerics numerics = Numerics::plain;
  Kind kind = Kind::composite;
  int arity = 1;      // kVariadic: min_arity or more
  int min_arity = 0;  // for variadic ops and optional operands
  // The operands' names in order, "x, gamma, beta?": a name with ? may be left out, one with .. at the
  // end stands for any number.
  std::string_view operands = "x";
  DTypeSet dtypes = kAllDTypes;  // of operand 0
  // Results are a list, as long as operands or attributes say: Python gives a tuple, of one too.
  bool variadic_results = false;
  bool linear = false;  // in all operands together
  // It moves or chooses elements, or makes codes of floats or floats of codes: its rules take derivatives by codes, too
  // (carries() in ops/rules.h).
  bool passes_codes = false;
  bool commutative = false;
  InferRule infer = nullptr;
  NormaliseRule normalise = nullptr;
  EvalRule eval = nullptr;
  DecomposeRule decompose = nullptr;
  JvpRule jvp = nullptr;
  VjpRule vjp = nullptr;  // may return {} to decline: the decomposition is used
  // Emits the op again with extra results that vjp wants to read (a trajectory, say); reverse mode
  // uses this node in place of the plain one and passes all its results as VjpArgs::out.
  DecomposeRule with_residuals = nullptr;
  DerivativeRule derivative = nullptr;
  VmapRule vmap = nullptr;  // may return {} likewise
  ScalarRule scalar = nullptr;
  // Stated where `eval` does more than a few operations per element of operands and results; see
  // evaluation_cost (ops/evaluate.h).
  CostRule cost = nullptr;
  std::string_view not_differentiable = {};  // the reason, when the answer to jvp and vjp is 'no'
  // What graphs written in an older version of the language (ir/text.h) mean by it.
  int since = 1;  // the version in which its name and its attributes got their meaning
  std::string_view formerly = {};  // its name before that
  void (*defaults_before)(void* attrs) =
      nullptr;  // sets what attributes not given meant before that
  const AttrType* attr_type = &kAttrType<NoAttrs>;  // set by Op<A>

  Stage stage() const { return block ? Stage::hir : Stage::mir; }
  // Attributes none of which is given, in a graph of that version.
  std::shared_ptr<void> make_attrs(int version) const {
    std::shared_ptr<void> attrs = attr_type->make();
    if (version < since && defaults_before) defaults_before(attrs.get());
    return attrs;
  }
};

// The entry with these names of operands, for entries that a function makes.
constexpr OpDef named(std::string_view operands, OpDef d) {
  d.operands = operands;
  return d;
}

// The entry as one that 16 bits are too short for.
constexpr OpDef sensitive(OpDef d) {
  d.numerics = Numerics::sensitive;
  return d;
}

struct OperandName {
  std::string name;
  bool optional = false, several = false;
};
// All of them; where an entry (a user's) has fewer names than operands, "x1" stands for operand 1.
std::vector<OperandName> operand_names(const OpDef& op);
// What operand i of n is called: "labels", "xs[2]".
std::string operand_name(const OpDef& op, size_t i, size_t n);

// What a traced tensor type offers to be usable with Op's call operators: the builder that appends,
// itself as a value of a builder (raises when it belongs to another), and a tensor around the
// result.
template <class T>
concept TracedLike = requires(const T& t, Builder& b, Value v) {
  { t.builder() } -> std::same_as<Builder&>;
  { t.value_in(b) } -> std::same_as<Value>;
  { t.make(v) } -> std::same_as<T>;
};

Value emit_one(Builder& b, const OpDef& op, Attrs attrs, Operands in);  // result 0
inline Value emit(Builder& b, const OpDef& op, Attrs attrs, std::initializer_list<Value> in) {
  return emit_one(b, op, std::move(attrs), {in.begin(), in.size()});
}

template <class A = NoAttrs>
struct Op {
  OpDef def;

  constexpr Op(OpDef d) : def(d) { def.attr_type = &kAttrType<A>; }  // NOLINT: implicit by design
  constexpr const OpDef* operator&() const { return &def; }

  Value operator()(Builder& b, std::initializer_list<Value> in, A attrs = {}) const {
    return emit(b, def, std::move(attrs), in);
  }
  Value operator()(Builder& b, Value x, A attrs = {}) const {
    return emit(b, def, std::move(attrs), {x});
  }
  // Templates, so that attributes in braces are never taken for a value.
  template <std::convertible_to<Value> T>
  Value operator()(Builder& b, Value x, T y, A attrs = {}) const {
    return emit(b, def, std::move(attrs), {x, y});
  }
  template <std::convertible_to<Value> T, std::convertible_to<Value> U>
  Value operator()(Builder& b, Value x, T y, U z, A attrs = {}) const {
    return emit(b, def, std::move(attrs), {x, y, z});
  }
  template <TracedLike T>
  T operator()(const T& x, A attrs = {}) const {
    return traced<T>({&x}, std::move(attrs));
  }
  template <TracedLike T>
  T operator()(const T& x, const T& y, A attrs = {}) const {
    return traced<T>({&x, &y}, std::move(attrs));
  }
  template <TracedLike T>
  T operator()(const T& x, const T& y, const T& z, A attrs = {}) const {
    return traced<T>({&x, &y, &z}, std::move(attrs));
  }
  bool is(const Node& n) const { return n.op == &def; }

 private:
  template <TracedLike T>
  T traced(std::initializer_list<const T*> operands, A attrs) const {
    const T& first = **operands.begin();
    Builder& b = first.builder();
    Value in[3];
    size_t n = 0;
    for (const T* x : operands) in[n++] = x->value_in(b);
    return first.make(emit_one(b, def, std::move(attrs), {in, n}));
  }
};

// A family is an array of entries; table.cc of ops/ lists the families. Lookups are by name.
struct Family {
  std::string_view name;
  std::span<const OpDef* const> ops;
};

// Any thread may read and add at any time.
class OpTable {
 public:
  explicit OpTable(std::span<const Family* const> families);
  // Adds a user's op under the same rights. Raises Error(user) "op-name" when the name is taken or
  // empty, "op-rule" when it does not state how types follow, or has no value.
  void add(const OpDef& op, std::string_view family);
  // nullptr when unknown. The version is that of the text or bytes with the name.
  const OpDef* find(std::string_view name, int version = kLanguageVersion) const;
  struct Entry {
    const OpDef* op;
    std::string_view family;
  };
  // Those there are now; stays as it is when more are added.
  std::span<const Entry> entries() const;

 private:
  mutable std::shared_mutex mutex_;
  // The last one holds all entries; what older ones hold is still being read somewhere.
  std::vector<std::unique_ptr<Entry[]>> blocks_;
  size_t size_ = 0, capacity_ = 0;
  std::map<std::string_view, const OpDef*> by_name_, formerly_;
};

}  // namespace rlx
