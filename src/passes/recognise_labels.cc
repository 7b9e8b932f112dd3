// Losses of classes, and rows of tables, that are written out.
//
// Of each row one element is picked, where a label says: by an index, which must be one of the row's, or by a product with a
// row of zeros that has a one there, which is 0 for a label outside.
#include <algorithm>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/indexing/scatter.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/losses.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/reduce/statistics.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/recognise_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

Value behind_reshapes(const Graph& g, Value v) {
  while (const Node* n = made_by(g, v, op::reshape)) v = n->in[0];
  return v;
}

Shape dropped(Shape s, int64_t axis) {
  s.erase(s.begin() + axis);
  return s;
}

// ---- ones where a label says

struct Hot {
  Value ids;  // the elements of [.., ..], without the axis, in order
  int64_t axis;
};

// Counts 0, 1, .. along one axis of a shape, and is of size 1 along the others.
bool counts_along(const Graph& g, Value v, const Shape& beside, int64_t axis) {
  const Shape lies = g.type(v).shape;
  const int64_t from_behind = beside.rank() - axis;
  if (lies.rank() < from_behind) return false;
  for (int64_t i = 1; i <= lies.rank(); ++i) {
    const Dim& d = lies[at(lies.rank() - i)];
    if (!(d == (i == from_behind ? beside[at(axis)] : Dim(1)))) return false;
  }
  if (const Node* n = made_by(g, v, op::reshape)) v = n->in[0];
  const Node& n = g.node(v);
  if (n.op == &op::constant && is_int(n.type().dtype)) {
    const Tensor& t = n.get<ConstantAttrs>().value;
    for (int64_t i = 0; i < t.elements(); ++i)
      if (t.get_int(i) != i) return false;
    return true;
  }
  if (n.op != &op::iota) return false;
  const int64_t counted = n.get<IotaAttrs>().axis;
  return n.type().shape[at(counted)] == beside[at(axis)] &&
         n.type().shape.elements() == beside[at(axis)] && info(n.type().dtype).digits >= 24;
}

// v, of that shape, is 1 (or true) where the label says along an axis, else 0.
std::optional<Hot> hot_of(const Graph& g, Value v, const Shape& shape) {
  while (const Node* cast = made_by(g, v, op::cast)) v = cast->in[0];
  const Node& n = g.node(v);
  if (n.type().shape != shape) return std::nullopt;
  if (n.op == &op::one_hot) {
    if (!is_int(g.type(n.in[0]).dtype)) return std::nullopt;
    return Hot{n.in[0], n.get<OneHotAttrs>().axis};
  }
  if (n.op != &op::eq) return std::nullopt;
  for (size_t i : {0, 1})
    for (int64_t axis = 0; axis < shape.rank(); ++axis) {
      Shape one = shape;
      one[at(axis)] = 1;
      if (counts_along(g, n.in[i], shape, axis) && g.type(n.in[1 - i]).shape == one &&
          is_int(g.type(n.in[1 - i]).dtype))
        return Hot{n.in[1 - i], axis};
    }
  return std::nullopt;
}

// ---- one element of each row

struct Picked {
  Value of;
  int64_t axis = 0;
  Value ids;         // in the order of the rows
  bool hot = false;  // by a row of zeros and a one
};

std::optional<Picked> picked_by(const Graph& g, const Node& n) {
  if (n.op == &op::take_along_axis) {
    const int64_t axis = n.get<TakeAttrs>().axis;
    if (!(n.type().shape[at(axis)] == Dim(1)) || !is_int(g.type(n.in[1]).dtype))
      return std::nullopt;
    return Picked{n.in[0], axis, n.in[1], false};
  }
  if (n.op == &op::gather_nd) {
    const int64_t axis = g.type(n.in[0]).rank() - 1;
    const Type& ids = g.type(n.in[1]);
    if (n.get<GatherNdAttrs>().batch_dims != axis || ids.rank() != axis + 1 || !is_int(ids.dtype))
      return std::nullopt;
    return Picked{n.in[0], axis, n.in[1], false};
  }
  if (n.op != &op::reduce_sum || n.get<ReduceAttrs>().axes.size() != 1) return std::nullopt;
  const int64_t axis = n.get<ReduceAttrs>().axes[0];
  const Node& all = g.node(n.in[0]);
  const auto by_hot = [&](Value of, Value mask) -> std::optional<Picked> {
    const auto hot = hot_of(g, mask, all.type().shape);
    if (!hot || hot->axis != axis || g.type(of) != all.type()) return std::nullopt;
    return Picked{of, axis, hot->ids, true};
  };
  if (all.op == &op::mul)
    for (size_t i : {0, 1})
      if (const auto p = by_hot(all.in[i], all.in[1 - i])) return p;
  if (all.op == &op::select && real_splat(g, all.in[2]) == 0.0) return by_hot(all.in[1], all.in[0]);
  return std::nullopt;
}

