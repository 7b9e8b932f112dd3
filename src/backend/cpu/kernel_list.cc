#include "rlx/backend/cpu/kernel_list.h"

namespace rlx::cpu {

namespace {

class FunctionKernel final : public StepKernel {
 public:
  FunctionKernel(std::string_view name, Plan plan) : name_(name), plan_(std::move(plan)) {}
  std::string name() const override { return name_; }
  int64_t blocks() const override { return plan_.blocks; }
  size_t scratch_bytes() const override { return plan_.scratch; }
  int64_t work() const override { return plan_.work; }
  double flops() const override { return plan_.flops; }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    plan_.run(m, begin, end);
  }

 private:
  std::string name_;
  Plan plan_;
};

}  // namespace

std::shared_ptr<const StepKernel> function_kernel(std::string_view name, Plan plan) {
  return std::make_shared<FunctionKernel>(name, std::move(plan));
}

const std::vector<KernelRow>& kernel_list() {
  static const std::vector<KernelRow> list = [] {
    std::vector<KernelRow> rows;
    for (std::span<const KernelRow> part :
         {core_kernels(), array_kernels(), conv_kernels(), lapack_kernels(), fft_kernels(),
          quant_kernels(), sequence_kernels(), random_kernels(), splat_kernels(),
          complex_kernels()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return list;
}

}  // namespace rlx::cpu
