#include "rlx/ops/image/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/windows.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn_rules.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {
namespace {

// ---- inference ----------------------------------------------------------------------------------

template <class A>
void normalise_pool(void* attrs, std::string_view, std::span<const Type>) {
  A& p = *static_cast<A*>(attrs);
  fill_window(p.stride, p.dilation, p.low, p.high, p.kernel.size());
}

template <class A>
Window window_of(const A& p) {
  return {p.kernel, p.stride, p.dilation, p.low, p.high};
}

// The last `axes` sizes, and the same shape with other ones there.
Shape last(const Shape& s, size_t axes) { return {s.end() - static_cast<int64_t>(axes), s.end()}; }
Shape with_last(Shape s, const Shape& size) {
  std::copy(size.begin(), size.end(), s.end() - size.rank());
  return s;
}

template <class A>
Type pooled(const InferArgs& a, const A& p) {
  const Window w = window_of(p);
  require_window(a.op.name, w);
  const Type& x = a.in[0];
  if (x.shape.size() < w.axes())
    bad_operands(a, "pool-shape", fmt::format("x must have at least {} axes", w.axes()));
  Shape count = last(x.shape, w.axes());
  for (size_t i = 0; i < count.size(); ++i)
    count[i] = count_windows(a.op.name, count[i], w, i, p.ceil_mode);
  return {x.dtype, with_last(x.shape, count)};
}

Types infer_pool_channels_last(const InferArgs& a) {
  const Type& x = a.in[0];
  const Dim channels = x.rank() > 0 ? x.shape.back() : Dim(1);
  Type inner = x;
  if (x.rank() > 0) inner.shape.pop_back();
  if (inner.shape.size() < a.get<PoolAttrs>().kernel.size())
    bad_operands(a, "pool-shape", "x must have the pooled axes and one behind them");
  Type y = pooled({a.op, a.attrs, {&inner, 1}}, a.get<PoolAttrs>());
  y.shape.push_back(channels);
  return {y};
}

Types infer_pool(const InferArgs& a) { return {pooled(a, a.get<PoolAttrs>())}; }

void require_extremum(const InferArgs& a) {
  const PoolKind kind = a.get<PoolAttrs>().kind;
  if (kind != PoolKind::max && kind != PoolKind::min)
    bad_operands(a, "pool-kind", "the kind must be max or min");
}

Types infer_with_indices(const InferArgs& a) {
  require_extremum(a);
  const Type values = pooled(a, a.get<PoolAttrs>());
  return {values, {DType::I64, values.shape}};
}

Types infer_max_pool_backward(const InferArgs& a) {
  require_same_dtype(a);
  require_extremum(a);
  const Type y = pooled(a, a.get<PoolAttrs>());
  bool fits = a.in[1].rank() == y.rank();
  for (size_t i = 0; fits && i < y.shape.size(); ++i) fits = !differ(a.in[1].shape[i], y.shape[i]);
  if (!fits) bad_operands(a, "pool-shape", fmt::format("dy must be {}, the pooled x", y));
  return {a.in[0]};
}

// ---- reference values ---------------------------------------------------------------------------

template <class T>
T outermost(DType d, bool highest) {  // the largest or smallest value
  if constexpr (std::is_same_v<T, double>) {
    return highest ? INFINITY : -INFINITY;
  } else {
    const int bits = 8 * size_of(d) - info(d).is_signed;
    if (bits == 63) return highest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
    const int64_t top = (int64_t{1} << bits) - 1;
    return highest ? top : info(d).is_signed ? -top - 1 : 0;
  }
}

// Calls f(window, first, position, in_padding) for every tap of every window of every plane: the
// number of the window, the first element of its plane, the tap's position in the plane or -1, and
// then whether it is in the padding (and not behind it).
template <class F>
void for_each_tap(const PoolAttrs& p, const Ints& x, const Ints& y, F f) {
  const size_t axes = p.kernel.size(), lead = x.size() - axes;
  const Ints size(x.begin() + static_cast<int64_t>(lead), x.end());
  int64_t window = 0;
  for_each_index(y, [&](const Ints& index) {
    int64_t plane = 0;
    for (size_t i = 0; i < lead; ++i) plane = plane * x[i] + index[i];
    for_each_index(p.kernel, [&](const Ints& tap) {
      int64_t position = 0;
      bool inside = true, padded = true;
      for (size_t i = 0; i < axes; ++i) {
        const int64_t at_axis = index[lead + i] * p.stride[i] + tap[i] * p.dilation[i] - p.low[i];
        inside = inside && at_axis >= 0 && at_axis < size[i];
        padded = padded && at_axis < size[i] + std::max<int64_t>(0, p.high[i]);
        position = position * size[i] + at_axis;
      }
      f(window, plane * product(size), inside ? position : -1, padded);
    });
    ++window;
  });
}

template <class T>
T folded(PoolKind kind, T a, T v) {
  if (kind == PoolKind::max) return a != a ? a : v != v || v > a ? v : a;
  if (kind == PoolKind::min) return a != a ? a : v != v || v < a ? v : a;
  using Wrapping = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>;
  const auto left = static_cast<Wrapping>(a), right = static_cast<Wrapping>(v);
  return static_cast<T>(kind == PoolKind::prod ? left * right : left + right);
}

template <class T>
Tensor fold_windows(const EvalArgs& e) {
  const auto& p = e.get<PoolAttrs>();
  Tensor out = e.make();
  const T init = p.kind == PoolKind::max   ? outermost<T>(out.dtype(), false)
                 : p.kind == PoolKind::min ? outermost<T>(out.dtype(), true)
                                           : static_cast<T>(p.kind == PoolKind::prod);
  std::vector<T> value(at(out.elements()), init);
  std::vector<int64_t> count(at(out.elements()), 0);
  for_each_tap(p, e.in[0].sizes(), out.sizes(),
               [&](int64_t window, int64_t first, int64_t position, bool padded) {
                 T& v = value[at(window)];
                 if (position >= 0)
                   v = folded(p.kind, v, detail::fetch<T>(e.in[0], first + position));
                 count[at(window)] += position >= 0 || (padded && p.count_include_pad);
               });
  for (int64_t i = 0; i < out.elements(); ++i) {
    const int64_t n = count[at(i)];
    if (p.kind == PoolKind::mean && (FloatNumber<T> || n > 0)) value[at(i)] /= static_cast<T>(n);
    detail::put(out, i, value[at(i)]);
  }
  return out;
}

Tensors evaluate_pool(const EvalArgs& e) {
  if (is_float(e.in[0].dtype())) return {fold_windows<double>(e)};
  return {fold_windows<int64_t>(e)};
}

template <class T>
Tensors find_extrema(const EvalArgs& e) {
  const auto& p = e.get<PoolAttrs>();
  Tensor values = e.make(0), positions = e.make(1);
  const T worst = outermost<T>(values.dtype(), p.kind == PoolKind::min);
  for (int64_t i = 0; i < values.elements(); ++i)
    detail::put(values, i, worst), positions.set_int(i, -1);
  for_each_tap(p, e.in[0].sizes(), values.sizes(),
               [&](int64_t window, int64_t first, int64_t position, bool) {
                 if (position < 0) return;
                 const T best = detail::fetch<T>(values, window);
                 const T v = detail::fetch<T>(e.in[0], first + position);
                 const bool better = p.kind == PoolKind::max ? v > best : v < best;
                 if (positions.get_int(window) >= 0 && !better && !(v != v && best == best)) return;
                 detail::put(values, window, v), positions.set_int(window, position);
               });
  return {values, positions};
}

// ---- in graphs ----------------------------------------------------------------------------------

Values vmap_pool(Builder& b, const VmapArgs& a) {  // the axes in front are free
  Values in;
  for (size_t i = 0; i < a.in.size(); ++i)
    in.push_back(a.batched[i] ? a.in[i] : batch_operand(b, a.in[i], a.size));
  return b.clone(a.node, in);
}

bool is_uniform(const PoolAttrs& p) {
  const auto none = [](const Ints& v) {
    return std::all_of(v.begin(), v.end(), [](int64_t n) { return n == 0; });
  };
  return !p.ceil_mode && (p.count_include_pad || (none(p.low) && none(p.high)));
}

// By how much the mean divides: rank 0 when it is the same for all windows, else the windows' shape.
Value divisors(Builder& b, const PoolAttrs& p, const Shape& size, const Shape& count, DType dtype) {
  if (is_uniform(p)) return b.constant(dtype, static_cast<double>(product(p.kernel)));
  Window w = window_of(p);
  Shape counted = size;
  if (p.count_include_pad)
    for (size_t i = 0; i < w.axes(); ++i) {
      counted[i] = counted[i] + w.low[i] + std::max<int64_t>(0, w.high[i]);
      w.low[i] = w.high[i] = 0;
    }
  const Value taps = take_windows(b, full(b, {dtype, counted}, 1), w, count, b.constant(dtype, 0));
  Ints axes(w.axes());
  std::iota(axes.begin(), axes.end(), count.rank());
  return sum_axes(b, taps, axes);
}

Value neutral(Builder& b, PoolKind kind, DType dtype) {
  if (kind != PoolKind::max && kind != PoolKind::min)
    return b.constant(dtype, kind == PoolKind::prod ? 1 : 0);
  Tensor t(dtype, {});
  if (is_float(dtype))
    t.set_float(0, outermost<double>(dtype, kind == PoolKind::min));
  else
    t.set_int(0, outermost<int64_t>(dtype, kind == PoolKind::min));
  return b.constant(t);
}

Values decompose_pool(Builder& b, const Node& n, Operands in) {
  const auto& p = n.get<PoolAttrs>();
  const Window w = window_of(p);
  const Type x = b.type(in[0]);
  const Shape size = last(x.shape, w.axes()), count = last(n.type().shape, w.axes());
  const bool wide = p.kind == PoolKind::mean && is_int(x.dtype);
  const Value values = wide ? cast_to(b, in[0], DType::I64) : widen(b, in[0]).value();
  const DType dtype = b.type(values).dtype;
  const Value fill = neutral(b, p.kind, x.dtype);
  const Value windows = take_windows(b, values, w, count, cast_to(b, fill, dtype));
  Ints axes(w.axes());
  std::iota(axes.begin(), axes.end(), x.rank());
  Value y = kNone;
  switch (p.kind) {
    case PoolKind::max:
      y = op::reduce_max(b, windows, {axes});
      break;
    case PoolKind::min:
      y = op::reduce_min(b, windows, {axes});
      break;
    case PoolKind::prod:
      y = op::reduce_prod(b, windows, {axes});
      break;
    case PoolKind::sum:
      y = sum_axes(b, windows, axes);
      break;
    case PoolKind::mean:
      y = op::div(b, sum_axes(b, windows, axes), divisors(b, p, size, count, dtype));
      break;
  }
  return {cast_to(b, y, x.dtype)};
}

// The planes of x [lead.., size..] one after the other, each followed by a zero: the place that the
// position -1 means.
struct Planes {
  size_t axes;
  Dim planes{1}, elements{1};
  Planes(const Shape& shape, size_t pooled_axes) : axes(pooled_axes) {
    const size_t lead = shape.size() - axes;
    for (size_t i = 0; i < lead; ++i) planes = planes * shape[i];
    for (size_t i = lead; i < shape.size(); ++i) elements = elements * shape[i];
  }
  Dim length() const { return planes * (elements + 1); }

