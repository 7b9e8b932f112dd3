#include "random_graph.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "error_bound.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/indexing/sorting.h"
#include "samples.h"

namespace rlx::testing {

namespace {

using Noisy = NoisyEvaluator::Noisy;
using RowsByOp = std::vector<std::vector<const Sample*>>;

// Whether a loop of this kind, begun anywhere, comes to its end.
bool always_ends(const OpDef& op, const Attrs& attrs) {
  return &op != &op::while_loop.def || attrs.get<WhileAttrs>().max_iterations.has_value();
}

RowsByOp group_by_op(FunctionRef<bool(const Sample&, const OpDef&)> is_drawn) {
  std::map<std::string, std::vector<const Sample*>> by_name;
  for (const Sample& s : samples())  // a block is drawn as the ops that it is made of
    if (const OpDef& op = *op_table().find(s.op); !op.block && is_drawn(s, op))
      by_name[s.op].push_back(&s);
  RowsByOp out;
  for (auto& [name, list] : by_name) out.push_back(list);
  return out;
}

const RowsByOp& rows_by_op() {
  static const RowsByOp rows = group_by_op([](const Sample&, const OpDef&) { return true; });
  return rows;
}

// Those whose stated derivatives are those of the function, in f64.
const RowsByOp& differentiable_rows() {
  static const RowsByOp rows = group_by_op([](const Sample& s, const OpDef& op) {
    const bool leads = !s.operands.empty() && s.operands[0].dtype == "T";
    return s.differences && s.second && s.swept() && s.dtypes.has(DType::F64) &&
           (!leads || op.dtypes.has(DType::F64)) &&
           always_ends(op, read_attrs(op, replace_all(s.attrs, "$T", "f64")));
  });
  return rows;
}

constexpr int64_t kMaxElements = 1500, kMaxLargeElements = 100'000, kMaxSmoothElements = 60;

// What is shared by a graph and its bodies.
struct Source {
  std::mt19937_64 random;
  std::map<int64_t, int64_t> sizes;  // of the samples, renamed
  bool tame = true;                  // results must be finite and of moderate size
  bool smooth = false;               // numbers are of f64, ops have derivatives
  Ints sides;                        // programs of matrices: their sides
  int64_t max_elements = kMaxElements;
  NamedTensors leaves;

  uint64_t pick(uint64_t n) { return random() % n; }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random) < p; }
  int64_t renamed(int64_t size) const {
    auto it = sizes.find(size);
    return it == sizes.end() ? size : it->second;
  }
};

struct Entry {
  Value value;
  Tensor plain;
  Noisy noisy;
};

// Renames the sizes in a sample's attributes: those behind "shape=", "domain=", ": ", "length=" and
// "size=".
std::string rename_sizes(const std::string& text, const Source& s) {
  std::string out;
  size_t at = 0;
  auto ends_with = [&](std::string_view end) { return std::string_view(out).ends_with(end); };
  while (at < text.size()) {
    const bool list =
        text[at] == '[' && (ends_with("shape=") || ends_with("domain=") || ends_with(": "));
    const bool number = std::isdigit(text[at]) &&
                        (ends_with("length=") || ends_with("{size=") || ends_with(" size="));
    const size_t end = list     ? text.find(']', at)
                       : number ? text.find_first_not_of("0123456789", at)
                                : at + 1;
    std::string piece = text.substr(at, end - at), renamed;
    for (size_t i = 0; (list || number) && i < piece.size();) {
      size_t stop = i;
      while (stop < piece.size() && std::isdigit(piece[stop])) ++stop;
      const bool negative = i > 0 && piece[i - 1] == '-';
      if (stop > i && !negative)
        renamed += std::to_string(s.renamed(std::stoll(piece.substr(i, stop - i))));
      else
        renamed += piece.substr(i, std::max<size_t>(stop - i, 1));
      i = std::max(stop, i + 1);
    }
    out += list || number ? renamed : piece;
    at = end;
  }
  return out;
}

// Kinds in which every place has its own meaning: leaves of them may not be turned (vmap's samples are) nor
// made from other values.
bool keeps_its_order(const std::string& kind) { return kind == "ranges" || kind == "camera"; }

