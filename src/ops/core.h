// The ops that the compiler itself works with, and the table. Everything: ops.h.
#pragma once

#include "rlx/ops/control.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/expr.h"
#include "rlx/ops/linalg.h"
#include "rlx/ops/movement.h"
#include "rlx/ops/nn.h"
#include "rlx/ops/random.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/region.h"
#include "rlx/ops/table.h"