  // Positions in a plane as places in all of them; an invalid one becomes -1, which raises.
  Value places(Builder& b, Value positions) const {
    const Dim each = last(b.shape(positions), axes).elements();
    Expr own(b, reshape_to(b, cast_to(b, positions, DType::I64), {planes, each}));
    Expr count(b, dim_value(b, elements, DType::I64));
    Expr first = Expr(b, op::iota(b, {}, {DType::I64, {planes, 1}, 0})) * (count + 1.0);
    Expr place(b, op::select(b, op::eq(own, own.like(-1)), count, own));
    const Value valid = op::logical_and(op::ge(own, own.like(-1)), op::lt(own, count));
    return reshape_to(b, op::select(b, valid, place + first, own.like(-1)), {planes * each});
  }
};

// x at the positions, 0 for none, in the shape of the positions.
Value take_at(Builder& b, Value x, Value positions, size_t axes) {
  const Planes p(b.shape(x), axes);
  const Shape shape = b.shape(positions);
  const Value rows =
      op::pad(b, reshape_to(b, x, {p.planes, p.elements}), b.constant_like(x, 0), {{0, 0}, {0, 1}});
  const Value all = reshape_to(b, rows, {p.length()});
  return reshape_to(b, op::gather(b, all, p.places(b, positions), {.axis = 0}), shape);
}

// The transpose: values summed at their positions, in the given shape.
Value sum_at(Builder& b, Value values, Value positions, const Shape& shape, size_t axes) {
  const Planes p(shape, axes);
  const Value places = p.places(b, positions);
  const Value flat = reshape_to(b, values, {b.shape(values).elements()});
  const Value sums = op::scatter_add(b, flat, places, {0, p.length()});
  const Value rows = reshape_to(b, sums, {p.planes, p.elements + 1});
  return reshape_to(b, op::slice(b, rows, {{}, {p.planes, p.elements}, {}}), shape);
}

Value positions_of(Builder& b, const PoolAttrs& p, Value x) {
  return b.emit(op::max_pool_with_indices.def, p, Values{x})[1];
}

bool is_extremum(PoolKind k) { return k == PoolKind::max || k == PoolKind::min; }

Values jvp_pool(Builder& b, const JvpArgs& a) {
  const auto& p = a.node.get<PoolAttrs>();
  if (!a.tangents[0].valid()) return {kNone};
  if (p.kind == PoolKind::prod) return {};
  if (!is_extremum(p.kind)) return b.clone(a.node, a.tangents);
  return {take_at(b, a.tangents[0], positions_of(b, p, a.in[0]), p.kernel.size())};
}

// Spreads y over the windows it came from: the transpose of a pool by sum, which is a convolution
// with ones.
Value spread(Builder& b, const PoolAttrs& p, Value y, const Shape& x) {
  const Window w = window_of(p);
  const Shape size = last(x, w.axes()), count = last(b.shape(y), w.axes());
  ConvAttrs c{p.stride, p.dilation, p.low, p.high};
  for (size_t i = 0; i < w.axes(); ++i)
    c.high[i] = (window_reach(w, i, count[i]) - size[i] - w.low[i])
                    .static_value()
                    .value_or(reached_padding(w, i, p.ceil_mode));
  Shape images{Planes(x, w.axes()).planes, 1}, kernel{1, 1};
  images.insert(images.end(), count.begin(), count.end());
  kernel.insert(kernel.end(), p.kernel.begin(), p.kernel.end());
  const Value ones = full(b, {b.type(y).dtype, kernel}, 1);
  const Value sums = op::conv_backward_input(b, reshape_to(b, y, images), ones, {c, size});
  return reshape_to(b, sums, x);
}

Values vjp_pool(Builder& b, const VjpArgs& a) {
  const auto& p = a.node.get<PoolAttrs>();
  if (p.kind == PoolKind::prod) return {};
  if (is_extremum(p.kind)) return {op::max_pool_backward(b, a.in[0], a.cotangents[0], p)};
  const Shape x = b.shape(a.in[0]);
  const DType dtype = a.node.type().dtype;
  Value ct = widen(b, a.cotangents[0]);
  if (p.kind == PoolKind::mean) {
    const size_t axes = p.kernel.size();
    ct = op::div(b, ct,
                 divisors(b, p, last(x, axes), last(a.node.type().shape, axes), b.type(ct).dtype));
  }
  return {cast_to(b, spread(b, p, ct, x), dtype)};
}

Values decompose_max_pool_backward(Builder& b, const Node& n, Operands in) {
  const auto& p = n.get<PoolAttrs>();
  return {sum_at(b, in[1], positions_of(b, p, in[0]), n.type().shape, p.kernel.size())};
}

// ---- unpooling, p-norms, adaptive and global pools -----------------------------------------------

Types infer_unpool(const InferArgs& a) {
  const Type &x = a.in[0], &positions = a.in[1];
  const Shape& size = a.get<UnpoolAttrs>().size;
  bool fits = x.rank() == positions.rank();
  for (size_t i = 0; fits && i < x.shape.size(); ++i)
    fits = !differ(x.shape[i], positions.shape[i]);
  if (!fits || !is_int(positions.dtype))
    bad_operands(a, "pool-shape", "positions must be integers of the shape of the values");
  if (size.empty() || size.size() > 3 || size.size() > x.shape.size())
    bad_operands(a, "pool-size", "size must have 1, 2 or 3 entries, for the last axes");
  if (std::any_of(size.begin(), size.end(), is_negative))
    bad_operands(a, "pool-size", fmt::format("the size {} is negative", size));
  return {{x.dtype, with_last(x.shape, size)}};
}

// Values with one position are averaged: those of overlapping windows are equal and give that value.
Values decompose_unpool(Builder& b, const Node& n, Operands in) {
  const Shape& shape = n.type().shape;
  const size_t axes = n.get<UnpoolAttrs>().size.size();
  Expr x = widen(b, in[0]);
  Expr sum(b, sum_at(b, x, in[1], shape, axes));
  const Value ones = full(b, x.type(), 1);
  Expr count(b, sum_at(b, ones, in[1], shape, axes));
  return {cast_to(b, sum / op::maximum(count, count.like(1)), n.type().dtype)};
}

// Channels go in front of the pooled axes and come back.
Values decompose_pool_channels_last(Builder& b, const Node& n, Operands in) {
  const auto axes = static_cast<int64_t>(n.get<PoolAttrs>().kernel.size());
  const int64_t first = n.type().rank() - 1 - axes;
  const Value x = swap_blocks(b, in[0], first, axes, 1);
  return {swap_blocks(b, op::pool(b, x, n.get<PoolAttrs>()), first, 1, axes)};
}

Types infer_lp_pool(const InferArgs& a) {
  const auto& p = a.get<LpPoolAttrs>();
  if (!(p.p >= 1) || std::isinf(p.p))
    bad_operands(a, "pool-p", fmt::format("p must be finite and at least 1, not {}", p.p));
  return {pooled(a, p)};
}

Values decompose_lp_pool(Builder& b, const Node& n, Operands in) {
  const auto& p = n.get<LpPoolAttrs>();
  const PoolAttrs sum{PoolKind::sum, p.kernel, p.stride, p.dilation, p.low, p.high, p.ceil_mode};
  Expr x = widen(b, in[0]);
  Expr total = op::pool(op::pow(op::abs(x), x.like(p.p)), sum);
  const Value none = op::eq(total, total.like(0));  // where the derivative is 0
  Expr root = op::pow(Expr(b, op::select(b, none, total.like(1), total)), x.like(1 / p.p));
  return {cast_to(b, op::select(b, none, total, root), n.type().dtype)};
}

Types infer_adaptive(const InferArgs& a) {
  const Type& x = a.in[0];
  const Ints& size = a.get<AdaptivePoolAttrs>().size;
  if (size.empty() || size.size() > 3 || size.size() > x.shape.size())
    bad_operands(a, "pool-size", "size must have 1, 2 or 3 entries, for the last axes");
  const Shape from = last(x.shape, size.size());
  for (size_t i = 0; i < size.size(); ++i)
    if (is_negative(from[i] - 1) || size[i] < 1)
      bad_operands(a, "pool-size",
                   fmt::format("an axis of size {} cannot be pooled to {}: both must be positive",
                               from[i], size[i]));
  return {{x.dtype, with_last(x.shape, Shape::of(size))}};
}

// Window o of an axis of size n reads from floor(o * n / results) to ceil((o + 1) * n / results). All have as many places as
// the longest may have, n / results where that is whole and two more elsewhere; those behind a window's end take no
// part. One formula for sizes that are known and those that are not, so that they round alike.
template <bool average>
Value pool_adaptively(Builder& b, Value x, int64_t axis, int64_t results) {
  const Dim from = b.shape(x)[at(axis)];
  const Dim places = 2 * ceil_div(from, results) - floor_div(from, results);
  const Expr n(b, dim_value(b, from, DType::I64));
  const Expr o(b, op::iota(b, {}, {DType::I64, {results, 1}, 0}));
  const Expr t(b, op::iota(b, {}, {DType::I64, {1, places}, 1}));
  const Expr parts = n.like(static_cast<double>(results));
  const Expr begin = op::floor_div(o * n, parts);
  const Expr end = op::floor_div((o + 1) * n + (parts - 1), parts);
  Value picked = op::gather(b, x, op::minimum(begin + t, end - 1), {.axis = axis});
  Shape lined_up(b.shape(picked).size() - at(axis), Dim(1));
  lined_up[0] = results, lined_up[1] = places;
  if (from != results * floor_div(from, results)) {
    const Value inside = reshape_to(b, op::lt(begin + t, end), lined_up);
    picked = op::select(b, inside, picked, b.constant_like(x, average ? 0 : -INFINITY));
  }
  if (!average) return op::reduce_max(b, picked, {{axis + 1}});
  lined_up.erase(lined_up.begin() + 1);
  return op::div(b, sum_axes(b, picked, {axis + 1}),
                 reshape_to(b, cast_to(b, end - begin, b.type(x).dtype), lined_up));
}

template <bool average>
Values decompose_adaptive(Builder& b, const Node& n, Operands in) {
  const Ints& size = n.get<AdaptivePoolAttrs>().size;
  Value x = widen(b, in[0]);
  for (size_t i = 0; i < size.size(); ++i) {
    const int64_t axis = b.type(x).rank() - static_cast<int64_t>(size.size() - i);
    if (b.shape(x)[at(axis)] != Dim(size[i])) x = pool_adaptively<average>(b, x, axis, size[i]);
  }
  return {cast_to(b, x, n.type().dtype)};
}

Types infer_global(const InferArgs& a) {
  Type t = a.in[0];
  if (t.rank() < 3) bad_operands(a, "pool-shape", "x must be [N, C, ..] with spatial axes");
  std::fill(t.shape.begin() + 2, t.shape.end(), Dim(1));
  return {t};
}

template <const Op<ReduceAttrs>& reduce>
Values decompose_global(Builder& b, const Node& n, Operands in) {
  Ints axes(n.type().shape.size() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  return {reduce(b, in[0], {axes, true})};
}

// Every element of the result meets all of its window.
double cost_of_windows(const Node& n, std::span<const Type> in) {
  double taps = 1;
  for (int64_t k : n.get<PoolAttrs>().kernel) taps *= static_cast<double>(k);
  return element_count(in[0]) + element_count(n.type()) * (taps + 1);
}

constexpr OpDef pooling(std::string_view name, std::string_view doc, DTypeSet dtypes,
                        InferRule infer, DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .dtypes = dtypes};
  d.infer = infer;
  d.decompose = decompose;
  return d;
}

}  // namespace

