// rlx lower: a program taken from one stage of compiling to another.
#include <algorithm>

#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/output.h"
#include "rlx/compile/compile.h"
#include "rlx/formats/graph_file.h"
#include "rlx/stages/inspect.h"
#include "rlx/stages/json.h"

namespace rlx::cli {

namespace {

struct LowerArguments {
  std::string file, out, backend, dump_dir, from = "mir", to = "lir", precision = "f32";
  std::vector<std::string> dims, hints;
  bool fast_math = false, report = false;
  int64_t memory_budget = 0;
};

CompileStage stage_named(const std::string& name) {
  const auto names = enum_names(CompileStage::hir);
  return static_cast<CompileStage>(std::find(names.begin(), names.end(), name) - names.begin());
}

// What can be read again goes to a file; LIR on standard output is for people.
void write(const GraphModule& m, const std::string& out) {
  const bool to_people = is_standard_output(out);
  if (const Graph* g = m.stage() == GraphStage::mir ? m.as_graph() : nullptr)
    return to_people ? print_program(*g) : save_graph(out, *g);
  const LirModule* lir = m.as_lir();
  if (!to_people) return write_file(out, lir ? lir_to_json(*lir) : hir_to_json(*m.as_hir()));
  say("{}", lir ? inspect_lir(*lir) + to_string(lir->plan()) : hir_to_json(*m.as_hir()));
}

void lower_file(const LowerArguments& a, int threads) {
  CompileOptions options;
  options.threads = threads;
  options.dims = read_dims(a.dims);
  options.hints = read_hints(a.hints);
  options.fast_math = a.fast_math;
  options.precision = PrecisionPolicy::parse(a.precision);
  options.memory_budget = a.memory_budget;
  options.dump_dir = a.dump_dir;
  const CompileStage to = stage_named(a.to);
  GraphModule program = read_module(a.file);
  if (const Graph* g = program.as_graph(); g && to == CompileStage::lir)
    require_dims(*g, options.dims);
  CompileReport report;
  const GraphModule m = lower_to(to, std::move(program), *backend_for(device_of(a.backend)),
                                 options, stage_named(a.from), &report);
  if (a.report) note("{}{}", report.passes.to_string(), report.fusion.to_string());
  write(m, a.out);
}

}  // namespace

void add_lower(Cli& cli) {
  auto a = std::make_shared<LowerArguments>();
  const auto names = enum_names(CompileStage::hir);
  const std::vector<std::string> stages(names.begin(), names.end());
  CLI::App* c = cli.command(
      "lower",
      "Takes a program from one stage of compiling to another: hir, mir, optimised, fused, lir",
      "rlx lower model.rlx --to fused -o fused.rlx && rlx lower fused.rlx --from fused --to lir");
  c->add_option("FILE", a->file,
                "Program: a graph as text or bytes, blocks or LIR as JSON; - is standard input")
      ->required();
  c->add_option("--to", a->to, "The stage to stop after")
      ->check(CLI::IsMember(stages))
      ->capture_default_str();
  c->add_option("--from", a->from, "The stage that a graph is at; JSON says so itself")
      ->check(CLI::IsMember(stages))
      ->capture_default_str();
  c->add_option("--backend", a->backend, "Device (default: the best there is)")
      ->check(CLI::IsMember(device_names()));
  c->add_option("--dim", a->dims, "NAME=SIZE of a symbolic dim, once per dim")
      ->allow_extra_args(false);
  c->add_option("--hint", a->hints, kHintHelp)->allow_extra_args(false);
  c->add_option("-o,--out", a->out,
                "File to write, to go on from; - is standard output, which is the default");
  c->add_option("--dump", a->dump_dir, "Folder for the graph after each pass, kernels and plan");
  c->add_flag("--fast-math", a->fast_math, "Allow algebra that changes values");
  c->add_option("--precision", a->precision, kPrecisionHelp)->capture_default_str();
  add_memory_budget(*c, a->memory_budget);
  c->add_flag("--report", a->report, "Say on stderr what each pass did and what fused");
  c->callback([&cli, a] { cli.action = [a, &cli] { lower_file(*a, thread_count(cli.globals)); }; });
}

}  // namespace rlx::cli
