// The one way from a program to what runs it on a device. Each stage can be stopped after, looked at and
// started from.
//
//   hir        blocks
//   mir        ops over tensors, as they were written
//   optimised  after the passes: only what the target has kernels for, or what regions grow over
//   fused      nodes that run as one kernel are regions
//   lir        kernels in order over planned memory
//
//   auto f = compile(graph, backend_for("cpu"));                                  // the whole way
//   GraphModule m = lower_to(CompileStage::fused, graph, *backend);              // some of it
//   m = lower_to(CompileStage::lir, std::move(m), *backend, {}, CompileStage::fused);
//   auto g = compile(m, backend);                                                // the rest
//
// Sizes that are symbols stay symbols on the whole way: a program is passed, fused and compiled once, and its executable
// is told what they stand for (Executable::bind). Where an op must know a size before that, there is one compilation
// for each size, and CompileInfo::per_size says why. LIR has numbers: options.dims must say them.
//
// Raises Error(user): "unbound-dim" (LIR of a program whose sizes are not known), "dim-unknown", "negative-dim",
// "hint-range", "dim-hint" (also when sizes are bound), "threads", "stage" (that way leads back, or the backend has no kernels and stops at MIR); and what verifying a
// program and the passes raise.
#pragma once

#include "rlx/compile/options.h"
#include "rlx/device/executable.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/pass.h"
#include "rlx/stages/module.h"

namespace rlx {

enum class CompileStage : uint8_t { hir, mir, optimised, fused, lir };
inline std::span<const std::string_view> enum_names(CompileStage) {
  static constexpr std::string_view names[] = {"hir", "mir", "optimised", "fused", "lir"};
  return names;
}

// What was done on the way, for those who ask.
struct CompileReport {
  // A composite that became its definition, because no kernel takes it.
  struct Decomposed {
    std::string op, label;
    Types types;
    std::string why;
  };
  PassReport passes;
  FusionReport fusion;
  std::vector<Decomposed> decomposed;
  double codegen_seconds = 0;
  // Told after each pass, if set: what it did, and the graph that it left.
  std::function<void(const PassRecord&, const Graph&)> watch;
};

// A graph does not say how far it has come: `graph_is` does. HIR (and so a graph with blocks) and LIR know.
GraphModule lower_to(CompileStage to, GraphModule program, const Backend& backend,
                     const CompileOptions& options = {}, CompileStage graph_is = CompileStage::mir,
                     CompileReport* report = nullptr);

std::unique_ptr<Executable> compile(const Graph& g, const std::shared_ptr<const Backend>& backend,
                                    const CompileOptions& options = {});
// LIR runs with the plan it has, if it was made for this backend.
std::unique_ptr<Executable> compile(GraphModule program,
                                    const std::shared_ptr<const Backend>& backend,
                                    const CompileOptions& options = {},
                                    CompileStage graph_is = CompileStage::mir);

// Ops that run without being decomposed: those with a kernel, those that lowering makes views or steps of, and
// those that regions are made of. For the support table.
std::vector<std::string> native_ops(const Backend& backend);

}  // namespace rlx
