#include "rlx/backend/cpu/kernel_list.h"

#include <map>
#include <mutex>

#include "rlx/backend/cpu/backend.h"
#include "rlx/lower/lower.h"
#include "rlx/ops/core.h"

namespace rlx::cpu {

namespace {

class FunctionKernel final : public BlockKernel {
 public:
  FunctionKernel(std::string_view name, Plan plan) : name_(name), plan_(std::move(plan)) {}
  std::string name() const override { return name_; }
  int64_t blocks() const override { return plan_.blocks; }
  size_t scratch_bytes() const override { return plan_.scratch; }
  int64_t work() const override { return plan_.work; }
  double flops() const override { return plan_.flops; }
  int64_t kept_bytes() const override { return 512 + plan_.tables; }
  bool may_share(int in, int out) const override { return in == plan_.in_place && out == 0; }
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
         {core_kernels(), integer_kernels(), array_kernels(), conv_kernels(),
          channels_last_kernels(), lapack_kernels(), fft_kernels(), quant_kernels(),
          sequence_kernels(), random_kernels(), splat_kernels(), complex_kernels(),
          custom_kernels()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return list;
}

// ---- the user's

namespace {

struct UserRegistry {
  std::mutex mutex;
  std::shared_ptr<const UserKernels> kernels = std::make_shared<const UserKernels>();
};
UserRegistry& user_registry() {
  static UserRegistry r;
  return r;
}

std::vector<HostView> host_views(std::span<const View> views) {
  std::vector<HostView> out;
  for (const View& v : views) out.push_back({v.dtype, v.dims, nullptr});
  return out;
}

}  // namespace

std::shared_ptr<const UserKernels> user_kernels() {
  UserRegistry& r = user_registry();
  const std::lock_guard lock(r.mutex);
  return r.kernels;
}

void register_kernel(const OpDef& op, HostKernel kernel) {
  user_check(kernel != nullptr, "kernel", "{}: an empty function is no kernel", op.name);
  user_check(&op != &op::region && !is_lowered(op), "kernel",
             "{} is never run as a kernel: leaves, views, copies and control flow are not",
             op.name);
  UserRegistry& r = user_registry();
  const std::lock_guard lock(r.mutex);
  auto next = std::make_shared<UserKernels>(*r.kernels);
  (*next)[&op] = std::make_shared<const HostKernel>(std::move(kernel));
  r.kernels = std::move(next);
}

std::shared_ptr<const StepKernel> user_step(std::shared_ptr<const HostKernel> kernel, const Node& n,
                                            std::span<const View> in, std::span<const View> out) {
  return function_kernel(
      n.op->name, {.work = 0,
                   .run = [kernel = std::move(kernel), n, sources = host_views(in),
                           results = host_views(out)](const StepMemory& m, int64_t, int64_t) {
                     std::vector<HostView> from = sources, to = results;
                     for (size_t i = 0; i < from.size(); ++i) from[i].data = m.operands[i];
                     for (size_t i = 0; i < to.size(); ++i)
                       to[i].data = m.operands[from.size() + i];
                     (*kernel)(n, from, to);
                   }});
}

int64_t product_of(const Ints& dims, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t d = begin; d < end; ++d) n *= dims[d];
  return n;
}

}  // namespace rlx::cpu
