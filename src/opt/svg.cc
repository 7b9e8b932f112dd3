#include "rlx/opt/svg.h"

#include <algorithm>
#include <tuple>

namespace rlx::opt::svg {

namespace {

constexpr int64_t kPadding = 8, kRow = 24, kBar = 22, kWidth = 800, kLeastWidth = 200;
constexpr std::string_view kColours[] = {"#4e79a7", "#f28e2b", "#e15759", "#76b7b2",
                                         "#59a14f", "#edc948", "#b07aa1", "#9c755f"};

}  // namespace

std::string render(const MemoryPlan& plan) {
  using Slot = std::pair<Value, BufferSlot>;
  std::vector<Slot> slots(plan.assignments.begin(), plan.assignments.end());
  std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
    return std::tuple(a.second.offset, a.second.size, a.first) <
           std::tuple(b.second.offset, b.second.size, b.first);
  });
  const int64_t per_pixel = std::max<int64_t>(1, plan.arena_size / kWidth);
  const int64_t width = std::max(kLeastWidth, plan.arena_size / per_pixel) + 2 * kPadding;
  const int64_t height = (static_cast<int64_t>(slots.size()) + 1) * kRow + 2 * kPadding;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"monospace\" font-size=\"12\">\n"
      "<text x=\"{}\" y=\"{}\">arena_size={} ({} unshared, saved {})</text>\n",
      width, height, kPadding, kPadding + 14, plan.arena_size, plan.total_unshared_bytes(),
      plan.bytes_saved());
  int64_t y = kPadding + kRow;
  for (const auto& [node, slot] : slots) {
    const int64_t x = kPadding + slot.offset / per_pixel;
    const std::string_view colour = kColours[static_cast<size_t>(node.node) % std::size(kColours)];
    out += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n"
        "<text x=\"{}\" y=\"{}\">{}: off={} sz={}</text>\n",
        x, y, std::max<int64_t>(2, slot.size / per_pixel), kBar, colour, x + 4, y + 15, node,
        slot.offset, slot.size);
    y += kRow;
  }
  return out + "</svg>\n";
}

}  // namespace rlx::opt::svg
