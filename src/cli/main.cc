#include "rlx/cli/tool.h"

int main(int argc, char** argv) {
  return rlx::cli::run(std::vector<std::string>(argv + 1, argv + argc));
}
