// Every op against its own rules, from the sample table: values, text, decompositions, derivatives
// of both modes and of second order, vmap; and the table itself for holes.
#include <gtest/gtest.h>

#include <bit>

#include "../samples.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/support.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

// ---- numbers on tensors

Tensor combine(const Tensor& a, const Tensor& b, double scale) {  // a + scale * b
  Tensor out(a.dtype(), a.sizes());
  for (int64_t i = 0; i < out.elements(); ++i)
    out.set_complex(i, a.get_complex(i) + scale * b.get_complex(i));
  return out;
}

// Re <a, b>: for complex cotangents a and tangents b this is the change of a real function.
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

// The largest |a - b|, relative to the size of the numbers (at least 1).
double distance(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const Complex x = a.get_complex(i), y = b.get_complex(i);
    if (std::isnan(x.real()) && std::isnan(y.real())) continue;
    if (x == y) continue;
    const double d = std::abs(x - y);
    most = std::max(most, std::isnan(d) ? INFINITY : d);
  }
  return most / std::max({1.0, magnitude(a), magnitude(b)});
}

Tensor noise(const Tensor& like, uint64_t seed) {
  return make_operand({"T", like.sizes(), ""}, like.dtype(), seed);
}

bool differentiable(const Tensor& t) { return is_differentiable(t.dtype()); }

std::string row(const Case& c) {
  return fmt::format("{} {} at {}", c.sample->where, c.sample->op, c.dtype);
}

// Runs `test` on every sample at every dtype in `dtypes` that it takes (once, at f64's place, when
// nothing is swept).
template <class Test>
void for_each_case(DTypeSet dtypes, Test&& test) {
  for (const Sample& s : samples())
    for (const DTypeInfo& d : kDTypes) {
      if (s.swept() ? !dtypes.has(d.dtype) : d.dtype != DType::F64) continue;
      try {
        if (auto c = make_case(s, d.dtype)) test(*c);
      } catch (const std::exception& e) {
        ADD_FAILURE() << s.where << " " << s.op << " at " << to_string(d.dtype) << ": " << e.what();
      }
    }
}

// At f32 only where the op takes no f64.
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

std::vector<std::string> names(const std::vector<size_t>& operands) {
  std::vector<std::string> out;
  for (size_t i : operands) out.push_back(std::to_string(i));
  return out;
}

// ---- the table

TEST(OpsTable, EveryOpHasASample) {
  std::set<std::string> seen;
  for (const Sample& s : samples()) seen.insert(s.op);
  for (const auto& entry : op_table().entries())
    EXPECT_TRUE(entry.op->kind == Kind::leaf || !is_wanted(std::string(entry.op->name)) ||
                seen.contains(std::string(entry.op->name)))
        << entry.op->name;
}

std::vector<std::string> holes(const OpDef& op, const std::set<std::string_view>& cpu) {
  std::vector<std::string> out;
  for (const Support& s : support(op, cpu))
    if (s.answer == Answer::missing)
      out.push_back(fmt::format("{} {}: {}", op.name, s.column, s.how));
  return out;
}

TEST(OpsTable, NoHoles) {
  for (const auto& entry : op_table().entries())
    for (const std::string& hole : holes(*entry.op, {entry.op->name})) ADD_FAILURE() << hole;
}

TEST(OpsTable, HolesAreFound) {
  static constexpr OpDef incomplete{
      .name = "incomplete", .kind = Kind::contraction, .infer = infer_same};
  const std::vector<std::string> expected = {
      "incomplete eval: neither eval nor decompose",
      "incomplete jvp: no derivative rule, no decomposition and no reason",
      "incomplete vjp: no derivative rule, no decomposition and no reason",
      "incomplete vmap: no vmap rule and no decomposition",
      "incomplete cpu: no kernel, no scalar form and no decomposition",
  };
  EXPECT_EQ(holes(incomplete, {}), expected);
}

TEST(OpsTable, EveryOpIsDocumented) {
  for (const auto& entry : op_table().entries()) {
    EXPECT_FALSE(entry.op->doc.empty()) << entry.op->name;
    EXPECT_TRUE(entry.op->doc.ends_with('.')) << entry.op->name;
  }
}

// ---- values

