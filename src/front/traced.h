// TracedTensor: a tensor of the program being written, with operators and methods that append
// nodes.
//
//   TracedTensor h = (x.matmul(w) + b).gelu();
//   TracedTensor y = h.softmax(-1)[0].sum({0}, /*keepdims=*/true) * 0.5;
//   TracedTensor z = op::rms_norm(h, gamma, beta);        // ops without a method are called
//
// Nothing is computed: a TracedTensor names a value of a graph. It is cheap to copy. Operands
// broadcast like NumPy and have one dtype (there is no promotion: `x.to(DType::F32)`); a plain
// number takes the tensor's dtype (Number). Axes count from the end when negative. Names are PyTorch's.
//
// Tensors come from a Tracer (trace.h) or from a plain Builder, which must then outlive them. One
// of an outer program may be used in the body of a scan or cond: it becomes an operand of it.
// Raises Error(user) "trace-mixed" when tensors of two programs meet, "trace-ended" when the
// program (or body) of a tensor is finished, "no-tensor" for an empty one, and what the ops raise.
#pragma once

#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "rlx/ops/core.h"

namespace rlx {

class TraceScope;
class TracedTensor;
using TracedTensors = std::vector<TracedTensor>;

// Axes as an argument: x.sum(-1), x.sum({0, 1}).
class AxisList {
 public:
  AxisList(int64_t axis) : axes_{axis} {}                         // NOLINT: implicit by design
  AxisList(std::initializer_list<int64_t> axes) : axes_(axes) {}  // NOLINT: implicit by design
  AxisList(Ints axes) : axes_(std::move(axes)) {}                 // NOLINT: implicit by design
  const Ints& axes() const { return axes_; }

 private:
  Ints axes_;
};

// start:stop:step as in Python: bounds may be missing or negative and are clamped; a negative step
// walks backwards. Bounds of symbolic axes are taken as they are.
struct Slice {
  std::optional<Dim> start = {}, stop = {};
  int64_t step = 1;
};
struct NewAxis {};   // inserts an axis of size 1
struct Ellipsis {};  // all axes that the other indices leave over
class Index;

// A plain number beside a tensor, as one of the tensor's dtype. Floats round it; integers and bools hold
// it or raise "scalar-range": u8 has no 300, i32 no 0.5, and no real dtype an imaginary part.
class Number {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  Number(T v) : value_(static_cast<double>(v)) {  // NOLINT: implicit by design
    if constexpr (std::same_as<T, bool>)
      whole_ = v ? 1 : 0;
    else if constexpr (std::integral<T>)
      if (std::in_range<int64_t>(v)) whole_ = static_cast<int64_t>(v);
  }
  Number(Complex v) : value_(v) {}  // NOLINT: implicit by design
  Tensor of(DType dtype) const;

 private:
  Complex value_;
  std::optional<int64_t> whole_;  // of integers, all digits
};

class TracedTensor {
 public:
  TracedTensor() = default;
  TracedTensor(Builder& b, Value v) : plain_(&b), value_(v) {}

  const Type& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int64_t rank() const { return type().rank(); }
  const Dim& size(int64_t axis) const;
  bool valid() const { return plain_ != nullptr || scope_ != nullptr; }

  // What Op's call operators use.
  Builder& builder() const;  // that of the innermost body being traced
  Value value() const { return value_in(builder()); }
  Value value_in(Builder& b) const;
  TracedTensor make(Value v) const;
  TracedTensor like(const Number& v) const {
    return make(builder().constant(v.of(dtype())));
  }  // rank 0

  // Linear algebra. matmul takes vectors too, as NumPy does.
  TracedTensor matmul(const TracedTensor& other) const;
  TracedTensor mm(const TracedTensor& other) const { return op::matmul(*this, other); }

  // Shape.
  TracedTensor t() const;  // swaps the last two axes
  TracedTensor transpose(int64_t axis0, int64_t axis1) const;
  TracedTensor permute(Ints perm) const;
  TracedTensor transpose(Ints perm) const { return permute(std::move(perm)); }
  TracedTensor reshape(Shape shape) const {
    return op::reshape(*this, {std::move(shape)});
  }  // one dim may be -1
  TracedTensor view(Shape shape) const { return reshape(std::move(shape)); }
  TracedTensor flatten(int64_t first = 0, int64_t last = -1) const;
  TracedTensor unsqueeze(int64_t axis) const;
  TracedTensor squeeze(int64_t axis) const;
  TracedTensor squeeze() const;            // every axis of size 1
  TracedTensor expand(Shape shape) const;  // -1 keeps a size
  TracedTensor flip(const AxisList& axes) const { return op::reverse(*this, {axes.axes()}); }

