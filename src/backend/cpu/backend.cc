#include "rlx/backend/cpu/backend.h"

#include "rlx/backend/cpu/code_cache.h"
#include "rlx/backend/cpu/kernels/limits/machine_limits.h"
#include "rlx/backend/cpu/kernels/linalg/lapack.h"
#include "rlx/backend/cpu/stream.h"
#include "rlx/backend/cpu/target.h"
#include "rlx/base/parallel.h"
#include "rlx/compile/options.h"

namespace rlx::cpu {

namespace {

constexpr int kDlpackCpu = 1;

class CpuBackend final : public Backend {
 public:
  Device device() const override { return {"cpu", 0}; }
  std::unique_ptr<Target> make_target(const CompileOptions& options) const override {
    user_check(host_vector_bits() > 0, "cpu", "this CPU has no AVX2; use the reference backend");
    const int threads = options.threads > 0 ? options.threads : hardware_threads();
    return std::make_unique<CpuTarget>(
        CpuJitOptions{.vector_bits = options.vector_bits,
                      .compile_threads = threads > 1 ? 2 : 1,
                      .dump_directory = options.dump_dir,
                      .cache = options.cache ? CodeCache::of_process() : nullptr},
        options.schedule.value_or(RegionSchedule()));
  }
  MemoryBlock allocate(int64_t bytes) const override { return allocate_on_host(bytes); }
  std::byte* map(std::byte* address) const override { return address; }
  std::unique_ptr<Stream> make_stream(int threads) const override {
    return std::make_unique<CpuStream>(threads);
  }
  void register_kernel(const OpDef& op, HostKernel kernel) const override {
    cpu::register_kernel(op, std::move(kernel));
  }
  int dlpack_kind() const override { return kDlpackCpu; }
  std::string libraries() const override { return linear_algebra_libraries(); }
  double peak_gflops(int threads) const override { return measure_fma_peak(threads); }
  double traffic_seconds(int threads, size_t read, size_t written) const override {
    return measure_traffic(threads, read, written);
  }
};

}  // namespace

std::shared_ptr<const Backend> make_cpu_backend() { return std::make_shared<CpuBackend>(); }

}  // namespace rlx::cpu
