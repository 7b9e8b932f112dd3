#include "rlx/ir/text.h"

#include <algorithm>

#include "rlx/base/printable.h"
#include "rlx/base/suggest.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/verify.h"

namespace rlx {

namespace {

void indent(Printer& p) { p.out.append(2 * static_cast<size_t>(p.indent), ' '); }

void print_attrs(Printer& p, const Attrs& attrs) {
  static thread_local std::map<const AttrType*, std::shared_ptr<void>> defaults;
  std::shared_ptr<void>& standard = defaults[attrs.type()];
  if (!standard) standard = attrs.type()->make();
  bool first = true;
  for (const FieldInfo& f : attrs.fields()) {
    if (f.equal(attrs.data(), standard.get())) continue;
    p.out += first ? " {" : ", ";
    p.out += f.name;
    p.out += '=';
    f.print(p, attrs.data());
    first = false;
  }
  if (!first) p.out += '}';
}

void print_graph(Printer& p, const Graph& g) {
  p.out += fmt::format("graph @{} {{\n", quote(g.name));
  ++p.indent;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    p.version = std::max(p.version, n.op->since);
    indent(p);
    p.out += fmt::format("%{} = {}({})", i, n.op->name, fmt::join(n.in, ", "));
    print_attrs(p, n.attrs);
    p.out += fmt::format(" : {}", fmt::join(n.out, ", "));
    if (!n.origin.label.empty()) p.out += " @ " + quote(n.origin.label.str());
    if (!n.origin.pass.empty()) p.out += " from " + quote(n.origin.pass.str());
    p.out += '\n';
  }
  if (!g.outputs.empty()) {
    indent(p);
    p.out += fmt::format("return {}\n", fmt::join(g.outputs, ", "));
  }
  for (const Update& u : g.updates) {
    indent(p);
    p.out += fmt::format("update {} <- {}\n", quote(u.param), u.value);
  }
  --p.indent;
  indent(p);
  p.out += '}';
}

class Parser {
 public:
  explicit Parser(Reader& r) : r_(r), lex_(r.lex) {}

  Graph graph() {
    if (++lex_.depth > Lexer::kMaxDepth) lex_.error("graphs are nested too deeply");
    lex_.expect("graph");
    lex_.expect("@");
    Builder b(lex_.peek("\"") ? lex_.quoted() : std::string(lex_.word()));
    lex_.expect("{");
    while (lex_.peek("%")) node(b);
    Graph g = std::move(b.mutable_graph());
    if (lex_.accept("return")) {
      do g.outputs.push_back(value(g));
      while (lex_.accept(","));
    }
    while (lex_.accept("update")) {
      std::string param = lex_.quoted();
      lex_.expect("<-");
      g.updates.push_back({std::move(param), value(g)});
    }
    lex_.expect("}");
    --lex_.depth;
    return g;
  }

 private:
  Value value(const Graph& g) {
    const Lexer place = lex_;
    lex_.expect("%");
    const int64_t node = lex_.integer();
    const int64_t index = lex_.accept(":") ? lex_.integer() : 0;
    if (node < 0 || node >= g.size())
      error_at(place, fmt::format("%{} is not defined above", node));
    if (index < 0 || index >= static_cast<int64_t>(g.nodes[static_cast<size_t>(node)].out.size()))
      error_at(place, fmt::format("%{} has no result {}", node, index));
    return {static_cast<int32_t>(node), static_cast<int32_t>(index)};
  }

  static std::vector<std::string_view> field_names(const OpDef& op) {
    std::vector<std::string_view> out;
    for (const FieldInfo& f : op.attr_type->fields) out.push_back(f.name);
    return out;
  }

  const OpDef& op_of(const Lexer& place, std::string_view name) const {
    if (const OpDef* op = r_.table->find(name, r_.version)) return *op;
    std::vector<std::string_view> names;
    for (const OpTable::Entry& e : r_.table->entries()) names.push_back(e.op->name);
    error_at(place, fmt::format("unknown op {}{}", name, did_you_mean(name, names)));
  }

