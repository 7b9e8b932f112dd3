#include "rlx/ir/builder.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <unordered_set>

#include "rlx/ir/verify.h"

namespace rlx {

namespace op {

namespace {
Types infer_leaf(const InferArgs& a) {
  const auto& leaf = a.get<LeafAttrs>();
  user_check(!leaf.name.empty(), "leaf-name", "{}: a leaf needs a name", a.op.name);
  for (const Dim& d : leaf.shape)
    user_check(!d.is_static() || d.value() >= 0, "negative-dim", "{} \"{}\": a dim cannot be {}",
               a.op.name, leaf.name, d);
  return {{leaf.dtype, leaf.shape}};
}
}  // namespace

constinit const Op<LeafAttrs> input = OpDef{
    .name = "input",
    .doc = "A tensor bound by name at each run.",
    .reference = "Input",
    .kind = Kind::leaf,
    .arity = 0,
    .operands = "",
    .infer = infer_leaf,
};

constinit const Op<LeafAttrs> param = OpDef{
    .name = "param",
    .doc = "A persistent tensor bound by name once; updates may write it.",
    .reference = "Param",
    .kind = Kind::leaf,
    .arity = 0,
    .operands = "",
    .infer = infer_leaf,
};

constinit const Op<ConstantAttrs> constant = OpDef{
    .name = "constant",
    .doc = "A tensor known when the program is built.",
    .reference = "Constant",
    .kind = Kind::leaf,
    .arity = 0,
    .operands = "",
    .infer = [](const InferArgs& a) -> Types { return {a.get<ConstantAttrs>().value.type()}; },
    .eval = [](const EvalArgs& e) -> Tensors { return {e.get<ConstantAttrs>().value}; },
};

}  // namespace op

namespace {

std::string describe(const Graph& g, Operands in) {
  std::string out;
  for (Value v : in)
    out += (out.empty() ? "" : ", ") + (v.valid() ? g.type(v).to_string() : "none");
  return out;
}

void check_operands(const Graph& g, const OpDef& op, Operands in) {
  const int n = static_cast<int>(in.size());
  const std::string wrong = wrong_arity(op, n);
  user_check(wrong.empty(), "arity", "{}: {}", op.name, wrong);
  for (Value v : in)
    user_check(v.node >= 0 && v.node < g.size() && v.index >= 0 &&
                   v.index < static_cast<int32_t>(g.node(v).out.size()),
               "operand-value", "{}: operand {} is not a value of this graph", op.name, v);
  if (n > 0 && !op.dtypes.has(g.type(in[0]).dtype))
    fail(ErrorKind::user, "dtype", "{}: does not take {}; allowed are {} (operands: {})", op.name,
         g.type(in[0]).dtype, op.dtypes.to_string(), describe(g, in));
}

}  // namespace

Types infer_types(const OpDef& op, const Attrs& attrs, std::span<const Type> in) {
  Types out = op.infer(InferArgs{op, attrs, in});
  for (const Type& t : out)
    user_check(t.rank() <= kMaxRank, "rank", "{}: the result has rank {}, the most is {}", op.name,
               t.rank(), kMaxRank);
  return out;
}

Builder::Builder(std::string name) { graph_.name = std::move(name); }

const Type& Builder::type(Value v) const {
  user_check(v.node >= 0 && v.node < graph_.size() && v.index >= 0 &&
                 v.index < static_cast<int32_t>(graph_.node(v).out.size()),
             "operand-value", "{} is not a value of graph \"{}\"", v, graph_.name);
  return graph_.type(v);
}

Values Builder::emit(const OpDef& op, Attrs attrs, Operands in) {
  return within_memory([&] {
    user_check(attrs.type() == op.attr_type, "attributes", "{}: attributes of another op", op.name);
    check_operands(graph_, op, in);
    if (expanding_ && graph_.size() >= limit_)
      fail(ErrorKind::unsupported, "definition-size",
           "{}: its definition would have more than {} nodes", expanding_->name, limit_ - start_);
    Types types;
    for (Value v : in) types.push_back(graph_.type(v));
    if (op.normalise) {
      std::shared_ptr<void> copy = attrs.copy();
      op.normalise(copy.get(), op.name, types);
      attrs = Attrs(op.attr_type, std::move(copy));
    }
    Node n{&op, std::move(attrs), {in.begin(), in.end()}, {}, {label_, pass_}};
    n.out = infer_types(op, n.attrs, types);
    Values results;
    for (size_t i = 0; i < n.out.size(); ++i)
      results.push_back({graph_.size(), static_cast<int32_t>(i)});
    graph_.nodes.push_back(std::move(n));
    return results;
  });
}

Value emit_one(Builder& b, const OpDef& op, Attrs attrs, Operands in) {
  return b.emit(op, std::move(attrs), in)[0];
}

Values Builder::clone(const Node& n, Operands in) {
  const SharedText label = label_, pass = pass_;
  if (!n.origin.label.empty()) label_ = n.origin.label;
  if (!n.origin.pass.empty()) pass_ = n.origin.pass;
  Values out = emit(*n.op, n.attrs, in);
  label_ = label, pass_ = pass;
  return out;
}

Values Builder::expand(const Node& n, Operands in) {
  check(n.op->decompose, "{} has no decomposition", n.op->name);
  // A rule that expands another op on its way shares the outer limit.
  if (expanding_) return n.op->decompose(*this, n, in);
  struct Guard {
    Builder& b;
    ~Guard() { b.expanding_ = nullptr; }
  } guard{*this};
  expanding_ = n.op;
  start_ = graph_.size();
  limit_ = start_ + std::max(kMaxDefinition, 4 * static_cast<int32_t>(in.size()));
  // Bodies were written by somebody already; they do not count.
  for (const NamedBody& body : bodies(n.attrs)) limit_ += 2 * body.graph.size();
  return n.op->decompose(*this, n, in);
}

Values Builder::inline_graph(const Graph& body, Operands inputs) {
  return within_memory([&] {
    ResultMap<Values> map(body);
    size_t next = 0;
    for (int32_t i = 0; i < body.size(); ++i) {
      const Node& n = body.node(i);
      if (n.op == &op::input) {
        check(next < inputs.size(), "inline_graph: too few inputs for \"{}\"", body.name);
        map[i] = {inputs[next++]};
        continue;
      }
      map[i] = clone(n, map.at(n.in));
    }
    check(next == inputs.size(), "inline_graph: too many inputs for \"{}\"", body.name);
    return map.at(body.outputs);
  });
}

Value Builder::input(std::string name, Type type) {
  return op::input(*this, {}, {std::move(name), type.dtype, std::move(type.shape)});
}
Value Builder::param(std::string name, Type type) {
  return op::param(*this, {}, {std::move(name), type.dtype, std::move(type.shape)});
}
Value Builder::constant(Tensor value) { return op::constant(*this, {}, {std::move(value)}); }

void Builder::update(std::string param, Value v) {
  within_memory([&] {
    const Value leaf = find_leaf(param);
    user_check(leaf.valid() && graph_.node(leaf).op == &op::param, "update-target",
               "update: there is no parameter \"{}\"", param);
    user_check(type(v) == graph_.type(leaf), "update-type",
               "update: parameter \"{}\" is {}, the new value is {}", param, graph_.type(leaf),
               type(v));
    user_check(!names().updated.contains(param), "update-twice",
               "update: parameter \"{}\" is updated twice", param);
    graph_.updates.push_back({std::move(param), v});
  });
}

const Builder::Names& Builder::names() const {
  for (; names_.nodes < graph_.nodes.size(); ++names_.nodes) {
    const Node& n = graph_.nodes[names_.nodes];
    if (n.op == &op::input || n.op == &op::param)
      names_.leaves.try_emplace(n.get<LeafAttrs>().name,
                                Value{static_cast<int32_t>(names_.nodes), 0});
  }
  for (; names_.updates < graph_.updates.size(); ++names_.updates)
    names_.updated.insert(graph_.updates[names_.updates].param);
  return names_;
}

Value Builder::find_leaf(std::string_view name) const {
  const auto& leaves = names().leaves;
  const auto found = leaves.find(std::string(name));
  return found == leaves.end() ? kNone : found->second;
}

Graph Builder::finish() {
  return within_memory([&] {
    verify(graph_);
    names_ = {};
    return std::move(graph_);
  });
}

Graph rebuild(const Graph& g, FunctionRef<Values(Builder&, int32_t, Operands)> make) {
  Builder b(g.name);
  ResultMap<Values> map(g);
  for (int32_t i = 0; i < g.size(); ++i) {
    b.set_origin(g.node(i).origin);
    map[i] = make(b, i, map.at(g.node(i).in));
  }
  Graph out = std::move(b.mutable_graph());
  out.outputs = map.at(g.outputs);
  for (const Update& u : g.updates) out.updates.push_back({u.param, map.at(u.value)});
  return out;
}

namespace {

// A body need not have all the symbols of the graph around it.
Graph bind_known(const Graph& g, const DimBinding& binding) {
  const auto bound = [&](const Attrs& attrs) {
    return map_bodies(map_dims(attrs, [&](const Dim& d) { return d.bind(binding); }),
                      [&](const Body& b) { return Body(bind_known(*b, binding)); });
  };
  return rebuild(g, [&](Builder& b, int32_t i, Operands in) {
    return b.emit(*g.node(i).op, bound(g.node(i).attrs), in);
  });
}

}  // namespace

Graph bind(const Graph& g, const DimBinding& binding) {
  const std::vector<std::string> symbols = g.symbols();
  for (const auto& [symbol, size] : binding) {
    user_check(size >= 0, "bind-size", "bind: symbol ?{} cannot be {}", symbol, size);
    user_check(std::find(symbols.begin(), symbols.end(), symbol) != symbols.end(), "dim-unknown",
               "graph \"{}\" has no dim ?{}; it has {}", g.name, symbol,
               symbols.empty() ? "none" : fmt::format("?{}", fmt::join(symbols, ", ?")));
  }
  return bind_known(g, binding);
}

Graph drop_dead(Graph g, bool keep_params) {
  std::vector<bool> live(g.nodes.size(), false);
  std::unordered_set<std::string_view> written;
  for (Value v : g.outputs) live[static_cast<size_t>(v.node)] = true;
  for (const Update& u : g.updates) {
    live[static_cast<size_t>(u.value.node)] = true;
    written.insert(u.param);
  }
  size_t dead = 0;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    if (n.op == &op::input ||
        (n.op == &op::param && (keep_params || written.contains(n.get<LeafAttrs>().name))))
      live[i] = true;
    if (!live[i]) {
      ++dead;
      continue;
    }
    for (Value v : n.in) live[static_cast<size_t>(v.node)] = true;
  }
  if (dead == 0) return g;
  // What stays moves up within the list.
  std::vector<int32_t> map(g.nodes.size());
  auto move = [&](Value& v) { v.node = map[static_cast<size_t>(v.node)]; };
  size_t kept = 0;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (!live[i]) continue;
    map[i] = static_cast<int32_t>(kept);
    if (kept != i) g.nodes[kept] = std::move(g.nodes[i]);
    for (Value& v : g.nodes[kept].in) move(v);
    ++kept;
  }
  g.nodes.resize(kept);
  for (Value& v : g.outputs) move(v);
  for (Update& u : g.updates) move(u.value);
  return g;
}

