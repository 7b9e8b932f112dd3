#include "special_values.h"

#include <cmath>
#include <limits>
#include <set>

#include "error_bound.h"
#include "rlx/runtime/runtime.h"
#include "special_table.h"

namespace rlx::testing {

namespace {

// ---- values

double smallest_normal(DType d) { return std::ldexp(ulp(d, 0), info(d).digits - 1); }

// Neither an index nor a key: any number is a value of it.
bool is_plain(const OperandSpec& o) {
  return o.kind != "index" && o.kind != "ranges" && o.kind != "key" && o.dtype != "bool";
}

bool is_largest(std::string_view value) { return value == "max" || value == "-max"; }
bool is_tiny(std::string_view value) { return value == "tiny" || value == "denormal"; }
bool is_small(std::string_view value) { return value == "0" || value == "-0" || is_tiny(value); }

void put(Tensor& t, int64_t i, double v, bool imaginary) {
  if (is_complex(t.dtype())) {
    const Complex old = t.get_complex(i);
    t.set_complex(i, imaginary ? Complex(old.real(), v) : Complex(v, old.imag()));
  } else if (is_float(t.dtype())) {
    t.set_float(i, v);
  } else {  // a double does not hold the largest i64
    t.set_int(i, v >= 0x1p63 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(v));
  }
}

bool same_number(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}
bool same_number(Complex a, Complex b) {
  return same_number(a.real(), b.real()) && same_number(a.imag(), b.imag());
}
bool is_nan(Complex v) { return std::isnan(v.real()) || std::isnan(v.imag()); }
bool is_finite(Complex v) { return std::isfinite(v.real()) && std::isfinite(v.imag()); }

// Along the last axis; NaN is the largest number.
bool is_ascending(const Tensor& t) {
  const int64_t n = t.rank() ? t.sizes().back() : 1;
  for (int64_t i = 1; i < t.elements(); ++i) {
    const double a = t.get_complex(i - 1).real(), b = t.get_complex(i).real();
    if (i % n != 0 && !std::isnan(b) && !(a <= b)) return false;
  }
  return true;
}

// The same bits, all NaN taken for one.
bool same_element(const Tensor& a, const Tensor& b, int64_t i) {
  if (!is_differentiable(a.dtype())) return a.get_int(i) == b.get_int(i);
  return same_number(a.get_complex(i), b.get_complex(i));
}

std::string text_of(Complex v) {
  return v.imag() == 0 && !std::signbit(v.imag()) ? fmt::format("{}", v.real())
                                                  : fmt::format("{}{:+}i", v.real(), v.imag());
}

// ---- programs

// What a run gave: results, or the error it raised.
struct Outcome {
  Tensors results;
  std::string error;
};

template <class Run>
Outcome outcome_of(Run&& run) {
  try {
    return {run(), ""};
  } catch (const Error& e) {
    return {{}, fmt::format("{} error {}", name(e.kind()), e.code())};
  }
}

Types types_of(const Tensors& tensors) {
  Types out;
  for (const Tensor& t : tensors) out.push_back(t.type());
  return out;
}

// Every result element is a function of the operands' elements at its place.
bool is_elementwise(const Node& n, std::span<const Type> in) {
  if (n.op->kind == Kind::elementwise) return true;
  if (!n.op->decompose || n.op->eval) return false;
  const Graph g = decomposed(n, in);
  std::set<int32_t> constants;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& m = g.nodes[static_cast<size_t>(i)];
    if (m.op == &op::input) continue;
    Types types;
    bool constant = true;
    for (Value v : m.in) {
      types.push_back(g.type(v));
      constant &= constants.contains(v.node);
    }
    if (constant)
      constants.insert(i);
    else if (!is_elementwise(m, types))
      return false;
  }
  return true;
}

// One node on both backends.
class Program {
 public:
  Program(const Graph& g, Types types, int vector_bits)
      : op(*g.nodes.back().op),
        elementwise(op.kind == Kind::elementwise),
        exact(elementwise && roundings(g.nodes.back(), types) <= 1),
        graph_(g),
        compiled_(Session("cpu").compile(
            g, {.threads = 1, .vector_bits = vector_bits, .poison = true})) {}
  Outcome reference(const Tensors& in) const {
    return outcome_of([&] { return evaluate(graph_, in); });
  }
  Outcome cpu(const Tensors& in) {
    NamedTensors named;
    for (size_t i = 0; i < in.size(); ++i) named[std::to_string(i)] = in[i];
    return outcome_of([&] { return compiled_.run(named); });
  }
  const OpDef& op;
  const bool elementwise, exact;

