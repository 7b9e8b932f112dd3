// Fields: an attribute struct lists its members once; text, bytes, hash, equality, docs and
// keywords follow from it.
//
//   struct ReduceAttrs {
//     Ints axes;
//     bool keepdims = false;
//     static constexpr auto fields() {
//       return Fields<&ReduceAttrs::axes, &ReduceAttrs::keepdims>();
//     }
//   };
//
// A member type takes part when Codec<T> exists: bool, int64_t, double, std::string, enums with
// `enum_names(T)`, vectors and optionals of these here; dims, dtypes, tensors and graph bodies in
// ir/. Floats compare and hash by bits and print so that they read back exactly.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "rlx/base/bytes.h"
#include "rlx/base/hash.h"
#include "rlx/base/lexer.h"

namespace rlx {

using Ints = std::vector<int64_t>;

// The list, all of it in its type: every file that sees the ops sees two hundred of these.
template <auto... members>
struct Fields {
  static constexpr size_t count = sizeof...(members);
};

// The fields of a base and those of its heir.
template <auto... a, auto... b>
constexpr Fields<a..., b...> join(Fields<a...>, Fields<b...>) {
  return {};
}

namespace detail {

// A field is called what its member is called. The compiler says it: "[with auto member = &Struct::name; ..]" or
// "[member = &rlx::Struct::name]".
template <auto member>
constexpr std::string_view field_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  text = text.substr(text.find("member = &"));
  text = text.substr(0, text.find_first_of(";]"));
  text = text.substr(text.rfind(':') + 1);
  for (char c : text)
    if (!(('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '_'))
      throw "the compiler names members in a form that is not known here";
  return text;
}

}  // namespace detail

// What a codec may need from outside: where constants too large for text live, and the ops that
// bodies may use.
struct TextStore;
class OpTable;
struct Printer {
  std::string out;
  TextStore* store = nullptr;
  int indent = 0;
  int version = 1;  // the lowest in which what was printed means what it does
};
struct Reader {
  Lexer lex;
  const TextStore* store = nullptr;
  const OpTable* table = nullptr;
  int version = kLanguageVersion;  // of the text
};

template <class T>
struct Codec;

template <>
struct Codec<bool> {
  static std::string type() { return "bool"; }
  static void print(Printer& p, bool v) { p.out += v ? "true" : "false"; }
  static void read(Reader& r, bool& v) {
    if (r.lex.accept("true"))
      v = true;
    else if (r.lex.accept("false"))
      v = false;
    else
      r.lex.error("expected true or false");
  }
  static void write(ByteWriter& w, bool v) { w.u8(v); }
  static void load(ByteReader& r, bool& v) {
    const uint8_t byte = r.u8();
    if (byte > 1) r.error("bool", "a bool is 0 or 1, not {}", byte);
    v = byte == 1;
  }
  static uint64_t hash(bool v) { return v; }
  static bool equal(bool a, bool b) { return a == b; }
};

template <>
struct Codec<int64_t> {
  static std::string type() { return "int"; }
  static void print(Printer& p, int64_t v) { p.out += std::to_string(v); }
  static void read(Reader& r, int64_t& v) { v = r.lex.integer(); }
  static void write(ByteWriter& w, int64_t v) { w.signed_varint(v); }
  static void load(ByteReader& r, int64_t& v) { v = r.signed_varint(); }
  static uint64_t hash(int64_t v) { return static_cast<uint64_t>(v); }
  static bool equal(int64_t a, int64_t b) { return a == b; }
};

template <>
struct Codec<double> {
  static std::string type() { return "float"; }
  static void print(Printer& p, double v) { p.out += number_text(v); }
  static void read(Reader& r, double& v) { v = r.lex.number(); }
  static void write(ByteWriter& w, double v) { w.f64(v); }
  static void load(ByteReader& r, double& v) { v = r.f64(); }
  static uint64_t hash(double v) { return std::bit_cast<uint64_t>(v); }
  static bool equal(double a, double b) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  }
};

template <>
struct Codec<std::string> {
  static std::string type() { return "string"; }
  static void print(Printer& p, const std::string& v) { p.out += quote(v); }
  static void read(Reader& r, std::string& v) { v = r.lex.quoted(); }
  static void write(ByteWriter& w, const std::string& v) { w.text(v); }
  static void load(ByteReader& r, std::string& v) { v = r.text(); }
  static uint64_t hash(const std::string& v) { return hash_text(v); }
  static bool equal(const std::string& a, const std::string& b) { return a == b; }
};

// Enums: `constexpr std::span<const std::string_view> enum_names(E)` found by argument-dependent
// look-up.
template <class E>
  requires std::is_enum_v<E>
struct Codec<E> {
  static std::string type() {
    std::string out;
    for (std::string_view n : enum_names(E{})) out += (out.empty() ? "" : "|") + std::string(n);
    return out;
  }
  static void print(Printer& p, E v) { p.out += enum_names(v)[static_cast<size_t>(v)]; }
  static void read(Reader& r, E& v) {
    auto names = enum_names(v);
    for (size_t i = 0; i < names.size(); ++i)
      if (r.lex.accept(names[i])) {
        v = static_cast<E>(i);
        return;
      }
    r.lex.error("expected one of " + type());
  }
  static void write(ByteWriter& w, E v) { w.varint(static_cast<uint64_t>(v)); }
  static void load(ByteReader& r, E& v) {
    const uint64_t i = r.varint();
    if (i >= enum_names(v).size()) r.error("enum", "{} is not the number of any of {}", i, type());
    v = static_cast<E>(i);
  }
  static uint64_t hash(E v) { return static_cast<uint64_t>(v); }
  static bool equal(E a, E b) { return a == b; }
};

template <class List>
struct ListCodec {
  using T = typename List::value_type;
  static std::string type() { return "[" + Codec<T>::type() + "]"; }
  static void print(Printer& p, const List& v) {
    p.out += '[';
    for (size_t i = 0; i < v.size(); ++i) {
      if (i) p.out += ", ";
      Codec<T>::print(p, v[i]);
    }
    p.out += ']';
  }
  static void read(Reader& r, List& v) {
    v.clear();
    r.lex.expect("[");
    if (r.lex.accept("]")) return;
    do {
      T item{};
      Codec<T>::read(r, item);
      v.push_back(std::move(item));
    } while (r.lex.accept(","));
    r.lex.expect("]");
  }
  static void write(ByteWriter& w, const List& v) {
    w.varint(v.size());
    for (const T& item : v) Codec<T>::write(w, item);
  }
  static void load(ByteReader& r, List& v) {
    v.clear();
    const uint64_t n = r.varint();
    if (n > r.left())
      r.error("truncated", "{} items are announced, {} bytes are left", n, r.left());
    for (uint64_t i = 0; i < n; ++i) {
      T item{};
      Codec<T>::load(r, item);
      v.push_back(std::move(item));
    }
  }
  static uint64_t hash(const List& v) {
    uint64_t h = v.size();
    for (const T& item : v) h = mix(h, Codec<T>::hash(item));
    return h;
  }
  static bool equal(const List& a, const List& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (!Codec<T>::equal(a[i], b[i])) return false;
    return true;
  }
};
template <class T>
struct Codec<std::vector<T>> : ListCodec<std::vector<T>> {};

template <class T>
struct Codec<std::optional<T>> {
  static std::string type() { return Codec<T>::type() + "?"; }
  static void print(Printer& p, const std::optional<T>& v) {
    if (v)
      Codec<T>::print(p, *v);
    else
      p.out += "none";
  }
  static void read(Reader& r, std::optional<T>& v) {
    v.reset();
    if (r.lex.accept("none")) return;
    v.emplace();
    Codec<T>::read(r, *v);
  }
  static void write(ByteWriter& w, const std::optional<T>& v) {
    w.u8(v.has_value());
    if (v) Codec<T>::write(w, *v);
  }
  static void load(ByteReader& r, std::optional<T>& v) {
    bool given = false;
    Codec<bool>::load(r, given);
    v.reset();
    if (given) Codec<T>::load(r, v.emplace());
  }
  static uint64_t hash(const std::optional<T>& v) { return v ? mix(1, Codec<T>::hash(*v)) : 0; }
  static bool equal(const std::optional<T>& a, const std::optional<T>& b) {
    return a.has_value() == b.has_value() && (!a || Codec<T>::equal(*a, *b));
  }
};

// A member's type with its type erased: Codec<T> on pointers to T.
struct MemberType {
  std::string (*type)();
  void (*print)(Printer&, const void* member);
  void (*read)(Reader&, void* member);
  void (*write)(ByteWriter&, const void* member);
  void (*load)(ByteReader&, void* member);
  uint64_t (*hash)(const void* member);
  bool (*equal)(const void* a, const void* b);
  const std::type_info* id;
};

// A static member and not a variable, so that one file can hold it for all: `extern template`
// below and in ir/ for the types that most structs are made of.
template <class T>
struct MemberTypeOf {
  static const MemberType value;
};
template <class T>
constinit const MemberType MemberTypeOf<T>::value{
    &Codec<T>::type,
    [](Printer& p, const void* m) { Codec<T>::print(p, *static_cast<const T*>(m)); },
    [](Reader& r, void* m) { Codec<T>::read(r, *static_cast<T*>(m)); },
    [](ByteWriter& w, const void* m) { Codec<T>::write(w, *static_cast<const T*>(m)); },
    [](ByteReader& r, void* m) { Codec<T>::load(r, *static_cast<T*>(m)); },
    [](const void* m) { return Codec<T>::hash(*static_cast<const T*>(m)); },
    [](const void* a, const void* b) {
      return Codec<T>::equal(*static_cast<const T*>(a), *static_cast<const T*>(b));
    },
    &typeid(T),
};
extern template struct MemberTypeOf<bool>;
extern template struct MemberTypeOf<int64_t>;
extern template struct MemberTypeOf<double>;
extern template struct MemberTypeOf<std::string>;
extern template struct MemberTypeOf<Ints>;
extern template struct MemberTypeOf<std::vector<double>>;
extern template struct MemberTypeOf<std::optional<int64_t>>;
extern template struct MemberTypeOf<std::optional<double>>;

// One member of an attribute struct with its type erased.
struct FieldInfo {
  std::string_view name;
  const MemberType* member_type;
  void* (*member)(void* attrs);

