// Dims, shapes and tensor types.
//
//   Dim b = Dim::symbol("b");
//   Type t{DType::F32, {b, 2 * b + 1, 384}};      // prints [?b, 2*?b+1, 384] f32
//
// A Dim is a normalised polynomial over symbols with integer coefficients; equal polynomials are
// equal dims. Where a size is divided and rounded down, the quotient stands in the polynomial like a
// symbol: floor_div(h + 1, 2) prints floor((?h+1)/2).
#pragma once

#include <atomic>
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rlx/base/checked.h"
#include "rlx/base/few.h"
#include "rlx/base/fields.h"
#include "rlx/base/format.h"
#include "rlx/base/function_ref.h"
#include "rlx/ir/dtype.h"
#include "rlx/ir/size_hint.h"

namespace rlx {

using DimBinding = std::map<std::string, int64_t>;
using SymbolNames = std::map<std::string, std::string>;  // other names for some symbols

class Dim {
 public:
  Dim() = default;
  Dim(int64_t size) : bits_(packed(size)) {  // NOLINT: implicit by design
    if (unpacked(bits_) != size) bits_ = share(size, {});
  }
  Dim(const Dim& d) noexcept : bits_(d.bits_) { keep(); }
  Dim(Dim&& d) noexcept : bits_(std::exchange(d.bits_, packed(0))) {}
  Dim& operator=(Dim d) noexcept {
    std::swap(bits_, d.bits_);
    return *this;
  }
  ~Dim() { drop(); }
  static Dim symbol(std::string name);
  // Larger polynomials raise "dim-terms". Quotients stand in quotients at most kMaxNesting deep, and a dim has at
  // most kMaxTerms * kMaxDegree symbols, those in quotients counted.
  static constexpr size_t kMaxTerms = 256, kMaxDegree = 64, kMaxNesting = 16;

  bool is_static() const { return !terms(); }
  int64_t value() const;  // raises "unbound-dim" when symbolic
  std::optional<int64_t> static_value() const {
    return terms() ? std::nullopt : std::optional(constant());
  }

  Dim bind(const DimBinding& binding) const;    // unknown symbols stay
  Dim renamed(const SymbolNames& names) const;  // likewise
  void collect_symbols(std::vector<std::string>& names) const;
  // A bound from below where every symbol is at least 1 and what its hint allows; nullopt: none is known.
  std::optional<int64_t> least(const SizeHints& hints = {}) const;
  // this / other when the division is exact as polynomials (other may be any monomial or constant).
  std::optional<Dim> divide(const Dim& other) const;
  // n / d rounded down, d > 0 ("dim-division"). What d divides leaves the quotient, common factors go, and the
  // quotient of a quotient is one: floor_div(4 * n + m, 2) is 2*?n+floor(?m/2).
  friend Dim floor_div(const Dim& n, int64_t d);

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b) { return a + Dim(-1) * b; }
  friend Dim operator*(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b) {
    return a.bits_ == b.bits_ || (!a.is_packed() && !b.is_packed() && same_polynomial(a, b));
  }

  std::string to_string() const;
  static Dim read(Lexer& lex);
  uint64_t hash() const;

 private:
  friend class DimValues;
  struct Quotient;
  // A factor of a term: a symbol, or a quotient rounded down.
  struct Atom {
    std::string symbol;
    std::shared_ptr<const Quotient> quotient;
    std::strong_ordering operator<=>(const Atom& other) const;
    bool operator==(const Atom& other) const;
    std::optional<int64_t> bound(bool from_below, const SizeHints& hints) const;
  };
  using Monomial = std::vector<Atom>;         // sorted, with repeats; never empty
  using Terms = std::map<Monomial, int64_t>;  // no zero coefficients
  // What does not fit into a word; copies share it.
  struct Polynomial {
    std::atomic<int64_t> owners;
    int64_t constant;
    Terms terms;
  };

