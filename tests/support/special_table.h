// The table of exceptions, tests/special_values.txt: check | op | operand | value | why, one a line.
//
//   SpecialTable table;
//   if (!table.allows("nan", "nansum", 0, "nan")) fail(...);
//   table.unneeded();      // lines that allowed nothing
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
  std::vector<std::string> unneeded() const;
  size_t size() const { return rows_.size(); }

 private:
  struct Row {
    std::string check, op, operand, value, where;
    bool used = false;
  };
  std::vector<Row> rows_;
};

}  // namespace rlx::testing
