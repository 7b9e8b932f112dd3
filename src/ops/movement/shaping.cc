// Joining, splitting, axes, repeats. Diagonals, triangles, padding and tensors without operands are
// in fills.cc.
#include "rlx/ops/movement/shaping.h"

#include <algorithm>
#include <numeric>

#include "rlx/base/checked.h"
#include "rlx/ops/composite_rules.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/elementwise/math.h"

namespace rlx {

Types infer_decomposed(const InferArgs& a) {
  Builder b(std::string(a.op.name));
  Node n{&a.op, a.attrs, {}, {}, {}};
  for (const Type& t : a.in) n.in.push_back(b.input(std::to_string(n.in.size()), t));
  Types out;
  try {
    for (Value v : b.expand(n, n.in)) out.push_back(b.type(v));
  } catch (const Error& e) {
    throw Error(e.kind(), e.code(), fmt::format("{}: {}", a.op.name, e.message()));
  }
  return out;
}

namespace {

constexpr OpDef arranger(std::string_view name, std::string_view doc, InferRule infer,
                         NormaliseRule normalise, DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .linear = true};
  d.infer = infer;
  d.normalise = normalise;
  d.decompose = decompose;
  return d;
}

Value slice_axis(Builder& b, Value x, int64_t axis, const Dim& first, const Dim& limit) {
  SliceAttrs s{Shape(b.shape(x).size(), Dim(0)), b.shape(x), {}};
  s.start[at(axis)] = first, s.limit[at(axis)] = limit;
  return op::slice(b, x, s);
}

Value insert_axis(Builder& b, Value x, int64_t axis) {
  Shape shape = b.shape(x);
  shape.insert(shape.begin() + axis, Dim(1));
  return op::reshape(b, x, {shape});
}

// ---- stack, split, unstack ----------------------------------------------------------------------

Types infer_stack(const InferArgs& a) {
  require_same_dtype(a);
  for (const Type& t : a.in)
    if (t.rank() != a.in[0].rank() ||
        !std::equal(t.shape.begin(), t.shape.end(), a.in[0].shape.begin(),
                    [](const Dim& p, const Dim& q) { return !differ(p, q); }))
      bad_operands(a, "concat-shape", "operands must have one shape");
  return infer_decomposed(a);
}

void normalise_new_axis(void* attrs, std::string_view op, std::span<const Type> in) {
  int64_t& axis = static_cast<AxisAttrs*>(attrs)->axis;
  axis = normalise_axis(axis, in[0].rank() + 1, op);
}

Values decompose_stack(Builder& b, const Node& n, Operands in) {
  const int64_t axis = n.get<AxisAttrs>().axis;
  Values parts;
  for (Value x : in) parts.push_back(insert_axis(b, x, axis));
  return b.emit(op::concat.def, AxisAttrs{axis}, parts);
}

Types infer_split(const InferArgs& a) {
  const auto& [axis, sizes] = a.get<SplitAttrs>();
  const Dim total = std::accumulate(sizes.begin(), sizes.end(), Dim(0));
  if (sizes.empty() || std::any_of(sizes.begin(), sizes.end(), is_negative) ||
      differ(total, a.in[0].shape[at(axis)]))
    bad_operands(a, "split-sizes",
                 fmt::format("the sizes {} must add up to {}, the size of axis {}", sizes,
                             a.in[0].shape[at(axis)], axis));
  return infer_decomposed(a);
}

Values decompose_split(Builder& b, const Node& n, Operands in) {
  const auto& [axis, sizes] = n.get<SplitAttrs>();
  Values parts;
  Dim begin = 0;
  for (const Dim& size : sizes) {
    parts.push_back(slice_axis(b, in[0], axis, begin, begin + size));
    begin = begin + size;
  }
  return parts;
}

Types infer_unstack(const InferArgs& a) {
  const int64_t axis = a.get<AxisAttrs>().axis;
  const Dim& size = a.in[0].shape[at(axis)];
  if (!size.is_static() || size.value() < 1)
    bad_operands(a, "shape-symbolic",
                 fmt::format("the size of axis {} must be known and at least 1", axis));
  return infer_decomposed(a);
}

Values decompose_unstack(Builder& b, const Node& n, Operands in) {
  const int64_t axis = n.get<AxisAttrs>().axis;
  Shape shape = b.shape(in[0]);
  const int64_t size = shape[at(axis)].value();
  shape.erase(shape.begin() + axis);
  Values parts;
  for (int64_t i = 0; i < size; ++i)
    parts.push_back(reshape_to(b, slice_axis(b, in[0], axis, i, i + 1), shape));
  return parts;
}

// ---- axes ---------------------------------------------------------------------------------------

void normalise_squeeze(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& axes = static_cast<AxesAttrs*>(attrs)->axes;
  if (axes.empty())
    for (int64_t i = 0; i < in[0].rank(); ++i)
      if (in[0].shape[at(i)] == Dim(1)) axes.push_back(i);
  axes = normalise_axes(axes, in[0].rank(), op);
}

Types infer_squeeze(const InferArgs& a) {
  for (int64_t axis : a.get<AxesAttrs>().axes)
    if (differ(a.in[0].shape[at(axis)], Dim(1)))
      bad_operands(a, "squeeze-size", fmt::format("axis {} has not the size 1", axis));
  return infer_decomposed(a);
}

Values decompose_squeeze(Builder& b, const Node& n, Operands in) {
  Shape shape = b.shape(in[0]);
  const Ints& axes = n.get<AxesAttrs>().axes;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) shape.erase(shape.begin() + *axis);
  return {reshape_to(b, in[0], shape)};
}