  static Dim make(int64_t constant, Terms terms);
  static Dim quotient(Dim numerator, int64_t divisor);  // as it stands
  static Dim read_sum(Lexer& lex, size_t depth, bool one_product);
  static Dim read_quotient(Lexer& lex, size_t depth);  // behind `floor`
  // Of the coefficients of all symbols and of n.
  int64_t common_factor(int64_t n) const;
  // The one term that is a quotient by itself, where no other term has one.
  const Quotient* lone_quotient() const;
  Dim substitute(FunctionRef<Dim(const std::string&)> value) const;
  static bool same_polynomial(const Dim& a, const Dim& b);
  static constexpr uintptr_t packed(int64_t n) { return static_cast<uintptr_t>(n) << 1 | 1; }
  static constexpr int64_t unpacked(uintptr_t bits) { return static_cast<int64_t>(bits) >> 1; }
  static uintptr_t share(int64_t constant, Terms terms);
  bool is_packed() const { return bits_ & 1; }
  Polynomial* polynomial() const { return reinterpret_cast<Polynomial*>(bits_); }  // NOLINT
  int64_t constant() const { return is_packed() ? unpacked(bits_) : polynomial()->constant; }
  const Terms* terms() const {  // none when static
    return is_packed() || polynomial()->terms.empty() ? nullptr : &polynomial()->terms;
  }
  void keep() const {
    if (!is_packed()) polynomial()->owners.fetch_add(1, std::memory_order_relaxed);
  }
  void drop() {
    if (!is_packed() && polynomial()->owners.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete polynomial();
  }

  // Shapes are most of what a graph holds, so a dim is one word: twice a number of 63 bits and one, or the address
  // of a polynomial. A number has one form only.
  uintptr_t bits_ = packed(0);
};
template <>
inline constexpr bool kMovesAsBytes<Dim> = true;

Dim floor_div(const Dim& n, int64_t d);
Dim ceil_div(const Dim& n, int64_t d);   // rounded up
Dim floor_mod(const Dim& n, int64_t d);  // n - d * floor_div(n, d), in [0, d)

// The sizes of dims whose symbols are all bound. Remembers each polynomial it met by its address, so the dims must
// outlive it.
class DimValues {
 public:
  explicit DimValues(const DimBinding& binding) : binding_(binding) {}
  int64_t operator()(const Dim& d);  // raises "unbound-dim" naming the symbol
  const DimBinding& binding() const { return binding_; }

 private:
  int64_t evaluate(const Dim& d);
  const DimBinding& binding_;
  std::unordered_map<uintptr_t, int64_t> known_;
};

// Tensors of a higher rank are refused where a node is made ("rank").
inline constexpr int64_t kMaxRank = 64;

class Shape : public Few<Dim, 4> {
 public:
  using Few<Dim, 4>::Few;
  static Shape of(const Ints& dims) { return Shape(dims.begin(), dims.end()); }

  int64_t rank() const { return static_cast<int64_t>(size()); }
  bool is_static() const;
  Dim elements() const;  // product; 1 for rank 0
  Ints sizes() const;    // raises "unbound-dim" when symbolic
  Shape bind(const DimBinding& binding) const;
  std::string to_string() const;
};

struct Type {
  DType dtype = DType::F32;
  Shape shape;

  int64_t rank() const { return shape.rank(); }
  int64_t bytes() const;  // raises when symbolic or too large
  bool operator==(const Type&) const = default;
  std::string to_string() const;
};

template <>
inline constexpr bool kMovesAsBytes<Type> = true;

// NumPy broadcasting, right-aligned. A symbol against a static size n != 1 gives n, two different
// symbols give the left one: the sizes are checked when the symbols are bound.
std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b);

// axis in [-rank, rank) to [0, rank); raises "axis-range" naming the op.
int64_t normalise_axis(int64_t axis, int64_t rank, std::string_view op);
Ints normalise_axes(Ints axes, int64_t rank, std::string_view op);  // sorted, unique

// Row-major strides in elements.
Ints row_major_strides(const Ints& sizes);
int64_t product(const Ints& sizes);

template <>
struct Codec<Dim> {
  static std::string type() { return "dim"; }
  static void print(Printer& p, const Dim& v) { p.out += v.to_string(); }
  static void read(Reader& r, Dim& v) { v = Dim::read(r.lex); }
  static void write(ByteWriter& w, const Dim& v);
  static void load(ByteReader& r, Dim& v);
  static uint64_t hash(const Dim& v) { return v.hash(); }
  static bool equal(const Dim& a, const Dim& b) { return a == b; }
};

template <>
struct Codec<Shape> : ListCodec<Shape> {
  static std::string type() { return "[dim]"; }
};

template <>
struct Codec<DType> {
  static std::string type() { return "dtype"; }
  static void print(Printer& p, DType v) { p.out += to_string(v); }
  static void read(Reader& r, DType& v);
  static void write(ByteWriter& w, DType v) { w.u8(static_cast<uint8_t>(v)); }
  static void load(ByteReader& r, DType& v);
  static uint64_t hash(DType v) { return static_cast<uint64_t>(v); }
  static bool equal(DType a, DType b) { return a == b; }
};

extern template struct MemberTypeOf<Dim>;
extern template struct MemberTypeOf<Shape>;
extern template struct MemberTypeOf<DType>;

}  // namespace rlx

template <>
struct fmt::formatter<rlx::Dim> : rlx::TextFormatter {
  auto format(const rlx::Dim& d, fmt::format_context& c) const { return put(c, d.to_string()); }
};
template <>
struct fmt::formatter<rlx::Shape> : rlx::TextFormatter {
  auto format(const rlx::Shape& s, fmt::format_context& c) const { return put(c, s.to_string()); }
};
template <>
struct fmt::formatter<rlx::Type> : rlx::TextFormatter {
  auto format(const rlx::Type& t, fmt::format_context& c) const { return put(c, t.to_string()); }
};
