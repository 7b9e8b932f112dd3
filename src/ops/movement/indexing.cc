// Data movement by index: gather, its transpose scatter_add, and iota; dim_size, a size as a value.
#include <algorithm>
#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/indexing/index_rules.h"
#include "rlx/ops/movement/movement.h"

namespace rlx {

void require_indices(const InferArgs& a, size_t i) {
  if (!kIndexTypes.has(a.in[i].dtype))
    bad_operands(a, "index-dtype", fmt::format("indices must be of {}", kIndexTypes.to_string()));
}

Split::Split(const Ints& sizes, int64_t axis, int64_t width) {
  for (int64_t i = 0; i < axis; ++i) outer *= sizes[at(i)];
  for (size_t i = at(axis + width); i < sizes.size(); ++i) inner *= sizes[i];
}

Ints read_indices(const EvalArgs& e, size_t i, int64_t size) {
  const Tensor& t = e.in[i];
  Ints out(at(t.elements()));
  for (int64_t k = 0; k < t.elements(); ++k) {
    const double value = t.get_float(k);  // for the message and NaN; get_int is exact
    const int64_t index = t.get_int(k);
    user_check(index >= 0 && index < size && !std::isnan(value), "index-range",
               "{}: index {} at position {} is out of range, allowed is [0, {})", e.node.op->name,
               value, k, size);
    out[at(k)] = index;
  }
  return out;
}

Shape replace_axes(const Shape& shape, int64_t axis, int64_t width, const Shape& by) {
  Shape out(shape.begin(), shape.begin() + axis);
  out.insert(out.end(), by.begin(), by.end());
  out.insert(out.end(), shape.begin() + axis + width, shape.end());
  return out;
}

Value position_of(Builder& b, std::span<const Coordinate> coordinates) {
  Value position = kNone, valid = kNone;
  for (const Coordinate& c : coordinates) {
    Expr own(b, cast_to(b, c.index, DType::I64)), size(b, dim_value(b, c.size, DType::I64));
    position = position.valid() ? Value(Expr(b, position) * size + own) : own;
    if (c.in_range) continue;
    Value fits = op::logical_and(op::ge(own, own.like(0)), op::lt(own, size));
    if (is_float(b.type(c.index).dtype))
      fits = op::logical_and(b, fits, op::eq(b, c.index, c.index));
    valid = valid.valid() ? op::logical_and(b, valid, fits) : fits;
  }
  if (!valid.valid()) return position;
  return op::select(b, valid, position, b.constant_like(position, -1));
}

Coordinate counter(Builder& b, const Dim& size, int64_t axis, int64_t rank) {
  Shape shape(at(rank), Dim(1));
  shape[at(axis)] = size;
  return {op::iota(b, {}, {DType::I64, shape, axis}), size, true};
}

Value flat_indices(Builder& b, Value indices, const Dim& batch, const Dim& size) {
  const Coordinate both[] = {counter(b, batch, 0, b.type(indices).rank()), {indices, size}};
  return position_of(b, both);
}

Value merge_front(Builder& b, Value x) {
  Shape shape = b.shape(x);
  shape[1] = shape[0] * shape[1];
  shape.erase(shape.begin());
  return op::reshape(b, x, {shape});
}

Value flatten_all(Builder& b, Value x) { return reshape_to(b, x, {b.shape(x).elements()}); }

namespace {

// ---- gather -------------------------------------------------------------------------------------

Types infer_gather(const InferArgs& a) {
  require_indices(a);
  return {{a.in[0].dtype, replace_axes(a.in[0].shape, a.get<AxisAttrs>().axis, 1, a.in[1].shape)}};
}

Tensors evaluate_gather(const EvalArgs& e) {
  Tensor out = e.make();
  const Tensor& x = e.in[0];
  const int64_t axis = e.get<AxisAttrs>().axis, size = x.sizes()[at(axis)];
  const Split s(x.sizes(), axis, 1);
  const size_t bytes = at(s.inner) * at(size_of(x.dtype()));
  const Ints indices = read_indices(e, 1, size);
  std::byte* target = out.mutable_raw();
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t index : indices) {
      std::memcpy(target, x.raw() + at(o * size + index) * bytes, bytes);
      target += bytes;
    }
  return {out};
}

Values vmap_gather(Builder& b, const VmapArgs& a) {
  const int64_t axis = a.node.get<AxisAttrs>().axis;
  const Value x = a.in[0], indices = a.in[1];
  if (!a.batched[1]) return {op::gather(b, x, indices, {.axis = axis + 1})};
  if (!a.batched[0])  // [outer, B, indices, inner]
    return {swap_blocks(b, op::gather(b, x, indices, {.axis = axis}), 0, axis, 1)};
  const int64_t width = b.type(indices).rank() - 1;
  const Dim size = b.shape(x)[at(axis + 1)];
  const Value rows = merge_front(b, swap_blocks(b, x, 1, axis, 1));  // [B * size, outer, inner]
  const Value y = op::gather(b, rows, flat_indices(b, indices, a.size, size), {.axis = 0});
  return {swap_blocks(b, y, 1, width, axis)};
}

// ---- scatter_add --------------------------------------------------------------------------------

void normalise_scatter(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& axis = static_cast<ScatterAttrs*>(attrs)->axis;
  user_check(in[0].rank() >= in[1].rank(), "scatter-shape",
             "{}: updates {} must have the axes of the indices {}", op, in[0], in[1]);
  axis = normalise_axis(axis, in[0].rank() - in[1].rank() + 1, op);
}

Types infer_scatter_add(const InferArgs& a) {
  require_indices(a);
  const auto& [axis, size] = a.get<ScatterAttrs>();
  const Shape &updates = a.in[0].shape, &indices = a.in[1].shape;
  bool fits = updates.size() >= at(axis) + indices.size();
  for (size_t i = 0; fits && i < indices.size(); ++i)
    fits = !differ(updates[at(axis) + i], indices[i]);
  if (!fits)
    bad_operands(
        a, "scatter-shape",
        fmt::format("updates must have the indices' shape {} from axis {} on", indices, axis));
  if (is_negative(size))
    bad_operands(a, "negative-dim", fmt::format("the size {} is negative", size));
  return {{a.in[0].dtype, replace_axes(updates, axis, indices.rank(), {size})}};
}

// Sums in T and stores with one rounding.
template <class T>
Tensor scatter_sum(const EvalArgs& e) {
  Tensor out = e.make();
  const Tensor& updates = e.in[0];
  const int64_t axis = e.get<ScatterAttrs>().axis, size = out.sizes()[at(axis)];
  const Split s(out.sizes(), axis, 1);
  const Ints indices = read_indices(e, 1, size);
  std::vector<T> sums(at(out.elements()));
  int64_t source = 0;
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t index : indices)
      for (int64_t i = 0; i < s.inner; ++i) {
        T& sum = sums[at((o * size + index) * s.inner + i)];
        const T v = detail::fetch<T>(updates, source++);
        if constexpr (IntNumber<T>)
          sum = static_cast<T>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(v));
        else
          sum += v;
      }
  for (int64_t i = 0; i < out.elements(); ++i) detail::put(out, i, sums[at(i)]);
  return out;
}

