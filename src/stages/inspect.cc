#include "rlx/stages/inspect.h"

#include <algorithm>

namespace rlx {
namespace {

using Counts = std::map<std::string, int64_t>;

std::string size_text(int64_t bytes) {
  static constexpr std::string_view units[] = {"KB", "MB", "GB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(units); ++unit) size /= 1024;
  return fmt::format("{:.1f} {}", size, units[unit]);
}

// One line per node; the tags are padded to one width.
struct Row {
  std::string tag, op, inputs, type, origin;
  bool is_output = false;
};

// Characters, not bytes: names may hold any UTF-8.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string rows_text(const std::vector<Row>& rows) {
  size_t width = 0;
  for (const Row& r : rows) width = std::max(width, width_of(r.tag));
  std::string out;
  for (const Row& r : rows) {
    out += fmt::format("  {}{} = {}", r.tag, std::string(width - width_of(r.tag), ' '), r.op);
    if (!r.inputs.empty()) out += fmt::format("({})", r.inputs);
    out += " : " + r.type;
    if (!r.origin.empty()) out += "  // " + r.origin;
    if (r.is_output) out += "  ← output";
    out += '\n';
  }
  return out;
}

std::string origin_text(const Origin& o) {
  static constexpr std::string_view hir = "hir:";
  std::vector<std::string> parts;
  const bool from_hir = o.pass.str().starts_with(hir);
  if (from_hir) parts.push_back("hir=" + o.pass.str().substr(hir.size()));
  if (!o.label.empty()) parts.push_back(quote(o.label.str()));
  if (!from_hir && !o.pass.empty()) parts.push_back("pass=" + o.pass.str());
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string tag_of(const std::string& id, std::string_view leaf, const std::string& name) {
  if (!leaf.empty()) return fmt::format("{} [{} {}]", id, leaf, quote(name));
  return name.empty() ? id : fmt::format("{} [{}]", id, quote(name));
}

Counts op_counts(const Graph& g) {
  Counts out;
  for (const Node& n : g.nodes) ++out[op_kind(*n.op)];
  return out;
}

std::string graph_header(const Graph& g) {
  int64_t bytes = 0;
  for (const Node& n : g.nodes)
    for (const Type& t : n.out)
      if (t.shape.is_static()) bytes += t.bytes();
  return fmt::format("graph @{} ({} nodes, {} outputs, {} arena)\n", g.name, g.size(),
                     g.outputs.size(), size_text(bytes));
}

std::string kinds_line(const Graph& g) {
  const Counts counts = op_counts(g);
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts;
  for (const auto& [kind, count] : sorted) parts.push_back(fmt::format("{}={}", kind, count));
  return fmt::format("  op kinds: {}\n", fmt::join(parts, ", "));
}

// The nodes of a graph, or with `hir` as that stage shows them.
std::vector<Row> graph_rows(const Graph& g, bool hir = false) {
  std::vector<Row> rows;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    const bool leaf = n.op == &op::input || n.op == &op::param;
    Row r;
    r.tag = tag_of(fmt::format("{}{}", hir ? 'h' : '%', i), leaf ? n.op->name : "",
                   leaf  ? n.get<LeafAttrs>().name
                   : hir ? label_of(n)
                         : n.origin.label.str());
    r.op = hir ? hir_text(n) : op_text(*n.op, n.attrs);
    r.inputs = hir ? hir_ids(n.in) : fmt::format("{}", fmt::join(n.in, ", "));
    r.type = fmt::format("{}", fmt::join(n.out, ", "));
    if (!hir) r.origin = origin_text(n.origin);
    r.is_output =
        std::any_of(g.outputs.begin(), g.outputs.end(), [&](Value v) { return v.node == i; });
    rows.push_back(std::move(r));
  }
  return rows;
}

std::string io_line(std::string_view what,
                    const std::vector<std::pair<std::string, NodeId>>& leaves) {
  std::vector<std::string> parts;
  for (const auto& [name, id] : leaves) parts.push_back(fmt::format("{} {}", quote(name), id));
  return fmt::format("    {}: {}\n", what, fmt::join(parts, ", "));
}

}  // namespace

std::string inspect_hir_stats(const HirModule& hir) {
  Counts counts;
  for (const HirNode& n : hir.nodes()) ++counts[std::string(kind_of(n))];
  std::vector<std::string> parts;
  for (const auto& [kind, count] : counts) parts.push_back(fmt::format("{}={}", kind, count));
  return fmt::format("hir @{} ({} nodes, {} outputs, fusion={})\n  block ops: {}\n", hir.name(),
                     hir.len(), hir.graph().outputs.size(), name(hir.fusion_policy),
                     fmt::join(parts, ", "));
}

std::string inspect_hir(const HirModule& hir) {
  const Graph& g = hir.graph();
  std::string out = inspect_hir_stats(hir) + "\n" + rows_text(graph_rows(g, true));
  if (!g.outputs.empty()) out += fmt::format("  return {}\n", hir_ids(g.outputs));
  for (const Update& u : g.updates)
    out += fmt::format("  update {} <- {}\n", quote(u.param), hir_ids({u.value}));
  return out;
}

std::string inspect_graph_stats(const Graph& g) { return graph_header(g) + kinds_line(g); }

std::string inspect_graph(const Graph& g) {
  std::string out = inspect_graph_stats(g) + "\n" + rows_text(graph_rows(g));
  if (!g.outputs.empty()) out += fmt::format("  return {}\n", fmt::join(g.outputs, ", "));
  for (const Update& u : g.updates)
    out += fmt::format("  update {} <- {}\n", quote(u.param), u.value);
  return out;
}

std::string inspect_mir(const MirModule& mir) { return inspect_mir_with_diff(mir, nullptr); }

std::string inspect_mir_stats(const MirModule& mir) {
  return fmt::format("mir @{} — {}", mir.name(), inspect_graph_stats(mir.as_graph()));
}

std::string inspect_graph_diff(const Graph& before, const Graph& after) {
  std::string out = fmt::format("  diff: {} → {} nodes ({} → {} outputs)\n", before.size(),
                                after.size(), before.outputs.size(), after.outputs.size());
  Counts delta = op_counts(after);
  for (const auto& [kind, count] : op_counts(before)) delta[kind] -= count;
  std::vector<std::string> parts;
  for (const auto& [kind, count] : delta)
    if (count != 0) parts.push_back(fmt::format("{}{:+}", kind, count));
  if (!parts.empty()) out += fmt::format("  op delta: {}\n", fmt::join(parts, ", "));
  return out;
}

std::string inspect_mir_with_diff(const MirModule& mir, const MirModule* before) {
  std::string out = fmt::format("mir @{} {{\n", mir.name());
  if (before)
    out += inspect_graph_diff(before->as_graph(), mir.as_graph()) + "--- graph ---\n";
  else
    out += "\n";
  return out + inspect_graph(mir.as_graph()) + "}\n";
}

std::string inspect_buffer_plan(const LirModule& lir) {
  std::string out;
  if (lir.has_dynamic_dims())
    out += fmt::format("  dynamic: ?{}\n", fmt::join(lir.dynamic_symbols(), ", ?"));
  if (!lir.has_plan()) return out + "  not planned\n";
  const Program& p = lir.plan();
  out = fmt::format("  arena: {} bytes (saved {} vs {} naive, align=64)\n", lir.arena_size(),
                    lir.bytes_saved(), lir.total_unshared_bytes());
  out += fmt::format("  schedule: {} steps, {} buffers\n", p.steps.size(), p.buffers.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < p.buffers.size(); ++i)
    if (p.buffers[i].place == Place::arena && p.buffers[i].first >= 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return p.buffers[a].offset < p.buffers[b].offset; });
  out += "  # offset\tsize\tstep\n";
  for (size_t i : order) {
    const Buffer& b = p.buffers[i];
    out += fmt::format("  {}\t{}\t{} sched={}..{}{}\n", b.offset, b.bytes,
                       p.steps[static_cast<size_t>(b.first)].label, b.first, b.last,
                       b.shares >= 0 ? " in place" : "");
  }
  return out;
}

std::string inspect_lir(const LirModule& lir) {
  const Graph& g = lir.as_graph();
  std::string out =
      fmt::format("lir @{} {{\n  fingerprint: {:016x}\n", lir.name(), lir.fingerprint());
  out += inspect_buffer_plan(lir) + "  phases:\n";
  const std::vector<Phase> phases = derive_phases(g);
  for (Phase phase : {Phase::prologue, Phase::steady_state, Phase::epilogue}) {
    Values members;
    for (int32_t i = 0; i < g.size(); ++i)
      if (phases[static_cast<size_t>(i)] == phase) members.push_back({i, 0});
    if (!members.empty()) out += fmt::format("    {}: {}\n", name(phase), fmt::join(members, ", "));
  }
  const LirIoManifest io = LirIoManifest::collect(g);
  out += "  io:\n" + io_line("inputs", io.inputs) + io_line("params", io.params);
  out += fmt::format("    outputs: {}\n", fmt::join(io.outputs, ", "));
  return out + "--- mir ---\n" + inspect_graph(g) + "}\n";
}

}  // namespace rlx
