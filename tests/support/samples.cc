#include "samples.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "rlx/ops/custom.h"

namespace rlx::testing {

std::string replace_all(std::string text, const std::string& from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

size_t bracketed(const std::string& text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted) continue;
    depth += text[i] == '{';
    depth -= text[i] == '}';
    if (depth == 0) return i + 1;
  }
  return text.size();
}

namespace {

OperandSpec read_operand(Lexer& lex) {
  OperandSpec o;
  o.dtype = std::string(lex.word());
  Reader r{lex, nullptr, nullptr};
  Codec<Ints>::read(r, o.sizes);
  lex = r.lex;
  if (lex.accept(":")) o.kind = std::string(lex.word());
  if (o.kind == "index" || o.kind == "ranges") {
    lex.expect("<");
    o.limit = lex.integer();
  }
  return o;
}

DTypeSet dtypes_named(Lexer& lex) {
  const std::string_view name = lex.word();
  if (name == "numbers") return kNumbers;
  if (name == "reals") return kReals;
  if (name == "floats") return kFloats;
  lex.error(fmt::format("unknown dtypes {}", name));
}

}  // namespace

Sample read_sample(const std::string& text, const std::string& where) {
  Sample s{.where = where, .text = text};
  const size_t name = text.find_first_of(" \n");
  s.op = text.substr(0, name);
  std::string rest = name == std::string::npos ? "" : text.substr(name + 1);
  if (!rest.empty() && rest[0] == '{') {
    s.attrs = rest.substr(0, bracketed(rest));
    rest = rest.substr(s.attrs.size());
  }
  Lexer lex(rest);
  while (!lex.done()) {
    if (lex.accept("!")) {
      const std::string option(lex.word());
      lex.expect("=");
      if (option == "dtypes") {
        s.dtypes = dtypes_named(lex);
        continue;
      }
      lex.expect("off");
      if (option == "differences")
        s.differences = false;
      else if (option == "second")
        s.second = false;
      else if (option == "variants")
        s.variants = false;
      else
        lex.error("unknown option " + option);
    } else {
      s.operands.push_back(read_operand(lex));
    }
  }
  return s;
}

bool is_filtered() { return std::getenv("RLX_OPS") != nullptr; }
bool is_wanted(const std::string& op) {
  static const char* const wanted = std::getenv("RLX_OPS");
  return !wanted || ("," + std::string(wanted) + ",").find("," + op + ",") != std::string::npos;
}

void register_sample_ops() {
  auto same = [](std::span<const Type> in, std::string_view) { return Types{in[0]}; };
  register_custom_op(
      {.name = "sample.triple",
       .infer = same,
       .compute =
           [](std::span<const Tensor> in, std::string_view) {
             Tensor out(in[0].dtype(), in[0].sizes());
             for (int64_t i = 0; i < out.elements(); ++i)
               out.set_complex(i, 3.0 * in[0].get_complex(i));
             return Tensors{out};
           },
       .decompose =
           [](Builder& b, const Node&, Operands in) {
             return Values{op::mul(b, in[0], b.constant_like(in[0], 3))};
           },
       .jvp = [](Builder& b, const JvpArgs& a) { return b.clone(a.node, a.tangents); },
       .vjp = [](Builder& b, const VjpArgs& a) { return b.clone(a.node, a.cotangents); },
       .vmap = [](Builder& b, const VmapArgs& a) { return b.clone(a.node, a.in); }});
  register_custom_op({.name = "sample.either",
                      .num_inputs = 2,
                      .infer =
                          [](std::span<const Type> in, std::string_view) {
                            user_check(in[0] == in[1], "sample-shape", "{} and {} differ", in[0],
                                       in[1]);
                            return Types{in[0]};
                          },
                      .decompose =
                          [](Builder& b, const Node&, Operands in) {
                            return Values{op::select(b, op::eq(b, in[0], in[1]), in[0], in[1])};
                          }});
}

std::vector<TextRow> read_rows(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<TextRow> rows;
  for (const auto& path : files) {
    std::ifstream file(path);
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.empty() || line[0] == '#') continue;
      if (line[0] == ' ')
        rows.back().text += "\n" + line;
      else
        rows.push_back({line, fmt::format("{}:{}", path.filename().string(), number)});
    }
  }
  return rows;
}

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = [] {
    register_sample_ops();
    std::vector<Sample> out;
    for (const auto& [text, where] : read_rows(RLX_SOURCE_DIR "/tests/samples")) {
      Sample s = read_sample(text, where);
      if (is_wanted(s.op)) out.push_back(std::move(s));
    }
    check(!out.empty(), "tests/samples has no rows");
    return out;
  }();
  return all;
}

