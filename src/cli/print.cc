// rlx print, rlx verify: a graph file read and checked.
#include <unistd.h>

#include "rlx/base/printable.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/output.h"
#include "rlx/ir/text.h"

namespace rlx::cli {

namespace {

std::string leaves(const Graph& g, const Values& values) {
  std::vector<std::string> out;
  for (Value v : values)
    out.push_back(fmt::format("{} {}", printable(g.node(v).get<LeafAttrs>().name), g.type(v)));
  return out.empty() ? "none" : fmt::format("{}", fmt::join(out, ", "));
}

void print_file(const std::string& file) { print_program(read_program(file)); }

// Reading verifies; what is left is to say what was read.
void verify_file(const std::string& file) {
  const Graph g = read_program(file);
  std::vector<std::string> outputs, symbols;
  for (const Type& t : g.output_types()) outputs.push_back(t.to_string());
  for (const std::string& s : g.symbols()) symbols.push_back("?" + s);
  say("{}: graph @{} is valid\n  {} nodes, {} updates\n  inputs: {}\n  parameters: {}\n  outputs: "
      "{}\n",
      file, printable(g.name), g.size(), g.updates.size(), leaves(g, g.inputs()),
      leaves(g, g.params()), fmt::join(outputs, ", "));
  if (!symbols.empty()) say("  symbolic dims: {}\n", fmt::join(symbols, ", "));
}

void add_reader(Cli& cli, const char* name, const char* doc, void (*read)(const std::string&)) {
  auto file = std::make_shared<std::string>();
  CLI::App* c = cli.command(name, doc, fmt::format("rlx {} model.rlx", name));
  c->add_option("FILE", *file, "Graph, as text or bytes; - is standard input")->required();
  c->callback([&cli, file, read] { cli.action = [file, read] { read(*file); }; });
}

}  // namespace

void print_program(const Graph& g) {
  TextStore store;
  say("{}", print(g, ::isatty(STDOUT_FILENO) ? &store : nullptr));
}

void add_print(Cli& cli) {
  add_reader(cli, "print", "Reads a graph and prints it in its normal form", print_file);
}
void add_verify(Cli& cli) { add_reader(cli, "verify", "Reads a graph and checks it", verify_file); }

}  // namespace rlx::cli