void normalise_expand(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& axes = static_cast<AxesAttrs*>(attrs)->axes;
  axes = normalise_axes(axes, in[0].rank() + static_cast<int64_t>(axes.size()), op);
}

Values decompose_expand(Builder& b, const Node& n, Operands in) {
  Shape shape = b.shape(in[0]);
  for (int64_t axis : n.get<AxesAttrs>().axes) shape.insert(shape.begin() + axis, Dim(1));
  return {reshape_to(b, in[0], shape)};
}

void normalise_flatten(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& f = *static_cast<FlattenAttrs*>(attrs);
  const int64_t rank = std::max<int64_t>(in[0].rank(), 1);  // rank 0 becomes [1]
  f.start = normalise_axis(f.start, rank, op), f.end = normalise_axis(f.end, rank, op);
  user_check(f.start <= f.end, "axis-range", "{}: start {} is behind end {}", op, f.start, f.end);
}

Values decompose_flatten(Builder& b, const Node& n, Operands in) {
  const auto& [start, end] = n.get<FlattenAttrs>();
  Shape shape = b.shape(in[0]);
  if (shape.empty()) return {reshape_to(b, in[0], {1})};
  const auto first = shape.begin() + start, last = shape.begin() + end + 1;
  const Dim merged = Shape(first, last).elements();
  shape.insert(shape.erase(first, last), merged);
  return {reshape_to(b, in[0], shape)};
}

void normalise_swap(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& s = *static_cast<SwapAttrs*>(attrs);
  s.axis1 = normalise_axis(s.axis1, in[0].rank(), op);
  s.axis2 = normalise_axis(s.axis2, in[0].rank(), op);
}

Values decompose_swap(Builder& b, const Node& n, Operands in) {
  const auto& [axis1, axis2] = n.get<SwapAttrs>();
  Ints perm(b.shape(in[0]).size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[at(axis1)], perm[at(axis2)]);
  return {transpose_to(b, in[0], perm)};
}

void normalise_move(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& m = *static_cast<MoveAttrs*>(attrs);
  user_check(m.source.size() == m.destination.size(), "axis-range",
             "{}: {} axes cannot move to {} places", op, m.source.size(), m.destination.size());
  for (Ints* axes : {&m.source, &m.destination}) {
    for (int64_t& axis : *axes) axis = normalise_axis(axis, in[0].rank(), op);
    normalise_axes(*axes, in[0].rank(), op);  // raises when one is named twice
  }
}

Values decompose_move(Builder& b, const Node& n, Operands in) {
  const auto& [source, destination] = n.get<MoveAttrs>();
  const int64_t rank = b.type(in[0]).rank();
  Ints perm(at(rank), -1);
  for (size_t i = 0; i < source.size(); ++i) perm[at(destination[i])] = source[i];
  int64_t next = 0;
  for (int64_t& axis : perm) {
    if (axis >= 0) continue;
    while (std::count(source.begin(), source.end(), next)) ++next;
    axis = next++;
  }
  return {transpose_to(b, in[0], perm)};
}

