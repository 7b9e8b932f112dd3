#include "rlx/ir/graph.h"

#include <algorithm>

#include "rlx/ir/builder.h"

namespace rlx {

namespace {
Values leaves(const Graph& g, const OpDef* op) {
  Values out;
  for (int32_t i = 0; i < g.size(); ++i)
    if (g.node(i).op == op) out.push_back({i, 0});
  return out;
}
}  // namespace

template struct MemberTypeOf<Body>;

Values Graph::inputs() const { return leaves(*this, &op::input); }
Values Graph::params() const { return leaves(*this, &op::param); }

Value Graph::find_leaf(std::string_view leaf) const {
  for (int32_t i = 0; i < size(); ++i) {
    const Node& n = node(i);
    if ((n.op == &op::input || n.op == &op::param) && n.get<LeafAttrs>().name == leaf)
      return {i, 0};
  }
  return kNone;
}

Types Graph::output_types() const {
  Types out;
  for (Value v : outputs) out.push_back(type(v));
  return out;
}

std::vector<std::string> Graph::symbols() const {
  std::vector<std::string> names;
  for (const Node& n : nodes) {
    for (const Type& t : n.out)
      for (const Dim& d : t.shape) d.collect_symbols(names);
    for (const FieldInfo& f : n.attrs.fields()) {
      if (const auto* dim = f.get<Dim>(n.attrs.data())) dim->collect_symbols(names);
      if (const auto* shape = f.get<Shape>(n.attrs.data()))
        for (const Dim& d : *shape) d.collect_symbols(names);
      if (const auto* body = f.get<Body>(n.attrs.data()))
        for (const std::string& s : (*body)->symbols())
          if (std::find(names.begin(), names.end(), s) == names.end()) names.push_back(s);
    }
  }
  return names;
}

std::vector<int32_t> last_readers(const Graph& g) {
  std::vector<int32_t> last(g.nodes.size());
  auto read = [&](Value v, int32_t i) { last[static_cast<size_t>(v.node)] = i; };
  for (int32_t i = 0; i < g.size(); ++i) {
    read({i, 0}, i);
    for (Value v : g.node(i).in) read(v, i);
  }
  for (Value v : g.outputs) read(v, g.size());
  for (const Update& u : g.updates) read(u.value, g.size());
  return last;
}

std::vector<NamedBody> bodies(const Attrs& attrs) {
  std::vector<NamedBody> out;
  for (const FieldInfo& f : attrs.fields())
    if (const auto* body = f.get<Body>(attrs.data())) out.push_back({f.name, **body});
  return out;
}

Attrs map_bodies(const Attrs& attrs, FunctionRef<Body(const Body&)> f) {
  std::shared_ptr<void> copy;
  for (const FieldInfo& field : attrs.fields()) {
    if (!field.is<Body>()) continue;
    if (!copy) copy = attrs.copy();
    Body& body = *field.get<Body>(copy.get());
    body = f(body);
  }
  return copy ? Attrs(attrs.type(), std::move(copy)) : attrs;
}

Attrs map_dims(const Attrs& attrs, FunctionRef<Dim(const Dim&)> f) {
  std::shared_ptr<void> copy;
  for (const FieldInfo& field : attrs.fields()) {
    if (!field.is<Shape>() && !field.is<Dim>()) continue;
    if (!copy) copy = attrs.copy();
    if (auto* dim = field.get<Dim>(copy.get())) *dim = f(*dim);
    if (auto* shape = field.get<Shape>(copy.get()))
      for (Dim& d : *shape) d = f(d);
  }
  return copy ? Attrs(attrs.type(), std::move(copy)) : attrs;
}

bool has_symbols(const Attrs& attrs) {
  for (const FieldInfo& f : attrs.fields()) {
    if (const auto* dim = f.get<Dim>(attrs.data()); dim && !dim->is_static()) return true;
    if (const auto* shape = f.get<Shape>(attrs.data()); shape && !shape->is_static()) return true;
    if (const auto* body = f.get<Body>(attrs.data()); body && has_symbols(**body)) return true;
  }
  return false;
}

bool has_symbols(const Node& n) {
  const auto is_symbolic = [](const Type& t) { return !t.shape.is_static(); };
  return std::any_of(n.out.begin(), n.out.end(), is_symbolic) || has_symbols(n.attrs);
}

bool has_symbols(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return has_symbols(n); });
}

uint64_t Graph::hash() const {
  uint64_t h = hash_text(name);
  for (const Node& n : nodes) {
    h = mix(h, hash_text(n.op->name));
    h = mix(h, n.attrs.hash());
    for (Value v : n.in)
      h = mix(h, static_cast<uint64_t>(v.node) << 8 | static_cast<uint64_t>(v.index));
  }
  for (Value v : outputs)
    h = mix(h, static_cast<uint64_t>(v.node) << 8 | static_cast<uint64_t>(v.index));
  for (const Update& u : updates)
    h = mix(mix(h, hash_text(u.param)), static_cast<uint64_t>(u.value.node));
  return h;
}

bool operator==(const Node& a, const Node& b) {
  return a.op == b.op && a.in == b.in && a.out == b.out && a.origin == b.origin &&
         a.attrs == b.attrs;
}

bool operator==(const Graph& a, const Graph& b) {
  return a.name == b.name && a.outputs == b.outputs && a.updates == b.updates && a.nodes == b.nodes;
}

Body::Body() : graph(std::make_shared<const Graph>()) {}
Body::Body(Graph g) : graph(std::make_shared<const Graph>(std::move(g))) {}

Uses::Uses(const Graph& g) : output_(g.nodes.size(), false) {
  first_result_.reserve(g.nodes.size() + 1);
  first_result_.push_back(0);
  for (const Node& n : g.nodes) first_result_.push_back(first_result_.back() + n.out.size());
  counts_.resize(first_result_.back(), 0);
  auto count = [&](Value v) {
    ++counts_[first_result_[static_cast<size_t>(v.node)] + static_cast<size_t>(v.index)];
  };
  // Every reader of a node once, however many of its results it reads.
  auto each_read = [&](auto&& visit) {
    std::vector<int32_t> last(g.nodes.size(), -1);
    for (int32_t i = 0; i < g.size(); ++i)
      for (Value v : g.node(i).in)
        if (std::exchange(last[static_cast<size_t>(v.node)], i) != i)
          visit(static_cast<size_t>(v.node), i);
  };
  first_user_.resize(g.nodes.size() + 1, 0);
  each_read([&](size_t node, int32_t) { ++first_user_[node + 1]; });
  for (size_t i = 0; i < g.nodes.size(); ++i) first_user_[i + 1] += first_user_[i];
  users_.resize(first_user_.back());
  std::vector<size_t> next(first_user_.begin(), first_user_.end() - 1);
  each_read([&](size_t node, int32_t user) { users_[next[node]++] = user; });

  for (const Node& n : g.nodes)
    for (Value v : n.in) count(v);
  auto keep = [&](Value v) {
    count(v);
    output_[static_cast<size_t>(v.node)] = true;
  };
  for (Value v : g.outputs) keep(v);
  for (const Update& u : g.updates) keep(u.value);
}

int Uses::count(int32_t node) const {
  int n = 0;
  for (size_t i = first_result_[static_cast<size_t>(node)];
       i < first_result_[static_cast<size_t>(node) + 1]; ++i)
    n += counts_[i];
  return n;
}

std::string to_string(Value v) {
  if (!v.valid()) return "none";
  return v.index ? fmt::format("%{}:{}", v.node, v.index) : fmt::format("%{}", v.node);
}

}  // namespace rlx
