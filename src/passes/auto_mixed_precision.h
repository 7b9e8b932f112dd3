// Mixed precision as a pass of a pipeline.
//
//   Graph g = AutoMixedPrecision{PrecisionPolicy::auto_mixed_bf16()}.run(f);
//   Pipeline p{pass::recognise, AutoMixedPrecision{PrecisionPolicy::mixed(Precision::BF16)}};
//   rlx opt FILE --passes "auto_mixed_precision(policy=bf16,f32=exp|tanh,keep=reduction)"
//
// Raises what transform/precision.h raises.
#pragma once

#include "rlx/passes/passes.h"
#include "rlx/transform/precision.h"

namespace rlx {

struct AutoMixedPrecision {
  PrecisionPolicy policy;
  static std::string_view name() { return pass::auto_mixed_precision.name; }
  Graph run(const Graph& g) const { return mixed_precision(g, policy); }
  operator PassUse() const;  // NOLINT: implicit by design. Its arguments say the whole policy
};

}  // namespace rlx
