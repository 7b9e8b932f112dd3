// All ops, and the table of them.
#pragma once

#include "rlx/ir/text.h"
#include "rlx/ops/control.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/expr.h"
#include "rlx/ops/linalg.h"
#include "rlx/ops/movement.h"
#include "rlx/ops/nn.h"
#include "rlx/ops/random.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/region.h"

namespace rlx {

// Every op of the language, family by family.
const OpTable& op_table();

// parse() with that table.
Graph parse(std::string_view text, const TextStore* store = nullptr);

}  // namespace rlx
