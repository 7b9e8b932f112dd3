#include "rlx/front/traced.h"

#include <algorithm>
#include <cmath>

#include "rlx/front/trace_scope.h"
#include "rlx/ops/rules.h"

namespace rlx {

// ---- numbers

Tensor Number::of(DType dtype) const {
  const double real = value_.real(), imag = value_.imag();
  user_check(is_complex(dtype) || imag == 0, "scalar-range",
             "the number {}{:+}i does not fit in a tensor of {}, which is real", real, imag, dtype);
  if (!is_int(dtype) && !is_bool(dtype)) return Tensor::scalar(dtype, value_);
  std::optional<int64_t> whole = whole_;
  if (!whole && std::trunc(real) == real && real >= -0x1p63 && real < 0x1p63)
    whole = static_cast<int64_t>(real);
  const auto high = static_cast<int64_t>((uint64_t{1} << info(dtype).digits) - 1);
  const int64_t low = info(dtype).is_signed ? -high - 1 : 0;
  user_check(
      whole && *whole >= low && *whole <= high, "scalar-range",
      "the number {} does not fit in a tensor of {}, which holds whole numbers from {} to {}",
      whole ? fmt::to_string(*whole) : fmt::to_string(real), dtype, low, high);
  Tensor t(dtype, {});
  t.set_int(0, *whole);
  return t;
}

// ---- whose tensor it is

const Type& TracedTensor::type() const {
  if (plain_) return plain_->type(value_);
  builder();
  user_check(scope_->open, "trace-ended",
             "trace \"{}\": a tensor of the body \"{}\" was used after the body ended; return it "
             "from the body",
             scope_->trace->name, scope_->name);
  return scope_->builder.type(value_);
}

Builder& TracedTensor::builder() const {
  if (plain_) return *plain_;
  user_check(scope_ != nullptr, "no-tensor", "an empty TracedTensor was used");
  const Trace& trace = *scope_->trace;
  user_check(trace.current != nullptr, "trace-ended",
             "a tensor of trace \"{}\" was used after the trace ended", trace.name);
  return trace.current->builder;
}

Value TracedTensor::value_in(Builder& b) const {
  Builder& mine = builder();
  user_check(&mine == &b, "trace-mixed",
             "a tensor of \"{}\" was used in \"{}\": tensors of two programs do not mix",
             scope_ ? scope_->trace->name : mine.graph().name, b.graph().name);
  if (plain_) return value_;
  type();
  return scope_->trace->current->import(*scope_, value_);
}

TracedTensor TracedTensor::make(Value v) const {
  if (plain_) return {*plain_, v};
  builder();
  return {scope_->trace->current->shared_from_this(), v};
}

const Dim& TracedTensor::size(int64_t axis) const {
  return shape()[static_cast<size_t>(normalise_axis(axis, rank(), "size"))];
}

AxisList TracedTensor::all_axes() const {
  Ints axes;
  for (int64_t i = 0; i < rank(); ++i) axes.push_back(i);
  return axes;
}

TracedTensors apply(const OpDef& op, Attrs attrs, const TracedTensors& operands) {
  user_check(!operands.empty(), "arity", "{}: apply() needs an operand", op.name);
  Builder& b = operands[0].builder();
  Values in;
  for (const TracedTensor& x : operands) in.push_back(x.value_in(b));
  TracedTensors out;
  for (Value v : b.emit(op, std::move(attrs), in)) out.push_back(operands[0].make(v));
  return out;
}

// ---- operators

TracedTensor operator+(const TracedTensor& a, const TracedTensor& b) { return op::add(a, b); }
TracedTensor operator-(const TracedTensor& a, const TracedTensor& b) { return op::sub(a, b); }
TracedTensor operator*(const TracedTensor& a, const TracedTensor& b) { return op::mul(a, b); }
TracedTensor operator/(const TracedTensor& a, const TracedTensor& b) { return op::div(a, b); }
TracedTensor operator<(const TracedTensor& a, const TracedTensor& b) { return op::lt(a, b); }
TracedTensor operator<=(const TracedTensor& a, const TracedTensor& b) { return op::le(a, b); }
TracedTensor operator>(const TracedTensor& a, const TracedTensor& b) { return op::gt(a, b); }
TracedTensor operator>=(const TracedTensor& a, const TracedTensor& b) { return op::ge(a, b); }

TracedTensor TracedTensor::to(DType dtype) const {
  return dtype == this->dtype() ? *this : op::cast(*this, {dtype});
}

TracedTensor TracedTensor::matmul(const TracedTensor& other) const {
  const bool row = rank() == 1, column = other.rank() == 1;
  TracedTensor y = op::matmul(row ? unsqueeze(0) : *this, column ? other.unsqueeze(1) : other);
  if (column) y = y.squeeze(-1);
  return row ? y.squeeze(column ? -1 : -2) : y;
}

// ---- shape

TracedTensor TracedTensor::t() const {
  user_check(rank() >= 2, "axis-range", "t: needs two axes, got {}", type());
  return transpose(-2, -1);
}

TracedTensor TracedTensor::transpose(int64_t axis0, int64_t axis1) const {
  Ints perm = all_axes().axes();
  std::swap(perm[static_cast<size_t>(normalise_axis(axis0, rank(), "transpose"))],
            perm[static_cast<size_t>(normalise_axis(axis1, rank(), "transpose"))]);
  return permute(std::move(perm));
}

TracedTensor TracedTensor::permute(Ints perm) const {
  for (int64_t& axis : perm) axis = normalise_axis(axis, rank(), "permute");
  return op::transpose(*this, {std::move(perm)});
}

TracedTensor TracedTensor::flatten(int64_t first, int64_t last) const {
  if (rank() == 0) return unsqueeze(0);
  first = normalise_axis(first, rank(), "flatten"), last = normalise_axis(last, rank(), "flatten");
  user_check(first <= last, "axis-range", "flatten: axis {} does not come before axis {}", first,
             last);
  const auto begin = shape().begin() + first, end = shape().begin() + last + 1;
  Shape merged(shape().begin(), begin);
  merged.push_back(Shape(begin, end).elements());
  merged.insert(merged.end(), end, shape().end());
  return reshape(std::move(merged));
}

TracedTensor TracedTensor::unsqueeze(int64_t axis) const {
  Shape wider = shape();
  wider.insert(wider.begin() + normalise_axis(axis, rank() + 1, "unsqueeze"), Dim(1));
  return reshape(std::move(wider));
}

TracedTensor TracedTensor::squeeze(int64_t axis) const {
  axis = normalise_axis(axis, rank(), "squeeze");
  user_check(size(axis) == Dim(1), "squeeze-dim", "squeeze: axis {} of {} is not of size 1", axis,
             type());
  Shape narrower = shape();
  narrower.erase(narrower.begin() + axis);
  return reshape(std::move(narrower));
}

TracedTensor TracedTensor::squeeze() const {
  Shape kept;
  for (const Dim& d : shape())
    if (!(d == Dim(1))) kept.push_back(d);
  return kept == shape() ? *this : reshape(std::move(kept));
}

TracedTensor TracedTensor::expand(Shape target) const {
  const int64_t added = target.rank() - rank();
  user_check(added >= 0, "expand-rank", "expand: {} has more axes than {}", type(), target);
  for (int64_t i = added; i < target.rank(); ++i)
    if (target[static_cast<size_t>(i)] == Dim(-1)) target[static_cast<size_t>(i)] = size(i - added);
  return op::broadcast(*this, {std::move(target)});
}

// ---- parts

namespace {

// A bound of a slice: from the end when negative, clamped to [low, high] where the sizes are known.
Dim resolve_bound(const Dim& bound, const Dim& size, int64_t low, int64_t above) {
  if (!bound.is_static()) return bound;
  Dim at = bound.value() < 0 ? bound + size : bound;
  if (!size.is_static()) return at;
  return std::clamp(at.value(), low, size.value() + above);
}

TracedTensor slice_axis(const TracedTensor& x, int64_t axis, Dim start, Dim limit, int64_t stride) {
  const auto at = static_cast<size_t>(axis);
  if (stride == 1 && start == Dim(0) && limit == x.shape()[at]) return x;
  SliceAttrs s{Shape(x.shape().size(), Dim(0)), x.shape(), Ints(x.shape().size(), 1)};
  s.start[at] = std::move(start), s.limit[at] = std::move(limit), s.stride[at] = stride;
  return op::slice(x, std::move(s));
}

// start, start + step, .. above stop, as a forward slice that is then turned around.
TracedTensor slice_backwards(const TracedTensor& x, int64_t axis, const Slice& s) {
  const Dim& size = x.size(axis);
  user_check(
      size.is_static() && (!s.start || s.start->is_static()) && (!s.stop || s.stop->is_static()),
      "slice-step", "slice: a negative step needs known sizes, got axis {} of {}", axis, x.type());
  const int64_t stride = -s.step;
  const int64_t start = s.start ? resolve_bound(*s.start, size, -1, -1).value() : size.value() - 1;
  const int64_t stop = s.stop ? resolve_bound(*s.stop, size, -1, -1).value() : -1;
  const int64_t count = start > stop ? (start - stop + stride - 1) / stride : 0;
  if (count == 0) return slice_axis(x, axis, 0, 0, 1);
  return slice_axis(x, axis, start - (count - 1) * stride, start + 1, stride).flip(axis);
}

}  // namespace

TracedTensor TracedTensor::slice(int64_t axis, std::optional<Dim> start, std::optional<Dim> stop,
                                 int64_t step) const {
  axis = normalise_axis(axis, rank(), "slice");
  user_check(step != 0, "slice-step", "slice: the step of axis {} is 0", axis);
  if (step < 0) return slice_backwards(*this, axis, {std::move(start), std::move(stop), step});
  const Dim from = start ? resolve_bound(*start, size(axis), 0, 0) : Dim(0);
  Dim to = stop ? resolve_bound(*stop, size(axis), 0, 0) : size(axis);
  if (from.is_static() && to.is_static() && to.value() < from.value()) to = from;
  return slice_axis(*this, axis, from, to, step);
}

TracedTensor TracedTensor::narrow(int64_t axis, const Dim& start, const Dim& length) const {
  return slice_axis(*this, normalise_axis(axis, rank(), "narrow"), start, start + length, 1);
}

TracedTensor TracedTensor::select(int64_t axis, int64_t i) const {
  axis = normalise_axis(axis, rank(), "select");
  const Dim& extent = size(axis);
  user_check(!extent.is_static() || (i < extent.value() && i >= -extent.value()), "index-range",
             "index {} is out of range for axis {} of {}", i, axis, type());
  const Dim at = i < 0 ? extent + Dim(i) : Dim(i);
  return slice_axis(*this, axis, at, at + 1, 1).squeeze(axis);
}

TracedTensor TracedTensor::operator[](int64_t i) const { return select(0, i); }

TracedTensor TracedTensor::index(const std::vector<Index>& indices) const {
  int64_t used = 0, ellipses = 0, tensors = 0;
  for (const Index& i : indices) {
    used += !std::holds_alternative<NewAxis>(i) && !std::holds_alternative<Ellipsis>(i);
    ellipses += std::holds_alternative<Ellipsis>(i);
    tensors += std::holds_alternative<TracedTensor>(i);
  }
  user_check(used <= rank(), "index-rank", "index: {} indices for {}", used, type());
  user_check(ellipses <= 1, "index-ellipsis", "index: more than one Ellipsis");
  user_check(tensors <= 1, "index-tensors",
             "index: more than one tensor among the indices; use gather");
  const int64_t left_over = rank() - used;
  TracedTensor x = *this;
  int64_t axis = 0;
  for (const Index& i : indices) {
    if (const auto* place = std::get_if<int64_t>(&i))
      x = x.select(axis, *place);
    else if (const auto* s = std::get_if<Slice>(&i))
      x = x.slice(axis, s->start, s->stop, s->step), ++axis;
    else if (std::holds_alternative<NewAxis>(i))
      x = x.unsqueeze(axis++);
    else if (std::holds_alternative<Ellipsis>(i))
      axis += left_over;
    else {
      const auto& places = std::get<TracedTensor>(i);
      x = x.take(places, axis), axis += places.rank();
    }
  }
  return x;
}

TracedTensors TracedTensor::split(const std::vector<Dim>& sizes, int64_t axis) const {
  TracedTensors parts;
  Dim at = 0;
  for (const Dim& n : sizes) {
    parts.push_back(narrow(axis, at, n));
    at = at + n;
  }
  user_check(at == size(axis), "split-sizes", "split: the sizes add up to {}, axis {} of {} is {}",
             at, axis, type(), size(axis));
  return parts;
}

TracedTensors TracedTensor::chunk(int64_t parts, int64_t axis) const {
  const auto each = parts > 0 ? size(axis).divide(Dim(parts)) : std::nullopt;
  user_check(each.has_value(), "split-sizes",
             "chunk: axis {} of {} does not divide into {} equal parts", axis, type(), parts);
  return split(std::vector<Dim>(static_cast<size_t>(parts), *each), axis);
}

// ---- free functions

TracedTensor cat(const TracedTensors& parts, int64_t axis) {
  return apply(op::concat.def, AxisAttrs{axis}, parts)[0];
}

TracedTensor stack(const TracedTensors& parts, int64_t axis) {
  user_check(!parts.empty(), "arity", "stack: needs a tensor");
  axis = normalise_axis(axis, parts[0].rank() + 1, "stack");
  TracedTensors wider;
  for (const TracedTensor& x : parts) wider.push_back(x.unsqueeze(axis));
  return cat(wider, axis);
}

TracedTensor where(const TracedTensor& condition, const TracedTensor& a, const TracedTensor& b) {
  return op::select(condition, a, b);
}
TracedTensor where(const TracedTensor& condition, const TracedTensor& a, const Number& b) {
  return where(condition, a, a.like(b));
}
TracedTensor where(const TracedTensor& condition, const Number& a, const TracedTensor& b) {
  return where(condition, b.like(a), b);
}

TracedTensor linear(const TracedTensor& x, const TracedTensor& w) { return x.matmul(w); }
TracedTensor linear(const TracedTensor& x, const TracedTensor& w, const TracedTensor& bias) {
  return x.matmul(w) + bias;
}

TracedTensor one_hot(const TracedTensor& labels, const Dim& classes, DType dtype) {
  // Classes are counted in a wide dtype: in that of the labels they might wrap or round.
  const DType wide = is_float(labels.dtype()) ? DType::F64 : DType::I64;
  const TracedTensor numbers = labels.make(op::iota(labels.builder(), {}, {wide, {classes}, 0}));
  return labels.to(wide).unsqueeze(-1).eq(numbers).to(dtype);
}

TracedTensor attention(const TracedTensor& q, const TracedTensor& k, const TracedTensor& v,
                       AttentionAttrs attrs) {
  return apply(op::attention.def, attrs, {q, k, v})[0];
}

}  // namespace rlx
