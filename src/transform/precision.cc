#include "rlx/transform/precision.h"

#include <algorithm>
#include <cmath>

#include "rlx/ops/core.h"
#include "rlx/ops/region.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

constexpr const char* kPrecisionPass = "auto_mixed_precision";

using Rule = PrecisionPolicy::Rule;

bool is_f32(const Type& t) { return t.dtype == DType::F32; }

bool has_bodies(const Node& n) { return !bodies(n.attrs).empty(); }

// ---- kinds

// What is left to no policy by kind: draws, and what cannot be looked into.
struct OpCategory {
  PrecisionOpKind kind = PrecisionOpKind::elementwise;
  bool exact = false;
};

OpCategory category_of(const Graph& g, const Node& n);

// Of all nodes of a definition: products count for most, then reductions, then arithmetic.
OpCategory category_of_all(const Graph& g, OpCategory found) {
  for (const Node& n : g.nodes) {
    if (n.op->kind == Kind::leaf || n.op == &op::cast) continue;
    const OpCategory c = category_of(g, n);
    found.kind = std::min(found.kind, c.kind);
    found.exact |= c.exact;
  }
  return found;
}

OpCategory category_of_definition(const Graph& g, const Node& n) {
  Builder b("definition");
  Values in;
  for (Value v : n.in) in.push_back(b.input(fmt::format("x{}", in.size()), g.type(v)));
  try {
    b.expand(n, in);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::user && e.kind() != ErrorKind::unsupported) throw;
    return {PrecisionOpKind::compute, true};
  }
  return category_of_all(b.graph(), {PrecisionOpKind::data_movement});
}

OpCategory category_of(const Graph& g, const Node& n) {
  const bool exact = n.op->numerics == Numerics::exact;
  if (n.op->numerics == Numerics::reduction) return {PrecisionOpKind::reduction};
  if (n.op->role == Role::product) return {PrecisionOpKind::compute, exact};
  switch (n.op->kind) {
    case Kind::leaf:
      return {PrecisionOpKind::boundary};
    case Kind::elementwise:
      return {PrecisionOpKind::elementwise, exact};
    case Kind::movement:
      return {PrecisionOpKind::data_movement, exact};
    case Kind::reduction:
      return {PrecisionOpKind::reduction, exact};
    case Kind::contraction:
      return {PrecisionOpKind::compute, exact};
    case Kind::random:
      return {PrecisionOpKind::elementwise, true};
    case Kind::control: {
      OpCategory found{PrecisionOpKind::data_movement, exact};
      for (const NamedBody& body : bodies(n.attrs)) found = category_of_all(body.graph, found);
      return found;
    }
    case Kind::composite:
      break;
  }
  if (exact) return {PrecisionOpKind::reduction, true};
  return n.op->decompose ? category_of_definition(g, n)
                         : OpCategory{PrecisionOpKind::compute, true};
}

// Categories of ops with parts are found once for equal attributes.
class Categories {
 public:
  OpCategory of(const Graph& g, const Node& n) {
    const bool by_parts = n.op->kind == Kind::composite || n.op->kind == Kind::control;
    if (!by_parts) return category_of(g, n);
    for (const Known& k : known_[n.op])
      if (k.attrs == n.attrs) return k.category;
    const OpCategory found = category_of(g, n);
    known_[n.op].push_back({n.attrs, found});
    return found;
  }

 private:
  struct Known {
    Attrs attrs;
    OpCategory category;
  };
  std::unordered_map<const OpDef*, std::vector<Known>> known_;
};

// What all graphs of one run share: the program and the bodies in it.
struct Run {
  const PrecisionPolicy& policy;
  Categories categories = {};
  int narrow = 0;  // ops that the policy wants in 16 bits and that are
};

// ---- one graph

class Mixer {
 public:
  Mixer(Builder& b, Run& run)
      : b_(b), run_(run), end_(b.graph().size()), origin_(b, kPrecisionPass) {}

  Values operator()(Operands values) {
    look(values);
    for (int32_t i = 0; i < end_; ++i)
      if (needed_[at(i)]) visit(i);
    Graph& g = b_.mutable_graph();
    for (Value& v : g.outputs) v = as_before(v);
    for (Update& u : g.updates) u.value = as_before(u.value);
    Values out;
    for (Value v : values) out.push_back(as_before(v));
    return out;
  }

