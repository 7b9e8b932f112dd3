// What masks and biases of attention let through: constants are looked at, and comparisons of counters solved.
//
// A counter is a value that is a whole number times its place along each axis, and a number more: iota, moved about,
// added to others and to constants. So `i >= j`, `j < i + 1` and `j - i <= 0` are one mask.
#include <algorithm>
#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/movement/shaping.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/recognise_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

constexpr int kDeepestCounter = 16;
constexpr double kFarthestCount = 1 << 24;  // of numbers that f32 counts exactly

// How far causal attention lets query 0 look; nothing when sizes do not say.
std::optional<int64_t> keys_before(const Dim& queries, const Dim& keys) {
  if (queries == keys) return 0;
  if (!queries.is_static() || !keys.is_static()) return std::nullopt;
  return std::max<int64_t>(keys.value() - queries.value(), 0);
}

// ---- constants

Seen seen_by_constant(const Tensor& t) {
  const Ints& sizes = t.sizes();
  if (sizes.size() < 2 || t.elements() == 0) return Seen::other;
  const int64_t rows = sizes[sizes.size() - 2], columns = sizes.back();
  const int64_t before = *keys_before(rows, columns);
  const double least = is_float(t.dtype()) ? -info(t.dtype()).largest : 0;
  bool every_row = true, causal = true;
  for (int64_t i = 0; i < t.elements() / columns; ++i) {
    bool some = false;
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = i * columns + j;
      const double v = is_bool(t.dtype()) ? (t.get_int(at) ? 0 : least - 1) : t.get_float(at);
      const bool hidden = is_bool(t.dtype()) ? v < 0 : hides(v) || v == least;
      if (!hidden && v != 0) return Seen::other;
      some = some || !hidden;
      causal = causal && hidden == (j > i % rows + before);
    }
    every_row = every_row && some;
  }
  return causal ? Seen::causal : every_row ? Seen::some_key_by_row : Seen::other;
}

// ---- counters

struct Counter {
  Ints by_axis;  // 0 along axes of size 1
  int64_t more = 0;
};

bool counts_exactly(DType dtype) {
  return info(dtype).digits >= 24 && (is_float(dtype) || info(dtype).is_signed);
}

// A symbol is taken to stand for sizes up to this, which whole numbers of 32 bits count with room to spare, and f32 does not:
// so many keys by as many queries are 2^60 scores.
constexpr int64_t kMostOfSymbol = int64_t{1} << 30;

// Whether the dtype has all that is counted in a value of that shape.
bool stays_exact(const Counter& c, const Type& t) {
  double low = static_cast<double>(c.more), high = low;  // rounded where it is too far
  for (size_t i = 0; i < t.shape.size(); ++i) {
    const int64_t size = t.shape[i].static_value().value_or(kMostOfSymbol);
    const double last =
        static_cast<double>(c.by_axis[i]) * static_cast<double>(std::max<int64_t>(size, 1) - 1);
    (last < 0 ? low : high) += last;
  }
  return std::max(-low, high) <=
         std::ldexp(1.0, std::min(info(t.dtype).digits, 62)) - (is_float(t.dtype) ? 0 : 1);
}

// A value that lies beside the axes of a wider one, as one of those.
Ints beside_axes(const Ints& by_axis, int64_t rank) {
  Ints out(at(rank - static_cast<int64_t>(by_axis.size())), 0);
  out.insert(out.end(), by_axis.begin(), by_axis.end());
  return out;
}

std::optional<Counter> counter_of(const Graph& g, Value v, int depth);

// Of two counters, a + sign * b.
std::optional<Counter> added_counters(const Graph& g, const Node& n, int64_t sign, int depth) {
  const auto a = counter_of(g, n.in[0], depth), b = counter_of(g, n.in[1], depth);
  if (!a || !b) return std::nullopt;
  const int64_t rank = n.type().rank();
  Counter out{beside_axes(a->by_axis, rank), a->more + sign * b->more};
  const Ints other = beside_axes(b->by_axis, rank);
  for (size_t i = 0; i < other.size(); ++i) out.by_axis[i] += sign * other[i];
  return out;
}

// Of a reshape that moves axes of size 1 alone.
std::optional<Ints> same_places(const Ints& by_axis, const Shape& from, const Shape& to) {
  Ints out(to.size(), 0);
  size_t k = 0;
  const auto skip = [&] {
    while (k < to.size() && to[k] == Dim(1)) ++k;
  };
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == Dim(1)) continue;
    skip();
    if (k == to.size() || !(to[k] == from[i])) return std::nullopt;
    out[k++] = by_axis[i];
  }
  skip();
  return k == to.size() ? std::optional(out) : std::nullopt;
}

