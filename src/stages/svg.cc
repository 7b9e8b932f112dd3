#include "rlx/stages/svg.h"

#include <algorithm>
#include <map>
#include <set>

#include "rlx/base/printable.h"
#include "rlx/stages/hir.h"
#include "rlx/stages/layers.h"

namespace rlx {
namespace {

constexpr double kLetter = 7.3, kLineHeight = 17, kPad = 9, kMargin = 24;
constexpr size_t kMostLetters = 64;

constexpr std::string_view kStyle = R"(<style>
text { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2933; text-anchor: middle }
.title { font-weight: bold }
.dim { fill: #66727f }
rect { stroke: #5b6b7b; fill: #ffffff; rx: 5 }
.input rect, .output rect { fill: #e3f2fd; stroke: #1c6fb5; rx: 13 }
.param rect, .constant rect { fill: #fff8e1; stroke: #b28704; rx: 13 }
.block rect { fill: #ede7f6; stroke: #5e35b1; stroke-width: 1.6 }
.group > text { text-anchor: start; fill: #5e35b1; paint-order: stroke; stroke: #faf8fd; stroke-width: 4px }
.group > rect { fill: #faf8fd; stroke: #5e35b1; stroke-dasharray: 5 4; stroke-width: 1.4; rx: 9 }
path { fill: none; stroke: #7b8794; stroke-width: 1.3 }
</style>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : printable(text))
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

size_t letters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string shortened(std::string text) {
  if (letters(text) <= kMostLetters) return text;
  size_t end = 0;
  for (size_t n = 0; n + 1 < kMostLetters; ++n)
    end += utf8_length(std::string_view(text).substr(end));
  return text.substr(0, end) + "…";
}

// A node, an output or a group, before and after it has a place.
struct Shown {
  std::string kind, id;
  std::vector<std::pair<std::string, std::string>> lines;  // class, text
  std::vector<Value> reads, makes;                         // what leads into it and out of it
  std::vector<Shown> inside;                               // of a group
};

struct Point {
  double x, y;
};

class Drawing {
 public:
  explicit Drawing(const Graph& g) : g_(g), uses_(g) {}

  std::string svg() {
    const Placed p = layout(items(), {}, {});
    draw(p, {kMargin, kMargin + 26});
    const double width =
        std::max(p.layers.width, kLetter * static_cast<double>(letters(g_.name) + 8)) + 2 * kMargin;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n{2}<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" "
        "refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 "
        "L8 4 L0 8 z\" style=\"fill:#7b8794;stroke:none\"/></marker></defs>\n<rect width=\"100%\" "
        "height=\"100%\" style=\"fill:#fff;stroke:none;rx:0\"/>\n<text class=\"title\" "
        "x=\"{3:.1f}\" "
        "y=\"24\">{4}</text>\n{5}</svg>\n",
        width, p.layers.height + 2 * kMargin + 26, kStyle, width / 2, escaped("@" + g_.name), out_);
  }

 private:
  // Shown things with their places, those of groups in turn.
  struct Placed {
    Layers layers;
    std::vector<Shown> shown;
    std::vector<Placed> inside;           // of each
    std::map<Value, size_t> entry, exit;  // of a group: the ports of its values
    std::vector<Value> values;            // of each line
  };

  bool is_folded(int32_t i) const {  // into the box of its one reader
    const Node& n = g_.node(i);
    if (n.op == &op::input || n.op->kind != Kind::leaf) return false;
    const bool number = n.op == &op::constant && n.type().rank() == 0;
    return !uses_.is_output(i) && !updated(n) && (number || uses_.users(i).size() == 1);
  }
  bool updated(const Node& n) const {
    return n.op == &op::param &&
           std::any_of(g_.updates.begin(), g_.updates.end(),
                       [&](const Update& u) { return u.param == n.get<LeafAttrs>().name; });
  }

  std::string leaf_text(const Node& n) const {
    if (n.op != &op::constant) return n.get<LeafAttrs>().name;
    const Tensor& t = n.get<ConstantAttrs>().value;
    if (t.elements() != 1) return "constant";
    return is_complex(t.dtype()) ? "complex constant" : number_text(t.get_complex(0).real());
  }

  Shown shown(int32_t i) const {
    const Node& n = g_.node(i);
    const bool leaf = n.op->kind == Kind::leaf;
    Shown s;
    s.kind = n.op->block ? "block" : leaf ? n.op->name : "op";
    s.id = fmt::format("n{}", i);
    if (n.op->block || leaf) s.lines.emplace_back("title", leaf ? leaf_text(n) : label_of(n));
    if (n.op->block && hir_text(n) != label_of(n)) s.lines.emplace_back("", hir_text(n));
    if (!n.op->block && !leaf) s.lines.emplace_back("", op_text(*n.op, n.attrs));
    s.lines.emplace_back("dim", fmt::format("{}", fmt::join(n.out, ", ")));
    for (Value v : n.in) {
      const Node& from = g_.node(v);
      if (is_folded(v.node))
        s.lines.emplace_back("dim", fmt::format("{}: {}", leaf_text(from), from.type()));
      else if (std::find(s.reads.begin(), s.reads.end(), v) == s.reads.end())
        s.reads.push_back(v);
    }
    for (size_t k = 0; k < n.out.size(); ++k) s.makes.push_back({i, static_cast<int32_t>(k)});
    return s;
  }

  // What the nodes of one lowered block have in common; "" for others.
  static std::string group_of(const Node& n) {
    const bool lowered = n.origin.pass.str().starts_with("hir:") && !n.op->block;
    const std::string label = n.origin.label.str();
    if (!lowered || label.empty() || label == "mir") return {};
    return fmt::format("{} · {}", label, n.origin.pass.str().substr(4));
  }

  // Top to bottom: nodes, runs of nodes of one block as groups, outputs, updates.
  std::vector<Shown> items() const {
    std::vector<Shown> out;
    for (int32_t i = 0; i < g_.size(); ++i) {
      if (is_folded(i)) continue;
      const std::string group = group_of(g_.node(i));
      if (group.empty()) {
        out.push_back(shown(i));
        continue;
      }
      if (out.empty() || out.back().kind != "group" || out.back().lines[0].second != group)
        out.push_back({"group", "", {{"title", group}}, {}, {}, {}});
      out.back().inside.push_back(shown(i));
    }
    for (size_t k = 0; k < g_.outputs.size(); ++k)
      out.push_back({"output",
                     "",
                     {{"title", g_.outputs.size() == 1 ? "output" : fmt::format("output {}", k)}},
                     {g_.outputs[k]},
                     {},
                     {}});
    for (const Update& u : g_.updates)
      out.push_back({"output", "", {{"title", u.param + " ←"}}, {u.value}, {}, {}});
    for (Shown& s : out)
      if (s.kind == "group") join(s, out);
    return out;
  }

  // What a group reads from outside, and what is read of it.
  static void join(Shown& group, const std::vector<Shown>& all) {
    std::set<Value> made, read;
    for (const Shown& s : group.inside) made.insert(s.makes.begin(), s.makes.end());
    for (const Shown& s : group.inside)
      for (Value v : s.reads)
        if (!made.contains(v) && read.insert(v).second) group.reads.push_back(v);
    std::set<Value> wanted;
    for (const Shown& s : all) {
      if (&s == &group) continue;
      wanted.insert(s.reads.begin(), s.reads.end());
      for (const Shown& t : s.inside) wanted.insert(t.reads.begin(), t.reads.end());
    }
    for (Value v : made)
      if (wanted.contains(v)) group.makes.push_back(v);
  }

  Placed layout(std::vector<Shown> shown, const std::vector<Value>& entries,
                const std::vector<Value>& exits) const {
    Placed p;
    std::map<Value, size_t> maker, trunk;
    for (Value v : entries) maker[v] = p.entry[v] = p.layers.box(8, 0, Layers::Pin::first);
    const auto lead = [&](Value v, size_t to) {
      const auto from = maker.find(v);
      if (from == maker.end()) return;
      p.layers.line(from->second, to, trunk.try_emplace(v, trunk.size()).first->second);
      p.values.push_back(v);
    };
    for (Shown& s : shown) {
      double width = 0;
      for (const auto& [style, text] : s.lines)
        width = std::max(width, kLetter * static_cast<double>(letters(shortened(text))));
      double height = kLineHeight * static_cast<double>(s.lines.size()) + 2 * kPad - 4;
      Placed inner;
      if (s.kind == "group") {
        inner = layout(s.inside, s.reads, s.makes);
        width = std::max(width, inner.layers.width);
        height = inner.layers.height;
      }
      const size_t box = p.layers.box(width + 2 * kPad, height);
      for (Value v : s.reads) lead(v, box);
      for (Value v : s.makes) maker[v] = box;
      p.inside.push_back(std::move(inner));
    }
    for (Value v : exits) {
      p.exit[v] = p.layers.box(8, 0, Layers::Pin::last);
      lead(v, p.exit[v]);
    }
    p.layers.place();
    p.shown = std::move(shown);
    return p;
  }

  // Box b of p; entries stand before the shown ones, exits behind them.
  static const Shown* shown_of(const Placed& p, size_t b) {
    const size_t first = p.entry.size();
    return b >= first && b < first + p.shown.size() ? &p.shown[b - first] : nullptr;
  }
  // Where a line with this value ends at a box: in the middle, or at a group's port.
  static double port(const Placed& p, size_t b, Value v, bool entry) {
    const Shown* const s = shown_of(p, b);
    if (!s || s->kind != "group") return p.layers.boxes[b].x;
    const Placed& inner = p.inside[b - p.entry.size()];
    const auto& ports = entry ? inner.entry : inner.exit;
    const Layers::Box& box = p.layers.boxes[b];
    return box.x - inner.layers.width / 2 + inner.layers.boxes[ports.at(v)].x;
  }

  void draw(const Placed& p, Point at) {
    std::vector<size_t> drawn(p.layers.trunks.size());  // rows of each trunk
    for (size_t i = 0; i < p.layers.lines.size(); ++i) {
      const Layers::Line& e = p.layers.lines[i];
      const Layers::Box &a = p.layers.boxes[e.from], &b = p.layers.boxes[e.to];
      const auto bottom = [&](size_t row) { return p.layers.tops[row] + p.layers.heights[row]; };
      const std::vector<double>& way = p.layers.trunks[e.trunk];
      size_t& done = drawn[e.trunk];
      const size_t between = b.row - a.row - 1, from = std::min(done, between);
      std::vector<Point> points;
      if (from > 0) {  // others of the trunk have come this far
        points.push_back({way[from - 1], bottom(a.row + from)});
      } else {  // where a box is lower than its row, the line goes straight down first
        const double x = port(p, e.from, p.values[i], false);
        points.push_back({x, a.y + a.height});
        if (bottom(a.row) > points[0].y) points.push_back({x, bottom(a.row)});
      }
      for (size_t k = from; k < between; ++k) {
        points.push_back({way[k], p.layers.tops[a.row + 1 + k]});
        points.push_back({way[k], bottom(a.row + 1 + k)});
      }
      done = std::max(done, between);
      points.push_back({port(p, e.to, p.values[i], true), b.y});
      curve(points, at, shown_of(p, e.to) && shown_of(p, e.to)->kind != "group");
    }
    for (size_t i = 0; i < p.shown.size(); ++i) {
      const Layers::Box& b = p.layers.boxes[p.entry.size() + i];
      const Point corner{at.x + b.x - b.width / 2, at.y + b.y};
      const Shown& s = p.shown[i];
      out_ += fmt::format("<g class=\"{}\"{}>", s.kind,
                          s.id.empty() ? std::string() : fmt::format(" id=\"{}\"", s.id));
      out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>",
                          corner.x, corner.y, b.width, b.height);
      const bool group = s.kind == "group";
      if (group) draw(p.inside[i], {corner.x + (b.width - p.inside[i].layers.width) / 2, corner.y});
      lines(s, {group ? corner.x + kPad : corner.x + b.width / 2, corner.y + kPad + 10});
      out_ += "</g>\n";
    }
  }

  void curve(const std::vector<Point>& points, Point at, bool arrow) {
    std::string d = fmt::format("M{:.1f} {:.1f}", at.x + points[0].x, at.y + points[0].y);
    for (size_t i = 1; i < points.size(); ++i) {
      const Point a = points[i - 1], b = points[i];
      const double middle = (a.y + b.y) / 2 + at.y;
      d += a.x == b.x ? fmt::format(" V{:.1f}", at.y + b.y)
                      : fmt::format(" C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", at.x + a.x,
                                    middle, at.x + b.x, middle, at.x + b.x, at.y + b.y);
    }
    out_ += fmt::format("<path d=\"{}\"{}/>\n", d, arrow ? " marker-end=\"url(#arrow)\"" : "");
  }
  void lines(const Shown& s, Point at) {
    for (const auto& [style, text] : s.lines) {
      out_ += fmt::format("<text{} x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
                          style.empty() ? "" : fmt::format(" class=\"{}\"", style), at.x, at.y,
                          escaped(shortened(text)));
      at.y += kLineHeight;
    }
  }

  const Graph& g_;
  const Uses uses_;
  std::string out_;
};

}  // namespace

std::string to_svg(const Graph& g) { return Drawing(g).svg(); }

}  // namespace rlx