std::vector<OperandName> operand_names(const OpDef& op) {
  std::vector<OperandName> out;
  std::string_view rest = op.operands;
  while (!rest.empty()) {
    const size_t comma = rest.find(", ");
    std::string_view name = rest.substr(0, comma);
    OperandName n;
    n.optional = name.ends_with('?');
    if (n.optional) name.remove_suffix(1);
    n.several = name.ends_with("..");
    if (n.several) name.remove_suffix(2);
    n.name = name;
    out.push_back(std::move(n));
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 2);
  }
  if (op.arity == kVariadic && (out.empty() || !out.back().several))
    out = {{.name = "xs", .several = true}};
  while (op.arity != kVariadic && static_cast<int>(out.size()) < op.arity)
    out.push_back({.name = fmt::format("x{}", out.size())});
  return out;
}

std::string operand_name(const OpDef& op, size_t i, size_t n) {
  std::vector<OperandName> names = operand_names(op);
  // Which of several optional ones are missing only attributes say; all of them, or those at the end.
  const auto optional = [](const OperandName& o) { return o.optional; };
  const auto required =
      static_cast<size_t>(std::count_if(names.begin(), names.end(), std::not_fn(optional)));
  if (n == required) std::erase_if(names, optional);
  if (!names.empty() && names.back().several && i + 1 >= names.size())
    return fmt::format("{}[{}]", names.back().name, i + 1 - names.size());
  return i < names.size() ? names[i].name : fmt::format("operand {}", i);
}

