#include "rlx/codegen/region_access.h"

namespace rlx::codegen {

std::vector<LoopNest::Dim> LoopNest::merge(const Ints& domain, const std::vector<Ints>& strides,
                                           const Ints& axes) {
  std::vector<Dim> dims;
  for (int64_t a : axes) {
    const auto axis = static_cast<size_t>(a);
    if (domain[axis] == 1) continue;
    bool joins = !dims.empty();
    for (const Ints& s : strides) joins = joins && s[dims.back().axis] == s[axis] * domain[axis];
    if (joins)
      dims.back() = {dims.back().size * domain[axis], axis, {}};
    else
      dims.push_back({domain[axis], axis, {}});
  }
  return dims;
}

LoopNest LoopNest::make(const Ints& domain, const std::vector<Ints>& strides, const Ints& axes) {
  LoopNest n;
  n.outer_ = merge(domain, strides, axes);
  if (!n.outer_.empty()) {
    n.inner_.push_back(n.outer_.back());
    n.outer_.pop_back();
  }
  for (const Dim& d : n.inner_) n.inner_sizes_.push_back(d.size);
  return n;
}

LoopNest LoopNest::make(const Ints& domain, const std::vector<Ints>& strides, const Ints& outer,
                        const Ints& inner) {
  LoopNest n;
  n.split_ = true;
  n.outer_ = merge(domain, strides, outer);
  n.inner_ = merge(domain, strides, inner);
  for (const Dim& d : n.inner_) n.inner_sizes_.push_back(d.size);
  return n;
}

int64_t LoopNest::outer_size() const {
  int64_t n = 1;
  for (const Dim& d : outer_) n *= d.size;
  return n;
}

int64_t LoopNest::inner_size() const {
  int64_t n = 1;
  for (const Dim& d : inner_) n *= d.size;
  return n;
}

int64_t LoopNest::last_size() const {
  const std::vector<Dim>& dims = split_ ? outer_ : inner_;
  return dims.empty() ? 1 : dims.back().size;
}

void LoopNest::bind_flat(KernelBuilder& b, std::span<Dim> dims, Value flat) {
  if (dims.empty()) return;
  if (dims.size() == 1) {
    dims[0].index = {{1, flat}};
    return;
  }
  std::vector<Size> sizes;
  for (const Dim& d : dims) sizes.push_back(Size(d.size));
  const std::vector<Value> index = b.unflatten(flat, sizes);
  for (size_t i = 0; i < dims.size(); ++i) dims[i].index = {{1, index[i]}};
}

void LoopNest::bind_outer(KernelBuilder& b, Value flat) { bind_flat(b, outer_, flat); }

void LoopNest::bind_outer_but_last(KernelBuilder& b, Value flat) {
  if (!outer_.empty()) bind_flat(b, std::span(outer_).first(outer_.size() - 1), flat);
}

void LoopNest::bind_last(Value i) {
  if (!outer_.empty()) outer_.back().index = {{1, i}};
}

void LoopNest::bind_last_tile(Value tile, int64_t size, Value i) {
  if (!outer_.empty()) outer_.back().index = {{size, tile}, {1, i}};
}

void LoopNest::bind_tile(Value tile, int64_t size, Value i) {
  if (!inner_.empty()) inner_[0].index = {{size, tile}, {1, i}};
}

void LoopNest::bind_inner(Value i) {
  if (!inner_.empty()) inner_[0].index = {{1, i}};
}

void LoopNest::bind_inner_flat(KernelBuilder& b, Value i) {
  inner_flat_ = i;
  bind_flat(b, inner_, i);
}

void LoopNest::bind_inner_dim(size_t d, Value j) { inner_[d].index = {{1, j}}; }

void LoopNest::bind_inner_tile(size_t d, Value tile, int64_t size, Value j) {
  inner_[d].index = {{size, tile}, {1, j}};
}

void LoopNest::leave_inner() {
  for (Dim& d : inner_) d.index.clear();
}

template <class F>
void LoopNest::each_term(const Ints& strides, F&& f) const {
  for (const auto* dims : {&outer_, &inner_})
    for (const Dim& d : *dims) {
      if (strides[d.axis] == 0) continue;
      check(!d.index.empty(), "a region reads an element outside the loop over it");
      for (const auto& [factor, value] : d.index) f(strides[d.axis] * factor, value);
    }
}

Address LoopNest::address(const Ints& strides) const {
  Address a;
  each_term(strides, [&](int64_t stride, Value v) { a.push_back({Size(stride), v}); });
  return a;
}

Value LoopNest::linear(KernelBuilder& b, const Ints& strides) const {
  Value sum;
  each_term(strides, [&](int64_t stride, Value v) {
    const Value term = stride == 1 ? v : b.mul(v, b.integer(DType::I64, stride));
    sum = sum ? b.add(sum, term) : term;
  });
  return sum ? sum : b.integer(DType::I64, 0);
}

}  // namespace rlx::codegen
