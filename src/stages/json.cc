#include "rlx/stages/json.h"

#include <nlohmann/json.hpp>

#include "rlx/base/bytes.h"
#include "rlx/ops/region.h"
#include "rlx/ops/table.h"

namespace rlx {
namespace {

using Json = nlohmann::ordered_json;

// ---- base64 (RFC 4648)

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k)
      word = word << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string from_base64(std::string_view text) {
  std::string out;
  uint32_t word = 0;
  int bits = 0;
  for (char c : text.substr(0, text.find('='))) {
    const size_t digit = kDigits.find(c);
    data_check(digit != kDigits.npos, "json", "a constant is not base64: '{}'", c);
    word = word << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out += static_cast<char>(word >> bits & 0xFF);
  }
  return out;
}

Json constants_json(const TextStore& store) {
  Json out = Json::object();
  for (const auto& [hash, tensor] : store.constants) {
    ByteWriter w;
    Codec<Tensor>::write(w, tensor);
    out[fmt::format("{:016x}", hash)] = to_base64(w.out);
  }
  return out;
}

TextStore read_constants(const Json& j) {
  TextStore store;
  for (const auto& [key, value] : j.items()) {
    const std::string bytes = from_base64(value.get<std::string>());
    ByteReader r(bytes, "constant");
    Tensor t;
    Codec<Tensor>::load(r, t);
    store.constants[t.hash()] = t;
  }
  return store;
}

// ---- fields

int64_t read_integer(const Json& j) {
  data_check(j.is_number_integer(), "json", "{} is not an integer", j.dump());
  return j.get<int64_t>();
}

// Where values are read from: the constants, and the version of the language (ir/text.h).
struct Source {
  TextStore store;
  int version;
  Reader reader(std::string_view text) const { return {Lexer(text), &store, &op_table(), version}; }
};

std::string field_text(const FieldInfo& f, const Attrs& attrs, TextStore& store) {
  Printer p{.out = {}, .store = &store};
  f.print(p, attrs.data());
  return p.out;
}

void read_text(const FieldInfo& f, std::string_view text, void* attrs, const Source& from) {
  Reader r = from.reader(text);
  f.read(r, attrs);
  data_check(r.lex.done(), "json", "text follows the value of {}: {}", f.name, text);
}

// Numbers, bools and strings as such, what is absent as null, all else in its text form.
Json field_json(const FieldInfo& f, const Attrs& attrs, TextStore& store) {
  const void* const value = f.member_of(attrs.data());
  if (f.is<bool>()) return *static_cast<const bool*>(value);
  if (f.is<int64_t>()) return *static_cast<const int64_t*>(value);
  if (f.is<std::string>()) return *static_cast<const std::string*>(value);
  const std::string text = field_text(f, attrs, store);
  if (f.is<double>() && std::isfinite(*static_cast<const double*>(value)))
    return *static_cast<const double*>(value);
  return f.type().ends_with('?') && text == "none" ? Json(nullptr) : Json(text);
}

void read_field(const FieldInfo& f, const Json& j, void* attrs, const Source& from) {
  if (f.is<bool>())
    *static_cast<bool*>(f.member(attrs)) = j.get<bool>();
  else if (f.is<int64_t>())
    *static_cast<int64_t*>(f.member(attrs)) = read_integer(j);
  else if (f.is<std::string>())
    *static_cast<std::string*>(f.member(attrs)) = j.get<std::string>();
  else if (f.is<double>() && !j.is_string())
    *static_cast<double*>(f.member(attrs)) = j.get<double>();
  else
    read_text(f, j.is_null() ? "none" : j.get_ref<const std::string&>(), attrs, from);
}

// ---- blocks

// The fields in JSON. Of inputs and parameters the name: their type is the node's.
std::span<const FieldInfo> stated_fields(const OpDef& op) {
  const auto all = op.attr_type->fields;
  return &op == &op::input || &op == &op::param ? all.first(1) : all;
}

Json block_json(const Node& n, TextStore& store) {
  const std::string kind(kind_of(n));
  const bool is_mir = kind == "Mir";
  Json fields = Json::object();
  const std::shared_ptr<void> standard = n.attrs.type()->make();
  for (const FieldInfo& f : stated_fields(*n.op)) {
    if (is_mir && f.equal(n.attrs.data(), standard.get())) continue;
    fields[std::string(f.name)] =
        is_mir ? Json(field_text(f, n.attrs, store)) : field_json(f, n.attrs, store);
  }
  if (is_mir) return {{kind, {{"op", n.op->name}, {"attrs", fields}}}};
  return fields.empty() ? Json(kind) : Json{{kind, fields}};
}

HirOp read_mir(const Json& j, const Source& from) {
  const auto& name = j.at("op").get_ref<const std::string&>();
  const OpDef* def = op_table().find(name, from.version);
  data_check(def != nullptr, "json", "there is no op {}", quote(name));
  std::shared_ptr<void> attrs = def->make_attrs(from.version);
  for (const auto& [key, value] : j.at("attrs").items()) {
    const std::string& field = key;
    const auto fields = def->attr_type->fields;
    const auto match = std::find_if(fields.begin(), fields.end(),
                                    [&](const FieldInfo& f) { return f.name == field; });
    data_check(match != fields.end(), "json", "{} has no attribute {}", name, quote(field));
    read_text(*match, value.get_ref<const std::string&>(), attrs.get(), from);
  }
  return {*def, Attrs(def->attr_type, std::move(attrs))};
}

const OpDef& op_of_kind(const std::string& kind) {
  for (const OpTable::Entry& e : op_table().entries())
    if (e.op->block ? e.op->block->kind == kind
                    : e.op->kind == Kind::leaf && e.op->reference == kind)
      return *e.op;
  fail(ErrorKind::data, "json", "there is no block {}", quote(kind));
}

HirOp read_block(const Json& j, const Type& type, const Source& from) {
  data_check(j.is_string() || (j.is_object() && j.size() == 1), "json",
             "an op is a kind and its fields, not {}", j.dump());
  const std::string kind = j.is_string() ? j.get<std::string>() : j.begin().key();
  const Json given = j.is_string() ? Json::object() : j.begin().value();
  if (kind == "Mir") return read_mir(given, from);
  const OpDef& op = op_of_kind(kind);
  const auto fields = stated_fields(op);
  data_check(given.size() == fields.size(), "json", "a block with {} fields is given {}",
             fields.size(), given.dump());
  std::shared_ptr<void> attrs = op.attr_type->make();
  for (const FieldInfo& f : fields) read_field(f, given.at(std::string(f.name)), attrs.get(), from);
  if (fields.size() < op.attr_type->fields.size()) {
    auto& leaf = *static_cast<LeafAttrs*>(attrs.get());
    leaf.dtype = type.dtype, leaf.shape = type.shape;
  }
  return {op, Attrs(op.attr_type, std::move(attrs))};
}

// A node is its number; a second result "3:1".
Json id_json(Value v) { return v.index == 0 ? Json(v.node) : Json(to_string(v).substr(1)); }

Json ids_json(const Values& values) {
  Json out = Json::array();
  for (Value v : values) out.push_back(id_json(v));
  return out;
}

HirNodeId read_id(const Json& j) {
  const auto number = [](int64_t n) {
    data_check(n >= 0 && n <= INT32_MAX, "json", "{} is no node", n);
    return static_cast<int32_t>(n);
  };
  if (!j.is_string()) return {number(read_integer(j))};
  Lexer lex(j.get_ref<const std::string&>());
  const int32_t node = number(lex.integer());
  lex.expect(":");
  const int32_t result = number(lex.integer());
  data_check(lex.done(), "json", "{} is no result of a node", j.dump());
  return {node, result};
}

HirModule::Ids read_ids(const Json& list) {
  HirModule::Ids out;
  for (const Json& id : list) out.push_back(read_id(id));
  return out;
}

Type read_type(const Json& j) {
  Reader r{Lexer(j.get_ref<const std::string&>())};
  Type t;
  Codec<Shape>::read(r, t.shape);
  Codec<DType>::read(r, t.dtype);
  return t;
}

// ---- modules

Json header(std::string_view format, const std::string& name) {
  return {{"format", format}, {"version", kLanguageVersion}, {"name", name}};
}

void check_header(const Json& j, std::string_view format) {
  const Json& version = j.at("version");
  data_check(j.at("format") == format && version.is_number_integer() && version >= 1 &&
                 version <= kLanguageVersion,
             "json-format", "this is {} version {}, not {} version 1 to {}", j.at("format").dump(),
             version.dump(), format, kLanguageVersion);
}

// What the library says behind its own name for the error.
std::string said(const nlohmann::json::exception& e) {
  const std::string_view text = e.what();
  const size_t end = text.find("] ");
  return std::string(end == text.npos ? text : text.substr(end + 2));
}

// Whatever the JSON library objects to is an error in the data.
template <class F>
auto reading(F&& f) {
  try {
    return f();
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::data, "json", "{}", said(e));
  }
}

