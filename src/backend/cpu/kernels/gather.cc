#include "rlx/backend/cpu/kernels/gather.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/kernels/index.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kBlockBytes = 16 << 10;

// Indices handled by one gather block.
int64_t gather_rows(const GatherProblem& p) {
  const int64_t row = std::max<int64_t>(1, p.inner * static_cast<int64_t>(p.element_bytes));
  return std::clamp<int64_t>(kBlockBytes / row, 1, std::max<int64_t>(p.count, 1));
}

// Target rows owned by one scatter block: every block reads all indices, so there are only a few of
// them, and fewer when an index carries little work.
int64_t scatter_rows(const ScatterAddProblem& p) {
  const int64_t parts = p.inner >= 16 ? 16 : 4;
  return std::max<int64_t>(1, ceil_div(p.axis, parts));
}

// What sums are kept in: the storage itself where it is exact or wide enough, f32 for the halves.
template <class S>
struct Adder {
  static S add(S a, S b) { return Element<S>::put(Element<S>::get(a) + Element<S>::get(b)); }
};
template <>
struct Adder<c64_t> {
  static c64_t add(c64_t a, c64_t b) { return {a.re + b.re, a.im + b.im}; }
};

template <class S>
constexpr bool kHalf = std::is_same_v<S, f16_t> || std::is_same_v<S, bf16_t>;

// Adds the updates whose index lies in rows [first, first + rows) to `target`, whose row 0 is
// `first`.
template <class S, class Target>
void add_rows(const ScatterAddProblem& p, const S* updates, const void* indices, uint32_t* flag,
              int64_t first, int64_t rows, Target* target, int64_t target_row) {
  const Index index(indices, p.index_dtype, p.axis, flag);
  for (int64_t u = 0; u < p.count; ++u) {
    const int64_t row = index(u) - first;
    if (row < 0 || row >= rows) continue;
    const S* const from = updates + u * p.updates_count;
    Target* const to = target + row * target_row;
    for (int64_t t = 0; t < p.inner; ++t) {
      if constexpr (kHalf<S>) {
        to[t] += Element<S>::get(from[t]);
      } else {
        to[t] = Adder<S>::add(to[t], from[t]);
      }
    }
  }
}

template <class S>
void scatter_block(const ScatterAddProblem& p, const S* updates, const void* indices, S* out,
                   uint32_t* flag, int64_t first, int64_t rows, void* scratch) {
  if constexpr (kHalf<S>) {
    float* const sums = static_cast<float*>(scratch);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < p.inner; ++t) {
        sums[r * p.inner + t] = p.zero ? 0.f : Element<S>::get(out[(first + r) * p.out_axis + t]);
      }
    }
    add_rows(p, updates, indices, flag, first, rows, sums, p.inner);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < p.inner; ++t) {
        out[(first + r) * p.out_axis + t] = Element<S>::put(sums[r * p.inner + t]);
      }
    }
  } else {
    S* const target = out + first * p.out_axis;
    if (p.zero) {
      for (int64_t r = 0; r < rows; ++r) std::fill_n(target + r * p.out_axis, p.inner, S{});
    }
    add_rows(p, updates, indices, flag, first, rows, target, p.out_axis);
  }
}

}  // namespace

void GatherProblem::set_dense() {
  table_axis = out_count = inner;
  table_outer = axis * inner;
  out_outer = count * inner;
}

int64_t gather_blocks(const GatherProblem& p) {
  return p.inner == 0 ? 0 : p.outer * ceil_div(p.count, gather_rows(p));
}

void gather(const GatherProblem& p, const void* table, const void* indices, void* out,
            uint32_t* flag, int64_t begin, int64_t end) {
  const int64_t rows = gather_rows(p), chunks = ceil_div(p.count, rows);
  const int64_t bytes = static_cast<int64_t>(p.element_bytes);
  const size_t row_bytes = static_cast<size_t>(p.inner * bytes);
  const Index index(indices, p.index_dtype, p.axis, flag);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t o = block / chunks, first = block % chunks * rows,
                  last = std::min(p.count, first + rows);
    const char* const source = static_cast<const char*>(table) + o * p.table_outer * bytes;
    char* const target = static_cast<char*>(out) + o * p.out_outer * bytes;
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = index(i);
      if (p.axis == 0) {
        std::memset(target + i * p.out_count * bytes, 0, row_bytes);
      } else {
        std::memcpy(target + i * p.out_count * bytes, source + row * p.table_axis * bytes,
                    row_bytes);
      }
    }
  }
}

void ScatterAddProblem::set_dense() {
  updates_count = out_axis = inner;
  updates_outer = count * inner;
  out_outer = axis * inner;
}

int64_t scatter_add_blocks(const ScatterAddProblem& p) {
  // An empty axis still gets one block, which reports indices as out of range.
  return p.outer * (p.axis == 0 ? 1 : ceil_div(p.axis, scatter_rows(p)));
}

size_t scatter_add_scratch_bytes(const ScatterAddProblem& p) {
  const bool half = p.dtype == DType::F16 || p.dtype == DType::BF16;
  return half ? static_cast<size_t>(scatter_rows(p) * p.inner) * sizeof(float) : 0;
}

void scatter_add(const ScatterAddProblem& p, const void* updates, const void* indices, void* out,
                 uint32_t* flag, int64_t begin, int64_t end, void* scratch) {
  const int64_t rows = scatter_rows(p), parts = std::max<int64_t>(1, ceil_div(p.axis, rows));
  visit_dtype(p.dtype, [&]<class S>() {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t o = block / parts, first = block % parts * rows;
      scatter_block<S>(p, static_cast<const S*>(updates) + o * p.updates_outer, indices,
                       static_cast<S*>(out) + o * p.out_outer, flag, first,
                       std::min(rows, p.axis - first), scratch);
    }
  });
}

}  // namespace rlx::cpu
