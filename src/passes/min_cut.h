// MinCut: the cheapest set of edges whose removal parts a source from a sink.
//
//   MinCut cut(vertices);                   // without source and sink
//   cut.add(cut.source(), 0, 3.0), cut.add(0, cut.sink(), 5.0);
//   cut.solve();
//   cut.is_behind(0);                       // on the sink's side
//
// Capacities are numbers of at least 0, or MinCut::kNever for an edge that is not to be cut. Where several cuts are
// cheapest, the one that leaves most on the source's side: what `is_behind` says is the least there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace rlx {

class MinCut {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit MinCut(size_t vertices) : first_(vertices + 2, -1) {}
  size_t source() const { return first_.size() - 2; }
  size_t sink() const { return first_.size() - 1; }
  void add(size_t from, size_t to, double capacity);
  void solve();
  bool is_behind(size_t vertex) const { return behind_[vertex]; }

 private:
  struct Edge {
    size_t to;
    int64_t next;  // of the same vertex
    double capacity;
    int64_t left;
  };
  bool level();
  int64_t push(size_t vertex, int64_t most);

  std::vector<int64_t> first_;  // edge of each vertex, -1: none
  std::vector<Edge> edges_;     // each with its reverse behind it
  std::vector<int32_t> level_;
  std::vector<int64_t> now_;
  std::vector<bool> behind_;
};

}  // namespace rlx
