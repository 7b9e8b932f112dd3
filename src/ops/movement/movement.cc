// Data movement by position: reshape, broadcast, transpose, slice, concat, pad, reverse. What goes
// by index (gather, scatter_add, iota) and dim_size are in indexing.cc.
#include "rlx/ops/movement/movement.h"

#include <algorithm>
#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

// ---- reference values ---------------------------------------------------------------------------

// Where the elements of a view lie, in elements.
struct Place {
  int64_t offset = 0;
  Ints strides;
};

// Copies `sizes` elements from one view to another; rows that are dense in both go in one piece.
void move_elements(Tensor& out, const Place& to, const Tensor& x, const Place& from, Ints sizes) {
  const size_t bytes = at(size_of(out.dtype()));
  int64_t row = 1;
  if (!sizes.empty() && to.strides.back() == 1 && from.strides.back() == 1)
    std::swap(row, sizes.back());
  if (row == 0) return;
  for_each_index(sizes, [&](const Ints& index) {
    int64_t target = to.offset, source = from.offset;
    for (size_t i = 0; i < index.size(); ++i)
      target += index[i] * to.strides[i], source += index[i] * from.strides[i];
    std::memcpy(out.mutable_raw() + at(target) * bytes, x.raw() + at(source) * bytes,
                at(row) * bytes);
  });
}

// The result is a strided view of operand 0.
Tensors evaluate_view(const EvalArgs& e, const Place& from) {
  Tensor out = e.make();
  const Ints sizes = out.sizes();
  move_elements(out, {0, row_major_strides(sizes)}, e.in[0], from, sizes);
  return {out};
}

constexpr OpDef mover(std::string_view name, std::string_view doc, std::string_view reference,
                      InferRule infer, EvalRule eval, VjpRule vjp, VmapRule vmap) {
  OpDef d{.name = name,
          .doc = doc,
          .reference = reference,
          .kind = Kind::movement,
          .linear = true,
          .passes_codes = true};
  d.infer = infer;
  d.eval = eval;
  d.jvp = jvp_through_itself;
  d.vjp = vjp;
  d.vmap = vmap;
  return d;
}

void check_sizes(const InferArgs& a, const Shape& shape) {
  if (std::any_of(shape.begin(), shape.end(), is_negative))
    bad_operands(a, "negative-dim", fmt::format("the shape {} has a negative size", shape));
}

// ---- broadcast, reshape, transpose, reverse -----------------------------------------------------

Types infer_broadcast_to(const InferArgs& a) {
  const Shape &from = a.in[0].shape, &to = a.get<ShapeAttrs>().shape;
  check_sizes(a, to);
  if (!may_broadcast(from, to))
    bad_operands(a, "broadcast",
                 fmt::format("{} does not broadcast to {}: right-aligned sizes must be equal or 1",
                             from, to));
  return {{a.in[0].dtype, to}};
}

Values vmap_broadcast(Builder& b, const VmapArgs& a) {
  const Shape& shape = a.node.get<ShapeAttrs>().shape;
  const Value x = align_batched(b, a.in[0], shape.rank());
  return {op::broadcast(b, x, {prepend(a.size, shape)})};
}

void normalise_reshape(void* attrs, std::string_view op, std::span<const Type> in) {
  Shape& shape = static_cast<ShapeAttrs*>(attrs)->shape;
  const auto open = std::find(shape.begin(), shape.end(), Dim(-1));
  if (open == shape.end()) return;
  user_check(std::count(shape.begin(), shape.end(), Dim(-1)) == 1, "reshape-size",
             "{}: only one dim may be -1, got {} for {}", op, shape, in[0]);
  *open = 1;
  const Dim known = shape.elements();
  *open = -1;
  const auto rest = in[0].shape.elements().divide(known);
  user_check(rest.has_value(), "reshape-size", "{}: no size for -1 turns {} into {}", op, in[0],
             shape);
  *open = *rest;
}

Types infer_reshape(const InferArgs& a) {
  const Shape& shape = a.get<ShapeAttrs>().shape;
  check_sizes(a, shape);
  if (differ(a.in[0].shape.elements(), shape.elements()))
    bad_operands(a, "reshape-size",
                 fmt::format("{} elements do not fill {} ({})", a.in[0].shape.elements(), shape,
                             shape.elements()));
  return {{a.in[0].dtype, shape}};
}

