// Nothing to compute is no work: every op of the table on shapes of 2^40 rows without elements, and of no
// rows of 2^40 elements, on every device. A kernel that walks them never ends.
#include <gtest/gtest.h>

#include "../support/shape_variants.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

constexpr double kMostResults = 1 << 20;

// All results are of a size that memory has.
bool is_small(const Graph& g) {
  for (const Type& t : g.output_types()) {
    double elements = 1;
    for (int64_t d : t.shape.sizes()) elements *= static_cast<double>(d);
    if (elements > kMostResults) return false;
  }
  return true;
}

bool is_empty(const Graph& g) {
  for (const Type& t : g.output_types()) {
    const Ints sizes = t.shape.sizes();
    if (std::find(sizes.begin(), sizes.end(), 0) == sizes.end()) return false;
  }
  return true;
}

// As many results, or nodes, as an axis is long.
bool has_a_result_per_element(const std::string& op) { return op == "unstack"; }

TEST(EmptyShapes, AreNoWorkOnAnyDevice) {
  std::set<std::pair<std::string, std::string>> tried;
  std::set<std::string> ops;
  for (const Sample& row : samples()) {
    if (!is_wanted(row.op) || has_a_result_per_element(row.op) ||
        !tried.insert({row.op, row.attrs}).second)
      continue;
    const DType d = op_table().find(row.op)->dtypes.has(DType::F32) ? DType::F32 : DType::I32;
    for (const Sample& s : huge_empty_variants(row, d, 3)) {
      SCOPED_TRACE(s.where);
      const auto c = make_case(s, d);
      if (!c || !is_small(c->graph)) continue;
      ops.insert(s.op);
      NamedTensors named;
      for (size_t i = 0; i < c->operands.size(); ++i) named[std::to_string(i)] = c->operands[i];
      try {
        const Tensors want = evaluate(c->graph, c->operands);
        CompiledGraph f = Session("cpu").compile(c->graph, {.threads = 1, .poison = true});
        if (is_empty(c->graph)) {
          EXPECT_EQ(f.info().kernels, 0) << f.info().plan();
        }
        const Tensors got = f.run(named);
        for (size_t k = 0; k < got.size(); ++k) EXPECT_EQ(got[k].sizes(), want[k].sizes());
      } catch (const Error& e) {
        // A mean over no rows of 2^40 elements, say, has results on the way that no memory holds.
        if (is_empty(c->graph) || e.kind() != ErrorKind::resource) ADD_FAILURE() << e.what();
      }
    }
  }
  if (!is_filtered()) {
    EXPECT_GT(ops.size(), 200u);
  }
}

}  // namespace
}  // namespace rlx::testing
