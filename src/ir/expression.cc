#include "rlx/ir/expression.h"

#include <algorithm>

#include "rlx/base/hash.h"
#include "rlx/ir/builder.h"

namespace rlx {

namespace {

// The operands as they are looked up: those of commutative ops in one order. Ops with two or more
// interchangeable operands that follow each other: all of them.
const Values& ordered(const Node& n, Values& storage) {
  if (!n.op->commutative) return n.in;
  storage = n.in;
  std::sort(storage.begin(), storage.end());
  return storage;
}

}  // namespace

bool is_expression(const Node& n) {
  return n.op != &op::input && n.op != &op::param && !n.out.empty();
}

uint64_t expression_key(const Node& n) {
  Values storage;
  uint64_t h = mix(reinterpret_cast<uintptr_t>(n.op), n.attrs.hash());
  for (Value v : ordered(n, storage))
    h = mix(h, static_cast<uint64_t>(v.node) << 8 | static_cast<uint64_t>(v.index));
  return h;
}

bool same_expression(const Node& a, const Node& b) {
  if (a.op != b.op || a.out != b.out || !(a.attrs == b.attrs)) return false;
  Values mine, other;
  return ordered(a, mine) == ordered(b, other);
}

}  // namespace rlx
