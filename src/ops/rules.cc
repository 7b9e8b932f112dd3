#include "rlx/ops/rules.h"

#include <algorithm>
#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {

Values single(Value v) { return {v}; }

Value full(Builder& b, const Type& type, Complex value) {
  return broadcast_to(b, b.constant(type.dtype, value), type.shape);
}

Value broadcast_to(Builder& b, Value x, const Shape& shape) {
  return b.shape(x) == shape ? x : op::broadcast(b, x, {shape});
}

Value reshape_to(Builder& b, Value x, const Shape& shape) {
  return b.shape(x) == shape ? x : op::reshape(b, x, {shape});
}

Value cast_to(Builder& b, Value x, DType dtype) {
  return b.type(x).dtype == dtype ? x : op::cast(b, x, {dtype});
}

Value sum_axes(Builder& b, Value x, Ints axes, bool keepdims) {
  return axes.empty() ? x : op::reduce_sum(b, x, {std::move(axes), keepdims});
}

Value unbroadcast(Builder& b, Value g, const Shape& shape) {
  const Shape from = b.shape(g);
  if (from == shape) return g;
  const size_t extra = from.size() - shape.size();
  Ints axes;
  for (size_t i = 0; i < from.size(); ++i)
    if (i < extra || (shape[i - extra] == Dim(1) && !(from[i] == Dim(1))))
      axes.push_back(static_cast<int64_t>(i));
  return reshape_to(b, sum_axes(b, g, axes), shape);
}

Value expand_reduced(Builder& b, Value reduced, const Shape& shape, const Ints& axes,
                     bool keepdims) {
  if (!keepdims) {
    Shape kept = shape;
    for (int64_t a : axes) kept[static_cast<size_t>(a)] = 1;
    reduced = reshape_to(b, reduced, kept);
  }
  return broadcast_to(b, reduced, shape);
}

Value add_maybe(Builder& b, Value a, Value c) {
  if (!a.valid()) return c;
  return c.valid() ? op::add(b, a, c) : a;
}

Value conj_if_complex(Builder& b, Value x) {
  return is_complex(b.type(x).dtype) ? op::conj(b, x) : x;
}

Value matrix_transpose(Builder& b, Value x) {
  Ints perm(static_cast<size_t>(b.type(x).rank()));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return op::transpose(b, x, {perm});
}

Value batch_operand(Builder& b, Value x, const Dim& size) {
  return op::broadcast(b, x, {prepend(size, b.shape(x))});
}

Value align_batched(Builder& b, Value x, int64_t rank) {
  Shape shape = b.shape(x);
  const int64_t missing = rank - (shape.rank() - 1);
  if (missing <= 0) return x;
  shape.insert(shape.begin() + 1, static_cast<size_t>(missing), Dim(1));
  return op::reshape(b, x, {shape});
}

Value transpose_to(Builder& b, Value x, const Ints& perm) {
  return std::is_sorted(perm.begin(), perm.end()) ? x : op::transpose(b, x, {perm});
}

Value swap_blocks(Builder& b, Value x, int64_t at, int64_t first, int64_t second) {
  Ints perm(static_cast<size_t>(b.type(x).rank()));
  std::iota(perm.begin(), perm.end(), 0);
  const auto begin = perm.begin() + at;
  std::rotate(begin, begin + first, begin + first + second);
  return transpose_to(b, x, perm);
}

Value dim_value(Builder& b, const Dim& size, DType dtype) {
  if (size.is_static()) return b.constant(dtype, static_cast<double>(size.value()));
  if (is_complex(dtype)) return op::cast(b, op::dim_size(b, {}, {size, DType::I64}), {dtype});
  return op::dim_size(b, {}, {size, dtype});
}

Dim count_of(const Shape& shape, const Ints& axes) {
  Dim n(1);
  for (int64_t a : axes) n = n * shape[static_cast<size_t>(a)];
  return n;
}

Shape prepend(const Dim& size, const Shape& shape) {
  Shape out{size};
  out.insert(out.end(), shape.begin(), shape.end());
  return out;
}

bool may_broadcast(const Shape& x, const Shape& to) {
  bool fits = x.size() <= to.size();
  for (size_t i = 0; fits && i < x.size(); ++i)
    fits = x[i] == Dim(1) || !differ(x[i], to[i + to.size() - x.size()]);
  return fits;
}

bool differ(const Dim& a, const Dim& b) {
  const auto d = (a - b).static_value();
  return d && *d != 0;
}

bool is_negative(const Dim& d) {
  const auto n = d.static_value();
  return n && *n < 0;
}

Dim agreed(const Dim& a, const Dim& b) { return b.is_static() ? b : a; }

