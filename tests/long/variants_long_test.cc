// What the fast suite leaves out about the shapes made from the sample table: all of them on the CPU with
// their gradients, vmap over batches of unknown size and of gradients; and vmap of rows with many operands
// for every choice of batched ones.
#include "../support/cpu_checks.h"
#include "../support/narrow_derivatives.h"
#include "../support/shape_variants.h"

namespace rlx::testing {
namespace {

const std::vector<Combination>& all() {
  static const std::vector<Combination> made = combinations(kShapes);
  return made;
}

TEST(VariantsLong, OnTheCpu) {
  CpuChecks checks;
  for_each_variant(all(),
                   [&](const Case& c) { checks.add({c.graph, c.operands, c.sample->op, row(c)}); });
  checks.finish();
}

TEST(VariantsLong, GradientsOnTheCpu) {
  CpuChecks checks;
  for_each_variant(all(), [&](const Case& c) {
    auto g = gradient_of(c);
    if (!g) return;
    g->scale = derivative_scale(c.sample->op);  // gradients over one element may cancel to nothing
    checks.add(std::move(*g));
  });
  checks.finish();
}

TEST(VariantsLong, VmapWithASymbolicBatch) {
  for_each_variant(all(), [](const Case& c) { check_vmap_choices(c, Dim::symbol("n")); });
}

TEST(VariantsLong, VmapOfGradientsAgainstALoop) {
  for_each_variant(all(), [](const Case& c) {
    if (c.dtype == DType::F64) check_vmap_of_gradient(c);
  });
}

TEST(VariantsLong, VmapOfManyOperands) {
  for_each_case(samples(), {DType::F64}, [](const Case& c) {
    const unsigned all = (1u << c.operands.size()) - 1;
    const std::vector<Tensors> each = batch_of(c);
    for (unsigned mask = 1; c.operands.size() > kEveryChoice && mask <= all; ++mask)
      check_vmap(c, c.graph, c.operands, each, mask, "value");
  });
}

}  // namespace
}  // namespace rlx::testing
