// What this process occupies, from /proc.
#pragma once

#include <cstdint>

namespace rlx::cli {

int64_t memory_limit();         // what the machine has, or this process's group of it may use
int64_t resident_bytes();       // now
int64_t peak_resident_bytes();  // at most, since the start or the last reset
bool reset_peak_memory();       // false where the kernel does not permit it
void release_free_memory();     // gives the allocator's free pages back

}  // namespace rlx::cli
