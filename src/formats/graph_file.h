// Graphs as files: text, or with the ending .rlxb bytes (ir/graph_bytes.h). Loading looks at the
// contents, not at the name.
//
//   save_graph("model.rlxb", g);
//   save_graph("model.rlx", g);       // and model.rlx.consts, when a constant is larger than 1 KiB
//   Graph g = load_graph("model.rlx");
//
// The side file is a checkpoint whose names are the hashes that the text uses; it is written first.
// Both files are replaced atomically, one after the other. Loading raises Error(data, "parse") with
// line:column, what checkpoint.h raises, and "constant-hash" when a constant is not the one that
// its name says.
#pragma once

#include "rlx/formats/file.h"
#include "rlx/ir/graph.h"

namespace rlx {

Graph load_graph(const std::filesystem::path& path);
void save_graph(const std::filesystem::path& path, const Graph& g);

}  // namespace rlx
