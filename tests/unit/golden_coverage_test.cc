// The golden files against the op table: every op, every value of its attributes in every dtype that it takes, its
// optional operands with and without them. A hole is one line of text; what stays open on purpose stands in kOpen with
// its reason. The edge cases that tests/golden/README.md names exist.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "../support/golden.h"
#include "rlx/quant/format.h"

namespace rlx::testing {
namespace {

// A golden sample without its numbers.
struct Use {
  Attrs attrs;
  Types in, out;
};

struct Golden {
  const OpDef* op;
  std::vector<Use> uses;
};

Types types_of(const Json& tensors) {
  Types out;
  for (const Json& t : tensors)
    out.push_back(
        {*parse_dtype(t.at("dtype").get<std::string>()), Shape::of(t.at("shape").get<Ints>())});
  return out;
}

const std::map<std::string, Golden>& goldens() {
  static const auto all = [] {
    std::map<std::string, Golden> out;
    for_each_golden([&](const Json& j) {
      const std::string name = j.at("op");
      const OpDef* op = op_table().find(name);
      check(op != nullptr, "goldens of an unknown op {}", name);
      Golden& g = out.try_emplace(name, Golden{op, {}}).first->second;
      g.uses.push_back({read_attrs(*op, golden_attrs(j.at("attrs"))), types_of(j.at("inputs")),
                        types_of(j.at("outputs"))});
    });
    return out;
  }();
  return all;
}

// ---- attributes

std::string text_of(const FieldInfo& f, const Attrs& attrs) {
  Printer p;
  f.print(p, attrs.data());
  return p.out;
}

Attrs with(const Attrs& attrs, const FieldInfo& f, const std::string& value) {
  std::shared_ptr<void> data = attrs.copy();
  Reader r{Lexer(value), nullptr, &op_table()};
  f.read(r, data.get());
  return Attrs(attrs.type(), std::move(data));
}

// The node that the op makes of these, or nothing where it does not take them.
std::optional<Node> build(const OpDef& op, const Attrs& attrs, const Types& in) {
  Builder b("probe");
  Values operands;
  for (const Type& t : in) operands.push_back(b.input(std::to_string(operands.size()), t));
  try {
    b.emit(op, attrs, operands);
  } catch (const Error&) {
    return std::nullopt;
  }
  return b.graph().nodes.back();
}

// The values of a field that has finitely many; none of the others.
std::vector<std::string> values_of(const FieldInfo& f) {
  std::string type = f.type();
  std::vector<std::string> out;
  if (type.ends_with("?")) {
    out.push_back("none");
    type.pop_back();
  }
  if (f.name == "activation" && type == "string") {  // the specification's kinds, or none
    const FieldInfo& kinds = op_table().find("activation_backward")->attr_type->fields[0];
    for (const std::string& kind : values_of(kinds)) out.push_back(quote(kind));
    out.push_back(quote(""));
  } else if (type == "bool") {
    out.insert(out.end(), {"false", "true"});
  } else if (type == "dtype") {
    for (const DTypeInfo& d : kDTypes) out.emplace_back(d.name);
  } else if (type == "scheme") {
    for (const FormatInfo& s : quant_formats()) {
      const bool grouped =
          !s.is_ggml() && s.format != QuantFormat::fp8_e4m3 && s.format != QuantFormat::fp8_e5m2;
      out.push_back(QuantScheme{s.format, grouped ? 16 : 0}.to_string());
    }
  } else if (type.find('|') != std::string::npos) {
    for (size_t at = 0; at <= type.size();) {
      const size_t end = std::min(type.find('|', at), type.size());
      out.push_back(type.substr(at, end - at));
      at = end + 1;
    }
  }
  return out;
}

bool is_one_of(char c, std::string_view set) { return set.find(c) != set.npos; }

// Whether a row of tests/errors shows that the op refuses the value.
bool is_refused(const OpDef& op, const FieldInfo& f, const std::string& value) {
  static const std::vector<TextRow> rows = read_rows(RLX_SOURCE_DIR "/tests/errors");
  const std::string given = fmt::format("{}={}", f.name, value);
  return std::any_of(rows.begin(), rows.end(), [&](const TextRow& row) {
    if (!row.text.starts_with(fmt::format("{} {{", op.name))) return false;
    for (size_t at = 0; (at = row.text.find(given, at)) != std::string::npos; ++at)
      if (const size_t end = at + given.size(); is_one_of(row.text[at - 1], " {") &&
                                                end < row.text.size() &&
                                                is_one_of(row.text[end], ",}"))
        return true;
    return false;
  });
}

// The list with the rank taken off every axis, as counted from the end; nothing where that is not negative.
std::optional<std::string> from_the_end(const std::string& text, int64_t rank) {
  const std::string list = text[0] == '[' ? text : "[" + text + "]";
  Reader r{Lexer(list), nullptr, nullptr};
  Ints axes;
  Codec<Ints>::read(r, axes);
  if (axes.empty()) return std::nullopt;
  for (int64_t& a : axes)
    if ((a -= rank) >= 0) return std::nullopt;
  return text[0] == '[' ? fmt::format("[{}]", fmt::join(axes, ", ")) : std::to_string(axes[0]);
}

// ---- holes

// What the goldens of one op leave open, a line each.
class Holes {
 public:
  explicit Holes(const Golden& g) : g_(g), main_(main_operand(*g.op)) {}

