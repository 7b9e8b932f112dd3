#include "op_checks.h"

#include <gtest/gtest.h>

#include <bit>

#include "rlx/ops/rules.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {

Tensor combine(const Tensor& a, const Tensor& b, double scale) {
  Tensor out(a.dtype(), a.sizes());
  for (int64_t i = 0; i < out.elements(); ++i)
    out.set_complex(i, a.get_complex(i) + scale * b.get_complex(i));
  return out;
}

double inner(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i)
    sum += (std::conj(a.get_complex(i)) * b.get_complex(i)).real();
  return sum;
}

double magnitude(const Tensor& a) {
  double most = 0;
  for (int64_t i = 0; i < a.elements(); ++i) most = std::max(most, std::abs(a.get_complex(i)));
  return most;
}

double distance(const Tensor& a, const Tensor& b, double scale) {
  double most = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const Complex x = a.get_complex(i), y = b.get_complex(i);
    if (std::isnan(x.real()) && std::isnan(y.real())) continue;
    if (x == y) continue;
    const double d = std::abs(x - y);
    most = std::max(most, std::isnan(d) ? INFINITY : d);
  }
  return most == 0 ? 0 : most / std::max({scale, magnitude(a), magnitude(b)});
}

Tensor noise(const Tensor& like, uint64_t seed) {
  return make_operand({"T", like.sizes(), ""}, like.dtype(), seed);
}

bool differentiable(const Tensor& t) { return is_differentiable(t.dtype()); }

Tensors with(Tensors a, const Tensors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string row(const Case& c) {
  return fmt::format("{} {} at {}", c.sample->where, c.sample->op, c.dtype);
}

std::vector<std::string> names(const std::vector<size_t>& operands) {
  std::vector<std::string> out;
  for (size_t i : operands) out.push_back(std::to_string(i));
  return out;
}

bool has_derivatives(const Case& c) {
  if (!c.node().op->not_differentiable.empty() || c.swept.empty() || !is_differentiable(c.dtype))
    return false;
  if (c.dtype == DType::F32 &&
      (c.sample->operands[0].dtype != "T" || c.node().op->dtypes.has(DType::F64)))
    return false;
  for (const Type& t : c.node().out)
    if (is_differentiable(t.dtype)) return true;
  return false;
}

Tensors tangents_of(const Case& c) {
  Tensors out;
  for (size_t i : c.swept)
    out.push_back(noise(c.operands[i], mix(hash_text(c.sample->text), 100 + i)));
  return out;
}

// ---- derivatives

namespace {

struct Precision {
  double step, differences, transpose;
  // Differences divide the roundings of the values by the step: a derivative that is smaller than this fraction of them is
  // not seen better than that.
  double of_value;
  // A derivative smaller than this fraction of its directions is 0, up to the roundings of terms that cancel (of a
  // normalised axis of one element, say).
  double of_direction;
};
Precision precision(DType d) {
  return d == DType::F64 ? Precision{1e-4, 1e-6, 1e-10, 1e-3, 1e-4}
                         : Precision{2e-3, 2e-3, 1e-5, 1, 1e-1};
}

Tensors differentiable_of(Tensors all) {
  std::erase_if(all, [](const Tensor& t) { return !differentiable(t); });
  return all;
}

Tensors behind(const Tensors& all, size_t first) {
  return {all.begin() + static_cast<int64_t>(first), all.end()};
}

// d/dt of g's differentiable results at x + t v, t = 0, by the five-point formula: its error is of
// the order of step^4 and of eps / step.
Tensors differences(const Graph& g, const Case& c, const Tensors& v, double step) {
  constexpr std::pair<double, double> kPoints[] = {
      {1, 8.0 / 12}, {-1, -8.0 / 12}, {2, -1.0 / 12}, {-2, 1.0 / 12}};
  Tensors sum;
  for (const auto& [at, weight] : kPoints) {
    Tensors x = c.operands;
    for (size_t k = 0; k < c.swept.size(); ++k)
      x[c.swept[k]] = combine(x[c.swept[k]], v[k], at * step);
    const Tensors y = differentiable_of(evaluate(g, x));
    for (size_t i = 0; i < y.size(); ++i) {
      if (sum.size() == i) sum.emplace_back(y[i].dtype(), y[i].sizes());
      sum[i] = combine(sum[i], y[i], weight / step);
    }
  }
  return sum;
}

// `t` with zeros where `value` is not finite.
Tensor where_finite(const Tensor& value, const Tensor& t) {
  Tensor out(t.dtype(), t.sizes());
  for (int64_t i = 0; i < out.elements(); ++i)
    if (std::isfinite(std::abs(value.get_complex(i)))) out.set_complex(i, t.get_complex(i));
  return out;
}

// The distances of the stated derivatives of g's differentiable results (one set after the other)
// from differences. A kink or a jump of the function may lie within reach of the first step, so
// that shorter ones are tried where they disagree: a wrong derivative is wrong at any step.
std::vector<double> against_differences(const Graph& g, const Case& c, const Tensors& v,
                                        const Tensors& stated, const Precision& p) {
  const Tensors values = differentiable_of(evaluate(g, c.operands));
  double direction = 0;
  for (const Tensor& t : v) direction = std::max(direction, magnitude(t));
  std::vector<double> errors;
  for (double step : {p.step, p.step / 8, p.step / 64}) {
    const Tensors quotients = differences(g, c, v, step);
    errors.clear();
    for (size_t i = 0; i < stated.size(); ++i) {
      const size_t k = i % values.size();
      errors.push_back(distance(where_finite(values[k], stated[i]),
                                where_finite(values[k], quotients[k]),
                                std::max(p.of_value * magnitude(where_finite(values[k], values[k])),
                                         p.of_direction * direction)));
    }
    if (std::all_of(errors.begin(), errors.end(), [&](double e) { return e <= p.differences; }))
      break;
  }
  return errors;
}

// The sum of all elements.
Value total(Builder& b, Value v) {
  Ints axes(static_cast<size_t>(b.type(v).rank()));
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  return sum_axes(b, v, axes);
}

Graph loss_of(const Case& c) {
  Builder b("loss");
  Values in;
  for (const Tensor& t : c.operands) in.push_back(b.input(std::to_string(in.size()), t.type()));
  Value sum = kNone;
  const Values results = b.inline_graph(c.graph, in);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!kFloats.has(b.type(results[i]).dtype)) continue;
    const Type type = b.type(results[i]);
    Expr y(b, results[i]), w(b, b.constant(noise(Tensor(type.dtype, type.shape.sizes()), 40 + i)));
    sum = add_maybe(b, sum, total(b, (w * y * y * 0.5).value()));
  }
  b.output(sum);
  return b.finish();
}