 private:
  const Graph& graph_;
  CompiledGraph compiled_;
};

// ---- comparison

// As in ops_cpu_test.cc.
double tolerance(DType d) {
  switch (d) {
    case DType::F64:
      return 1e-13;
    case DType::F16:
      return 4e-3;
    case DType::BF16:
      return 3e-2;
    default:
      return 2e-6;
  }
}

double finite_scale(const Tensor& t) {
  double scale = 1;
  for (int64_t i = 0; i < t.elements(); ++i)
    if (const double a = std::abs(t.get_complex(i)); std::isfinite(a)) scale = std::max(scale, a);
  return scale;
}

bool close(double got, double want, double allowed, bool any_zero) {
  if (same_number(got, want)) return true;
  if (got == 0 && want == 0) return any_zero;
  return std::isfinite(got) && std::isfinite(want) && std::fabs(got - want) <= allowed;
}
bool close(Complex got, Complex want, double allowed, bool any_zero) {
  return close(got.real(), want.real(), allowed, any_zero) &&
         close(got.imag(), want.imag(), allowed, any_zero);
}

// The order of sums and products is not specified, and the reference has a wider range: next to the
// largest numbers anything may overflow on the way, next to the inverse of the smallest likewise
// what is infinite anyway; and C99's Annex G, by which a product of complex infinities is
// one whatever its parts, is kept by elementwise ops only.
bool overflows_alike(DType d, std::string_view value, Complex a, Complex b) {
  if (is_largest(value)) return !is_finite(a) || !is_finite(b);
  return (is_tiny(value) || is_complex(d)) && !is_finite(a) && !is_finite(b);
}

// The results of one program with each of the special values in one element of one operand.
struct Trial {
  Program& program;
  std::string what;
  size_t operand;
  DType dtype;  // of the operand
  std::vector<SpecialValue> values;
  Outcome base;                    // without any
  std::vector<Outcome> want, got;  // by value