 private:
  // What has become of a value of f32: its form in each precision as far as somebody asked, and the one it is
  // computed in.
  struct Forms {
    Value in[3] = {kNone, kNone, kNone};
    Precision home = Precision::F32;
  };

  const Node& node(int32_t i) const { return b_.graph().node(i); }

  // Which operands have no say in what precision an op follows into: parameters, constants and masks, and of inputs those
  // of a lower rank than the result, since weights may be inputs; all of them also moved around.
  enum class Along : uint8_t { no, if_lower, yes };

  // What the walk needs to know of nodes that come later, and which values go along with others.
  void look(Operands values) {
    const Graph& g = b_.graph();
    Values roots(values.begin(), values.end());
    roots.insert(roots.end(), g.outputs.begin(), g.outputs.end());
    const std::vector<bool> shown = needed_nodes(g, roots, 0, end_);
    for (const Update& u : g.updates) roots.push_back(u.value);
    needed_ = needed_nodes(g, roots, 0, end_);
    for (int32_t i = 0; i < end_; ++i) {
      const Node& n = node(i);
      const bool moves = n.op->kind == Kind::movement && n.in.size() == 1;
      const bool mask = n.op == &op::cast && g.type(n.in[0]).dtype == DType::Bool;
      along_.push_back(moves                ? along_[at(n.in[0].node)]
                       : n.op == &op::input ? Along::if_lower
                       : n.op == &op::param || n.op == &op::constant || mask ? Along::yes
                                                                             : Along::no);
    }
    // Backwards: what leads to a product or is shown.
    tail_.assign(at(end_), true);
    for (int32_t i = end_; i-- > 0;) {
      if (!needed_[at(i)]) continue;
      const bool product = wanted(i) != nullptr && category(i).kind == PrecisionOpKind::compute;
      if (shown[at(i)] || product) tail_[at(i)] = false;
      if (!tail_[at(i)])
        for (Value v : node(i).in) tail_[at(v.node)] = false;
    }
  }

  OpCategory category(int32_t i) { return run_.categories.of(b_.graph(), node(i)); }

  // The rule for a node; nullptr: f32.
  const Rule* rule_of(int32_t i) {
    const OpDef& op = *node(i).op;
    if (op.kind == Kind::leaf) return nullptr;
    if (const Rule* own = run_.policy.rule(op)) return own;
    const OpCategory c = category(i);
    if (c.exact) return nullptr;
    const Rule& rule = run_.policy.rule(c.kind);
    return rule.follows && op.numerics == Numerics::sensitive ? nullptr : &rule;
  }
  // The rule where it asks for 16 bits outright.
  const Rule* wanted(int32_t i) {
    const Rule* rule = rule_of(i);
    return rule && !rule->follows && rule->precision != Precision::F32 ? rule : nullptr;
  }

  void visit(int32_t i) {
    const Node& n = node(i);
    if (n.op->kind == Kind::leaf) return;
    if (n.op == &op::cast) return visit_cast(i);
    if (has_bodies(n)) return visit_bodies(i);
    if (const Rule* rule = wanted(i); rule && !tail_[at(i)] && is_already(n, rule->precision))
      ++run_.narrow;
    const Precision p = precision_of(i);
    if (p != Precision::F32) {
      emit(i, p);
      if (wanted(i)) ++run_.narrow;
      return;
    }
    if (std::any_of(n.in.begin(), n.in.end(), [&](Value v) { return as_before(v) != v; }))
      emit(i, Precision::F32);
  }

  // A cast keeps its target, and reads what there is.
  void visit_cast(int32_t i) {
    const Node& n = node(i);
    const Value from = n.in[0], own{i, 0};
    if (!is_f32(b_.type(from))) {
      if (const Value now = as_before(from); now != from)
        set(own, op::cast(b_, now, n.get<CastAttrs>()));
      return;
    }
    const Forms& f = forms(from);
    const Value home = f.in[static_cast<size_t>(f.home)];
    if (home == from) return;
    const DType to = n.get<CastAttrs>().to;
    origin_.of(n);
    set(own, cast_to(b_, home, to));
  }