double inner_of_magnitudes(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i)
    sum += std::abs(a.get_complex(i)) * std::abs(b.get_complex(i));
  return sum;
}

// <grad(loss), v> with v as further inputs.
Graph slope(const Graph& gradient, size_t count) {
  Builder b("slope");
  Values in;
  for (Value v : gradient.inputs())
    in.push_back(b.input(gradient.node(v).get<LeafAttrs>().name, gradient.type(v)));
  const Values g = b.inline_graph(gradient, in);
  Value sum = kNone;
  for (size_t k = 0; k < count; ++k) {
    const Value v = b.input(fmt::format("v{}", k), b.type(g[k]));
    sum = add_maybe(b, sum, total(b, op::mul(b, g[k], v)));
  }
  b.output(sum);
  return b.finish();
}

}  // namespace

void check_forward(const Case& c) {
  const Precision p = precision(c.dtype);
  const Tensors tangents = tangents_of(c);
  const Tensors all = evaluate(jvp(c.graph, names(c.swept)), with(c.operands, tangents));
  const Tensors stated = behind(all, c.graph.outputs.size());
  const std::vector<double> errors = against_differences(c.graph, c, tangents, stated, p);
  for (size_t i = 0; i < errors.size(); ++i)
    EXPECT_LE(errors[i], p.differences) << row(c) << " tangent " << i;
}