  Attrs attributes(const OpDef& op) {
    std::shared_ptr<void> data = op.make_attrs(r_.version);
    std::vector<std::string_view> seen;
    if (lex_.accept("{")) {
      do {
        const Lexer place = lex_;
        const std::string_view name = lex_.word();
        const FieldInfo* match = nullptr;
        for (const FieldInfo& f : op.attr_type->fields)
          if (f.name == name) match = &f;
        if (!match)
          error_at(place, fmt::format("{} has no attribute {}{}", op.name, name,
                                      did_you_mean(name, field_names(op))));
        if (std::find(seen.begin(), seen.end(), name) != seen.end())
          error_at(place, fmt::format("attribute {} is given twice", name));
        seen.push_back(name);
        lex_.expect("=");
        match->read(r_, data.get());
      } while (lex_.accept(","));
      lex_.expect("}");
    }
    return Attrs(op.attr_type, std::move(data));
  }

  Type type() {
    Type t;
    Codec<Shape>::read(r_, t.shape);
    Codec<DType>::read(r_, t.dtype);
    return t;
  }

  void node(Builder& b) {
    const Lexer number = lex_;
    lex_.expect("%");
    const int64_t id = lex_.integer();
    if (id != b.graph().size())
      error_at(number, fmt::format("nodes are numbered in order: expected %{}", b.graph().size()));
    lex_.expect("=");
    const Lexer start = lex_;
    const OpDef& op = op_of(start, lex_.word());
    lex_.expect("(");
    Values in;
    if (!lex_.peek(")")) {
      do in.push_back(value(b.graph()));
      while (lex_.accept(","));
    }
    lex_.expect(")");
    Attrs attrs = attributes(op);
    lex_.expect(":");
    const Lexer types = lex_;
    Types declared;
    do declared.push_back(type());
    while (lex_.accept(","));
    Origin origin;
    if (lex_.accept("@")) origin.label = lex_.quoted();
    if (lex_.accept("from")) origin.pass = lex_.quoted();
    b.set_origin(origin);
    try {
      b.emit(op, std::move(attrs), in);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::user && e.kind() != ErrorKind::data) throw;
      error_at(start, e.message());
    }
    const Types& inferred = b.graph().nodes.back().out;
    if (inferred != declared)
      error_at(types, fmt::format("%{} {} is declared as {}, inferred is {}", id, op.name,
                                  fmt::join(declared, ", "), fmt::join(inferred, ", ")));
  }

  Reader& r_;
  Lexer& lex_;
};

}  // namespace

std::string print(const Graph& g, TextStore* store) {
  return within_memory([&] {
    Printer p;
    p.store = store;
    print_graph(p, g);
    p.out += '\n';
    return p.version > 1 ? fmt::format("version {}\n{}", p.version, p.out) : std::move(p.out);
  });
}

Graph parse(std::string_view text, const OpTable& table, const TextStore* store) {
  Reader r{Lexer(text), store, &table};
  if (r.lex.accept("constants")) r.lex.quoted();  // a file whose content is in the store
  r.version = 1;
  if (r.lex.accept("version")) {
    const int64_t version = r.lex.integer();
    if (version < 1 || version > kLanguageVersion)
      r.lex.error(fmt::format("version {}; this program reads 1 to {}", version, kLanguageVersion));
    r.version = static_cast<int>(version);
  }
  Graph g = Parser(r).graph();
  if (!r.lex.done()) r.lex.error("expected the end of the text");
  verify_read(g);
  return g;
}

void Codec<Body>::print(Printer& p, const Body& v) { print_graph(p, *v.graph); }
void Codec<Body>::read(Reader& r, Body& v) {
  if (!r.table) r.lex.error("a nested graph cannot be read here");
  v = Body(Parser(r).graph());
}

}  // namespace rlx
