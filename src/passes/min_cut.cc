// Dinic's algorithm: flows along shortest paths, level by level. Capacities become whole numbers, so that it ends and
// gives the same cut everywhere.
#include "rlx/passes/min_cut.h"

#include <algorithm>
#include <cmath>

namespace rlx {

namespace {
constexpr int64_t kEndless = int64_t{1} << 60;
// What the capacities that can be cut come to together.
constexpr double kTotal = 1e15;
}  // namespace

void MinCut::add(size_t from, size_t to, double capacity) {
  const auto edge = [&](size_t a, size_t b, double c) {
    edges_.push_back({b, first_[a], c, 0});
    first_[a] = static_cast<int64_t>(edges_.size()) - 1;
  };
  edge(from, to, capacity);
  edge(to, from, 0);
}

void MinCut::solve() {
  double total = 0;
  for (const Edge& e : edges_)
    if (std::isfinite(e.capacity)) total += e.capacity;
  const double scale = total > 0 ? kTotal / total : 0;
  for (Edge& e : edges_) {
    if (!std::isfinite(e.capacity))
      e.left = kEndless;
    else
      e.left = e.capacity > 0 ? std::max<int64_t>(1, std::llround(e.capacity * scale)) : 0;
  }
  while (level()) {
    now_ = first_;
    while (push(source(), kEndless) > 0) {
    }
  }
  // What still reaches the sink is on its side.
  behind_.assign(first_.size(), false);
  std::vector<size_t> work{sink()};
  behind_[sink()] = true;
  while (!work.empty()) {
    const size_t v = work.back();
    work.pop_back();
    for (int64_t e = first_[v]; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
      const size_t from = edges_[static_cast<size_t>(e)].to;
      if (behind_[from] || edges_[static_cast<size_t>(e ^ 1)].left == 0) continue;
      behind_[from] = true;
      work.push_back(from);
    }
  }
}

bool MinCut::level() {
  level_.assign(first_.size(), -1);
  std::vector<size_t> queue{source()};
  level_[source()] = 0;
  for (size_t i = 0; i < queue.size(); ++i)
    for (int64_t e = first_[queue[i]]; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.left == 0 || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[queue[i]] + 1;
      queue.push_back(edge.to);
    }
  return level_[sink()] >= 0;
}

// Along one path, whose edges a stack holds: programs are deep.
int64_t MinCut::push(size_t vertex, int64_t most) {
  std::vector<int64_t> path;
  while (vertex != sink()) {
    int64_t& e = now_[vertex];
    while (e >= 0 && (edges_[static_cast<size_t>(e)].left == 0 ||
                      level_[edges_[static_cast<size_t>(e)].to] != level_[vertex] + 1))
      e = edges_[static_cast<size_t>(e)].next;
    if (e >= 0) {
      path.push_back(e);
      vertex = edges_[static_cast<size_t>(e)].to;
      continue;
    }
    if (path.empty()) return 0;
    vertex = edges_[static_cast<size_t>(path.back() ^ 1)].to;  // a dead end: the next edge
    path.pop_back();
    now_[vertex] = edges_[static_cast<size_t>(now_[vertex])].next;
  }
  for (int64_t e : path) most = std::min(most, edges_[static_cast<size_t>(e)].left);
  for (int64_t e : path) {
    edges_[static_cast<size_t>(e)].left -= most;
    edges_[static_cast<size_t>(e ^ 1)].left += most;
  }
  return most;
}

}  // namespace rlx
