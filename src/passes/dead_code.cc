#include "rlx/ops/control/unread.h"
#include "rlx/passes/passes.h"

namespace rlx {

constinit const Pass pass::dead_code{
    "dead_code",
    "Removes what no output and no update needs, of loops too; inputs stay in the signature.",
    [](Graph&& g, const PassOptions&) { return drop_dead(drop_unread(std::move(g), false)); }};

}  // namespace rlx
