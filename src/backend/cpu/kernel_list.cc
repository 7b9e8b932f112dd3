#include "rlx/backend/cpu/kernel_list.h"

#include "rlx/backend/cpu/backend.h"

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

namespace {

std::vector<KernelRow>& mutable_list() {
  static std::vector<KernelRow> list = [] {
    std::vector<KernelRow> rows;
    for (std::span<const KernelRow> part :
         {core_kernels(), array_kernels(), conv_kernels(), lapack_kernels(), fft_kernels(),
          quant_kernels(), sequence_kernels(), random_kernels(), splat_kernels(), complex_kernels(),
          custom_kernels()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return list;
}

std::map<const OpDef*, HostKernel>& user_kernels() {
  static std::map<const OpDef*, HostKernel> kernels;
  return kernels;
}

std::vector<HostView> host_views(std::span<const View> views) {
  std::vector<HostView> out;
  for (const View& v : views) out.push_back({v.dtype, v.dims, nullptr});
  return out;
}

Plan plan_user(const Node& n, std::span<const View> in, std::span<const View> out) {
  return {.work = 0,
          .run = [&kernel = user_kernels().at(n.op), n, sources = host_views(in),
                  results = host_views(out)](const StepMemory& m, int64_t, int64_t) {
            std::vector<HostView> from = sources, to = results;
            for (size_t i = 0; i < from.size(); ++i) from[i].data = m.operands[i];
            for (size_t i = 0; i < to.size(); ++i) to[i].data = m.operands[from.size() + i];
            kernel(n, from, to);
          }};
}

}  // namespace

const std::vector<KernelRow>& kernel_list() { return mutable_list(); }

void register_kernel(const OpDef& op, HostKernel kernel) {
  user_check(kernel != nullptr, "kernel", "{}: an empty function is no kernel", op.name);
  if (!user_kernels().contains(&op))
    mutable_list().insert(mutable_list().begin(), dense_kernel<plan_user>(&op));
  user_kernels()[&op] = std::move(kernel);
}

int64_t product_of(const Ints& dims, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t d = begin; d < end; ++d) n *= dims[d];
  return n;
}

}  // namespace rlx::cpu
