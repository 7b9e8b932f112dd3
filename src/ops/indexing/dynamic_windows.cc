// Windows into a tensor that begin where an operand says.
#include <algorithm>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/indexing/index_rules.h"
#include "rlx/ops/indexing/scatter.h"
#include "rlx/ops/movement/movement.h"

namespace rlx {
namespace {

void require_window(const InferArgs& a, const Shape& window, size_t starts) {
  const Shape& x = a.in[0].shape;
  require_indices(a, starts);
  if (a.in[starts].rank() != 1 || differ(a.in[starts].shape[0], Dim(x.rank())))
    bad_operands(a, "slice-range", fmt::format("the starts must be [{}], one per axis", x.rank()));
  bool fits = window.size() == x.size();
  for (size_t i = 0; fits && i < x.size(); ++i)
    fits = !is_negative(window[i]) && !is_negative(x[i] - window[i]);
  if (!fits) bad_operands(a, "slice-range", fmt::format("{} does not fit into {}", window, x));
}

// Where the window begins: each start moved so that all of the window lies in x.
Ints clamped_starts(const Tensor& starts, const Ints& x, const Ints& window) {
  Ints out;
  for (size_t i = 0; i < x.size(); ++i)
    out.push_back(
        std::clamp<int64_t>(starts.get_int(static_cast<int64_t>(i)), 0, x[i] - window[i]));
  return out;
}

// Calls f(position in x, position in the window).
template <class F>
void for_each_in_window(const Ints& starts, const Ints& x, const Ints& window, F f) {
  const Ints strides = row_major_strides(x);
  int64_t position = 0;
  for_each_index(window, [&](const Ints& index) {
    int64_t place = 0;
    for (size_t i = 0; i < index.size(); ++i) place += (starts[i] + index[i]) * strides[i];
    f(place, position++);
  });
}

void copy_element(Tensor& to, int64_t i, const Tensor& from, int64_t k) {
  const size_t bytes = at(size_of(to.dtype()));
  std::memcpy(to.mutable_raw() + at(i) * bytes, from.raw() + at(k) * bytes, bytes);
}

Tensors evaluate_window(const EvalArgs& e) {
  Tensor out = e.make();
  const Ints &x = e.in[0].sizes(), &window = out.sizes();
  for_each_in_window(clamped_starts(e.in[1], x, window), x, window,
                     [&](int64_t i, int64_t k) { copy_element(out, k, e.in[0], i); });
  return {out};
}

Tensors evaluate_update(const EvalArgs& e) {
  Tensor out = Tensor::from_bytes(e.in[0].dtype(), e.in[0].sizes(), e.in[0].raw(), e.in[0].bytes());
  const Ints &x = out.sizes(), &window = e.in[1].sizes();
  for_each_in_window(clamped_starts(e.in[2], x, window), x, window,
                     [&](int64_t i, int64_t k) { copy_element(out, i, e.in[1], k); });
  return {out};
}

// The starts of a tensor that has one more axis in front, of which the window takes all.
Value shift_starts(Builder& b, Value starts) {
  return op::concat(b, full(b, {b.type(starts).dtype, {1}}, 0), starts);
}

// For starts [B, rank] the places of the B windows, [B, window..], among all elements of x; with
// `batched`, of B tensors of x's shape.
Value window_positions(Builder& b, Value starts, const Shape& x, const Shape& window,
                       const Dim& batch, bool batched) {
  const int64_t rank = x.rank() + 1;
  std::vector<Coordinate> coordinates;
  if (batched) coordinates.push_back(counter(b, batch, 0, rank));
  const Value whole = cast_to(b, starts, DType::I64);
  Shape column(at(rank), Dim(1));
  column[0] = batch;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const Value one = op::slice(b, whole, {{0, i}, {batch, i + 1}, {}});
    Expr start(b, reshape_to(b, one, column));
    Expr last(b, dim_value(b, x[at(i)] - window[at(i)], DType::I64));
    Expr first = op::minimum(op::maximum(start, start.like(0)), last);
    coordinates.push_back(
        {first + Expr(b, counter(b, window[at(i)], i + 1, rank).index), x[at(i)], true});
  }
  const Value where =
      coordinates.empty() ? full(b, {DType::I64, column}, 0) : position_of(b, coordinates);
  return broadcast_to(b, where, prepend(batch, window));
}

Shape unbatched(const Shape& shape, bool batched) {
  return Shape(shape.begin() + batched, shape.end());
}

Values vmap_window(Builder& b, const VmapArgs& a) {
  const Shape& window = a.node.get<WindowAttrs>().sizes;
  if (!a.batched[1])
    return {op::dynamic_slice(b, a.in[0], shift_starts(b, a.in[1]), {prepend(a.size, window)})};
  const Shape x = unbatched(b.shape(a.in[0]), a.batched[0]);
  const Value where = window_positions(b, a.in[1], x, window, a.size, a.batched[0]);
  return {op::gather(b, flatten_all(b, a.in[0]), where)};
}

Values vmap_update(Builder& b, const VmapArgs& a) {
  auto batched = [&](size_t i) {
    return a.batched[i] ? a.in[i] : batch_operand(b, a.in[i], a.size);
  };
  const Value x = batched(0), update = batched(1);
  if (!a.batched[2]) return {op::dynamic_update_slice(b, x, update, shift_starts(b, a.in[2]))};
  const Shape shape = b.shape(x);
  const Value where = window_positions(b, a.in[2], unbatched(shape, true),
                                       unbatched(b.shape(update), true), a.size, true);
  const Value y = op::scatter(b, flatten_all(b, x), where, update, {0, ScatterMode::set});
  return {reshape_to(b, y, shape)};
}

}  // namespace

