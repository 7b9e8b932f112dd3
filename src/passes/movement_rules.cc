// Identities of data movement. Attributes are normalised: slices state start, limit and stride for
// every axis, pads low and high.
#include <algorithm>

#include "rlx/ops/rules.h"
#include "rlx/passes/simplify_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

bool same_type(const Match& m) { return m.type(x) == m.type(); }
bool all_zero(const Shape& dims) {
  return std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d == Dim(0); });
}
bool none_negative(const Shape& dims) {
  return std::all_of(dims.begin(), dims.end(),
                     [](const Dim& d) { return d.is_static() && d.value() >= 0; });
}
bool all_ones(const Ints& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 1; });
}
Shape sum(Shape a, const Shape& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] + b[i];
  return a;
}

bool identity_permutation(const Match& m) {
  const Ints& perm = m.get<TransposeAttrs>().perm;
  return std::is_sorted(perm.begin(), perm.end());
}

Value composed_transpose(Builder& b, const Match& m) {
  const Ints &outer = m.get<TransposeAttrs>().perm, &inner = m.get<TransposeAttrs>(y).perm;
  Ints perm;
  for (int64_t axis : outer) perm.push_back(inner[static_cast<size_t>(axis)]);
  return op::transpose(b, m[x], {perm});
}

bool full_slice(const Match& m) { return same_type(m) && all_zero(m.get<SliceAttrs>().start); }

Value composed_slice(Builder& b, const Match& m) {
  const auto &outer = m.get<SliceAttrs>(), &inner = m.get<SliceAttrs>(y);
  return op::slice(b, m[x],
                   {sum(inner.start, outer.start), sum(inner.start, outer.limit), outer.stride});
}

// ---- concat

bool joins_alike(const Match& m, const Node& n) {
  return n.op == &op::concat && n.get<AxisAttrs>().axis == m.get<AxisAttrs>().axis;
}

bool is_part_concat(const Match& m, Value v) {
  return joins_alike(m, m.graph().node(v)) && m.single_use(v);
}

// The last concat of a chain takes in all before it, at once: one after the other would copy the parts again and again.
bool has_concat(const Match& m) {
  return !(m.reader() && joins_alike(m, *m.reader())) &&
         std::any_of(m.root().in.begin(), m.root().in.end(),
                     [&](Value v) { return is_part_concat(m, v); });
}

Value flat_concat(Builder& b, const Match& m) {
  Values parts, open(m.root().in.rbegin(), m.root().in.rend());
  while (!open.empty()) {
    const Value v = open.back();
    open.pop_back();
    const Values& in = m.graph().node(v).in;
    if (is_part_concat(m, v))
      open.insert(open.end(), in.rbegin(), in.rend());
    else
      parts.push_back(v);
  }
  return b.emit(op::concat.def, m.root().attrs, parts)[0];
}

// Where the operands of the concat y end. Many slices may read one concat: it is found out once.
const Shape& ends_of_parts(const Match& m) {
  const auto axis = static_cast<size_t>(m.get<AxisAttrs>(y).axis);
  Shape& ends = m.note(y);
  if (!ends.empty()) return ends;
  Dim end = 0;
  for (Value v : m.node(y).in) ends.push_back(end = end + m.graph().type(v).shape[axis]);
  return ends;
}

// Whether a <= b; sizes that differ by a symbol do not say.
bool is_at_most(const Dim& a, const Dim& b) {
  const auto rest = (b - a).static_value();
  return rest && *rest >= 0;
}

// The operand of the concat y that holds all of the slice, and where that operand starts.
struct Piece {
  Value value;
  Dim start = 0;
};
constexpr size_t kMostSymbolicParts = 64;  // which have no order, and are looked at one by one

std::optional<Piece> sliced_piece(const Match& m) {
  const auto axis = static_cast<size_t>(m.get<AxisAttrs>(y).axis);
  const Dim &start = m.get<SliceAttrs>().start[axis], &limit = m.get<SliceAttrs>().limit[axis];
  const Shape& ends = ends_of_parts(m);
  const auto piece = [&](size_t i) -> std::optional<Piece> {
    const Dim first = i == 0 ? Dim(0) : ends[i - 1];
    if (!is_at_most(first, start) || !is_at_most(limit, ends[i])) return std::nullopt;
    return Piece{m.node(y).in[i], first};
  };
  // Ends that are numbers come first: behind a symbol there is none.
  const auto numbers = std::partition_point(ends.begin(), ends.end(),
                                            [](const Dim& end) { return end.is_static(); });
  auto at = ends.begin();
  if (limit.is_static()) {
    at = std::lower_bound(ends.begin(), numbers, limit,
                          [](const Dim& end, const Dim& to) { return !is_at_most(to, end); });
    if (at != numbers) return piece(static_cast<size_t>(at - ends.begin()));
  } else {
    at = numbers;
  }
  for (size_t i = static_cast<size_t>(at - ends.begin()), seen = 0;
       i < ends.size() && seen < kMostSymbolicParts; ++i, ++seen)
    if (const auto found = piece(i)) return found;
  return std::nullopt;
}

