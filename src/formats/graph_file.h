// Graphs as files: text, or with the ending .rlxb bytes (ir/graph_bytes.h). Loading looks at the
// contents, not at the name.
//
//   save_graph("model.rlxb", g);
//   save_graph("model.rlx", g);  // and model.rlx.<hash>.consts, for constants larger than 1 KiB
//   Graph g = load_graph("model.rlx");
//
// The side file is a checkpoint whose names are the hashes that the text uses. The text's first line
// names it, and its own name has the hash of what it holds: it is written first, the rename of the
// text is the moment at which the new program is there, and side files of the name that the text no
// longer needs are removed after that. A save that fails or is killed leaves the old program or the
// new one, and what it leaves besides goes with the next save. Into a pipe or a device a text is
// written with all its constants.
//
// Loading raises Error(data, "parse") with line:column, what checkpoint.h raises, "constant-file"
// when the side file is lost and "constant-hash" when a constant is not the one that its name says.
#pragma once

#include "rlx/base/file.h"
#include "rlx/ir/graph.h"

namespace rlx {

Graph load_graph(const std::filesystem::path& path);
void save_graph(const std::filesystem::path& path, const Graph& g);

// The graph in the content of a file called `what`, whose side file, if any, is in the folder.
Graph read_graph(std::string_view content, const std::string& what,
                 const std::filesystem::path& folder);
// The side file that a text names; empty where it names none.
std::string constants_file(std::string_view text);

}  // namespace rlx
