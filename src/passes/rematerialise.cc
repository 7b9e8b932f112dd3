#include "rlx/passes/rematerialise.h"

#include <algorithm>
#include <cmath>

#include "rlx/ir/builder.h"
#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/evaluate.h"
#include "rlx/passes/live_bytes.h"
#include "rlx/passes/min_cut.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

// How many sizes of segments are tried, and prices of a byte for each, from about nothing.
constexpr int kSegmentSizes = 12, kPrices = 7;
constexpr double kLowPrice = 1e-6;

size_t slot(int32_t i) { return static_cast<size_t>(i); }

// What is known of each node of the forward part.
struct ForwardNode {
  double bytes = 0;  // of its results; 0 for views
  double cost = 0;   // of computing it again
  bool is_view = false;
  bool is_read_later = false;  // by the backward part
  int32_t last_reader = -1;    // of the forward part
};

class Planner {
 public:
  explicit Planner(const Graph& g) : g_(g), uses_(g) {
    split_ = fullest_moment();
    for (int32_t i = 0; i <= split_; ++i) nodes_.push_back(describe(i));
    // Views lie in what they are views of: who reads them reads that.
    for (int32_t i = split_ + 1; i-- > 0;) {
      const ForwardNode& n = nodes_[slot(i)];
      if (n.is_read_later) bytes_read_later_ += n.bytes;
      if (!n.is_view) continue;
      ForwardNode& root = nodes_[slot(g.node(i).in[0].node)];
      root.is_read_later |= n.is_read_later;
      root.last_reader = std::max(root.last_reader, n.last_reader);
    }
  }

  // Where segments of about so many bytes end that the backward part reads: the borders over which least is read.
  std::vector<int32_t> borders(double bytes) const;

  // Which forward nodes are computed again, when a byte costs so much.
  std::vector<bool> choose(const std::vector<int32_t>& borders, double price) const;

  Graph build(const std::vector<bool>& again) const;

  double cost(const std::vector<bool>& again) const {
    double sum = 0;
    for (size_t i = 0; i < again.size(); ++i) sum += again[i] ? nodes_[i].cost : 0;
    return sum;
  }
  double bytes_read_later() const { return bytes_read_later_; }
  double largest() const {
    double most = 1;
    for (const ForwardNode& n : nodes_)
      if (n.is_read_later) most = std::max(most, n.bytes);
    return most;
  }
  // The price at which a byte is worth all operations of the forward part, and one at which it is worth nearly nothing.
  double high_price() const {
    double cost = 0;
    for (const ForwardNode& n : nodes_) cost += std::isfinite(n.cost) ? n.cost : 0;
    return std::max(cost, 1.0);
  }

 private:
  // The node behind which most bytes are kept for nodes that come later.
  int32_t fullest_moment() const {
    const LiveBytes live(g_);
    return live.fullest;
  }

  ForwardNode describe(int32_t i) const {
    const Node& n = g_.node(i);
    ForwardNode out;
    if (n.op->kind == Kind::leaf) return out;
    out.is_view = is_view(*n.op);
    out.bytes = static_cast<double>(result_bytes(n));
    for (int32_t u : uses_.users(i)) {
      if (u > split_)
        out.is_read_later = true;
      else
        out.last_reader = std::max(out.last_reader, u);
    }
    // What only the backward part reads is computed there once.
    if (out.last_reader >= 0 || uses_.is_output(i)) {
      Types in;
      for (Value v : n.in) in.push_back(g_.type(v));
      out.cost = out.is_view ? 0 : evaluation_cost(n, in);
    }
    return out;
  }

  const Graph& g_;
  Uses uses_;
  int32_t split_ = -1;
  std::vector<ForwardNode> nodes_;
  double bytes_read_later_ = 0;
};

