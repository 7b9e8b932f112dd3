// Golden values on the CPU backend, with 512- and 256-bit vectors where this machine has them;
// memory is poisoned.
#include <gtest/gtest.h>

#include "../golden.h"
#include "rlx/backend/cpu/jit.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

GoldenReport golden_on_cpu(int vector_bits) {
  return run_golden([&](const Graph& g, const Tensors& in) {
    CompiledGraph f =
        Session(Device::cpu).compile(g, {.threads = 1, .vector_bits = vector_bits, .poison = true});
    const auto inputs = g.inputs();
    NamedTensors named;
    for (size_t i = 0; i < inputs.size(); ++i)
      named[g.node(inputs[i]).get<LeafAttrs>().name] = in[i];
    return f.run(named);
  });
}

TEST(GoldenCpu, WidestVectors) {
  const GoldenReport report = golden_on_cpu(0);
  EXPECT_TRUE(is_filtered() || report.samples > 1000);
  EXPECT_TRUE(report.clean()) << report.text();
}

TEST(GoldenCpu, Avx2) {
  if (cpu::host_vector_bits() == 256) return;  // the other test has run them
  const GoldenReport report = golden_on_cpu(256);
  EXPECT_TRUE(report.clean()) << report.text();
}

}  // namespace
}  // namespace rlx::testing