namespace op {

constinit const Op<WindowAttrs> dynamic_slice = OpDef{
    .name = "dynamic_slice",
    .doc =
        "The window of the given sizes that begins in x where the second operand says, one start "
        "per axis; a start is moved so that the whole window lies in x (JAX's rule).",
    .kind = Kind::movement,
    .arity = 2,
    .operands = "x, starts",
    .passes_codes = true,
    .infer = [](const InferArgs& a) -> Types {
      const Shape& window = a.get<WindowAttrs>().sizes;
      require_window(a, window, 1);
      return {{a.in[0].dtype, window}};
    },
    .eval = evaluate_window,
    .jvp = [](Builder& b, const JvpArgs& a) -> Values {
      return a.tangents[0].valid() ? b.clone(a.node, Values{a.tangents[0], a.in[1]})
                                   : Values{kNone};
    },
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      const Value zeros = zero_derivative(b, b.type(a.in[0]));
      return {op::dynamic_update_slice(b, zeros, a.cotangents[0], a.in[1]), kNone};
    },
    .vmap = vmap_window,
};

constinit const Op<> dynamic_update_slice = OpDef{
    .name = "dynamic_update_slice",
    .doc =
        "x with a window replaced by the second operand; it begins where the third says, one start "
        "per axis, moved so that the whole window lies in x (JAX's rule).",
    .kind = Kind::movement,
    .arity = 3,
    .operands = "x, update, starts",
    .passes_codes = true,
    .infer = [](const InferArgs& a) -> Types {
      if (a.in[1].dtype != a.in[0].dtype)
        bad_operands(a, "dtype-mixed", "the update must have x's dtype");
      require_window(a, a.in[1].shape, 2);
      return {a.in[0]};
    },
    .eval = evaluate_update,
    .jvp = [](Builder& b, const JvpArgs& a) -> Values {
      Values in{a.tangents[0], a.tangents[1], a.in[2]};
      if (!in[0].valid() && !in[1].valid()) return {kNone};
      for (size_t i = 0; i < 2; ++i)
        if (!in[i].valid()) in[i] = zero_derivative(b, b.type(a.in[i]));
      return b.clone(a.node, in);
    },
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      const Type update = b.type(a.in[1]);
      const Value g = a.cotangents[0];
      return {op::dynamic_update_slice(b, g, zero_derivative(b, update), a.in[2]),
              op::dynamic_slice(b, g, a.in[2], {update.shape}), kNone};
    },
    .vmap = vmap_update,
};

}  // namespace op

}  // namespace rlx
