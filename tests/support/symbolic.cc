#include "symbolic.h"

#include "rlx/passes/passes.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {

namespace {

constexpr std::string_view kBatchSymbol = "batch";

Attrs with_sizes(const Attrs& attrs, FunctionRef<Dim(const Dim&)> size);

// A body with other sizes.
Graph with_sizes(const Graph& g, FunctionRef<Dim(const Dim&)> size) {
  Builder b(g.name);
  std::vector<Values> map;
  auto at = [&](Value v) { return map[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)]; };
  for (const Node& n : g.nodes) {
    Values in;
    for (Value v : n.in) in.push_back(at(v));
    map.push_back(b.emit(*n.op, with_sizes(n.attrs, size), in));
  }
  for (Value v : g.outputs) b.output(at(v));
  for (const Update& u : g.updates) b.update(u.param, at(u.value));
  return b.finish();
}

Attrs with_sizes(const Attrs& attrs, FunctionRef<Dim(const Dim&)> size) {
  std::shared_ptr<void> copy = attrs.copy();
  for (const FieldInfo& f : attrs.fields()) {
    void* member = f.member(copy.get());
    if (f.is<Dim>()) *static_cast<Dim*>(member) = size(*static_cast<Dim*>(member));
    if (f.is<Shape>())
      for (Dim& d : *static_cast<Shape*>(member)) d = size(d);
    if (f.is<Body>()) *static_cast<Body*>(member) = with_sizes(**static_cast<Body*>(member), size);
  }
  return Attrs(attrs.type(), std::move(copy));
}

struct Transform {
  std::string_view name;
  Graph (*apply)(const Case&, const Graph&, const Dim& batch);
};
constexpr Transform kTransforms[] = {
    {"value", [](const Case&, const Graph& g, const Dim&) { return g; }},
    {"vjp", [](const Case& c, const Graph& g,
               const Dim&) { return vjp(g, names(c.swept), {.zero_missing = true}); }},
    {"jvp", [](const Case& c, const Graph& g, const Dim&) { return jvp(g, names(c.swept)); }},
    {"vmap",
     [](const Case& c, const Graph& g, const Dim& batch) {
       std::map<std::string, int64_t> axes;
       for (size_t i = 0; i < c.operands.size(); ++i) axes[std::to_string(i)] = 0;
       return vmap(g, axes, batch);
     }},
};

double symbolic_tolerance(DType d) {
  return d == DType::F64 || !is_differentiable(d) ? 1e-9 : 1e-3;
}

void clear_where_infinite(const Tensor& value, Tensor& t) {
  for (int64_t i = 0; i < t.elements(); ++i)
    if (!std::isfinite(std::abs(value.get_complex(i)))) t.set_complex(i, 0);
}

}  // namespace

std::string_view name(Symbols s) {
  constexpr std::string_view kNames[] = {"all",   "all_apart",   "attributes",
                                         "first", "first_apart", "ones"};
  return kNames[static_cast<size_t>(s)];
}

Graph with_named_sizes(const Graph& g, const std::map<int64_t, std::string>& names) {
  return with_sizes(g, [&](const Dim& d) {
    const auto found = d.is_static() ? names.find(d.value()) : names.end();
    return found == names.end() ? d : Dim::symbol(found->second);
  });
}

std::optional<SymbolicCase> with_symbols(const Case& c, Symbols symbols) {
  SymbolicCase out;
  const bool apart = symbols == Symbols::all_apart || symbols == Symbols::first_apart;
  const bool only_first = symbols == Symbols::first || symbols == Symbols::first_apart;
  const int64_t least = symbols == Symbols::ones ? 1 : 2;
  auto named = [&](const std::string& symbol, int64_t size) {
    out.sizes[symbol] = size;
    return Dim::symbol(symbol);
  };
  Builder b("sample");
  Values in;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    Type t = c.operands[i].type();
    for (size_t axis = 0;
         axis < (only_first ? std::min<size_t>(t.shape.size(), 1) : t.shape.size()); ++axis) {
      const int64_t size = t.shape[axis].value();
      if (size < least) continue;
      t.shape[axis] =
          named(apart ? fmt::format("a{}_{}", i, axis) : fmt::format("s{}", size), size);
    }
    in.push_back(b.input(std::to_string(i), t));
  }
  const OpDef& op = *op_table().find(c.sample->op);
  Attrs attrs = read_attrs(op, replace_all(c.sample->attrs, "$T", to_string(c.dtype)));
  if (symbols == Symbols::attributes || symbols == Symbols::ones) {
    const DimBinding known = out.sizes;
    attrs = with_sizes(attrs, [&](const Dim& d) {
      const std::string symbol = fmt::format("s{}", d);
      // Operands or not: a fill has none.
      return d.is_static() && d.value() >= least && (in.empty() || known.contains(symbol))
                 ? named(symbol, d.value())
                 : d;
    });
  }
  if (out.sizes.empty()) return std::nullopt;
  for (Value v : b.emit(op, attrs, in)) b.output(v);
  out.graph = b.finish();
  return out;
}

