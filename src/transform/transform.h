// The transforms: graphs in, new graphs out; any nesting of them is valid.
#pragma once

#include "rlx/transform/forward.h"
#include "rlx/transform/higher_order.h"
#include "rlx/transform/jacobian.h"
#include "rlx/transform/linear.h"
#include "rlx/transform/precision.h"
#include "rlx/transform/reverse.h"
#include "rlx/transform/taylor.h"
#include "rlx/transform/vmap.h"