  std::vector<std::string> find() {
    dtypes();
    optional_operands();
    for (const FieldInfo& f : g_.op->attr_type->fields) {
      for (const std::string& v : values_of(f)) value(f, v);
      unbounded(f);
      negative_axis(f);
    }
    return out_;
  }

 private:
  using Places = std::map<std::string, std::set<DType>>;

  template <class... A>
  void add(fmt::format_string<A...> text, A&&... args) {
    out_.push_back(fmt::format("{}: ", g_.op->name) + fmt::format(text, std::forward<A>(args)...));
  }

  void collect(const Types& in, const Types& out, Places& to) const {
    for (size_t i = 0; i < in.size(); ++i)
      to[fmt::format("operand {}", g_.op->arity == kVariadic ? 0 : i)].insert(in[i].dtype);
    for (size_t i = 0; i < out.size(); ++i) to[fmt::format("result {}", i)].insert(out[i].dtype);
  }

  // Every dtype that the samples, which sweep all that the op takes, give an operand or a result; and every one that an
  // operand may have with the others as they are.
  void dtypes() {
    Places have, want;
    for (const Use& u : g_.uses) collect(u.in, u.out, have);
    for (const Sample& s : samples()) {
      if (s.op != g_.op->name) continue;
      for (const DTypeInfo& d : kDTypes) {
        if (!s.swept() && d.dtype != DType::F64) continue;
        const auto c = make_case(s, d.dtype);
        if (!c) continue;
        Types in;
        for (const Tensor& t : c->operands) in.push_back(t.type());
        collect(in, c->graph.output_types(), want);
      }
    }
    std::set<std::vector<DType>> tried;
    for (const Use& u : g_.uses) {
      std::vector<DType> signature;
      for (const Type& t : u.in) signature.push_back(t.dtype);
      if (tried.insert(signature).second) each_operand_alone(u, want);
    }
    for (const auto& [place, dtypes] : want) {
      std::vector<DType> missing;
      std::set_difference(dtypes.begin(), dtypes.end(), have[place].begin(), have[place].end(),
                          std::back_inserter(missing));
      if (!missing.empty()) add("{} of {}", place, fmt::join(missing, " "));
    }
  }

  void each_operand_alone(const Use& u, Places& to) const {
    for (size_t i = 0; i < u.in.size(); ++i)
      for (const DTypeInfo& d : kDTypes) {
        Types in = u.in;
        in[i].dtype = d.dtype;
        if (const auto node = build(*g_.op, u.attrs, in)) collect(in, node->out, to);
      }
  }

  // All given and none given; at least two numbers of operands where any is taken.
  void optional_operands() {
    std::set<size_t> counts;
    for (const Use& u : g_.uses) counts.insert(u.in.size());
    const OpDef& op = *g_.op;
    if (op.arity == kVariadic) {
      if (counts.size() < 2) add("one number of operands only");
      return;
    }
    for (int n : {op.min_arity > 0 ? op.min_arity : op.arity, op.arity})
      if (!counts.contains(static_cast<size_t>(n))) add("{} operands", n);
  }