  // What a loop reads in all steps is cast inside, so that its cotangents are summed in f32.
  void visit_bodies(int32_t i) {
    const Node n = node(i);
    Attrs attrs = n.attrs;
    if (n.op != &op::region)
      attrs = map_bodies(attrs, [&](const Body& body) {
        Builder inner;
        inner.mutable_graph() = *body;
        Mixer(inner, run_)({});
        if (inner.graph() == *body) return body;
        return Body(drop_dead(inner.finish()));
      });
    Values in;
    for (Value v : n.in) in.push_back(as_before(v));
    if (std::equal(in.begin(), in.end(), n.in.begin(), n.in.end()) && attrs == n.attrs) return;
    origin_.of(n);
    const Values out = b_.emit(*n.op, attrs, in);
    for (size_t k = 0; k < out.size(); ++k) set({i, static_cast<int32_t>(k)}, out[k]);
  }

  // Whether the node's floats are of that dtype as it is.
  bool is_already(const Node& n, Precision p) const {
    return std::any_of(n.in.begin(), n.in.end(),
                       [&](Value v) { return b_.type(v).dtype == dtype(p); }) &&
           std::any_of(n.out.begin(), n.out.end(),
                       [&](const Type& t) { return t.dtype == dtype(p); });
  }

  Precision precision_of(int32_t i) {
    const Rule* rule = rule_of(i);
    const Node& n = node(i);
    if (!rule || tail_[at(i)] || n.out.empty() || !is_f32(n.out[0])) return Precision::F32;
    for (Value v : n.in)
      if (const DType d = b_.type(v).dtype; d != DType::F32 && (is_float(d) || is_complex(d)))
        return Precision::F32;
    const Precision p = rule->follows ? home_of_operands(n) : rule->precision;
    return p != Precision::F32 && holds_constants(i, p) && takes(n, p) ? p : Precision::F32;
  }

  // The one precision that the operands are computed in, those that go along apart.
  Precision home_of_operands(const Node& n) {
    std::optional<Precision> found;
    for (Value v : n.in) {
      const Along along = along_[at(v.node)];
      if (!is_f32(b_.type(v)) || along == Along::yes) continue;
      if (along == Along::if_lower && b_.type(v).rank() < n.out[0].rank()) continue;
      const Precision home = forms(v).home;
      if (found && *found != home) return Precision::F32;
      found = home;
    }
    return found.value_or(Precision::F32);
  }

  // Constants that become infinite, or in arithmetic 0, are not what the program says.
  bool holds_constants(int32_t i, Precision p) {
    const bool zero_is_fine = category(i).kind == PrecisionOpKind::compute;
    const DTypeInfo& to = info(dtype(p));
    for (Value v : node(i).in) {
      if (!is_f32(b_.type(v))) continue;
      const Node* root = &b_.node(v);
      while (root->op->kind == Kind::movement && root->in.size() == 1) root = &b_.node(root->in[0]);
      if (root->op != &op::constant) continue;
      const Tensor& value = root->get<ConstantAttrs>().value;
      const float* x = value.data<float>();
      for (int64_t k = 0; k < value.elements(); ++k) {
        const float rounded = to.narrow->to_float(to.narrow->from_float(x[k]));
        if (std::isinf(rounded) && !std::isinf(x[k])) return false;
        if (rounded == 0 && x[k] != 0 && !zero_is_fine) return false;
      }
    }
    return true;
  }