  // Parts.
  TracedTensor operator[](int64_t i) const;
  TracedTensor operator[](const TracedTensor& indices) const { return take(indices, 0); }
  TracedTensor index(
      const std::vector<Index>& indices) const;  // x.index({Ellipsis{}, Slice{1, -1}, 0})
  TracedTensor slice(int64_t axis, std::optional<Dim> start = {}, std::optional<Dim> stop = {},
                     int64_t step = 1) const;
  TracedTensor narrow(int64_t axis, const Dim& start, const Dim& length) const;
  TracedTensor select(int64_t axis, int64_t i) const;  // one place of an axis, which goes away
  TracedTensors split(const std::vector<Dim>& sizes, int64_t axis = 0) const;
  TracedTensors chunk(int64_t parts, int64_t axis = 0) const;  // of equal size
  TracedTensor take(const TracedTensor& indices, int64_t axis = 0) const {
    return op::gather(*this, indices, {axis});
  }
  TracedTensor gather(const TracedTensor& indices, int64_t axis = 0) const {
    return take(indices, axis);
  }

  // Reductions; without axes: over all.
  TracedTensor sum(const AxisList& axes, bool keepdims = false) const {
    return op::reduce_sum(*this, {axes.axes(), keepdims});
  }
  TracedTensor mean(const AxisList& axes, bool keepdims = false) const {
    return op::reduce_mean(*this, {axes.axes(), keepdims});
  }
  TracedTensor max(const AxisList& axes, bool keepdims = false) const {
    return op::reduce_max(*this, {axes.axes(), keepdims});
  }
  TracedTensor min(const AxisList& axes, bool keepdims = false) const {
    return op::reduce_min(*this, {axes.axes(), keepdims});
  }
  TracedTensor prod(const AxisList& axes, bool keepdims = false) const {
    return op::reduce_prod(*this, {axes.axes(), keepdims});
  }
  TracedTensor sum() const { return sum(all_axes()); }
  TracedTensor mean() const { return mean(all_axes()); }
  TracedTensor max() const { return max(all_axes()); }
  TracedTensor min() const { return min(all_axes()); }
  TracedTensor prod() const { return prod(all_axes()); }
  TracedTensor cumsum(int64_t axis) const { return op::cumsum(*this, {.axis = axis}); }
  TracedTensor argmax(int64_t axis = -1, bool keepdims = false) const {
    return op::argmax(*this, {axis, keepdims});
  }

  // Elementwise.
  TracedTensor exp() const { return op::exp(*this); }
  TracedTensor expm1() const { return op::expm1(*this); }
  TracedTensor log() const { return op::log(*this); }
  TracedTensor log1p() const { return op::log1p(*this); }
  TracedTensor sqrt() const { return op::sqrt(*this); }
  TracedTensor rsqrt() const { return op::rsqrt(*this); }
  TracedTensor square() const { return op::square(*this); }
  TracedTensor reciprocal() const { return op::reciprocal(*this); }
  TracedTensor abs() const { return op::abs(*this); }
  TracedTensor sign() const { return op::sign(*this); }
  TracedTensor floor() const { return op::floor(*this); }
  TracedTensor ceil() const { return op::ceil(*this); }
  TracedTensor round() const { return op::round(*this); }
  TracedTensor sin() const { return op::sin(*this); }
  TracedTensor cos() const { return op::cos(*this); }
  TracedTensor erf() const { return op::erf(*this); }
  TracedTensor tanh() const { return op::tanh(*this); }
  TracedTensor sigmoid() const { return op::sigmoid(*this); }
  TracedTensor softplus() const { return op::softplus(*this); }
  TracedTensor relu() const { return op::relu(*this); }
  TracedTensor gelu() const { return op::gelu(*this); }
  TracedTensor gelu_tanh() const { return op::gelu_tanh(*this); }
  TracedTensor silu() const { return op::silu(*this); }
  TracedTensor pow(const TracedTensor& e) const { return op::pow(*this, e); }
  TracedTensor pow(const Number& e) const { return op::pow(*this, like(e)); }
  TracedTensor maximum(const TracedTensor& other) const { return op::maximum(*this, other); }
  TracedTensor maximum(const Number& other) const { return op::maximum(*this, like(other)); }
  TracedTensor minimum(const TracedTensor& other) const { return op::minimum(*this, other); }
  TracedTensor minimum(const Number& other) const { return op::minimum(*this, like(other)); }
  TracedTensor clamp(const Number& low, const Number& high) const {
    return op::clamp(*this, like(low), like(high));
  }
  TracedTensor eq(const TracedTensor& other) const { return op::eq(*this, other); }
  TracedTensor eq(const Number& other) const { return op::eq(*this, like(other)); }
  TracedTensor ne(const TracedTensor& other) const { return op::ne(*this, other); }
  TracedTensor ne(const Number& other) const { return op::ne(*this, like(other)); }
  TracedTensor to(DType dtype) const;  // itself when it has that dtype
  TracedTensor cast(DType dtype) const { return to(dtype); }
  TracedTensor detach() const { return op::stop_gradient(*this); }

