#include "rlx/codegen/region_access.h"

namespace rlx::codegen {

Size RegionBuilder::word(Amount value) {
  words_.push_back(std::move(value));
  return size();
}

Size RegionBuilder::size(const Amount& value) {
  if (const auto n = value.constant()) return Size(*n);
  for (size_t i = 0; i < words_.size(); ++i)
    if (words_[i] == value) return Size::arg(static_cast<int32_t>(i));
  return word(value);
}

std::vector<LoopNest::Loop> LoopNest::merge(const Shape& domain, const std::vector<Shape>& strides,
                                            const Ints& axes) {
  std::vector<Loop> loops;
  for (int64_t a : axes) {
    const auto axis = static_cast<size_t>(a);
    if (domain[axis] == Dim(1)) continue;
    bool joins = !loops.empty();
    for (const Shape& s : strides) joins = joins && s[loops.back().axis] == s[axis] * domain[axis];
    if (joins)
      loops.back() = {loops.back().size * domain[axis], axis, {}};
    else
      loops.push_back({domain[axis], axis, {}});
  }
  return loops;
}

LoopNest LoopNest::make(const Shape& domain, const std::vector<Shape>& strides, const Ints& axes) {
  LoopNest n;
  n.outer_ = merge(domain, strides, axes);
  if (!n.outer_.empty()) {
    n.inner_.push_back(n.outer_.back());
    n.outer_.pop_back();
  }
  for (const Loop& d : n.inner_) n.inner_sizes_.push_back(d.size);
  return n;
}

LoopNest LoopNest::make(const Shape& domain, const std::vector<Shape>& strides, const Ints& outer,
                        const Ints& inner) {
  LoopNest n;
  n.split_ = true;
  n.outer_ = merge(domain, strides, outer);
  n.inner_ = merge(domain, strides, inner);
  for (const Loop& d : n.inner_) n.inner_sizes_.push_back(d.size);
  return n;
}

Dim LoopNest::size_of(std::span<const Loop> loops) {
  Dim n(1);
  for (const Loop& d : loops) n = n * d.size;
  return n;
}

Dim LoopNest::outer_size() const { return size_of(outer_); }
Dim LoopNest::outer_size_but_last() const {
  return outer_.empty() ? Dim(1) : size_of(std::span(outer_).first(outer_.size() - 1));
}
Dim LoopNest::inner_size() const { return size_of(inner_); }

Dim LoopNest::last_size() const {
  const std::vector<Loop>& loops = split_ ? outer_ : inner_;
  return loops.empty() ? Dim(1) : loops.back().size;
}

void LoopNest::bind_flat(RegionBuilder& b, std::span<Loop> loops, ValueId flat) {
  if (loops.empty()) return;
  if (loops.size() == 1) {
    loops[0].index = {{1, flat}};
    return;
  }
  std::vector<Size> sizes{Size(1)};  // the first does not matter
  for (const Loop& d : loops.subspan(1)) sizes.push_back(b.size(d.size));
  const std::vector<ValueId> index = b.unflatten(flat, sizes);
  for (size_t i = 0; i < loops.size(); ++i) loops[i].index = {{1, index[i]}};
}

void LoopNest::bind_outer(RegionBuilder& b, ValueId flat) { bind_flat(b, outer_, flat); }

void LoopNest::bind_outer_but_last(RegionBuilder& b, ValueId flat) {
  if (!outer_.empty()) bind_flat(b, std::span(outer_).first(outer_.size() - 1), flat);
}

void LoopNest::bind_last(ValueId i) {
  if (!outer_.empty()) outer_.back().index = {{1, i}};
}

void LoopNest::bind_last_tile(ValueId tile, int64_t size, ValueId i) {
  if (!outer_.empty()) outer_.back().index = {{size, tile}, {1, i}};
}

void LoopNest::bind_tile(ValueId tile, int64_t size, ValueId i) {
  if (!inner_.empty()) inner_[0].index = {{size, tile}, {1, i}};
}

void LoopNest::bind_inner(ValueId i) {
  if (!inner_.empty()) inner_[0].index = {{1, i}};
}

void LoopNest::bind_inner_flat(RegionBuilder& b, ValueId i) {
  inner_flat_ = i;
  bind_flat(b, inner_, i);
}

void LoopNest::bind_inner_dim(size_t d, ValueId j) { inner_[d].index = {{1, j}}; }

void LoopNest::bind_inner_tile(size_t d, ValueId tile, const Amount& size, ValueId j) {
  inner_[d].index = {{size, tile}, {1, j}};
}

void LoopNest::leave_inner() {
  for (Loop& d : inner_) d.index.clear();
}

template <class F>
void LoopNest::each_term(const Shape& strides, F&& f) const {
  for (const auto* loops : {&outer_, &inner_})
    for (const Loop& d : *loops) {
      if (strides[d.axis] == Dim(0)) continue;
      check(!d.index.empty(), "a region reads an element outside the loop over it");
      for (const auto& [factor, value] : d.index) f(Amount(strides[d.axis]) * factor, value);
    }
}

Address LoopNest::address(RegionBuilder& b, const Shape& strides) const {
  Address a;
  each_term(strides, [&](const Amount& stride, ValueId v) { a.push_back({b.size(stride), v}); });
  return a;
}

ValueId LoopNest::linear(RegionBuilder& b, const Shape& strides) const {
  ValueId sum;
  each_term(strides, [&](const Amount& stride, ValueId v) {
    const auto known = stride.constant();
    const ValueId term =
        known == 1 ? v
                   : b.mul(v, known ? b.integer(DType::I64, *known) : b.size_value(b.size(stride)));
    sum = sum ? b.add(sum, term) : term;
  });
  return sum ? sum : b.integer(DType::I64, 0);
}

}  // namespace rlx::codegen
