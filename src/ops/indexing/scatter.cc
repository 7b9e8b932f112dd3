// Scatter along an axis, and what reduces to it or to gather: element-wise and n-dimensional forms,
// one-hot vectors. Windows are in dynamic_windows.cc.
#include "rlx/ops/indexing/scatter.h"

#include <algorithm>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/indexing/index_rules.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce.h"
#include "rlx/ops/reduce/reduce_rules.h"

namespace rlx {
namespace {

// ---- scatter ------------------------------------------------------------------------------------

void require_mode(const InferArgs& a, ScatterMode mode) {
  const DTypeSet allowed = mode == ScatterMode::set                               ? kAllDTypes
                           : mode == ScatterMode::add || mode == ScatterMode::mul ? kNumbers
                                                                                  : kReals;
  if (!allowed.has(a.in[0].dtype))
    bad_operands(a, "scatter-dtype",
                 fmt::format("mode {} takes {}", enum_names(mode)[static_cast<size_t>(mode)],
                             allowed.to_string()));
  if (a.in[2].dtype != a.in[0].dtype)
    bad_operands(a, "dtype-mixed", "the updates must have x's dtype");
  require_indices(a);
}

void require_updates(const InferArgs& a, const Shape& expected) {
  const Shape& updates = a.in[2].shape;
  bool fits = updates.size() == expected.size();
  for (size_t i = 0; fits && i < expected.size(); ++i) fits = !differ(updates[i], expected[i]);
  if (!fits) bad_operands(a, "scatter-shape", fmt::format("the updates must be {}", expected));
}

Types infer_scatter(const InferArgs& a) {
  const auto& [axis, mode] = a.get<ScatterIntoAttrs>();
  require_mode(a, mode);
  require_updates(a, replace_axes(a.in[0].shape, axis, 1, a.in[1].shape));
  return {a.in[0]};
}

template <class T>
T combined(ScatterMode mode, T old, T update) {
  switch (mode) {
    case ScatterMode::set:
      return update;
    case ScatterMode::add:
    case ScatterMode::mul:
      if constexpr (IntNumber<T>) {
        const auto p = static_cast<uint64_t>(old), q = static_cast<uint64_t>(update);
        return static_cast<T>(mode == ScatterMode::add ? p + q : p * q);
      } else {
        return mode == ScatterMode::add ? old + update : old * update;
      }
    default:
      if constexpr (RealNumber<T>) {
        if (old != old || update != update) return old != old ? old : update;
        return mode == ScatterMode::min ? std::min(old, update) : std::max(old, update);
      }
  }
  return old;
}

// Combines in T and stores with one rounding.
template <class T>
Tensor scattered(const EvalArgs& e) {
  Tensor out = e.make();
  const auto& [axis, mode] = e.get<ScatterIntoAttrs>();
  const int64_t size = out.sizes()[at(axis)];
  const Split s(out.sizes(), axis, 1);
  const Ints indices = read_indices(e, 1, size);
  std::vector<T> values(at(out.elements()));
  for (int64_t i = 0; i < out.elements(); ++i) values[at(i)] = detail::fetch<T>(e.in[0], i);
  int64_t source = 0;
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t index : indices)
      for (int64_t i = 0; i < s.inner; ++i) {
        T& v = values[at((o * size + index) * s.inner + i)];
        v = combined(mode, v, detail::fetch<T>(e.in[2], source++));
      }
  for (int64_t i = 0; i < out.elements(); ++i) detail::put(out, i, values[at(i)]);
  return out;
}

Tensors evaluate_scatter(const EvalArgs& e) {
  const DType d = e.in[0].dtype();
  if (is_float(d)) return {scattered<double>(e)};
  if (is_complex(d)) return {scattered<Complex>(e)};
  return {scattered<int64_t>(e)};
}

Value scatter_like(Builder& b, const Node& n, Value x, Value indices, Value updates,
                   ScatterMode mode) {
  return op::scatter(b, x, indices, updates, {n.get<ScatterIntoAttrs>().axis, mode});
}
Value gather_like(Builder& b, const Node& n, Value x, Value indices) {
  return op::gather(b, x, indices, {n.get<ScatterIntoAttrs>().axis});
}

// Whether each update is the one that `set` keeps, in a shape that broadcasts to the updates: those
// that find their own number where all have left theirs.
Value is_last(Builder& b, const Node& n, Operands in) {
  const int64_t axis = n.get<ScatterIntoAttrs>().axis;
  const Shape x = b.shape(in[0]), i = b.shape(in[1]);
  const Value indices = flatten_all(b, in[1]);
  const Value number = counter(b, i.elements(), 0, 1).index;
  const Value nobody = full(b, {DType::I64, {x[at(axis)]}}, -1);
  const Value left = op::scatter(b, nobody, indices, number, {0, ScatterMode::set});
  Shape shape = i;
  shape.insert(shape.end(), at(x.rank() - axis - 1), Dim(1));
  return reshape_to(b, op::eq(b, op::gather(b, left, indices), number), shape);
}

// For each update the product of the others at its place, from multiplications alone, so that zeros
// need no care and derivatives of any order are right; U^2 products for U indices.
Value product_of_others(Builder& b, const Node& n, Operands in) {
  const int64_t axis = n.get<ScatterIntoAttrs>().axis;
  const Shape x = b.shape(in[0]), u = b.shape(in[2]);
  const Dim count = b.shape(in[1]).elements();
  const Dim outer = Shape(x.begin(), x.begin() + axis).elements(),
            inner = Shape(x.begin() + axis + 1, x.end()).elements();
  const Value indices = cast_to(b, in[1], DType::I64);
  const Value one = reshape_to(b, indices, {count, 1, 1}),
              other = reshape_to(b, indices, {1, count, 1});
  const Value counted = op::ne(b, counter(b, count, 0, 3).index, counter(b, count, 1, 3).index);
  const Value same = op::logical_and(b, op::eq(b, one, other), counted);
  const Value updates = reshape_to(b, in[2], {outer, 1, count, inner});
  const Value others = op::select(b, same, updates, b.constant_like(updates, 1));
  return reshape_to(b, op::reduce_prod(b, others, {{2}}), u);
}

// What multiplies the tangents of x and of the updates (add and set are linear and have none).
struct Partials {
  Value x, updates;
};
Partials partials_of(Builder& b, const Node& n, Operands in, Value out) {
  const DType dtype = n.type().dtype, wide = wide_of(dtype);
  if (n.get<ScatterIntoAttrs>().mode == ScatterMode::mul) {
    const Value ones = full(b, Type(b.type(in[0])), 1);
    return {scatter_like(b, n, ones, in[1], in[2], ScatterMode::mul),
            op::mul(b, gather_like(b, n, in[0], in[1]), product_of_others(b, n, in))};
  }
  // Equals of an extremum share: 1 / their number.
  const Value x = cast_to(b, op::eq(b, in[0], out), wide);
  const Value updates = cast_to(b, op::eq(b, in[2], gather_like(b, n, out, in[1])), wide);
  const Value count = scatter_like(b, n, x, in[1], updates, ScatterMode::add);
  return {cast_to(b, op::div(b, x, count), dtype),
          cast_to(b, op::div(b, updates, gather_like(b, n, count, in[1])), dtype)};
}

bool is_linear(ScatterMode mode) { return mode == ScatterMode::set || mode == ScatterMode::add; }

// Codes pass where they are moved alone.
bool computes_codes(const Node& n) {
  return is_code(n.type().dtype) && n.get<ScatterIntoAttrs>().mode != ScatterMode::set;
}

Values jvp_scatter(Builder& b, const JvpArgs& a) {
  Value x = a.tangents[0], updates = a.tangents[2];
  if (!x.valid() && !updates.valid()) return {kNone};
  const ScatterMode mode = a.node.get<ScatterIntoAttrs>().mode;
  if (computes_codes(a.node)) return {kNone};
  if (!x.valid()) x = zero_derivative(b, b.type(a.in[0]));
  if (!updates.valid()) updates = zero_derivative(b, b.type(a.in[2]));
  if (is_linear(mode)) return {scatter_like(b, a.node, x, a.in[1], updates, mode)};
  const Partials p = partials_of(b, a.node, a.in, a.out[0]);
  return {scatter_like(b, a.node, op::mul(b, x, p.x), a.in[1], op::mul(b, updates, p.updates),
                       ScatterMode::add)};
}

Values vjp_scatter(Builder& b, const VjpArgs& a) {
  const Value g = a.cotangents[0], indices = a.in[1];
  const ScatterMode mode = a.node.get<ScatterIntoAttrs>().mode;
  if (computes_codes(a.node)) return Values(3, kNone);
  Value x = g, updates = gather_like(b, a.node, g, indices);
  const Value zero = b.constant_like(g, 0);
  if (mode == ScatterMode::set) {
    x = scatter_like(b, a.node, g, indices, broadcast_to(b, zero, Shape(b.shape(a.in[2]))), mode);
    updates = op::select(b, is_last(b, a.node, a.in), updates, zero);
  } else if (!is_linear(mode)) {
    const Partials p = partials_of(b, a.node, a.in, a.out[0]);
    x = op::mul(b, g, conj_if_complex(b, p.x));
    updates = op::mul(b, updates, conj_if_complex(b, p.updates));
  }
  return {x, kNone, updates};
}

Values vmap_scatter(Builder& b, const VmapArgs& a) {
  const auto& [axis, mode] = a.node.get<ScatterIntoAttrs>();
  auto batched = [&](size_t i) {
    return a.batched[i] ? a.in[i] : batch_operand(b, a.in[i], a.size);
  };
  const Value x = batched(0), updates = batched(2), indices = a.in[1];
  if (!a.batched[1]) return {op::scatter(b, x, indices, updates, {axis + 1, mode})};
  const int64_t width = b.type(indices).rank() - 1;
  const Dim size = b.shape(x)[at(axis + 1)];
  const Value moved = swap_blocks(b, x, 1, axis, 1);  // [B, size, outer, inner]
  const Shape shape = b.shape(moved);
  const Value y = op::scatter(b, merge_front(b, moved), flat_indices(b, indices, a.size, size),
                              swap_blocks(b, updates, 1, axis, width), {0, mode});
  return {swap_blocks(b, reshape_to(b, y, shape), 1, 1, axis)};
}

// ---- by element ---------------------------------------------------------------------------------

void require_aligned(const InferArgs& a, int64_t axis, std::string_view code) {
  const Shape &x = a.in[0].shape, &indices = a.in[1].shape;
  bool fits = x.size() == indices.size();
  for (size_t i = 0; fits && i < x.size(); ++i) fits = i == at(axis) || !differ(x[i], indices[i]);
  if (!fits)
    bad_operands(a, code,
                 fmt::format("the indices must have x's sizes {} but for axis {}", x, axis));
}

Types infer_take(const InferArgs& a) {
  require_indices(a);
  require_aligned(a, a.get<TakeAttrs>().axis, "gather-shape");
  return {{a.in[0].dtype, a.in[1].shape}};
}

Types infer_elements(const InferArgs& a) {
  const auto& [axis, mode] = a.get<ScatterIntoAttrs>();
  require_mode(a, mode);
  require_aligned(a, axis, "scatter-shape");
  require_updates(a, a.in[1].shape);
  return {a.in[0]};
}

// Where the elements that indices name along an axis lie among all of x; shape [outer, m, inner].
Value element_positions(Builder& b, const Shape& x, Value indices, int64_t axis) {
  const Dim outer = Shape(x.begin(), x.begin() + axis).elements(),
            inner = Shape(x.begin() + axis + 1, x.end()).elements();
  const Dim m = b.shape(indices)[at(axis)];
  const Coordinate coordinates[] = {
      counter(b, outer, 0, 3),
      {reshape_to(b, indices, {outer, m, inner}), x[at(axis)]},
      counter(b, inner, 2, 3),
  };
  return position_of(b, coordinates);
}

Values decompose_take(Builder& b, const Node& n, Operands in) {
  const Value where = element_positions(b, Shape(b.shape(in[0])), in[1], n.get<TakeAttrs>().axis);
  return {reshape_to(b, op::gather(b, flatten_all(b, in[0]), where), Shape(b.shape(in[1])))};
}

Values decompose_elements(Builder& b, const Node& n, Operands in) {
  const auto& [axis, mode] = n.get<ScatterIntoAttrs>();
  const Shape x = b.shape(in[0]);
  const Value where = element_positions(b, x, in[1], axis);
  const Value updates = reshape_to(b, in[2], Shape(b.shape(where)));
  return {reshape_to(b, op::scatter(b, flatten_all(b, in[0]), where, updates, {0, mode}), x)};
}

// ---- in n dimensions ----------------------------------------------------------------------------

// How many axes the last axis of the indices names; checked against those of x behind `batch`.
int64_t depth_of(const InferArgs& a, int64_t batch, std::string_view code) {
  const Shape &x = a.in[0].shape, &indices = a.in[1].shape;
  const auto depth = indices.empty() ? std::nullopt : indices.back().static_value();
  if (!depth || *depth < 1 || batch + *depth > x.rank())
    bad_operands(a, code,
                 fmt::format("the last axis of the indices must have a known size in [1, {}], the "
                             "number of axes they name",
                             x.rank() - batch));
  return *depth;
}

Types infer_gather_nd(const InferArgs& a) {
  require_indices(a);
  const int64_t batch = a.get<GatherNdAttrs>().batch_dims;
  const Shape &x = a.in[0].shape, &indices = a.in[1].shape;
  bool fits = batch >= 0 && batch < indices.rank() && batch < x.rank();
  for (size_t i = 0; fits && i < at(batch); ++i) fits = !differ(x[i], indices[i]);
  if (!fits)
    bad_operands(a, "gather-shape",
                 fmt::format("batch_dims {} must be leading axes of equal size", batch));
  Shape shape(indices.begin(), indices.end() - 1);
  shape.insert(shape.end(), x.begin() + batch + depth_of(a, batch, "gather-shape"), x.end());
  return {{a.in[0].dtype, shape}};
}

Types infer_scatter_nd(const InferArgs& a) {
  require_mode(a, a.get<ScatterNdAttrs>().mode);
  const Shape &x = a.in[0].shape, &indices = a.in[1].shape;
  Shape updates(indices.begin(), indices.end() - (indices.empty() ? 0 : 1));
  updates.insert(updates.end(), x.begin() + depth_of(a, 0, "scatter-shape"), x.end());
  require_updates(a, updates);
  return {a.in[0]};
}

// The positions that indices [B.., i.., r] name among the rows of x [B.., s.., t..] -> [rows, t..].
struct Rows {
  Value x, where;
};
Rows rows_of(Builder& b, Value x, Value indices, int64_t batch) {
  const Shape shape = b.shape(x), all = b.shape(indices);
  const int64_t rank = all.rank() - 1, depth = all.back().value();
  const Shape one(all.begin(), all.end() - 1);
  std::vector<Coordinate> coordinates;
  for (int64_t i = 0; i < batch; ++i) coordinates.push_back(counter(b, shape[at(i)], i, rank));
  for (int64_t k = 0; k < depth; ++k) {
    SliceAttrs s{Shape(all.size(), Dim(0)), all, {}};
    s.start.back() = k, s.limit.back() = k + 1;
    coordinates.push_back({reshape_to(b, op::slice(b, indices, s), one), shape[at(batch + k)]});
  }
  Shape rows(shape.begin() + batch + depth, shape.end());
  rows.insert(rows.begin(), Shape(shape.begin(), shape.begin() + batch + depth).elements());
  return {reshape_to(b, x, rows), position_of(b, coordinates)};
}

}  // namespace

