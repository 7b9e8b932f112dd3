// Views of views, with numbers and with polynomials.
#include "rlx/lower/layout.h"

namespace rlx {

namespace {

template <class V>
using NumberOf = typename decltype(V::dims)::value_type;

template <class V>
bool dense(const V& v) {
  using N = NumberOf<V>;
  N expected(1);
  for (size_t i = v.dims.size(); i-- > 0;) {
    if (v.dims[i] == N(0)) return true;
    if (!(v.dims[i] == N(1)) && !(v.strides[i] == expected)) return false;
    if constexpr (std::is_same_v<N, Dim>) {
      expected = expected * v.dims[i];
    } else {
      if (__builtin_mul_overflow(expected, v.dims[i], &expected))
        return true;  // some other size is 0
    }
  }
  return true;
}

Ints dense_strides(const Ints& dims) { return row_major_strides(dims); }
Shape dense_strides(const Shape& dims) {
  Shape strides(dims.size(), Dim(1));
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

// Which of two sizes has further factors to take: the group that is smaller grows. nullopt: not known for all sizes.
std::optional<bool> is_less(int64_t a, int64_t b) { return a < b; }
std::optional<bool> is_less(const Dim& a, const Dim& b) {
  if (b.divide(a)) return true;
  if (a.divide(b)) return false;
  const auto x = a.static_value(), y = b.static_value();
  return x && y ? std::optional(*x < *y) : std::nullopt;
}

template <class V, class Dims>
std::optional<V> reshaped(const V& v, const Dims& dims) {
  using N = NumberOf<V>;
  V out = v;
  out.dims = dims;
  bool reads_nothing = false;  // as far as is known; then strides do not matter
  for (const N& n : v.dims) reads_nothing = reads_nothing || n == N(0);
  if (reads_nothing || v.is_dense()) {
    out.strides = dense_strides(dims);
    return out;
  }
  // Match groups of old dims with groups of new dims of equal product; within a group the old
  // strides must be contiguous.
  Dims old_dims, old_strides;
  for (size_t i = 0; i < v.dims.size(); ++i)
    if (!(v.dims[i] == N(1))) old_dims.push_back(v.dims[i]), old_strides.push_back(v.strides[i]);
  out.strides.assign(dims.size(), N(0));
  size_t i = 0, j = 0;
  while (j < dims.size()) {
    if (dims[j] == N(1)) {
      ++j;
      continue;
    }
    if (i >= old_dims.size()) return std::nullopt;
    size_t i_end = i + 1, j_end = j + 1;
    N have = old_dims[i], want = dims[j];
    while (!(have == want)) {
      const auto less = is_less(have, want);
      if (!less) return std::nullopt;
      if (*less) {
        if (i_end >= old_dims.size()) return std::nullopt;
        have = have * old_dims[i_end++];
      } else {
        if (j_end >= dims.size()) return std::nullopt;
        want = want * dims[j_end++];
      }
    }
    for (size_t k = i; k + 1 < i_end; ++k)
      if (!(old_strides[k] == old_strides[k + 1] * old_dims[k + 1])) return std::nullopt;
    N stride = old_strides[i_end - 1];
    for (size_t k = j_end; k-- > j;) {
      out.strides[k] = stride;
      stride = stride * dims[k];
    }
    i = i_end, j = j_end;
  }
  return out;
}

template <class V>
V transposed(const V& v, const Ints& perm) {
  V out = v;
  for (size_t d = 0; d < perm.size(); ++d) {
    out.dims[d] = v.dims[static_cast<size_t>(perm[d])];
    out.strides[d] = v.strides[static_cast<size_t>(perm[d])];
  }
  return out;
}

template <class V, class Dims>
V broadcast(const V& v, const Dims& dims) {
  using N = NumberOf<V>;
  V out = v;
  out.dims = dims;
  out.strides.assign(dims.size(), N(0));
  const size_t extra = dims.size() - v.dims.size();
  for (size_t d = 0; d < v.dims.size(); ++d)
    if (!(v.dims[d] == N(1))) out.strides[d + extra] = v.strides[d];
  return out;
}

}  // namespace

int64_t View::elements() const { return product(dims); }
bool View::is_dense() const { return rlx::dense<View>(*this); }
bool Layout::is_dense() const { return rlx::dense<Layout>(*this); }

View View::dense(int32_t buffer, const Type& type) {
  View v;
  v.buffer = buffer;
  v.dtype = type.dtype;
  v.dims = type.shape.sizes();
  v.strides = row_major_strides(v.dims);
  return v;
}

Layout Layout::dense(const Type& type) {
  return {type.dtype, type.shape, dense_strides(type.shape)};
}

Layout Layout::of(const View& v) { return {v.dtype, Shape::of(v.dims), Shape::of(v.strides)}; }

bool covers(const View& v, const Buffer& b) {
  return v.offset == 0 && v.is_dense() && v.elements() * size_of(v.dtype) == b.bytes;
}

std::optional<View> view_reshape(const View& v, const Ints& dims) { return reshaped(v, dims); }
std::optional<Layout> view_reshape(const Layout& v, const Shape& dims) { return reshaped(v, dims); }

View view_transpose(const View& v, const Ints& perm) { return transposed(v, perm); }
Layout view_transpose(const Layout& v, const Ints& perm) { return transposed(v, perm); }

View view_slice(const View& v, const Ints& start, const Ints& limit, const Ints& stride) {
  View out = v;
  for (size_t d = 0; d < v.dims.size(); ++d) {
    const int64_t step = stride.empty() ? 1 : stride[d];
    const int64_t end = limit.empty() ? v.dims[d] : limit[d];
    out.offset += start[d] * v.strides[d];
    out.dims[d] = end > start[d] ? ceil_div(end - start[d], step) : 0;
    out.strides[d] = v.strides[d] * step;
  }
  return out;
}

Layout view_slice(const Layout& v, const Ints& stride, const Shape& result) {
  Layout out = v;
  out.dims = result;
  for (size_t d = 0; d < stride.size(); ++d) out.strides[d] = v.strides[d] * Dim(stride[d]);
  return out;
}

View view_broadcast(const View& v, const Ints& dims) { return broadcast(v, dims); }
Layout view_broadcast(const Layout& v, const Shape& dims) { return broadcast(v, dims); }

View view_reverse(const View& v, const Ints& axes) {
  View out = v;
  for (int64_t a : axes) {
    const auto d = static_cast<size_t>(a);
    if (v.dims[d] > 0) out.offset += (v.dims[d] - 1) * v.strides[d];
    out.strides[d] = -v.strides[d];
  }
  return out;
}

Layout view_reverse(const Layout& v, const Ints& axes) {
  Layout out = v;
  for (int64_t a : axes)
    out.strides[static_cast<size_t>(a)] = Dim(-1) * v.strides[static_cast<size_t>(a)];
  return out;
}

}  // namespace rlx
