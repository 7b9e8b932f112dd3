#include "rlx/lower/arena.h"

#include <algorithm>

namespace rlx {

Arena::Arena(int64_t moments) {
  while (leaves_ < moments) leaves_ *= 2;
  nodes_.resize(static_cast<size_t>(2 * leaves_));
}

template <class F, class G>
void Arena::each_span(int64_t first, int64_t last, F&& span, G&& above) {
  first += leaves_, last += leaves_;
  int64_t low = first, high = last + 1;
  // The parents of the spans on the left are all above the leaf `first`, those on the right above `last`.
  int64_t left = 0, right = 0;  // the lowest of them; 0: none
  for (; low < high; low /= 2, high /= 2, first /= 2, last /= 2) {
    if (low % 2) {
      span(low++);
      if (!left) left = first / 2;
    }
    if (high % 2) {
      span(--high);
      if (!right) right = last / 2;
    }
  }
  // Of two nodes the larger number is at the deeper level, or at the same; the paths meet at the latest at the root.
  while (left != right) {
    int64_t& deeper = left > right ? left : right;
    above(deeper);
    deeper /= 2;
  }
  for (; left > 0; left /= 2) above(left);
}

void Arena::take(Runs& runs, Run run) {
  // What touches or overlaps the run becomes part of it.
  auto from = std::lower_bound(runs.begin(), runs.end(), run.begin,
                               [](const Run& r, int64_t begin) { return r.end < begin; });
  auto to = from;
  for (; to != runs.end() && to->begin <= run.end; ++to) {
    run.begin = std::min(run.begin, to->begin);
    run.end = std::max(run.end, to->end);
  }
  if (from == to) {
    runs.insert(from, run);
  } else {
    *from = run;
    runs.erase(from + 1, to);
  }
  if (runs.size() > kMaxRuns) {
    runs[kMaxRuns - 1].end = runs.back().end;
    runs.resize(kMaxRuns);
  }
}

int64_t Arena::lowest_gap(int64_t bytes) {
  int64_t offset = 0;
  for (bool moved = true; moved;) {
    moved = false;
    // Those of the longest spans first: they lead furthest.
    for (size_t i = cursors_.size(); i-- > 0;) {
      Cursor& c = cursors_[i];
      for (; c.at < c.runs->size() && (*c.runs)[c.at].end <= offset; ++c.at) ++visits_;
      ++visits_;
      if (c.at < c.runs->size() && (*c.runs)[c.at].begin < offset + bytes) {
        offset = (*c.runs)[c.at].end;
        moved = true;
      }
    }
  }
  return offset;
}

int64_t Arena::place(int64_t first, int64_t last, int64_t bytes) {
  // Whatever lies in a node of the life or below it meets the life, and what fills a node above.
  cursors_.clear();
  auto meet = [&](const Runs& runs) {
    if (!runs.empty()) cursors_.push_back({&runs, 0});
  };
  auto at = [&](int64_t node) -> Node& { return nodes_[static_cast<size_t>(node)]; };
  each_span(
      first, last, [&](int64_t node) { meet(at(node).whole), meet(at(node).part); },
      [&](int64_t node) { meet(at(node).whole); });
  const int64_t offset = lowest_gap(bytes);
  const Run run{offset, offset + bytes};
  each_span(
      first, last, [&](int64_t node) { take(at(node).whole, run); },
      [&](int64_t node) { take(at(node).part, run); });
  bytes_ = std::max(bytes_, run.end);
  return offset;
}

}  // namespace rlx