namespace op {

constinit const Op<ScatterIntoAttrs> scatter = OpDef{
    .name = "scatter",
    .doc =
        "x with updates[o.., i.., t..] put at [o.., indices[i..], t..], the places that gather "
        "would read: they replace what is there (the last one for a place stays), or are added to "
        "it, multiplied with it, or the smaller or larger is kept. An index out of range raises "
        "\"index-range\". The derivative of mul takes space quadratic in the number of indices.",
    .kind = Kind::movement,
    .arity = 3,
    .operands = "x, indices, updates",
    .passes_codes = true,
    .infer = infer_scatter,
    .normalise = normalise_axis_of<ScatterIntoAttrs>,
    .eval = evaluate_scatter,
    .jvp = jvp_scatter,
    .vjp = vjp_scatter,
    .vmap = vmap_scatter,
};

constinit const Op<ScatterIntoAttrs> scatter_elements = OpDef{
    .name = "scatter_elements",
    .doc =
        "x with each update put at its own place, but along the axis where its index says (ONNX "
        "ScatterElements); modes as in scatter. The indices and updates have x's sizes along the "
        "other axes.",
    .arity = 3,
    .operands = "x, indices, updates",
    .infer = infer_elements,
    .normalise = normalise_axis_of<ScatterIntoAttrs>,
    .decompose = decompose_elements,
};

constinit const Op<ScatterNdAttrs> scatter_nd = OpDef{
    .name = "scatter_nd",
    .doc =
        "x [s.., t..] with updates[i.., t..] put at [indices[i.., 0], indices[i.., 1], .., t..] "
        "(ONNX ScatterND); modes as in scatter.",
    .arity = 3,
    .operands = "x, indices, updates",
    .infer = infer_scatter_nd,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      const Rows rows = rows_of(b, in[0], in[1], 0);
      const Value y = op::scatter(b, rows.x, rows.where, in[2], {0, n.get<ScatterNdAttrs>().mode});
      return {reshape_to(b, y, Shape(b.shape(in[0])))};
    },
};

