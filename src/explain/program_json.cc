#include "rlx/explain/program_json.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "rlx/base/checked.h"

namespace rlx::explaining {

namespace {

constexpr std::string_view kPlaces[] = {"arena",    "input",  "output", "param",
                                        "constant", "joined", "packed"};
constexpr std::string_view kControls[] = {"", "scan", "cond", "while_loop", "sweep"};

// Of the elements that a view reaches: one that is read many times counts once.
double bytes_of(const View& v) {
  double elements = 1;
  for (size_t d = 0; d < v.dims.size(); ++d)
    if (v.strides[d] != 0 || v.dims[d] == 0) elements *= static_cast<double>(v.dims[d]);
  return elements * static_cast<double>(size_of(v.dtype));
}

bool same_view(const View& a, const View& b) {
  return a.buffer == b.buffer && a.offset == b.offset && a.dims == b.dims && a.strides == b.strides;
}

Json view_json(const View& v) {
  Json out = {{"buffer", v.buffer}, {"type", v.type().to_string()}};
  if (v.offset != 0) out["offset"] = v.offset;
  if (!v.is_dense()) out["strides"] = std::vector<int64_t>(v.strides.begin(), v.strides.end());
  return out;
}

Json step_json(const Program& p, size_t i) {
  const Step& s = p.steps[i];
  Json out = {{"label", s.label}, {"node", s.node}};
  if (s.kernel) {
    out["kernel"] = s.kernel->name();
    out["blocks"] = s.kernel->blocks();
    out["flops"] = s.kernel->flops();
  } else {
    out["control"] = kControls[static_cast<size_t>(s.control)];
    if (s.control == Step::Control::scan) out["length"] = s.length;
  }
  const auto step = static_cast<int32_t>(i);
  out["bytes"] = cost_of(p, {step, step + 1}).bytes;
  for (const View& v : s.in) out["in"].push_back(view_json(v));
  for (const View& v : s.out) out["out"].push_back(view_json(v));
  if (s.workspace >= 0) out["workspace"] = s.workspace;
  for (const auto& body : s.bodies) out["bodies"].push_back(program_json(*body));
  return out;
}

// Which node's value lies in each buffer, by the step that writes it first; -1: no step does.
std::vector<int32_t> writers(const Program& p) {
  std::vector<int32_t> out(p.buffers.size(), -1);
  const auto note = [&](int32_t buffer, size_t step) {
    if (int32_t& w = out[static_cast<size_t>(buffer)]; w < 0) w = static_cast<int32_t>(step);
  };
  for (size_t s = 0; s < p.steps.size(); ++s) {
    for (const View& v : p.steps[s].out) note(v.buffer, s);
    if (p.steps[s].workspace >= 0) note(p.steps[s].workspace, s);
  }
  return out;
}

Json buffers_json(const Program& p) {
  Json out = Json::array();
  const std::vector<int32_t> writer = writers(p);
  std::set<int32_t> workspaces;
  for (const Step& s : p.steps) workspaces.insert(s.workspace);
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const Buffer& b = p.buffers[i];
    Json j = {{"place", kPlaces[static_cast<size_t>(b.place)]}, {"bytes", b.bytes}};
    if (b.place == Place::arena)
      j["offset"] = b.offset;
    else
      j["index"] = b.index;
    j["first"] = b.first;
    j["last"] = b.last;
    if (writer[i] >= 0) j["writer"] = writer[i];
    if (b.shares >= 0) j["shares"] = b.shares;
    if (workspaces.contains(static_cast<int32_t>(i))) j["workspace"] = true;
    out.push_back(std::move(j));
  }
  return out;
}

Json launches_json(const Program& p, std::span<const double> seconds) {
  Json out = Json::array();
  for (size_t c = 0; c < p.chains.size(); ++c) {
    const Chain& chain = p.chains[c];
    const LaunchCost cost = cost_of(p, chain);
    Json j = {
        {"begin", chain.begin}, {"end", chain.end}, {"flops", cost.flops}, {"bytes", cost.bytes}};
    if (chain.rows) j["rows"] = chain.rows, j["tile"] = chain.tile;
    if (!seconds.empty()) j["seconds"] = seconds[c];
    out.push_back(std::move(j));
  }
  return out;
}

Json weights_json(const Program& p) {
  Json joined = Json::array(), packed = Json::array();
  for (const JoinedWeight& w : p.joined)
    joined.push_back(
        {{"label", w.label}, {"sources", w.sources}, {"program", program_json(*w.program)}});
  for (const PackedWeight& w : p.packed)
    packed.push_back({{"step", w.step}, {"buffer", w.source.buffer}});
  return {{"joined", std::move(joined)}, {"packed", std::move(packed)}};
}

}  // namespace

LaunchCost cost_of(const Program& p, const Chain& launch) {
  LaunchCost cost;
  std::vector<const View*> read, written;
  const auto add = [&](std::vector<const View*>& list, const View& v) {
    if (std::any_of(list.begin(), list.end(), [&](const View* o) { return same_view(*o, v); }))
      return;
    list.push_back(&v);
    cost.bytes += bytes_of(v);
  };
  for (int32_t s = launch.begin; s < launch.end; ++s) {
    const Step& step = p.steps[static_cast<size_t>(s)];
    if (step.kernel) cost.flops += step.kernel->flops();
    for (const View& v : step.in)  // what the launch itself has written is still near
      if (std::none_of(written.begin(), written.end(),
                       [&](const View* w) { return w->buffer == v.buffer; }))
        add(read, v);
    for (const View& v : step.out) add(written, v);
  }
  return cost;
}

std::vector<int64_t> live_bytes(const Program& p) {
  std::vector<size_t> launch_of(p.steps.size());
  for (size_t c = 0; c < p.chains.size(); ++c)
    for (int32_t s = p.chains[c].begin; s < p.chains[c].end; ++s)
      launch_of[static_cast<size_t>(s)] = c;
  std::vector<int64_t> change(p.chains.size() + 1, 0);
  for (const Buffer& b : p.buffers) {
    if (b.place != Place::arena || b.first < 0 || b.shares >= 0) continue;
    const int64_t bytes = align_up(std::max<int64_t>(b.bytes, 1), 64);
    change[launch_of[static_cast<size_t>(b.first)]] += bytes;
    change[launch_of[static_cast<size_t>(b.last)] + 1] -= bytes;
  }
  change.pop_back();
  for (size_t c = 1; c < change.size(); ++c) change[c] += change[c - 1];
  return change;
}

Json program_json(const Program& p, std::span<const double> seconds) {
  const std::vector<int64_t> live = live_bytes(p);
  Json out = {
      {"arena_bytes", p.arena_bytes},
      {"unshared_bytes", p.unshared_bytes},
      {"largest_live_bytes", live.empty() ? 0 : *std::max_element(live.begin(), live.end())},
      {"live_bytes", live},
      {"scratch_bytes", p.scratch_bytes},
      {"steps", Json::array()}};
  for (size_t i = 0; i < p.steps.size(); ++i) out["steps"].push_back(step_json(p, i));
  out["launches"] = launches_json(p, seconds);
  out["buffers"] = buffers_json(p);
  if (!p.joined.empty() || !p.packed.empty()) out["weights"] = weights_json(p);
  return out;
}

}  // namespace rlx::explaining
