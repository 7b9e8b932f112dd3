#include "rlx/passes/passes.h"

namespace rlx {

constinit const Pass pass::dead_code{
    "dead_code", "Removes what no output and no update needs; inputs stay in the signature.",
    [](Graph&& g, const PassOptions&) { return drop_dead(std::move(g)); }};

}  // namespace rlx
