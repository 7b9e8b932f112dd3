#include "rlx/stages/json.h"

#include <nlohmann/json.hpp>

#include "rlx/base/bytes.h"
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

template <class T>
Json value_json(const T& v, TextStore& store) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, int64_t> ||
                std::is_same_v<T, std::string>) {
    return v;
  } else if constexpr (std::is_same_v<T, double>) {
    return std::isfinite(v) ? Json(v) : Json(number_text(v));
  } else if constexpr (std::is_same_v<T, AttentionMask>) {
    return v.to_string();
  } else if constexpr (requires { v.has_value(); }) {
    return v ? value_json(*v, store) : Json(nullptr);
  } else {
    Printer p{.out = {}, .store = &store};
    Codec<T>::print(p, v);
    return p.out;
  }
}

int64_t read_integer(const Json& j) {
  data_check(j.is_number_integer(), "json", "{} is not an integer", j.dump());
  return j.get<int64_t>();
}

// Where values are read from: the constants, and the version of the language (ir/text.h).
struct Source {
  TextStore store;
  int version;
  Reader reader(const Json& text) const {
    return {Lexer(text.get_ref<const std::string&>()), &store, &op_table(), version};
  }
};

template <class T>
void read_value(const Json& j, T& v, const Source& from) {
  if constexpr (std::is_same_v<T, int64_t>) {
    v = read_integer(j);
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    v = j.get<T>();
  } else if constexpr (std::is_same_v<T, double>) {
    v = j.is_string() ? Lexer(j.get_ref<const std::string&>()).number() : j.get<double>();
  } else if constexpr (std::is_same_v<T, AttentionMask>) {
    v = AttentionMask::parse(j.get_ref<const std::string&>());
  } else if constexpr (requires { v.has_value(); }) {
    v.reset();
    if (!j.is_null()) read_value(j, v.emplace(), from);
  } else {
    Reader r = from.reader(j);
    Codec<T>::read(r, v);
    data_check(r.lex.done(), "json", "text follows a value: {}", j.dump());
  }
}

template <class Block>
Json fields_json(const Block& block, TextStore& store) {
  Json out = Json::object();
  for_each_field(block, [&](std::string_view name, const auto& value) {
    out[std::string(name)] = value_json(value, store);
  });
  return out;
}

template <class Block>
void read_fields(const Json& j, Block& block, const Source& from) {
  constexpr size_t count = Block::fields().count;
  data_check(j.size() == count, "json", "a block with {} fields is given {}", count, j.dump());
  for_each_field(block, [&](std::string_view name, auto& value) {
    read_value(j.at(std::string(name)), value, from);
  });
}

// ---- blocks

Json mir_json(const AnyOp& op, TextStore& store) {
  Json attrs = Json::object();
  const std::shared_ptr<void> standard = op.attrs.type()->make();
  for (const FieldInfo& f : op.attrs.fields()) {
    if (f.equal(op.attrs.data(), standard.get())) continue;
    Printer p{.out = {}, .store = &store};
    f.print(p, op.attrs.data());
    attrs[std::string(f.name)] = p.out;
  }
  return {{"op", op.def->name}, {"attrs", attrs}};
}

AnyOp read_mir(const Json& j, const Source& from) {
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
    Reader r = from.reader(value);
    match->read(r, attrs.get());
    data_check(r.lex.done(), "json", "text follows the value of {}", field);
  }
  return {*def, Attrs(def->attr_type, std::move(attrs))};
}

Json block_json(const HirOp& op, TextStore& store) {
  const std::string kind(kind_of(op));
  return std::visit(
      [&]<class Block>(const Block& block) -> Json {
        if constexpr (std::is_same_v<Block, hir::Mir>)
          return {{kind, mir_json(block.op, store)}};
        else if constexpr (Block::fields().count == 0)
          return kind;
        else
          return {{kind, fields_json(block, store)}};
      },
      op);
}

// Tries the alternative I, then the ones behind it.
template <size_t I = 0>
HirOp read_block(const std::string& kind, const Json& body, const Source& from) {
  if constexpr (I == std::variant_size_v<HirOp>) {
    fail(ErrorKind::data, "json", "there is no block {}", quote(kind));
  } else {
    using Block = std::variant_alternative_t<I, HirOp>;
    if constexpr (std::is_same_v<Block, hir::Mir>) {
      if (kind == "Mir") return hir::Mir{read_mir(body, from)};
    } else {
      Block block;
      if (kind == kind_of(block)) {
        read_fields(body, block, from);
        return block;
      }
    }
    return read_block<I + 1>(kind, body, from);
  }
}

HirOp read_block(const Json& j, const Source& from) {
  if (j.is_string()) return read_block<0>(j.get<std::string>(), Json::object(), from);
  data_check(j.is_object() && j.size() == 1, "json", "an op is a kind and its fields, not {}",
             j.dump());
  return read_block<0>(j.begin().key(), j.begin().value(), from);
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

// Whatever the JSON library objects to is an error in the data.
template <class F>
auto reading(F&& f) {
  try {
    return f();
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::data, "json", "{}", e.what());
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
  const auto ids = [](const Json& list) {
    HirModule::Ids out;
    for (const Json& id : list) {
      const int64_t index = read_integer(id);
      data_check(index >= 0 && index <= INT32_MAX, "json", "{} is no node", index);
      out.push_back({static_cast<int32_t>(index)});
    }
    return out;
  };
  for (const Json& n : j.at("nodes")) {
    const HirNodeId id =
        m.push(read_block(n.at("op"), from), ids(n.at("inputs")), read_type(n.at("shape")));
    data_check(n.at("id") == id.index, "json", "node {} stands in the place of {}",
               n.at("id").dump(), to_string(id));
    m.node_mut(id).name = n.at("name").get<std::string>();
  }
  m.set_outputs(ids(j.at("outputs")));
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
  const auto ids = [](const HirModule::Ids& list) {
    Json out = Json::array();
    for (HirNodeId id : list) out.push_back(id.index);
    return out;
  };
  Json j = header("rlx.hir", hir.name);
  j["fusion_policy"] = name(hir.fusion_policy);
  j["outputs"] = ids(hir.outputs);
  j["nodes"] = Json::array();
  for (const HirNode& n : hir.nodes())
    j["nodes"].push_back({{"id", n.id.index},
                          {"op", block_json(n.op, store)},
                          {"inputs", ids(n.inputs)},
                          {"shape", n.shape.to_string()},
                          {"name", n.name}});
  j["constants"] = constants_json(store);
  return j.dump(1);
}

HirModule hir_from_json(std::string_view text) {
  return reading([&] { return read_hir(Json::parse(text)); });
}

GraphModule module_from_json(std::string_view text) {
  const bool is_lir =
      reading([&] { return Json::parse(text).at("format").get<std::string>() == "rlx.lir"; });
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
  return j.dump(1);
}

LirModule lir_from_json(std::string_view text, Target* target) {
  return reading([&] {
    const Json j = Json::parse(text);
    check_header(j, "rlx.lir");
    const TextStore store = read_constants(j.at("constants"));
    MirModule mir(parse(j.at("mir").get_ref<const std::string&>(), &store));
    return target ? plan_lir(mir, *target) : LirModule(std::move(mir));
  });
}

}  // namespace rlx
