// The way of compile.h as an object: the same driver, asked stage by stage, with its report kept beside the result.
//
//   opt::CompilePipeline pipeline(backend_for("cpu"));
//   opt::CompileResult r = pipeline.compile_graph(graph);
//   r.lir.arena_size(), r.fusion.to_string();
//   CompiledGraph f = Session("cpu").compile(r.lir);          // with that plan
//
//   opt::PipelineInspect texts = inspect_pipeline(pipeline, hir);
//   texts.to_string();                                        // HIR, MIR, what fusion changed, LIR
//
// A program with symbols has LIR without a plan until specialize() says what they stand for.
//
// Raises what compile.h raises.
#pragma once

#include "rlx/compile/compile.h"

namespace rlx::opt {

class CompilePipeline;

struct CompileResult {
  LirModule lir;
  FusionReport fusion;
  PassReport passes;

  bool has_dynamic_dims() const { return lir.has_dynamic_dims(); }
  std::vector<std::string> dynamic_symbols() const { return lir.dynamic_symbols(); }
  // Plans again, for these sizes; the reports stay.
  CompileResult specialize(const CompilePipeline& pipeline, const DimBinding& sizes) const;
};

class CompilePipeline {
 public:
  explicit CompilePipeline(std::shared_ptr<const Backend> backend, CompileOptions options = {})
      : backend_(std::move(backend)), options_(std::move(options)) {}
  const Backend& backend() const { return *backend_; }
  const CompileOptions& options() const { return options_; }
  CompilePipeline with(CompileOptions options) const {
    return CompilePipeline(backend_, std::move(options));
  }

  MirModule lower_hir(HirModule hir) const;
  // The passes and fusion.
  MirModule optimize(MirModule mir) const;
  std::pair<MirModule, CompileReport> optimize_with_report(MirModule mir) const;
  // Of what optimize gave.
  LirModule plan_lir(MirModule optimised) const;
  LirModule specialize_lir(const LirModule& lir, const DimBinding& sizes) const;

  // Where RLX_IR_DUMP is set, compiling HIR writes the texts of all stages there (maybe_dump_pipeline).
  CompileResult compile_hir(HirModule hir) const;
  CompileResult compile_mir(MirModule mir) const;
  CompileResult compile_graph(Graph g) const { return compile_module(std::move(g)); }
  // By its stage; LIR that has a plan stays as it is, with empty reports.
  CompileResult compile_module(GraphModule module) const;

 private:
  std::shared_ptr<const Backend> backend_;
  CompileOptions options_;
};

// What there was at each stage, as text for people (stages/inspect.h).
struct PipelineInspect {
  std::string hir, mir_lowered, mir_diff, mir_optimized, lir, fusion;
  std::string to_string() const;  // under banners; what is empty is left out
};

PipelineInspect inspect_pipeline(const CompilePipeline& pipeline, const HirModule& hir);
PipelineInspect inspect_compiled(std::string hir_text, const CompileResult& result);
std::string inspect_fusion(const FusionReport& report);
// Writes the text to the file that RLX_IR_DUMP names, if it is set; where it ends in '/' or '\', to <module>.ir.txt in that
// folder, of whose name letters that mean something to a file system become '_'. Says so, or why it could not, on standard error.
void maybe_dump_pipeline(const PipelineInspect& dump, const std::string& module);

}  // namespace rlx::opt
