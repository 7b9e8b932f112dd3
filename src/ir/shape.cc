#include "rlx/ir/shape.h"

#include <algorithm>
#include <numeric>

#include "rlx/base/printable.h"
#include "rlx/base/suggest.h"

namespace rlx {

namespace {
// Sums of products multiply out: text of a few hundred bytes could ask for 2^40 terms.
void check_terms(size_t terms) {
  user_check(terms <= Dim::kMaxTerms, "dim-terms",
             "a symbolic dim has more than {} terms; give an intermediate size a symbol of its own",
             Dim::kMaxTerms);
}
void check_degree(size_t symbols) {
  user_check(symbols <= Dim::kMaxDegree, "dim-terms",
             "a symbolic dim has a product of more than {} symbols", Dim::kMaxDegree);
}
void check_symbols(size_t symbols) {
  user_check(symbols <= Dim::kMaxTerms * Dim::kMaxDegree, "dim-terms",
             "a symbolic dim has more than {} symbols", Dim::kMaxTerms * Dim::kMaxDegree);
}
// n / d rounded down, d > 0.
int64_t floor_of(int64_t n, int64_t d) { return n / d - (n % d < 0); }
}  // namespace

struct Dim::Quotient {
  Dim numerator;
  int64_t divisor;
  size_t symbols, depth;  // in all; how many quotients stand in each other
};

std::strong_ordering Dim::Atom::operator<=>(const Atom& other) const {
  if (!quotient || !other.quotient)
    return quotient ? std::strong_ordering::greater
                    : (other.quotient ? std::strong_ordering::less : symbol <=> other.symbol);
  if (quotient == other.quotient) return std::strong_ordering::equal;
  const Dim &a = quotient->numerator, &b = other.quotient->numerator;
  if (const auto c = *a.terms() <=> *b.terms(); c != 0) return c;
  if (const auto c = a.constant() <=> b.constant(); c != 0) return c;
  return quotient->divisor <=> other.quotient->divisor;
}

bool Dim::Atom::operator==(const Atom& other) const {
  return symbol == other.symbol && (quotient == other.quotient || (*this <=> other) == 0);
}

Dim Dim::make(int64_t constant, Terms terms) {
  std::erase_if(terms, [](const auto& term) { return term.second == 0; });
  check_terms(terms.size());
  size_t symbols = 0;
  for (const auto& [monomial, c] : terms)
    for (const Atom& a : monomial) symbols += a.quotient ? a.quotient->symbols : 1;
  check_symbols(symbols);
  if (terms.empty()) return Dim(constant);
  Dim d;
  d.bits_ = share(constant, std::move(terms));
  return d;
}

uintptr_t Dim::share(int64_t constant, Terms terms) {
  return reinterpret_cast<uintptr_t>(new Polynomial{1, constant, std::move(terms)});
}

Dim Dim::symbol(std::string name) {
  user_check(!name.empty(), "symbol-name", "a symbolic dim needs a name");
  return make(0, {{{Atom{std::move(name), nullptr}}, 1}});
}

int64_t Dim::value() const {
  if (terms())
    fail(ErrorKind::user, "unbound-dim", "dim {} is symbolic: bind its symbols to sizes first",
         to_string());
  return constant();
}

Dim operator+(const Dim& a, const Dim& b) {
  const int64_t constant = add_or_fail(a.constant(), b.constant(), "dim");
  if (!a.terms() && !b.terms()) return Dim(constant);
  Dim::Terms terms = a.terms() ? *a.terms() : Dim::Terms{};
  if (b.terms())
    for (const auto& [monomial, coefficient] : *b.terms()) {
      int64_t& c = terms[monomial];
      c = add_or_fail(c, coefficient, "dim");
    }
  return Dim::make(constant, std::move(terms));
}

Dim operator*(const Dim& a, const Dim& b) {
  if (!a.terms() && !b.terms()) return Dim(mul_or_fail(a.constant(), b.constant(), "dim"));
  Dim::Terms terms;
  auto add = [&](Dim::Monomial m, int64_t c) {
    check_degree(m.size());
    check_terms(terms.size());
    int64_t& slot = terms[std::move(m)];
    slot = add_or_fail(slot, c, "dim");
  };
  if (a.terms())
    for (const auto& [m, c] : *a.terms()) add(m, mul_or_fail(c, b.constant(), "dim"));
  if (b.terms())
    for (const auto& [m, c] : *b.terms()) add(m, mul_or_fail(c, a.constant(), "dim"));
  if (a.terms() && b.terms())
    for (const auto& [ma, ca] : *a.terms())
      for (const auto& [mb, cb] : *b.terms()) {
        Dim::Monomial m;
        std::merge(ma.begin(), ma.end(), mb.begin(), mb.end(), std::back_inserter(m));
        add(std::move(m), mul_or_fail(ca, cb, "dim"));
      }
  return Dim::make(mul_or_fail(a.constant(), b.constant(), "dim"), std::move(terms));
}

bool Dim::same_polynomial(const Dim& a, const Dim& b) {
  return a.constant() == b.constant() && a.polynomial()->terms == b.polynomial()->terms;
}

std::optional<Dim> Dim::divide(const Dim& other) const {
  if (other == Dim(1)) return *this;
  if (*this == other && !(other == Dim(0))) return Dim(1);
  if (!other.terms()) {
    const int64_t n = other.constant();
    if (n == 0 || constant() % n) return std::nullopt;
    Terms parts;
    if (terms())
      for (const auto& [m, c] : *terms()) {
        if (c % n) return std::nullopt;
        parts[m] = c / n;
      }
    return make(constant() / n, std::move(parts));
  }
  // By a single monomial: remove its symbols from every term.
  if (other.constant() != 0 || other.terms()->size() != 1 || constant() != 0 || !terms())
    return std::nullopt;
  const auto& [divisor, scale] = *other.terms()->begin();
  Dim result(0);
  for (const auto& [m, c] : *terms()) {
    Monomial rest;
    if (c % scale || !std::includes(m.begin(), m.end(), divisor.begin(), divisor.end()))
      return std::nullopt;
    std::set_difference(m.begin(), m.end(), divisor.begin(), divisor.end(),
                        std::back_inserter(rest));
    result = result + (rest.empty() ? Dim(c / scale) : make(0, {{rest, c / scale}}));
  }
  return result;
}

Dim Dim::quotient(Dim numerator, int64_t divisor) {
  size_t symbols = 1, depth = 1;
  for (const auto& [monomial, c] : *numerator.terms())
    for (const Atom& a : monomial) {
      symbols += a.quotient ? a.quotient->symbols : 1;
      if (a.quotient) depth = std::max(depth, a.quotient->depth + 1);
    }
  check_symbols(symbols);
  user_check(depth <= kMaxNesting, "dim-terms",
             "a symbolic dim has more than {} quotients in each other", kMaxNesting);
  auto q =
      std::make_shared<const Quotient>(Quotient{std::move(numerator), divisor, symbols, depth});
  return make(0, {{{Atom{"", std::move(q)}}, 1}});
}

int64_t Dim::common_factor(int64_t n) const {
  for (const auto& [monomial, c] : *terms()) n = std::gcd(n, c);
  return n;
}

const Dim::Quotient* Dim::lone_quotient() const {
  const Quotient* found = nullptr;
  for (const auto& [monomial, c] : *terms()) {
    const auto is_quotient = [](const Atom& a) { return a.quotient != nullptr; };
    if (std::none_of(monomial.begin(), monomial.end(), is_quotient)) continue;
    if (found || c != 1 || monomial.size() != 1) return nullptr;
    found = monomial[0].quotient.get();
  }
  return found;
}

// n - floor_of(n, d) * d, where that product may be below the smallest number.
static int64_t rest_of(int64_t n, int64_t d) { return n % d < 0 ? n % d + d : n % d; }

Dim floor_div(const Dim& n, int64_t d) {
  user_check(d > 0, "dim-division", "a dim cannot be divided by {}: only by positive numbers", d);
  if (d == 1) return n;
  if (!n.terms()) return Dim(floor_of(n.constant(), d));
  // n = d * whole + rest, all coefficients of rest in [0, d).
  Dim::Terms multiples, remainders;
  for (const auto& [monomial, c] : *n.terms()) {
    multiples[monomial] = floor_of(c, d);
    remainders[monomial] = rest_of(c, d);
  }
  const int64_t multiple = floor_of(n.constant(), d);
  Dim whole = Dim::make(multiple, std::move(multiples));
  Dim rest = Dim::make(rest_of(n.constant(), d), std::move(remainders));
  if (!rest.terms()) return whole;
  if (const int64_t factor = rest.common_factor(d); factor > 1) {
    // floor((f * x + c) / (f * e)) = floor((x + floor(c / f)) / e)
    const int64_t constant = rest.constant();
    rest = *(rest - constant).divide(factor) + constant / factor;
    return whole + floor_div(rest, d / factor);
  }
  if (const Dim::Quotient* q = rest.lone_quotient())
    // floor((floor(x / e) + y) / d) = floor((x + e * y) / (d * e))
    if (const auto both = checked_mul(d, q->divisor)) {
      const Dim numerator = q->numerator, inner = Dim::quotient(numerator, q->divisor);
      return whole + floor_div(numerator + (rest - inner) * q->divisor, *both);
    }
  return whole + Dim::quotient(std::move(rest), d);
}

Dim ceil_div(const Dim& n, int64_t d) { return floor_div(n + (d - 1), d); }

Dim floor_mod(const Dim& n, int64_t d) { return n - floor_div(n, d) * d; }

// A term is least where its factors are, or, if it is subtracted, where they are largest. None of them is negative.
std::optional<int64_t> Dim::least(const SizeHints& hints) const {
  int64_t sum = constant();
  if (!terms()) return sum;
  for (const auto& [monomial, coefficient] : *terms()) {
    int64_t term = coefficient;
    for (const Atom& atom : monomial) {
      const auto factor = atom.bound(coefficient > 0, hints);
      if (!factor || __builtin_mul_overflow(term, *factor, &term)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, term, &sum)) return std::nullopt;
  }
  return sum;
}

// The least that the factor may be, or the most; nullopt: not known, or it may be negative.
std::optional<int64_t> Dim::Atom::bound(bool from_below, const SizeHints& hints) const {
  if (quotient) {
    const auto low = quotient->numerator.least(hints);
    if (!low || *low < 0) return std::nullopt;
    if (from_below) return *low / quotient->divisor;
    const auto high = (Dim(-1) * quotient->numerator).least(hints);
    return high ? std::optional(*high / -quotient->divisor) : std::nullopt;
  }
  const auto found = hints.find(symbol);
  const SizeHint hint = found == hints.end() ? SizeHint{} : found->second;
  if (from_below) return hint.least();
  return hint.max == SizeHint::kNoMax ? std::nullopt : std::optional(hint.most());
}

Dim Dim::substitute(FunctionRef<Dim(const std::string&)> value) const {
  if (!terms()) return *this;
  Dim result(constant());
  for (const auto& [monomial, coefficient] : *terms()) {
    Dim term(coefficient);
    for (const Atom& a : monomial)
      term = term * (a.quotient
                         ? floor_div(a.quotient->numerator.substitute(value), a.quotient->divisor)
                         : value(a.symbol));
    result = result + term;
  }
  return result;
}

Dim Dim::bind(const DimBinding& binding) const {
  return substitute([&](const std::string& name) {
    const auto it = binding.find(name);
    return it == binding.end() ? symbol(name) : Dim(it->second);
  });
}

Dim Dim::renamed(const SymbolNames& names) const {
  return substitute([&](const std::string& name) {
    const auto it = names.find(name);
    return symbol(it == names.end() ? name : it->second);
  });
}

int64_t DimValues::operator()(const Dim& d) {
  if (!d.terms()) return d.constant();
  const auto known = known_.find(d.bits_);
  if (known != known_.end()) return known->second;
  return known_[d.bits_] = evaluate(d);
}

int64_t DimValues::evaluate(const Dim& d) {
  int64_t sum = d.constant();
  for (const auto& [monomial, coefficient] : *d.terms()) {
    int64_t term = coefficient;
    for (const Dim::Atom& a : monomial) {
      int64_t factor = 0;
      if (a.quotient) {
        factor = floor_of((*this)(a.quotient->numerator), a.quotient->divisor);
      } else {
        const auto it = binding_.find(a.symbol);
        user_check(it != binding_.end(), "unbound-dim",
                   "dim {} is symbolic: the size of ?{} is not given", d, a.symbol);
        factor = it->second;
      }
      term = mul_or_fail(term, factor, "dim");
    }
    sum = add_or_fail(sum, term, "dim");
  }
  return sum;
}

void Dim::collect_symbols(std::vector<std::string>& names) const {
  if (!terms()) return;
  for (const auto& [monomial, c] : *terms())
    for (const Atom& a : monomial) {
      if (a.quotient)
        a.quotient->numerator.collect_symbols(names);
      else if (std::find(names.begin(), names.end(), a.symbol) == names.end())
        names.push_back(a.symbol);
    }
}

std::string Dim::to_string() const {
  if (!terms()) return std::to_string(constant());
  std::string out;
  for (const auto& [monomial, coefficient] : *terms()) {
    if (!out.empty() && coefficient >= 0) out += '+';
    if (coefficient == -1)
      out += '-';
    else if (coefficient != 1)
      out += std::to_string(coefficient) + "*";
    for (size_t i = 0; i < monomial.size(); ++i) {
      if (i) out += '*';
      const Quotient* q = monomial[i].quotient.get();
      if (!q) {
        out += '?' + monomial[i].symbol;
        continue;
      }
      const bool sum = q->numerator.constant() != 0 || q->numerator.terms()->size() > 1;
      out +=
          fmt::format("floor({}{}{}/{})", sum ? "(" : "", q->numerator, sum ? ")" : "", q->divisor);
    }
  }
  if (constant() > 0) out += '+';
  if (constant() != 0) out += std::to_string(constant());
  return out;
}

// A product, or a sum in brackets: floor(?n+1/2) would not say what is divided.
Dim Dim::read_quotient(Lexer& lex, size_t depth) {
  if (depth == kMaxNesting) lex.error("quotients are nested too deeply");
  lex.expect("(");
  const bool sum = lex.accept("(");
  const Dim numerator = read_sum(lex, depth + 1, !sum);
  if (sum)
    lex.expect(")");
  else if (lex.peek("+") || lex.peek("-"))
    lex.error("a sum that is divided stands in brackets: floor((?n+1)/2)");
  lex.expect("/");
  const Lexer at = lex;
  const int64_t divisor = lex.integer();
  if (divisor < 1) error_at(at, fmt::format("a dim cannot be divided by {}", divisor));
  lex.expect(")");
  return floor_div(numerator, divisor);
}

Dim Dim::read(Lexer& lex) { return read_sum(lex, 0, false); }

Dim Dim::read_sum(Lexer& lex, size_t depth, bool one_product) {
  const Lexer place = lex;
  int64_t constant = 0;
  Terms terms;
  auto add = [](int64_t& sum, int64_t c) { sum = add_or_fail(sum, c, "dim"); };
  bool first = true;
  try {
    for (;; first = false) {
      int64_t coefficient = 1;
      if (!first && one_product) return make(constant, std::move(terms));
      if (lex.accept("-"))
        coefficient = -1;
      else if (!first && !lex.accept("+"))
        return make(constant, std::move(terms));
      Monomial symbols;
      std::optional<Dim> quotients;
      do {
        if (lex.accept("?")) {
          symbols.push_back({std::string(lex.word()), nullptr});
        } else if (lex.accept("floor")) {
          const Dim q = read_quotient(lex, depth);
          quotients = quotients ? *quotients * q : q;
        } else {
          coefficient = mul_or_fail(coefficient, lex.integer(), "dim");
        }
        check_degree(symbols.size());
      } while (lex.accept("*"));
      std::sort(symbols.begin(), symbols.end());
      if (quotients) {
        const Dim others =
            symbols.empty() ? Dim(coefficient) : make(0, {{std::move(symbols), coefficient}});
        const Dim product = others * *quotients;
        add(constant, product.constant());
        if (product.terms())
          for (const auto& [m, c] : *product.terms()) add(terms[m], c);
      } else {
        add(symbols.empty() ? constant : terms[std::move(symbols)], coefficient);
      }
      check_terms(terms.size());
    }
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::data) throw;
    error_at(place, e.message());
  }
}

