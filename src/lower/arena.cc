#include "rlx/lower/arena.h"

#include <algorithm>

namespace rlx {

Arena::Arena(int64_t moments) {
  while (leaves_ < moments) leaves_ *= 2;
  nodes_.resize(static_cast<size_t>(2 * leaves_));
}

template <class F>
void Arena::each_span(int64_t first, int64_t last, F&& f) {
  int64_t low = first + leaves_, high = last + leaves_ + 1;
  for (; low < high; low /= 2, high /= 2) {
    if (low % 2) f(low++);
    if (high % 2) f(--high);
  }
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
    for (Cursor& c : cursors_) {
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
  each_span(first, last, [&](int64_t node) {
    meet(nodes_[static_cast<size_t>(node)].whole);
    meet(nodes_[static_cast<size_t>(node)].part);
    for (int64_t above = node / 2; above > 0; above /= 2)
      meet(nodes_[static_cast<size_t>(above)].whole);
  });
  // The spans of a life share the nodes above them.
  std::sort(cursors_.begin(), cursors_.end(),
            [](const Cursor& a, const Cursor& b) { return a.runs < b.runs; });
  cursors_.erase(std::unique(cursors_.begin(), cursors_.end(),
                             [](const Cursor& a, const Cursor& b) { return a.runs == b.runs; }),
                 cursors_.end());
  const int64_t offset = lowest_gap(bytes);
  const Run run{offset, offset + bytes};
  each_span(first, last, [&](int64_t node) {
    take(nodes_[static_cast<size_t>(node)].whole, run);
    for (int64_t above = node / 2; above > 0; above /= 2)
      take(nodes_[static_cast<size_t>(above)].part, run);
  });
  bytes_ = std::max(bytes_, run.end);
  return offset;
}

}  // namespace rlx