std::string InferArgs::name(size_t i) const { return operand_name(op, i, in.size()); }

OpTable::OpTable(std::span<const Family* const> families) {
  for (const Family* f : families)
    for (const OpDef* op : f->ops) add(*op, f->name);
}

void OpTable::add(const OpDef& op, std::string_view family) {
  user_check(!op.name.empty(), "op-name", "an op needs a name");
  user_check(op.infer != nullptr, "op-rule", "op \"{}\" must state infer: the types of its results",
             op.name);
  user_check(op.eval || op.decompose || op.kind == Kind::leaf, "op-rule",
             "op \"{}\" must state eval or decompose: the values of its results", op.name);
  const std::unique_lock lock(mutex_);
  user_check(!by_name_.contains(op.name), "op-name", "an op named {} exists already", op.name);
  if (size_ == capacity_) {
    const size_t larger = std::max<size_t>(2 * capacity_, 1024);
    auto block = std::make_unique<Entry[]>(larger);
    if (size_ > 0) std::copy_n(blocks_.back().get(), size_, block.get());
    blocks_.push_back(std::move(block));
    capacity_ = larger;
  }
  by_name_[op.name] = &op;
  if (!op.formerly.empty()) formerly_[op.formerly] = &op;
  blocks_.back()[size_++] = {&op, family};
}

const OpDef* OpTable::find(std::string_view name, int version) const {
  const std::shared_lock lock(mutex_);
  if (auto old = formerly_.find(name); old != formerly_.end() && version < old->second->since)
    return old->second;
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

std::span<const OpTable::Entry> OpTable::entries() const {
  const std::shared_lock lock(mutex_);
  return {blocks_.back().get(), size_};
}

}  // namespace rlx
