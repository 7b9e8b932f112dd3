// What training in Python needs of C++: optimisers, schedules and clipping as programs, checkpoints.
#pragma once

#include <nanobind/nanobind.h>

#include "rlx/train/optimizer.h"

namespace rlx::python {

// By the name of its function, with a dict of all its options but the rate.
Optimizer make_optimizer(const std::string& kind, const nanobind::dict& options, Schedule rate,
                         bool decays);

void bind_training(nanobind::module_& m);

}  // namespace rlx::python