bool finite(const Tensors& tensors) {
  for (const Tensor& t : tensors)
    for (int64_t i = 0; i < t.elements(); ++i)
      if (is_differentiable(t.dtype()) && !std::isfinite(std::abs(t.get_complex(i)))) return false;
  return true;
}

class Generator {
 public:
  Generator(Source& source, std::string name, int depth)
      : s_(source), b_(std::move(name)), depth_(depth) {}

  void grow(int nodes) {
    for (int attempts = 0; b_.graph().size() < nodes && attempts < 8 * nodes; ++attempts) {
      const double dice = std::uniform_real_distribution<double>(0, 1)(s_.random);
      if (!s_.sides.empty() && dice < 0.9)
        square_step();
      else if (dice < (s_.smooth ? 0.1 : 0.05) && depth_ < 2)
        scan();
      else if (dice < (s_.smooth ? 0.16 : 0.09) && depth_ < 2)
        cond();
      else if (dice < 0.18)
        look_through(random_entry());
      else
        sample_step();
    }
  }

  Value add_input(const Tensor& plain, const Noisy& noisy) {
    const Value v = b_.input(fmt::format("i{}", pool_.size()), plain.type());
    pool_.push_back({v, plain, noisy});
    return v;
  }

  // A value of exactly this type: an existing one through views and casts, else a new leaf.
  Value of_type(const Type& t) {
    return operand({.dtype = "", .sizes = t.shape.sizes(), .kind = ""}, t.dtype, t.shape.sizes());
  }

  void outputs();
  void updates();
  size_t size() const { return pool_.size(); }
  Value random_value() { return pool_.empty() ? leaf({}, DType::F32, {}) : random_entry().value; }
  Value tamed(Value v) {
    if (is_float(b_.type(v).dtype))
      if (auto r = keep(*op_table().find("tanh"), {}, {v})) return (*r)[0];
    return v;
  }
  Builder& builder() { return b_; }

 private:
  Entry& entry(Value v) {
    for (Entry& e : pool_)
      if (e.value == v) return e;
    check(false, "no such value");
    std::abort();
  }
  // Recent values more often, so that graphs are deep.
  Entry& random_entry() {
    if (pool_.empty()) leaf({}, s_.smooth ? DType::F64 : DType::F32, {3});
    const size_t n = pool_.size();
    const size_t back = s_.chance(0.5) ? s_.pick(std::min<size_t>(n, 6)) : s_.pick(n);
    return pool_[n - 1 - back];
  }

  // Appends the node if it is valid and its results are good.
  std::optional<Values> keep(const OpDef& op, const Attrs& attrs, const Values& in);
  bool good(const Tensor& plain, const Noisy& noisy) const;
  template <class A>
  std::optional<Value> keep_one(const Op<A>& op, A attrs, Values in) {
    if (auto r = keep(op.def, Attrs(std::move(attrs)), in)) return (*r)[0];
    return std::nullopt;
  }

  Value leaf(const OperandSpec& spec, DType d, const Ints& sizes);
  Value operand(const OperandSpec& spec, DType d, const Ints& sizes);
  Value candidate(DType d, const Ints& sizes);
  std::optional<Value> reach(Value v, DType d, const Ints& sizes);
  std::optional<Value> reshape_through(Value v, const Ints& sizes);
  std::optional<Value> sliced(Value v, const Ints& sizes);
  std::optional<Value> look_through(const Entry& e);
  bool suits(const OperandSpec& spec, const Tensor& t) const;
  void sample_step();
  void square_step();
  Value matrix();
  Value beside(const Ints& sizes);
  void scan();
  void cond();
  std::vector<Noisy> noisy_of(const Values& in);
  std::vector<Value> some(size_t limit, int64_t elements);

  Source& s_;
  Builder b_;
  int depth_;
  std::vector<Entry> pool_;
};

// ---- keeping nodes

