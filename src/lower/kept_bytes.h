// KeptBytes: about how much memory graphs and programs take, by which caches of programs are bounded.
//
//   KeptBytes kept;
//   kept.add(graph), kept.add(program);
//   kept.total();
//
// Structures are counted as they lie in memory, allocations with what the allocator needs for each.
// What several share (attributes, bodies, tensors, kernels) counts once. Not counted: the code of
// kernels and a program's constants, which are an executable's to count, because they lie where the
// device wants them.
#pragma once

#include <unordered_set>

#include "rlx/lower/lir.h"

namespace rlx {

class KeptBytes {
 public:
  void add(const Graph& g);
  void add(const Program& p);
  void add(int64_t bytes) { total_ += bytes; }
  void skip(const Tensor& t) { first_time(t.storage().get()); }
  int64_t total() const { return total_; }

  // An allocation of so many bytes; nothing for none.
  static int64_t allocated(size_t bytes) {
    return bytes == 0 ? 0 : static_cast<int64_t>((bytes + 8 + 15) / 16 * 16);
  }

 private:
  bool first_time(const void* shared) { return shared && seen_.insert(shared).second; }
  void add(const Types& types);
  void add(const Attrs& attrs);
  void add(const View& v);
  void add(const std::string& text) { total_ += text.size() < 16 ? 0 : allocated(text.size()); }

  std::unordered_set<const void*> seen_;
  int64_t total_ = 0;
};

}  // namespace rlx
