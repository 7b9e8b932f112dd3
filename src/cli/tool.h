// The rlx tool as a function.
//
//   int status = cli::run({"ops", "--json"});
//
// Exit status: 0 fine, 1 the request failed (message on stderr), 2 wrong usage, 130 interrupted.
#pragma once

#include <string>
#include <vector>

namespace rlx::cli {

int run(const std::vector<std::string>& args);

}  // namespace rlx::cli