  // Neural networks.
  TracedTensor softmax(int64_t axis = -1) const { return op::softmax(*this, {axis}); }
  TracedTensor log_softmax(int64_t axis = -1) const { return op::log_softmax(*this, {axis}); }
  TracedTensor layer_norm(const TracedTensor& gamma, const TracedTensor& beta,
                          double eps = 1e-5) const {
    return op::layer_norm(*this, gamma, beta, {-1, eps});
  }

 private:
  friend class Tracer;
  TracedTensor(std::shared_ptr<TraceScope> scope, Value v) : scope_(std::move(scope)), value_(v) {}
  AxisList all_axes() const;

  Builder* plain_ = nullptr;           // a builder that is not a tracer's
  std::shared_ptr<TraceScope> scope_;  // the program or body that the value belongs to
  Value value_;
};

class Index : public std::variant<int64_t, Slice, NewAxis, Ellipsis, TracedTensor> {
 public:
  using variant::variant;
  Index(int i) : variant(int64_t{i}) {}  // NOLINT: implicit by design
};

TracedTensor operator+(const TracedTensor& a, const TracedTensor& b);
TracedTensor operator-(const TracedTensor& a, const TracedTensor& b);
TracedTensor operator*(const TracedTensor& a, const TracedTensor& b);
TracedTensor operator/(const TracedTensor& a, const TracedTensor& b);
TracedTensor operator<(const TracedTensor& a, const TracedTensor& b);
TracedTensor operator<=(const TracedTensor& a, const TracedTensor& b);
TracedTensor operator>(const TracedTensor& a, const TracedTensor& b);
TracedTensor operator>=(const TracedTensor& a, const TracedTensor& b);
inline TracedTensor operator+(const TracedTensor& a, const Number& b) { return a + a.like(b); }
inline TracedTensor operator-(const TracedTensor& a, const Number& b) { return a - a.like(b); }
inline TracedTensor operator*(const TracedTensor& a, const Number& b) { return a * a.like(b); }
inline TracedTensor operator/(const TracedTensor& a, const Number& b) { return a / a.like(b); }
inline TracedTensor operator<(const TracedTensor& a, const Number& b) { return a < a.like(b); }
inline TracedTensor operator<=(const TracedTensor& a, const Number& b) { return a <= a.like(b); }
inline TracedTensor operator>(const TracedTensor& a, const Number& b) { return a > a.like(b); }
inline TracedTensor operator>=(const TracedTensor& a, const Number& b) { return a >= a.like(b); }
inline TracedTensor operator+(const Number& a, const TracedTensor& b) { return b.like(a) + b; }
inline TracedTensor operator-(const Number& a, const TracedTensor& b) { return b.like(a) - b; }
inline TracedTensor operator*(const Number& a, const TracedTensor& b) { return b.like(a) * b; }
inline TracedTensor operator/(const Number& a, const TracedTensor& b) { return b.like(a) / b; }
inline TracedTensor operator<(const Number& a, const TracedTensor& b) { return b.like(a) < b; }
inline TracedTensor operator<=(const Number& a, const TracedTensor& b) { return b.like(a) <= b; }
inline TracedTensor operator>(const Number& a, const TracedTensor& b) { return b.like(a) > b; }
inline TracedTensor operator>=(const Number& a, const TracedTensor& b) { return b.like(a) >= b; }
inline TracedTensor operator-(const TracedTensor& a) { return op::neg(a); }
// Of bools.
inline TracedTensor operator!(const TracedTensor& a) { return op::logical_not(a); }
inline TracedTensor operator&(const TracedTensor& a, const TracedTensor& b) {
  return op::logical_and(a, b);
}
inline TracedTensor operator|(const TracedTensor& a, const TracedTensor& b) {
  return op::logical_or(a, b);
}

// Any op on any number of operands (at least one), all its results.
TracedTensors apply(const OpDef& op, Attrs attrs, const TracedTensors& operands);

TracedTensor cat(const TracedTensors& parts, int64_t axis = 0);
TracedTensor stack(const TracedTensors& parts, int64_t axis = 0);
TracedTensor where(const TracedTensor& condition, const TracedTensor& a, const TracedTensor& b);
TracedTensor where(const TracedTensor& condition, const TracedTensor& a, const Number& b);
TracedTensor where(const TracedTensor& condition, const Number& a, const TracedTensor& b);
TracedTensor linear(const TracedTensor& x, const TracedTensor& w);  // w is [in, out]
TracedTensor linear(const TracedTensor& x, const TracedTensor& w, const TracedTensor& bias);
TracedTensor one_hot(const TracedTensor& labels, const Dim& classes, DType dtype = DType::F32);
// The output alone; apply() gives the logsumexp too.
TracedTensor attention(const TracedTensor& q, const TracedTensor& k, const TracedTensor& v,
                       AttentionAttrs attrs);

}  // namespace rlx