Attrs read_attrs(const OpDef& op, const std::string& text) {
  std::shared_ptr<void> data = op.attr_type->make();
  Reader r{Lexer(text), nullptr, &op_table()};
  if (!text.empty()) {
    r.lex.expect("{");
    do {
      const std::string_view name = r.lex.word();
      const FieldInfo* match = nullptr;
      for (const FieldInfo& f : op.attr_type->fields)
        if (f.name == name) match = &f;
      if (!match) r.lex.error(fmt::format("{} has no attribute {}", op.name, name));
      r.lex.expect("=");
      match->read(r, data.get());
    } while (r.lex.accept(","));
    r.lex.expect("}");
  }
  return Attrs(op.attr_type, std::move(data));
}

double draw(const OperandSpec& o, std::mt19937_64& rng) {
  std::uniform_real_distribution<double> unit(0, 1);
  const double u = unit(rng), sign = unit(rng) < 0.5 ? -1 : 1;
  if (o.kind == "positive") return 0.3 + 1.7 * u;
  if (o.kind == "above_one") return 1.2 + 1.7 * u;
  if (o.kind == "equal") return 0.7;
  if (o.kind == "zero") return 0;
  if (o.kind == "probability") return 0.05 + 0.9 * u;
  if (o.kind == "sign") return sign;
  if (o.kind == "unit" || o.kind == "rotation") return sign * (0.05 + 0.85 * u);
  if (o.kind == "fraction")
    return std::floor(unit(rng) * 5) - 2 + (u < 0.5 ? 0.1 + 0.6 * u : 0.3 + 0.6 * u);
  return sign * (0.25 + 1.5 * u);
}

int64_t draw_int(const OperandSpec& o, DType d, std::mt19937_64& rng) {
  if (o.kind == "index") return static_cast<int64_t>(rng() % static_cast<uint64_t>(o.limit));
  if (o.kind == "key") return static_cast<int64_t>(rng() & 0xffffffffu);
  if (is_bool(d)) return static_cast<int64_t>(rng() & 1);
  const auto v = static_cast<int64_t>(rng() % 5);
  return o.kind == "positive" ? v + 1 : info(d).is_signed ? v - 2 : v;
}

bool is_matrix_kind(const std::string& kind) {
  return kind == "spd" || kind == "symmetric" || kind == "spectrum" || kind == "invertible" ||
         kind == "dominant";
}

namespace {

// The matrix of the kind that is built around the noise x [m, n], row-major.
void shape_matrix(const std::string& kind, std::vector<Complex>& x, int64_t m, int64_t n) {
  auto at = [&](int64_t i, int64_t j) -> Complex& { return x[static_cast<size_t>(i * n + j)]; };
  for (Complex& z : x) z *= 0.25;
  for (int64_t i = 0; i < std::min(m, n); ++i) {
    const auto step = static_cast<double>(i);
    if (kind == "dominant") at(i, i) += i % 2 ? -2.0 : 1.5;
    if (kind == "spd") at(i, i) += 2 + 0.5 * step;
    if (kind == "symmetric") at(i, i) += 1.5 * (i % 2 ? step : -step) + 1;
    if (kind == "invertible") at(i, (i + 1) % n) += 2 + 0.3 * step;
    if (kind == "spectrum") at(i, i) += 1.5 * (step + 1);
  }
  if (kind == "spectrum" && m > 1 && n > 1) at(0, 1) += 1.2, at(1, 0) -= 1.2;  // a complex pair
  if (kind == "spd" || kind == "symmetric")
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j)
        at(j, i) = std::conj(at(i, j) = i == j ? at(i, i).real() : at(i, j));
}

Tensor make_matrices(const OperandSpec& o, DType d, uint64_t seed) {
  std::mt19937_64 rng(seed);
  const OperandSpec noise{o.dtype, o.sizes, "unit"};
  Tensor t(d, o.sizes);
  const int64_t m = o.sizes[o.sizes.size() - 2], n = o.sizes.back(),
                size = std::max<int64_t>(m * n, 1);
  std::vector<Complex> x(static_cast<size_t>(m * n));
  for (int64_t first = 0; first < t.elements(); first += size) {
    for (Complex& z : x) {
      const double re = draw(noise, rng);
      z = {re, is_complex(d) ? draw(noise, rng) : 0};
    }
    shape_matrix(o.kind, x, m, n);
    for (int64_t i = 0; i < m * n; ++i) t.set_complex(first + i, x[static_cast<size_t>(i)]);
  }
  return t;
}

// Sorts a real tensor along its last axis.
void sort_lines(Tensor& t) {
  const int64_t n = t.rank() ? t.sizes().back() : 1;
  for (int64_t first = 0; first < t.elements(); first += n) {
    std::vector<double> line;
    for (int64_t i = first; i < first + n; ++i) line.push_back(t.get_complex(i).real());
    std::sort(line.begin(), line.end());
    for (int64_t i = 0; i < n; ++i) t.set_complex(first + i, line[static_cast<size_t>(i)]);
  }
}