TEST(OpsTable, EvaluatesAtEveryDType) {
  std::set<std::pair<std::string, DType>> tried;
  for_each_case(kAllDTypes, [&](const Case& c) {
    const Tensors out = evaluate(c.graph, c.operands);  // checks types against the inferred ones
    EXPECT_EQ(out.size(), c.graph.outputs.size()) << row(c);
    if (!c.operands.empty()) tried.insert({c.sample->op, c.operands[0].dtype()});
  });
  std::map<std::string, bool>
      leads;  // ops whose operand 0 is swept must have run at every dtype they declare
  for (const Sample& s : samples())
    if (!s.operands.empty() && op_table().find(s.op)) leads[s.op] |= s.operands[0].dtype == "T";
  for (const auto& [name, swept] : leads)
    for (const DTypeInfo& d : kDTypes)
      EXPECT_TRUE(!swept || !op_table().find(name)->dtypes.has(d.dtype) ||
                  tried.contains({name, d.dtype}))
          << name << " at " << d.name;
}

TEST(OpsTable, TextRoundTrip) {
  for_each_case(kAllDTypes, [](const Case& c) {
    const std::string text = print(c.graph);
    EXPECT_EQ(parse(text), c.graph) << row(c) << "\n" << text;
  });
}

TEST(OpsTable, BytesRoundTrip) {
  for_each_case(kAllDTypes, [](const Case& c) {
    const std::string bytes = to_bytes(c.graph);
    EXPECT_EQ(from_bytes(bytes), c.graph) << row(c);
    EXPECT_EQ(to_bytes(from_bytes(bytes)), bytes) << row(c);
  });
}

TEST(OpsTable, DecompositionAgrees) {
  for_each_case(kAllDTypes, [](const Case& c) {
    const Node& n = c.node();
    if (!n.op->eval || !n.op->decompose) return;
    Types types;
    for (const Tensor& t : c.operands) types.push_back(t.type());
    const Graph g = decomposed(n, types);
    ASSERT_EQ(g.output_types(), n.out) << row(c);
    const Tensors stated = evaluate(c.graph, c.operands), composed = evaluate(g, c.operands);
    const double tolerance = c.dtype == DType::F16    ? 4e-3
                             : c.dtype == DType::BF16 ? 3e-2
                             : c.dtype == DType::F64  ? 1e-12
                                                      : 2e-6;
    for (size_t i = 0; i < stated.size(); ++i)
      EXPECT_LE(distance(stated[i], composed[i]), tolerance) << row(c) << " result " << i;
  });
}

// ---- derivatives

struct Precision {
  double step, differences, transpose;
};
Precision precision(DType d) {
  return d == DType::F64 ? Precision{1e-5, 1e-6, 1e-10} : Precision{4e-3, 2e-3, 1e-5};
}

Tensors tangents_of(const Case& c) {
  Tensors out;
  for (size_t i : c.swept)
    out.push_back(noise(c.operands[i], mix(hash_text(c.sample->text), 100 + i)));
  return out;
}

Tensors moved(const Case& c, const Tensors& tangents, double step) {
  Tensors out = c.operands;
  for (size_t k = 0; k < c.swept.size(); ++k)
    out[c.swept[k]] = combine(out[c.swept[k]], tangents[k], step);
  return out;
}

Tensors with(Tensors a, const Tensors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(OpsTable, ForwardDerivativeAgainstDifferences) {
  for_each_case({DType::F64, DType::F32, DType::C64}, [](const Case& c) {
    if (!has_derivatives(c) || !c.sample->differences) return;
    const Precision p = precision(c.dtype);
    const Tensors tangents = tangents_of(c);
    const Tensors result = evaluate(jvp(c.graph, names(c.swept)), with(c.operands, tangents));
    const Tensors up = evaluate(c.graph, moved(c, tangents, p.step)),
                  down = evaluate(c.graph, moved(c, tangents, -p.step));
    for (size_t i = 0, next = up.size(); i < up.size(); ++i) {
      if (!differentiable(up[i])) continue;
      const Tensor quotient =
          combine(Tensor(up[i].dtype(), up[i].sizes()), combine(up[i], down[i], -1), 0.5 / p.step);
      EXPECT_LE(distance(result[next++], quotient), p.differences) << row(c) << " result " << i;
    }
  });
}

TEST(OpsTable, ReverseIsTheTransposeOfForward) {
  for_each_case({DType::F64, DType::F32, DType::C64}, [](const Case& c) {
    if (!has_derivatives(c)) return;
    const Tensors tangents = tangents_of(c);
    const Tensors forward = evaluate(jvp(c.graph, names(c.swept)), with(c.operands, tangents));
    const size_t outputs = c.graph.outputs.size();
    Tensors cotangents;
    for (size_t i = 0; i < outputs; ++i)
      if (differentiable(forward[i])) cotangents.push_back(noise(forward[i], 7 + i));
    const Tensors reverse = evaluate(vjp(c.graph, names(c.swept), {.zero_missing = true}),
                                     with(c.operands, cotangents));
    double one = 0, other = 0, size = 1;
    for (size_t i = 0; i < cotangents.size(); ++i)
      one += inner(cotangents[i], forward[outputs + i]);
    for (size_t k = 0; k < tangents.size(); ++k) other += inner(reverse[outputs + k], tangents[k]);
    for (size_t i = outputs; i < forward.size(); ++i) size = std::max(size, magnitude(forward[i]));
    EXPECT_NEAR(one, other, precision(c.dtype).transpose * size) << row(c);
  });
}

// The loss sum(w * f(x)^2) / 2 over all real results, so that linear ops have a second derivative
// too.
Graph loss_of(const Case& c) {
  Builder b("loss");
  Values in;
  for (const Tensor& t : c.operands) in.push_back(b.input(std::to_string(in.size()), t.type()));
  Value sum = kNone;
  const Values results = b.inline_graph(c.graph, in);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_float(b.type(results[i]).dtype)) continue;
    const Type type = b.type(results[i]);
    Expr y(b, results[i]), w(b, b.constant(noise(Tensor(type.dtype, type.shape.sizes()), 40 + i)));
    Ints axes;
    for (int64_t a = 0; a < type.rank(); ++a) axes.push_back(a);
    sum = add_maybe(b, sum, sum_axes(b, (w * y * y * 0.5).value(), axes));
  }
  b.output(sum);
  return b.finish();
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
    Ints axes;
    for (int64_t a = 0; a < b.type(g[k]).rank(); ++a) axes.push_back(a);
    const Value v = b.input(fmt::format("v{}", k), b.type(g[k]));
    sum = add_maybe(b, sum, sum_axes(b, op::mul(b, g[k], v), axes));
  }
  b.output(sum);
  return b.finish();
}

