// All ops, and the table of them.
#pragma once

#include "rlx/ir/text.h"
#include "rlx/ops/activations.h"
#include "rlx/ops/backward.h"
#include "rlx/ops/complex.h"
#include "rlx/ops/control.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/cumulative.h"
#include "rlx/ops/distributions.h"
#include "rlx/ops/einsum.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/experts.h"
#include "rlx/ops/expr.h"
#include "rlx/ops/factor.h"
#include "rlx/ops/fft.h"
#include "rlx/ops/fused.h"
#include "rlx/ops/linalg.h"
#include "rlx/ops/loops.h"
#include "rlx/ops/losses.h"
#include "rlx/ops/math.h"
#include "rlx/ops/matrix.h"
#include "rlx/ops/movement.h"
#include "rlx/ops/nn.h"
#include "rlx/ops/norms.h"
#include "rlx/ops/pool.h"
#include "rlx/ops/quantise.h"
#include "rlx/ops/random.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/region.h"
#include "rlx/ops/resize.h"
#include "rlx/ops/scatter.h"
#include "rlx/ops/sequence.h"
#include "rlx/ops/shaping.h"
#include "rlx/ops/sorting.h"
#include "rlx/ops/splat.h"
#include "rlx/ops/statistics.h"

namespace rlx {

// Every op of the language, family by family.
const OpTable& op_table();

// parse() with that table.
Graph parse(std::string_view text, const TextStore* store = nullptr);

}  // namespace rlx
