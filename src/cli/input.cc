#include "rlx/cli/input.h"

#include <charconv>
#include <cmath>

#include "rlx/formats/graph_file.h"
#include "rlx/formats/npy.h"

namespace rlx::cli {

namespace {

constexpr const char* kStandardInput = "-";

template <class T>
bool is_number(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string read_input(const std::string& file) {
  if (file != kStandardInput) return read_file(file);
  std::string all = read_standard_input();
  user_check(!all.empty(), "standard-input",
             "standard input is empty; it is read once, so - can stand for one file only");
  return all;
}

Graph read_program(const std::string& file) {
  return file == kStandardInput ? read_graph(read_input(file), "standard input", ".")
                                : load_graph(file);
}

Tensor read_tensor(const std::string& file) {
  return parse_npy(read_input(file), file == kStandardInput ? "standard input" : file);
}

CLI::Validator whole_number(uint64_t least, uint64_t most) {
  return {[=](std::string& text) -> std::string {
            uint64_t value = 0;
            if (is_number(text, value) && value >= least && value <= most) return {};
            const std::string above = most == INT64_MAX || most == UINT64_MAX
                                          ? fmt::format("of at least {}", least)
                                          : fmt::format("from {} to {}", least, most);
            return fmt::format("expected a whole number {}, got {}", above, text);
          },
          "NUMBER"};
}

CLI::Validator positive_number() {
  return {[](std::string& text) -> std::string {
            double value = 0;
            if (is_number(text, value) && value > 0 && std::isfinite(value)) return {};
            return fmt::format("expected a number above 0, got {}", text);
          },
          "NUMBER"};
}

}  // namespace rlx::cli
