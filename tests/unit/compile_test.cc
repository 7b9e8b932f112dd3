// The one way from a program to running code: every stage can be stopped after, written down, read back and started
// from, and the end is the same.
#include "rlx/compile/compile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "../support/replay.h"
#include "rlx/base/file.h"
#include "rlx/base/function_ref.h"
#include "rlx/compile/pipeline.h"
#include "rlx/ir/text.h"
#include "rlx/ops/control/control.h"
#include "rlx/runtime/extend.h"
#include "rlx/runtime/runtime.h"
#include "rlx/stages/json.h"

namespace rlx::testing {
namespace {

constexpr CompileStage kAll[] = {CompileStage::mir, CompileStage::optimised, CompileStage::fused,
                                 CompileStage::lir};

const std::shared_ptr<const Backend>& cpu_backend() {
  static const auto backend = backend_for("cpu");
  return backend;
}

std::string code_of(FunctionRef<void()> f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.code());
  }
  return "";
}

// A module as a file has it.
GraphModule reread(const GraphModule& m) {
  switch (m.stage()) {
    case GraphStage::hir:
      return module_from_json(hir_to_json(*m.as_hir()));
    case GraphStage::mir:
      return parse(print(*m.as_graph()));
    case GraphStage::lir:
      break;
  }
  return module_from_json(lir_to_json(*m.as_lir()));
}

std::string plan_of(const Executable& e) { return e.info().plan(); }

TEST(Compile, EveryStageCanBeStartedFrom) {
  size_t programs = 0;
  for (const ReplayProgram& p : replay_programs()) {
    SCOPED_TRACE(p.name);
    const std::string whole = plan_of(*compile(p.graph, cpu_backend()));
    EXPECT_FALSE(whole.empty());
    GraphModule m = p.graph;
    CompileStage at = CompileStage::mir;
    for (CompileStage to : kAll) {
      m = reread(lower_to(to, m, *cpu_backend(), {}, at));
      at = to;
      EXPECT_EQ(plan_of(*compile(m, cpu_backend(), {}, at)), whole)
          << enum_names(to)[static_cast<size_t>(to)];
    }
    ++programs;
  }
  EXPECT_GE(programs, 12u);
}

HirModule blocks() {
  HirModule h("ffn");
  const HirNodeId x = h.input("x", {DType::F32, {6, 8}});
  h.set_outputs(
      {h.swiglu_ffn(x, h.param("up", {DType::F32, {8, 12}}), h.param("gate", {DType::F32, {8, 12}}),
                    h.param("down", {DType::F32, {12, 8}}))});
  return h;
}

NamedTensors filled(const Graph& g, const Values& leaves) {
  NamedTensors out;
  for (Value v : leaves) {
    Tensor t(g.type(v).dtype, g.type(v).shape.sizes());
    for (int64_t i = 0; i < t.elements(); ++i)
      t.set_float(i, 0.01 * static_cast<double>((i * 7919 + v.node * 31) % 200) - 1);
    out.emplace(g.node(v).get<LeafAttrs>().name, std::move(t));
  }
  return out;
}

// The first result.
Tensor run(CompiledGraph f) {
  f.set_params(filled(f.signature(), f.signature().params()));
  return f.run(filled(f.signature(), f.signature().inputs()))[0];
}

TEST(Compile, SessionsTakeModulesAtAnyStage) {
  const Session session("cpu");
  const Graph g = blocks().lower_to_mir().into_graph();
  const Tensor want = run(session.compile(g));
  const GraphModule hir = blocks(), lir = lower_to(CompileStage::lir, hir, *cpu_backend());
  EXPECT_EQ(lir.stage(), GraphStage::lir);
  for (const GraphModule& m : {hir, GraphModule(g), reread(hir), lir, reread(lir)})
    EXPECT_TRUE(run(session.compile(m)).same_bits(want));
  // The reference walks the graph that is in it, regions and all.
  CompiledGraph reference = Session("reference").compile(lir);
  EXPECT_EQ(reference.info().plan(), "");
  const Tensor walked = run(std::move(reference));
  for (int64_t i = 0; i < walked.elements(); ++i)
    EXPECT_NEAR(walked.get_float(i), want.get_float(i), 1e-5);
}

