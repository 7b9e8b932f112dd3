// rlx opt: passes over a graph file.
#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/output.h"
#include "rlx/formats/graph_file.h"
#include "rlx/passes/passes.h"

namespace rlx::cli {

namespace {

struct OptArguments {
  std::string file, passes, out, dump_dir;
  bool fast_math = false, report = false, list = false;
};

void list_passes() {
  for (const Pass* p : all_passes()) {
    say("{:<16} {}\n", p->name, p->doc);
    for (const PassArgument& a : p->arguments) say("{:<16}   {}=  {}\n", "", a.name, a.doc);
  }
  say("\ndefault: {}\n", to_string(default_pipeline()));
}

void optimise(const OptArguments& o) {
  const Pipeline pipeline = o.passes.empty() ? default_pipeline() : parse_pipeline(o.passes);
  PassReport report;
  const Graph g = run_passes(read_written(o.file), pipeline,
                             {.dump_dir = o.dump_dir, .fast_math = o.fast_math, .report = &report});
  if (o.report) note("{}", report.to_string());
  if (!is_standard_output(o.out)) return save_graph(o.out, g);
  print_program(g);
}

}  // namespace

void add_opt(Cli& cli) {
  auto o = std::make_shared<OptArguments>();
  CLI::App* c = cli.command(
      "opt", "Transforms and optimises a graph",
      "rlx opt model.rlx --passes \"value_and_grad(wrt=w|b),simplify,cse\" -o grad.rlx");
  c->add_option("FILE", o->file, "Graph, as text or bytes; - is standard input");
  c->add_option("--passes", o->passes, "Passes in order (default: those before fusion)");
  c->add_option("-o,--out", o->out, "File to write; - is standard output, which is the default");
  c->add_option("--dump", o->dump_dir, "Folder for the graph after each pass");
  c->add_flag("--fast-math", o->fast_math, "Allow algebra that changes values");
  c->add_flag("--report", o->report, "Say on stderr what each pass and rule did");
  c->add_flag("--list", o->list, "List the passes and their arguments");
  c->callback([&cli, o] {
    if (!o->list && o->file.empty()) throw CLI::RequiredError("FILE");
    cli.action = [o] { o->list ? list_passes() : optimise(*o); };
  });
}

}  // namespace rlx::cli