Types infer_broadcast_in_dim(const InferArgs& a) {
  const auto& [shape, dims] = a.get<BroadcastInDimAttrs>();
  const Shape& x = a.in[0].shape;
  bool fits = dims.size() == x.size();
  for (size_t i = 0; fits && i < dims.size(); ++i)
    fits = dims[i] >= 0 && dims[i] < shape.rank() && (i == 0 || dims[i] > dims[i - 1]) &&
           (x[i] == Dim(1) || !differ(x[i], shape[at(dims[i])]));
  if (!fits || std::any_of(shape.begin(), shape.end(), is_negative))
    bad_operands(a, "broadcast",
                 fmt::format("dims [{}] must place each axis in {}, ascending, with its size or 1",
                             fmt::join(dims, ", "), shape));
  return {{a.in[0].dtype, shape}};
}

Values decompose_broadcast_in_dim(Builder& b, const Node& n, Operands in) {
  const auto& [shape, dims] = n.get<BroadcastInDimAttrs>();
  Shape placed(shape.size(), Dim(1));
  for (size_t i = 0; i < dims.size(); ++i) placed[at(dims[i])] = b.shape(in[0])[i];
  return {broadcast_to(b, reshape_to(b, in[0], placed), shape)};
}

// ---- repeats ------------------------------------------------------------------------------------

Types infer_tile(const InferArgs& a) {
  const Ints& repeats = a.get<TileAttrs>().repeats;
  if (static_cast<int64_t>(repeats.size()) < a.in[0].rank() ||
      std::any_of(repeats.begin(), repeats.end(), [](int64_t r) { return r < 0; }))
    bad_operands(a, "repeat-count",
                 fmt::format("repeats [{}] must have an entry, 0 or more, for each axis",
                             fmt::join(repeats, ", ")));
  return infer_decomposed(a);
}

// [d0, d1] -> [1, d0, 1, d1] -> [r0, d0, r1, d1] -> [r0 * d0, r1 * d1]
Values decompose_tile(Builder& b, const Node& n, Operands in) {
  const Ints& repeats = n.get<TileAttrs>().repeats;
  Shape x = b.shape(in[0]), split, wide, flat;
  x.insert(x.begin(), repeats.size() - x.size(), Dim(1));
  for (size_t i = 0; i < x.size(); ++i) {
    split.insert(split.end(), {Dim(1), x[i]});
    wide.insert(wide.end(), {Dim(repeats[i]), x[i]});
    flat.push_back(Dim(repeats[i]) * x[i]);
  }
  return {reshape_to(b, broadcast_to(b, reshape_to(b, in[0], split), wide), flat)};
}

Types infer_repeat(const InferArgs& a) {
  if (const int64_t r = a.get<RepeatAttrs>().repeats; r < 0)
    bad_operands(a, "repeat-count", fmt::format("repeats {} must be 0 or more", r));
  return infer_decomposed(a);
}

Values decompose_repeat(Builder& b, const Node& n, Operands in) {
  const auto& [repeats, axis] = n.get<RepeatAttrs>();
  const Value split = insert_axis(b, in[0], axis + 1);
  Shape wide = b.shape(split), flat = b.shape(in[0]);
  wide[at(axis + 1)] = repeats;
  flat[at(axis)] = flat[at(axis)] * Dim(repeats);
  return {reshape_to(b, broadcast_to(b, split, wide), flat)};
}

void normalise_roll(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& r = *static_cast<RollAttrs*>(attrs);
  user_check(r.shifts.size() == r.axes.size(), "axis-range", "{}: {} shifts for {} axes", op,
             r.shifts.size(), r.axes.size());
  for (int64_t& axis : r.axes) axis = normalise_axis(axis, in[0].rank(), op);
}