bool same_float(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool Generator::good(const Tensor& plain, const Noisy& noisy) const {
  if (plain.elements() > s_.max_elements) return false;
  const DType d = plain.dtype();
  if (s_.smooth && is_differentiable(d) && d != DType::F64) return false;
  const double slack = d == DType::BF16  ? 0.2
                       : d == DType::F16 ? 0.05
                       : d == DType::F64 ? 1e-9
                                         : 1e-3;
  for (int64_t i = 0; i < plain.elements(); ++i) {
    if (!is_differentiable(d)) {
      if (is_float(d) ? !same_float(plain.get_float(i), noisy.value.get_float(i))
                      : plain.get_int(i) != noisy.value.get_int(i))
        return false;
      continue;
    }
    const Complex v = plain.get_complex(i), w = noisy.value.get_complex(i);
    const bool finite = std::isfinite(std::abs(v)) && std::isfinite(std::abs(w));
    if (s_.tame && (!finite || std::abs(v) > (s_.smooth || is_narrow(d) ? 30 : 1000))) return false;
    if (finite && std::abs(v - w) > slack * (0.1 + std::abs(v))) return false;
    if (!finite && std::isnan(std::abs(v)) != std::isnan(std::abs(w))) return false;
  }
  return true;
}

std::vector<Noisy> Generator::noisy_of(const Values& in) {
  std::vector<Noisy> out;
  for (Value v : in) out.push_back(entry(v).noisy);
  return out;
}

// Whether results of f64 move with operands of f64.
bool moves(const Node& n, const Tensors& in, const Tensors& results) {
  Tensors near = in;
  for (Tensor& t : near) {
    if (t.dtype() != DType::F64) continue;
    Tensor other(t.dtype(), t.sizes());
    for (int64_t i = 0; i < t.elements(); ++i) other.set_float(i, t.get_float(i) * (1 + 1e-7));
    t = other;
  }
  const Tensors found = evaluate_node(n, near);
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].dtype() == DType::F64 && !found[i].same_bits(results[i])) return true;
  return false;
}

std::optional<Values> Generator::keep(const OpDef& op, const Attrs& attrs, const Values& in) {
  // In a body later steps bring other values than the first, which is all that is tried here.
  if (depth_ > 0 && !always_ends(op, attrs)) return std::nullopt;
  const size_t before = b_.graph().nodes.size();
  try {
    const Values results = b_.emit(
        op, op.attr_type == attrs.type() ? attrs : Attrs(op.attr_type, op.attr_type->make()), in);
    const Node& n = b_.graph().nodes.back();
    Tensors plain;
    for (Value v : in) plain.push_back(entry(v).plain);
    for (const Type& t : n.out)
      if (product(t.shape.sizes()) > s_.max_elements) fail(ErrorKind::user, "large", "too large");
    const Tensors values = evaluate_node(n, plain);
    NoisyEvaluator evaluator(s_.random());
    std::vector<Noisy> noisy = evaluator.node(n, noisy_of(in));
    // Composites may overflow on the way to a result; only primitives make infinity and NaN here.
    bool fine = n.op->kind != Kind::composite || finite(plain) == finite(values);
    for (size_t i = 0; i < values.size(); ++i) fine = fine && good(values[i], noisy[i]);
    // What declares that it has no derivative, and is not constant, has another one than its values.
    if (s_.smooth && !op.not_differentiable.empty()) fine = fine && !moves(n, plain, values);
    if (fine) {
      for (size_t i = 0; i < values.size(); ++i) pool_.push_back({results[i], values[i], noisy[i]});
      return results;
    }
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
  }
  b_.mutable_graph().nodes.resize(before);
  return std::nullopt;
}

// ---- operands

Value Generator::leaf(const OperandSpec& spec, DType d, const Ints& sizes) {
  OperandSpec o = spec;
  o.sizes = sizes;
  Tensor t = make_operand(o, d, s_.random());
  const bool free = o.kind.empty() || o.kind == "distinct";
  if (is_float(d) && free && !s_.smooth && s_.chance(0.3))  // many ties
    for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, std::round(t.get_float(i) * 2) / 2);
  Value v;
  if (depth_ > 0 || keeps_its_order(o.kind) || s_.chance(0.12)) {
    v = b_.constant(t);
  } else {
    const std::string name = fmt::format("x{}", s_.leaves.size());
    v = s_.chance(0.4) ? b_.param(name, t.type()) : b_.input(name, t.type());
    s_.leaves.emplace(name, t);
  }
  pool_.push_back({v, t, {t, false}});
  return v;
}

