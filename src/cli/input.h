// What the user gives: files, where - is standard input, and numbers.
#pragma once

#include <string>

#include "rlx/cli/cli.h"
#include "rlx/stages/module.h"

namespace rlx::cli {

// The content of a file. Standard input can be read once: Error(user, "standard-input").
std::string read_input(const std::string& file);
// A program at any stage: a graph as text or bytes, blocks or LIR as JSON (stages/json.h).
GraphModule read_module(const std::string& file);
Graph read_program(const std::string& file);  // its graph, blocks lowered
Graph read_written(const std::string& file);  // its graph, blocks as they stand
Tensor read_tensor(const std::string& file);
NamedTensors read_checkpoint(const std::string& file);  // a file, not standard input
// Words "NAME=FILE.npy".
NamedTensors read_tensors(const std::vector<std::string>& words, std::string_view option);

// Words "NAME=VALUE", each name once; sizes likewise.
std::map<std::string, std::string> assignments(const std::vector<std::string>& words,
                                               std::string_view option);
// The default one where none is named.
Device device_of(const std::string& name);
std::vector<std::string> device_names();  // that there are
DimBinding read_dims(const std::vector<std::string>& words);
SizeHints read_hints(const std::vector<std::string>& words);  // NAME=MIN..MAX/MULTIPLE
inline constexpr const char* kHintHelp =
    "NAME=MIN..MAX/MULTIPLE of a symbolic dim, parts may be left out: n=8..512/8, n=..512, n=/8; "
    "less code is made, other sizes are refused";
inline constexpr const char* kPrecisionHelp =
    "Of what is computed: f32, mixed f16 or bf16 (products; parameters and outputs keep their "
    "dtypes), or a policy "
    "(auto_mixed, auto_mixed_bf16, auto_mixed_conservative, always_f16)";
// Raises "unbound-dim", saying how to bind it.
void require_dims(const Graph& g, const DimBinding& dims);

// Checks of options: decimal digits, and nothing else, for a number of at least `least` (and at most
// `most`); a finite number above 0.
CLI::Validator whole_number(uint64_t least, uint64_t most = INT64_MAX);
CLI::Validator positive_number();

// --memory-budget, the same for every command that compiles.
void add_memory_budget(CLI::App& c, int64_t& bytes);

}  // namespace rlx::cli
