// A device for tests: the CPU's kernels behind walls. Its memory lies in addresses that the host has no right to touch
// (the device works through a second mapping of it), and its streams are as late as they may be: they begin when
// somebody waits for them, or when much has piled up, on a thread of their own. What forgets to copy crashes, and what
// forgets to wait reads what is not there yet.
//
//   register_backend(make_hidden_backend(0));
//   CompiledGraph f = Session("hidden").compile(graph);
#pragma once

#include "rlx/device/backend.h"

namespace rlx::hidden {

// Each has memory of its own. Raises Error(resource) where the system gives none.
std::shared_ptr<const Backend> make_hidden_backend(int ordinal);

}  // namespace rlx::hidden