namespace op {

constinit const Op<PoolAttrs> pool = OpDef{
    .name = "pool",
    .doc =
        "Folds windows along the last axes by max, mean, sum, min or prod; padding takes no part, "
        "but counts in the mean with count_include_pad. NaN wins in max and min, whose gradient "
        "goes to the first of equals.",
    .reference = "Pool",
    .kind = Kind::reduction,
    .dtypes = kReals,
    .infer = infer_pool,
    .normalise = normalise_pool<PoolAttrs>,
    .eval = evaluate_pool,
    .decompose = decompose_pool,
    .jvp = jvp_pool,
    .vjp = vjp_pool,
    .vmap = vmap_pool,
    .cost = cost_of_windows,
};

constinit const Op<PoolAttrs> pool_channels_last = OpDef{
    .name = "pool_channels_last",
    .doc = "pool over the axes in front of the last one, which has the channels.",
    .kind = Kind::reduction,
    .dtypes = kReals,
    .infer = infer_pool_channels_last,
    .normalise = normalise_pool<PoolAttrs>,
    .decompose = decompose_pool_channels_last,
};

constinit const Op<PoolAttrs> max_pool_with_indices = OpDef{
    .name = "max_pool_with_indices",
    .doc =
        "pool by max (or min), and for each window the position of the first maximum in the pooled "
        "axes taken together (i64), -1 for a window of padding alone; the first NaN counts as the "
        "maximum.",
    .kind = Kind::reduction,
    .dtypes = kReals,
    .infer = infer_with_indices,
    .normalise = normalise_pool<PoolAttrs>,
    .eval = [](const EvalArgs& e) -> Tensors {
      return is_float(e.in[0].dtype()) ? find_extrema<double>(e) : find_extrema<int64_t>(e);
    },
    .jvp = [](Builder& b, const JvpArgs& a) -> Values {
      if (!a.tangents[0].valid()) return {kNone, kNone};
      const size_t axes = a.node.get<PoolAttrs>().kernel.size();
      return {take_at(b, a.tangents[0], a.out[1], axes), kNone};
    },
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      if (!a.cotangents[0].valid()) return {kNone};
      return {
          op::max_pool_backward(b, a.in[0], a.cotangents[0], PoolAttrs(a.node.get<PoolAttrs>()))};
    },
    .vmap = vmap_pool,
    .cost = cost_of_windows,
};