void check_transpose(const Case& c) {
  const Tensors tangents = tangents_of(c);
  const Tensors forward = evaluate(jvp(c.graph, names(c.swept)), with(c.operands, tangents));
  const Tensors slopes = behind(forward, c.graph.outputs.size());
  const Tensors values = differentiable_of(evaluate(c.graph, c.operands));
  Tensors cotangents;
  for (const Tensor& y : values)
    cotangents.push_back(where_finite(y, noise(y, 7 + cotangents.size())));
  const Tensors reverse = behind(
      evaluate(vjp(c.graph, names(c.swept), {.zero_missing = true}), with(c.operands, cotangents)),
      c.graph.outputs.size());
  // Both are sums: their rounding is relative to their terms.
  double one = 0, other = 0, terms = 0;
  bool finite = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor slope = where_finite(values[i], slopes[i]);
    one += inner(cotangents[i], slope);
    terms += inner_of_magnitudes(cotangents[i], slope);
    finite &= std::isfinite(inner(values[i], values[i]));
  }
  for (size_t k = 0; k < tangents.size(); ++k) {
    other += inner(reverse[k], tangents[k]);
    terms += inner_of_magnitudes(reverse[k], tangents[k]);
  }
  if (!finite && std::isnan(other)) return;  // they reach every operand
  const Precision p = precision(c.dtype);
  double least = 0;  // of terms that are not 0 but for rounding
  for (const Tensor& t : with(cotangents, tangents)) least += p.of_direction * inner(t, t);
  EXPECT_LE(std::fabs(one - other), p.transpose * std::max(terms, least)) << row(c);
}

void check_chosen_operands(const Case& c) {
  const size_t count = c.swept.size(), results = c.graph.outputs.size();
  if (count < 2) return;
  const GradOptions zero{.zero_missing = true};
  const double allowed = c.dtype == DType::F64 ? 1e-12 : 1e-5;
  const Tensors tangents = tangents_of(c);
  const Tensors values = differentiable_of(evaluate(c.graph, c.operands));
  Tensors cotangents;
  for (const Tensor& y : values)
    cotangents.push_back(where_finite(y, noise(y, 7 + cotangents.size())));
  const auto gradients = [&](const std::vector<size_t>& by) {
    return behind(evaluate(vjp(c.graph, names(by), zero), with(c.operands, cotangents)), results);
  };
  const auto slopes = [&](const Graph& g, const Tensors& t) {
    return behind(evaluate(g, with(c.operands, t)), results);
  };
  const Tensors by_all = gradients(c.swept);
  const Graph forward = jvp(c.graph, names(c.swept));
  const auto check = [&](const std::vector<size_t>& chosen, const std::string& what) {
    std::vector<size_t> by;
    Tensors own, whole;  // tangents: of the chosen ones, and with zeros for the others
    for (const Tensor& t : tangents) whole.emplace_back(t.dtype(), t.sizes());
    for (size_t k : chosen)
      by.push_back(c.swept[k]), own.push_back(tangents[k]), whole[k] = tangents[k];
    const Tensors back = gradients(by);
    for (size_t i = 0; i < chosen.size(); ++i)
      EXPECT_LE(distance(back[i], by_all[chosen[i]]), allowed)
          << row(c) << " gradient by operand " << by[i] << ", " << what;
    const Tensors some = slopes(jvp(c.graph, names(by)), own), all = slopes(forward, whole);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_LE(distance(where_finite(values[i], some[i]), where_finite(values[i], all[i])),
                allowed)
          << row(c) << " tangent " << i << ", " << what;
  };
  for (size_t k = 0; k < count; ++k) {
    check({k}, fmt::format("by operand {} alone", c.swept[k]));
    std::vector<size_t> others;
    for (size_t i = 0; i < count; ++i)
      if (i != k) others.push_back(i);
    if (count > 2) check(others, fmt::format("without operand {}", c.swept[k]));
  }
}

void check_second_order(const Case& c) {
  const Precision p = precision(c.dtype);
  const size_t count = c.swept.size();
  const Tensors v = tangents_of(c);
  const Graph first = grad(loss_of(c), names(c.swept), {.zero_missing = true});
  const Tensors forward = behind(evaluate(jvp(first, names(c.swept)), with(c.operands, v)), count);
  const Tensors reverse = evaluate(
      grad(slope(first, count), names(c.swept), {.zero_missing = true}), with(c.operands, v));
  const std::vector<double> errors = against_differences(first, c, v, with(forward, reverse), p);
  for (size_t i = 0; i < errors.size(); ++i)
    EXPECT_LE(errors[i], p.differences) << row(c) << (i < count ? " forward" : " reverse")
                                        << " over reverse, operand " << i % count;
}

