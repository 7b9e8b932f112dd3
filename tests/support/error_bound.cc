#include "error_bound.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "rlx/compile/compile.h"
#include "rlx/ops/core.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {

namespace {

constexpr double kUlps = 4, kShortUlps = 1.5, kStepUlps = 1, kNormFactor = 2, kOperandUlps = 4,
                 kRangeFactor = 4, kBaseUlps = 5, kShortBaseUlps = 2;

struct FloatFormat {
  int mantissa, min_exponent;
};

FloatFormat format_of(DType d) {
  if (d == DType::F64) return {52, -1022};
  if (const NarrowFloat* f = info(d).narrow) return {f->mantissa_bits, 1 - f->bias};
  return {23, -126};
}

// How often an elementwise op's scalar rule rounds; transcendental functions count as often.
class RoundingCounter final : public ScalarEmitter {
 public:
  int roundings = 0;
  int constant(DType, double) override { return next_++; }
  int constant_int(DType, int64_t) override { return next_++; }
  int apply(ScalarOp op, DType result, std::span<const Scalar>) override {
    switch (op) {
      case ScalarOp::Add:
      case ScalarOp::Sub:
      case ScalarOp::Mul:
      case ScalarOp::Div:
      case ScalarOp::Sqrt:
        roundings += is_float(result) ? 1 : 0;
        break;
      case ScalarOp::Rem:
      case ScalarOp::Exp:
      case ScalarOp::Log:
      case ScalarOp::Tanh:
      case ScalarOp::Erf:
      case ScalarOp::Sin:
      case ScalarOp::Cos:
      case ScalarOp::Pow:
        roundings += is_float(result) ? 2 : 0;
        break;
      default:
        break;
    }
    return next_++;
  }

 private:
  int next_ = 0;
};

bool narrows(const Node& n, std::span<const NoisyEvaluator::Noisy> in) {
  return n.op == &op::cast && is_float(n.type().dtype) && is_float(in[0].value.dtype()) &&
         size_of(n.type().dtype) < size_of(in[0].value.dtype());
}

bool holds_whole_numbers(const Tensor& t) {
  for (int64_t i = 0; i < t.elements(); ++i)
    if (const Complex v = t.get_complex(i); v.imag() != 0 || v.real() != std::trunc(v.real()))
      return false;
  return true;
}

// Ops that the CPU computes whole, by a kernel of its own.
bool has_kernel(const OpDef& op) {
  static const std::set<std::string> names = [] {
    const std::vector<std::string> list = native_ops(*backend_for("cpu"));
    return std::set<std::string>(list.begin(), list.end());
  }();
  return names.contains(std::string(op.name));
}

using Bits = std::vector<uint64_t>;

void collect_bits(const Tensor& t, Bits& bits) {
  const auto size = static_cast<size_t>(size_of(t.dtype()));
  for (int64_t i = 0; i < t.elements(); ++i) {
    uint64_t word = 0;
    std::memcpy(&word, t.raw() + static_cast<size_t>(i) * size, size);
    bits.push_back(word);
  }
}

// About how many terms each sum or product of the node has; `whole` operands have no part in them.
double terms(const Node& n, const Tensors& in, const std::vector<bool>& whole) {
  const auto out = static_cast<double>(std::max<int64_t>(n.type().shape.elements().value(), 1));
  double elements = 1, largest = 1;
  for (size_t i = 0; i < in.size(); ++i) {
    const Tensor& t = in[i];
    if (whole[i]) continue;
    elements *= static_cast<double>(std::max<int64_t>(t.elements(), 1));
    for (int64_t d : t.sizes()) largest = std::max(largest, static_cast<double>(d));
  }
  if (n.op->kind == Kind::contraction && std::count(whole.begin(), whole.end(), false) > 1)
    return std::sqrt(elements / out);
  const double folded = elements / out;
  const bool factors = n.op->kind == Kind::contraction && n.out.size() > 1;
  return folded > 1 && !factors
             ? folded
             : largest;  // running sums, transforms and factorisations keep theirs
}

// Functions whose error is a few units of the numbers on the way, not of a result near one of their
// zeros.
bool is_absolute(const OpDef& op) {
  return op.name == "digamma" || op.name == "polygamma" || op.name == "lgamma";
}

// Transforms and factorisations: of one operand, or of the matrix of a system.
bool has_error_by_norm(const Node& n) {
  return n.op->kind == Kind::contraction && (n.in.size() == 1 || n.op->name == "dense_solve");
}

bool is_solved(const Node& n) {
  return n.op->name == "dense_solve" || n.op->name == "triangular_solve";
}

// Elementwise, but a sum in disguise: log(e^a + e^b) passes through zero where its operands do not.
bool is_sum_of_operands(const OpDef& op) { return op.name == "logaddexp"; }

Types types_of(std::span<const Tensor> in) {
  Types out;
  for (const Tensor& t : in) out.push_back(t.type());
  return out;
}

Tensors values_of(std::span<const NoisyEvaluator::Noisy> in) {
  Tensors out;
  for (const auto& x : in) out.push_back(x.value);
  return out;
}

bool same_results(const Tensors& a, const Tensors& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].same_bits(b[i])) return false;
  return true;
}