// ---- labels that may lie outside

// Whether all labels are known to be in [0, classes).
bool are_inside(const Graph& g, Value ids, const Dim& classes) {
  const Node& n = g.node(behind_reshapes(g, ids));
  if (n.op != &op::constant || !classes.is_static()) return false;
  const Tensor& t = n.get<ConstantAttrs>().value;
  for (int64_t i = 0; i < t.elements(); ++i)
    if (t.get_int(i) < 0 || t.get_int(i) >= classes.value()) return false;
  return true;
}

// Labels, 0 in the place of those outside, and which are inside; kNone: all.
struct Inside {
  Value ids, inside = kNone;
};
Inside inside_of(Builder& b, Value ids, const Dim& classes) {
  if (are_inside(b.graph(), ids, classes)) return {ids};
  const Value wide = cast_to(b, ids, DType::I64), none = b.constant(DType::I64, 0);
  const Value inside =
      op::logical_and(b, op::ge(b, wide, none), op::lt(b, wide, dim_value(b, classes, DType::I64)));
  return {op::select(b, inside, wide, none), inside};
}

// ---- cross-entropy

// The log-softmax whose elements are picked, and along its axis.
const Node* picked_softmax(const Match& m, const Picked& p) {
  const Node* n = made_by(m.graph(), p.of, op::log_softmax);
  if (!n) return nullptr;
  if (n->get<SoftmaxAttrs>().axis != p.axis) {
    m.refuse("elements are picked along another axis than that of log_softmax");
    return nullptr;
  }
  if (!m.single_use(p.of)) {
    m.refuse("the logarithms are read elsewhere too");
    return nullptr;
  }
  return n;
}

std::optional<Picked> picked_loss(const Match& m) {
  const auto p = picked_by(m.graph(), m.root());
  const Node* softmax = p ? picked_softmax(m, *p) : nullptr;
  if (!softmax) return std::nullopt;
  if (p->axis != softmax->type().rank() - 1)
    return missed(m, "the classes are not along the last axis");
  return p;
}

Value row_losses(Builder& b, Value logits, Value ids) {
  const Shape& s = b.shape(logits);
  return op::softmax_cross_entropy(b, logits, reshape_to(b, ids, dropped(s, s.rank() - 1)));
}

Value emit_picked_loss(Builder& b, const Match& m) {
  const Picked p = *picked_loss(m);
  const Value logits = m.graph().node(p.of).in[0];
  const Type& type = m.type();
  const Inside i = p.hot ? inside_of(b, p.ids, b.shape(logits).back()) : Inside{p.ids};
  Value y = op::neg(b, reshape_to(b, row_losses(b, logits, i.ids), type.shape));
  if (i.inside.valid())
    y = op::select(b, reshape_to(b, i.inside, type.shape), y, b.constant(type.dtype, 0));
  return y;
}

// logsumexp(x) - x[label].
std::optional<Picked> loss_by_logsumexp(const Match& m) {
  const Graph& g = m.graph();
  const Node* all = made_by(g, behind_reshapes(g, m[x]), op::logsumexp);
  const auto p = picked_by(g, g.node(behind_reshapes(g, m[y])));
  if (!all || !p || p->of != all->in[0] || !is_float(m.type().dtype)) return std::nullopt;
  if (m.type(x) != m.type(y))
    return missed(m, "logsumexp and what is picked differ in their shapes");
  const int64_t last = g.type(p->of).rank() - 1;
  if (all->get<ReduceAttrs>().axes != Ints{p->axis})
    return missed(m, "elements are picked along another axis than that of logsumexp");
  if (p->axis != last) return missed(m, "the classes are not along the last axis");
  if (p->hot && !are_inside(g, p->ids, g.type(p->of).shape.back()))
    return missed(m, "labels may lie outside of the classes, where logsumexp is left");
  return p;
}