  template <class T>
  bool is() const {
    return *member_type->id == typeid(T);
  }
  const void* member_of(const void* attrs) const { return member(const_cast<void*>(attrs)); }
  // The member where it is a T, else null.
  template <class T>
  const T* get(const void* attrs) const {
    return is<T>() ? static_cast<const T*>(member_of(attrs)) : nullptr;
  }
  template <class T>
  T* get(void* attrs) const {
    return is<T>() ? static_cast<T*>(member(attrs)) : nullptr;
  }
  std::string type() const { return member_type->type(); }
  void print(Printer& p, const void* attrs) const { member_type->print(p, member_of(attrs)); }
  void read(Reader& r, void* attrs) const { member_type->read(r, member(attrs)); }
  void write(ByteWriter& w, const void* attrs) const { member_type->write(w, member_of(attrs)); }
  void load(ByteReader& r, void* attrs) const { member_type->load(r, member(attrs)); }
  uint64_t hash(const void* attrs) const { return member_type->hash(member_of(attrs)); }
  bool equal(const void* a, const void* b) const {
    return member_type->equal(member_of(a), member_of(b));
  }
};

struct NoAttrs {
  static constexpr auto fields() { return Fields<>(); }
};

namespace detail {

template <class A, auto member>
void* member_of(void* attrs) {
  return &(static_cast<A*>(attrs)->*member);
}
template <class A, auto member>
using TypeOfMember = std::remove_reference_t<decltype(std::declval<A&>().*member)>;

template <class A, auto... members>
constexpr std::array<FieldInfo, sizeof...(members)> field_infos(Fields<members...>) {
  return {FieldInfo{field_name<members>(), &MemberTypeOf<TypeOfMember<A, members>>::value,
                    member_of<A, members>}...};
}

template <class A>
inline constexpr auto kFields = field_infos<A>(A::fields());

}  // namespace detail

// An attribute struct with its type erased.
struct AttrType {
  std::span<const FieldInfo> fields;
  std::shared_ptr<void> (*make)();
  std::shared_ptr<void> (*copy)(const void*);
};

template <class A>
inline constexpr AttrType kAttrType{
    detail::kFields<A>,
    []() -> std::shared_ptr<void> { return std::make_shared<A>(); },
    [](const void* a) -> std::shared_ptr<void> {
      return std::make_shared<A>(*static_cast<const A*>(a));
    },
};

// A value of some attribute struct: immutable, shared, compared by content.
class Attrs {
 public:
  Attrs() : Attrs(NoAttrs{}) {}
  template <class A>
    requires requires { A::fields(); }
  Attrs(A attrs)  // NOLINT: implicit by design
      : type_(&kAttrType<A>), data_(store(std::move(attrs))) {}
  Attrs(const AttrType* type, std::shared_ptr<const void> data)
      : type_(type), data_(std::move(data)) {}

  template <class A>
  const A& get() const {
    check(type_ == &kAttrType<A>, "attributes read as the wrong type");
    return *static_cast<const A*>(data_.get());
  }
  const AttrType* type() const { return type_; }
  const void* data() const { return data_.get(); }
  std::span<const FieldInfo> fields() const { return type_->fields; }
  std::shared_ptr<void> copy() const { return type_->copy(data_.get()); }
  uint64_t hash() const;
  friend bool operator==(const Attrs& a, const Attrs& b);

 private:
  // Those without fields are all one object.
  template <class A>
  static std::shared_ptr<const void> store(A attrs) {
    if constexpr (std::is_empty_v<A>) {
      static const A only;
      return {std::shared_ptr<const void>(), &only};
    } else {
      return std::make_shared<A>(std::move(attrs));
    }
  }
  const AttrType* type_;
  std::shared_ptr<const void> data_;
};

}  // namespace rlx