Value slice_of_piece(Builder& b, const Match& m) {
  const auto axis = static_cast<size_t>(m.get<AxisAttrs>(y).axis);
  const Piece piece = *sliced_piece(m);
  SliceAttrs s = m.get<SliceAttrs>();
  s.start[axis] = s.start[axis] - piece.start;
  s.limit[axis] = s.limit[axis] - piece.start;
  return op::slice(b, piece.value, s);
}

// What is done to each element of [a | a] is done to a once. The other operands are scalars or such concats, too.
std::optional<Node> repeated_parts(const Match& m) {
  std::optional<Node> first;
  for (Value v : m.root().in) {
    const Node& n = m.graph().node(v);
    if (n.type().rank() == 0) continue;
    const bool repeats =
        n.op == &op::concat && n.in.size() > 1 && n.type().shape == m.type().shape &&
        std::all_of(n.in.begin(), n.in.end(), [&](Value part) { return part == n.in[0]; });
    if (!repeats) return std::nullopt;
    if (!first) first = n;
    if (first->in.size() != n.in.size() || first->get<AxisAttrs>().axis != n.get<AxisAttrs>().axis)
      return std::nullopt;
  }
  return first;
}

Value computed_once(Builder& b, const Match& m) {
  const Node concat = *repeated_parts(m);
  Values in = m.root().in;
  for (Value& v : in)
    if (b.type(v).rank() > 0) v = b.node(v).in[0];
  const Value part = b.emit(*m.root().op, m.root().attrs, in)[0];
  return b.emit(op::concat.def, concat.attrs, Values(concat.in.size(), part))[0];
}

// ---- pad

bool pads_merge(const Match& m) {
  const auto &outer = m.get<PadAttrs>(), &inner = m.get<PadAttrs>(y);
  return same_elements(m.graph(), m[c], m[d]) && none_negative(outer.low) &&
         none_negative(outer.high) && none_negative(inner.low) && none_negative(inner.high);
}

Value merged_pad(Builder& b, const Match& m) {
  const auto &outer = m.get<PadAttrs>(), &inner = m.get<PadAttrs>(y);
  return op::pad(b, m[x], m[c], {sum(inner.low, outer.low), sum(inner.high, outer.high)});
}

// A sum of zero pads that lie side by side along one axis, as the gradients of slices of one tensor
// give it.
struct SideBySide {
  Values parts;  // in order
  size_t axis = 0;
  PadAttrs around;  // what is left to pad around the concatenation
};
constexpr size_t kMaxParts = 64;

// The pads that an add (of adds) sums, or nothing when something else is among them.
std::optional<std::vector<const Node*>> summed_pads(const Match& m) {
  std::vector<const Node*> pads;
  Values open = m.root().in;
  while (!open.empty()) {
    const Value v = open.back();
    open.pop_back();
    const Node& n = m.graph().node(v);
    if (n.op == &op::pad && n.type() == m.type()) {
      const auto value = splat_value(m.graph(), n.in[1]);
      const auto& p = n.get<PadAttrs>();
      if (!value || *value != Complex(0) || !none_negative(p.low) || !none_negative(p.high))
        return std::nullopt;
      pads.push_back(&n);
    } else if (n.op == &op::add && n.type() == m.type() && m.single_use(v)) {
      open.insert(open.end(), n.in.begin(), n.in.end());
    } else {
      return std::nullopt;
    }
    if (pads.size() + open.size() > kMaxParts) return std::nullopt;
  }
  return pads;
}