  // Numbers, lists and texts: two values that differ.
  void unbounded(const FieldInfo& f) {
    const std::string type = f.type();
    if (type == "graph" || values_of(f).size() > 1) return;
    std::set<std::string> seen;
    for (const Use& u : g_.uses) seen.insert(text_of(f, u.attrs));
    seen.erase("none");
    if (seen.size() < 2) add("{}: only {}", f.name, fmt::join(seen, ""));
  }

  // The first operand that the samples sweep (after a key, a predicate, packed bytes); 0 where none is.
  static size_t main_operand(const OpDef& op) {
    size_t first = SIZE_MAX;
    for (const Sample& s : samples())
      for (size_t i = 0; s.op == op.name && i < s.operands.size(); ++i)
        if (s.operands[i].swept()) first = std::min(first, i);
    return first == SIZE_MAX ? 0 : first;
  }

  DType main_dtype(const Use& u) const {
    return u.in.empty() ? u.out[0].dtype : u.in[std::min(main_, u.in.size() - 1)].dtype;
  }

  // The value at every dtype of the main operand (of the result where there is none) with which some golden's node
  // could be built.
  void value(const FieldInfo& f, const std::string& v) {
    std::set<DType> have;
    for (const Use& u : g_.uses)
      if (text_of(f, u.attrs) == v) have.insert(main_dtype(u));
    std::vector<DType> missing;
    for (const DTypeInfo& d : kDTypes)
      if (!have.contains(d.dtype) && is_possible(f, v, d.dtype)) missing.push_back(d.dtype);
    if (!missing.empty())
      add("{}={} at {}", f.name, v, fmt::join(missing, " "));
    else if (have.empty() && !f.type().starts_with("dtype") && !is_refused(*g_.op, f, v))
      add("{}={} nowhere", f.name, v);
  }

  bool is_possible(const FieldInfo& f, const std::string& v, DType d) const {
    for (const Use& u : g_.uses) {
      const DType from = main_dtype(u);
      if (from != d && (u.in.empty() || text_of(f, u.attrs) != v))
        continue;  // one change at a time
      Use changed{with(u.attrs, f, v), u.in, {}};
      for (Type& t : changed.in)
        if (t.dtype == from) t.dtype = d;
      const auto node = build(*g_.op, changed.attrs, changed.in);
      if (node && (!u.in.empty() || node->out[0].dtype == d)) return true;
    }
    return false;
  }

  // An axis from the end, where the op makes the same node of it.
  void negative_axis(const FieldInfo& f) {
    const std::string type = f.type();
    if (type != "int" && type != "int?" && type != "[int]") return;
    for (const Use& u : g_.uses)
      if (text_of(f, u.attrs).find('-') != std::string::npos) return;
    for (const Use& u : g_.uses) {
      const std::string text = text_of(f, u.attrs);
      if (u.in.empty() || text == "none") continue;
      const auto shifted = from_the_end(text, u.in[0].shape.rank());
      if (!shifted) continue;
      const auto plain = build(*g_.op, u.attrs, u.in);
      const auto negative = build(*g_.op, with(u.attrs, f, *shifted), u.in);
      if (plain && negative && *plain == *negative) return add("{}: none negative", f.name);
    }
  }