std::vector<int32_t> Planner::borders(double bytes) const {
  // best[p]: least bytes that are read over borders, the last of them behind node p.
  const auto n = static_cast<int32_t>(nodes_.size());
  std::vector<double> best(slot(n), MinCut::kNever);
  std::vector<int32_t> before(slot(n), -1);
  for (int32_t p = 0; p < n; ++p) {
    double inside = 0, over = 0;
    for (int32_t q = p; q >= 0; --q) {  // the segment begins with q
      const ForwardNode& node = nodes_[slot(q)];
      inside += node.is_read_later ? node.bytes : 0;
      if (node.last_reader > p) over += node.bytes;
      if (inside > bytes && q < p) break;
      const double rest = q == 0 ? 0 : best[slot(q - 1)];
      if (rest + over < best[slot(p)]) best[slot(p)] = rest + over, before[slot(p)] = q - 1;
    }
  }
  std::vector<int32_t> out;
  for (int32_t p = n - 1; p >= 0; p = before[slot(p)]) out.push_back(p);
  std::reverse(out.begin(), out.end());
  return out;  // the last one is the end of the forward part
}

std::vector<bool> Planner::choose(const std::vector<int32_t>& borders, double price) const {
  // Two vertices for each node: behind the cut, the first says that it is computed again, the second that its value is
  // there in the backward part. In front of the second and behind the first: it is kept.
  const size_t n = nodes_.size();
  MinCut cut(2 * n);
  const int32_t last_segment = borders.size() > 1 ? borders[borders.size() - 2] + 1 : 0;
  size_t border = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<int32_t>(i);
    while (borders[border] < at) ++border;
    const Node& node = g_.node(at);
    if (node.op->kind == Kind::leaf) continue;
    const ForwardNode& f = nodes_[i];
    const bool crosses = !f.is_view && f.last_reader > borders[border];
    cut.add(cut.source(), i, crosses ? MinCut::kNever : f.cost);
    // What was just computed when the backward part begins is there anyway.
    const double keeping = at >= last_segment ? 0 : f.bytes * price;
    cut.add(i, n + i, f.is_view ? MinCut::kNever : keeping);
    if (f.is_read_later) cut.add(n + i, cut.sink(), MinCut::kNever);
    for (Value v : node.in)
      if (g_.node(v).op->kind != Kind::leaf) cut.add(slot(v.node) + n, i, MinCut::kNever);
  }
  cut.solve();
  std::vector<bool> out(n, false);
  for (size_t i = 0; i < n; ++i) out[i] = cut.is_behind(i) && cut.is_behind(n + i);
  return out;
}

Graph Planner::build(const std::vector<bool>& again) const {
  Builder b(g_.name);
  std::vector<Values> map(g_.nodes.size()), copies(nodes_.size()), guarded(nodes_.size());
  const auto mapped = [&](Value v) { return map[slot(v.node)][static_cast<size_t>(v.index)]; };
  // What a copy reads: copies, and kept values through a barrier.
  const auto read_again = [&](Value v) -> Value {
    const size_t i = slot(v.node), k = static_cast<size_t>(v.index);
    if (g_.node(v).op->kind == Kind::leaf) return mapped(v);
    if (again[i]) return copies[i][k];
    guarded[i].resize(g_.node(v).out.size(), kNone);
    if (!guarded[i][k].valid()) {
      b.set_origin({g_.node(v).origin.label, "rematerialise"});
      guarded[i][k] = op::barrier(b, mapped(v), {.again = 1});
    }
    return guarded[i][k];
  };
  const auto copy = [&](int32_t wanted) {
    std::vector<int32_t> work{wanted};
    while (!work.empty()) {
      const int32_t i = work.back();
      const size_t before = work.size();
      if (copies[slot(i)].empty())
        for (Value v : g_.node(i).in)
          if (v.node <= split_ && again[slot(v.node)] && copies[slot(v.node)].empty())
            work.push_back(v.node);
      if (work.size() > before) continue;
      work.pop_back();
      if (!copies[slot(i)].empty()) continue;
      Values in;
      for (Value v : g_.node(i).in) in.push_back(read_again(v));
      b.set_origin({g_.node(i).origin.label, "rematerialise"});
      copies[slot(i)] = b.clone(g_.node(i), in);
    }
  };
  for (int32_t i = 0; i < g_.size(); ++i) {
    const Node& n = g_.node(i);
    Values in;
    for (Value v : n.in) {
      const bool copied = i > split_ && v.node <= split_ && again[slot(v.node)];
      if (copied) copy(v.node);
      in.push_back(copied ? copies[slot(v.node)][static_cast<size_t>(v.index)] : mapped(v));
    }
    b.set_origin(n.origin);
    map[slot(i)] = b.clone(n, in);
  }
  Graph out = std::move(b.mutable_graph());
  for (Value v : g_.outputs) out.outputs.push_back(mapped(v));
  for (const Update& u : g_.updates) out.updates.push_back({u.param, mapped(u.value)});
  return drop_dead(std::move(out), true);
}

