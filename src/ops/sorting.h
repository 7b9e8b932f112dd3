// Sorting, selection and search.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

extern const Family kSorting;

}  // namespace rlx
