// bind_checked: sizes for the symbols of a program that was made for all sizes.
#include <algorithm>

#include "rlx/ir/builder.h"

namespace rlx {

namespace {

bool all_static(const Types& types) {
  return std::all_of(types.begin(), types.end(), [](const Type& t) { return t.shape.is_static(); });
}

class CheckedBinding {
 public:
  explicit CheckedBinding(const DimBinding& binding) : values_(binding) {}

  Graph graph(const Graph& g) {
    Graph out;
    out.name = g.name;
    out.nodes.reserve(g.nodes.size());
    std::vector<bool> plain(g.nodes.size());  // its results have no symbols
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const Node& n = g.nodes[i];
      std::optional<Attrs> changed = attrs(n.attrs);
      plain[i] = all_static(n.out);
      bool as_it_is = plain[i] && !changed;
      for (Value v : n.in) as_it_is = as_it_is && plain[static_cast<size_t>(v.node)];
      if (as_it_is) {
        out.nodes.push_back(n);
        continue;
      }
      Node bound{n.op, std::move(changed).value_or(n.attrs), n.in, {}, n.origin};
      Types in;
      in.reserve(n.in.size());
      for (Value v : n.in) in.push_back(out.type(v));
      try {
        bound.out = results(n, bound.attrs, in);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::user || e.code() == "unbound-dim") throw;
        throw guard(g, n, e).at(fmt::format("%{} {}", i, n.op->name));
      }
      out.nodes.push_back(std::move(bound));
    }
    out.outputs = g.outputs;
    out.updates = g.updates;
    return out;
  }

  // Whether node n of g has the results that were inferred for symbols.
  bool holds(const Graph& g, const Node& n) {
    try {
      Types in;
      for (Value v : n.in) in.push_back({g.type(v).dtype, shape(g.type(v).shape)});
      results(n, attrs(n.attrs).value_or(n.attrs), in);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

 private:
  Shape shape(const Shape& s) {
    Shape out;
    for (const Dim& d : s) out.push_back(values_(d));
    return out;
  }

  std::optional<Attrs> attrs(const Attrs& attrs) {
    if (!has_symbols(attrs)) return std::nullopt;
    return map_bodies(map_dims(attrs, [&](const Dim& d) { return Dim(values_(d)); }),
                      [&](const Body& b) { return has_symbols(*b) ? Body(graph(*b)) : b; });
  }

  Types results(const Node& n, const Attrs& attrs, const Types& in) {
    Types out = infer_types(*n.op, attrs, in);
    bool same = out.size() == n.out.size();
    for (size_t i = 0; same && i < out.size(); ++i) same = agrees(out[i], n.out[i]);
    if (same) return out;
    std::vector<Type> expected;
    for (const Type& t : n.out) expected.push_back({t.dtype, shape(t.shape)});
    fail(ErrorKind::user, "dim-guard", "{}: the result is {}, and {} was inferred, which is {}",
         n.op->name, fmt::join(out, ", "), fmt::join(n.out, ", "), fmt::join(expected, ", "));
  }

  bool agrees(const Type& bound, const Type& symbolic) {
    if (bound.dtype != symbolic.dtype || bound.rank() != symbolic.rank()) return false;
    for (size_t i = 0; i < bound.shape.size(); ++i) {
      const int64_t size = values_(symbolic.shape[i]);
      if (size < 0 || !(bound.shape[i] == Dim(size))) return false;
    }
    return true;
  }

  // What is at odds in node n of g, with the message of its op.
  Error guard(const Graph& g, const Node& n, const Error& e) {
    std::string_view own = e.message();
    const std::string prefix = fmt::format("{}: ", n.op->name);
    if (own.starts_with(prefix)) own.remove_prefix(prefix.size());
    const std::vector<Dim> dims = dims_of(g, n);
    // Two symbols first, then a symbol and a number, 1 at the end: anything broadcasts with it.
    for (int round = 0; round < 3; ++round)
      for (size_t i = 0; i < dims.size(); ++i)
        for (size_t j = i + 1; j < dims.size(); ++j) {
          const Dim &a = dims[i].is_static() ? dims[j] : dims[i],
                    &b = dims[i].is_static() ? dims[i] : dims[j];
          if (round != (b.is_static() ? 1 + (b == Dim(1)) : 0)) continue;
          if (!must_be_equal(g, n, a, b) && !must_be_equal(g, n, b, a)) continue;
          const std::string odds =
              b.is_static()
                  ? fmt::format("{} = {} must be {}", a, values_(a), b)
                  : fmt::format("{} = {} and {} = {} must be equal", a, values_(a), b, values_(b));
          return Error(ErrorKind::user, "dim-guard",
                       fmt::format("{}: {}: {}", n.op->name, odds, own));
        }
    std::vector<std::string> symbols, sizes;
    for (const Dim& d : dims) d.collect_symbols(symbols);
    for (const std::string& s : symbols)
      sizes.push_back(fmt::format("?{} = {}", s, values_.binding().at(s)));
    return Error(ErrorKind::user, "dim-guard",
                 fmt::format("{}: not for {}: {}", n.op->name, fmt::join(sizes, ", "), own));
  }

  // The dims of its operands and attributes, each once.
  static std::vector<Dim> dims_of(const Graph& g, const Node& n) {
    constexpr size_t kMost = 24;  // pairs of them are tried
    std::vector<Dim> dims;
    auto add = [&](const Dim& d) {
      if (dims.size() < kMost && std::find(dims.begin(), dims.end(), d) == dims.end())
        dims.push_back(d);
    };
    for (Value v : n.in)
      for (const Dim& d : g.type(v).shape) add(d);
    for (const FieldInfo& f : n.attrs.fields()) {
      const void* member = f.member_of(n.attrs.data());
      if (f.is<Dim>()) add(*static_cast<const Dim*>(member));
      if (f.is<Shape>())
        for (const Dim& d : *static_cast<const Shape*>(member)) add(d);
    }
    return dims;
  }

  // Whether the node would be right if `symbol` were as large as the other dim, and only then.
  bool must_be_equal(const Graph& g, const Node& n, const Dim& symbol, const Dim& other) {
    std::vector<std::string> names;
    symbol.collect_symbols(names);
    if (names.size() != 1 || !(symbol == Dim::symbol(names[0]))) return false;
    const int64_t size = values_(other);
    return values_(symbol) != size && holds(g, n, names[0], size) &&
           !holds(g, n, names[0], size + 2);  // not size + 1: with 0 broadcasts 1
  }

  bool holds(const Graph& g, const Node& n, const std::string& symbol, int64_t size) {
    DimBinding changed = values_.binding();
    changed[symbol] = size;
    return CheckedBinding(changed).holds(g, n);
  }

  DimValues values_;
};

}  // namespace

bool holds_at(const Graph& g, const Node& n, const DimBinding& binding) {
  return CheckedBinding(binding).holds(g, n);
}

Graph bind_checked(const Graph& g, const DimBinding& binding) {
  return within_memory([&] {
    for (const auto& [symbol, size] : binding)
      user_check(size >= 0, "bind-size", "bind: symbol ?{} cannot be {}", symbol, size);
    return CheckedBinding(binding).graph(g);
  });
}

}  // namespace rlx