// LIR has its code: nothing is generated again, and nothing else has to be kept.
TEST(Compile, LirRunsWithThePlanItHas) {
  std::optional<GraphModule> lir = lower_to(CompileStage::lir, blocks(), *cpu_backend());
  const Program* plan = &lir->as_lir()->plan();
  EXPECT_EQ(plan->target, "cpu");
  EXPECT_GT(plan->generated, 0);
  EXPECT_GT(plan->code_bytes, 0);
  CompiledGraph f = Session("cpu").compile(*lir);
  EXPECT_EQ(f.info().codegen_seconds, 0);
  EXPECT_EQ(f.info().generated, plan->generated);
  const GraphModule again = lower_to(CompileStage::lir, *lir, *cpu_backend());
  EXPECT_EQ(&again.as_lir()->plan(), plan);
  CompiledGraph copy = f.clone();
  lir.reset();
  EXPECT_TRUE(run(std::move(f)).same_bits(run(std::move(copy))));
}

TEST(Compile, SizesAreBoundOnTheWay) {
  HirModule h("linear");
  const HirNodeId x = h.input_batch_seq("x", "batch", "seq", 4, DType::F32);
  h.set_outputs({h.linear(x, h.param("w", {DType::F32, {4, 3}}))});
  const CompileOptions options{.dims = {{"batch", 2}, {"seq", 5}}};
  const GraphModule fused = lower_to(CompileStage::fused, h, *cpu_backend(), options);
  EXPECT_EQ(fused.as_graph()->output_types()[0].shape, (Shape{2, 5, 3}));
  // Up to MIR nothing needs to be known.
  EXPECT_EQ(lower_to(CompileStage::mir, h, *cpu_backend()).as_graph()->symbols().size(), 2u);
  EXPECT_EQ(code_of([&] { lower_to(CompileStage::lir, h, *cpu_backend()); }), "unbound-dim");
  EXPECT_EQ(code_of([&] {
              lower_to(CompileStage::lir, h, *cpu_backend(), {.dims = {{"batch", 2}, {"s", 5}}});
            }),
            "dim-unknown");
  EXPECT_EQ(code_of([&] {
              compile(GraphModule(h), cpu_backend(), {.dims = {{"batch", -2}, {"seq", 5}}});
            }),
            "negative-dim");
}

TEST(Compile, WaysThatLeadNowhere) {
  const Graph g = blocks().lower_to_mir().into_graph();
  const GraphModule lir = lower_to(CompileStage::lir, g, *cpu_backend());
  auto lower = [&](CompileStage to, const GraphModule& m, CompileStage at, Device d) {
    return code_of([&] { lower_to(to, m, *backend_for(d), {}, at); });
  };
  EXPECT_EQ(lower(CompileStage::mir, lir, CompileStage::mir, Device("cpu")), "stage");
  EXPECT_EQ(lower(CompileStage::lir, lir, CompileStage::mir, Device("reference")), "stage");
  EXPECT_EQ(lower(CompileStage::optimised, g, CompileStage::fused, Device("cpu")), "stage");
  EXPECT_EQ(lower(CompileStage::lir, g, CompileStage::hir, Device("cpu")), "stage");
  EXPECT_EQ(lower(CompileStage::lir, g, CompileStage::lir, Device("cpu")), "stage");
  EXPECT_EQ(lower(CompileStage::fused, g, CompileStage::mir, Device("reference")), "stage");
  EXPECT_EQ(lower(CompileStage::mir, blocks(), CompileStage::mir, Device("reference")), "");
  EXPECT_EQ(code_of([&] { compile(g, cpu_backend(), {.threads = -1}); }), "threads");
}

TEST(Compile, ReportsWhatWasDone) {
  CompileReport report;
  lower_to(CompileStage::lir, blocks(), *cpu_backend(), {}, CompileStage::mir, &report);
  ASSERT_FALSE(report.passes.passes.empty());
  EXPECT_EQ(report.passes.passes.back().pass, "fuse_regions");
  EXPECT_GT(report.fusion.regions, 0);
  EXPECT_GT(report.codegen_seconds, 0);
}

