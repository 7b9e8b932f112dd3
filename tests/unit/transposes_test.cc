// What linearize makes of each op can be transposed: the tangent of every row of the sample table, against its transpose.
#include <gtest/gtest.h>

#include <fstream>

#include "../support/op_checks.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

// tests/not_transposed.txt: a line `op | reason` for each op whose tangent linear_transpose refuses.
std::map<std::string, std::string> exceptions() {
  std::ifstream file(RLX_SOURCE_DIR "/tests/not_transposed.txt");
  EXPECT_TRUE(file.good());
  std::map<std::string, std::string> out;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t bar = line.find(" | ");
    EXPECT_NE(bar, std::string::npos) << line;
    EXPECT_TRUE(out.emplace(line.substr(0, bar), line.substr(bar + 3)).second) << line;
  }
  return out;
}

NamedTensors given(const Graph& g, const NamedTensors& all) {
  NamedTensors out;
  for (const auto& [name, value] : all)
    if (g.find_leaf(name).valid()) out[name] = value;
  return out;
}

// Elements of results that are not finite have no derivative.
bool all_finite(const Tensors& all) {
  for (const Tensor& t : all)
    for (int64_t i = 0; i < t.elements(); ++i)
      if (!std::isfinite(std::abs(t.get_complex(i)))) return false;
  return true;
}

// <y, J t> = <J' y, t>.
void check(const Case& c) {
  const Linearized l = linearize(c.graph, names(c.swept));
  std::vector<std::string> tangent_names;
  NamedTensors leaves;
  const Tensors directions = tangents_of(c);
  for (size_t k = 0; k < c.swept.size(); ++k) {
    tangent_names.push_back(fmt::format("tangent_{}", c.swept[k]));
    leaves[tangent_names.back()] = directions[k];
  }
  const Graph transpose = linear_transpose(l.tangent, tangent_names);
  for (const std::string& name : tangent_names)
    EXPECT_FALSE(transpose.find_leaf(name).valid()) << row(c);
  for (size_t i = 0; i < c.operands.size(); ++i) leaves[std::to_string(i)] = c.operands[i];
  const Tensors values = evaluate(l.value, given(l.value, leaves)).outputs;
  for (size_t i = 0; i < l.residuals; ++i)
    leaves[fmt::format("residual_{}", i)] = values[values.size() - l.residuals + i];
  const Tensors slopes = evaluate(l.tangent, given(l.tangent, leaves)).outputs;
  Tensors cotangents;
  for (size_t i = 0; i < slopes.size(); ++i) {
    cotangents.push_back(noise(slopes[i], 7 + i));
    leaves[slopes.size() == 1 ? "d_output" : fmt::format("d_{}", i)] = cotangents[i];
  }
  const Tensors back = evaluate(transpose, given(transpose, leaves)).outputs;
  ASSERT_EQ(back.size(), directions.size()) << row(c);
  if (!all_finite(slopes)) return;
  double one = 0, other = 0, terms = 1e-3;
  for (size_t i = 0; i < slopes.size(); ++i) {
    one += inner(cotangents[i], slopes[i]);
    terms += std::sqrt(inner(cotangents[i], cotangents[i]) * inner(slopes[i], slopes[i]));
  }
  for (size_t k = 0; k < back.size(); ++k) {
    other += inner(back[k], directions[k]);
    terms += std::sqrt(inner(back[k], back[k]) * inner(directions[k], directions[k]));
  }
  EXPECT_LE(std::fabs(one - other), (c.dtype == DType::C64 ? 1e-4 : 1e-9) * terms) << row(c);
}

TEST(Transposes, OfTheTangentsOfAllOps) {
  const auto excepted = exceptions();
  std::set<std::string> refused;
  for_each_case(samples(), {DType::F64, DType::C64}, [&](const Case& c) {
    if (!has_derivatives(c)) return;
    try {
      check(c);
    } catch (const Error& e) {
      refused.insert(c.sample->op);
      EXPECT_TRUE(excepted.contains(c.sample->op) && e.code() == "not-linear")
          << row(c) << ": " << e.code() << ": " << e.message();
    }
  });
  for (const auto& [op, reason] : excepted)
    EXPECT_TRUE(refused.contains(op) || !is_wanted(op)) << op << " is no exception";
}

}  // namespace
}  // namespace rlx::testing