void normalise_transpose(void* attrs, std::string_view op, std::span<const Type> in) {
  for (int64_t& axis : static_cast<TransposeAttrs*>(attrs)->perm)
    axis = normalise_axis(axis, in[0].rank(), op);
}

Types infer_transpose(const InferArgs& a) {
  const Ints& perm = a.get<TransposeAttrs>().perm;
  Ints sorted = perm, all(a.in[0].shape.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all)
    bad_operands(a, "perm",
                 fmt::format("perm [{}] must name each of the {} axes once", fmt::join(perm, ", "),
                             all.size()));
  Shape shape;
  for (int64_t axis : perm) shape.push_back(a.in[0].shape[at(axis)]);
  return {{a.in[0].dtype, shape}};
}

Tensors evaluate_transpose(const EvalArgs& e) {
  const Ints own = row_major_strides(e.in[0].sizes());
  Ints strides;
  for (int64_t axis : e.get<TransposeAttrs>().perm) strides.push_back(own[at(axis)]);
  return evaluate_view(e, {0, strides});
}

Values vjp_transpose(Builder& b, const VjpArgs& a) {
  const Ints& perm = a.node.get<TransposeAttrs>().perm;
  Ints inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[at(perm[i])] = static_cast<int64_t>(i);
  return {op::transpose(b, a.cotangents[0], {inverse})};
}

Values vmap_transpose(Builder& b, const VmapArgs& a) {
  Ints perm{0};
  for (int64_t axis : a.node.get<TransposeAttrs>().perm) perm.push_back(axis + 1);
  return {op::transpose(b, a.in[0], {perm})};
}

Tensors evaluate_reverse(const EvalArgs& e) {
  Place from{0, row_major_strides(e.in[0].sizes())};
  for (int64_t axis : e.get<ReverseAttrs>().axes) {
    from.offset += (e.in[0].sizes()[at(axis)] - 1) * from.strides[at(axis)];
    from.strides[at(axis)] *= -1;
  }
  return evaluate_view(e, from);
}

Values vmap_reverse(Builder& b, const VmapArgs& a) {
  Ints axes = a.node.get<ReverseAttrs>().axes;
  for (int64_t& axis : axes) ++axis;
  return {op::reverse(b, a.in[0], {axes})};
}

// ---- slice --------------------------------------------------------------------------------------

void normalise_slice(void* attrs, std::string_view, std::span<const Type> in) {
  auto& s = *static_cast<SliceAttrs*>(attrs);
  const size_t rank = in[0].shape.size();
  if (s.start.empty()) s.start.assign(rank, 0);
  if (s.limit.empty()) s.limit = in[0].shape;
  if (s.stride.empty()) s.stride.assign(rank, 1);
}

Types infer_slice(const InferArgs& a) {
  const auto& [start, limit, stride] = a.get<SliceAttrs>();
  const Shape& x = a.in[0].shape;
  if (start.size() != x.size() || limit.size() != x.size() || stride.size() != x.size())
    bad_operands(
        a, "slice-rank",
        fmt::format("start, limit and stride need one entry for each of the {} axes", x.size()));
  Shape shape;
  for (size_t i = 0; i < x.size(); ++i) {
    if (stride[i] < 1)
      bad_operands(a, "slice-stride",
                   fmt::format("stride {} of axis {} must be 1 or more", stride[i], i));
    if (is_negative(start[i]) || is_negative(limit[i] - start[i]) || is_negative(x[i] - limit[i]))
      bad_operands(a, "slice-range",
                   fmt::format("axis {} needs 0 <= start <= limit <= {}, got {} and {}", i, x[i],
                               start[i], limit[i]));
    shape.push_back(ceil_div(limit[i] - start[i], stride[i]));
  }
  return {{a.in[0].dtype, shape}};
}

Tensors evaluate_slice(const EvalArgs& e) {
  const auto& s = e.get<SliceAttrs>();
  Place from{0, row_major_strides(e.in[0].sizes())};
  for (size_t i = 0; i < from.strides.size(); ++i) {
    from.offset += s.start[i].value() * from.strides[i];
    from.strides[i] *= s.stride[i];
  }
  return evaluate_view(e, from);
}