// Fusion is a pass like the others, with bodies of control flow and without growth where asked.
TEST(Compile, FusionIsAPass) {
  Builder body("step");
  const Value c = body.input("c", {DType::F32, {4}});
  body.output(op::tanh(body, op::neg(body, c)));
  Builder b("loop");
  const Value x = b.input("x", {DType::F32, {4}});
  b.output(b.emit(op::scan.def, ScanAttrs{.body = body.finish(), .length = 3, .num_carries = 1},
                  std::array{x})[0]);
  const Graph g = b.finish();
  auto regions = [&](std::string_view passes) {
    FusionReport report;
    PassContext context;
    context.fusion = &report;
    const Graph fused = run_passes(g, parse_pipeline(passes), context);
    const Graph& inside = *fused.nodes[1].get<ScanAttrs>().body;
    EXPECT_EQ(report.regions, inside.size() - 1);
    return report.regions;
  };
  EXPECT_EQ(regions("fuse_regions"), 1);
  EXPECT_EQ(regions("fuse_regions(grow=no)"), 2);
  EXPECT_EQ(code_of([&] { regions("fuse_regions(grow=maybe)"); }), "pass-option");
}

// What runs without a definition of its own follows from the target, the lowering and the rules of regions.
TEST(Compile, NativeOps) {
  const std::vector<std::string> names = native_ops(*cpu_backend());
  auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (std::string_view name : {"input", "scan", "reshape", "concat", "region", "matmul", "iota",
                                "reduce_sum", "reduce_max", "sort", "fft"})
    EXPECT_TRUE(has(name)) << name;
  for (std::string_view name : {"reduce_mean", "add", "swiglu"}) EXPECT_FALSE(has(name)) << name;
  EXPECT_TRUE(native_ops(*backend_for("reference")).empty());
}

// ctest asks for it; a program that is invalid after a pass would be found where it became so.
TEST(Compile, TestsVerifyBetweenPasses) { EXPECT_TRUE(CompileOptions().verify); }

// ---- the way as an object

HirModule small_hir(const Dim& rows = 4) {
  HirModule h("ffn");
  const HirNodeId x = h.input("x", {DType::F32, {rows, 8}}), w = h.param("w", {DType::F32, {8, 8}}),
                  b = h.param("b", {DType::F32, {8}});
  h.set_outputs({h.named("proj", [&](HirModule& m) { return m.linear(x, w, b); })});
  return h;
}

TEST(CompilePipeline, GivesWhatTheDriverGives) {
  const opt::CompilePipeline pipeline(cpu_backend());
  for (const ReplayProgram& p : replay_programs()) {
    if (!p.graph.symbols().empty()) continue;
    SCOPED_TRACE(p.name);
    const opt::CompileResult r = pipeline.compile_graph(p.graph);
    EXPECT_EQ(to_string(r.lir.plan()), plan_of(*compile(p.graph, cpu_backend())));
    EXPECT_FALSE(r.has_dynamic_dims());
    CompileReport report;
    const GraphModule fused =
        lower_to(CompileStage::fused, p.graph, *cpu_backend(), {}, CompileStage::mir, &report);
    EXPECT_EQ(r.lir.as_graph(), *fused.as_graph());
    EXPECT_EQ(r.fusion.to_string(), report.fusion.to_string());
    EXPECT_EQ(r.passes.passes.size(), report.passes.passes.size());
    // LIR stays as it is.
    const opt::CompileResult again = pipeline.compile_module(r.lir);
    EXPECT_EQ(again.lir.shared_plan(), r.lir.shared_plan());
    EXPECT_EQ(again.fusion.regions, 0);
  }
}