// ---- labels that do not count

// counts: the label is not `ignored`.
struct Counted {
  Value labels;
  int64_t ignored;
};
std::optional<Counted> counted(const Graph& g, Value counts) {
  bool equal = false;
  if (const Node* n = made_by(g, counts, op::logical_not)) counts = n->in[0], equal = true;
  const Node* test = made_by(g, counts, equal ? OpRef(op::eq) : OpRef(op::ne));
  for (size_t i : {0, 1}) {
    const auto ignored = test ? real_splat(g, test->in[i]) : std::nullopt;
    const Type* labels = test ? &g.type(test->in[1 - i]) : nullptr;
    if (ignored && is_int(labels->dtype) && labels->shape == test->type().shape)
      return Counted{test->in[1 - i], static_cast<int64_t>(*ignored)};
  }
  return std::nullopt;
}

struct ClassLoss {
  Value logits, labels;
  ClassLossAttrs attrs;
};

// select(counts, loss, 0), the loss that of select(counts, labels, 0).
std::optional<ClassLoss> counted_loss(const Match& m) {
  const Graph& g = m.graph();
  if (!is_float(m.type().dtype)) return std::nullopt;
  const auto zero_else = real_splat(g, m.root().in[2]);
  const auto c = zero_else == 0.0 ? counted(g, m.root().in[0]) : std::nullopt;
  if (!c || g.type(m.root().in[1]) != m.type() || g.type(m.root().in[0]).shape != m.type().shape)
    return std::nullopt;
  ClassLoss loss;
  Value ids, each = behind_reshapes(g, m.root().in[1]);
  bool minus = false;
  for (; g.node(each).op == &op::neg; minus = !minus) each = behind_reshapes(g, g.node(each).in[0]);
  if (const Node* rows = made_by(g, each, op::softmax_cross_entropy)) {
    if (minus) return missed(m, "the loss is negated");
    loss.logits = rows->in[0], ids = rows->in[1];
    loss.attrs.axis = g.type(loss.logits).rank() - 1;
  } else {
    const auto p = picked_by(g, g.node(each));
    const Node* softmax = p && !p->hot ? picked_softmax(m, *p) : nullptr;
    if (!softmax) return std::nullopt;
    if (!minus) return missed(m, "the logarithms are not negated");
    loss.logits = softmax->in[0], ids = p->ids;
    loss.attrs.axis = p->axis;
  }
  const Node* kept = made_by(g, behind_reshapes(g, ids), op::select);
  const bool same = kept && kept->in[0] == m.root().in[0] && kept->in[1] == c->labels &&
                    real_splat(g, kept->in[2]) == 0.0;
  if (!same) return missed(m, "the loss is not that of the labels that count");
  loss.labels = c->labels;
  loss.attrs.reduction = Reduction::none;
  loss.attrs.ignore_index = c->ignored;
  return loss;
}

Value emit_loss(Builder& b, const ClassLoss& l, const Type& type) {
  const Value labels = reshape_to(b, l.labels, dropped(b.shape(l.logits), l.attrs.axis));
  const Value y = b.emit(op::cross_entropy.def, l.attrs, Values{l.logits, labels})[0];
  return reshape_to(b, y, type.shape);
}

// The cross_entropy with this reduction that nobody else reads.
const Node* plain_loss(const Match& m, Value v, Reduction reduction) {
  v = behind_reshapes(m.graph(), v);
  const Node* n = made_by(m.graph(), v, op::cross_entropy);
  const bool fits = n && n->in.size() == 2 && n->get<ClassLossAttrs>().reduction == reduction;
  if (fits && !m.single_use(v)) m.refuse("the losses are read elsewhere too");
  return fits && m.single_use(v) ? n : nullptr;
}