  const Golden& g_;
  const size_t main_;
  std::vector<std::string> out_;
};

// What has no golden value, and why.
struct Open {
  std::string_view hole;  // how its line begins
  std::string_view why;
};
constexpr std::string_view kSearched =
    "an encoder that searches for small errors has no one answer; "
    "QuantFormat.EncodersStayWithinTheirErrors bounds them";
constexpr Open kOpen[] = {
    {"custom: no golden",
     "the user's own function; Extend and the sample table run one of every form"},
    {"hir_", "a block is its definition, of ops whose goldens have every dtype and value"},
    {"quantise_blocks: scheme=gguf_q2k", kSearched},
    {"quantise_blocks: scheme=gguf_q3k", kSearched},
    {"quantise_blocks: scheme=gguf_q4k", kSearched},
    {"quantise_blocks: scheme=gguf_q5k", kSearched},
    {"quantise_blocks: scheme=gguf_q6k", kSearched},
    {"quantise_blocks: scheme=gguf_iq", kSearched},
    {"quantise_blocks: scheme=gguf_nvfp4", kSearched},
};

std::vector<std::string> holes_of(const OpDef& op) {
  const auto g = goldens().find(std::string(op.name));
  if (g == goldens().end()) return {fmt::format("{}: no golden", op.name)};
  return Holes(g->second).find();
}

TEST(GoldenCoverage, NoHoles) {
  std::set<std::string_view> used;
  for (const auto& entry : op_table().entries()) {
    if (entry.op->kind == Kind::leaf || !is_wanted(std::string(entry.op->name))) continue;
    for (const std::string& hole : holes_of(*entry.op)) {
      const auto open = std::find_if(std::begin(kOpen), std::end(kOpen),
                                     [&](const Open& o) { return hole.starts_with(o.hole); });
      if (open == std::end(kOpen))
        ADD_FAILURE() << entry.family << ": " << hole;
      else
        used.insert(open->hole);
    }
  }
  for (const Open& o : kOpen)
    EXPECT_TRUE(is_filtered() || used.contains(o.hole)) << o.hole << " is no hole any more";
}

// ---- the measure itself

TEST(GoldenCoverage, HolesAreFound) {
  const auto attrs = [](const char* text) { return read_attrs(*&op::reduce_sum, text); };
  const Golden g{
      &op::reduce_sum,
      {{attrs("{axes=[1]}"), {{DType::F32, {2, 3}}}, {{DType::F32, {2}}}},
       {attrs("{axes=[0], keepdims=true}"), {{DType::I32, {2, 3}}}, {{DType::I32, {1, 3}}}}}};
  const std::vector<std::string> expected = {
      "reduce_sum: operand 0 of f16 bf16 f64 i8 i16 i64 u8 u32 c64",
      "reduce_sum: result 0 of f16 bf16 f64 i8 i16 i64 u8 u32 c64",
      "reduce_sum: axes: none negative",
      "reduce_sum: keepdims=false at f16 bf16 f64 i8 i16 i32 i64 u8 u32 c64",
      "reduce_sum: keepdims=true at f32 f16 bf16 f64 i8 i16 i64 u8 u32 c64",
  };
  if (!is_wanted("reduce_sum")) return;
  EXPECT_EQ(Holes(g).find(), expected);
}

// ---- the edge cases of the specification

// Rows `| edge case | `sample`, `Suite.Test` .. |` of the README: each name is a golden sample or a test.
TEST(GoldenCoverage, EdgeCasesExist) {
  std::set<std::string> known;
  for_each_golden([&](const Json& j) { known.insert(j.at("id")); });
  for (const auto& entry : std::filesystem::directory_iterator(RLX_SOURCE_DIR "/tests/unit")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      if (const size_t open = line.find('('), comma = line.find(", "), close = line.find(')');
          line.starts_with("TEST") && comma < close && close != std::string::npos)
        known.insert(line.substr(open + 1, comma - open - 1) + "." +
                     line.substr(comma + 2, close - comma - 2));
  }
  std::ifstream readme(RLX_SOURCE_DIR "/tests/golden/README.md");
  int cases = 0;
  for (std::string line; std::getline(readme, line);) {
    const size_t last = line.rfind(" | ");
    if (!line.starts_with("| ") || last == std::string::npos) continue;
    cases += line.find('`', last) != std::string::npos;
    for (size_t open = last; (open = line.find('`', open)) != std::string::npos;) {
      const size_t close = line.find('`', open + 1);
      ASSERT_NE(close, std::string::npos) << line;
      const std::string name = line.substr(open + 1, close - open - 1);
      EXPECT_TRUE(is_filtered() || known.contains(name)) << line << ": no " << name;
      open = close + 1;
    }
  }
  EXPECT_GT(cases, 100);
}

}  // namespace
}  // namespace rlx::testing
