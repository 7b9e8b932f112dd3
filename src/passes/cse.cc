#include <bit>

#include "rlx/ir/expression.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

// Nodes of the old graph that were kept, by key: one table of slots, since a program of ten thousand nodes would
// otherwise be ten thousand entries all over the memory.
class Kept {
 public:
  explicit Kept(size_t nodes) : slots_(std::bit_ceil(2 * nodes + 1)) {}

  // The kept node of that key that `equals` accepts; else `fresh` is kept, and the answer is -1.
  int32_t find_or_keep(uint64_t key, int32_t fresh, FunctionRef<bool(int32_t)> equals) {
    for (size_t at = key;; ++at) {
      Slot& slot = slots_[at & (slots_.size() - 1)];
      const auto part = static_cast<uint32_t>(key >> 32);
      if (slot.node < 0) {
        slot = {part, fresh};
        return -1;
      }
      if (slot.key == part && equals(slot.node)) return slot.node;
    }
  }

 private:
  struct Slot {
    uint32_t key = 0;  // its upper half; the lower one says where the search begins
    int32_t node = -1;
  };
  std::vector<Slot> slots_;
};

Graph run_cse(Graph&& g, const PassOptions&) {
  Kept kept(g.nodes.size());
  Rebuild r(std::move(g));
  for (int32_t i = 0; i < r.size(); ++i) {
    const Node& n = r.node(i);
    int32_t equal = -1;
    if (is_expression(n))
      equal = kept.find_or_keep(expression_key(n), i, [&](int32_t j) {
        return same_expression(r.graph().node(r.at({j, 0})), n);
      });
    if (equal < 0) {
      r.keep(i);
      continue;
    }
    Values values;
    for (int32_t k = 0; k < static_cast<int32_t>(n.out.size()); ++k)
      values.push_back(r.at({equal, k}));
    r.replace(i, values);
  }
  return r.finish();
}

}  // namespace

constinit const Pass pass::cse{
    "cse", "Computes equal expressions once; equal constants become one.", run_cse};

}  // namespace rlx
