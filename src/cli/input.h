// What the user gives: files, where - is standard input, and numbers.
#pragma once

#include <string>

#include "rlx/cli/cli.h"

namespace rlx::cli {

// The content of a file. Standard input can be read once: Error(user, "standard-input").
std::string read_input(const std::string& file);
Graph read_program(const std::string& file);
Tensor read_tensor(const std::string& file);

// Checks of options: decimal digits, and nothing else, for a number of at least `least` (and at most
// `most`); a finite number above 0.
CLI::Validator whole_number(uint64_t least, uint64_t most = INT64_MAX);
CLI::Validator positive_number();

}  // namespace rlx::cli