Value pad_zeros(Builder& b, Value x, const Shape& low, const Shape& high) {
  auto zero = [](const Dim& d) { return d == Dim(0); };
  if (std::all_of(low.begin(), low.end(), zero) && std::all_of(high.begin(), high.end(), zero))
    return x;
  return op::pad(b, x, b.constant_like(x, 0), {low, high});
}

// A strided axis [m] becomes [m, 1], is padded to [m, stride] and flattened: zeros come between.
// Then everything is padded to x's sizes (cropped where the last stride reaches beyond).
Values vjp_slice(Builder& b, const VjpArgs& a) {
  const auto& s = a.node.get<SliceAttrs>();
  const Shape x = b.shape(a.in[0]), g = a.node.type().shape;
  Shape split, fill, flat, high;
  for (size_t i = 0; i < g.size(); ++i) {
    split.push_back(g[i]), fill.push_back(0);
    if (s.stride[i] > 1) split.push_back(1), fill.push_back(s.stride[i] - 1);
    flat.push_back(g[i] * Dim(s.stride[i]));
    high.push_back(x[i] - s.start[i] - flat[i]);
  }
  Value spread = reshape_to(b, a.cotangents[0], split);
  spread = reshape_to(b, pad_zeros(b, spread, Shape(fill.size(), Dim(0)), fill), flat);
  return {pad_zeros(b, spread, s.start, high)};
}

Values vmap_slice(Builder& b, const VmapArgs& a) {
  SliceAttrs s = a.node.get<SliceAttrs>();
  s.start.insert(s.start.begin(), 0);
  s.limit.insert(s.limit.begin(), a.size);
  s.stride.insert(s.stride.begin(), 1);
  return {op::slice(b, a.in[0], s)};
}

// ---- concat -------------------------------------------------------------------------------------

Types infer_concat(const InferArgs& a) {
  require_same_dtype(a);
  const size_t axis = at(a.get<AxisAttrs>().axis);
  Shape shape = a.in[0].shape;
  for (const Type& t : a.in.subspan(1)) {
    if (t.shape.size() != shape.size())
      bad_operands(a, "concat-shape", "operands must have one rank");
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i != axis && differ(t.shape[i], shape[i]))
        bad_operands(a, "concat-shape", fmt::format("sizes may differ along axis {} only", axis));
      shape[i] = i == axis ? shape[i] + t.shape[i] : agreed(shape[i], t.shape[i]);
    }
  }
  return {{a.in[0].dtype, shape}};
}

Tensors evaluate_concat(const EvalArgs& e) {
  Tensor out = e.make();
  const size_t axis = at(e.get<AxisAttrs>().axis);
  Place to{0, row_major_strides(out.sizes())};
  for (const Tensor& x : e.in) {
    move_elements(out, to, x, {0, row_major_strides(x.sizes())}, x.sizes());
    to.offset += x.sizes()[axis] * to.strides[axis];
  }
  return {out};
}

Values jvp_concat(Builder& b, const JvpArgs& a) {
  Values tangents(a.tangents.begin(), a.tangents.end());
  if (std::none_of(tangents.begin(), tangents.end(), [](Value t) { return t.valid(); }))
    return {kNone};
  for (size_t i = 0; i < tangents.size(); ++i)
    if (!tangents[i].valid()) tangents[i] = zero_derivative(b, b.type(a.in[i]));
  return b.clone(a.node, tangents);
}

Values vjp_concat(Builder& b, const VjpArgs& a) {
  const size_t axis = at(a.node.get<AxisAttrs>().axis);
  const Shape whole = a.node.type().shape;
  Values out;
  Dim begin = 0;
  for (size_t i = 0; i < a.in.size(); ++i) {
    SliceAttrs s{Shape(whole.size(), Dim(0)), whole, {}};
    s.start[axis] = begin;
    s.limit[axis] = begin = begin + b.shape(a.in[i])[axis];
    out.push_back(a.wanted[i] ? op::slice(b, a.cotangents[0], s) : kNone);
  }
  return out;
}

