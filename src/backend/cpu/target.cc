#include <algorithm>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/matmul/matmul.h"
#include "rlx/backend/cpu/kernels/movement/copy.h"
#include "rlx/codegen/region_kernel.h"
#include "rlx/ops/core.h"

namespace rlx::cpu {

namespace {

// A region's kernel; its code is there when the target has finished, and lives as long as it does.
class GeneratedKernel final : public BlockKernel {
 public:
  GeneratedKernel(codegen::RegionKernel region, std::shared_ptr<const GeneratedCode> code,
                  size_t number)
      : region_(std::move(region)), code_(std::move(code)), number_(number) {
    name_ = region_.kernel->name;
    region_.kernel = nullptr;  // the code lives in the JIT; the form is no longer needed
  }
  std::string name() const override { return name_; }
  int64_t blocks() const override { return region_.blocks; }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    code_->functions[number_](m.operands, region_.sizes.data(), begin, end);
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
  int64_t kept_bytes() const override {
    const size_t lists =
        region_.sizes.size() * sizeof(int64_t) + region_.spans.size() * sizeof(region_.spans[0]) +
        region_.may_share.size() * (sizeof(decltype(region_.may_share)::value_type) + 24);
    return static_cast<int64_t>(sizeof(*this) + lists + 5 * 16);
  }

  void set_rest(std::shared_ptr<const StepKernel> kernel) {
    rest_ = {region_.reductions, region_.partials, std::move(kernel)};
  }

 private:
  codegen::RegionKernel region_;
  std::string name_;
  std::shared_ptr<const GeneratedCode> code_;
  size_t number_;
  Rest rest_;
};

// A region's kernels for all sizes: one for each way in which sizes answer what lowering asked.
class GeneratedForm final : public KernelForm {
 public:
  struct Way {
    codegen::RegionCode region;
    size_t code = 0, combine = 0;
  };
  GeneratedForm(std::vector<SizeWay<Way>> ways, std::shared_ptr<const GeneratedCode> code)
      : ways_(std::move(ways)), code_(std::move(code)) {}

  std::shared_ptr<const StepKernel> at(const DimBinding& sizes) const override {
    const Way& way = rlx::at(ways_, sizes);
    codegen::RegionKernel region = way.region.at(sizes);
    const auto combine = std::move(region.combine);
    auto kernel = std::make_shared<GeneratedKernel>(std::move(region), code_, way.code);
    if (combine) kernel->set_rest(std::make_shared<GeneratedKernel>(*combine, code_, way.combine));
    return kernel;
  }

 private:
  std::vector<SizeWay<Way>> ways_;
  std::shared_ptr<const GeneratedCode> code_;
};

class CopyKernel final : public BlockKernel {
 public:
  CopyKernel(const View& from, const View& to)
      : plan_(CopyPlan::make(static_cast<size_t>(size_of(from.dtype)), from.dims, from.strides,
                             to.strides)),
        elements_(from.elements()),
        moves_(!(from.is_dense() && to.is_dense())) {}
  std::string name() const override { return "copy"; }
  int64_t blocks() const override { return plan_.blocks(); }
  int64_t work() const override { return elements_; }
  bool may_share(int, int) const override { return !moves_; }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    if (m.operands[0] == m.operands[1]) return;
    plan_.run(m.operands[0], m.operands[1], begin, end);
  }

 private:
  CopyPlan plan_;
  int64_t elements_;
  bool moves_;  // elements to other places
};

std::string reasons(const Target::Choice& choice) {
  std::string out;
  for (const auto& [name, why] : choice.refused)
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", name, why);
  return out;
}

static_assert(RegionSchedule{}.product_columns == kWidestTile &&
              RegionSchedule{}.product_rows == kTallestTile);

}  // namespace

CpuTarget::CpuTarget(const CpuJitOptions& options, const RegionSchedule& schedule)
    : jit_(std::make_shared<CpuJit>(options)),
      generated_(std::make_shared<GeneratedCode>()),
      isa_(jit_->vector_bits() == 256 && host_isa() == Isa::Avx512 ? Isa::Avx2 : host_isa()),
      schedule_(schedule),
      user_kernels_(user_kernels()) {}

CpuTarget::~CpuTarget() = default;

