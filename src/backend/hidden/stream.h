// HiddenStream: work that is done late, by a thread of its own.
#pragma once

#include "rlx/backend/hidden/memory.h"

namespace rlx::hidden {

// Runs chains through `inner`, a stream of the CPU, on the open addresses.
std::unique_ptr<Stream> make_hidden_stream(std::shared_ptr<HiddenMemory> memory,
                                           std::unique_ptr<Stream> inner);

}  // namespace rlx::hidden
