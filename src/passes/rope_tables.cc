#include "rlx/passes/rope_tables.h"

#include <algorithm>
#include <map>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/movement/shaping.h"
#include "rlx/ops/rules.h"

namespace rlx {

namespace {

constexpr int kDeepestTable = 12;

// [.., n] of [.., n, 1].
Value before_column(const Graph& g, Value v) {
  const Node* n = made_by(g, v, op::reshape);
  if (!n) return kNone;
  Shape as_column = g.type(n->in[0]).shape;
  as_column.push_back(1);
  return n->type().shape == as_column ? n->in[0] : kNone;
}

// Whether n sees pairs [.., pairs, 2] as one axis.
bool splits_pairs(const Graph& g, const Node& n) {
  if (n.op != &op::reshape) return false;
  const Shape& s = g.type(n.in[0]).shape;
  return s.size() >= 2 && s.back() == Dim(2) && s[s.size() - 2] * Dim(2) == n.type().shape.back();
}

bool equal_pairs(const Graph& g, Value v, bool interleaved, int depth) {
  const Node& n = g.node(v);
  if (depth > kDeepestTable || n.type().rank() == 0) return false;
  const auto same = [&](Value of) { return equal_pairs(g, of, interleaved, depth + 1); };
  const Dim& width = n.type().shape.back();
  if (n.op == &op::constant) {
    const Tensor& t = n.get<ConstantAttrs>().value;
    const int64_t columns = t.sizes().back();
    if (!is_float(t.dtype()) || columns % 2 != 0) return false;
    for (int64_t i = 0; i < t.elements(); i += columns)
      for (int64_t k = 0; k < columns / 2; ++k)
        if (t.get_float(i + (interleaved ? 2 * k : k)) !=
            t.get_float(i + (interleaved ? 2 * k + 1 : k + columns / 2)))
          return false;
    return true;
  }
  if (!interleaved && is_concat_along_last(n, 2)) return n.in[0] == n.in[1];
  if (interleaved && n.op == &op::repeat) {
    const auto& a = n.get<RepeatAttrs>();
    return a.axis == n.type().rank() - 1 && a.repeats == 2;
  }
  if (interleaved && splits_pairs(g, n)) {
    const Node& pairs = g.node(n.in[0]);
    if (pairs.op == &op::broadcast)
      return g.type(pairs.in[0]).rank() > 0 && g.type(pairs.in[0]).shape.back() == Dim(1);
    const auto both = neighbours(g, pairs);
    return both && both->first == both->second;
  }
  if (n.op == &op::reshape || n.op == &op::broadcast)
    return g.type(n.in[0]).rank() > 0 && g.type(n.in[0]).shape.back() == width && same(n.in[0]);
  if (n.op == &op::transpose)
    return n.get<TransposeAttrs>().perm.back() == n.type().rank() - 1 && same(n.in[0]);
  if (n.op == &op::gather)  // of rows
    return g.type(n.in[0]).rank() >= 2 && n.get<AxisAttrs>().axis < g.type(n.in[0]).rank() - 1 &&
           same(n.in[0]);
  if (n.op == &op::slice) {
    const auto& a = n.get<SliceAttrs>();
    return a.start.back() == Dim(0) && a.limit.back() == g.type(n.in[0]).shape.back() &&
           a.stride.back() == 1 && same(n.in[0]);
  }
  if (n.op->kind != Kind::elementwise || n.in.empty()) return false;
  return std::all_of(n.in.begin(), n.in.end(), [&](Value of) {
    const Type& t = g.type(of);
    return t.rank() == 0 || t.shape.back() == Dim(1) || (t.shape.back() == width && same(of));
  });
}

// The values of a table made anew; each once.
class Columns {
 public:
  Columns(Builder& b, bool interleaved) : b_(b), interleaved_(interleaved) {}

  Value of(Value v) {
    if (const auto it = made_.find(v); it != made_.end()) return it->second;
    return made_[v] = make(v);
  }

 private:
  bool is_as_wide(Value v, const Dim& width) const {
    return b_.type(v).rank() > 0 && b_.shape(v).back() == width;
  }

  Value make(Value v) {
    const Node n = b_.node(v);  // NOLINT: a copy, the graph grows
    Shape shape = b_.shape(v);
    const Dim width = shape.back(), pairs = width.value() / 2;
    shape.back() = pairs;
    if (!interleaved_ && is_concat_along_last(n, 2)) return n.in[0];
    if (interleaved_ && n.op == &op::repeat) return n.in[0];
    if (interleaved_ && splits_pairs(b_.graph(), n)) {
      const Node both = b_.node(n.in[0]);  // NOLINT
      if (both.op != &op::broadcast)
        return reshape_to(b_, neighbours(b_.graph(), both)->first, shape);
      Shape one = b_.shape(both.in[0]), repeated = both.type().shape;
      one.pop_back(), repeated.pop_back();
      return reshape_to(b_, broadcast_to(b_, reshape_to(b_, both.in[0], one), repeated), shape);
    }
    if (n.op == &op::reshape) return reshape_to(b_, of(n.in[0]), shape);
    if (n.op == &op::broadcast) return broadcast_to(b_, of(n.in[0]), shape);
    if (n.op == &op::transpose) return op::transpose(b_, of(n.in[0]), n.get<TransposeAttrs>());
    if (n.op == &op::gather) return b_.emit(*n.op, n.attrs, Values{of(n.in[0]), n.in[1]})[0];
    if (n.op == &op::slice) {
      SliceAttrs a = n.get<SliceAttrs>();
      a.limit.back() = pairs;
      return op::slice(b_, of(n.in[0]), a);
    }
    if (n.op->kind == Kind::elementwise) {
      Values in = n.in;
      for (Value& operand : in)
        if (is_as_wide(operand, width)) operand = of(operand);
      return b_.emit(*n.op, n.attrs, in)[0];
    }
    // A constant.
    SliceAttrs a{Shape(shape.size(), Dim(0)), b_.shape(v), Ints(shape.size(), 1)};
    if (interleaved_)
      a.stride.back() = 2;
    else
      a.limit.back() = pairs;
    return op::slice(b_, v, a);
  }

  Builder& b_;
  bool interleaved_;
  std::map<Value, Value> made_;
};

}  // namespace

bool is_concat_along_last(const Node& n, size_t parts) {
  return n.op == &op::concat && n.in.size() == parts &&
         n.get<AxisAttrs>().axis == n.type().rank() - 1;
}

std::optional<Neighbours> neighbours(const Graph& g, const Node& n) {
  if (n.op == &op::stack && n.in.size() == 2 && n.get<AxisAttrs>().axis == n.type().rank() - 1)
    return Neighbours{n.in[0], n.in[1], false};
  if (!is_concat_along_last(n, 2) || !(n.type().shape.back() == Dim(2)) || n.type().rank() < 2)
    return std::nullopt;
  const Value first = before_column(g, n.in[0]), second = before_column(g, n.in[1]);
  if (first.valid() && second.valid()) return Neighbours{first, second, false};
  return Neighbours{n.in[0], n.in[1], true};
}

bool pairs_are_equal(const Graph& g, Value v, bool interleaved) {
  return equal_pairs(g, v, interleaved, 0);
}

Value column_of_pairs(Builder& b, Value v, bool interleaved) {
  return Columns(b, interleaved).of(v);
}

}  // namespace rlx
