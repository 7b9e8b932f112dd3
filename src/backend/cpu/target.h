// The CPU as a Target: regions are generated, everything else comes from an ordered list of native
// kernels, the first row that accepts a node wins (kernel_list.h).
#pragma once

#include <map>

#include "rlx/backend/cpu/block_kernel.h"
#include "rlx/backend/cpu/jit.h"
#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/codegen/region_kernel.h"
#include "rlx/lower/host_kernel.h"
#include "rlx/lower/target.h"

namespace rlx::cpu {

struct KernelRow {
  const OpDef* op;
  std::string_view name;  // empty: the op's
  Decision (*accepts)(const Node& n, const Graph& g);
  // May operand i be this view, which is not dense?
  Decision (*takes_view)(const Node& n, size_t i, const View& v);
  std::shared_ptr<const StepKernel> (*make)(Isa isa, const Node& n, std::span<const View> in,
                                            std::span<const View> out);
};

// Generated code, by the number that finding its kernel gave. It lives as long as somebody holds this.
struct GeneratedCode {
  std::shared_ptr<CpuJit> jit;
  std::vector<KernelFn> functions;  // from finish() on
};

class CpuTarget final : public Target {
 public:
  explicit CpuTarget(const CpuJitOptions& options, const RegionSchedule& schedule = {});
  ~CpuTarget() override;

  std::string_view name() const override { return "cpu"; }
  Decision accepts(const Node& n, const Graph& g) const override;
  Choice choice(const Node& n, const Graph& g) const override;
  Decision takes_view(const Node& n, const Graph& g, size_t i, const View& v) const override;
  std::shared_ptr<const StepKernel> make(const Node& n, const Graph& g, std::span<const View> in,
                                         std::span<const View> out) override;
  std::shared_ptr<const StepKernel> make_copy(const View& from, const View& to) override;
  std::shared_ptr<const KernelForm> form(const Node& region, std::span<const Layout> in,
                                         std::span<const Layout> out) override;
  void finish() override;  // compiles what was generated, each distinct kernel once
  RegionSchedule schedule() const override { return schedule_; }
  void arrange(Program& p) const override;  // neighbours over the same rows run tile by tile

  bool goes_first(const OpDef& op) const override { return user_kernels_->contains(&op); }
  bool has_kernel(const OpDef& op) const override;
  int generated() const override { return static_cast<int>(code_.size()); }
  int cached() const override { return generated() - static_cast<int>(jit_->generated()); }
  int64_t code_bytes() const override { return jit_->resident_bytes(); }
  int64_t form_bytes() const override;
  // The distinct kernels that were generated, in order.
  std::span<const std::shared_ptr<codegen::Kernel>> code() const { return code_; }

 private:
  const KernelRow* row_for(const Node& n, const Graph& g, Choice* choice = nullptr) const;
  size_t code_of(const codegen::Kernel& kernel);  // its number; equal ones have one

  std::shared_ptr<CpuJit> jit_;
  std::shared_ptr<GeneratedCode> generated_;
  Isa isa_;
  RegionSchedule schedule_;
  std::shared_ptr<const std::map<const OpDef*, std::shared_ptr<const HostKernel>>> user_kernels_;
  std::vector<std::shared_ptr<codegen::Kernel>> code_;  // distinct kernels
  std::multimap<uint64_t, size_t> by_hash_;
};

}  // namespace rlx::cpu
