// Arena: where buffers with given lives lie in one block of memory.
//
//   Arena arena(moments);
//   int64_t offset = arena.place(3, 7, 4096);    // free at all moments from 3 to 7
//
// place() takes the lowest gap that is free for the whole life. What is taken is held by moments: in a binary
// tree over them, each node has the bytes taken during all of its span and the bytes taken somewhere in it, both as
// sorted runs; neighbours become one run. A life is a few nodes of the tree, so placing looks at a few short
// lists and not at every buffer that was placed before. A list that would grow beyond kMaxRuns gives up the gaps
// above that many: what is placed later lies a little higher there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rlx {

class Arena {
 public:
  static constexpr size_t kMaxRuns = 128;

  explicit Arena(int64_t moments);
  // Bytes for a buffer that lives from moment `first` to `last`, both included.
  int64_t place(int64_t first, int64_t last, int64_t bytes);
  int64_t bytes() const { return bytes_; }    // of the whole arena
  int64_t visits() const { return visits_; }  // runs that place() looked at so far

 private:
  struct Run {
    int64_t begin, end;
  };
  using Runs = std::vector<Run>;  // ascending, apart from each other
  struct Node {
    Runs whole;  // taken during all of the node's moments, and not during all of its parent's
    Runs part;   // taken at some of its moments, by what is in `whole` of a node below
  };

  static void take(Runs& runs, Run run);
  int64_t lowest_gap(int64_t bytes);
  // Calls span for the largest nodes that make up [first, last], and above for each node above any of them, once.
  template <class F, class G>
  void each_span(int64_t first, int64_t last, F&& span, G&& above);

  int64_t leaves_ = 1, bytes_ = 0, visits_ = 0;
  std::vector<Node> nodes_;  // of the tree: the children of i are 2i and 2i + 1, the root is 1
  struct Cursor {
    const Runs* runs;
    size_t at;
  };
  std::vector<Cursor> cursors_;  // the lists that a life meets
};

}  // namespace rlx