Values decompose_roll(Builder& b, const Node& n, Operands in) {
  const auto& [shifts, axes] = n.get<RollAttrs>();
  Value x = in[0];
  for (size_t i = 0; i < axes.size(); ++i) {
    const Dim& places = b.shape(x)[at(axes[i])];
    if (!places.is_static()) {
      const Expr to(b, op::iota(b, {}, {DType::I64, {places}, 0}));
      const Expr from = to - static_cast<double>(shifts[i]);
      x = op::gather(b, x, op::mod(b, from, dim_value(b, places, DType::I64)), {axes[i]});
      continue;
    }
    const int64_t size = places.value();
    const int64_t shift = size == 0 ? 0 : (shifts[i] % size + size) % size;
    if (shift == 0) continue;
    const Value tail = slice_axis(b, x, axes[i], size - shift, size);
    x = op::concat(b, tail, slice_axis(b, x, axes[i], 0, size - shift), {axes[i]});
  }
  return {x};
}

// ---- grids and blocks ---------------------------------------------------------------------------

Types infer_meshgrid(const InferArgs& a) {
  require_same_dtype(a);
  for (const Type& t : a.in)
    if (t.rank() > 1) bad_operands(a, "meshgrid-rank", "operands must have rank 0 or 1");
  return infer_decomposed(a);
}

Values decompose_meshgrid(Builder& b, const Node& n, Operands in) {
  const bool swapped = n.get<MeshgridAttrs>().xy && in.size() > 1;
  auto place = [&](size_t i) { return swapped && i < 2 ? 1 - i : i; };
  Shape grid(in.size());
  for (size_t i = 0; i < in.size(); ++i) grid[place(i)] = b.shape(in[i]).elements();
  Values out;
  for (size_t i = 0; i < in.size(); ++i) {
    Shape line(in.size(), Dim(1));
    line[place(i)] = grid[place(i)];
    out.push_back(broadcast_to(b, reshape_to(b, in[i], line), grid));
  }
  return out;
}

Types infer_blocks(const InferArgs& a) {
  const int64_t block = a.get<BlockAttrs>().block;
  const Shape& x = a.in[0].shape;
  const bool to_space = a.op.name == op::depth_to_space.def.name;
  const std::optional<int64_t> square = checked_mul(block, block);
  bool fits = block >= 1 && square && x.rank() == 4;
  if (fits)
    fits = to_space ? x[1].divide(*square).has_value()
                    : x[2].divide(block).has_value() && x[3].divide(block).has_value();
  if (!fits)
    bad_operands(a, "block-size",
                 fmt::format("x must be [N, C, H, W] with {} divisible by the block {}{}",
                             to_space ? "C" : "H and W", block, to_space ? " squared" : ""));
  return infer_decomposed(a);
}

Values decompose_space_to_depth(Builder& b, const Node& n, Operands in) {
  const auto& [block, crd] = n.get<BlockAttrs>();
  const Shape x = b.shape(in[0]);
  const Dim h = *x[2].divide(block), w = *x[3].divide(block);
  const Value split = reshape_to(b, in[0], {x[0], x[1], h, block, w, block});
  const Value moved = transpose_to(b, split, crd ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4});
  return {reshape_to(b, moved, {x[0], x[1] * Dim(block * block), h, w})};
}

Values decompose_depth_to_space(Builder& b, const Node& n, Operands in) {
  const auto& [block, crd] = n.get<BlockAttrs>();
  const Shape x = b.shape(in[0]);
  const Dim c = *x[1].divide(block * block);
  const Shape split =
      crd ? Shape{x[0], c, block, block, x[2], x[3]} : Shape{x[0], block, block, c, x[2], x[3]};
  const Value moved = transpose_to(b, reshape_to(b, in[0], split),
                                   crd ? Ints{0, 1, 4, 2, 5, 3} : Ints{0, 3, 4, 1, 5, 2});
  return {reshape_to(b, moved, {x[0], c, x[2] * Dim(block), x[3] * Dim(block)})};
}

constexpr OpDef variadic(OpDef d) {
  d.arity = kVariadic;
  d.min_arity = 1;
  return d;
}

constexpr OpDef in_parts(OpDef d) {
  d.variadic_results = true;
  return d;
}

}  // namespace