bool Generator::suits(const OperandSpec& spec, const Tensor& t) const {
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double v =
        is_differentiable(t.dtype()) ? t.get_complex(i).real() : static_cast<double>(t.get_int(i));
    if (spec.kind == "index" &&
        !(v >= 0 && v < static_cast<double>(spec.limit) && v == std::floor(v)))
      return false;
    if (spec.kind == "positive" && v < 0.05) return false;
    if (spec.kind == "unit" && std::abs(v) > 0.95) return false;
    if (spec.kind == "probability" && !(v > 0.02 && v < 0.98)) return false;
    if (spec.kind == "above_one" && v < 1.05) return false;
    if (spec.kind == "sign" && std::abs(v) != 1) return false;
  }
  return true;
}

Value Generator::operand(const OperandSpec& spec, DType d, const Ints& sizes) {
  if (spec.kind == "ascending") {  // whatever is bound to the leaves
    OperandSpec any = spec;
    any.kind.clear();
    const Value unsorted = operand(any, d, sizes);
    if (const auto v = keep_one(op::sort, {}, {unsorted})) return *v;
    return leaf(spec, d, sizes);
  }
  if (keeps_its_order(spec.kind)) return leaf(spec, d, sizes);
  const bool picky = spec.kind == "index" || spec.kind == "key";
  if (!pool_.empty() && s_.chance(picky ? 0.3 : 0.8))
    for (int tries = 0; tries < 4; ++tries) {
      const std::optional<Value> v = reach(candidate(d, sizes), d, sizes);
      if (v && suits(spec, entry(*v).plain) && !(spec.kind == "index" && entry(*v).noisy.noisy))
        return *v;
    }
  return leaf(spec, d, sizes);
}

// A value to start from: often one of this very type, or of this dtype.
Value Generator::candidate(DType d, const Ints& sizes) {
  const bool typed = s_.chance(0.5), same_dtype = s_.chance(0.8);
  Values fitting;
  for (const Entry& e : pool_)
    if (e.plain.dtype() == d && (!typed || e.plain.sizes() == sizes)) fitting.push_back(e.value);
  if (fitting.empty() || !(typed || same_dtype)) return random_entry().value;
  const size_t recent = s_.chance(0.5) ? std::min<size_t>(fitting.size(), 3) : fitting.size();
  return fitting[fitting.size() - 1 - s_.pick(recent)];
}

std::optional<Value> Generator::sliced(Value v, const Ints& sizes) {
  const Ints have = b_.shape(v).sizes();
  SliceAttrs a;
  for (size_t i = 0; i < have.size(); ++i) {
    const int64_t most = sizes[i] > 1 ? (have[i] - 1) / (sizes[i] - 1) : 1;
    const int64_t stride = s_.chance(0.5) ? 1 : std::clamp<int64_t>(most, 1, 3);
    const int64_t span = sizes[i] == 0 ? 0 : (sizes[i] - 1) * stride + 1;
    const auto start = static_cast<int64_t>(s_.pick(static_cast<uint64_t>(have[i] - span + 1)));
    a.start.push_back(start), a.limit.push_back(start + span), a.stride.push_back(stride);
  }
  return keep_one(op::slice, a, {v});
}

std::optional<Value> Generator::reshape_through(Value v, const Ints& sizes) {
  const Ints have = b_.shape(v).sizes();
  const int64_t n = product(sizes), m = product(have);
  if (m < n) return std::nullopt;
  if (m > n) {
    auto flat = have.size() == 1 ? std::optional(v) : keep_one(op::reshape, {{m}}, {v});
    auto part = flat ? sliced(*flat, {n}) : std::nullopt;
    if (!part) return std::nullopt;
    v = *part;
  }
  return b_.shape(v).sizes() == sizes ? v : keep_one(op::reshape, {Shape::of(sizes)}, {v});
}

