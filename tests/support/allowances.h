// How far each op may be off: the table tests/allowances.txt, which says of every op the widest allowance that its samples
// get, and the ceilings.
//
//   double most = ceiling_of("softmax", DType::F32, Measured::values);     // of the largest element
//   AllowanceTable measured;
//   measured.cell("softmax", Column::f32).add(stats);
//   measured.expect_as_checked_in({Column::f32});                // RLX_UPDATE_TEXT=1 writes the file instead
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "error_bound.h"

namespace rlx::testing {

// What is measured: values and gradients on the CPU against the reference, and derivatives against those in f64.
enum class Measured { values, gradients, derivatives };

// The widest allowance of such a result of the op, as a fraction of its largest element: a few units in the last place (of
// derivatives against f64: some hundred), or what a `ceiling` line of the table names with its reason.
double ceiling_of(const std::string& op, DType d, Measured m);
double default_ceiling(DType d, Measured m);

struct Ceiling {
  std::string op;
  Measured measured;
  DType dtype;
  double fraction;
  std::string why;
  bool needed = false;  // rounding can do more than the default allows
  std::string text() const;
};
std::vector<Ceiling>& ceilings();
// Notes that a result of the op needs more than the default.
void note_need(const std::string& op, DType d, Measured m);
// Fails for ceilings that nothing of all that this program measured so far needed. With RLX_OPS set it asks nothing.
void expect_ceilings_needed(Measured m, std::optional<DType> d = {});

enum class Column { f32, f32_gradients, f64, f64_gradients, narrow_f32, narrow_bf16, narrow_f16 };
inline constexpr size_t kColumns = 7;

class AllowanceTable {
 public:
  CompareStats& cell(const std::string& op, Column c) { return rows_[op][static_cast<size_t>(c)]; }
  // Prints these columns. Fails where they differ from the file by more than a quarter (other mathematical libraries
  // round otherwise), or hold an allowance above the limits: 1e-3 of the largest element for values in f32, 1e-2 for
  // gradients, 1e-9 in f64, except where a ceiling of that op is named.
  void expect_as_checked_in(std::span<const Column> columns) const;

 private:
  std::map<std::string, std::array<CompareStats, kColumns>> rows_;
};

}  // namespace rlx::testing
