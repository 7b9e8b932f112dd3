#include "rlx/compile/pipeline.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "rlx/base/file.h"
#include "rlx/stages/inspect.h"

namespace rlx::opt {

namespace {

std::string banner(std::string_view title, const std::string& body) {
  std::string rule;
  for (size_t i = 0; i < title.size() + 4; ++i) rule += "═";
  const std::string_view end = body.ends_with('\n') ? "" : "\n";
  return fmt::format("{0}\n══ {1} ══\n{0}\n{2}{3}", rule, title, body, end);
}

std::string fusion_text(const FusionReport& report, const MirModule& mir) {
  return inspect_fusion(report) + inspect_mir_stats(mir);
}

PipelineInspect inspect_all(std::string hir_text, const MirModule& lowered,
                            const CompileResult& result) {
  PipelineInspect out = inspect_compiled(std::move(hir_text), result);
  out.mir_lowered = inspect_mir(lowered);
  out.mir_diff = inspect_graph_diff(lowered.as_graph(), result.lir.as_graph());
  return out;
}

const char* dump_file() {
  const char* file = std::getenv("RLX_IR_DUMP");
  return file && *file ? file : nullptr;
}

bool has_free_symbols(const Graph& g, const CompileOptions& options) {
  const auto symbols = g.symbols();
  return std::any_of(symbols.begin(), symbols.end(),
                     [&](const std::string& s) { return !options.dims.contains(s); });
}

}  // namespace

MirModule CompilePipeline::lower_hir(HirModule hir) const {
  return lower_to(CompileStage::mir, std::move(hir), *backend_, options_).into_mir();
}

std::pair<MirModule, CompileReport> CompilePipeline::optimize_with_report(MirModule mir) const {
  CompileReport report;
  GraphModule m = lower_to(CompileStage::fused, std::move(mir), *backend_, options_,
                           CompileStage::mir, &report);
  return {std::move(m).into_mir(), std::move(report)};
}

MirModule CompilePipeline::optimize(MirModule mir) const {
  return optimize_with_report(std::move(mir)).first;
}

LirModule CompilePipeline::plan_lir(MirModule optimised) const {
  if (has_free_symbols(optimised.as_graph(), options_)) return LirModule(std::move(optimised));
  CompileOptions options = options_;
  if (!has_symbols(optimised.as_graph())) options.dims.clear(), options.hints.clear();
  return *lower_to(CompileStage::lir, std::move(optimised), *backend_, options, CompileStage::fused)
              .into_lir();
}

LirModule CompilePipeline::specialize_lir(const LirModule& lir, const DimBinding& sizes) const {
  return plan_lir(rlx::bind(lir.as_graph(), sizes));
}

CompileResult CompilePipeline::compile_hir(HirModule hir) const {
  if (!dump_file()) return compile_mir(lower_hir(std::move(hir)));
  const std::string name = hir.name(), text = inspect_hir(hir);
  const MirModule lowered = lower_hir(std::move(hir));
  CompileResult result = compile_mir(lowered);
  maybe_dump_pipeline(inspect_all(text, lowered, result), name);
  return result;
}

CompileResult CompilePipeline::compile_mir(MirModule mir) const {
  auto [optimised, report] = optimize_with_report(std::move(mir));
  return {plan_lir(std::move(optimised)), std::move(report.fusion), std::move(report.passes)};
}

CompileResult CompilePipeline::compile_module(GraphModule module) const {
  switch (module.stage()) {
    case GraphStage::hir:
      return compile_hir(*std::move(module).into_hir());
    case GraphStage::mir:
      return compile_mir(std::move(module).into_mir());
    case GraphStage::lir:
      break;
  }
  LirModule lir = *std::move(module).into_lir();
  return {lir.has_plan() ? std::move(lir) : plan_lir(lir.mir()), {}, {}};
}

CompileResult CompileResult::specialize(const CompilePipeline& pipeline,
                                        const DimBinding& sizes) const {
  return {pipeline.specialize_lir(lir, sizes), fusion, passes};
}

// ---- texts

std::string PipelineInspect::to_string() const {
  std::string out;
  for (const auto& [title, body] : {std::pair("HIR", &hir),
                                    {"MIR (lowered)", &mir_lowered},
                                    {"MIR (fusion diff)", &mir_diff},
                                    {"MIR (optimized)", &mir_optimized},
                                    {"FUSION", &fusion},
                                    {"LIR", &lir}})
    if (!body->empty()) out += banner(title, *body);
  return out;
}

PipelineInspect inspect_pipeline(const CompilePipeline& pipeline, const HirModule& hir) {
  const MirModule lowered = pipeline.lower_hir(hir);
  return inspect_all(inspect_hir(hir), lowered, pipeline.compile_mir(lowered));
}

PipelineInspect inspect_compiled(std::string hir_text, const CompileResult& result) {
  PipelineInspect out;
  out.hir = std::move(hir_text);
  out.mir_optimized = inspect_mir(result.lir.mir());
  out.fusion = fusion_text(result.fusion, result.lir.mir());
  out.lir = inspect_lir(result.lir);
  return out;
}

std::string inspect_fusion(const FusionReport& report) { return report.to_string(); }

void maybe_dump_pipeline(const PipelineInspect& dump, const std::string& module) {
  if (!dump_file()) return;
  std::string file = dump_file();
  if (file.ends_with('/') || file.ends_with('\\')) {
    for (char c : module)
      file += std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ? c : '_';
    file += ".ir.txt";
  }
  try {
    write_file(file, dump.to_string());
    fmt::print(stderr, "[rlx] wrote IR dump to {}\n", file);
  } catch (const Error& e) {
    fmt::print(stderr, "[rlx] RLX_IR_DUMP write failed ({}): {}\n", file, e.message());
  }
}

}  // namespace rlx::opt