// Everything behind this recurses as deep as the document does.
Json parse_json(std::string_view text) {
  static constexpr int kDeepest = 64;
  return Json::parse(text, [](int depth, Json::parse_event_t, const Json&) {
    data_check(depth <= kDeepest, "json", "it is nested more than {} levels deep", kDeepest);
    return true;
  });
}

// In ASCII, so that no terminal takes a name of it for more than text.
std::string written(const Json& j) {
  try {
    return j.dump(1, ' ', true);
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::user, "utf8", "a name cannot be written as JSON: {}", said(e));
  }
}

HirModule read_hir(const Json& j) {
  check_header(j, "rlx.hir");
  const Source from{read_constants(j.at("constants")), j.at("version").get<int>()};
  HirModule m(j.at("name").get<std::string>());
  const auto policy = j.at("fusion_policy").get<std::string>();
  data_check(policy == name(FusionPolicy::direct) || policy == name(FusionPolicy::fusable), "json",
             "there is no fusion policy {}", quote(policy));
  m.fusion_policy =
      policy == name(FusionPolicy::direct) ? FusionPolicy::direct : FusionPolicy::fusable;
  for (const Json& n : j.at("nodes")) {
    const Type type = read_type(n.at("shape"));
    const HirNodeId id = m.push(read_block(n.at("op"), type, from), read_ids(n.at("inputs")), type);
    data_check(n.at("id") == id.index, "json", "node {} stands in the place of {}",
               n.at("id").dump(), to_string(id));
    if (const auto name = n.at("name").get<std::string>(); name != label_of(m.node(id)))
      m.node_mut(id).origin.label = name;
  }
  m.set_outputs(read_ids(j.at("outputs")));
  if (j.contains("updates"))
    for (const auto& [param, id] : j.at("updates").items()) m.update(param, read_id(id));
  return m;
}

