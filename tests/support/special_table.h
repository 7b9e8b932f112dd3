// The table of exceptions, tests/special_values.txt: check | op | operand | value | why, one a line; with a sixth cell `long`
// where only the whole grid (tests/long) needs it.
//
//   SpecialTable table;
//   if (!table.allows("nan", "nansum", 0, "nan")) fail(...);
//   table.unneeded(false);      // lines that allowed nothing
//
// A cell * stands for every operand or value. Raises Error(internal) for a line that is not of this form or names no op.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rlx::testing {

class SpecialTable {
 public:
  SpecialTable();
  bool allows(std::string_view check, std::string_view op, size_t operand, std::string_view value);
  // Lines that allowed nothing; those marked 'long' count when the whole grid was run.
  std::vector<std::string> unneeded(bool whole_grid) const;
  size_t size() const { return rows_.size(); }

 private:
  struct Row {
    std::string check, op, operand, value, where;
    bool only_long, used = false;
  };
  std::vector<Row> rows_;
};

}  // namespace rlx::testing