bool may_be_equal(const Type& a, const Type& b) {
  if (a.dtype != b.dtype || a.rank() != b.rank()) return false;
  for (size_t i = 0; i < a.shape.size(); ++i)
    if (differ(a.shape[i], b.shape[i])) return false;
  return true;
}

Value settle(Builder& b, Value x, const Type& type, const OpDef& op, std::string_view what,
             size_t index) {
  if (b.type(x) == type) return x;
  check(may_be_equal(b.type(x), type), "{}: {} {} is {} and not {}", op.name, what, index,
        b.type(x), type);
  return op::reshape(b, x, {type.shape});
}

// ---- what derivatives pass

bool may_carry(DType d) { return is_differentiable(d) || is_code(d); }

bool carries(const OpDef& op, DType d) {
  if (!is_code(d)) return is_differentiable(d);
  return op.passes_codes || (op.decompose && !op.jvp && !op.vjp && !op.derivative);
}

Type derivative_type(const Type& type) {
  return is_code(type.dtype) ? Type{DType::F64, type.shape} : type;
}

Value zero_derivative(Builder& b, const Type& type) { return full(b, derivative_type(type), 0); }

// ---- inference

void bad_operands(const InferArgs& a, std::string_view code, const std::string& why) {
  std::vector<std::string> operands;
  for (size_t i = 0; i < a.in.size(); ++i)
    operands.push_back(fmt::format("{} {}", a.name(i), a.in[i]));
  fail(ErrorKind::user, code, "{}: {} (operands: {})", a.op.name, why, fmt::join(operands, ", "));
}

void require_same_dtype(const InferArgs& a) {
  for (const Type& t : a.in)
    if (t.dtype != a.in[0].dtype)
      bad_operands(a, "dtype-mixed",
                   fmt::format("operands must have one dtype; cast to {} first",
                               promote(a.in[0].dtype, t.dtype)));
}

Types infer_same(const InferArgs& a) { return {a.in[0]}; }

Types infer_broadcast(const InferArgs& a) {
  require_same_dtype(a);
  Shape shape = a.in[0].shape;
  for (const Type& t : a.in.subspan(1)) {
    auto both = broadcast_shapes(shape, t.shape);
    if (!both) bad_operands(a, "broadcast", "the shapes do not broadcast");
    shape = *both;
  }
  return {{a.in[0].dtype, shape}};
}

Types infer_compare(const InferArgs& a) {
  Types t = infer_broadcast(a);
  t[0].dtype = DType::Bool;
  return t;
}

Ints broadcast_strides(const Ints& sizes, const Ints& result) {
  Ints own = row_major_strides(sizes), out(result.size(), 0);
  const size_t extra = result.size() - sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) out[i + extra] = sizes[i] == 1 ? 0 : own[i];
  return out;
}

// ---- elementwise ops under the transforms

Values jvp_elementwise(Builder& b, const JvpArgs& a) {
  Value sum = kNone;
  for (size_t i = 0; i < a.tangents.size(); ++i) {
    if (!a.tangents[i].valid()) continue;
    Value term = a.node.op->derivative(b, a, static_cast<int>(i), a.tangents[i]);
    if (term.valid()) sum = add_maybe(b, sum, term);
  }
  return {sum.valid() ? broadcast_to(b, sum, a.node.type().shape) : kNone};
}

Values vjp_elementwise(Builder& b, const VjpArgs& a) {
  const Value ct = conj_if_complex(b, a.cotangents[0]);
  Values out(a.in.size(), kNone);
  for (size_t i = 0; i < a.in.size(); ++i) {
    if (!a.wanted[i]) continue;
    const JvpArgs args{a.node, a.in, a.out, {}};
    Value g = a.node.op->derivative(b, args, static_cast<int>(i), ct);
    if (g.valid()) out[i] = unbroadcast(b, conj_if_complex(b, g), b.shape(a.in[i]));
  }
  return out;
}

Values vmap_elementwise(Builder& b, const VmapArgs& a) {
  const int64_t rank = a.node.type().rank();
  Values in;
  for (size_t i = 0; i < a.in.size(); ++i)
    in.push_back(a.batched[i] ? align_batched(b, a.in[i], rank) : a.in[i]);
  return b.clone(a.node, in);
}

Values jvp_through_itself(Builder& b, const JvpArgs& a) {
  return a.tangents[0].valid() ? b.clone(a.node, a.tangents.first(1)) : Values{kNone};
}

Values jvp_bilinear(Builder& b, const JvpArgs& a) {
  Value sum = kNone;
  for (size_t i = 0; i < 2; ++i) {
    if (!a.tangents[i].valid()) continue;
    Values in(a.in.begin(), a.in.end());
    in[i] = a.tangents[i];
    sum = add_maybe(b, sum, b.clone(a.node, in)[0]);
  }
  return {sum};
}

}  // namespace rlx