constinit const Op<GatherNdAttrs> gather_nd = OpDef{
    .name = "gather_nd",
    .doc =
        "result[B.., i.., t..] = x[B.., indices[B.., i.., 0], indices[B.., i.., 1], .., t..], "
        "where "
        "B are batch_dims axes (ONNX GatherND).",
    .arity = 2,
    .operands = "x, indices",
    .infer = infer_gather_nd,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      const Rows rows = rows_of(b, in[0], in[1], n.get<GatherNdAttrs>().batch_dims);
      return {op::gather(b, rows.x, rows.where)};
    },
};

constinit const Op<TakeAttrs> take_along_axis = OpDef{
    .name = "take_along_axis",
    .doc =
        "Each element of x whose place is that of the index, but along the axis where the index "
        "says (ONNX GatherElements). The indices have x's sizes along the other axes.",
    .arity = 2,
    .operands = "x, indices",
    .infer = infer_take,
    .normalise = normalise_axis_of<TakeAttrs>,
    .decompose = decompose_take,
};

constinit const Op<OneHotAttrs> one_hot = OpDef{
    .name = "one_hot",
    .doc =
        "Vectors of `depth` along a new axis that are 1 where the index says and 0 elsewhere; all "
        "0 "
        "for an index outside [0, depth).",
    .operands = "indices",
    .dtypes = kIndexTypes,
    .infer = [](const InferArgs& a) -> Types {
      const auto& [depth, axis, dtype] = a.get<OneHotAttrs>();
      if (is_negative(depth))
        bad_operands(a, "negative-dim", fmt::format("the depth {} is negative", depth));
      return {{dtype, replace_axes(a.in[0].shape, axis, 0, {depth})}};
    },
    .normalise =
        [](void* attrs, std::string_view op, std::span<const Type> in) {
          int64_t& axis = static_cast<OneHotAttrs*>(attrs)->axis;
          axis = normalise_axis(axis, in[0].rank() + 1, op);
        },
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      const auto& [depth, axis, dtype] = n.get<OneHotAttrs>();
      const Value indices = cast_to(b, in[0], DType::I64);
      const Shape kept = replace_axes(b.shape(indices), axis, 0, {1});
      const Value places = counter(b, depth, axis, kept.rank()).index;
      return {cast_to(b, op::eq(b, reshape_to(b, indices, kept), places), dtype)};
    },
    .not_differentiable = "indices have no derivative",
};

}  // namespace op

namespace {
constexpr const OpDef* kScatterOps[] = {
    &op::scatter,         &op::scatter_elements, &op::scatter_nd,           &op::gather_nd,
    &op::take_along_axis, &op::dynamic_slice,    &op::dynamic_update_slice, &op::one_hot,
};
}  // namespace
constinit const Family kScatter{"scatter", kScatterOps};

}  // namespace rlx