  // A result element changes with the value: with any of them but NaN, or with small finite ones.
  bool depends(size_t r, int64_t i, bool only_small) const {
    if (!base.error.empty()) return true;
    for (size_t v = 0; v < values.size(); ++v)
      if (values[v].name != "nan" && (!only_small || is_small(values[v].name)) &&
          want[v].error.empty() && !same_element(want[v].results[r], base.results[r], i))
        return true;
    return false;
  }
  std::string in_words(size_t v) const {
    return fmt::format("{}, operand {}: {}", what, operand, values[v].name);
  }
};

// ---- long operands with every combination

struct LongOperand {
  DType dtype;
  std::vector<Complex> values;
  std::vector<std::string_view> names;  // of the special ones; empty for others
  int64_t stride = 1;                   // element i holds the value i / stride modulo their number
  size_t digit(int64_t i) const { return static_cast<size_t>(i / stride) % values.size(); }
  Complex at(int64_t i) const { return values[digit(i)]; }
};

// `few` leaves the denormals and one of each pair out.
LongOperand long_operand(const OperandSpec& o, DType d, bool few) {
  LongOperand out{d, {}, {}};
  std::mt19937_64 rng(7);
  auto add = [&](Complex v, std::string_view name) {
    out.values.push_back(v);
    out.names.push_back(name);
  };
  if (!is_plain(o) || is_bool(d)) {
    for (int i = 0; i < 3; ++i)
      add(static_cast<double>(is_bool(d) ? i % 2 : draw_int(o, d, rng)), "");
    return out;
  }
  std::vector<SpecialValue> parts;
  for (const SpecialValue& v : special_values(d))
    if (!few || v.name == "nan" || v.name == "inf" || v.name == "0" || v.name == "-0" ||
        v.name == "max")
      parts.push_back(v);
  if (is_int(d)) {
    for (double v : {0.0, 1.0, 2.0, -1.0})
      if (v >= 0 || info(d).is_signed) parts.push_back({"", v});
  } else {
    parts.push_back({"", draw(o, rng)});
    if (!few && !is_complex(d)) parts.push_back({"", draw(o, rng)});
  }
  for (const SpecialValue& re : parts) {
    if (!is_complex(d)) add(re.value, re.name);
    for (const SpecialValue& im : parts)
      if (is_complex(d)) add({re.value, im.value}, re.name.empty() ? im.name : re.name);
  }
  return out;
}

Tensor long_tensor(const LongOperand& o, int64_t n, bool reversed) {
  Tensor t(o.dtype, {n});
  for (int64_t i = 0; i < n; ++i) {
    const Complex v = o.at(reversed ? n - 1 - i : i);
    put(t, i, v.real(), false);
    if (is_complex(o.dtype)) put(t, i, v.imag(), true);
  }
  return t;
}

constexpr int64_t kMostCombinations = 20000;

// The program, and its operands' values; nothing where the op is not elementwise or takes no vectors.
struct LongProgram {
  Graph graph;
  std::vector<LongOperand> operands;
  int64_t size = 1;
};
std::optional<LongProgram> long_program(const Sample& s, DType d) {
  const OpDef& op = *op_table().find(s.op);
  LongProgram p;
  for (const OperandSpec& o : s.operands)
    p.operands.push_back(long_operand(o, dtype_at(o, d), s.operands.size() > 3));
  for (size_t k = p.operands.size(); k-- > 0;) {
    p.operands[k].stride = p.size;
    p.size *= static_cast<int64_t>(p.operands[k].values.size());
    if (p.size > kMostCombinations) return std::nullopt;
  }
  Builder b("special");
  Values in;
  Types types;
  for (size_t k = 0; k < p.operands.size(); ++k) {
    types.push_back({p.operands[k].dtype, Shape::of({p.size})});
    in.push_back(b.input(std::to_string(k), types.back()));
  }
  try {
    for (Value v : b.emit(op, read_attrs(op, replace_all(s.attrs, "$T", to_string(d))), in))
      b.output(v);
  } catch (const Error&) {
    return std::nullopt;  // an op of matrices, say
  }
  p.graph = b.finish();
  if (p.operands.empty() || !is_elementwise(p.graph.nodes.back(), types)) return std::nullopt;
  return p;
}

std::string operands_at(const LongProgram& p, int64_t i) {
  std::string out;
  for (const LongOperand& o : p.operands) out += fmt::format(" {}", text_of(o.at(i)));
  return out;
}

// The result differs for two values of operand k that are not NaN, all else as in element i: the
// other operands, and of a complex number the part that is no NaN.
bool depends(const LongProgram& p, const Tensor& t, size_t k, int64_t i) {
  const LongOperand& o = p.operands[k];
  const Complex here = o.at(i);
  const int64_t row = i - static_cast<int64_t>(o.digit(i)) * o.stride;
  std::optional<Complex> first;
  for (size_t v = 0; v < o.values.size(); ++v) {
    const Complex x = o.values[v];
    if (is_nan(x) || (!std::isnan(here.real()) && !same_number(here.real(), x.real())) ||
        (!std::isnan(here.imag()) && !same_number(here.imag(), x.imag())))
      continue;
    const Complex y = t.get_complex(row + static_cast<int64_t>(v) * o.stride);
    if (first && !same_number(*first, y)) return true;
    first = y;
  }
  return false;
}

// ---- the checks

class Checker {
 public:
  explicit Checker(SpecialOptions options) : options_(std::move(options)) {}
  SpecialReport run();

 private:
  void check_row(const Sample& s, const Case& c);
  void check_place(const Sample& s, const Case& c, Program& p, size_t k, int64_t place,
                   bool imaginary);
  void check_denormals(const Sample& s, const Case& c, Program& p, size_t k);
  void compare(const Trial& t, size_t v, bool repeats);
  bool agrees(const Trial& t, size_t v, size_t r, int64_t i, double scale);
  void find_lost_nan(const Trial& t);
  void check_long(const Sample& s, DType d);
  void compare_long(const LongProgram& p, Program& program, const std::string& what, bool reversed);
  void find_lost_nan(const LongProgram& p, const OpDef& op, const std::string& what,
                     const Tensor& t);
  void fail(std::string_view check, const OpDef& op, std::string text) {
    report_.failures[fmt::format("{} | {}", check, op.name)].push_back(std::move(text));
  }

