// The reference backend: walks the graph node by node through the ops' own rules (ops/evaluate.h).
//
// It is slow and obviously right: the yardstick for every other backend, and what runs where no
// other does. Every run makes new tensors; options that tune code (threads, fuse, fast_math) have
// no effect.
#pragma once

#include "rlx/device/backend.h"

namespace rlx::reference {

std::shared_ptr<const Backend> make_reference_backend();

}  // namespace rlx::reference