std::optional<Value> Generator::reach(Value v, DType d, const Ints& sizes) {
  std::optional<Value> at = v;
  if (b_.type(v).dtype != d) {
    if (!s_.chance(0.4) || is_complex(b_.type(v).dtype)) return std::nullopt;
    at = keep_one(op::cast, {d}, {v});
    if (!at) return std::nullopt;
  }
  const Ints have = b_.shape(*at).sizes();
  if (have == sizes) return at;
  const auto joined = broadcast_shapes(Shape::of(have), Shape::of(sizes));
  if (joined && joined->sizes() == sizes) return keep_one(op::broadcast, {Shape::of(sizes)}, {*at});
  Ints perm(have.size());
  for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
  if (have.size() == sizes.size()) {
    do {
      bool same = true, larger = true;
      for (size_t i = 0; i < perm.size(); ++i) {
        same = same && have[static_cast<size_t>(perm[i])] == sizes[i];
        larger = larger && have[static_cast<size_t>(perm[i])] >= sizes[i];
      }
      if (!larger) continue;
      auto turned =
          std::is_sorted(perm.begin(), perm.end()) ? at : keep_one(op::transpose, {perm}, {*at});
      return same || !turned ? turned : sliced(*turned, sizes);
    } while (std::next_permutation(perm.begin(), perm.end()));
  }
  return reshape_through(*at, sizes);
}

// Some view of a value.
std::optional<Value> Generator::look_through(const Entry& e) {
  const Value v = e.value;
  const Ints have = b_.shape(v).sizes();
  Ints perm(have.size()), part = have;
  for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
  std::shuffle(perm.begin(), perm.end(), s_.random);
  switch (s_.pick(6)) {
    case 0:
      return keep_one(op::transpose, {perm}, {v});
    case 1:
      for (int64_t& p : part)
        if (p > 0)
          p -= static_cast<int64_t>(s_.pick(s_.chance(0.1)
                                                ? static_cast<uint64_t>(p) + 1
                                                : std::min<uint64_t>(3, static_cast<uint64_t>(p))));
      return sliced(v, part);
    case 2:
      return keep_one(op::reshape, {{product(have)}}, {v});
    case 3:
      part.insert(part.begin() + static_cast<int64_t>(s_.pick(part.size() + 1)), 1);
      return keep_one(op::reshape, {Shape::of(part)}, {v});
    case 4:
      part.insert(part.begin(), static_cast<int64_t>(1 + s_.pick(3)));
      return keep_one(op::broadcast, {Shape::of(part)}, {v});
    default:
      return keep_one(op::reverse, {have.empty() ? Ints{} : Ints{perm[0]}}, {v});
  }
}

// ---- steps

void Generator::sample_step() {
  const RowsByOp& ops = s_.smooth ? differentiable_rows() : rows_by_op();
  const auto& rows = ops[s_.pick(ops.size())];
  const Sample& row = *rows[s_.pick(rows.size())];
  const OpDef& op = *op_table().find(row.op);
  DType d = s_.chance(0.45) ? DType::F32 : kDTypes[s_.pick(kDTypeCount)].dtype;
  if (s_.smooth) d = DType::F64;
  const bool leads = !row.operands.empty() && row.operands[0].dtype == "T";
  while (leads && !op.dtypes.has(d)) d = kDTypes[s_.pick(kDTypeCount)].dtype;
  const bool renamed = s_.chance(0.75);
  Values in;
  for (OperandSpec o : row.operands) {
    if (renamed) {
      for (int64_t& size : o.sizes) size = s_.renamed(size);
      o.limit = s_.renamed(o.limit);
    }
    if (product(o.sizes) > s_.max_elements || (o.kind == "index" && o.limit == 0) ||
        (o.kind == "ranges" && o.limit == 0))
      return;
    const DType own = dtype_at(o, d);
    if (in.empty() && !op.dtypes.has(own)) return;
    in.push_back(operand(o, own, o.sizes));
  }
  try {
    const std::string text =
        replace_all(renamed ? rename_sizes(row.attrs, s_) : row.attrs, "$T", to_string(d));
    keep(op, read_attrs(op, text), in);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;  // a body that does not take this dtype
  }
}

// A recent matrix, or a new one.
Value Generator::matrix() {
  Values fitting;
  for (const Entry& e : pool_) {
    const Ints& sizes = e.plain.sizes();
    if (e.plain.dtype() == DType::F32 && sizes.size() == 2 && sizes[0] >= s_.sides.back() &&
        sizes[1] >= s_.sides.back())
      fitting.push_back(e.value);
  }
  if (fitting.empty() || s_.chance(0.15))
    return leaf({}, DType::F32,
                {s_.sides[s_.pick(s_.sides.size())], s_.sides[s_.pick(s_.sides.size())]});
  return fitting[fitting.size() - 1 - s_.pick(std::min<size_t>(fitting.size(), 3))];
}

