#include <algorithm>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/movement/copy.h"
#include "rlx/codegen/region_kernel.h"
#include "rlx/ops/core.h"

namespace rlx::cpu {

// A region's kernel; its code is set when the target finishes, and lives as long as it does.
class GeneratedKernel final : public BlockKernel {
 public:
  GeneratedKernel(codegen::RegionKernel region, size_t code)
      : region_(std::move(region)), code_(code) {
    region_.kernel.body.clear();  // the code lives in the JIT; the form is no longer needed
  }
  std::string name() const override { return region_.kernel.name; }
  int64_t blocks() const override { return region_.blocks; }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    fn_(m.operands, region_.sizes.data(), begin, end);
  }
  bool may_share(int in, int out) const override {
    return region_.may_share[static_cast<size_t>(in)][static_cast<size_t>(out)];
  }
  int64_t work() const override { return static_cast<int64_t>(region_.flops); }
  double flops() const override { return region_.flops; }
  int64_t rows() const override { return region_.rows; }
  int64_t rows_per_block() const override { return region_.rows_per_block; }
  std::optional<BlockSpan> span(size_t operand) const override { return region_.spans[operand]; }

  const Rest* rest() const override { return rest_.kernel ? &rest_ : nullptr; }

  size_t code() const { return code_; }
  void set_function(KernelFn fn, std::shared_ptr<const CpuJit> code) {
    fn_ = fn;
    jit_ = std::move(code);
  }
  void set_rest(std::shared_ptr<const StepKernel> kernel) {
    rest_ = {region_.reductions, region_.partials, std::move(kernel)};
  }

 private:
  codegen::RegionKernel region_;
  size_t code_;
  Rest rest_;
  KernelFn fn_ = nullptr;
  std::shared_ptr<const CpuJit> jit_;
};

namespace {

class CopyKernel final : public BlockKernel {
 public:
  CopyKernel(const View& from, const View& to)
      : plan_(CopyPlan::make(static_cast<size_t>(size_of(from.dtype)), from.dims, from.strides,
                             to.strides)),
        elements_(from.elements()) {}
  std::string name() const override { return "copy"; }
  int64_t blocks() const override { return plan_.blocks(); }
  int64_t work() const override { return elements_; }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    plan_.run(m.operands[0], m.operands[1], begin, end);
  }

 private:
  CopyPlan plan_;
  int64_t elements_;
};

}  // namespace

CpuTarget::CpuTarget(const CpuJitOptions& options, const RegionSchedule& schedule)
    : jit_(std::make_shared<CpuJit>(options)),
      isa_(jit_->vector_bits() == 256 && host_isa() == Isa::Avx512 ? Isa::Avx2 : host_isa()),
      schedule_(schedule),
      user_kernels_(user_kernels()) {}

CpuTarget::~CpuTarget() = default;

const KernelRow* CpuTarget::row_for(const Node& n, const Graph& g, std::string* why) const {
  for (const KernelRow& row : kernel_list()) {
    if (row.op != n.op) continue;
    const Decision d = row.accepts(n, g);
    if (d) return &row;
    if (why)
      *why += fmt::format("{}{}: {}", why->empty() ? "" : "; ",
                          row.name.empty() ? row.op->name : row.name, d.why());
  }
  return nullptr;
}

Decision CpuTarget::accepts(const Node& n, const Graph& g) const {
  if (n.op == &op::region || n.op->kind == Kind::leaf || n.op->kind == Kind::control)
    return Decision::yes();
  if (goes_first(*n.op)) return Decision::yes();
  std::string why;
  if (row_for(n, g, &why)) return Decision::yes();
  return Decision::no("{}", why.empty() ? "no native kernel" : why);
}

Decision CpuTarget::takes_view(const Node& n, const Graph& g, size_t i, const View& v) const {
  if (n.op == &op::region) return Decision::yes();
  if (goes_first(*n.op)) return Decision::no("the user's kernels read dense tensors only");
  const KernelRow* row = row_for(n, g, nullptr);
  return row ? row->takes_view(n, i, v) : Decision::no("no native kernel");
}

std::shared_ptr<const StepKernel> CpuTarget::make(const Node& n, const Graph& g,
                                                  std::span<const View> in,
                                                  std::span<const View> out) {
  if (n.op == &op::region) return generated(codegen::lower_region(n, in, out, schedule_));
  if (const auto user = user_kernels_->find(n.op); user != user_kernels_->end())
    return user_step(user->second, n, in, out);
  std::string why;
  if (const KernelRow* row = row_for(n, g, &why)) return row->make(isa_, n, in, out);
  fail(ErrorKind::unsupported, "no-kernel", "{} ({}) has no kernel on the CPU{}", n.op->name,
       n.type(), why.empty() ? "" : ": " + why);
}

bool CpuTarget::has_kernel(const OpDef& op) const {
  if (&op == &op::region || goes_first(op)) return true;
  const auto& rows = kernel_list();
  return std::any_of(rows.begin(), rows.end(), [&](const KernelRow& r) { return r.op == &op; });
}

std::shared_ptr<const StepKernel> CpuTarget::generated(codegen::RegionKernel region) {
  const auto combine = std::move(region.combine);
  const uint64_t hash = codegen::structural_hash(region.kernel);
  size_t code = code_.size();
  for (auto [it, end] = by_hash_.equal_range(hash); it != end; ++it)
    if (codegen::same_structure(*code_[it->second], region.kernel)) code = it->second;
  if (code == code_.size()) {
    code_.push_back(std::make_shared<codegen::Kernel>(region.kernel));
    by_hash_.emplace(hash, code);
  }
  const auto kernel = std::make_shared<GeneratedKernel>(std::move(region), code);
  pending_.push_back(kernel);
  if (combine) kernel->set_rest(generated(std::move(*combine)));
  return kernel;
}

std::shared_ptr<const StepKernel> CpuTarget::make_copy(const View& from, const View& to) {
  return std::make_shared<CopyKernel>(from, to);
}

void CpuTarget::finish() {
  std::vector<const codegen::Kernel*> kernels;
  for (size_t i = 0; i < code_.size(); ++i) {
    code_[i]->name = fmt::format("k{}_{}", i, code_[i]->name);
    kernels.push_back(code_[i].get());
  }
  const std::vector<KernelFn> functions = jit_->compile(kernels);
  for (const auto& k : pending_) k->set_function(functions[k->code()], jit_);
  pending_.clear();
}

}  // namespace rlx::cpu