Json plan_json(const Program& p) {
  Json slots = Json::array(), schedule = Json::array();
  for (const Buffer& b : p.buffers)
    if (b.place == Place::arena)
      slots.push_back(
          {{"offset", b.offset}, {"size", b.bytes}, {"first", b.first}, {"last", b.last}});
  for (const Step& s : p.steps) schedule.push_back(s.label);
  return {
      {"arena_size", p.arena_bytes}, {"alignment", 64}, {"slots", slots}, {"schedule", schedule}};
}

}  // namespace

std::string hir_to_json(const HirModule& hir) {
  TextStore store;
  const Graph& g = hir.graph();
  Json j = header("rlx.hir", g.name);
  j["fusion_policy"] = name(hir.fusion_policy);
  j["outputs"] = ids_json(g.outputs);
  for (const Update& u : g.updates) j["updates"][u.param] = id_json(u.value);
  j["nodes"] = Json::array();
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    j["nodes"].push_back({{"id", i},
                          {"op", block_json(n, store)},
                          {"inputs", ids_json(n.in)},
                          {"shape", n.type().to_string()},
                          {"name", label_of(n)}});
  }
  j["constants"] = constants_json(store);
  return written(j);
}

HirModule hir_from_json(std::string_view text) {
  return reading([&] { return read_hir(parse_json(text)); });
}

GraphModule module_from_json(std::string_view text) {
  const bool is_lir =
      reading([&] { return parse_json(text).at("format").get<std::string>() == "rlx.lir"; });
  if (is_lir) return lir_from_json(text);
  return hir_from_json(text);
}

std::string lir_to_json(const LirModule& lir) {
  TextStore store;
  Json j = header("rlx.lir", lir.name());
  j["fingerprint"] = fmt::format("{:016x}", lir.fingerprint());
  j["mir"] = print(lir.as_graph(), &store);
  j["buffers"] = lir.has_plan() ? plan_json(lir.plan()) : Json(nullptr);
  j["constants"] = constants_json(store);
  return written(j);
}

LirModule lir_from_json(std::string_view text, Target* target) {
  return reading([&] {
    const Json j = parse_json(text);
    check_header(j, "rlx.lir");
    const TextStore store = read_constants(j.at("constants"));
    MirModule mir(parse(j.at("mir").get_ref<const std::string&>(), &store));
    if (target) require_regions(mir.as_graph());
    return target ? plan_lir(mir, *target) : LirModule(std::move(mir));
  });
}

}  // namespace rlx