bool sums_all(const Match& m, Var of) {
  return static_cast<int64_t>(m.get<ReduceAttrs>().axes.size()) == m.type(of).rank();
}

Value with_reduction(Builder& b, const Match& m, Value of, Reduction from, Reduction to) {
  const Node n = *plain_loss(m, of, from);
  ClassLossAttrs attrs = n.get<ClassLossAttrs>();
  attrs.reduction = to;
  return reshape_to(b, b.emit(op::cross_entropy.def, attrs, n.in)[0], m.type().shape);
}

// Whether a dtype has every count from 0 to `most`, or rounds it no more than `as` does. A symbol may be any size.
bool has_counts(DType dtype, const Dim& most, DType as) {
  const auto n = most.static_value();
  if (is_int(dtype)) {
    constexpr int kWhole = 63;
    const int digits = info(dtype).digits;
    return digits >= kWhole || (n && *n < int64_t{1} << digits);
  }
  const bool ends = info(dtype).exponent < 63;
  return is_float(dtype) && info(dtype).digits >= info(as).digits &&
         (!ends || (n && static_cast<double>(*n) <= info(dtype).largest));
}

// A sum of ones in a float of few digits stops where one more rounds to nothing.
bool sums_ones(DType dtype, const Dim& most) {
  const auto n = most.static_value();
  return !is_float(dtype) || info(dtype).digits >= info(DType::F32).digits ||
         (n && *n <= int64_t{1} << info(dtype).digits);
}

// What is counted by v: ones that are summed in a dtype which has their number, and go through such dtypes alone.
Value counted_by(const Graph& g, Value v, DType as) {
  std::vector<DType> through;
  v = behind_reshapes(g, v);
  for (; const Node* n = made_by(g, v, op::cast); v = behind_reshapes(g, n->in[0]))
    through.push_back(n->type().dtype);
  const Node* sum = made_by(g, v, op::reduce_sum);
  if (!sum ||
      static_cast<int64_t>(sum->get<ReduceAttrs>().axes.size()) != g.type(sum->in[0]).rank())
    return kNone;
  const Dim most = count_of(g.type(sum->in[0]).shape, sum->get<ReduceAttrs>().axes);
  const DType summed = sum->type().dtype;
  through.push_back(summed);
  for (DType d : through)
    if (!has_counts(d, most, as)) return kNone;
  if (!sums_ones(summed, most)) return kNone;
  v = behind_reshapes(g, sum->in[0]);
  while (const Node* n = made_by(g, v, op::cast)) v = behind_reshapes(g, n->in[0]);  // of 0 and 1
  return v;
}

// The sum of losses over the number of those that count.
bool is_mean_loss(const Match& m) {
  const Graph& g = m.graph();
  const Node* loss = plain_loss(m, m[x], Reduction::sum);
  if (!loss) return false;
  const Value count = counted_by(g, m[y], m.type().dtype);
  const auto c = count.valid() ? counted(g, count) : std::nullopt;
  const bool same = c && behind_reshapes(g, c->labels) == behind_reshapes(g, loss->in[1]) &&
                    c->ignored == loss->get<ClassLossAttrs>().ignore_index;
  return same || m.refuse("what the sum of losses is divided by is not how many count");
}

// ---- rows of tables

std::optional<Hot> hot_rows(const Match& m) {
  const Graph& g = m.graph();
  const auto& a = m.get<MatmulAttrs>();
  const Shape& s = m.shape(x);
  const auto hot = is_float(m.type().dtype) ? hot_of(g, m[x], s) : std::nullopt;
  if (!hot) return std::nullopt;
  if (a.transpose_a || a.transpose_b || m.type(y).rank() != 2 || hot->axis != s.rank() - 1)
    return missed(m, "the ones do not choose rows of a table");
  return hot;
}

Value emit_hot_rows(Builder& b, const Match& m) {
  const Hot hot = *hot_rows(m);
  const Type& type = m.type();
  const Inside i = inside_of(b, hot.ids, b.shape(m[y])[0]);
  const Shape rows = dropped(type.shape, type.rank() - 1);
  Value v = op::gather(b, m[y], reshape_to(b, i.ids, rows), AxisAttrs{0});
  if (!i.inside.valid()) return v;
  Shape beside = rows;
  beside.push_back(1);
  return op::select(b, reshape_to(b, i.inside, beside), v, b.constant(type.dtype, 0));
}