// A value that broadcasts against a matrix of these sizes, per row, column or element: rather one that
// is there than a new one.
Value Generator::beside(const Ints& sizes) {
  const Ints shapes[] = {sizes, sizes, sizes, {sizes[1]}, {sizes[1]}, {sizes[0], 1}, {1, sizes[1]}};
  const Ints& wanted = shapes[s_.pick(std::size(shapes))];
  Values fitting;
  for (const Entry& e : pool_)
    if (e.plain.dtype() == DType::F32 && e.plain.sizes() == wanted) fitting.push_back(e.value);
  if (fitting.empty() || s_.chance(0.1)) return leaf({}, DType::F32, wanted);
  return fitting[fitting.size() - 1 - s_.pick(std::min<size_t>(fitting.size(), 3))];
}

// One step of a large program.
void Generator::square_step() {
  static const OpDef* const kUnary[] = {&op::tanh, &op::sigmoid, &op::abs, &op::neg, &op::sin};
  static const OpDef* const kBinary[] = {&op::add, &op::sub, &op::mul, &op::maximum, &op::minimum};
  static const OpDef* const kReduce[] = {&op::reduce_sum, &op::reduce_max, &op::reduce_min,
                                         &op::reduce_mean};
  const Value x = matrix();
  const Ints sizes = b_.shape(x).sizes();
  switch (s_.pick(10)) {
    case 0:
    case 1:
    case 2: {
      const Ints axes = s_.chance(0.75) ? Ints{1} : s_.chance(0.6) ? Ints{0} : Ints{0, 1};
      const ReduceAttrs a{axes, s_.chance(0.3)};
      keep(*kReduce[s_.pick(std::size(kReduce))], a, {x});
      return;
    }
    case 3:
    case 4:
    case 5: {
      Values in{x, beside(sizes)};
      if (s_.chance(0.5)) std::swap(in[0], in[1]);
      keep(*kBinary[s_.pick(std::size(kBinary))], {}, in);
      return;
    }
    case 6:
      keep(*kUnary[s_.pick(std::size(kUnary))], {}, {s_.chance(0.6) ? x : random_entry().value});
      return;
    case 7:
      keep_one(op::softmax, {}, {x});
      return;
    case 8: {  // with a narrow matrix, then back to a wide one
      const auto width = static_cast<int64_t>(4 + s_.pick(20));
      const Value w = leaf({}, DType::F32, {sizes[1], width});
      const auto y = keep_one(op::matmul, {}, {x, w});
      if (y && s_.chance(0.7)) keep_one(op::matmul, {.transpose_b = true}, {*y, *y});
      return;
    }
    default:
      look_through(entry(x));
  }
}

std::vector<Value> Generator::some(size_t limit, int64_t elements) {
  std::vector<Value> out;
  for (size_t i = 0; i < limit; ++i) {
    const Entry& e = random_entry();
    if (e.plain.elements() <= elements) out.push_back(e.value);
  }
  return out;
}