uint64_t Dim::hash() const {
  uint64_t h = mix(0, static_cast<uint64_t>(constant()));
  return terms() ? mix(h, hash_text(to_string())) : h;
}

bool Shape::is_static() const {
  return std::all_of(begin(), end(), [](const Dim& d) { return d.is_static(); });
}

Dim Shape::elements() const {
  Dim n(1);
  for (const Dim& d : *this) n = n * d;
  return n;
}

Ints Shape::sizes() const {
  Ints out;
  for (const Dim& d : *this) out.push_back(d.value());
  return out;
}

Shape Shape::bind(const DimBinding& binding) const {
  Shape out;
  for (const Dim& d : *this) out.push_back(d.bind(binding));
  return out;
}

std::string Shape::to_string() const {
  std::string out = "[";
  for (size_t i = 0; i < size(); ++i) out += (i ? ", " : "") + (*this)[i].to_string();
  return out + "]";
}

int64_t Type::bytes() const {
  return mul_or_fail(shape.elements().value(), size_of(dtype), "tensor size");
}

std::string Type::to_string() const { return fmt::format("{} {}", shape, dtype); }

std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape out(rank, Dim(1));
  for (size_t i = 0; i < rank; ++i) {
    const Dim da = i < a.size() ? a[a.size() - 1 - i] : Dim(1);
    const Dim db = i < b.size() ? b[b.size() - 1 - i] : Dim(1);
    Dim& d = out[rank - 1 - i];
    if (da == db || db == Dim(1))
      d = da;
    else if (da == Dim(1))
      d = db;
    else if (da.is_static() && db.is_static())
      return std::nullopt;
    else
      d = db.is_static() ? db : da;
  }
  return out;
}