std::optional<SideBySide> side_by_side(const Match& m) {
  auto pads = summed_pads(m);
  if (!pads) return std::nullopt;
  auto low = [](const Node* n) -> const Shape& { return n->get<PadAttrs>().low; };
  auto high = [](const Node* n) -> const Shape& { return n->get<PadAttrs>().high; };
  SideBySide out;
  const Shape &first_low = low(pads->front()), &other_low = low(pads->back());
  while (out.axis < first_low.size() && first_low[out.axis] == other_low[out.axis]) ++out.axis;
  if (out.axis == first_low.size()) return std::nullopt;
  const size_t axis = out.axis;
  std::sort(pads->begin(), pads->end(), [&](const Node* a, const Node* b) {
    return low(a)[axis].value() < low(b)[axis].value();
  });
  for (size_t k = 0; k < pads->size(); ++k) {
    const Node* n = (*pads)[k];
    for (size_t i = 0; i < first_low.size(); ++i)
      if (i != axis &&
          !(low(n)[i] == low(pads->front())[i] && high(n)[i] == high(pads->front())[i]))
        return std::nullopt;
    if (k + 1 < pads->size() &&
        !(m.type().shape[axis] - high(n)[axis] == low((*pads)[k + 1])[axis]))
      return std::nullopt;
    out.parts.push_back(n->in[0]);
  }
  out.around = {low(pads->front()), high(pads->front())};
  out.around.high[axis] = high(pads->back())[axis];
  return out;
}

Value concat_of_pads(Builder& b, const Match& m) {
  const SideBySide s = *side_by_side(m);
  const Value all = b.emit(op::concat.def, AxisAttrs{static_cast<int64_t>(s.axis)}, s.parts)[0];
  if (all_zero(s.around.low) && all_zero(s.around.high)) return all;
  return op::pad(b, all, b.constant(m.type().dtype, 0), s.around);
}

}  // namespace

RuleSet movement_rules() {
  return {
      {"transpose-identity", pat(op::transpose, {x}), identity_permutation,
       [](Builder&, const Match& m) { return m[x]; }},
      {"transpose-transpose", pat(op::transpose, {pat(op::transpose, {x}).as(y)}),
       composed_transpose},
      {"reshape-identity", pat(op::reshape, {x}), same_type,
       [](Builder&, const Match& m) { return m[x]; }},
      {"reshape-reshape", pat(op::reshape, {pat(op::reshape, {x})}),
       [](Builder& b, const Match& m) { return reshape_to(b, m[x], m.type().shape); }},
      {"broadcast-identity", pat(op::broadcast, {x}), same_type,
       [](Builder&, const Match& m) { return m[x]; }},
      {"broadcast-broadcast", pat(op::broadcast, {pat(op::broadcast, {x})}),
       [](Builder& b, const Match& m) { return broadcast_to(b, m[x], m.type().shape); }},
      {"reverse-nothing", pat(op::reverse, {x}),
       [](const Match& m) { return m.get<ReverseAttrs>().axes.empty(); },
       [](Builder&, const Match& m) { return m[x]; }},
      {"reverse-reverse", pat(op::reverse, {pat(op::reverse, {x}).as(y)}),
       [](const Match& m) { return m.get<ReverseAttrs>().axes == m.get<ReverseAttrs>(y).axes; },
       [](Builder&, const Match& m) { return m[x]; }},
      // Moving equal elements about gives equal elements.
      {"move-splat", pat({op::transpose, op::reshape, op::slice, op::reverse}, {any_splat.as(c)}),
       [](Builder& b, const Match& m) {
         return broadcast_to(b, splat_scalar(b, m[c]), m.type().shape);
       }},

      {"slice-full", pat(op::slice, {x}), full_slice,
       [](Builder&, const Match& m) { return m[x]; }},
      {"slice-slice", pat(op::slice, {pat(op::slice, {x}).as(y)}),
       [](const Match& m) { return all_ones(m.get<SliceAttrs>(y).stride); }, composed_slice},
      {"slice-concat", pat(op::slice, {pat(op::concat).as(y)}),
       [](const Match& m) { return sliced_piece(m).has_value(); }, slice_of_piece},

      {"concat-one", pat(op::concat, {x}), [](Builder&, const Match& m) { return m[x]; }},
      {"concat-concat", pat(op::concat), has_concat, flat_concat},
      {"concat-same", pat(Kind::elementwise),
       [](const Match& m) { return repeated_parts(m).has_value(); }, computed_once},

      {"pad-nothing", pat(op::pad, {x, y}),
       [](const Match& m) {
         return all_zero(m.get<PadAttrs>().low) && all_zero(m.get<PadAttrs>().high);
       },
       [](Builder&, const Match& m) { return m[x]; }},
      {"pad-pad", pat(op::pad, {pat(op::pad, {x, d}).as(y), c}), pads_merge, merged_pad},
      // The one rule that may turn a zero's sign without fast_math: the sum gives -0 + +0 = +0
      // where the concat keeps -0.
      {"pads-to-concat",
       pat(op::add, {pat({op::pad, op::add}, {y, z}), pat({op::pad, op::add}, {c, d})}),
       [](const Match& m) { return side_by_side(m).has_value(); }, concat_of_pads},
  };
}

}  // namespace rlx