void Generator::scan() {
  const auto length = static_cast<int64_t>(s_.chance(0.05) ? 0 : 1 + s_.pick(6));
  Values in = some(1 + s_.pick(2), 100);
  const size_t carries = in.size();
  if (carries == 0) return;
  const DType d = s_.smooth        ? DType::F64
                  : s_.chance(0.7) ? DType::F32
                                   : kDTypes[s_.pick(kDTypeCount)].dtype;
  for (uint64_t k = s_.pick(3); k > 0; --k) {
    const int64_t width = s_.renamed(static_cast<int64_t>(1 + s_.pick(4)));
    in.push_back(of_type({d, s_.chance(0.3) ? Shape{length} : Shape{length, width}}));
  }
  const size_t xs = in.size() - carries;
  for (Value v : some(s_.pick(3), 200)) in.push_back(v);
  Generator body(s_, "step", depth_ + 1);
  Values carried;
  for (size_t i = 0; i < in.size(); ++i) {
    const Entry& e = entry(in[i]);
    Tensor plain = e.plain, noisy = e.noisy.value;
    if (i >= carries && i < carries + xs) {  // the first slice
      const Ints inner(plain.sizes().begin() + 1, plain.sizes().end());
      const Type slice{plain.dtype(), Shape::of(inner)};
      plain = length ? Tensor::from_bytes(slice.dtype, inner, plain.raw(),
                                          static_cast<size_t>(slice.bytes()))
                     : Tensor(slice.dtype, inner);
      noisy = length ? Tensor::from_bytes(slice.dtype, inner, noisy.raw(),
                                          static_cast<size_t>(slice.bytes()))
                     : plain;
    }
    carried.push_back(body.add_input(plain, {noisy, e.noisy.noisy}));
  }
  body.grow(static_cast<int>(in.size() + 2 + s_.pick(6)));
  for (size_t i = 0; i < carries; ++i) {
    const Value next = s_.chance(0.1) ? carried[s_.pick(carries)] : body.random_value();
    const Type want = body.b_.type(carried[i]);
    auto fitted = body.reach(next, want.dtype, want.shape.sizes());
    body.b_.output(fitted ? body.tamed(*fitted) : carried[i]);
  }
  for (uint64_t k = s_.pick(3); k > 0; --k) body.b_.output(body.random_value());
  keep(op::scan.def,
       ScanAttrs{.body = body.b_.finish(),
                 .length = length,
                 .num_carries = static_cast<int64_t>(carries),
                 .num_xs = static_cast<int64_t>(xs),
                 .reverse = s_.chance(0.3)},
       in);
}

void Generator::cond() {
  Values in{operand({}, DType::Bool, {})};
  for (Value v : some(1 + s_.pick(3), 400)) in.push_back(v);
  std::vector<Body> bodies;
  Types results;
  for (const char* name : {"then", "else"}) {
    Generator body(s_, name, depth_ + 1);
    for (size_t i = 1; i < in.size(); ++i) body.add_input(entry(in[i]).plain, entry(in[i]).noisy);
    body.grow(static_cast<int>(in.size() + 1 + s_.pick(5)));
    if (bodies.empty())
      for (uint64_t k = 1 + s_.pick(2); k > 0; --k) {
        const Value v = body.random_value();
        body.b_.output(v);
        results.push_back(body.b_.type(v));
      }
    else
      for (const Type& t : results) body.b_.output(body.of_type(t));
    bodies.emplace_back(body.b_.finish());
  }
  keep(op::cond.def, CondAttrs{bodies[0], bodies[1]}, in);
}

// ---- the end

void Generator::outputs() {
  const Uses uses(b_.graph());
  Values ends;
  for (const Entry& e : pool_)
    if (uses.count(e.value) == 0 && b_.node(e.value).op->kind != Kind::leaf)
      ends.push_back(e.value);
  std::shuffle(ends.begin(), ends.end(), s_.random);
  if (ends.size() > 6) ends.resize(6);
  if (ends.empty() || s_.chance(0.3)) ends.push_back(random_entry().value);
  if (s_.chance(0.3))
    if (auto v = look_through(random_entry())) ends.push_back(*v);
  if (s_.chance(0.2))  // a leaf as it is
    for (const Entry& e : pool_)
      if (b_.node(e.value).op->kind == Kind::leaf) {
        ends.push_back(e.value);
        break;
      }
  if (s_.chance(0.15)) ends.push_back(ends[0]);
  for (Value v : ends) b_.output(v);
}

void Generator::updates() {
  const Values params = b_.graph().params();
  std::vector<bool> done(params.size());
  auto name = [&](size_t i) { return b_.node(params[i]).get<LeafAttrs>().name; };
  for (size_t i = 0; i < params.size(); ++i)
    for (size_t j = i + 1; j < params.size(); ++j)
      if (!done[i] && !done[j] && b_.type(params[i]) == b_.type(params[j]) && s_.chance(0.3)) {
        b_.update(name(i), params[j]), b_.update(name(j), params[i]);
        done[i] = done[j] = true;
      }
  for (size_t i = 0; i < params.size(); ++i) {
    if (done[i] || s_.chance(0.5)) continue;
    const Type t = b_.type(params[i]);
    std::optional<Value> v;
    for (int tries = 0; tries < 4 && !v; ++tries)
      v = reach(random_entry().value, t.dtype, t.shape.sizes());
    if (v) b_.update(name(i), *v);
  }
}

}  // namespace

