// Rotary positions that are written out: pairs of the last axis, the halves or the neighbours, that are turned by the
// angles of their row.
//
//   x * cos + rotated(x) * sin             rotated(x): [-second | first] of the pairs
//   [first * cos - second * sin | second * cos + first * sin]
//
// In the first form the tables have a column for each element, and the columns of a pair must be the same; that is asked of
// how they are made.
#include <algorithm>
#include <array>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/movement/shaping.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/recognise_rules.h"
#include "rlx/passes/rope_tables.h"

namespace rlx {

namespace {

using namespace rule_words;

// ---- the elements of pairs

// One element of each of the pairs among the first 2 * pairs elements of the last axis of `of`. With split, `of` is
// [.., pairs, 2].
struct OfPairs {
  Value of;
  int64_t pairs = 0;
  bool second = false, interleaved = false, split = false;

  bool goes_with(const OfPairs& first) const {
    return second && !first.second && of == first.of && pairs == first.pairs &&
           interleaved == first.interleaved && split == first.split;
  }
};

// A part [start, limit) of the last axis alone.
struct LastPart {
  Value of;
  int64_t start, limit, stride;
};
std::optional<LastPart> last_part(const Graph& g, Value v) {
  const Node& n = g.node(v);
  if (n.op == &op::split) {
    const auto& a = n.get<SplitAttrs>();
    if (a.axis != g.type(n.in[0]).rank() - 1) return std::nullopt;
    int64_t start = 0;
    for (int32_t i = 0; i <= v.index; ++i) {
      const auto size = a.sizes[at(i)].static_value();
      if (!size) return std::nullopt;
      if (i == v.index) return LastPart{n.in[0], start, start + *size, 1};
      start += *size;
    }
  }
  if (n.op != &op::slice) return std::nullopt;
  const auto& a = n.get<SliceAttrs>();
  const Shape& s = g.type(n.in[0]).shape;
  const size_t last = s.size() - 1;
  for (size_t i = 0; i < last; ++i)
    if (!(a.start[i] == Dim(0)) || !(a.limit[i] == s[i]) || a.stride[i] != 1) return std::nullopt;
  const auto start = a.start[last].static_value(), limit = a.limit[last].static_value();
  if (!start || !limit) return std::nullopt;
  return LastPart{n.in[0], *start, *limit, a.stride[last]};
}

// v [.., pairs, 1] or, without column, [.., pairs].
std::optional<OfPairs> of_split_pairs(const Graph& g, Value v, bool column) {
  if (const Node* n = column ? nullptr : made_by(g, v, op::reshape)) {
    Shape as_column = n->type().shape;
    as_column.push_back(1);
    if (g.type(n->in[0]).shape == as_column) v = n->in[0];
  }
  const auto part = last_part(g, v);
  if (!part || part->limit != part->start + 1) return std::nullopt;
  const Shape& s = g.type(part->of).shape;
  const auto pairs = s.size() < 2 ? std::nullopt : s[s.size() - 2].static_value();
  if (!pairs || !(s.back() == Dim(2)) || g.type(v).rank() != g.type(part->of).rank())
    return std::nullopt;
  return OfPairs{part->of, *pairs, part->start == 1, true, true};
}

std::optional<OfPairs> of_pairs(const Graph& g, Value v) {
  if (const auto split = of_split_pairs(g, v, false); split && g.node(v).op == &op::reshape)
    return split;
  const auto part = last_part(g, v);
  if (!part) return std::nullopt;
  const int64_t size = ceil_div(part->limit - part->start, part->stride);
  if (part->stride == 1 && (part->start == 0 || part->start == size))
    return OfPairs{part->of, size, part->start != 0, false, false};
  if (part->stride == 2 && (part->start == 0 || part->start == 1))
    return OfPairs{part->of, size, part->start == 1, true, false};
  return std::nullopt;
}

// The value behind reshapes: the elements in their order.
Value elements_of(const Graph& g, Value v) {
  while (const Node* n = made_by(g, v, op::reshape)) v = n->in[0];
  return v;
}

// Of [-second | first]: the pairs.
std::optional<OfPairs> rotated(const Graph& g, Value v) {
  const auto read = [&](Value minus_second, Value first, bool columns) -> std::optional<OfPairs> {
    const auto element = [&](Value e) {
      return columns ? of_split_pairs(g, e, true) : of_pairs(g, e);
    };
    Value second = kNone;
    if (const Node* neg = made_by(g, minus_second, op::neg)) second = neg->in[0];
    if (!second.valid()) return std::nullopt;
    const auto one = element(first), other = element(second);
    return one && other && other->goes_with(*one) ? one : std::nullopt;
  };
  const Node* n = &g.node(v);
  if (is_concat_along_last(*n, 2))
    if (const auto p = read(n->in[0], n->in[1], false); p && !p->interleaved) return p;
  if (n->op != &op::reshape) return std::nullopt;
  const auto both = neighbours(g, g.node(n->in[0]));
  if (!both) return std::nullopt;
  Shape merged = g.type(n->in[0]).shape;
  merged.pop_back();
  merged.back() = merged.back() * Dim(2);
  if (merged != n->type().shape) return std::nullopt;
  const auto p = read(both->first, both->second, both->columns);
  return p && p->interleaved ? p : std::nullopt;
}

// Whether v joins the elements of pairs in another way than rotated() asks.
bool turns_otherwise(const Graph& g, Value v) {
  const Node* n = &g.node(v);
  if (n->op == &op::reshape) n = &g.node(n->in[0]);
  if (n->in.size() != 2 || (n->op != &op::concat && n->op != &op::stack)) return false;
  std::array<std::optional<OfPairs>, 2> parts;
  for (size_t i : {0, 1}) {
    Value part = n->in[i];
    if (const Node* neg = made_by(g, part, op::neg)) part = neg->in[0];
    parts[i] = of_pairs(g, part);
    if (!parts[i]) parts[i] = of_split_pairs(g, part, true);
  }
  return parts[0] && parts[1] && parts[0]->of == parts[1]->of;
}

// ---- the tables

// A table of angles as it lies beside [.., columns]: which of those axes counts its rows.
struct Table {
  Value v;
  int64_t axis;
};
std::optional<Table> table_beside(const Graph& g, Value v, const Shape& beside, const Match& m) {
  if (const Node* n = made_by(g, v, op::broadcast)) v = n->in[0];
  const Shape& s = g.type(v).shape;
  const int64_t rank = beside.rank(), missing = rank - s.rank();
  if (s.empty() || missing < 0 || !(s.back() == beside.back())) return std::nullopt;
  // The rows are those of the axis before the last, or of the one before that when heads lie between.
  std::optional<int64_t> rows;
  for (int64_t i = 0; i + 1 < s.rank(); ++i)
    if (!(s[at(i)] == Dim(1))) {
      if (rows) return missed(m, "a table of angles has rows along more than one axis");
      rows = i + missing;
    }
  for (int64_t axis : {rank - 2, rank - 3}) {
    if (axis < 0 || (rows && *rows != axis)) continue;
    const Dim have = rows ? s[at(axis - missing)] : Dim(1);
    if (have == beside[at(axis)]) return Table{v, axis};
  }
  return missed(m, "no axis of the rotated value counts the rows of the angles");
}

// ---- the rules

struct Rotation {
  OfPairs pairs;
  Value x = kNone;  // what is turned as a whole, when there is such a value
  Value cos = kNone, sin = kNone;
  int64_t axis = 0;      // of the positions
  Shape shape;           // of what is turned
  bool doubled = false;  // the tables have a column for each element
};

std::optional<Rotation> with_tables(const Match& m, Rotation r, Value cos, Value sin) {
  const Graph& g = m.graph();
  Shape beside = r.shape;
  if (!r.doubled) beside.back() = r.pairs.pairs;
  const auto c = table_beside(g, cos, beside, m), s = table_beside(g, sin, beside, m);
  if (!c || !s) return std::nullopt;
  if (c->axis != s->axis || g.type(c->v).dtype != g.type(s->v).dtype)
    return missed(m, "the tables of cosines and sines differ in their rows");
  for (Value t : {c->v, s->v})
    if (r.doubled && !pairs_are_equal(g, t, r.pairs.interleaved))
      return missed(m, fmt::format("the columns of each pair of {} are not known to be the same",
                                   t == c->v ? "cos" : "sin"));
  r.cos = c->v, r.sin = s->v, r.axis = c->axis;
  return r;
}

// x * cos + rotated(x) * sin.
std::optional<Rotation> whole_rotation(const Match& m) {
  const Graph& g = m.graph();
  if (!is_float(m.type().dtype)) return std::nullopt;
  for (size_t i : {0, 1})
    for (size_t k : {0, 1}) {
      const Node *plain = made_by(g, m.root().in[i], op::mul),
                 *turned = made_by(g, m.root().in[1 - i], op::mul);
      if (!plain || !turned) return std::nullopt;
      const auto pairs = rotated(g, turned->in[k]);
      if (!pairs) {
        if (turns_otherwise(g, turned->in[k]))
          m.refuse("the elements of pairs are not joined as [-second | first]");
        continue;
      }
      const Type& t = g.type(turned->in[k]);
      for (size_t l : {0, 1}) {
        const Value of = plain->in[l];
        const auto part = last_part(g, of);
        const bool is_x =
            g.type(of) == t &&
            (pairs->split ? elements_of(g, of) == elements_of(g, pairs->of)
                          : of == pairs->of || (part && part->of == pairs->of && part->start == 0 &&
                                                part->stride == 1));
        if (!is_x) continue;
        if (m.type() != t) return missed(m, "the angles repeat what is turned");
        Rotation r{*pairs, of, kNone, kNone, 0, t.shape, true};
        return with_tables(m, r, plain->in[1 - l], turned->in[1 - k]);
      }
      m.refuse("what is turned is not what the cosines multiply");
    }
  return std::nullopt;
}

// The products of a difference or a sum: first, factor and so on.
struct TwoProducts {
  std::array<Value, 2> a, b;
};
std::optional<TwoProducts> products(const Graph& g, Value v, OpRef sum) {
  const Node* n = made_by(g, v, sum);
  const Node *a = n ? made_by(g, n->in[0], op::mul) : nullptr,
             *b = n ? made_by(g, n->in[1], op::mul) : nullptr;
  if (!a || !b) return std::nullopt;
  return TwoProducts{{a->in[0], a->in[1]}, {b->in[0], b->in[1]}};
}
// The other factor beside v.
Value factor_beside(const std::array<Value, 2>& product, Value v) {
  return product[0] == v ? product[1] : product[1] == v ? product[0] : kNone;
}

// one = first * cos - second * sin, other = second * cos + first * sin.
std::optional<Rotation> rotation_by_elements(const Match& m, Value one, Value other, bool columns) {
  const Graph& g = m.graph();
  if (!is_float(g.type(one).dtype) || g.type(one) != g.type(other)) return std::nullopt;
  const auto minus = products(g, one, op::sub), plus = products(g, other, op::add);
  if (!minus || !plus) return std::nullopt;
  const auto element = [&](Value v) {
    return columns ? of_split_pairs(g, v, true) : of_pairs(g, v);
  };
  for (Value first : minus->a) {
    const auto p = element(first);
    if (!p || p->second) continue;
    for (Value second : minus->b) {
      const auto q = element(second);
      if (!q || !q->goes_with(*p)) continue;
      const Value cos = factor_beside(minus->a, first), sin = factor_beside(minus->b, second);
      for (const auto& [l, r] : {std::pair{plus->a, plus->b}, std::pair{plus->b, plus->a}}) {
        if (factor_beside(l, second) != cos || factor_beside(r, first) != sin) continue;
        if (g.type(first) != g.type(one)) return missed(m, "the angles repeat what is turned");
        if (columns) return missed(m, "the angles lie along the axis of the pairs");
        Rotation r_{*p, kNone, kNone, kNone, 0, g.type(one).shape, false};
        r_.shape.back() = 2 * p->pairs;
        return with_tables(m, r_, cos, sin);
      }
      m.refuse("the two elements of a pair are not turned by one angle");
    }
  }
  return std::nullopt;
}

// The parts of a concat that make up the pairs, and how many elements follow that are copied.
std::optional<Rotation> joined_rotation(const Match& m) {
  const Graph& g = m.graph();
  const Node& n = m.root();
  if (const auto both = neighbours(g, n))
    if (const auto r = rotation_by_elements(m, both->first, both->second, both->columns);
        r && r->pairs.interleaved)
      return r;
  if (n.op != &op::concat || !(is_concat_along_last(n, 2) || is_concat_along_last(n, 3)))
    return std::nullopt;
  auto r = rotation_by_elements(m, n.in[0], n.in[1], false);
  if (!r || r->pairs.interleaved) return std::nullopt;
  if (n.in.size() == 3) {
    const auto rest = last_part(g, n.in[2]);
    const Dim& all = g.type(r->pairs.of).shape.back();
    if (!rest || rest->of != r->pairs.of || rest->start != 2 * r->pairs.pairs ||
        rest->stride != 1 || !(Dim(rest->limit) == all))
      return missed(m, "what follows the pairs is not the rest of what is turned");
    if (r->axis != m.type().rank() - 2)
      return missed(m,
                    "heads lie between the positions and the pairs, of which not all are turned");
  }
  return r;
}

// The rows of a table, [rows, pairs].
Value rows_of(Builder& b, const Rotation& r, Value table) {
  if (r.doubled) table = column_of_pairs(b, table, r.pairs.interleaved);
  return reshape_to(b, table, {r.shape[at(r.axis)], b.shape(table).back()});
}

// What is turned, [.., 2 * pairs] or more.
Value turned_whole(Builder& b, const Rotation& r, const Dim& width) {
  if (r.x.valid()) return r.x;
  if (r.pairs.split) return reshape_to(b, r.pairs.of, r.shape);
  Shape limit = b.shape(r.pairs.of);
  if (limit.back() == width) return r.pairs.of;
  limit.back() = width;
  return op::slice(b, r.pairs.of, {{}, limit, {}});
}

Value emit_rotation(Builder& b, const Rotation& r, const Type& result) {
  const Dim width = r.x.valid() || r.pairs.split                           ? r.shape.back()
                    : result.shape.back() == Dim(2) && r.pairs.interleaved ? Dim(2 * r.pairs.pairs)
                                                                           : result.shape.back();
  Value of = turned_whole(b, r, width);
  const Shape shape = b.shape(of);
  if (r.axis == shape.rank() - 3) {  // [.., S, heads, D] -> [.., S, heads * D]
    Shape merged(shape.begin(), shape.end() - 2);
    merged.push_back(shape[shape.size() - 2] * shape.back());
    of = reshape_to(b, of, merged);
  }
  const RopeAttrs attrs{
      .head_dim = width.value(), .n_rot = 2 * r.pairs.pairs, .interleaved = r.pairs.interleaved};
  const Value cos = rows_of(b, r, r.cos), sin = rows_of(b, r, r.sin);
  return reshape_to(b, op::rope(b, of, cos, sin, attrs), result.shape);
}

// [rope(x[:n]) | x[n:]].
bool rest_is_copied(const Match& m) {
  const Graph& g = m.graph();
  const Node& n = m.root();
  if (!is_concat_along_last(n, 2)) return false;
  const Node* rope = made_by(g, n.in[0], op::rope);
  if (!rope) return false;
  const auto first = last_part(g, rope->in[0]), rest = last_part(g, n.in[1]);
  const auto& a = rope->get<RopeAttrs>();
  const bool whole = a.n_rot == a.head_dim && rope->type().shape.back() == Dim(a.head_dim);
  if (!first || !rest || first->of != rest->of || first->start != 0 || first->stride != 1 ||
      rest->start != first->limit || rest->stride != 1 || m.type() != g.type(first->of) || !whole)
    return m.refuse("what follows the turned pairs is not the rest of what is turned");
  return true;
}

// A table of rope whose second half repeats the first, which is all that is read.
bool repeats_itself(const Match& m, Value table) {
  const Dim columns = m.graph().type(table).shape.back();
  if (!(columns == Dim(m.get<RopeAttrs>().n_rot))) return false;
  return pairs_are_equal(m.graph(), table, false) ||
         m.refuse("the halves of a table of angles are not known to be the same");
}

Value on_first_halves(Builder& b, const Match& m) {
  const RopeAttrs attrs = m.get<RopeAttrs>();
  std::array<Value, 2> tables{m[y], m[z]};
  const std::array halves{repeats_itself(m, m[y]), repeats_itself(m, m[z])};
  for (size_t i : {0, 1})
    if (halves[i]) tables[i] = column_of_pairs(b, tables[i], false);
  return op::rope(b, m[x], tables[0], tables[1], attrs);
}

}  // namespace

RuleSet rope_recognisers() {
  return {
      {"rope", pat(op::add, {x, y}), [](const Match& m) { return whole_rotation(m).has_value(); },
       [](Builder& b, const Match& m) { return emit_rotation(b, *whole_rotation(m), m.type()); }},
      {"rope-by-elements", pat({op::concat, op::stack}),
       [](const Match& m) { return joined_rotation(m).has_value(); },
       [](Builder& b, const Match& m) { return emit_rotation(b, *joined_rotation(m), m.type()); }},
      {"rope-halves", pat(op::rope, {x, y, z}),
       [](const Match& m) { return repeats_itself(m, m[y]) || repeats_itself(m, m[z]); },
       on_first_halves},
      {"rope-rest", pat(op::concat, {x, y}), rest_is_copied,
       [](Builder& b, const Match& m) {
         const Node rope = m.node(x);  // NOLINT: a copy, the graph grows
         RopeAttrs attrs = rope.get<RopeAttrs>();
         attrs.head_dim = m.type().shape.back().value();
         return op::rope(b, last_part(b.graph(), rope.in[0])->of, rope.in[1], rope.in[2], attrs);
       }},
  };
}

}  // namespace rlx