Tensors leaves_for(const Case& c, const Graph& g) {
  Tensors out;
  const Values inputs = g.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& t = g.type(inputs[i]);
    OperandSpec o{"T", t.shape.sizes(), ""};
    if (i < c.sample->operands.size()) {
      o.kind = c.sample->operands[i].kind, o.limit = c.sample->operands[i].limit;
      if (o.kind == "ranges" && (o.sizes.empty() || o.sizes[0] == 0)) o.kind = "index";
    }
    out.push_back(make_operand(o, t.dtype, mix(hash_text(c.sample->text), 7 + i)));
  }
  return out;
}

std::string text_of(const DimBinding& sizes) {
  std::string out;
  for (const auto& [symbol, size] : sizes) out += fmt::format(" ?{} = {}", symbol, size);
  return out;
}

Graph optimised_symbolically(Graph g, bool decomposed) {
  PassContext context;
  context.verify = true;
  if (!decomposed) context.keeps = [](const Node&, const Graph&) { return true; };
  return run_passes(std::move(g), default_pipeline(), context);
}

void SymbolicSurvey::check(const Case& c, const SymbolicCase& s, Symbols symbols) {
  const std::string& op = c.sample->op;
  std::vector<DimBinding> bindings{s.sizes};
  if (options_.other_sizes) {
    for (int64_t size : {0, 1, 2}) {
      bindings.push_back(s.sizes);
      for (auto& [symbol, value] : bindings.back()) value = size;
    }
    bindings.push_back(s.sizes);
    for (auto& [symbol, value] : bindings.back()) ++value;
  }
  for (const Transform& t : kTransforms) {
    const bool derivative = t.name == "vjp" || t.name == "jvp";
    if (derivative && (!options_.derivatives || !has_derivatives(c))) continue;
    if (t.name == "vmap" && (!options_.vmap || c.operands.empty())) continue;
    const std::string what =
        fmt::format("{} {} with symbols for {}", row(c), t.name, name(symbols));
    SCOPED_TRACE(what);
    Graph program;
    try {
      program = optimised_symbolically(t.apply(c, s.graph, Dim::symbol(std::string(kBatchSymbol))));
    } catch (const Error& e) {
      ++counts_[op].refused;
      EXPECT_TRUE(e.kind() == ErrorKind::user || e.kind() == ErrorKind::unsupported) << e.what();
      EXPECT_NE(e.message().find('?'), std::string::npos) << "no symbol is named: " << e.what();
      refusals_.try_emplace({op, e.code()}, fmt::format("{}: {}", what, e.what()));
      continue;
    }
    for (DimBinding sizes : bindings) {
      const bool own = sizes == s.sizes;
      if (!own && t.name != "value" && t.name != "vjp") break;
      Graph wanted;
      Tensors leaves, expected;
      try {
        const Graph bound = bind_checked(s.graph, sizes);
        wanted = t.apply(c, bound, 2);
        leaves = leaves_for(c, wanted);
        expected = evaluate(wanted, leaves);
      } catch (const Error& e) {
        // Symbols that stand for 1 and for more, say; an index that is out of range.
        EXPECT_TRUE(!own || symbols == Symbols::ones || symbols == Symbols::all_apart) << e.what();
        continue;
      }
      if (t.name == "vmap") sizes[std::string(kBatchSymbol)] = 2;
      Tensors got;
      try {
        const Graph bound = bind_checked(program, sizes);
        EXPECT_EQ(bound.output_types(), wanted.output_types());
        got = evaluate(bound, leaves);
      } catch (const Error& e) {
        ++counts_[op].guarded;
        EXPECT_FALSE(own && symbols != Symbols::ones) << e.what();
        EXPECT_EQ(e.code(), "dim-guard") << e.what();
        continue;
      }
      // Where a value is not finite it has no derivative.
      if (t.name == "jvp")
        for (size_t i = 0, k = c.graph.outputs.size(); i < c.graph.outputs.size() && k < got.size();
             ++i) {
          if (!differentiable(expected[i])) continue;
          clear_where_infinite(expected[i], expected[k]);
          clear_where_infinite(expected[i], got[k++]);
        }
      for (size_t i = 0; i < got.size() && i < expected.size(); ++i)
        EXPECT_LE(distance(got[i], expected[i]), symbolic_tolerance(c.dtype))
            << "result " << i << " at " << text_of(sizes);
      ++counts_[op].works;
    }
  }
}

void SymbolicSurvey::add(const Sample& s) {
  std::vector<DType> order = {DType::F64};
  for (const DTypeInfo& d : kDTypes) order.push_back(d.dtype);
  std::optional<Case> c;
  for (DType d : order)
    if ((c = make_case(s, d))) break;
  if (!c) return;
  for (Symbols symbols : kAllSymbols) {
    std::optional<SymbolicCase> with;
    try {
      with = with_symbols(*c, symbols);
    } catch (const Error& e) {
      ++counts_[s.op].refused;
      EXPECT_NE(e.kind(), ErrorKind::internal) << row(*c) << ": " << e.what();
      EXPECT_NE(e.message().find('?'), std::string::npos) << "no symbol is named: " << e.what();
      refusals_.try_emplace({s.op, e.code()},
                            fmt::format("{} {}: {}", row(*c), name(symbols), e.what()));
      continue;
    }
    if (with) check(*c, *with, symbols);
  }
}

}  // namespace rlx::testing
