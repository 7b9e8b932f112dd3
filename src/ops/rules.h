// Rules shared by families: the kinds of ops and what follows from a kind.
#pragma once

#include "rlx/ops/expr.h"

namespace rlx {

inline size_t at(int64_t i) { return static_cast<size_t>(i); }  // an axis or a count as an index

// ---- helpers on graphs

Value full(Builder& b, const Type& type, Complex value);  // a scalar constant broadcast to the type
Value broadcast_to(Builder& b, Value x,
                   const Shape& shape);  // x itself when the shape is already that
Value reshape_to(Builder& b, Value x, const Shape& shape);
Value cast_to(Builder& b, Value x, DType dtype);
Value sum_axes(Builder& b, Value x, Ints axes, bool keepdims = false);
// Brings a gradient back to the shape an operand had before broadcasting: one sum over all
// broadcast axes.
Value unbroadcast(Builder& b, Value gradient, const Shape& shape);
// Inserts the reduced axes again (size 1) and broadcasts to `shape`: the inverse of a reduction.
Value expand_reduced(Builder& b, Value reduced, const Shape& shape, const Ints& axes,
                     bool keepdims);
// a + b where either may be kNone.
Value add_maybe(Builder& b, Value a, Value c);
Value conj_if_complex(Builder& b, Value x);
// Swaps the last two axes.
Value matrix_transpose(Builder& b, Value x);
// Puts the batch axis of an unbatched operand in front: [*] -> [size, *].
Value batch_operand(Builder& b, Value x, const Dim& size);
// Inserts size-1 axes behind the batch axis until the rest has `rank` axes, so that x broadcasts
// right-aligned.
Value align_batched(Builder& b, Value x, int64_t rank);
// x with its axes permuted; x itself when the permutation changes nothing.
Value transpose_to(Builder& b, Value x, const Ints& perm);
// Swaps two neighbouring blocks of axes: `first` axes from `at` on with the `second` axes behind
// them.
Value swap_blocks(Builder& b, Value x, int64_t at, int64_t first, int64_t second);
// The size of a dim as a rank-0 value: a constant, or for symbols a count that is known when they
// are bound.
Value dim_value(Builder& b, const Dim& size, DType dtype);
// The product of dims over `axes`.
Dim count_of(const Shape& shape, const Ints& axes);
Shape prepend(const Dim& size, const Shape& shape);
Values single(Value v);

// Whether x broadcasts to the shape, as far as that is known.
bool may_broadcast(const Shape& x, const Shape& to);
// What is certain about dims whatever their symbols stand for; the rest is checked when they are
// bound.
bool differ(const Dim& a, const Dim& b);
bool is_negative(const Dim& d);
Dim agreed(const Dim& a, const Dim& b);  // of two dims that must be equal: the static one, else a
// Of two types: one dtype and rank, and no two sizes that certainly differ.
bool may_be_equal(const Type& a, const Type& b);
// x as a value of the type, which it may be equal to: a rule may have chosen another one of two dims that are equal. The
// reshape is checked when symbols are bound. For other types raises Error(internal): "<op>: <what> <index> is ..".
Value settle(Builder& b, Value x, const Type& type, const OpDef& op, std::string_view what,
             size_t index);

// Applies the op's rules; used by transforms and by composite rules that delegate.
Values jvp_elementwise(Builder& b, const JvpArgs& a);
Values vjp_elementwise(Builder& b, const VjpArgs& a);
Values vmap_elementwise(Builder& b, const VmapArgs& a);
// Linear ops of one operand: the same op on the tangent.
Values jvp_through_itself(Builder& b, const JvpArgs& a);
// Products, linear in each of the first two operands: the op on (t0, in1, ..) plus on (in0, t1, ..).
Values jvp_bilinear(Builder& b, const JvpArgs& a);

// ---- what derivatives pass

// Floats, complex numbers, and straight through the codes (i8, u8) of quantised ones, as far as ops move and choose
// them only: those that say so, and composites without rules of their own, whose definitions decide.
bool carries(const OpDef& op, DType operand_or_result);
bool may_carry(DType d);  // some op does
// Of tangents and cotangents of a value: its own, and f64, which holds every float exactly, for codes.
Type derivative_type(const Type& type);
// Zeros of that type.
Value zero_derivative(Builder& b, const Type& type);

// ---- inference

Types infer_same(const InferArgs& a);       // result 0 has the type of operand 0
Types infer_broadcast(const InferArgs& a);  // NumPy broadcast of all operands, equal dtypes
Types infer_compare(const InferArgs& a);    // the same, bool
[[noreturn]] void bad_operands(const InferArgs& a, std::string_view code, const std::string& why);
void require_same_dtype(const InferArgs& a);

// ---- reference values

// Strides of an operand as seen from a broadcast result (0 along broadcast axes), in elements.
Ints broadcast_strides(const Ints& sizes, const Ints& result);

namespace detail {
inline void put(Tensor& t, int64_t i, double v) { t.set_float(i, v); }
inline void put(Tensor& t, int64_t i, int64_t v) { t.set_int(i, v); }
inline void put(Tensor& t, int64_t i, bool v) { t.set_int(i, v); }
inline void put(Tensor& t, int64_t i, Complex v) { t.set_complex(i, v); }
template <class T>
T fetch(const Tensor& t, int64_t i) {
  if constexpr (std::is_same_v<T, double>)
    return t.get_float(i);
  else if constexpr (std::is_same_v<T, int64_t>)
    return t.get_int(i);
  else
    return t.get_complex(i);
}

template <class T, auto F, size_t... I>
Tensor map_pointwise(const EvalArgs& e, std::index_sequence<I...>) {
  Tensor out = e.make();
  if constexpr (std::is_invocable_v<decltype(F), decltype((void)I, T())...>) {
    const Ints strides[] = {broadcast_strides(e.in[I].sizes(), out.sizes())...};
    int64_t position = 0;
    for_each_index(out.sizes(), [&](const Ints& index) {
      int64_t at[sizeof...(I)] = {};
      for (size_t axis = 0; axis < index.size(); ++axis)
        for (size_t k = 0; k < sizeof...(I); ++k) at[k] += index[axis] * strides[k][axis];
      put(out, position++, F(fetch<T>(e.in[I], at[I])...));
    });
  } else {
    check(false, "{}: no value for {}", e.node.op->name, e.in[0].dtype());
  }
  return out;
}
}  // namespace detail

// Evaluates elementwise with F, a captureless lambda over double (floats), int64_t (integers, bool)
// or Complex. A lambda that does not take one of these says so by its constraint; the op's dtypes
// keep such operands away.
template <int N, auto F>
Tensors pointwise(const EvalArgs& e) {
  const DType d = e.in[0].dtype();
  auto indices = std::make_index_sequence<N>{};
  if (is_float(d)) return {detail::map_pointwise<double, F>(e, indices)};
  if (is_complex(d)) return {detail::map_pointwise<Complex, F>(e, indices)};
  return {detail::map_pointwise<int64_t, F>(e, indices)};
}

template <class T>
concept FloatNumber = std::is_same_v<T, double>;
template <class T>
concept RealNumber = FloatNumber<T> || std::is_same_v<T, int64_t>;
template <class T>
concept InexactNumber = FloatNumber<T> || std::is_same_v<T, Complex>;
template <class T>
concept IntNumber = std::is_same_v<T, int64_t>;

// ---- attributes

template <class A>
void normalise_axis_of(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& axis = static_cast<A*>(attrs)->axis;
  axis = normalise_axis(axis, in[0].rank(), op);
}
template <class A>
void normalise_axes_of(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& axes = static_cast<A*>(attrs)->axes;
  axes = normalise_axes(axes, in[0].rank(), op);
}

}  // namespace rlx
