#include "rlx/lower/lir.h"

namespace rlx {

int64_t View::elements() const { return product(dims); }

bool View::is_dense() const {
  int64_t expected = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 0) return true;
    if (dims[i] != 1 && strides[i] != expected) return false;
    if (__builtin_mul_overflow(expected, dims[i], &expected)) return true;  // some other size is 0
  }
  return true;
}

View View::dense(int32_t buffer, const Type& type) {
  View v;
  v.buffer = buffer;
  v.dtype = type.dtype;
  v.dims = type.shape.sizes();
  v.strides = row_major_strides(v.dims);
  return v;
}

bool covers(const View& v, const Buffer& b) {
  return v.offset == 0 && v.is_dense() && v.elements() * size_of(v.dtype) == b.bytes;
}

std::optional<View> view_reshape(const View& v, const Ints& dims) {
  View out = v;
  out.dims = dims;
  if (v.is_dense()) {
    out.strides = row_major_strides(dims);
    return out;
  }
  // Match groups of old dims with groups of new dims of equal product; within a group the old
  // strides must be contiguous.
  Ints old_dims, old_strides;
  for (size_t i = 0; i < v.dims.size(); ++i)
    if (v.dims[i] != 1) old_dims.push_back(v.dims[i]), old_strides.push_back(v.strides[i]);
  out.strides.assign(dims.size(), 0);
  size_t i = 0, j = 0;
  while (j < dims.size()) {
    if (dims[j] == 1) {
      ++j;
      continue;
    }
    if (i >= old_dims.size()) return std::nullopt;
    size_t i_end = i + 1, j_end = j + 1;
    int64_t have = old_dims[i], want = dims[j];
    while (have != want) {
      if (have < want) {
        if (i_end >= old_dims.size()) return std::nullopt;
        have *= old_dims[i_end++];
      } else {
        if (j_end >= dims.size()) return std::nullopt;
        want *= dims[j_end++];
      }
    }
    for (size_t k = i; k + 1 < i_end; ++k)
      if (old_strides[k] != old_strides[k + 1] * old_dims[k + 1]) return std::nullopt;
    int64_t stride = old_strides[i_end - 1];
    for (size_t k = j_end; k-- > j;) {
      out.strides[k] = stride;
      stride *= dims[k];
    }
    i = i_end, j = j_end;
  }
  return out;
}

View view_transpose(const View& v, const Ints& perm) {
  View out = v;
  for (size_t d = 0; d < perm.size(); ++d) {
    out.dims[d] = v.dims[static_cast<size_t>(perm[d])];
    out.strides[d] = v.strides[static_cast<size_t>(perm[d])];
  }
  return out;
}

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

View view_broadcast(const View& v, const Ints& dims) {
  View out = v;
  out.dims = dims;
  out.strides.assign(dims.size(), 0);
  const size_t extra = dims.size() - v.dims.size();
  for (size_t d = 0; d < v.dims.size(); ++d)
    out.strides[d + extra] = v.dims[d] == 1 ? 0 : v.strides[d];
  return out;
}

View view_reverse(const View& v, const Ints& axes) {
  View out = v;
  for (int64_t a : axes) {
    const auto d = static_cast<size_t>(a);
    if (v.dims[d] > 0) out.offset += (v.dims[d] - 1) * v.strides[d];
    out.strides[d] = -v.strides[d];
  }
  return out;
}

}  // namespace rlx
