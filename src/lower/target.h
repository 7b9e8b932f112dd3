// Target: what lowering asks a backend. Kernel choice comes before memory planning.
#pragma once

#include "rlx/base/decision.h"
#include "rlx/lower/layout.h"
#include "rlx/ops/region_schedule.h"

namespace rlx {

// A kernel whose sizes are not known yet: its code, made with that of all others by Target::finish().
class KernelForm {
 public:
  virtual ~KernelForm() = default;
  // The kernel for these sizes. Makes no code; may be called by several threads at once.
  virtual std::shared_ptr<const StepKernel> at(const DimBinding& sizes) const = 0;
};

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string_view name() const = 0;

  // Whether there is a kernel for this node as it stands; composites that no kernel takes are
  // decomposed.
  virtual Decision accepts(const Node& n, const Graph& g) const = 0;
  // Who takes the node, and who was asked before and would not: for reports. Empty name: nobody.
  struct Choice {
    std::string kernel;
    std::vector<std::pair<std::string, std::string>> refused;  // name, reason
  };
  virtual Choice choice(const Node& n, const Graph& g) const {
    const Decision takes = accepts(n, g);
    if (takes) return {std::string(name()), {}};
    return {{}, {{std::string(name()), takes.why()}}};
  }
  // Whether the kernel reads operand `i` through a view that is not dense; if not, lowering copies
  // it first.
  virtual Decision takes_view(const Node& n, const Graph& g, size_t i, const View& v) const = 0;
  // The kernel for a node on these views. Generated kernels become runnable with finish().
  virtual std::shared_ptr<const StepKernel> make(const Node& n, const Graph& g,
                                                 std::span<const View> in,
                                                 std::span<const View> out) = 0;
  virtual std::shared_ptr<const StepKernel> make_copy(const View& from, const View& to) = 0;
  // Of a region, for all sizes. As it stands: Error(unsupported, "symbolic-sizes"), and programs are compiled for each size.
  virtual std::shared_ptr<const KernelForm> form(const Node& region, std::span<const Layout> in,
                                                 std::span<const Layout> out);
  virtual void finish() = 0;
  // How it wants regions to be grown and cut.
  virtual RegionSchedule schedule() const { return {}; }
  // Which steps are launched together (Program::chains, which comes empty), and the scratch memory of a worker.
  // Comes before planning, which treats a chain as one moment. As it stands: each step alone.
  virtual void arrange(Program& p) const;

  // Whether its kernel for the op comes before fusion: a user's. Such nodes are part of no region.
  virtual bool goes_first(const OpDef& op) const { return (void)op, false; }
  // Whether it has a kernel for some nodes of the op.
  virtual bool has_kernel(const OpDef& op) const { return (void)op, false; }
  // Of generated code, once it is made: distinct kernels, those of them that were made before and kept on
  // disk, and bytes.
  virtual int generated() const { return 0; }
  virtual int cached() const { return 0; }
  virtual int64_t code_bytes() const { return 0; }
  // What it keeps of kernels besides their code, about.
  virtual int64_t form_bytes() const { return 0; }
};

}  // namespace rlx
