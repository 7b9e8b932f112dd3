// rlx explain: what was made of a program, as JSON, as a page, or in a few lines.
#include "rlx/explain/explain.h"

#include <nlohmann/json.hpp>

#include "rlx/base/file.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/interrupt.h"
#include "rlx/cli/output.h"

namespace rlx::cli {

namespace {

struct ExplainArguments {
  std::string file, backend, html;
  std::vector<std::string> inputs, params, dims, hints;
  double gflops = 0, gbytes = 0;
  int runs = 5;
  bool json = false, measure = false, fast_math = false;
};

std::string bytes_text(double bytes) {
  static constexpr std::string_view units[] = {"B", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit ? 1 : 0, units[unit]);
}

// A few lines for people; all of it is in the JSON.
void summarise(const nlohmann::ordered_json& j) {
  const auto& program = j.at("program");
  say("{}: on {}\n", quote(j.at("name").get<std::string>()),
      j.at("environment").at("device").get<std::string>());
  for (const auto& stage : j.at("stages"))
    say("  {:<10} {} nodes\n", stage.at("stage").get<std::string>(),
        stage.at("graph").at("nodes").size());
  say("  {:<10} {} steps in {} launches\n", "lir", program.at("steps").size(),
      program.at("launches").size());
  const auto& fusion = j.at("fusion");
  say("fusion: {} nodes in {} regions, {} refusals; {} composites decomposed\n",
      fusion.at("nodes").get<int>(), fusion.at("regions").get<int>(), fusion.at("refusals").size(),
      j.at("dispatch").at("decomposed").size());
  say("memory: {} of arena, at most {} in use at once, {} without reuse\n",
      bytes_text(program.at("arena_bytes").get<double>()),
      bytes_text(program.at("largest_live_bytes").get<double>()),
      bytes_text(program.at("unshared_bytes").get<double>()));
  double flops = 0;
  for (const auto& launch : program.at("launches")) flops += launch.at("flops").get<double>();
  say("work: {:.4g} GF\n", flops * 1e-9);
  if (const auto& measured = j.at("measured"); !measured.is_null())
    say("measured: {:.1f} us, best of {} runs\n", measured.at("seconds").get<double>() * 1e6,
        measured.at("runs").get<int>());
}

void explain_file(const ExplainArguments& a, const Globals& globals) {
  user_check(!a.json || a.html != "-", "standard-output",
             "--json and --html - would both write to standard output");
  user_check((a.gflops > 0) == (a.gbytes > 0), "limits", "--gflops and --gbytes belong together");
  GraphModule program = read_module(a.file);
  ExplainOptions options;
  options.inputs = read_tensors(a.inputs, "--input");
  options.params = read_tensors(a.params, "--param");
  options.compile.threads = globals.threads;
  options.compile.dims = read_dims(a.dims);
  options.compile.hints = read_hints(a.hints);
  options.compile.fast_math = a.fast_math;
  options.run = a.measure || !a.inputs.empty();
  options.runs = a.runs;
  options.cancel = &cancel_flag();
  if (a.gflops > 0) options.limits = MachineLimits{a.gflops, a.gbytes};
  const Explanation e = explain(std::move(program), device_of(a.backend), options);
  if (!a.html.empty()) {
    if (is_standard_output(a.html))
      say("{}", e.html());
    else
      write_file(a.html, e.html());
  }
  if (a.json)
    say("{}\n", e.json());
  else if (a.html != "-")
    summarise(nlohmann::ordered_json::parse(e.json()));
}

}  // namespace

void add_explain(Cli& cli) {
  auto a = std::make_shared<ExplainArguments>();
  CLI::App* c = cli.command(
      "explain", "Says what was made of a program: stages, passes, fusion, kernels, memory",
      "rlx explain model.rlx --measure --html report.html");
  c->add_option("FILE", a->file,
                "Program: a graph as text or bytes, blocks or LIR as JSON; - is standard input")
      ->required();
  c->add_option("--html", a->html, "File for a page that shows it all; - is standard output");
  c->add_flag("--json", a->json, "All of it as JSON (docs/explain.md) to standard output");
  c->add_option("--input", a->inputs,
                "NAME=FILE.npy, once per input; the program is run and measured")
      ->allow_extra_args(false);
  c->add_option("--param", a->params, "NAME=FILE.npy, once per parameter")->allow_extra_args(false);
  c->add_flag("--measure", a->measure,
              "Run and measure it; inputs and parameters that are not given are made up");
  c->add_option("--runs", a->runs, "Runs of which the best counts")
      ->check(whole_number(1, 1000000))
      ->capture_default_str();
  c->add_option("--gflops", a->gflops,
                "The machine's f32 operations in 1e9 a second, instead of measuring them")
      ->check(positive_number());
  c->add_option("--gbytes", a->gbytes, "Its traffic with memory in 1e9 bytes a second")
      ->check(positive_number());
  c->add_option("--dim", a->dims, "NAME=SIZE of a symbolic dim, once per dim")
      ->allow_extra_args(false);
  c->add_option("--hint", a->hints, kHintHelp)->allow_extra_args(false);
  c->add_option("--backend", a->backend, "Device (default: the best there is)")
      ->check(CLI::IsMember(device_names()));
  c->add_flag("--fast-math", a->fast_math, "Allow algebra that changes values");
  c->callback([&cli, a] { cli.action = [a, &cli] { explain_file(*a, cli.globals); }; });
}

}  // namespace rlx::cli
