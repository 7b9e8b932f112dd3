// Codes of weights as parameters of their own: what quantize makes of weights alone is computed now and kept in place of
// the floats.
#pragma once

#include "rlx/runtime/runtime.h"

namespace rlx {

// Replaces every value of i8 or u8 that is made of parameters and constants alone, by whatever ops, and is read by
// something else, by a parameter "<name>.int8" of its value, which is added to `baked`. Parameters that updates write stay, and so do those that are in `baked` already.
void bake_codes(Graph& g, const NamedTensors& params, NamedTensors& baked, const Device& device);

}  // namespace rlx
