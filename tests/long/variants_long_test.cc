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

// All choices of operands where there are no more than a thousand; else one, all but one, all, and a thousand at random.
std::vector<unsigned> choices(unsigned all) {
  constexpr unsigned kMost = 1023;
  std::vector<unsigned> out;
  for (unsigned mask = 1; mask <= std::min(all, kMost); ++mask) out.push_back(mask);
  if (all <= kMost) return out;
  std::mt19937 random(5);
  for (unsigned& mask : out) mask = 1 + random() % all;
  for (unsigned bit = 1; bit <= all; bit <<= 1) out.push_back(bit), out.push_back(all & ~bit);
  out.push_back(all);
  return out;
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
    if (c.operands.size() <= kEveryChoice) return;
    const unsigned all = (1u << c.operands.size()) - 1;
    const std::vector<Tensors> each = batch_of(c);
    for (unsigned mask : choices(all)) check_vmap(c, c.graph, c.operands, each, mask, "value");
  });
}

}  // namespace
}  // namespace rlx::testing