const KernelRow* CpuTarget::row_for(const Node& n, const Graph& g, Choice* choice) const {
  for (const KernelRow& row : kernel_list()) {
    if (row.op != n.op) continue;
    const Decision d = row.accepts(n, g);
    const std::string_view name = row.name.empty() ? row.op->name : row.name;
    if (d && choice) choice->kernel = name;
    if (d) return &row;
    if (choice) choice->refused.emplace_back(name, d.why());
  }
  return nullptr;
}

Target::Choice CpuTarget::choice(const Node& n, const Graph& g) const {
  Choice out;
  if (n.op == &op::region)
    out.kernel = "generated";
  else if (goes_first(*n.op))
    out.kernel = "the user's";
  else
    row_for(n, g, &out);
  return out;
}

Decision CpuTarget::accepts(const Node& n, const Graph& g) const {
  if (n.op == &op::region || n.op->kind == Kind::leaf || n.op->kind == Kind::control)
    return Decision::yes();
  if (goes_first(*n.op)) return Decision::yes();
  Choice choice;
  if (row_for(n, g, &choice)) return Decision::yes();
  return Decision::no("{}", choice.refused.empty() ? "no native kernel" : reasons(choice));
}

Decision CpuTarget::takes_view(const Node& n, const Graph& g, size_t i, const View& v) const {
  if (n.op == &op::region) return Decision::yes();
  if (goes_first(*n.op)) return Decision::no("the user's kernels read dense tensors only");
  const KernelRow* row = row_for(n, g);
  return row ? row->takes_view(n, i, v) : Decision::no("no native kernel");
}

std::shared_ptr<const StepKernel> CpuTarget::make(const Node& n, const Graph& g,
                                                  std::span<const View> in,
                                                  std::span<const View> out) {
  if (n.op == &op::region) {
    std::vector<Layout> from, to;
    for (const View& v : in) from.push_back(Layout::of(v));
    for (const View& v : out) to.push_back(Layout::of(v));
    return form(n, from, to)->at({});
  }
  if (const auto user = user_kernels_->find(n.op); user != user_kernels_->end())
    return user_step(user->second, n, in, out);
  Choice choice;
  if (const KernelRow* row = row_for(n, g, &choice)) return row->make(isa_, n, in, out);
  fail(ErrorKind::unsupported, "no-kernel", "{} ({}) has no kernel on the CPU{}", n.op->name,
       n.type(), choice.refused.empty() ? "" : ": " + reasons(choice));
}

bool CpuTarget::has_kernel(const OpDef& op) const {
  if (&op == &op::region || goes_first(op)) return true;
  const auto& rows = kernel_list();
  return std::any_of(rows.begin(), rows.end(), [&](const KernelRow& r) { return r.op == &op; });
}

std::shared_ptr<const KernelForm> CpuTarget::form(const Node& region, std::span<const Layout> in,
                                                  std::span<const Layout> out) {
  return std::make_shared<GeneratedForm>(all_answers([&](SizeQuestions& q) {
                                           GeneratedForm::Way way;
                                           way.region =
                                               codegen::lower_region(region, in, out, schedule_, q);
                                           way.code = code_of(*way.region.kernel);
                                           if (const auto& combine = way.region.combine)
                                             way.combine = code_of(*combine->kernel);
                                           return way;
                                         }),
                                         generated_);
}

size_t CpuTarget::code_of(const codegen::Kernel& kernel) {
  const uint64_t hash = codegen::structural_hash(kernel);
  for (auto [it, end] = by_hash_.equal_range(hash); it != end; ++it)
    if (codegen::same_structure(*code_[it->second], kernel)) return it->second;
  code_.push_back(std::make_shared<codegen::Kernel>(kernel));
  by_hash_.emplace(hash, code_.size() - 1);
  return code_.size() - 1;
}

// A form has its kernel, and we have one to compare others with.
int64_t CpuTarget::form_bytes() const {
  size_t bytes = 0;
  for (const auto& kernel : code_)
    bytes += 2 * (sizeof(codegen::Kernel) + kernel->body.size() * sizeof(codegen::Instr) +
                  kernel->buffers.size() * sizeof(codegen::BufferDecl));
  return static_cast<int64_t>(bytes);
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
  generated_->functions = jit_->compile(kernels);
  generated_->jit = jit_;
}

}  // namespace rlx::cpu
