#include "rlx/backend/cpu/kernels/movement/copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kBlockElements = 16 << 10;

template <class T>
struct Rect {
  const T* source;
  T* target;
  int64_t rows, cols;
  int64_t source_row, source_col, target_row, target_col;
};

template <class T>
void move(const Rect<T>& r, TransposeFn transpose) {
  if (r.target_col == 1 && r.source_col == 1) {
    for (int64_t i = 0; i < r.rows; ++i) {
      std::memcpy(r.target + i * r.target_row, r.source + i * r.source_row,
                  static_cast<size_t>(r.cols) * sizeof(T));
    }
    return;
  }
  if (r.target_col == 1 && r.source_col == 0) {
    for (int64_t i = 0; i < r.rows; ++i)
      std::fill_n(r.target + i * r.target_row, r.cols, r.source[i * r.source_row]);
    return;
  }
  if (r.target_col == 1 && r.source_row == 1)
    return transpose(r.source, r.source_col, r.target, r.target_row, r.rows, r.cols);
  for (int64_t i = 0; i < r.rows; ++i) {
    const T* const source = r.source + i * r.source_row;
    T* const target = r.target + i * r.target_row;
    for (int64_t j = 0; j < r.cols; ++j) target[j * r.target_col] = source[j * r.source_col];
  }
}

}  // namespace

CopyPlan CopyPlan::make(size_t element_bytes, std::span<const int64_t> dims,
                        std::span<const int64_t> source_strides,
                        std::span<const int64_t> target_strides) {
  check(element_bytes == 1 || element_bytes == 2 || element_bytes == 4 || element_bytes == 8,
        "copy of elements of {} bytes", element_bytes);
  check(dims.size() == source_strides.size() && dims.size() == target_strides.size(),
        "copy: ranks {}, {}, {}", dims.size(), source_strides.size(), target_strides.size());
  CopyPlan plan;
  plan.element_bytes_ = element_bytes;
  plan.transpose_ = transpose_fn(host_isa(), element_bytes);
  std::vector<Dim> list;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return plan;  // nothing to copy: no blocks
    if (dims[i] != 1) list.push_back({dims[i], source_strides[i], target_strides[i]});
  }
  // Outermost first as the target lies; neighbours that are one run in both become one dim.
  std::stable_sort(list.begin(), list.end(), [](const Dim& a, const Dim& b) {
    return std::abs(a.target) > std::abs(b.target);
  });
  std::vector<Dim> merged;
  for (const Dim& d : list) {
    if (!merged.empty() && merged.back().source == d.size * d.source &&
        merged.back().target == d.size * d.target) {
      merged.back() = {merged.back().size * d.size, d.source, d.target};
    } else {
      merged.push_back(d);
    }
  }
  if (!merged.empty()) {
    plan.cols_ = merged.back();
    merged.pop_back();
  }
  if (!merged.empty()) {
    // Rows: where the source is dense, if that is not along the columns; else the next dim out.
    auto rows = merged.end() - 1;
    if (plan.cols_.source != 1 && plan.cols_.source != 0) {
      const auto dense =
          std::find_if(merged.begin(), merged.end(), [](const Dim& d) { return d.source == 1; });
      if (dense != merged.end()) rows = dense;
    }
    plan.rows_ = *rows;
    merged.erase(rows);
  }
  plan.outer_ = std::move(merged);
  plan.block_cols_ = std::min(plan.cols_.size, kBlockElements);
  plan.block_rows_ =
      std::min(plan.rows_.size, std::max<int64_t>(1, kBlockElements / plan.block_cols_));
  if (plan.rows_.source == 1 && plan.cols_.source > 1 &&
      plan.rows_.size > 1) {  // a transposition: squarish blocks
    plan.block_cols_ = std::min<int64_t>(plan.cols_.size, 128);
    plan.block_rows_ = std::min<int64_t>(plan.rows_.size, 128);
  }
  plan.blocks_ =
      ceil_div(plan.rows_.size, plan.block_rows_) * ceil_div(plan.cols_.size, plan.block_cols_);
  for (const Dim& d : plan.outer_) plan.blocks_ *= d.size;
  return plan;
}

template <typename T>
void CopyPlan::run_blocks(const T* source, T* target, int64_t begin, int64_t end) const {
  const int64_t across = ceil_div(cols_.size, block_cols_),
                down = ceil_div(rows_.size, block_rows_);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t j = block % across * block_cols_;
    const int64_t i = block / across % down * block_rows_;
    int64_t rest = block / across / down;
    int64_t from = i * rows_.source + j * cols_.source, to = i * rows_.target + j * cols_.target;
    for (auto d = outer_.rbegin(); d != outer_.rend(); ++d) {
      from += rest % d->size * d->source;
      to += rest % d->size * d->target;
      rest /= d->size;
    }
    move(Rect<T>{source + from, target + to, std::min(block_rows_, rows_.size - i),
                 std::min(block_cols_, cols_.size - j), rows_.source, cols_.source, rows_.target,
                 cols_.target},
         transpose_);
  }
}

void CopyPlan::run(const void* source, void* target, int64_t begin, int64_t end) const {
  switch (element_bytes_) {
    case 1:
      return run_blocks(static_cast<const uint8_t*>(source), static_cast<uint8_t*>(target), begin,
                        end);
    case 2:
      return run_blocks(static_cast<const uint16_t*>(source), static_cast<uint16_t*>(target), begin,
                        end);
    case 4:
      return run_blocks(static_cast<const uint32_t*>(source), static_cast<uint32_t*>(target), begin,
                        end);
    default:
      return run_blocks(static_cast<const uint64_t*>(source), static_cast<uint64_t*>(target), begin,
                        end);
  }
}

}  // namespace rlx::cpu
