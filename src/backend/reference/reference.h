// The reference backend: graphs run by the stated rules of their ops, one node after the other, as
// ops/evaluate.h does. Nothing is fused, planned or generated; results are what other backends are
// compared with.
//
//   std::unique_ptr<Executable> f = make_reference_backend()->compile(graph, {});
//
// compile() raises (user) "unbound-dim" when options.dims leave a symbol open.
#pragma once

#include "rlx/lower/backend.h"

namespace rlx {

std::shared_ptr<const Backend> make_reference_backend();

}  // namespace rlx
