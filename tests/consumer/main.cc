// What a user of the installed library writes first: look at a dtype, see an error, run something
// in parallel; and a program lowered, looked at, bound to a size and run.
#include <fmt/format.h>

#include <atomic>

#include "rlx/base/error.h"
#include "rlx/base/parallel.h"
#include "rlx/ir/dtype.h"
#include "rlx/rlx.h"

namespace {

// y = x + x at a size that is known late.
int run_lir() {
  using namespace rlx;
  Builder b("twice");
  const Value x = b.input("x", {DType::F32, {Dim::symbol("n")}});
  b.output(op::add(b, x, x));
  const auto backend = backend_for("cpu");
  const GraphModule lir = lower_to(CompileStage::lir, b.finish(), *backend, {.dims = {{"n", 3}}});
  if (to_string(lir.as_lir()->plan()).find("elementwise") == std::string::npos) return 4;
  const Tensor y = Session("cpu").compile(lir).run({{"x", Tensor::from<float>({3}, {1, 2, 3})}})[0];
  for (int i = 0; i < 3; ++i)
    if (y.get_float(i) != 2 * (i + 1)) return 5;
  return 0;
}

}  // namespace

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
  return rlx::is_available("cpu") ? run_lir() : 0;
}
