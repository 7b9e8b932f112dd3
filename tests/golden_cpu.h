// The golden values on the CPU backend. Memory is poisoned; 32 samples share a graph, so that the code generator starts
// once for all of them.
#pragma once

#include "golden.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {

// With vectors of that many bits; 0: the machine's widest.
inline GoldenReport golden_on_cpu(int vector_bits) {
  const Execute execute = [&](const Graph& g, const Tensors& in) {
    CompiledGraph f =
        Session(Device::cpu).compile(g, {.threads = 1, .vector_bits = vector_bits, .poison = true});
    const auto inputs = g.inputs();
    NamedTensors named;
    for (size_t i = 0; i < inputs.size(); ++i)
      named[g.node(inputs[i]).get<LeafAttrs>().name] = in[i];
    return f.run(named);
  };
  return run_golden(execute, 32);
}

}  // namespace rlx::testing