// Whether the op reads the whole part of operand i alone, as it does of indices, lengths and labels: integers, and floats
// whose fractions it drops or refuses.
bool reads_whole_part(const EvalArgs& args, const Tensors& operands, size_t i,
                      const Tensors& results) {
  const Tensor& t = operands[i];
  if (!is_differentiable(t.dtype())) return true;
  if (is_complex(t.dtype()) || !holds_whole_numbers(t)) return false;
  Tensors moved = operands;
  moved[i] = Tensor(t.dtype(), t.sizes());
  for (int64_t k = 0; k < t.elements(); ++k)
    moved[i].set_float(k, t.get_float(k) + std::copysign(0.25, t.get_float(k)));
  if (moved[i].same_bits(t)) return t.elements() == 0;  // so large that they have no fractions
  try {
    return same_results(args.node.op->eval(EvalArgs{args.node, moved, args.evaluate}), results);
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

bool only_repeats(const Tensor& out, std::span<const Tensor> in, bool zero_too) {
  Bits known, found;
  if (zero_too) known.push_back(0);
  for (const Tensor& x : in)
    if (x.dtype() == out.dtype()) collect_bits(x, known);
  collect_bits(out, found);
  std::sort(known.begin(), known.end());
  return std::all_of(found.begin(), found.end(),
                     [&](uint64_t w) { return std::binary_search(known.begin(), known.end(), w); });
}

int roundings(const Node& n, std::span<const Type> in) {
  if (!n.op->scalar || is_complex(n.type().dtype)) return 2;
  RoundingCounter counter;
  std::vector<Scalar> operands;
  for (const Type& t : in) {
    if (is_complex(t.dtype)) return 2;
    operands.push_back({&counter, counter.constant(t.dtype, 0), t.dtype});
  }
  n.op->scalar(n, operands);
  return std::min(counter.roundings, 2);
}

double ulp(DType d, double magnitude) {
  const FloatFormat f = format_of(d);
  if (!std::isfinite(magnitude) || magnitude == 0)
    return std::ldexp(1.0, f.min_exponent - f.mantissa);
  return std::ldexp(1.0, std::max(std::ilogb(magnitude), f.min_exponent) - f.mantissa);
}

// ---- noise

bool NoisyEvaluator::disturb(Tensor& t, double ulps, bool of_largest) {
  if (!is_differentiable(t.dtype())) return false;
  std::uniform_real_distribution<double> unit(-1, 1);
  Tensor fresh = Tensor::from_bytes(t.dtype(), t.sizes(), t.raw(), t.bytes());
  const double largest = of_largest ? largest_of(t) : 0;
  for (int64_t i = 0; i < t.elements(); ++i) {
    const Complex v = t.get_complex(i);
    if (!std::isfinite(v.real()) || !std::isfinite(v.imag())) continue;
    if (v == 0.0 && !of_largest) continue;  // what rounds relative to itself keeps a zero
    const double size = ulps * ulp(t.dtype(), std::max(std::abs(v), largest));
    if (is_complex(t.dtype()))
      fresh.set_complex(i, v + Complex(size * unit(random_), size * unit(random_)));
    else
      fresh.set_float(i, v.real() + size * unit(random_));
  }
  t = std::move(fresh);
  return true;
}

std::vector<bool> NoisyEvaluator::adds_no_rounding(const EvalArgs& args, const Tensors& operands,
                                                   const Tensors& results) {
  const Node& n = args.node;
  const auto decides = [&](const Tensor& out) -> bool {
    if (!is_differentiable(out.dtype()) || n.op->kind == Kind::leaf || operands.empty())
      return true;
    if (n.op->kind == Kind::elementwise) return roundings(n, types_of(operands)) <= 1;
    if (n.op->kind == Kind::movement || n.op->kind == Kind::reduction)
      return only_repeats(out, operands, n.op->kind == Kind::movement);
    return false;
  };
  std::vector<bool> exact;
  for (const Tensor& t : results) exact.push_back(decides(t));
  if (n.op->kind != Kind::reduction) return exact;
  // a + b - a may happen to be b, in one order of its roundings: a maximum repeats an element whatever the elements are.
  if (std::find(exact.begin(), exact.end(), true) == exact.end()) return exact;
  Tensors moved = operands;
  const std::mt19937_64 before = random_;
  for (Tensor& t : moved) disturb(t, kOperandUlps);
  random_ = before;  // a question, not a draw
  const Tensors again = n.op->eval(EvalArgs{n, moved, args.evaluate});
  for (size_t i = 0; i < exact.size(); ++i)
    exact[i] =
        exact[i] && (!is_differentiable(again[i].dtype()) || only_repeats(again[i], moved, false));
  return exact;
}

std::vector<NoisyEvaluator::Noisy> NoisyEvaluator::body_node(const Node& n,
                                                             std::span<const Noisy> in) {
  bool noisy = std::any_of(in.begin(), in.end(), [](const Noisy& x) { return x.noisy; });
  Tensors operands = values_of(in);
  auto body = [&](const Graph& g, std::span<const Tensor> leaves) {
    std::vector<Noisy> bound;
    for (const Tensor& t : leaves) bound.push_back({t, noisy});
    Tensors out;
    for (Noisy& x : graph(g, bound).outputs) {
      noisy |= x.noisy;
      out.push_back(std::move(x.value));
    }
    return out;
  };
  std::vector<Noisy> out;
  for (Tensor& t : n.op->eval(EvalArgs{n, operands, body})) out.push_back({std::move(t), noisy});
  return out;
}

Tensors NoisyEvaluator::with_noisy_operands(const EvalArgs& args, Tensors& operands,
                                            const Tensors& plain) {
  std::vector<bool> whole;
  for (size_t i = 0; i < operands.size(); ++i)
    whole.push_back(reads_whole_part(args, operands, i, plain));
  const bool by_norm = has_error_by_norm(args.node);
  const double ulps =
      std::max(kOperandUlps, (by_norm ? kNormFactor : 1) * terms(args.node, operands, whole));
  for (size_t i = 0; i < operands.size(); ++i) {
    Tensor& t = operands[i];
    if (!whole[i] && !is_narrow(t.dtype()) &&
        !(every_rounding_ && !by_norm && holds_whole_numbers(t)))
      disturb(t, ulps, by_norm);
  }
  return args.node.op->eval(args);
}

namespace {

bool all_finite(const Tensor& t) {
  for (int64_t i = 0; is_differentiable(t.dtype()) && i < t.elements(); ++i) {
    const Complex v = t.get_complex(i);
    if (!std::isfinite(v.real()) || !std::isfinite(v.imag())) return false;
  }
  return true;
}

// Where a system of finite numbers overflows, another order may meet infinities of both signs: NaN.
void open_overflow(Tensor& result) {
  for (int64_t i = 0; i < result.elements(); ++i) {
    const Complex v = result.get_complex(i);
    if (!std::isfinite(v.real()) || !std::isfinite(v.imag())) result.set_complex(i, NAN);
  }
}

}  // namespace

std::vector<NoisyEvaluator::Noisy> NoisyEvaluator::primitive(const Node& n,
                                                             std::span<const Noisy> in) {
  const bool noisy = std::any_of(in.begin(), in.end(), [](const Noisy& x) { return x.noisy; });
  Tensors operands = values_of(in);
  auto body = [](const Graph& g, std::span<const Tensor> leaves) { return evaluate(g, leaves); };
  const EvalArgs args{n, operands, body};
  Tensors results = n.op->eval(args);
  if (inside_kernel_ && n.op->kind == Kind::elementwise &&
      (roundings(n, types_of(operands)) == 1 || (every_rounding_ && narrows(n, in)))) {
    std::vector<Noisy> out;
    for (Tensor& t : results) {
      const bool disturbed = !(every_rounding_ && holds_whole_numbers(t)) && disturb(t, kStepUlps);
      out.push_back({std::move(t), noisy || disturbed});
    }
    return out;
  }
  const std::vector<bool> exact = adds_no_rounding(args, operands, results);
  if (std::find(exact.begin(), exact.end(), false) != exact.end() &&
      (n.op->kind != Kind::elementwise || is_sum_of_operands(*n.op)))
    results = with_noisy_operands(args, operands, results);
  const bool overflows = is_solved(n) && std::all_of(operands.begin(), operands.end(), all_finite);
  std::vector<Noisy> out;
  for (size_t i = 0; i < results.size(); ++i) {
    if (overflows && is_differentiable(results[i].dtype())) open_overflow(results[i]);
    const bool disturbed =
        !exact[i] &&
        disturb(results[i], is_narrow(results[i].dtype()) ? kShortUlps : kUlps, is_absolute(*n.op));
    out.push_back({std::move(results[i]), noisy || disturbed});
  }
  return out;
}

std::vector<NoisyEvaluator::Noisy> NoisyEvaluator::node(const Node& n, std::span<const Noisy> in) {
  if (n.op->decompose && (n.op->kind == Kind::composite || !n.op->eval)) {
    const Types types = types_of(values_of(in));
    const bool outside = !inside_kernel_;
    inside_kernel_ = inside_kernel_ || has_kernel(*n.op);
    std::vector<Noisy> out = graph(decomposed(n, types), in).outputs;
    inside_kernel_ = inside_kernel_ && !outside;
    return out;
  }
  check(n.op->eval, "{} states neither eval nor decompose", n.op->name);
  const bool bodies = n.op->kind == Kind::control || n.op == &op::region;
  return bodies ? body_node(n, in) : primitive(n, in);
}

void NoisyEvaluator::leave_unrounded(const Node& n, std::span<const Noisy> in,
                                     std::vector<Noisy>& results) {
  const bool rounds =
      n.op->kind == Kind::composite || n.op->kind == Kind::reduction ||
      (n.op->kind == Kind::elementwise && roundings(n, types_of(values_of(in))) > 0);
  for (Noisy& r : results)
    if (rounds && is_narrow(r.value.dtype())) r.noisy |= disturb(r.value, kStepUlps);
}

NoisyEvaluator::Run NoisyEvaluator::graph(const Graph& g, std::span<const Noisy> leaves) {
  std::vector<std::vector<Noisy>> values(g.nodes.size()), read(g.nodes.size());
  const auto at = [](const std::vector<std::vector<Noisy>>& of, Value v) {
    return of[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
  };
  size_t next = 0;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    if (n.op == &op::input || n.op == &op::param) {
      read[i] = values[i] = {leaves[next++]};
      continue;
    }
    std::vector<Noisy> in;
    for (Value v : n.in) in.push_back(at(read, v));
    read[i] = values[i] = node(n, in);
    if (keeps_wide_) leave_unrounded(n, in, read[i]);
  }
  Run run;
  for (Value v : g.outputs) run.outputs.push_back(at(values, v));
  for (const Update& u : g.updates) run.updates.emplace(u.param, at(values, u.value));
  return run;
}

// ---- comparison

namespace {

bool same_class(Complex a, Complex b) {
  auto same = [](double x, double y) {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    if (std::isinf(x) || std::isinf(y)) return x == y;
    return true;
  };
  // Of a number that is not infinite either part may say that it is NaN (docs/ir.md).
  const auto nan = [](Complex v) { return std::isnan(v.real()) || std::isnan(v.imag()); };
  const auto infinite = [](Complex v) { return std::isinf(v.real()) || std::isinf(v.imag()); };
  if (nan(a) && nan(b) && !infinite(a) && !infinite(b)) return true;
  return same(a.real(), b.real()) && same(a.imag(), b.imag());
}

bool is_finite(Complex v) { return std::isfinite(v.real()) && std::isfinite(v.imag()); }

// What an element may be; nothing when the noisy runs do not agree about it.
struct Allowance {
  bool stable = true;
  double tolerance = 0;
};

Allowance allowance(const Tensor& value, const Tensors& draws, int64_t i, bool from_value) {
  const DType d = value.dtype();
  if (draws.empty()) return {};
  if (!is_differentiable(d)) {
    for (const Tensor& t : draws)
      if (t.get_int(i) != value.get_int(i)) return {false, 0};
    return {};
  }
  const Complex v = value.get_complex(i);
  Complex low = draws[0].get_complex(i), high = low;
  for (const Tensor& t : draws) {
    const Complex w = t.get_complex(i);
    if (!same_class(v, w)) return {false, 0};
    low = {std::min(low.real(), w.real()), std::min(low.imag(), w.imag())};
    high = {std::max(high.real(), w.real()), std::max(high.imag(), w.imag())};
  }
  if (!is_finite(v)) return {};
  double range = std::abs(high - low);
  for (const Tensor& t : draws)
    if (from_value) range = std::max(range, std::abs(t.get_complex(i) - v));
  const double base = is_narrow(d) ? kShortBaseUlps : kBaseUlps;
  // Noise about zeros is below the normal numbers; its norms lie beside zero, not around it, which their range does not
  // show.
  const double floor = from_value || is_narrow(d) ? 0 : std::ldexp(1.0, format_of(d).min_exponent);
  return {true, kRangeFactor * range + base * ulp(d, std::abs(v)) + floor};
}

bool close(Complex v, Complex w, double tolerance) {
  if (!same_class(v, w)) return false;
  return v == w || !is_finite(v) || std::abs(v - w) <= tolerance;
}

}  // namespace

double largest_of(const Tensor& t) {
  double largest = 0;
  for (int64_t i = 0; i < t.elements(); ++i)
    if (const double m = std::abs(t.get_complex(i)); std::isfinite(m))
      largest = std::max(largest, m);
  return largest;
}

void CompareStats::add(const CompareStats& other) {
  elements += other.elements, exact += other.exact;
  unstable += other.unstable, loose += other.loose;
  widest = std::max(widest, other.widest);
}

std::string Bounded::mismatch(const Tensor& got, const Compare& how) const {
  if (got.type() != value.type())
    return fmt::format("{} where the reference has {}", got.type(), value.type());
  const bool numbers = is_differentiable(value.dtype());
  const double largest = numbers ? std::max(largest_of(value), how.scale) : 0;
  std::string first;
  CompareStats seen;
  for (int64_t i = 0; i < value.elements(); ++i) {
    Allowance a = allowance(value, draws, i, how.from_value);
    ++seen.elements, seen.exact += exact(), seen.unstable += !a.stable;
    if (!a.stable) continue;
    if (!numbers) {
      if (first.empty() && got.get_int(i) != value.get_int(i))
        first = fmt::format("element {}: {} where the reference has {}", i, got.get_int(i),
                            value.get_int(i));
      continue;
    }
    const Complex v = value.get_complex(i), w = got.get_complex(i);
    a.tolerance = std::min(a.tolerance, how.ceiling * largest);
    const double unit = ulp(value.dtype(), std::abs(v));
    seen.loose +=
        a.tolerance > std::max({0.01 * std::abs(v), 16 * unit, ulp(value.dtype(), largest)});
    if (a.tolerance > 0 && largest > 0) seen.widest = std::max(seen.widest, a.tolerance / largest);
    if (first.empty() && !close(v, w, a.tolerance))
      first = fmt::format("element {}: {}{:+}i where the reference has {}{:+}i, allowed are {}{}",
                          i, w.real(), w.imag(), v.real(), v.imag(), a.tolerance,
                          exact() ? " (exact)" : "");
  }
  if (how.stats) how.stats->add(seen);
  return first;
}

BoundedRun evaluate_bounded(const Graph& unbound, const NamedTensors& leaves, uint64_t seed,
                            int draws, bool keeps_wide) {
  Tensors tensors;
  std::vector<NoisyEvaluator::Noisy> plain;
  for (const Node& n : unbound.nodes)
    if (n.op == &op::input || n.op == &op::param) {
      tensors.push_back(leaves.at(n.get<LeafAttrs>().name));
      plain.push_back({tensors.back(), false});
    }
  const DimBinding binding = match_symbols(unbound, tensors);
  const Graph g = binding.empty() ? unbound : bind(unbound, binding);
  const Evaluated reference = evaluate(g, tensors, [](int32_t, const Tensors&) {});
  BoundedRun run;
  for (const Tensor& t : reference.outputs) run.outputs.push_back({t, {}});
  for (const auto& [name, t] : reference.updates) run.updates[name] = {t, {}};
  std::map<Bounded*, bool> inexact;
  for (int k = 0; k < draws; ++k) {
    NoisyEvaluator::Run noisy =
        NoisyEvaluator(seed * 1000003 + static_cast<uint64_t>(k), false, keeps_wide)
            .graph(g, plain);
    auto keep = [&](Bounded& b, NoisyEvaluator::Noisy& n) {
      b.draws.push_back(n.value);
      inexact[&b] |= n.noisy;
    };
    for (size_t i = 0; i < run.outputs.size(); ++i) keep(run.outputs[i], noisy.outputs[i]);
    for (auto& [name, b] : run.updates) keep(b, noisy.updates.at(name));
  }
  for (const auto& [bounded, noisy] : inexact)
    if (!noisy) bounded->draws.clear();
  return run;
}

std::vector<Bounded> bounded_by_rounding(const Graph& g, const Tensors& in, const Tensors& wide,
                                         uint64_t seed, int draws) {
  std::vector<NoisyEvaluator::Noisy> plain;
  for (const Tensor& t : in) plain.push_back({t, false});
  const Types types = g.output_types();
  std::vector<Bounded> out;
  for (size_t i = 0; i < wide.size(); ++i) {
    out.push_back({Tensor(types[i].dtype, wide[i].sizes()), {}});
    for (int64_t k = 0; k < wide[i].elements(); ++k)
      out[i].value.set_complex(k, wide[i].get_complex(k));
  }
  std::vector<bool> inexact(wide.size());
  for (int k = 0; k < draws; ++k) {
    NoisyEvaluator::Run noisy =
        NoisyEvaluator(seed * 1000003 + static_cast<uint64_t>(k), true).graph(g, plain);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].draws.push_back(noisy.outputs[i].value);
      inexact[i] = inexact[i] || noisy.outputs[i].noisy;
    }
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (!inexact[i]) out[i].draws.clear();
  return out;
}

}  // namespace rlx::testing