// ---- vmap

Tensor stack(const std::vector<Tensor>& parts) {
  Ints sizes = parts[0].sizes();
  sizes.insert(sizes.begin(), static_cast<int64_t>(parts.size()));
  Tensor out(parts[0].dtype(), sizes);
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].bytes())
      std::memcpy(out.mutable_raw() + i * parts[i].bytes(), parts[i].raw(), parts[i].bytes());
  return out;
}

namespace {

Tensor part(const Tensor& t, int64_t i) {
  Tensor out(t.dtype(), Ints(t.sizes().begin() + 1, t.sizes().end()));
  if (out.bytes())
    std::memcpy(out.mutable_raw(), t.raw() + static_cast<size_t>(i) * out.bytes(), out.bytes());
  return out;
}

}  // namespace

void check_vmap(const Case& c, const Graph& g, const Tensors& shared,
                const std::vector<Tensors>& each, unsigned mask, const std::string& what,
                const Dim& size) {
  std::map<std::string, int64_t> axes;
  Tensors leaves;
  std::vector<Tensors> single(kBatch);
  const Values inputs = g.inputs();
  for (size_t i = 0; i < shared.size(); ++i) {
    const bool batched = mask >> i & 1u;
    std::vector<Tensor> parts;
    for (size_t k = 0; k < kBatch; ++k) {
      parts.push_back(each[k][i]);
      single[k].push_back(batched ? each[k][i] : shared[i]);
    }
    if (batched) axes[g.node(inputs[i]).get<LeafAttrs>().name] = 0;
    leaves.push_back(batched ? stack(parts) : shared[i]);
  }
  const Tensors together = evaluate(vmap(g, axes, size), leaves);
  for (size_t k = 0; k < kBatch; ++k) {
    const Tensors alone = evaluate(g, single[k]);
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_LE(distance(part(together[i], static_cast<int64_t>(k)), alone[i]), 1e-12)
          << row(c) << " " << what << " batched " << mask << " sample " << k << " result " << i;
  }
}

std::vector<Tensors> batch_of(const Case& c) {
  std::vector<Tensors> out;
  for (uint64_t k = 0; k < kBatch; ++k) out.push_back(make_operands(*c.sample, c.dtype, k + 1));
  return out;
}

std::vector<unsigned> choices(size_t operands) {
  std::vector<unsigned> out;
  const unsigned all = (1u << operands) - 1;
  for (unsigned mask = 1; mask <= all; ++mask) {
    const int batched = std::popcount(mask);
    if (operands <= kEveryChoice || batched == 1 || batched + 1 >= static_cast<int>(operands))
      out.push_back(mask);
  }
  return out;
}

void check_vmap_choices(const Case& c, const Dim& size) {
  const std::vector<Tensors> each = batch_of(c);
  for (unsigned mask : choices(c.operands.size()))
    check_vmap(c, c.graph, c.operands, each, mask, fmt::format("value, batch of {}", size), size);
}

void check_vmap_of_gradient(const Case& c) {
  const Graph g = vjp(c.graph, names(c.swept), {.zero_missing = true});
  std::vector<Tensors> each = batch_of(c);
  Tensors shared = c.operands;
  const Values inputs = g.inputs();
  for (size_t i = shared.size(); i < inputs.size(); ++i) {
    const Tensor like(g.type(inputs[i]).dtype, g.type(inputs[i]).shape.sizes());
    shared.push_back(noise(like, 70 + i));
    for (size_t k = 0; k < kBatch; ++k) each[k].push_back(noise(like, 80 + 10 * i + k));
  }
  const unsigned all = (1u << shared.size()) - 1;
  check_vmap(c, g, shared, each, all, "gradient");
  check_vmap(c, g, shared, each, 1u << (shared.size() - 1), "gradient by cotangent");
  check_vmap(c, g, shared, each, all, "gradient, symbolic batch", Dim::symbol("n"));
}

}  // namespace rlx::testing
