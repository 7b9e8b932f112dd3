// What linearize makes of each op can be transposed: the tangent of every row of the sample table, and that of its gradient,
// against its transpose. There are no exceptions.
#include <gtest/gtest.h>

#include "../support/op_checks.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

NamedTensors given(const Graph& g, const NamedTensors& all) {
  NamedTensors out;
  for (const auto& [name, value] : all)
    if (g.find_leaf(name).valid()) out[name] = value;
  return out;
}

// Where results are not finite there is no derivative.
bool all_finite(const Tensors& all) {
  for (const Tensor& t : all)
    for (int64_t i = 0; i < t.elements(); ++i)
      if (!std::isfinite(std::abs(t.get_complex(i)))) return false;
  return true;
}

double length(const Tensor& t) { return std::sqrt(inner(t, t)); }

// <y, J t> = <J' y, t> for the tangent J of g, whose leaves are all in `leaves`.
void check(const Case& c, const Graph& g, NamedTensors leaves) {
  const Linearized l = linearize(g, names(c.swept));
  std::vector<std::string> tangent_names;
  const Tensors directions = tangents_of(c);
  for (size_t k = 0; k < c.swept.size(); ++k) {
    tangent_names.push_back(fmt::format("tangent_{}", c.swept[k]));
    leaves[tangent_names.back()] = directions[k];
  }
  const Graph transpose = linear_transpose(l.tangent, tangent_names);
  for (const std::string& name : tangent_names)
    EXPECT_FALSE(transpose.find_leaf(name).valid()) << row(c);
  const Tensors values = evaluate(l.value, given(l.value, leaves)).outputs;
  for (size_t i = 0; i < l.residuals; ++i)
    leaves[fmt::format("residual_{}", i)] = values[values.size() - l.residuals + i];
  const Tensors slopes = evaluate(l.tangent, given(l.tangent, leaves)).outputs;
  if (!all_finite(slopes)) return;
  Tensors cotangents;
  for (size_t i = 0; i < slopes.size(); ++i) {
    cotangents.push_back(noise(slopes[i], 7 + i));
    leaves[slopes.size() == 1 ? "d_output" : fmt::format("d_{}", i)] = cotangents[i];
  }
  const Tensors back = evaluate(transpose, given(transpose, leaves)).outputs;
  ASSERT_EQ(back.size(), directions.size()) << row(c);
  double one = 0, other = 0, terms = 1e-3;
  for (size_t i = 0; i < slopes.size(); ++i) {
    one += inner(cotangents[i], slopes[i]);
    terms += length(cotangents[i]) * length(slopes[i]);
  }
  for (size_t k = 0; k < back.size(); ++k) {
    other += inner(back[k], directions[k]);
    terms += length(back[k]) * length(directions[k]);
  }
  EXPECT_LE(std::fabs(one - other), (c.dtype == DType::C64 ? 1e-4 : 1e-9) * terms) << row(c);
}

// Of all rows that have derivatives; returns how many ops they are.
template <class Test>
size_t for_each_op(DTypeSet dtypes, Test&& test) {
  std::set<std::string> ops;
  for_each_case(samples(), dtypes, [&](const Case& c) {
    if (!has_derivatives(c)) return;
    ops.insert(c.sample->op);
    NamedTensors leaves;
    for (size_t i = 0; i < c.operands.size(); ++i) leaves[std::to_string(i)] = c.operands[i];
    try {
      test(c, leaves);
    } catch (const Error& e) {
      ADD_FAILURE() << row(c) << ": " << e.code() << ": " << e.message();
    }
  });
  return ops.size();
}

TEST(Transposes, OfTheTangentsOfAllOps) {
  const size_t count = for_each_op({DType::F64, DType::C64}, [](const Case& c, const auto& leaves) {
    check(c, c.graph, leaves);
  });
  if (is_wanted("every op")) {
    EXPECT_GT(count, 200u);
  }
}

TEST(Transposes, OfTheTangentsOfAllGradients) {
  for_each_op({DType::F64}, [](const Case& c, NamedTensors leaves) {
    if (!c.sample->second) return;
    Graph g = vjp(c.graph, names(c.swept), {.zero_missing = true});
    g.outputs.erase(g.outputs.begin(),
                    g.outputs.begin() + static_cast<int64_t>(c.graph.outputs.size()));
    for (Value v : g.inputs()) {
      const std::string& name = g.node(v).template get<LeafAttrs>().name;
      if (!leaves.contains(name)) {
        Tensor like(g.type(v).dtype, g.type(v).shape.sizes());
        leaves[name] = noise(like, 3 + leaves.size());
      }
    }
    check(c, g, leaves);
  });
}

}  // namespace
}  // namespace rlx::testing