Values vmap_concat(Builder& b, const VmapArgs& a) {
  Values in(a.in.begin(), a.in.end());
  for (size_t i = 0; i < in.size(); ++i)
    if (!a.batched[i]) in[i] = batch_operand(b, in[i], a.size);
  return b.emit(op::concat.def, AxisAttrs{a.node.get<AxisAttrs>().axis + 1}, in);
}

// ---- pad ----------------------------------------------------------------------------------------

void normalise_pad(void* attrs, std::string_view, std::span<const Type> in) {
  auto& p = *static_cast<PadAttrs*>(attrs);
  if (p.low.empty()) p.low.assign(in[0].shape.size(), 0);
  if (p.high.empty()) p.high.assign(in[0].shape.size(), 0);
}

Types infer_pad(const InferArgs& a) {
  require_same_dtype(a);
  const auto& [low, high] = a.get<PadAttrs>();
  Shape shape = a.in[0].shape;
  if (a.in[1].rank() != 0) bad_operands(a, "pad-value", "the value must have rank 0");
  if (low.size() != shape.size() || high.size() != shape.size())
    bad_operands(a, "pad-rank",
                 fmt::format("low and high need one entry for each of the {} axes", shape.size()));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = shape[i] + low[i] + high[i];
  check_sizes(a, shape);
  return {{a.in[0].dtype, shape}};
}

Tensors evaluate_pad(const EvalArgs& e) {
  Tensor out = e.make();
  const Tensor& x = e.in[0];
  const auto& p = e.get<PadAttrs>();
  Place to{0, row_major_strides(out.sizes())}, from{0, row_major_strides(x.sizes())};
  Ints sizes = x.sizes();
  move_elements(out, to, e.in[1], {0, Ints(sizes.size(), 0)}, out.sizes());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t low = p.low[i].value(), first = std::max<int64_t>(0, -low);
    const int64_t last = std::min(sizes[i], out.sizes()[i] - low);
    sizes[i] = std::max<int64_t>(0, last - first);
    from.offset += first * from.strides[i];
    to.offset += (first + low) * to.strides[i];
  }
  move_elements(out, to, x, from, sizes);
  return {out};
}

// Whether each element of a pad's result is the value (rather than one of x's).
Value padding_mask(Builder& b, const Node& pad, const Shape& x) {
  const Value inside = full(b, {DType::Bool, x}, 0);
  return op::pad(b, inside, b.constant(DType::Bool, 1), pad.get<PadAttrs>());
}

Values jvp_pad(Builder& b, const JvpArgs& a) {
  const Value x = a.tangents[0], value = a.tangents[1];
  if (!x.valid() && !value.valid()) return {kNone};
  return b.clone(a.node, Values{x.valid() ? x : zero_derivative(b, b.type(a.in[0])),
                                value.valid() ? value : zero_derivative(b, b.type(a.in[1]))});
}

Values vjp_pad(Builder& b, const VjpArgs& a) {
  const auto& [low, high] = a.node.get<PadAttrs>();
  const Shape x = b.shape(a.in[0]);
  const Value g = a.cotangents[0];
  Values out{kNone, kNone};
  if (a.wanted[0]) {
    bool grows = true;
    Shape limit, less_low, less_high;
    for (size_t i = 0; i < x.size(); ++i) {
      grows = grows && low[i].is_static() && high[i].is_static() && !is_negative(low[i]) &&
              !is_negative(high[i]);
      limit.push_back(low[i] + x[i]);
      less_low.push_back(Dim(-1) * low[i]), less_high.push_back(Dim(-1) * high[i]);
    }
    out[0] = grows ? op::slice(b, g, {low, limit, {}}) : pad_zeros(b, g, less_low, less_high);
  }
  if (a.wanted[1]) {
    Ints all(x.size());
    std::iota(all.begin(), all.end(), 0);
    out[1] = sum_axes(b, op::select(b, padding_mask(b, a.node, x), g, b.constant_like(g, 0)), all);
  }
  return out;
}

