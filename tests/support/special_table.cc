#include "special_table.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "samples.h"

namespace rlx::testing {

namespace {

constexpr std::string_view kChecks[] = {"agree",         "zero",  "spread", "nan",
                                        "nan-elsewhere", "moved", "machine"};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream text(line);
  for (std::string cell; std::getline(text, cell, '|');) {
    const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    out.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return out;
}

}  // namespace

SpecialTable::SpecialTable() {
  std::ifstream file(RLX_SOURCE_DIR "/tests/special_values.txt");
  check(file.good(), "tests/special_values.txt is missing");
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> c = cells_of(line);
    const std::string where = fmt::format("special_values.txt:{}: {}", number, line);
    check((c.size() == 5 || (c.size() == 6 && c[5] == "long")) && !c[4].empty(),
          "{}: not five cells, or six with the last one 'long'", where);
    check(std::find(std::begin(kChecks), std::end(kChecks), c[0]) != std::end(kChecks),
          "{}: no check {}", where, c[0]);
    check(op_table().find(c[1]) != nullptr, "{}: no op {}", where, c[1]);
    rows_.push_back({c[0], c[1], c[2], c[3], where, c.size() == 6});
  }
}

bool SpecialTable::allows(std::string_view check, std::string_view op, size_t operand,
                          std::string_view value) {
  bool found = false;
  for (Row& r : rows_)
    if (r.check == check && r.op == op &&
        (r.operand == "*" || r.operand == std::to_string(operand)) &&
        (r.value == "*" || r.value == value))
      found = r.used = true;
  return found;
}

std::vector<std::string> SpecialTable::unneeded(bool whole_grid) const {
  std::vector<std::string> out;
  for (const Row& r : rows_)
    if (!r.used && is_wanted(r.op) && r.check != "machine" && (whole_grid || !r.only_long))
      out.push_back(r.where);
  return out;
}

}  // namespace rlx::testing