Tensors evaluate_scatter_add(const EvalArgs& e) {
  const DType d = e.in[0].dtype();
  if (is_float(d)) return {scatter_sum<double>(e)};
  if (is_complex(d)) return {scatter_sum<Complex>(e)};
  return {scatter_sum<int64_t>(e)};
}

Values vmap_scatter_add(Builder& b, const VmapArgs& a) {
  const auto& [axis, size] = a.node.get<ScatterAttrs>();
  const Value indices = a.in[1];
  if (!a.batched[1]) return {op::scatter_add(b, a.in[0], indices, {axis + 1, size})};
  const int64_t width = b.type(indices).rank() - 1;
  const Value updates = a.batched[0] ? a.in[0] : batch_operand(b, a.in[0], a.size);
  const Value rows = swap_blocks(b, updates, 1, axis, width);  // [B, indices, outer, inner]
  const Value sums = op::scatter_add(b, rows, flat_indices(b, indices, a.size, size),
                                     {0, a.size * size});  // [B * size, outer, inner]
  Shape shape = b.shape(sums);
  shape[0] = size;
  const Value y = op::reshape(b, sums, {prepend(a.size, shape)});
  return {swap_blocks(b, y, 1, 1, axis)};
}

// ---- iota ---------------------------------------------------------------------------------------

void normalise_iota(void* attrs, std::string_view op, std::span<const Type>) {
  auto& i = *static_cast<IotaAttrs*>(attrs);
  i.axis = normalise_axis(i.axis, i.shape.rank(), op);
}

Types infer_iota(const InferArgs& a) {
  const auto& [dtype, shape, axis] = a.get<IotaAttrs>();
  user_check(kNumbers.has(dtype), "dtype", "iota: does not make {}; allowed are {}", dtype,
             kNumbers.to_string());
  user_check(std::none_of(shape.begin(), shape.end(), is_negative), "negative-dim",
             "iota: the shape {} has a negative size", shape);
  return {{dtype, shape}};
}