constinit const Op<PoolAttrs> max_pool_backward = OpDef{
    .name = "max_pool_backward",
    .doc =
        "The gradient of pool by max (or min) in x: dy of each window is added to the place of its "
        "first maximum; a window of padding alone adds nothing. Constant in x.",
    .reference = "MaxPool2dBackward",
    .arity = 2,
    .operands = "x, dy",
    .dtypes = kFloats,
    .infer = infer_max_pool_backward,
    .normalise = normalise_pool<PoolAttrs>,
    .decompose = decompose_max_pool_backward,
    .jvp = [](Builder& b, const JvpArgs& a) -> Values {
      if (!a.tangents[1].valid()) return {kNone};
      return b.clone(a.node, Values{a.in[0], a.tangents[1]});
    },
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      const auto& p = a.node.get<PoolAttrs>();
      if (!a.wanted[1]) return {kNone, kNone};
      return {kNone, take_at(b, a.cotangents[0], positions_of(b, p, a.in[0]), p.kernel.size())};
    },
    .vmap = vmap_pool,
};

constinit const Op<UnpoolAttrs> max_unpool = named("x, indices", [] {
  OpDef d = pooling("max_unpool",
                    "Zeros of the given size with each value at its position (as "
                    "max_pool_with_indices gives them; -1 drops it). Values with one position are "
                    "averaged; a position out of range raises \"index-range\".",
                    kFloats, infer_unpool, decompose_unpool);
  d.arity = 2;
  return d;
}());