TEST(OpsTable, SecondOrderAgainstDifferencesOfGradients) {
  for_each_case({DType::F64}, [](const Case& c) {
    if (!has_derivatives(c) || !c.sample->differences || !c.sample->second) return;
    if (c.graph.type(c.graph.outputs[0]).shape.elements() == Dim(0)) return;
    const Tensors v = tangents_of(c);
    const Graph first = grad(loss_of(c), names(c.swept), {.zero_missing = true});
    const Tensors up = evaluate(first, moved(c, v, 1e-5)),
                  down = evaluate(first, moved(c, v, -1e-5));
    const Tensors forward = evaluate(jvp(first, names(c.swept)), with(c.operands, v));
    const Tensors reverse =
        evaluate(grad(slope(first, c.swept.size()), names(c.swept), {.zero_missing = true}),
                 with(c.operands, v));
    for (size_t k = 0; k < c.swept.size(); ++k) {
      const Tensor quotient =
          combine(Tensor(up[k].dtype(), up[k].sizes()), combine(up[k], down[k], -1), 0.5e5);
      EXPECT_LE(distance(forward[c.swept.size() + k], quotient), 2e-6)
          << row(c) << " forward over reverse, operand " << k;
      EXPECT_LE(distance(reverse[k], quotient), 2e-6)
          << row(c) << " reverse over reverse, operand " << k;
    }
  });
}

TEST(OpsTable, NotDifferentiableOpsSayWhy) {
  for_each_case({DType::F64}, [](const Case& c) {
    if (c.node().op->not_differentiable.empty() || c.swept.empty() ||
        !is_float(c.graph.type(c.graph.outputs[0]).dtype))
      return;
    try {
      vjp(c.graph, names(c.swept));
      ADD_FAILURE() << row(c) << ": no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), "no-gradient") << row(c);
      EXPECT_NE(e.message().find(c.node().op->not_differentiable), std::string::npos)
          << e.message();
    }
  });
}

// ---- vmap

constexpr int64_t kBatch = 3;

Tensor stack(const std::vector<Tensor>& parts) {
  Ints sizes = parts[0].sizes();
  sizes.insert(sizes.begin(), static_cast<int64_t>(parts.size()));
  Tensor out(parts[0].dtype(), sizes);
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].bytes())
      std::memcpy(out.mutable_raw() + i * parts[i].bytes(), parts[i].raw(), parts[i].bytes());
  return out;
}

Tensor part(const Tensor& t, int64_t i) {
  Tensor out(t.dtype(), Ints(t.sizes().begin() + 1, t.sizes().end()));
  if (out.bytes())
    std::memcpy(out.mutable_raw(), t.raw() + static_cast<size_t>(i) * out.bytes(), out.bytes());
  return out;
}