int64_t fused_peak(const Graph& g, const FusionOptions& fusion) {
  return LiveBytes(fuse_program(g, nullptr, fusion)).peak;
}

}  // namespace

Rematerialised rematerialise(const Graph& g, int64_t budget, const FusionOptions& fusion) {
  user_check(budget > 0, "memory-budget", "a memory budget of {} bytes; it must be positive",
             budget);
  user_check(!has_symbols(g), "memory-budget",
             "\"{}\": a memory budget needs all sizes; bind ?{} in the compile options", g.name,
             fmt::join(g.symbols(), ", ?"));
  Rematerialised best{.graph = g, .peak_before = fused_peak(g, fusion)};
  best.peak = best.peak_before;
  best.fits = best.peak <= budget;
  if (best.fits) return best;
  const Planner planner(g);
  // Keeps the best. False: the budget is not met; true: it is, or more is computed again than in another that meets it.
  const auto attempt = [&](const std::vector<int32_t>& borders, double price) {
    const std::vector<bool> again = planner.choose(borders, price);
    const double cost = planner.cost(again);
    if (best.fits && cost >= best.recomputed) return true;
    Graph candidate = planner.build(again);
    const int64_t peak = fused_peak(candidate, fusion);
    const bool fits = peak <= budget;
    if (fits || (!best.fits && peak < best.peak))
      best = {std::move(candidate), fits, peak, best.peak_before, cost};
    return fits;
  };
  const double smallest = planner.largest(), whole = std::max(planner.bytes_read_later(), smallest);
  std::vector<int32_t> tried;
  for (int k = 0; k < kSegmentSizes; ++k) {
    const double bytes =
        whole * std::pow(smallest / whole, static_cast<double>(k + 1) / kSegmentSizes);
    const std::vector<int32_t> borders = planner.borders(bytes);
    if (borders == tried) continue;
    tried = borders;
    double high = std::log(planner.high_price()), low = std::log(kLowPrice);
    for (int i = 0; i < kPrices; ++i) {
      const double price = i == 0 ? high : (low + high) / 2;
      const bool enough = attempt(borders, std::exp(price));
      if (i == 0 && !enough) break;  // nothing is left to be computed again
      (enough ? high : low) = price;
    }
  }
  return best;
}

namespace {

constexpr PassArgument kRematerialiseArguments[] = {
    {"budget", "bytes that the values of a run may take at once"}};

}  // namespace

constinit const Pass pass::rematerialise{
    .name = "rematerialise",
    .doc = "Computes values again where they are read late, so that a run stays within a budget.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          const auto alone = [&](const Node& n) { return o.alone && o.alone(n); };
          const std::string text = o.argument("budget");
          user_check(!text.empty() && text.find_first_not_of("0123456789") == text.npos &&
                         text.size() < 19,
                     "pass-option", "rematerialise: budget is a number of bytes, not {}",
                     quote(text));
          const int64_t budget = std::stoll(text);
          Rematerialised r = rlx::rematerialise(g, budget, {true, alone, o.schedule});
          user_check(r.fits, "memory-budget",
                     "\"{}\": the values of a run need at least {} bytes at once ({} when none is "
                     "computed again); the budget is {}",
                     g.name, r.peak, r.peak_before, budget);
          return std::move(r.graph);
        },
    .in_bodies = false,
    .arguments = kRematerialiseArguments};

}  // namespace rlx
