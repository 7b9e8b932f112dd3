#include "rlx/cli/input.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "rlx/formats/checkpoint.h"
#include "rlx/formats/graph_file.h"
#include "rlx/formats/npy.h"
#include "rlx/stages/json.h"

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

GraphModule read_module(const std::string& file) {
  const bool standard = file == kStandardInput;
  const std::string text = read_input(file);
  if (const size_t first = text.find_first_not_of(" \t\r\n");
      first != std::string::npos && text[first] == '{')
    return module_from_json(text);
  return read_graph(text, standard ? "standard input" : file,
                    standard ? "." : std::filesystem::path(file).parent_path());
}

Graph read_program(const std::string& file) { return read_module(file).into_graph(); }

Graph read_written(const std::string& file) {
  GraphModule m = read_module(file);
  return m.as_hir() ? m.as_hir()->graph() : std::move(m).into_graph();
}

Tensor read_tensor(const std::string& file) {
  return parse_npy(read_input(file), file == kStandardInput ? "standard input" : file);
}

NamedTensors read_checkpoint(const std::string& file) {
  user_check(file != kStandardInput, "standard-input",
             "a checkpoint is read part by part: it is a file, not standard input");
  return load_checkpoint(file);
}

NamedTensors read_tensors(const std::vector<std::string>& words, std::string_view option) {
  NamedTensors out;
  for (const auto& [name, file] : assignments(words, option)) out.emplace(name, read_tensor(file));
  return out;
}

// "name=value", each name once.
std::map<std::string, std::string> assignments(const std::vector<std::string>& words,
                                               std::string_view option) {
  std::map<std::string, std::string> out;
  for (const std::string& w : words) {
    const size_t at = w.rfind('=');
    user_check(at != std::string::npos && at > 0 && at + 1 < w.size(), "assignment",
               "{} {}: expected NAME=VALUE", option, w);
    user_check(out.emplace(w.substr(0, at), w.substr(at + 1)).second, "assignment",
               "{} {}: given twice", option, w.substr(0, at));
  }
  return out;
}

namespace {

// Symbols may be written as graphs show them, ?n.
std::map<std::string, std::string> symbol_assignments(std::vector<std::string> words,
                                                      std::string_view option) {
  for (std::string& w : words)
    if (w.starts_with('?')) w.erase(0, 1);
  return assignments(words, option);
}

}  // namespace

DimBinding read_dims(const std::vector<std::string>& words) {
  DimBinding out;
  for (const auto& [name, text] : symbol_assignments(words, "--dim")) {
    int64_t size = 0;
    user_check(is_number(text, size) && size >= 0, "assignment",
               "--dim {0}={1}: expected a size, as in --dim {0}=8", name, text);
    out.emplace(name, size);
  }
  return out;
}

SizeHints read_hints(const std::vector<std::string>& words) {
  SizeHints out;
  for (const auto& [name, text] : symbol_assignments(words, "--hint")) {
    SizeHint hint;
    const auto is_part = [](const std::string& part, int64_t& value) {
      return part.empty() || is_number(part, value);
    };
    const size_t slash = std::min(text.find('/'), text.size());
    const std::string range = text.substr(0, slash);
    const size_t dots = range.find("..");
    const bool has_range = dots != std::string::npos && range != "..";
    const bool ok = (range.empty() || (has_range && is_part(range.substr(0, dots), hint.min) &&
                                       is_part(range.substr(dots + 2), hint.max))) &&
                    (slash == text.size() || is_number(text.substr(slash + 1), hint.multiple_of));
    user_check(ok, "assignment",
               "--hint {}={}: expected MIN..MAX, /MULTIPLE or both, as in {}=8..512/8", name, text,
               name);
    out.emplace(name, hint);
  }
  return out;
}

Device device_of(const std::string& name) {
  if (name.empty()) return default_device();
  return name;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Device& d : available_devices()) names.push_back(name(d));
  return names;
}

void require_dims(const Graph& g, const DimBinding& dims) {
  for (const std::string& symbol : g.symbols())
    user_check(dims.contains(symbol), "unbound-dim",
               "the size of dim ?{0} is not known; give --dim {0}=SIZE, or a tensor that has it",
               symbol);
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

void add_memory_budget(CLI::App& c, int64_t& bytes) {
  c.add_option("--memory-budget", bytes,
               "Bytes that the values of a run may take at once; what does not fit is computed "
               "again (default: as many "
               "as there are)")
      ->check(whole_number(1));
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