// vmap of g over the operands in `mask` against a loop over the samples.
void check_vmap(const Case& c, const Graph& g, const Tensors& shared,
                const std::vector<Tensors>& each, unsigned mask, const std::string& what,
                const Dim& size = kBatch) {
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

// f64 where the op takes it, else the first dtype it takes.
template <class Test>
void for_each_sample(Test&& test) {
  for (const Sample& s : samples()) {
    std::vector<DType> order = {DType::F64};
    for (const DTypeInfo& d : kDTypes) order.push_back(d.dtype);
    try {
      for (DType d : order)
        if (auto c = make_case(s, d)) {
          test(*c);
          break;
        }
    } catch (const std::exception& e) {
      ADD_FAILURE() << s.where << " " << s.op << ": " << e.what();
    }
  }
}

// Which operands are batched: every choice for up to five of them, else each alone, all but each,
// and all.
std::vector<unsigned> choices(size_t operands) {
  std::vector<unsigned> out;
  const unsigned all = (1u << operands) - 1;
  for (unsigned mask = 1; mask <= all; ++mask) {
    const int batched = std::popcount(mask);
    if (operands <= 5 || batched == 1 || batched + 1 >= static_cast<int>(operands))
      out.push_back(mask);
  }
  return out;
}

TEST(OpsTable, VmapAgainstALoop) {
  for_each_sample([](const Case& c) {
    for (unsigned mask : choices(c.operands.size()))
      check_vmap(c, c.graph, c.operands, batch_of(c), mask, "value");
  });
}

TEST(OpsTable, VmapWithASymbolicBatch) {
  for_each_sample([](const Case& c) {
    for (unsigned mask : choices(c.operands.size()))
      check_vmap(c, c.graph, c.operands, batch_of(c), mask, "symbolic batch", Dim::symbol("n"));
  });
}

TEST(OpsTable, VmapOfGradientsAgainstALoop) {
  for_each_sample([](const Case& c) {
    if (!has_derivatives(c) || c.dtype != DType::F64) return;
    const Graph g = vjp(c.graph, names(c.swept), {.zero_missing = true});
    std::vector<Tensors> each = batch_of(c);
    Tensors shared = c.operands;
    const Values inputs = g.inputs();
    for (size_t i = shared.size(); i < inputs.size(); ++i) {
      const Tensor like(g.type(inputs[i]).dtype, g.type(inputs[i]).shape.sizes());
      shared.push_back(noise(like, 70 + i));
      for (size_t k = 0; k < kBatch; ++k) each[k].push_back(noise(like, 80 + 10 * i + k));
    }
    check_vmap(c, g, shared, each, (1u << shared.size()) - 1, "gradient");
    check_vmap(c, g, shared, each, 1u << (shared.size() - 1), "gradient by cotangent");
    check_vmap(c, g, shared, each, (1u << shared.size()) - 1, "gradient, symbolic batch",
               Dim::symbol("n"));
  });
}

TEST(OpsTable, GradientsOfVmapAreVmapOfGradients) {
  for_each_sample([](const Case& c) {
    if (!has_derivatives(c) || c.dtype != DType::F64) return;
    std::map<std::string, int64_t> axes;
    std::vector<Tensor> leaves;
    const std::vector<Tensors> each = batch_of(c);
    for (size_t i = 0; i < c.operands.size(); ++i) {
      axes[std::to_string(i)] = 0;
      std::vector<Tensor> parts;
      for (const Tensors& t : each) parts.push_back(t[i]);
      leaves.push_back(stack(parts));
    }
    if (axes.empty()) return;
    const GradOptions zero{.zero_missing = true};
    const Graph one = vjp(vmap(c.graph, axes, kBatch), names(c.swept), zero);
    Graph inner_vjp = vjp(c.graph, names(c.swept), zero);
    for (Value v : inner_vjp.inputs()) axes[inner_vjp.node(v).get<LeafAttrs>().name] = 0;
    const Graph other = vmap(inner_vjp, axes, kBatch);
    const Values inputs = one.inputs();
    for (size_t i = leaves.size(); i < inputs.size(); ++i)
      leaves.push_back(
          noise(Tensor(one.type(inputs[i]).dtype, one.type(inputs[i]).shape.sizes()), 90 + i));
    const Tensors a = evaluate(one, leaves), b = evaluate(other, leaves);
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_LE(distance(a[i], b[i]), 1e-12) << row(c) << " result " << i;
    std::map<std::string, int64_t> operands;
    for (size_t i = 0; i < c.operands.size(); ++i) operands[std::to_string(i)] = 0;
    const Tensors symbolic =
        evaluate(vjp(vmap(c.graph, operands, Dim::symbol("n")), names(c.swept), zero), leaves);
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_LE(distance(symbolic[i], b[i]), 1e-12) << row(c) << " symbolic batch, result " << i;
  });
}

}  // namespace
}  // namespace rlx::testing