  // Whether the op has a value there, and its first result becomes that dtype; others may stay (the log-sum-exp of
  // attention is f32).
  bool takes(const Node& n, Precision p) const {
    std::vector<Type> in;
    for (Value v : n.in) {
      in.push_back(b_.type(v));
      if (is_f32(in.back())) in.back().dtype = dtype(p);
    }
    if (!in.empty() && !n.op->dtypes.has(in[0].dtype)) return false;
    try {
      const Types out = infer_types(*n.op, n.attrs, in);
      for (size_t k = 0; k < out.size(); ++k) {
        const bool narrowed = is_f32(n.out[k]) && out[k].dtype == dtype(p);
        if (!narrowed && (k == 0 || out[k].dtype != n.out[k].dtype)) return false;
      }
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::user && e.kind() != ErrorKind::unsupported) throw;
      return false;
    }
    return true;
  }

  void emit(int32_t i, Precision p) {
    const Node n = node(i);  // the builder moves its own
    Values in;
    for (Value v : n.in) in.push_back(form(v, p));
    origin_.of(n);
    const Values out = b_.clone(n, in);
    for (size_t k = 0; k < out.size(); ++k)
      set({i, static_cast<int32_t>(k)}, out[k],
          is_f32(n.out[k]) && !is_f32(b_.type(out[k])) ? p : Precision::F32);
  }

  void set(Value v, Value now, Precision home = Precision::F32) {
    Forms f;
    f.home = home;
    f.in[static_cast<size_t>(home)] = now;
    forms_[v] = f;
  }
  Forms& forms(Value v) {
    const auto [it, fresh] = forms_.try_emplace(v);
    if (fresh) it->second.in[0] = v;
    return it->second;
  }

  // The value in its own dtype.
  Value as_before(Value v) { return form(v, Precision::F32); }

  // A value of f32 in that precision; others as they are.
  Value form(Value v, Precision p) {
    const Forms& f = forms(v);
    if (!is_f32(b_.type(v))) return f.in[0];
    if (const Value there = f.in[static_cast<size_t>(p)]; there.valid()) return there;
    const Value made = p == Precision::F32 || f.home != Precision::F32
                           ? cast(f.in[static_cast<size_t>(f.home)], p, v)
                           : narrowed(v, p);
    forms(v).in[static_cast<size_t>(p)] = made;
    return made;
  }

  Value cast(Value from, Precision p, Value of) {
    origin_.of(b_.node(of));
    return cast_to(b_, from, dtype(p));
  }

  // A value that is computed in f32, in 16 bits: without the cast that made it f32, with what it is moved from in 16
  // bits where that is a parameter, else cast.
  Value narrowed(Value v, Precision p) {
    const Value now = forms(v).in[0];
    const Node n = b_.node(now);
    if (n.op == &op::cast) {
      const DType from = b_.type(n.in[0]).dtype;
      if (from == dtype(p) || from == DType::Bool) return cast(n.in[0], p, v);
    }
    if (n.op == &op::constant) {
      origin_.of(n);
      return b_.constant(cast_tensor(n.get<ConstantAttrs>().value, dtype(p)));
    }
    if (now == v && along_[at(v.node)] != Along::no && n.op->kind == Kind::movement) {
      const Value source = form(n.in[0], p);
      origin_.of(n);
      return b_.clone(n, Values{source})[0];
    }
    return cast(now, p, v);
  }

  Builder& b_;
  Run& run_;
  int32_t end_;
  OriginScope origin_;
  std::vector<bool> needed_;
  std::vector<Along> along_;
  std::vector<bool> tail_;  // leads to updates alone, and through no product
  std::unordered_map<Value, Forms, ValueHash> forms_;
};

// What a policy computes in 16 bits, in words.
std::string narrow_names(const PrecisionPolicy& policy) {
  std::vector<std::string> names;
  for (size_t k = 0; k < kPrecisionOpKinds; ++k) {
    const auto kind = static_cast<PrecisionOpKind>(k);
    const Rule& rule = policy.rule(kind);
    if (!rule.follows && rule.precision != Precision::F32) names.emplace_back(enum_names(kind)[k]);
  }
  for (const auto& [name, rule] : policy.ops())
    if (!rule.follows && rule.precision != Precision::F32) names.push_back(name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

PrecisionOpKind precision_kind(const Graph& g, const Node& n) { return category_of(g, n).kind; }

Values mixed_precision(Builder& b, Operands values, const PrecisionPolicy& policy) {
  if (policy.is_f32()) return {values.begin(), values.end()};
  Run run{policy};
  Builder all = b;
  Values out = Mixer(all, run)(values);
  if (run.narrow == 0 && !policy.asks_by_name()) return {values.begin(), values.end()};
  user_check(run.narrow > 0, "policy-idle",
             "mixed precision: \"{}\" has no op of f32 that the policy computes in {} (kinds and "
             "ops that it does: {})",
             b.graph().name, to_string(policy.narrow()), narrow_names(policy));
  b = std::move(all);
  return out;
}

Graph mixed_precision(const Graph& g, const PrecisionPolicy& policy) {
  Builder b;
  b.mutable_graph() = g;
  mixed_precision(b, {}, policy);
  if (b.graph() == g) return g;
  return drop_dead(b.finish(), true);
}

}  // namespace rlx