// Indices [n, 1] that are repeated along a table's columns.
Value repeated_ids(const Match& m) {
  const Node* n = made_by(m.graph(), m[y], op::broadcast);
  if (m.get<TakeAttrs>().axis != 0 || m.type(x).rank() != 2 || !n) return kNone;
  const Shape& s = m.graph().type(n->in[0]).shape;
  const bool column = s.rank() == 2 && s[0] == m.type().shape[0] && s[1] == Dim(1);
  if (!column) m.refuse("the columns of the table are not read at the same rows");
  return column ? n->in[0] : kNone;
}

}  // namespace

RuleSet label_recognisers() {
  return {
      {"cross-entropy", pat({op::take_along_axis, op::gather_nd, op::reduce_sum}),
       [](const Match& m) { return picked_loss(m).has_value(); }, emit_picked_loss},
      {"cross-entropy-by-logsumexp", pat(op::sub, {x, y}),
       [](const Match& m) { return loss_by_logsumexp(m).has_value(); },
       [](Builder& b, const Match& m) {
         const Picked p = *loss_by_logsumexp(m);
         return reshape_to(b, row_losses(b, p.of, p.ids), m.type().shape);
       }},
      // Signs do not round, and come together.
      {"negated-rows", pat(op::reshape, {pat(op::neg, {x}).as(z)}),
       [](const Match& m) {
         const Value loss = behind_reshapes(m.graph(), m[x]);
         return m.single_use(z) && made_by(m.graph(), loss, op::softmax_cross_entropy);
       },
       [](Builder& b, const Match& m) { return op::neg(b, reshape_to(b, m[x], m.type().shape)); }},
      {"negated-twice",
       pat(op::neg, {pat({op::reduce_sum, op::reduce_mean}, {pat(op::neg, {x}).as(z)}).as(y)}),
       [](const Match& m) {
         return is_float(m.type().dtype) && m.single_use(y) && m.single_use(z);
       },
       [](Builder& b, const Match& m) {
         const Node n = m.node(y);  // NOLINT: a copy, the graph grows
         return b.emit(*n.op, n.attrs, Values{m[x]})[0];
       }},
      {"cross-entropy-counted", pat(op::select),
       [](const Match& m) { return counted_loss(m).has_value(); },
       [](Builder& b, const Match& m) { return emit_loss(b, *counted_loss(m), m.type()); }},
      {"cross-entropy-sum", pat(op::reduce_sum, {x}),
       [](const Match& m) {
         return plain_loss(m, m[x], Reduction::none) &&
                (sums_all(m, x) || m.refuse("not all losses are summed"));
       },
       [](Builder& b, const Match& m) {
         return with_reduction(b, m, m[x], Reduction::none, Reduction::sum);
       }},
      {"cross-entropy-mean", pat(op::div, {x, y}), is_mean_loss,
       [](Builder& b, const Match& m) {
         return with_reduction(b, m, m[x], Reduction::sum, Reduction::mean);
       }},

      {"embedding-by-ones", pat(op::matmul, {x, y}),
       [](const Match& m) { return hot_rows(m).has_value(); }, emit_hot_rows},
      {"embedding-by-places", pat(op::gather_nd, {x, y}),
       [](const Match& m) {
         return m.get<GatherNdAttrs>().batch_dims == 0 && m.type(y).rank() > 0 &&
                m.shape(y).back() == Dim(1);
       },
       [](Builder& b, const Match& m) {
         const Shape& s = m.shape(y);
         return op::gather(b, m[x], reshape_to(b, m[y], dropped(s, s.rank() - 1)), AxisAttrs{0});
       }},
      {"embedding-by-elements", pat(op::take_along_axis, {x, y}),
       [](const Match& m) { return repeated_ids(m).valid(); },
       [](Builder& b, const Match& m) {
         const Value ids = repeated_ids(m);
         return op::gather(b, m[x], reshape_to(b, ids, {b.shape(ids)[0]}), AxisAttrs{0});
       }},
  };
}

}  // namespace rlx