  SpecialOptions options_;
  SpecialReport report_;
  SpecialTable table_;
  std::set<std::string> long_done_;
};

bool Checker::agrees(const Trial& t, size_t v, size_t r, int64_t i, double scale) {
  const Tensor &got = t.got[v].results[r], &want = t.want[v].results[r];
  const DType d = want.dtype();
  const std::string_view value = t.values[v].name, op = t.program.op.name;
  if (is_differentiable(d)) {
    const Complex a = got.get_complex(i), b = want.get_complex(i);
    const bool finite = is_finite(a) && is_finite(b);
    if (t.program.elementwise) {
      const double allowed = tolerance(d) * (finite ? std::abs(b) : 0) + 2 * ulp(d, 0);
      if (!t.program.exact && close(a, b, allowed, false)) return true;
    } else {
      if (overflows_alike(d, value, a, b)) return true;
      const bool underflow = is_tiny(value) || is_largest(value);
      if (close(a, b, tolerance(d) * scale, underflow)) return true;
      if (close(a, b, tolerance(d) * scale, true) && table_.allows("zero", op, t.operand, value))
        return true;
    }
    if (!finite && !t.depends(r, i, true) && table_.allows("spread", op, t.operand, value))
      return true;
  }
  return table_.allows("agree", op, t.operand, value);
}

void Checker::compare(const Trial& t, size_t v, bool repeats) {
  const Outcome &got = t.got[v], &want = t.want[v];
  const OpDef& op = t.program.op;
  ++report_.runs;
  report_.raised += !want.error.empty();
  if (got.error != want.error) {
    if (!table_.allows("agree", op.name, t.operand, t.values[v].name))
      fail("agree", op,
           fmt::format("{}: {} instead of {}", t.in_words(v),
                       got.error.empty() ? "results" : got.error,
                       want.error.empty() ? "results" : want.error));
    return;
  }
  for (size_t r = 0; r < want.results.size(); ++r) {
    const Tensor &a = got.results[r], &b = want.results[r];
    double scale = 0;
    report_.elements += b.elements();
    for (int64_t i = 0; i < b.elements(); ++i) {
      if (same_element(a, b, i)) continue;
      if (scale == 0) {
        scale = finite_scale(b);
        if (t.base.error.empty()) scale = std::max(scale, finite_scale(t.base.results[r]));
        if (is_largest(t.values[v].name)) scale = std::max(scale, std::abs(t.values[v].value));
      }
      if (!repeats && agrees(t, v, r, i, scale)) continue;
      fail("agree", op,
           fmt::format("{}: result {} element {} is {} instead of {}", t.in_words(v), r, i,
                       text_of(a.get_complex(i)), text_of(b.get_complex(i))));
      return;
    }
  }
}

void Checker::find_lost_nan(const Trial& t) {
  for (size_t v = 0; v < t.values.size(); ++v) {
    if (t.values[v].name != "nan" || !t.want[v].error.empty() || !t.got[v].error.empty()) continue;
    bool any = false;
    std::string lost;
    for (size_t r = 0; r < t.want[v].results.size(); ++r) {
      const Tensor &want = t.want[v].results[r], &got = t.got[v].results[r];
      if (!is_differentiable(want.dtype())) continue;
      for (int64_t i = 0; i < want.elements(); ++i) {
        const bool nan = is_nan(want.get_complex(i)), here = is_nan(got.get_complex(i));
        any |= nan && here;
        if (lost.empty() && ((!nan && t.depends(r, i, false)) || (!here && t.depends(r, i, true))))
          lost = fmt::format("result {} element {} is {}", r, i, text_of(want.get_complex(i)));
      }
    }
    if (lost.empty()) continue;
    const std::string_view op = t.program.op.name;
    if (table_.allows(any ? "nan-elsewhere" : "nan", op, t.operand, "nan") ||
        (any && table_.allows("nan", op, t.operand, "nan")))
      continue;
    fail(any ? "nan-elsewhere" : "nan", t.program.op, fmt::format("{}: {}", t.in_words(v), lost));
  }
}

// ---- rows with one special value

void Checker::check_place(const Sample& s, const Case& c, Program& p, size_t k, int64_t place,
                          bool imaginary) {
  Trial t{p,
          fmt::format("{} at {}, element {}{}", s.text, to_string(c.dtype), place,
                      imaginary ? " imaginary" : ""),
          k,
          c.operands[k].dtype(),
          {},
          p.reference(c.operands),
          {},
          {}};
  bool repeats = p.op.kind == Kind::movement && is_differentiable(t.dtype) && t.base.error.empty();
  for (const Tensor& r : t.base.results) repeats &= only_repeats(r, c.operands, true);
  Tensors in = c.operands;
  for (const SpecialValue& v : special_values(t.dtype)) {
    in[k] = Tensor::from_bytes(t.dtype, in[k].sizes(), c.operands[k].raw(), c.operands[k].bytes());
    put(in[k], place, v.value, imaginary);
    if (s.operands[k].kind == "ascending" && !is_ascending(in[k])) continue;
    t.values.push_back(v);
    t.want.push_back(p.reference(in));
    t.got.push_back(p.cpu(in));
    if (!repeats || !t.want.back().error.empty()) continue;
    for (const Tensor& r : t.want.back().results)
      if (!only_repeats(r, in, true) && !table_.allows("moved", p.op.name, k, v.name))
        fail("moved", p.op, t.in_words(t.values.size() - 1));
  }
  for (size_t v = 0; v < t.values.size(); ++v) compare(t, v, repeats);
  if (is_differentiable(t.dtype)) find_lost_nan(t);
}

// The whole operand denormal: where the results are, too, nobody has flushed them to zero.
void Checker::check_denormals(const Sample& s, const Case& c, Program& p, size_t k) {
  const DType d = c.operands[k].dtype();
  Tensors in = c.operands;
  in[k] = Tensor(d, in[k].sizes());
  const double tiny = ulp(d, 0), normal = smallest_normal(d);
  for (int64_t i = 0; i < in[k].elements(); ++i) {
    const double v = static_cast<double>(1 + i % 5) / 16 * normal;
    in[k].set_complex(i, is_complex(d) ? Complex(v, v) : v);
  }
  const Outcome want = p.reference(in), got = p.cpu(in);
  ++report_.runs;
  if (!want.error.empty() || !got.error.empty()) return;
  for (size_t r = 0; r < want.results.size(); ++r) {
    const Tensor &a = got.results[r], &b = want.results[r];
    if (b.dtype() != d) continue;
    double largest = 0;
    for (int64_t i = 0; i < b.elements(); ++i)
      largest = std::max(largest, std::abs(b.get_complex(i)));
    if (!(largest > 0 && largest < 16 * normal)) continue;
    // f16 and bf16 are summed in f32.
    const double terms = is_narrow(d) ? 4 : 8 + 2 * static_cast<double>(in[k].elements());
    const double allowed = tolerance(d) * largest + terms * tiny;
    for (int64_t i = 0; i < b.elements(); ++i) {
      if (std::abs(a.get_complex(i) - b.get_complex(i)) <= allowed) continue;
      if (!table_.allows("machine", p.op.name, k, "denormal"))
        fail("denormal", p.op,
             fmt::format("{} at {}, operand {} denormal: result {} element {} is {} instead of {}",
                         s.text, to_string(c.dtype), k, r, i, text_of(a.get_complex(i)),
                         text_of(b.get_complex(i))));
      break;
    }
  }
}

void Checker::check_row(const Sample& s, const Case& c) {
  std::optional<Program> p;
  for (size_t k = 0; k < c.operands.size(); ++k) {
    const Tensor& x = c.operands[k];
    if (!is_plain(s.operands[k]) || x.elements() == 0 || is_bool(x.dtype())) continue;
    if (!p) p.emplace(c.graph, types_of(c.operands), 0);
    std::set<int64_t> places{x.elements() / 2};
    for (int64_t j = 0; j < options_.places; ++j)
      places.insert(std::min(j * x.elements() / (options_.places - 1), x.elements() - 1));
    for (int64_t place : places) {
      check_place(s, c, *p, k, place, false);
      if (is_complex(x.dtype())) check_place(s, c, *p, k, place, true);
    }
    if (is_differentiable(x.dtype())) check_denormals(s, c, *p, k);
  }
  report_.programs += p.has_value();
}

// ---- long operands with every combination

void Checker::compare_long(const LongProgram& p, Program& program, const std::string& what,
                           bool reversed) {
  Tensors in;
  for (const LongOperand& o : p.operands) in.push_back(long_tensor(o, p.size, reversed));
  const Outcome want = program.reference(in), got = program.cpu(in);
  ++report_.runs;
  report_.raised += !want.error.empty();
  if (got.error != want.error) {
    fail("agree", program.op, fmt::format("{}: {} instead of {}", what, got.error, want.error));
    return;
  }
  auto allowed = [&](int64_t at) {
    bool found = false;
    for (size_t k = 0; k < p.operands.size(); ++k)
      found |=
          table_.allows("agree", program.op.name, k, p.operands[k].names[p.operands[k].digit(at)]);
    return found;
  };
  for (size_t r = 0; r < want.results.size(); ++r) {
    const Tensor &a = got.results[r], &b = want.results[r];
    report_.elements += b.elements();
    for (int64_t i = 0; i < b.elements(); ++i) {
      if (same_element(a, b, i)) continue;
      const Complex x = a.get_complex(i), y = b.get_complex(i);
      const double size = is_finite(y) ? std::abs(y) : 0;
      const double scale = program.elementwise ? size : std::max(1.0, size);
      if (is_differentiable(b.dtype()) && !program.exact &&
          close(x, y, tolerance(b.dtype()) * scale + 2 * ulp(b.dtype(), 0), false))
        continue;
      const int64_t at = reversed ? p.size - 1 - i : i;
      if (!allowed(at))
        fail("agree", program.op,
             fmt::format("{}{}: {} instead of {}", what, operands_at(p, at), text_of(x),
                         text_of(y)));
    }
  }
  if (!reversed && want.error.empty())
    for (const Tensor& t : want.results)
      if (is_differentiable(t.dtype())) find_lost_nan(p, program.op, what, t);
}

void Checker::find_lost_nan(const LongProgram& p, const OpDef& op, const std::string& what,
                            const Tensor& t) {
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (is_nan(t.get_complex(i))) continue;
    bool lost = false, allowed = false;
    for (size_t k = 0; k < p.operands.size(); ++k) {
      const LongOperand& o = p.operands[k];
      if (!is_differentiable(o.dtype) || !is_nan(o.at(i)) || !depends(p, t, k, i)) continue;
      lost = true;
      allowed |= table_.allows("nan", op.name, k, "nan");
    }
    if (lost && !allowed)
      fail("nan", op,
           fmt::format("{}{} gives {}", what, operands_at(p, i), text_of(t.get_complex(i))));
  }
}

