// What the facade reads from the environment: the variables that its documents state, for those who look at a program from
// outside. Nothing below it reads any.
#pragma once

#include <string>

namespace rlx::opt {

// On unless it is not set, empty, or one of 0, false, off, no.
bool environment_flag(const char* name);
// A whole number; `otherwise` where it is not set. Raises Error(user, "environment") for anything else.
int64_t environment_number(const char* name, int64_t otherwise);

}  // namespace rlx::opt