TEST(CompilePipeline, SymbolsWaitForTheirSizes) {
  const opt::CompilePipeline pipeline(cpu_backend());
  const opt::CompileResult all = pipeline.compile_hir(small_hir(Dim::symbol("n")));
  EXPECT_TRUE(all.has_dynamic_dims());
  EXPECT_EQ(all.dynamic_symbols(), std::vector<std::string>{"n"});
  EXPECT_FALSE(all.lir.has_plan());
  for (int64_t n : {1, 9, 130}) {
    const opt::CompileResult r = all.specialize(pipeline, {{"n", n}});
    ASSERT_TRUE(r.lir.has_plan());
    EXPECT_FALSE(r.has_dynamic_dims());
    EXPECT_EQ(r.fusion.to_string(), all.fusion.to_string());
    CompiledGraph f = Session("cpu").compile(r.lir);
    f.set_params(
        {{"w", Tensor::full(DType::F32, {8, 8}, 0.5)}, {"b", Tensor::full(DType::F32, {8}, 1)}});
    const Tensor y = f.run({{"x", Tensor::full(DType::F32, {n, 8}, 2)}})[0];
    EXPECT_EQ(y.sizes(), (Ints{n, 8}));
    EXPECT_EQ(y.get_float(8 * n - 1), 8 * 0.5 * 2 + 1);
  }
}

TEST(CompilePipeline, InspectsEveryStage) {
  const opt::CompilePipeline pipeline(cpu_backend());
  const opt::PipelineInspect i = inspect_pipeline(pipeline, small_hir());
  const std::string text = i.to_string();
  size_t at = 0;
  for (std::string_view title :
       {"HIR", "MIR (lowered)", "MIR (fusion diff)", "MIR (optimized)", "FUSION", "LIR"}) {
    std::string rule;
    for (size_t k = 0; k < title.size() + 4; ++k) rule += "═";
    const size_t found = text.find(fmt::format("{0}\n══ {1} ══\n{0}\n", rule, title), at);
    ASSERT_NE(found, text.npos) << title;
    at = found;
  }
  EXPECT_TRUE(text.ends_with('\n'));
  EXPECT_TRUE(i.hir.starts_with("hir @ffn (4 nodes, 1 outputs, fusion=")) << i.hir;
  EXPECT_TRUE(i.mir_lowered.starts_with("mir @ffn {")) << i.mir_lowered;
  EXPECT_TRUE(i.mir_diff.starts_with("  diff: ")) << i.mir_diff;
  EXPECT_TRUE(i.lir.starts_with("lir @ffn {")) << i.lir;
  EXPECT_NE(i.fusion.find("fusion: "), i.fusion.npos);
  const opt::PipelineInspect late = inspect_compiled("as given", pipeline.compile_hir(small_hir()));
  EXPECT_EQ(late.hir, "as given");
  EXPECT_TRUE(late.mir_lowered.empty() && late.mir_diff.empty());
  EXPECT_EQ(late.to_string().find("MIR (lowered)"), std::string::npos);
  EXPECT_EQ(late.lir, i.lir);
}

TEST(CompilePipeline, DumpsWhereItIsTold) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / fmt::format("rlx-dump-{}", getpid());
  fs::create_directories(folder);
  const opt::CompilePipeline pipeline(cpu_backend());
  const std::string expected = inspect_pipeline(pipeline, small_hir()).to_string();
  const auto dumped = [&](const std::string& where) {
    setenv("RLX_IR_DUMP", where.c_str(), 1);
    ::testing::internal::CaptureStderr();
    pipeline.compile_hir(small_hir());
    unsetenv("RLX_IR_DUMP");
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string in_folder = (folder / "ffn.ir.txt").string(), file = (folder / "here").string(),
                    nowhere = (folder / "none" / "x").string();
  EXPECT_EQ(dumped(folder.string() + "/"), "[rlx] wrote IR dump to " + in_folder + "\n");
  EXPECT_EQ(read_file(in_folder), expected);
  EXPECT_EQ(dumped(file), "[rlx] wrote IR dump to " + file + "\n");
  EXPECT_EQ(read_file(file), expected);
  EXPECT_TRUE(dumped(nowhere).starts_with("[rlx] RLX_IR_DUMP write failed (" + nowhere + "): "));
  EXPECT_EQ(dumped(""), "");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace rlx::testing
