#include "rlx/cli/output.h"
#include "rlx/cli/tool.h"

int main(int argc, char** argv) {
  rlx::cli::keep_standard_descriptors();
  return rlx::cli::run(std::vector<std::string>(argv + 1, argv + argc));
}
