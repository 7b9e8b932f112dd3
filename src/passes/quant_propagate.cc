#include "rlx/passes/quant_propagate.h"

#include "rlx/ops/core.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/quant/quantise.h"

namespace rlx {

namespace {

// What keeps every element one of x's, or 0: it then is a code times the scale still.
bool keeps_magnitudes(const Graph& g, const Node& n, std::optional<int64_t> axis) {
  if (n.op == &op::relu) return true;
  if (n.op == &op::pool && n.get<PoolAttrs>().kind == PoolKind::max) {
    const auto& p = n.get<PoolAttrs>();
    // A window of padding alone gives -infinity.
    for (size_t i = 0; i < p.kernel.size(); ++i)
      if (p.low[i] != 0 || p.high[i] != 0 || p.ceil_mode) return false;
    return !axis || *axis < g.type(n.in[0]).rank() - static_cast<int64_t>(p.kernel.size());
  }
  return !axis && (n.op == &op::reshape || n.op == &op::transpose || n.op == &op::slice ||
                   n.op == &op::concat);
}

// Whether the codes of `later` are those of `first`.
bool has_same_scale(const Node& first, const Node& later) {
  const auto &a = first.get<FakeQuantizeAttrs>(), &b = later.get<FakeQuantizeAttrs>();
  if (a.bits != b.bits || a.axis != b.axis || a.ste != b.ste) return false;
  return a.scale_mode == ScaleMode::fixed && first.in[1] == later.in[1];
}

// Whether all that v is made of comes from a fake_quantize with the scale of `later`.
bool is_quantised(const Graph& g, Value v, const Node& later) {
  constexpr size_t kMostNodes = 64;
  const auto axis = later.get<FakeQuantizeAttrs>().axis;
  Values open{v};
  for (size_t seen = 0; !open.empty(); ++seen) {
    const Value from = open.back();
    open.pop_back();
    const Node& n = g.node(from);
    if (seen > kMostNodes) return false;
    if (n.op == &op::fake_quantize && from.index == 0) {
      const auto &a = n.get<FakeQuantizeAttrs>(), &b = later.get<FakeQuantizeAttrs>();
      const bool running = a.scale_mode == ScaleMode::ema && a.bits == b.bits && a.axis == b.axis &&
                           a.ste == b.ste && later.in[1] == Value{from.node, 1};
      if (running || has_same_scale(n, later)) continue;
    }
    if (!keeps_magnitudes(g, n, axis)) return false;
    open.insert(open.end(), n.in.begin(), n.in.end());
  }
  return true;
}

bool is_redundant(const Graph& g, const Node& n) {
  if (n.op != &op::fake_quantize) return false;
  const auto& f = n.get<FakeQuantizeAttrs>();
  const bool derivative_is_one = f.ste == SteKind::identity || f.ste == SteKind::clipped_identity;
  return f.scale_mode == ScaleMode::fixed && derivative_is_one && is_quantised(g, n.in[0], n);
}

}  // namespace

int64_t quant_propagate::run(Graph& g) {
  std::map<Value, Value> instead;
  const auto now = [&](Value v) {
    const auto it = instead.find(v);
    return it == instead.end() ? v : it->second;
  };
  for (int32_t i = 0; i < g.size(); ++i) {
    Node& n = g.node(i);
    for (Value& v : n.in) v = now(v);
    if (is_redundant(g, n)) instead[{i, 0}] = n.in[0];
  }
  for (Value& v : g.outputs) v = now(v);
  for (Update& u : g.updates) u.value = now(u.value);
  return static_cast<int64_t>(instead.size());
}

constinit const Pass pass::quant_propagate{"quant_propagate",
                                           "Fake quantisation that was done already goes.",
                                           [](Graph&& g, const PassOptions&) {
                                             const int64_t gone = rlx::quant_propagate::run(g);
                                             return gone ? drop_dead(std::move(g)) : std::move(g);
                                           }};

}  // namespace rlx