int64_t normalise_axis(int64_t axis, int64_t rank, std::string_view op) {
  user_check(axis >= -rank && axis < rank, "axis-range",
             "{}: axis {} is out of range, allowed is [{}, {})", op, axis, -rank, rank);
  return axis < 0 ? axis + rank : axis;
}

Ints normalise_axes(Ints axes, int64_t rank, std::string_view op) {
  for (int64_t& a : axes) a = normalise_axis(a, rank, op);
  std::sort(axes.begin(), axes.end());
  user_check(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), "axis-repeated",
             "{}: axes [{}] name one axis twice", op, fmt::join(axes, ", "));
  return axes;
}

Ints row_major_strides(const Ints& sizes) {
  Ints strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    if (__builtin_mul_overflow(strides[i], sizes[i], &strides[i - 1]))
      strides[i - 1] = 0;  // some other size is 0, so nothing is there
  return strides;
}

int64_t product(const Ints& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n = mul_or_fail(n, s, "number of elements");
  return n;
}

template struct MemberTypeOf<Dim>;
template struct MemberTypeOf<Shape>;
template struct MemberTypeOf<DType>;

void Codec<DType>::read(Reader& r, DType& v) {
  if (!r.lex.at_word()) r.lex.error("expected a dtype");
  const Lexer place = r.lex;
  const std::string_view name = r.lex.word();
  const auto parsed = parse_dtype(name);
  if (!parsed) {
    std::vector<std::string_view> names;
    for (const DTypeInfo& d : kDTypes) names.push_back(d.name);
    error_at(place, fmt::format("unknown dtype {}{}", name, did_you_mean(name, names)));
  }
  v = *parsed;
}

void Codec<DType>::load(ByteReader& r, DType& v) {
  const uint8_t i = r.u8();
  if (i >= std::size(kDTypes)) r.error("dtype", "{} is not the number of a dtype", i);
  v = static_cast<DType>(i);
}

// Static sizes as 0 and a number, polynomials as 1 and their text.
void Codec<Dim>::write(ByteWriter& w, const Dim& v) {
  w.u8(!v.is_static());
  if (v.is_static())
    w.signed_varint(v.value());
  else
    w.text(v.to_string());
}

void Codec<Dim>::load(ByteReader& r, Dim& v) {
  bool symbolic = false;
  Codec<bool>::load(r, symbolic);
  if (!symbolic) {
    v = Dim(r.signed_varint());
    return;
  }
  const size_t start = r.offset();
  const std::string_view text = r.text();
  try {
    Lexer lex(text);
    v = Dim::read(lex);
    if (!lex.done() || v.is_static()) lex.error("expected a sum of products of symbols");
  } catch (const Error& e) {
    r.error_at(start, "dim", e.message());
  }
}

}  // namespace rlx
