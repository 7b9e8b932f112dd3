#include "rlx/passes/passes.h"

namespace rlx {

constinit const Pass pass::legalise{
    "legalise",
    "Keeps the composites that the target has a kernel for and decomposes the others, repeatedly.",
    [](Graph&& g, const PassOptions& o) {
      return decompose_composites(std::move(g), "legalise", [&](const Node& n, const Graph& at) {
        return o.keeps && o.keeps(n, at);
      });
    }};

}  // namespace rlx
