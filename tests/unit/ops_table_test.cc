// Every op against its own rules, from the sample table: values, text, decompositions, derivatives
// of both modes and of second order, vmap; and the table itself for holes.
#include <gtest/gtest.h>

#include "../support/op_checks.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/support.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

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

TEST(OpsTable, OpsWhoseResultsAreAListSaySo) {
  std::map<std::string, std::set<size_t>> counts;
  for_each_case(samples(), kAllDTypes,
                [&](const Case& c) { counts[c.sample->op].insert(c.graph.outputs.size()); });
  counts.erase("fake_quantize");  // no list: one mode has a state besides
  for (const auto& [name, seen] : counts)
    if (const OpDef* op = op_table().find(name)) {
      EXPECT_TRUE(seen.size() == 1 || !seen.contains(1) || op->variadic_results) << name;
    }
  for (const std::string_view name : {"split", "unstack", "meshgrid", "sort_by_key"})
    EXPECT_TRUE(op_table().find(name)->variadic_results) << name;
}

// ---- values

TEST(OpsTable, EvaluatesAtEveryDType) {
  std::set<std::pair<std::string, DType>> tried;
  for_each_case(samples(), kAllDTypes, [&](const Case& c) {
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
  for_each_case(samples(), kAllDTypes, [](const Case& c) {
    const std::string text = print(c.graph);
    EXPECT_EQ(parse(text), c.graph) << row(c) << "\n" << text;
  });
}

TEST(OpsTable, BytesRoundTrip) {
  for_each_case(samples(), kAllDTypes, [](const Case& c) {
    const std::string bytes = to_bytes(c.graph);
    EXPECT_EQ(from_bytes(bytes), c.graph) << row(c);
    EXPECT_EQ(to_bytes(from_bytes(bytes)), bytes) << row(c);
  });
}

TEST(OpsTable, DecompositionAgrees) {
  for_each_case(samples(), kAllDTypes, [](const Case& c) {
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

TEST(OpsTable, ForwardDerivativeAgainstDifferences) {
  for_each_case(samples(), {DType::F64, DType::F32, DType::C64}, [](const Case& c) {
    if (has_derivatives(c) && c.sample->differences) check_forward(c);
  });
}

TEST(OpsTable, ReverseIsTheTransposeOfForward) {
  for_each_case(samples(), {DType::F64, DType::F32, DType::C64}, [](const Case& c) {
    if (has_derivatives(c)) check_transpose(c);
  });
}

TEST(OpsTable, DerivativesByChosenOperands) {
  for_each_case(samples(), {DType::F64, DType::F32}, [](const Case& c) {
    if (has_derivatives(c)) check_chosen_operands(c);
  });
}

TEST(OpsTable, SecondOrderAgainstDifferencesOfGradients) {
  for_each_case(samples(), {DType::F64}, [](const Case& c) {
    if (has_derivatives(c) && c.sample->differences && c.sample->second) check_second_order(c);
  });
}

TEST(OpsTable, NotDifferentiableOpsSayWhy) {
  for_each_case(samples(), {DType::F64}, [](const Case& c) {
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

TEST(OpsTable, VmapAgainstALoop) {
  for_each_sample([](const Case& c) { check_vmap_choices(c); });
}

TEST(OpsTable, VmapWithASymbolicBatch) {
  for_each_sample([](const Case& c) { check_vmap_choices(c, Dim::symbol("n")); });
}

TEST(OpsTable, VmapOfGradientsAgainstALoop) {
  for_each_sample([](const Case& c) {
    if (has_derivatives(c) && c.dtype == DType::F64) check_vmap_of_gradient(c);
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