RandomProgram random_program(uint64_t seed) {
  static constexpr int64_t kSizes[] = {1, 2,  2,  3,  3,  4,  5,  6,  7,  8,
                                       9, 12, 15, 16, 17, 24, 31, 32, 33, 40};
  Source source{.random = std::mt19937_64(seed * 0x9e3779b97f4a7c15u + 1)};
  source.tame = !source.chance(0.05);
  for (int64_t size = 2; size <= 8; ++size)
    if (source.chance(0.7))
      source.sizes[size] = source.chance(0.02) ? 0 : kSizes[source.pick(std::size(kSizes))];
  Generator g(source, fmt::format("random{}", seed), 0);
  g.grow(static_cast<int>(5 + source.pick(36)));
  g.outputs();
  g.updates();
  return {g.builder().finish(), source.leaves};
}

namespace {

// Sides that are equal or nearly so.
RandomProgram random_matrices(const std::string& name, Source source, int64_t side, int64_t least,
                              int64_t most, size_t nodes) {
  source.sides = Ints(12, side);
  source.sides.push_back(std::min(side + 1, most));
  source.sides.push_back(std::max(side - 1, least));
  for (int64_t size = 2; size <= 8; ++size)
    if (source.chance(0.7)) source.sizes[size] = source.sides[source.pick(source.sides.size())];
  Generator g(source, name, 0);
  g.grow(static_cast<int>(nodes));
  g.outputs();
  g.updates();
  return {g.builder().finish(), source.leaves, true};
}

}  // namespace

RandomProgram random_large_program(uint64_t seed) {
  Source source{.random = std::mt19937_64(seed * 0x9e3779b97f4a7c15u + 2)};
  source.max_elements = kMaxLargeElements;
  const auto side = static_cast<int64_t>(60 + source.pick(source.chance(0.85) ? 80 : 241));
  const size_t nodes = 8 + source.pick(8);
  return random_matrices(fmt::format("large{}", seed), std::move(source), side, 60, 300, nodes);
}

RandomProgram random_square_program(uint64_t seed) {
  Source source{.random = std::mt19937_64(seed * 0x9e3779b97f4a7c15u + 3)};
  const auto side = static_cast<int64_t>(2 + source.pick(7));
  const size_t nodes = 8 + source.pick(13);
  return random_matrices(fmt::format("square{}", seed), std::move(source), side, 2, 9, nodes);
}

RandomProgram random_smooth_program(uint64_t seed) {
  static constexpr int64_t kSizes[] = {1, 2, 2, 3, 3, 4};
  Source source{.random = std::mt19937_64(seed * 0x9e3779b97f4a7c15u + 4)};
  source.smooth = true;
  source.max_elements = kMaxSmoothElements;
  for (int64_t size = 2; size <= 8; ++size)
    if (source.chance(0.7)) source.sizes[size] = kSizes[source.pick(std::size(kSizes))];
  Generator g(source, fmt::format("smooth{}", seed), 0);
  g.grow(static_cast<int>(5 + source.pick(14)));
  g.outputs();
  return {g.builder().finish(), source.leaves};
}

void count_ops(const Graph& g, OpCounts& counts) {
  for (const Node& n : g.nodes) {
    ++counts[std::string(n.op->name)];
    for (const FieldInfo& f : n.attrs.fields())
      if (f.is<Body>()) {
        std::shared_ptr<void> copy = n.attrs.copy();
        count_ops(**static_cast<Body*>(f.member(copy.get())), counts);
      }
  }
}

std::string to_string(const RandomProgram& p) {
  std::string out = print(p.graph);
  for (const auto& [name, t] : p.leaves) {
    Printer printer;
    Codec<Tensor>::print(printer, t);
    out +=
        fmt::format("# {} = {}\n", name, t.elements() <= 200 ? printer.out : t.type().to_string());
  }
  return out;
}

}  // namespace rlx::testing