namespace op {

constinit const Op<AxisAttrs> stack = named(
    "xs..", variadic(arranger(
                "stack", "The operands, all of one shape, one after the other along a new axis.",
                infer_stack, normalise_new_axis, decompose_stack)));
constinit const Op<SplitAttrs> split = in_parts(
    arranger("split", "x cut along an axis into parts of the given sizes, one result each.",
             infer_split, normalise_axis_of<SplitAttrs>, decompose_split));
constinit const Op<AxisAttrs> unstack = in_parts(
    arranger("unstack", "The slices of x along an axis without that axis, one result each.",
             infer_unstack, normalise_axis_of<AxisAttrs>, decompose_unstack));
constinit const Op<AxesAttrs> squeeze =
    arranger("squeeze", "x without the given axes, which have size 1; without all such if none.",
             infer_squeeze, normalise_squeeze, decompose_squeeze);
constinit const Op<AxesAttrs> expand_dims =
    arranger("expand_dims", "x with new axes of size 1; the axes are counted in the result.",
             infer_decomposed, normalise_expand, decompose_expand);
constinit const Op<FlattenAttrs> flatten =
    arranger("flatten", "x with the axes from start to end (included) as one; rank 0 becomes [1].",
             infer_decomposed, normalise_flatten, decompose_flatten);
constinit const Op<SwapAttrs> swap_axes = arranger(
    "swap_axes", "x with two axes swapped.", infer_decomposed, normalise_swap, decompose_swap);
constinit const Op<MoveAttrs> move_axis =
    arranger("move_axis", "x with the source axes at the destinations; the others stay in order.",
             infer_decomposed, normalise_move, decompose_move);
constinit const Op<BroadcastInDimAttrs> broadcast_in_dim =
    arranger("broadcast_in_dim",
             "x repeated to a shape in which dims[i] is its axis i (XLA's); axes of size 1 repeat.",
             infer_broadcast_in_dim, nullptr, decompose_broadcast_in_dim);
constinit const Op<TileAttrs> tile = arranger(
    "tile", "x as a whole, repeats[i] times along axis i; more entries than axes add leading axes.",
    infer_tile, nullptr, decompose_tile);
constinit const Op<RepeatAttrs> repeat =
    arranger("repeat", "Each element along an axis `repeats` times in a row.", infer_repeat,
             normalise_axis_of<RepeatAttrs>, decompose_repeat);
constinit const Op<RollAttrs> roll = arranger(
    "roll", "x moved by shifts[i] along axes[i]; what leaves at one end enters at the other.",
    infer_same, normalise_roll, decompose_roll);
constinit const Op<MeshgridAttrs> meshgrid =
    named("xs..",
          in_parts(variadic(arranger(
              "meshgrid",
              "For operands of sizes n_i, tensors of the shape of all sizes that repeat operand i "
              "along axis i; with `xy` the first two axes are swapped.",
              infer_meshgrid, nullptr, decompose_meshgrid))));
constinit const Op<BlockAttrs> space_to_depth =
    arranger("space_to_depth",
             "Blocks of space of x [N, C, H, W] as channels, [N, C b^2, H/b, W/b]: the inverse of "
             "depth_to_space.",
             infer_blocks, nullptr, decompose_space_to_depth);
constinit const Op<BlockAttrs> depth_to_space = arranger(
    "depth_to_space",
    "Channels of x [N, C, H, W] as blocks of space, [N, C/b^2, H b, W b]: channel (i b + j) C/b^2 "
    "+ c "
    "(DCR), or c b^2 + i b + j with `crd`, goes to row i and column j of the blocks of channel c.",
    infer_blocks, nullptr, decompose_depth_to_space);

}  // namespace op

namespace {
constexpr const OpDef* kShapingOps[] = {
    &op::stack,          &op::split,          &op::unstack,   &op::squeeze,
    &op::expand_dims,    &op::flatten,        &op::swap_axes, &op::move_axis,
    &op::tile,           &op::repeat,         &op::roll,      &op::broadcast_in_dim,
    &op::space_to_depth, &op::depth_to_space, &op::meshgrid,  &op::pad_mode,
    &op::tril,           &op::triu,           &op::diagonal,  &op::diag_embed,
    &op::masked_fill,    &op::full,           &op::eye,       &op::arange,
    &op::linspace,
};
}  // namespace
constinit const Family kShaping{"shaping", kShapingOps};

}  // namespace rlx