// Unit quaternions, four numbers each.
void normalise_rotations(Tensor& t) {
  if (!is_float(t.dtype())) return;  // no op takes such
  for (int64_t first = 0; first + 4 <= t.elements(); first += 4) {
    double square = 0;
    for (int64_t i = first; i < first + 4; ++i) square += t.get_float(i) * t.get_float(i);
    for (int64_t i = first; i < first + 4; ++i) t.set_float(i, t.get_float(i) / std::sqrt(square));
  }
}

// A camera of the splat ops, which looks from a distance of about 4 at the origin.
Tensor make_camera(DType d, uint64_t seed) {
  const double camera[] = {0.4, 0.3, -4,  0.1, 0.05, 0.2, 0.05, 1, 0.1, 40, 0.1, 20,
                           0.6, 0.4, 0.3, 1,   2,    3,   4,    5, 6,   7,  8};
  std::mt19937_64 rng(seed);
  Tensor t(d, {23});
  for (int64_t i = 0; i < 23; ++i) t.set_float(i, camera[i] + 0.05 * draw({"T", {}, "unit"}, rng));
  return t;
}

// Rows (begin, end) of ranges that lie one behind the other below the limit.
Tensor make_ranges(const OperandSpec& o, DType d, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Tensor t(d, o.sizes);
  std::vector<int64_t> cuts(static_cast<size_t>(o.sizes[0] + 1));
  for (int64_t& c : cuts) c = static_cast<int64_t>(rng() % static_cast<uint64_t>(o.limit));
  std::sort(cuts.begin(), cuts.end());
  const int64_t columns = o.sizes.back();  // 2, unless the size was renamed
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_int(i, cuts[static_cast<size_t>(i / columns + std::min<int64_t>(i % columns, 1))]);
  return t;
}

}  // namespace

Tensor make_operand(const OperandSpec& o, DType d, uint64_t seed) {
  if (is_matrix_kind(o.kind)) return make_matrices(o, d, seed);
  if (o.kind == "camera") return make_camera(d, seed);
  if (o.kind == "ranges") return make_ranges(o, d, seed);
  std::mt19937_64 rng(seed);
  Tensor t(d, o.sizes);
  std::vector<double> ladder(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < ladder.size(); ++i)
    ladder[i] = 0.25 * (static_cast<double>(i) - static_cast<double>(ladder.size()) / 2) + 0.03;
  std::shuffle(ladder.begin(), ladder.end(), rng);
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (o.kind == "index" || o.kind == "key" || !is_differentiable(d)) {
      const int64_t v =
          o.kind == "distinct"
              ? std::llround(ladder[static_cast<size_t>(i)] * 4 + (info(d).is_signed ? 0 : 9))
              : draw_int(o, d, rng);
      if (is_float(d))
        t.set_float(i, static_cast<double>(v));
      else
        t.set_int(i, v);
    } else if (is_complex(d)) {
      const double re = draw(o, rng);
      t.set_complex(i, {re, draw(o, rng)});
    } else {
      t.set_float(i, o.kind == "distinct" ? ladder[static_cast<size_t>(i)] : draw(o, rng));
    }
  }
  if (o.kind == "ascending") sort_lines(t);
  if (o.kind == "rotation") normalise_rotations(t);
  return t;
}

DType dtype_at(const OperandSpec& o, DType swept) {
  if (o.dtype == "T") return swept;
  if (o.dtype == "W") return wide_of(swept);
  const auto d = parse_dtype(o.dtype);
  check(d.has_value(), "samples: unknown dtype {}", o.dtype);
  return *d;
}

Tensors make_operands(const Sample& s, DType d, uint64_t salt) {
  Tensors out;
  for (size_t i = 0; i < s.operands.size(); ++i)
    out.push_back(make_operand(s.operands[i], dtype_at(s.operands[i], d),
                               mix(mix(hash_text(s.text), i), salt)));
  return out;
}

std::optional<Case> make_case(const Sample& s, DType d) {
  const OpDef* op = op_table().find(s.op);
  check(op != nullptr, "{}: unknown op {}", s.where, s.op);
  Case c{&s, d, {}, make_operands(s, d), {}};
  Builder b("sample");
  Values in;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    in.push_back(b.input(std::to_string(i), c.operands[i].type()));
    if (s.operands[i].swept()) c.swept.push_back(i);
  }
  const bool leads = !s.operands.empty() && s.operands[0].dtype == "T";
  if (leads && !(op->dtypes.has(d) && s.dtypes.has(d))) return std::nullopt;
  try {
    for (Value v : b.emit(*op, read_attrs(*op, replace_all(s.attrs, "$T", to_string(d))), in))
      b.output(v);
  } catch (const Error& e) {
    if (leads && s.attrs.find("graph") == std::string::npos) throw;  // the op says it takes d
    if (e.code().find("dtype") == std::string::npos && e.kind() != ErrorKind::data) throw;
    return std::nullopt;
  }
  c.graph = b.finish();
  return c;
}

}  // namespace rlx::testing
