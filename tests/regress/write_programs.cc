// Writes the programs that `make bench-regress` times, one text a file: write_programs FOLDER
#include <filesystem>
#include <map>

#include "../../bench/symbolic_cases.h"
#include "../support/replay.h"
#include "rlx/formats/graph_file.h"

int main(int argc, char** argv) {
  using namespace rlx;
  if (argc != 2) return fmt::print(stderr, "usage: write_programs FOLDER\n"), 2;
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const Graph& g) {
    save_graph(folder / (name + ".rlx"), g);
  };
  using Sizes = std::map<std::string, int64_t>;
  const auto minilm = symbolic::symbolic_bert(6, 384, 12, 30522).graph;
  write("minilm_1x16", rlx::bind(minilm, Sizes{{"batch", 1}, {"length", 16}}));
  write("minilm_1x128", rlx::bind(minilm, Sizes{{"batch", 1}, {"length", 128}}));
  write("minilm_8x128", rlx::bind(minilm, Sizes{{"batch", 8}, {"length", 128}}));
  write("bert_base_1x128", rlx::bind(symbolic::symbolic_bert(12, 768, 12, 30522).graph,
                                     Sizes{{"batch", 1}, {"length", 128}}));
  write("gpt2_128",
        rlx::bind(symbolic::symbolic_gpt(12, 768, 12, 50257).graph, Sizes{{"length", 128}}));
  write("conv_net_64",
        rlx::bind(symbolic::symbolic_conv_net().graph, Sizes{{"height", 64}, {"width", 64}}));
  write("rnn_100", rlx::bind(symbolic::symbolic_rnn().graph, Sizes{{"steps", 100}}));
  for (const auto& p : testing::replay_programs()) write("replay_" + p.name, p.graph);
}
