// rlx print, rlx verify: a graph file read and checked.
#include "rlx/cli/cli.h"
#include "rlx/formats/graph_file.h"
#include "rlx/ir/text.h"

namespace rlx::cli {

namespace {

std::string leaves(const Graph& g, const std::vector<Value>& values) {
  std::vector<std::string> out;
  for (Value v : values)
    out.push_back(fmt::format("{} {}", g.node(v).get<LeafAttrs>().name, g.type(v)));
  return out.empty() ? "none" : fmt::format("{}", fmt::join(out, ", "));
}

void print_file(const std::string& file) {
  TextStore store;  // large constants by hash, as in the file
  fmt::print("{}", print(load_graph(file), &store));
}

// Reading verifies; what is left is to say what was read.
void verify_file(const std::string& file) {
  const Graph g = load_graph(file);
  std::vector<std::string> outputs, symbols;
  for (const Type& t : g.output_types()) outputs.push_back(t.to_string());
  for (const std::string& s : g.symbols()) symbols.push_back("?" + s);
  fmt::print(
      "{}: graph @{} is valid\n  {} nodes, {} updates\n  inputs: {}\n  parameters: {}\n  outputs: "
      "{}\n",
      file, g.name, g.size(), g.updates.size(), leaves(g, g.inputs()), leaves(g, g.params()),
      fmt::join(outputs, ", "));
  if (!symbols.empty()) fmt::print("  symbolic dims: {}\n", fmt::join(symbols, ", "));
}

void add_reader(Cli& cli, const char* name, const char* doc, void (*read)(const std::string&)) {
  auto file = std::make_shared<std::string>();
  CLI::App* c = cli.command(name, doc, fmt::format("rlx {} model.rlx", name));
  c->add_option("FILE", *file, "Graph as text")->required();
  c->callback([&cli, file, read] { cli.action = [file, read] { read(*file); }; });
}

}  // namespace

void add_print(Cli& cli) {
  add_reader(cli, "print", "Reads a graph and prints it in its normal form", print_file);
}
void add_verify(Cli& cli) { add_reader(cli, "verify", "Reads a graph and checks it", verify_file); }

}  // namespace rlx::cli
