// rlx print, rlx verify: a graph file read and checked.
#include <unistd.h>

#include <algorithm>

#include "rlx/base/file.h"
#include "rlx/base/printable.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/output.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/text.h"
#include "rlx/stages/svg.h"

namespace rlx::cli {

namespace {

std::string leaves(const Graph& g, const Values& values) {
  std::vector<std::string> out;
  for (Value v : values)
    out.push_back(fmt::format("{} {}", printable(g.node(v).get<LeafAttrs>().name), g.type(v)));
  return out.empty() ? "none" : fmt::format("{}", fmt::join(out, ", "));
}

// As text, or drawn into a file.
void print_file(const std::string& file, const std::string& svg,
                const std::vector<std::string>& dims) {
  Graph g = read_written(file);
  if (const DimBinding sizes = read_dims(dims); !sizes.empty()) {
    const std::vector<std::string> symbols = g.symbols();
    for (const auto& [name, size] : sizes)
      user_check(std::find(symbols.begin(), symbols.end(), name) != symbols.end(), "dim-unknown",
                 "graph \"{}\" has no dim ?{}; it has {}", g.name, name,
                 symbols.empty() ? "none" : fmt::format("?{}", fmt::join(symbols, ", ?")));
    g = rlx::bind(g, sizes);
  }
  if (svg.empty()) return print_program(g);
  svg == "-" ? write_output(to_svg(g)) : write_file(svg, to_svg(g));
}

// Reading verifies; what is left is to say what was read.
void verify_file(const std::string& file) {
  const Graph g = read_written(file);
  std::vector<std::string> outputs, symbols;
  for (const Type& t : g.output_types()) outputs.push_back(t.to_string());
  for (const std::string& s : g.symbols()) symbols.push_back("?" + s);
  say("{}: graph @{} is valid\n  {} nodes, {} updates\n  inputs: {}\n  parameters: {}\n  outputs: "
      "{}\n",
      file, printable(g.name), g.size(), g.updates.size(), leaves(g, g.inputs()),
      leaves(g, g.params()), fmt::join(outputs, ", "));
  if (!symbols.empty()) say("  symbolic dims: {}\n", fmt::join(symbols, ", "));
}

}  // namespace

void print_program(const Graph& g) {
  TextStore store;
  say("{}", print(g, ::isatty(STDOUT_FILENO) ? &store : nullptr));
}

void add_print(Cli& cli) {
  auto file = std::make_shared<std::string>(), svg = std::make_shared<std::string>();
  auto dims = std::make_shared<std::vector<std::string>>();
  CLI::App* c = cli.command("print", "Reads a graph and prints it in its normal form, or draws it",
                            "rlx print model.rlx --svg model.svg");
  c->add_option("FILE", *file, "Graph, as text, bytes or JSON; - is standard input")->required();
  c->add_option("--svg", *svg, "File for a drawing, blocks as boxes, in the place of the text");
  c->add_option("--dim", *dims, "NAME=SIZE of a symbolic dim, once per dim")
      ->allow_extra_args(false);
  c->callback([&cli, file, svg, dims] {
    cli.action = [file, svg, dims] { print_file(*file, *svg, *dims); };
  });
}

void add_verify(Cli& cli) {
  auto file = std::make_shared<std::string>();
  CLI::App* c = cli.command("verify", "Reads a graph and checks it", "rlx verify model.rlx");
  c->add_option("FILE", *file, "Graph, as text or bytes; - is standard input")->required();
  c->callback([&cli, file] { cli.action = [file] { verify_file(*file); }; });
}

}  // namespace rlx::cli
