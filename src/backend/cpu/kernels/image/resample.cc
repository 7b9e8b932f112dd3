#include "rlx/backend/cpu/kernels/image/resample.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kBlockElements = 1 << 14;
constexpr int64_t kPartElements = 1 << 10;  // of a row, read or made at once where rows are turned

int64_t product(const Ints& sizes, int64_t begin, int64_t end) {
  int64_t p = 1;
  for (int64_t a = begin; a < end; ++a) p *= sizes[static_cast<size_t>(a)];
  return p;
}

template <class S>
ResampleFns fns_of(bool first, bool last, Isa isa) {
  return for_isa(isa, [&](auto width) {
    return first && last ? resample_fns<S, S, width>()
           : first       ? resample_fns<S, float, width>()
           : last        ? resample_fns<float, S, width>()
                         : resample_fns<float, float, width>();
  });
}

ResampleFns fns_of(DType dtype, bool first, bool last, Isa isa) {
  if (dtype == DType::F16) return fns_of<f16_t>(first, last, isa);
  if (dtype == DType::BF16) return fns_of<bf16_t>(first, last, isa);
  check(dtype == DType::F32, "resampling of {}", dtype);
  return fns_of<float>(first, last, isa);
}

}  // namespace

ResamplePlan::ResamplePlan(DType dtype, Ints sizes, Isa isa)
    : dtype_(dtype), isa_(isa), sizes_(std::move(sizes)) {}

void ResamplePlan::add(Axis axis) {
  const auto rank = std::ssize(sizes_);
  const int64_t before = levels_.empty() ? 0 : levels_.back().axis.axis + 1;
  Level level;
  level.from = sizes_[static_cast<size_t>(axis.axis)];
  level.rest = product(sizes_, axis.axis + 1, rank);
  level.lead = product(sizes_, before, axis.axis);
  sizes_[static_cast<size_t>(axis.axis)] = axis.to;
  taps_ += axis.taps * product(sizes_, 0, rank);
  level.axis = std::move(axis);
  levels_.push_back(std::move(level));
}

int64_t ResamplePlan::kept_bytes() const {
  int64_t bytes = 0;
  for (const Level& level : levels_)
    bytes +=
        level.axis.to * level.axis.taps * static_cast<int64_t>(sizeof(int64_t) + sizeof(float));
  return bytes;
}

void ResamplePlan::finish() {
  const auto rank = std::ssize(sizes_);
  if (product(sizes_, 0, rank) == 0) return;
  if (levels_.empty()) {
    blocks_ = 1;
    return;
  }
  for (size_t i = levels_.size(); i-- > 0;) {
    Level& level = levels_[i];
    const bool last = i + 1 == levels_.size();
    level.fns = fns_of(dtype_, i == 0, last, isa_);
    level.turned = last && level.rest < level.fns.lanes;
    level.out_row = product(sizes_, level.axis.axis + (level.turned ? 0 : 1), rank);
    level.scratch = scratch_floats_;
    if (level.turned) {
      set_parts(level);
      for (const Part& p : level.parts)
        scratch_floats_ =
            std::max(scratch_floats_, (p.high - p.low) * level.rest * level.fns.lanes);
    } else if (!last) {
      const Level& next = levels_[i + 1];
      if (next.turned) level.rows_at_once = ceil_div(next.fns.lanes, next.lead);
      scratch_floats_ += align_up(level.rows_at_once * level.rest, 16);
    }
  }
  const Level& first = levels_[0];
  rows_per_block_ = first.turned
                        ? first.fns.lanes
                        : align_up(ceil_div(kBlockElements, first.out_row), first.rows_at_once);
  blocks_ = ceil_div(first.rows(), rows_per_block_) * (first.turned ? std::ssize(first.parts) : 1);
}

void ResamplePlan::set_parts(Level& level) const {
  const int64_t to = level.axis.to, taps = level.axis.taps;
  const int64_t most = kPartElements / level.rest;  // rest is below the lanes of a vector
  const int64_t step = std::max<int64_t>(1, level.from > to ? most * to / level.from : most);
  for (int64_t begin = 0; begin < to; begin += step) {
    const int64_t end = std::min(to, begin + step);
    const auto [low, high] = std::minmax_element(level.axis.indices.begin() + begin * taps,
                                                 level.axis.indices.begin() + end * taps);
    level.parts.push_back({begin, end, *low, *high + 1});
  }
}

void ResamplePlan::run_level(size_t i, const char* x, char* y, int64_t begin, int64_t end,
                             float* scratch) const {
  const Level& level = levels_[i];
  const ResampleAxis at = level.at();
  float* const own = scratch + level.scratch;
  if (level.turned) {
    const int64_t in_bytes = i == 0 ? size_of(dtype_) : 4;
    for (const Part& p : level.parts)
      level.fns.columns(at, x + begin * level.in_row() * in_bytes, y, end - begin, p.begin, p.end,
                        p.low, p.high, own);
  } else if (i + 1 == levels_.size()) {
    level.fns.lines(at, x, y, begin, end);
  } else {
    const int64_t row_bytes = level.out_row * size_of(dtype_), per_row = levels_[i + 1].rows();
    for (int64_t r = begin; r < end; r += level.rows_at_once) {
      const int64_t rows = std::min(level.rows_at_once, end - r);
      level.fns.lines(at, x, own, r, r + rows);
      run_level(i + 1, reinterpret_cast<const char*>(own), y + (r - begin) * row_bytes, 0,
                rows * per_row, scratch);
    }
  }
}

void ResamplePlan::run(const void* x, void* y, int64_t begin, int64_t end,
                       std::byte* scratch) const {
  const auto* const from = static_cast<const char*>(x);
  auto* const to = static_cast<char*>(y);
  auto* const floats = reinterpret_cast<float*>(scratch);
  const int64_t bytes = size_of(dtype_);
  if (levels_.empty()) {
    if (begin < end)
      std::memcpy(y, x, static_cast<size_t>(product(sizes_, 0, std::ssize(sizes_)) * bytes));
    return;
  }
  const Level& first = levels_[0];
  const int64_t parts = first.turned ? std::ssize(first.parts) : 1;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t row = block / parts * rows_per_block_,
                  last = std::min(row + rows_per_block_, first.rows());
    char* const result = to + row * first.out_row * bytes;
    if (first.turned) {
      const Part& p = first.parts[static_cast<size_t>(block % parts)];
      first.fns.columns(first.at(), from + row * first.in_row() * bytes, result, last - row,
                        p.begin, p.end, p.low, p.high, floats + first.scratch);
    } else {
      run_level(0, from, result, row, last, floats);
    }
  }
}

}  // namespace rlx::cpu
