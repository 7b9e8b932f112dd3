#include "rlx/backend/cpu/backend.h"

#include "rlx/backend/cpu/code_cache.h"
#include "rlx/backend/cpu/executable.h"
#include "rlx/backend/cpu/target.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {

namespace {

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  std::unique_ptr<Target> make_target(const CompileOptions& options) const override {
    user_check(host_vector_bits() > 0, "cpu", "this CPU has no AVX2; use the reference backend");
    const int threads = options.threads > 0 ? options.threads : hardware_threads();
    return std::make_unique<CpuTarget>(
        CpuJitOptions{.vector_bits = options.vector_bits,
                      .compile_threads = threads > 1 ? 2 : 1,
                      .dump_directory = options.dump_dir,
                      .cache = options.cache ? CodeCache::of_process() : nullptr});
  }
  std::unique_ptr<Executable> load(std::shared_ptr<const Compiled> compiled) const override {
    return make_executable(std::move(compiled));
  }
};

}  // namespace

std::shared_ptr<const Backend> make_cpu_backend() { return std::make_shared<CpuBackend>(); }

}  // namespace rlx::cpu