std::optional<Counter> counter_by(const Graph& g, Value v, int depth) {
  const Node& n = g.node(v);
  const Type& t = g.type(v);
  if (depth > kDeepestCounter || !counts_exactly(t.dtype)) return std::nullopt;
  if (const auto number = real_splat(g, v)) {
    if (*number != std::floor(*number) || std::fabs(*number) > kFarthestCount) return std::nullopt;
    return Counter{Ints(t.shape.size(), 0), static_cast<int64_t>(*number)};
  }
  if (n.op == &op::iota) {
    Counter out{Ints(t.shape.size(), 0), 0};
    const int64_t axis = n.get<IotaAttrs>().axis;
    if (!(t.shape[at(axis)] == Dim(1))) out.by_axis[at(axis)] = 1;
    return out;
  }
  if (n.op == &op::add) return added_counters(g, n, 1, depth + 1);
  if (n.op == &op::sub) return added_counters(g, n, -1, depth + 1);
  if (n.op != &op::cast && n.op != &op::neg && n.op->kind != Kind::movement) return std::nullopt;
  if (n.in.size() != 1) return std::nullopt;
  auto of = counter_of(g, n.in[0], depth + 1);
  if (!of || n.op == &op::cast) return of;
  const Shape& from = g.type(n.in[0]).shape;
  if (n.op == &op::neg) {
    for (int64_t& c : of->by_axis) c = -c;
    of->more = -of->more;
  } else if (n.op == &op::broadcast) {
    of->by_axis = beside_axes(of->by_axis, t.rank());
  } else if (n.op == &op::transpose) {
    Ints turned;
    for (int64_t axis : n.get<TransposeAttrs>().perm) turned.push_back(of->by_axis[at(axis)]);
    of->by_axis = turned;
  } else if (n.op == &op::reshape) {
    const auto places = same_places(of->by_axis, from, t.shape);
    if (!places) return std::nullopt;
    of->by_axis = *places;
  } else {
    return std::nullopt;
  }
  return of;
}

std::optional<Counter> counter_of(const Graph& g, Value v, int depth) {
  const auto c = counter_by(g, v, depth);
  return c && stays_exact(*c, g.type(v)) ? c : std::nullopt;
}

// Of a comparison: which keys j a query i sees, as j * keys + i * queries + more <= 0.
struct Comparison {
  int64_t keys, queries, more;
};
std::optional<Comparison> comparison_of(const Graph& g, Value v, const Shape& scores) {
  bool is_turned = false;
  for (const Node* n; (n = made_by(g, v, op::logical_not)) != nullptr; v = n->in[0])
    is_turned = !is_turned;
  const Node& n = g.node(v);
  const bool less = n.op == &op::lt, at_most = n.op == &op::le, greater = n.op == &op::gt;
  if (!less && !at_most && !greater && n.op != &op::ge) return std::nullopt;
  const auto d = added_counters(g, n, -1, 0);  // a - b
  const int64_t rank = n.type().rank();
  if (!d || rank < 2) return std::nullopt;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t from_behind = rank - i;
    if (d->by_axis[at(i)] == 0) continue;
    if (from_behind > 2 || !(n.type().shape[at(i)] == scores[scores.size() - at(from_behind)]))
      return std::nullopt;
  }
  // a < b is a - b + 1 <= 0, a > b is b - a + 1 <= 0; `not` turns < into >=.
  const bool is_below = (less || at_most) != is_turned;
  const bool is_strict = (less || greater) != is_turned;
  const int64_t sign = is_below ? 1 : -1;
  return Comparison{sign * d->by_axis[at(rank - 1)], sign * d->by_axis[at(rank - 2)],
                    sign * d->more + (is_strict ? 1 : 0)};
}

Seen seen_by_counters(const Graph& g, Value v, const Shape& scores) {
  const auto c = comparison_of(g, v, scores);
  if (!c || c->keys != 1 || c->queries != -1) return Seen::other;
  const auto before = keys_before(scores[scores.size() - 2], scores.back());
  if (before && -c->more == *before) return Seen::causal;
  return c->more <= 0 ? Seen::some_key_by_row : Seen::other;  // key 0, if none else
}

}  // namespace

Seen what_is_seen(const Graph& g, Value v, const Shape& scores) {
  // Views that leave matrices as they are, or repeat them.
  for (const Node* n = &g.node(v); n->op == &op::broadcast || n->op == &op::reshape;
       n = &g.node(v)) {
    const Shape &from = g.type(n->in[0]).shape, &to = n->type().shape;
    if (from.size() < 2 || to.size() < 2 || !std::equal(from.end() - 2, from.end(), to.end() - 2))
      break;
    v = n->in[0];
  }
  const Node& n = g.node(v);
  const Shape& s = g.type(v).shape;
  if (s.size() < 2 || !(s[s.size() - 2] == scores[scores.size() - 2]) ||
      !(s.back() == scores.back()))
    return Seen::other;
  if (n.op == &op::constant)
    return is_float(n.type().dtype) || is_bool(n.type().dtype)
               ? seen_by_constant(n.get<ConstantAttrs>().value)
               : Seen::other;
  if (n.op == &op::select && is_float(n.type().dtype)) {  // a mask as a bias
    const auto seen = real_splat(g, n.in[1]), hidden = real_splat(g, n.in[2]);
    const double least = -info(n.type().dtype).largest;
    if (seen != 0 || !hidden || !(hides(*hidden) || *hidden == least)) return Seen::other;
    return what_is_seen(g, n.in[0], scores);
  }
  return seen_by_counters(g, v, scores);
}

}  // namespace rlx