Values vmap_pad(Builder& b, const VmapArgs& a) {
  PadAttrs p = a.node.get<PadAttrs>();
  const Shape x = b.shape(a.in[0]), own = a.batched[0] ? Shape(x.begin() + 1, x.end()) : x;
  if (a.batched[0]) p.low.insert(p.low.begin(), 0), p.high.insert(p.high.begin(), 0);
  if (!a.batched[1]) return {op::pad(b, a.in[0], a.in[1], p)};
  const Value zero_padded = pad_zeros(b, a.in[0], p.low, p.high);
  const Value value = align_batched(b, a.in[1], own.rank());
  return {op::select(b, padding_mask(b, a.node, own), value, zero_padded)};
}

}  // namespace

namespace op {

constinit const Op<ShapeAttrs> broadcast = mover(
    "broadcast", "x repeated to a shape: right-aligned, missing and size-1 dims repeat.", "Expand",
    infer_broadcast_to,
    [](const EvalArgs& e) {
      return evaluate_view(e, {0, broadcast_strides(e.in[0].sizes(), e.node.type().shape.sizes())});
    },
    [](Builder& b, const VjpArgs& a) {
      return single(unbroadcast(b, a.cotangents[0], Shape(b.shape(a.in[0]))));
    },
    vmap_broadcast);

constinit const Op<ShapeAttrs> reshape = [] {
  OpDef d = mover(
      "reshape", "The elements of x in row-major order under another shape; one dim may be -1.",
      "Reshape", infer_reshape,
      [](const EvalArgs& e) -> Tensors { return {e.in[0].reshaped(e.node.type().shape.sizes())}; },
      [](Builder& b, const VjpArgs& a) {
        return single(reshape_to(b, a.cotangents[0], Shape(b.shape(a.in[0]))));
      },
      [](Builder& b, const VmapArgs& a) {
        return single(op::reshape(b, a.in[0], {prepend(a.size, a.node.type().shape)}));
      });
  d.normalise = normalise_reshape;
  return d;
}();

constinit const Op<TransposeAttrs> transpose = [] {
  OpDef d = mover("transpose", "x with its axes permuted: result axis d is axis perm[d] of x.",
                  "Transpose", infer_transpose, evaluate_transpose, vjp_transpose, vmap_transpose);
  d.normalise = normalise_transpose;
  return d;
}();

constinit const Op<SliceAttrs> slice = [] {
  OpDef d = mover("slice",
                  "x[start + i * stride] for all positions below limit, along every axis. Empty "
                  "lists mean start 0, "
                  "limit at the end, stride 1.",
                  "Narrow", infer_slice, evaluate_slice, vjp_slice, vmap_slice);
  d.normalise = normalise_slice;
  return d;
}();

constinit const Op<AxisAttrs> concat = named("xs..", [] {
  OpDef d = mover("concat", "The operands one after the other along an axis.", "Concat",
                  infer_concat, evaluate_concat, vjp_concat, vmap_concat);
  d.arity = kVariadic;
  d.min_arity = 1;
  d.jvp = jvp_concat;
  d.normalise = normalise_axis_of<AxisAttrs>;
  return d;
}());

constinit const Op<PadAttrs> pad = named("x, value", [] {
  OpDef d = mover("pad",
                  "x with `low` and `high` copies of a rank-0 value before and behind it along "
                  "every axis; negative "
                  "amounts crop.",
                  {}, infer_pad, evaluate_pad, vjp_pad, vmap_pad);
  d.arity = 2;
  d.jvp = jvp_pad;
  d.normalise = normalise_pad;
  return d;
}());

constinit const Op<ReverseAttrs> reverse = [] {
  OpDef d = mover(
      "reverse", "x with the order of elements reversed along the given axes.", {}, infer_same,
      evaluate_reverse, [](Builder& b, const VjpArgs& a) { return b.clone(a.node, a.cotangents); },
      vmap_reverse);
  d.normalise = normalise_axes_of<ReverseAttrs>;
  return d;
}();

}  // namespace op

namespace {
constexpr const OpDef* kMovementOps[] = {
    &op::broadcast, &op::reshape,     &op::transpose, &op::slice, &op::concat,  &op::pad,
    &op::gather,    &op::scatter_add, &op::reverse,   &op::iota,  &op::dim_size};
}  // namespace
constinit const Family kMovement{"movement", kMovementOps};

}  // namespace rlx
