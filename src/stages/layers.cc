#include "rlx/stages/layers.h"

#include <algorithm>
#include <cstdint>

namespace rlx {
namespace {

// What stands in a row: a box, or a line on its way through it.
struct Spot {
  double width = 0, x = 0;
  std::vector<size_t> above, below;  // neighbours in the rows next to it
};
using Rank = std::vector<size_t>;

double mean_of(const std::vector<Spot>& spots, const std::vector<size_t>& of, double otherwise) {
  if (of.empty()) return otherwise;
  double sum = 0;
  for (size_t i : of) sum += spots[i].x;
  return sum / static_cast<double>(of.size());
}

// The row with each place as near to its wish as its neighbours leave room for: the mean of pushing to the right and
// pushing to the left.
void spread(std::vector<Spot>& spots, const Rank& row, const std::vector<double>& wish) {
  std::vector<double> right(row.size()), left(row.size());
  const auto apart = [&](size_t i, size_t k) {
    return (spots[row[i]].width + spots[row[k]].width) / 2 + Layers::kGapX;
  };
  for (size_t i = 0; i < row.size(); ++i)
    right[i] = i == 0 ? wish[i] : std::max(wish[i], right[i - 1] + apart(i - 1, i));
  for (size_t i = row.size(); i-- > 0;)
    left[i] = i + 1 == row.size() ? wish[i] : std::min(wish[i], left[i + 1] - apart(i, i + 1));
  for (size_t i = 0; i < row.size(); ++i) spots[row[i]].x = (right[i] + left[i]) / 2;
}

// Orders and spreads one row by its neighbours on one side.
void settle(std::vector<Spot>& spots, Rank& row, bool by_above, bool reorder) {
  const auto wish = [&](size_t i) {
    return mean_of(spots, by_above ? spots[i].above : spots[i].below, spots[i].x);
  };
  if (reorder)
    std::stable_sort(row.begin(), row.end(), [&](size_t a, size_t b) { return wish(a) < wish(b); });
  std::vector<double> wishes;
  for (size_t i : row) wishes.push_back(wish(i));
  spread(spots, row, wishes);
}

// Every row below what leads to it; sources stand right above their first reader.
void assign_rows(Layers& l) {
  const bool has_first = std::any_of(l.boxes.begin(), l.boxes.end(), [](const Layers::Box& b) {
    return b.pin == Layers::Pin::first;
  });
  for (Layers::Box& b : l.boxes) b.row = has_first && b.pin != Layers::Pin::first ? 1 : 0;
  for (const Layers::Line& e : l.lines)
    l.boxes[e.to].row = std::max(l.boxes[e.to].row, l.boxes[e.from].row + 1);
  std::vector<bool> is_source(l.boxes.size(), true);
  std::vector<size_t> reader(l.boxes.size(), SIZE_MAX);
  size_t last = 0;
  for (const Layers::Line& e : l.lines) {
    is_source[e.to] = false;
    reader[e.from] = std::min(reader[e.from], l.boxes[e.to].row);
  }
  for (size_t i = 0; i < l.boxes.size(); ++i) {
    Layers::Box& b = l.boxes[i];
    if (is_source[i] && b.pin == Layers::Pin::none && reader[i] != SIZE_MAX) b.row = reader[i] - 1;
    last = std::max(last, b.row);
  }
  for (Layers::Box& b : l.boxes)
    if (b.pin == Layers::Pin::last) b.row = last;
}

}  // namespace

size_t Layers::box(double w, double h, Pin pin) {
  boxes.push_back({w, h, pin});
  return boxes.size() - 1;
}

void Layers::place() {
  assign_rows(*this);
  size_t count = 0;
  for (const Box& b : boxes) count = std::max(count, b.row + 1);
  std::vector<Spot> spots;
  std::vector<Rank> rows(count);
  const auto put = [&](size_t row, double w) {
    rows[row].push_back(spots.size());
    spots.push_back({w, 0, {}, {}});
    return spots.size() - 1;
  };
  for (const Box& b : boxes) put(b.row, b.width);
  const auto link = [&](size_t above, size_t below) {
    spots[above].below.push_back(below);
    spots[below].above.push_back(above);
  };
  std::vector<std::vector<size_t>> ways;  // of trunks: their spots in the rows below the beginning
  for (const Line& e : lines) {
    if (ways.size() <= e.trunk) ways.resize(e.trunk + 1);
    std::vector<size_t>& way = ways[e.trunk];
    const size_t first = boxes[e.from].row + 1, between = boxes[e.to].row - first;
    while (way.size() < between) {
      const size_t above = way.empty() ? e.from : way.back();
      way.push_back(put(first + way.size(), 0));
      link(above, way.back());
    }
    link(between == 0 ? e.from : way[between - 1], e.to);
  }
  for (Rank& row : rows) spread(spots, row, std::vector<double>(row.size(), 0));
  constexpr int kSweeps = 8;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t r = 1; r < count; ++r) settle(spots, rows[r], true, sweep < kSweeps / 2);
    for (size_t r = count; r-- > 0;)
      if (r + 1 < count) settle(spots, rows[r], false, sweep < kSweeps / 2);
  }
  double low = 0, high = 0;
  for (size_t i = 0; i < spots.size(); ++i) {
    low = i == 0 ? spots[i].x - spots[i].width / 2 : std::min(low, spots[i].x - spots[i].width / 2);
    high =
        i == 0 ? spots[i].x + spots[i].width / 2 : std::max(high, spots[i].x + spots[i].width / 2);
  }
  width = high - low;
  heights.assign(count, 0), tops.assign(count, 0);
  for (const Box& b : boxes) heights[b.row] = std::max(heights[b.row], b.height);
  for (size_t r = 1; r < count; ++r) tops[r] = tops[r - 1] + heights[r - 1] + kGapY;
  height = count == 0 ? 0 : tops.back() + heights.back();
  for (size_t i = 0; i < boxes.size(); ++i)
    boxes[i].x = spots[i].x - low, boxes[i].y = tops[boxes[i].row];
  for (const std::vector<size_t>& way : ways) {
    std::vector<double>& xs = trunks.emplace_back();
    for (size_t spot : way) xs.push_back(spots[spot].x - low);
  }
}

}  // namespace rlx