constinit const Op<LpPoolAttrs> lp_pool = [] {
  OpDef d = pooling("lp_pool",
                    "The p-norm of each window along the last axes: (sum |x|^p)^(1/p). Where it is "
                    "0, so is its derivative.",
                    kFloats, infer_lp_pool, decompose_lp_pool);
  d.normalise = normalise_pool<LpPoolAttrs>;
  return d;
}();

constinit const Op<AdaptivePoolAttrs> adaptive_avg_pool =
    pooling("adaptive_avg_pool",
            "Means over windows that share an axis of size n among the given number of results: "
            "from floor(o * n / results) to ceil((o + 1) * n / results).",
            kFloats, infer_adaptive, decompose_adaptive<true>);

constinit const Op<AdaptivePoolAttrs> adaptive_max_pool = pooling(
    "adaptive_max_pool",
    "Maxima over the windows of adaptive_avg_pool; NaN wins, and equals share the gradient.",
    kFloats, infer_adaptive, decompose_adaptive<false>);

constinit const Op<> global_avg_pool =
    pooling("global_avg_pool", "The mean of each channel of x [N, C, ..] over its pixels.", kFloats,
            infer_global, decompose_global<op::reduce_mean>);

constinit const Op<> global_max_pool =
    pooling("global_max_pool",
            "The largest pixel of each channel of x [N, C, ..]; NaN wins, and equals share the "
            "gradient.",
            kReals, infer_global, decompose_global<op::reduce_max>);

}  // namespace op

namespace {
constexpr const OpDef* kPoolOps[] = {
    &op::pool,
    &op::pool_channels_last,
    &op::max_pool_with_indices,
    &op::max_pool_backward,
    &op::max_unpool,
    &op::lp_pool,
    &op::adaptive_avg_pool,
    &op::adaptive_max_pool,
    &op::global_avg_pool,
    &op::global_max_pool,
};
}  // namespace
constinit const Family kPool{"pooling", kPoolOps};

}  // namespace rlx