Tensors evaluate_iota(const EvalArgs& e) {
  Tensor out = e.make();
  const int64_t axis = e.get<IotaAttrs>().axis, size = out.sizes()[at(axis)];
  const Split s(out.sizes(), axis, 1);
  for (int64_t i = 0; i < out.elements(); ++i)
    out.set_complex(i, static_cast<double>(i / s.inner % size));
  return {out};
}

}  // namespace

namespace op {

constinit const Op<AxisAttrs> gather = OpDef{
    .name = "gather",
    .doc =
        "NumPy's take: result[o.., i.., t..] = x[o.., indices[i..], t..], where the indices' axes "
        "take the place of "
        "the axis. Indices are integers, or f32/f64 that are truncated; one out of range raises "
        "\"index-range\".",
    .reference = "Gather",
    .kind = Kind::movement,
    .arity = 2,
    .operands = "x, indices",
    .passes_codes = true,
    .infer = infer_gather,
    .normalise = normalise_axis_of<AxisAttrs>,
    .eval = evaluate_gather,
    .jvp = [](Builder& b, const JvpArgs& a) -> Values {
      return a.tangents[0].valid() ? b.clone(a.node, Values{a.tangents[0], a.in[1]})
                                   : Values{kNone};
    },
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      if (!a.wanted[0]) return {kNone, kNone};
      const int64_t axis = a.node.get<AxisAttrs>().axis;
      return {op::scatter_add(b, a.cotangents[0], a.in[1], {axis, b.shape(a.in[0])[at(axis)]}),
              kNone};
    },
    .vmap = vmap_gather,
};

constinit const Op<ScatterAttrs> scatter_add = OpDef{
    .name = "scatter_add",
    .doc =
        "The transpose of gather: zeros of `size` along the axis, to which updates[o.., i.., t..] "
        "is added at "
        "[o.., indices[i..], t..]. Duplicates accumulate (f16 and bf16 in f32 or wider), integers "
        "wrap; an index out "
        "of range raises \"index-range\".",
    .reference = "ScatterAdd",
    .kind = Kind::movement,
    .arity = 2,
    .operands = "updates, indices",
    .dtypes = kNumbers,
    .infer = infer_scatter_add,
    .normalise = normalise_scatter,
    .eval = evaluate_scatter_add,
    .jvp = [](Builder& b, const JvpArgs& a) -> Values {
      return a.tangents[0].valid() ? b.clone(a.node, Values{a.tangents[0], a.in[1]})
                                   : Values{kNone};
    },
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      if (!a.wanted[0]) return {kNone, kNone};
      return {op::gather(b, a.cotangents[0], a.in[1], {.axis = a.node.get<ScatterAttrs>().axis}),
              kNone};
    },
    .vmap = vmap_scatter_add,
};

constinit const Op<IotaAttrs> iota = OpDef{
    .name = "iota",
    .doc = "A tensor that counts 0, 1, 2, .. along an axis.",
    .kind = Kind::movement,
    .arity = 0,
    .operands = "",
    .infer = infer_iota,
    .normalise = normalise_iota,
    .eval = evaluate_iota,
    .vmap =
        [](Builder& b, const VmapArgs& a) {
          return single(batch_operand(b, b.clone(a.node, {})[0], a.size));
        },
    .not_differentiable = "it has no operands",
};

constinit const Op<DimSizeAttrs> dim_size = OpDef{
    .name = "dim_size",
    .doc =
        "The number that a size stands for, as a value: known where the size is, and at the latest "
        "when the program "
        "is run.",
    .kind = Kind::movement,
    .arity = 0,
    .operands = "",
    .infer = [](const InferArgs& a) -> Types {
      const DType dtype = a.get<DimSizeAttrs>().dtype;
      user_check(kReals.has(dtype), "dtype", "dim_size: does not make {}; allowed are {}", dtype,
                 kReals.to_string());
      return {{dtype, {}}};
    },
    .eval = [](const EvalArgs& e) -> Tensors {
      Tensor out = e.make();
      out.set_int(0, e.get<DimSizeAttrs>().size.value());
      return {out};
    },
    .vmap =
        [](Builder& b, const VmapArgs& a) {
          return single(batch_operand(b, b.clone(a.node, {})[0], a.size));
        },
    .not_differentiable = "it has no operands",
};

}  // namespace op

}  // namespace rlx