void Checker::check_long(const Sample& s, DType d) {
  const std::optional<LongProgram> p = long_program(s, d);
  if (!p || !long_done_.insert(print(p->graph)).second) return;
  Types types;
  for (const LongOperand& o : p->operands) types.push_back({o.dtype, Shape::of({p->size})});
  const std::string what = fmt::format("{} at {}, long:", s.text, to_string(d));
  for (int bits : options_.vector_bits) {
    Program program(p->graph, types, bits);
    ++report_.programs;
    for (bool reversed : {false, true}) compare_long(*p, program, what, reversed);
  }
}

SpecialReport Checker::run() {
  for (const Sample& s : samples())
    for (DType d : options_.dtypes) {
      if (auto c = make_case(s, d)) {
        check_row(s, *c);
        check_long(s, d);
      }
      if (!s.swept()) break;
    }
  report_.exceptions = table_.size();
  report_.unneeded = table_.unneeded(options_.places > SpecialOptions{}.places);
  return report_;
}

}  // namespace

std::vector<SpecialValue> special_values(DType d) {
  if (is_bool(d)) return {};
  if (is_int(d)) {
    const int bits = 8 * size_of(d) - (info(d).is_signed ? 1 : 0);
    return {{"min", info(d).is_signed ? -std::ldexp(1.0, bits) : 0.0},
            {"max", bits == 63 ? 0x1p63 : std::ldexp(1.0, bits) - 1}};
  }
  const double tiny = ulp(d, 0), max = info(d).largest;
  return {{"nan", std::nan("")},
          {"inf", INFINITY},
          {"-inf", -INFINITY},
          {"0", 0.0},
          {"-0", -0.0},
          {"tiny", tiny},
          {"denormal", 0.625 * smallest_normal(d)},
          {"max", max},
          {"-max", -max}};
}

std::string SpecialReport::counts() const {
  return fmt::format("{} programs, {} runs ({} raised), {} elements compared, {} exceptions listed",
                     programs, runs, raised, elements, exceptions);
}

std::string SpecialReport::text(size_t each) const {
  std::string out = counts() + "\n";
  for (const auto& [what, list] : failures) {
    out += fmt::format("{}: {} failures\n", what, list.size());
    for (size_t i = 0; i < std::min(list.size(), each); ++i) out += "  " + list[i] + "\n";
  }
  for (const std::string& line : unneeded) out += "not needed: " + line + "\n";
  return out;
}

SpecialReport check_special_values(const SpecialOptions& options) { return Checker(options).run(); }

}  // namespace rlx::testing
