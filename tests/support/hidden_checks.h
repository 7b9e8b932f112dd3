// The device whose memory the host cannot touch (backend/hidden) against the CPU: the same kernels, so the same bits.
#pragma once

#include "random_graph.h"
#include "samples.h"

namespace rlx::testing {

// Registers "hidden" and "hidden:1", once.
void register_hidden_devices();

// What differs between the devices for this program, run twice: nothing when all is the same.
std::string differs_on_hidden(const Graph& g, const NamedTensors& leaves);

// Every `step`-th row of the sample table at each of its dtypes, with gradients. Returns how many ran.
int check_samples_on_hidden(size_t step);
int check_random_programs_on_hidden(uint64_t first, uint64_t count);

}  // namespace rlx::testing
