// What a user of the installed library writes first: look at a dtype, see an error, run something
// in parallel.
#include <fmt/format.h>

#include <atomic>

#include "rlx/base/error.h"
#include "rlx/base/parallel.h"
#include "rlx/ir/dtype.h"
#include "rlx/version.h"

int main() {
  std::atomic<int64_t> sum{0};
  rlx::parallel_for(2, 1000, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  if (sum != 499500) return 1;
  try {
    rlx::user_check(false, "consumer", "{} is not allowed", 7);
    return 2;
  } catch (const rlx::Error& error) {
    if (error.kind() != rlx::ErrorKind::user) return 3;
    fmt::print("rlx {}: {}\n", RLX_VERSION, error.what());
  }
  return 0;
}
