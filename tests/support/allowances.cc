#include "allowances.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <sstream>

#include "samples.h"

namespace rlx::testing {

namespace {

constexpr const char* kAllowancesPath = RLX_SOURCE_DIR "/tests/allowances.txt";

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(" | ", at), line.size());
    out.push_back(line.substr(at, end - at));
    at = end + 3;
  }
  return out;
}

constexpr std::string_view kMeasured[] = {"values", "gradients", "derivatives"};

// The file: what is written by hand (comments and ceilings), and the cells of each op.
struct AllowanceFile {
  std::string by_hand;
  std::vector<Ceiling> ceilings;
  std::map<std::string, std::vector<std::string>> cells;
};

AllowanceFile read_file() {
  AllowanceFile f;
  std::ifstream in(kAllowancesPath);
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> parts = fields_of(line);
    const bool comment = line.empty() || line[0] == '#';
    if (comment || parts[0] == "ceiling") f.by_hand += line + "\n";
    if (comment) continue;
    if (parts[0] == "ceiling") {
      check(parts.size() == 6, "allowances.txt: cannot read: {}", line);
      const auto kind = std::find(std::begin(kMeasured), std::end(kMeasured), parts[2]);
      const auto dtype = parse_dtype(parts[3]);
      check(kind != std::end(kMeasured) && dtype, "allowances.txt: cannot read: {}", line);
      f.ceilings.push_back({parts[1], static_cast<Measured>(kind - kMeasured), *dtype,
                            std::stod(parts[4]), parts[5]});
    } else {
      check(parts.size() == kColumns + 1, "allowances.txt: cannot read: {}", line);
      f.cells[parts[0]] = {parts.begin() + 1, parts.end()};
    }
  }
  return f;
}

std::string cell_text(const CompareStats& s) {
  if (s.elements == s.exact) return "-";
  return fmt::format("{:.1e} {} {}", s.widest, s.loose, s.unstable);
}

// Equal, or the numbers that a cell is made of nearly so.
bool nearly(const std::string& a, const std::string& b) {
  if (a == b) return true;
  std::istringstream x(a), y(b);
  double p[3] = {}, q[3] = {};
  if (!(x >> p[0] >> p[1] >> p[2]) || !(y >> q[0] >> q[1] >> q[2])) return false;
  for (int i = 0; i < 3; ++i) {
    const double slack = i == 0 ? 0 : 2;
    if (p[i] > 1.25 * q[i] + slack || q[i] > 1.25 * p[i] + slack) return false;
  }
  return true;
}

double limit_of(Column c) {
  switch (c) {
    case Column::f32:
      return 1e-3;
    case Column::f32_gradients:
    case Column::narrow_f32:
      return 1e-2;
    case Column::f64:
    case Column::f64_gradients:
      return 1e-9;
    default:
      return INFINITY;  // a half holds two to three digits
  }
}

std::string_view name_of(Column c) {
  static constexpr std::string_view names[] = {"f32 values",    "f32 gradients", "f64 values",
                                               "f64 gradients", "narrow, f32",   "narrow, bf16",
                                               "narrow, f16"};
  return names[static_cast<size_t>(c)];
}

}  // namespace

std::string Ceiling::text() const {
  return fmt::format("ceiling | {} | {} | {} | {} | {}", op,
                     kMeasured[static_cast<size_t>(measured)], to_string(dtype), fraction, why);
}

std::vector<Ceiling>& ceilings() {
  static std::vector<Ceiling> all = read_file().ceilings;
  return all;
}

double default_ceiling(DType d, Measured m) {
  const bool derivative = m == Measured::derivatives;
  switch (d) {
    case DType::F64:
      return 1e-13;
    case DType::F32:
    case DType::C64:
      return derivative ? 2e-5 : 2e-6;
    case DType::F16:
      return derivative ? 2e-2 : 4e-3;
    case DType::BF16:
      return derivative ? 1.5e-1 : 3e-2;
    default:
      return 0;
  }
}

namespace {

Ceiling* named_ceiling(const std::string& op, DType d, Measured m) {
  for (Ceiling& c : ceilings())
    if (c.op == op && c.dtype == d && c.measured == m) return &c;
  return nullptr;
}

}  // namespace

double ceiling_of(const std::string& op, DType d, Measured m) {
  const Ceiling* c = named_ceiling(op, d, m);
  return c ? c->fraction : default_ceiling(d, m);
}

void note_need(const std::string& op, DType d, Measured m) {
  if (Ceiling* c = named_ceiling(op, d, m)) c->needed = true;
}

void expect_ceilings_needed(Measured m, std::optional<DType> d) {
  for (const Ceiling& c : ceilings())
    if (c.measured == m && (!d || c.dtype == *d)) {
      EXPECT_TRUE(c.needed || is_filtered()) << "not needed: " << c.text();
    }
}

void AllowanceTable::expect_as_checked_in(std::span<const Column> columns) const {
  AllowanceFile file = read_file();
  const bool update = std::getenv("RLX_UPDATE_TEXT") != nullptr;
  for (const auto& [op, row] : rows_) {
    std::vector<std::string>& cells = file.cells[op];
    cells.resize(kColumns, "-");
    for (Column c : columns) {
      const CompareStats& s = row[static_cast<size_t>(c)];
      std::string& cell = cells[static_cast<size_t>(c)];
      const std::string now = cell_text(s);
      std::cout << fmt::format("{} {}: {}\n", op, name_of(c), now);
      if (!update) {
        EXPECT_TRUE(nearly(now, cell)) << op << ", " << name_of(c) << ": " << now
                                       << " where tests/allowances.txt has " << cell;
      }
      bool named = false;
      for (const Ceiling& x : ceilings()) named |= x.op == op;
      EXPECT_TRUE(s.widest <= limit_of(c) || named) << op << ", " << name_of(c) << ": " << now;
      cell = now;
    }
  }
  if (!update) return;
  std::ofstream out(kAllowancesPath);
  out << file.by_hand;
  for (const auto& [op, cells] : file.cells) {
    if (std::all_of(cells.begin(), cells.end(), [](const std::string& c) { return c == "-"; }))
      continue;
    out << op;
    for (const std::string& c : cells) out << " | " << c;
    out << "\n";
  }
}

}  // namespace rlx::testing
