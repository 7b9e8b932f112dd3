// The ops that the compiler itself works with, and the table. Everything: ops.h.
#pragma once

#include "rlx/ops/control/control.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/expr.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/random/random.h"
#include "rlx/ops/reduce/cumulative.h"
#include "rlx/ops/reduce/reduce.h"
#include "rlx/ops/region.h"
#include "rlx/ops/table.h"
