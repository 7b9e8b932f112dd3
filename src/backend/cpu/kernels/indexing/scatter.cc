#include "rlx/backend/cpu/kernels/indexing/scatter.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/indexing/index.h"
#include "rlx/backend/cpu/kernels/indexing/row_sums.h"
#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

template <ScatterKind kind, class S>
S combine(S a, S b) {
  if constexpr (kind == ScatterKind::set) {
    return b;
  } else if constexpr (std::is_same_v<S, c64_t>) {
    if (kind == ScatterKind::mul) return a * b;
    return {a.re + b.re, a.im + b.im};
  } else if constexpr (kind == ScatterKind::add) {
    return Element<S>::put(Element<S>::get(a) + Element<S>::get(b));
  } else if constexpr (kind == ScatterKind::mul) {
    return Element<S>::put(Element<S>::get(a) * Element<S>::get(b));
  } else {
    const auto p = order_value(a), q = order_value(b);
    const bool keeps = p != p || (kind == ScatterKind::min ? p <= q : q <= p);
    return keeps ? a : b;
  }
}

template <class S>
constexpr bool kHalf = std::is_same_v<S, f16_t> || std::is_same_v<S, bf16_t>;

// Whether what adding an update rounds away is kept and added with the next: where an element may get
// more updates than are added plainly.
bool compensates(const ScatterProblem& p) {
  return p.kind == ScatterKind::add && is_float(p.dtype) && p.count > kPlainTerms;
}

// There are two ways. Either the updates of each row are brought together first, and a row is written
// once; or they are combined as they come, which costs less where there is little to a row. Both give
// the same bits.
bool brings_together(const ScatterProblem& p) {
  constexpr int64_t kMost = int64_t{1} << 32;  // rows and updates are numbers of 32 bits
  return p.axis < kMost && p.count < kMost && (p.inner >= 8 || p.count < p.axis / 16);
}

// Target rows owned by one block: every block reads all indices, so there are only a few of them, and
// fewer when an index carries little work.
int64_t scatter_rows(const ScatterProblem& p) {
  const int64_t wanted = std::clamp<int64_t>(p.inner / 16, 4, 16);
  const int64_t parts =
      brings_together(p) ? ceil_div(wanted, std::max<int64_t>(1, p.outer)) : wanted;
  return std::max<int64_t>(1, ceil_div(p.axis, parts));
}

int64_t scatter_parts(const ScatterProblem& p) {
  return std::max<int64_t>(1, ceil_div(p.axis, scatter_rows(p)));
}

int64_t compute_bytes(const ScatterProblem& p) { return p.dtype == DType::F64 ? 8 : 4; }

// How many rows are combined at a time as updates come: several blocks' where they stay in the cache.
int64_t rows_at_once(const ScatterProblem& p) {
  constexpr int64_t kBytes = 128 << 10;
  return std::max(scatter_rows(p),
                  std::min(p.axis, kBytes / std::max<int64_t>(1, p.inner * compute_bytes(p))));
}

size_t values_bytes(const ScatterProblem& p) {
  return static_cast<size_t>(rows_at_once(p) * p.inner * compute_bytes(p));
}

// ---- as they come

// Combines the updates whose index lies in rows [first, first + rows) with `target`, whose row 0 is
// `first` and which is in the type of computation for the halves. lost: nullptr, or zeros [rows,
// inner] for what additions round away.
template <ScatterKind kind, class S, class Target>
void combine_rows(const ScatterProblem& p, const S* updates, const Index& index, int64_t first,
                  int64_t rows, Target* target, int64_t target_row, Target* lost) {
  for_each_run(index, 0, p.count, [&](int64_t begin, int64_t n, const int64_t* places) {
    for (int64_t k = 0; k < n; ++k) {
      const int64_t row = places[k] - first;
      if (row < 0 || row >= rows) continue;
      const S* const from = updates + (begin + k) * p.updates_count;
      Target* const to = target + row * target_row;
      if constexpr (kind == ScatterKind::add && std::is_floating_point_v<Target>) {
        if (lost) {
          Target* const rest = lost + row * p.inner;
          for (int64_t t = 0; t < p.inner; ++t) add_run(to[t], rest[t], Element<S>::get(from[t]));
          continue;
        }
      }
      for (int64_t t = 0; t < p.inner; ++t) {
        if constexpr (kHalf<S>) {
          to[t] = combine<kind>(to[t], Element<S>::get(from[t]));
        } else {
          to[t] = combine<kind>(to[t], from[t]);
        }
      }
    }
  });
  if constexpr (std::is_floating_point_v<Target>)
    for (int64_t r = 0; lost && r < rows; ++r)
      for (int64_t t = 0; t < p.inner; ++t) {
        Target& sum = target[r * target_row + t];  // -0 where nothing was added stays so
        const Target rest = lost[r * p.inner + t];
        sum = rest == 0 ? sum : sum + rest;
      }
}

template <class Target>
Target* cleared_losses(const ScatterProblem& p, int64_t rows, void* memory) {
  if (!compensates(p)) return nullptr;
  std::memset(memory, 0, static_cast<size_t>(rows * p.inner) * sizeof(Target));
  return static_cast<Target*>(memory);
}

// Rows [first, first + rows) become x's, or zeros.
template <class S>
void begin_rows(const ScatterProblem& p, const S* x, S* out, int64_t first, int64_t rows) {
  if (x == out || rows <= 0) return;
  const bool dense = p.out_axis == p.inner;
  const int64_t lines = dense ? 1 : rows, n = dense ? rows * p.inner : p.inner;
  for (int64_t r = 0; r < lines; ++r) {
    const int64_t at = (first + r) * p.out_axis;
    if (x)
      std::copy_n(x + at, n, out + at);
    else
      std::fill_n(out + at, n, S{});
  }
}

template <ScatterKind kind, class S>
void scatter_as_they_come(const ScatterProblem& p, const S* x, const S* updates, const Index& index,
                          S* out, int64_t first, int64_t rows, void* scratch) {
  if constexpr (kHalf<S>) {
    float* const values = static_cast<float*>(scratch);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < p.inner; ++t) {
        values[r * p.inner + t] = x ? Element<S>::get(x[(first + r) * p.out_axis + t]) : 0.f;
      }
    }
    combine_rows<kind>(p, updates, index, first, rows, values, p.inner,
                       cleared_losses<float>(p, rows, values + rows * p.inner));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < p.inner; ++t) {
        out[(first + r) * p.out_axis + t] = Element<S>::put(values[r * p.inner + t]);
      }
    }
  } else {
    begin_rows(p, x, out, first, rows);
    combine_rows<kind>(p, updates, index, first, rows, out + first * p.out_axis, p.out_axis,
                       cleared_losses<S>(p, rows, scratch));
  }
}

// ---- brought together

// An update is row << 32 | its number.
constexpr int64_t row_of(uint64_t update) { return static_cast<int64_t>(update >> 32); }
constexpr int64_t number_of(uint64_t update) { return static_cast<int64_t>(update & 0xffffffff); }

// Few updates are sorted by comparing, many by counting.
bool counts(int64_t updates, int64_t rows) { return updates >= rows / 16; }

// The updates of rows [first, first + rows), counted from `first`, by rows and in a row in their order.
std::span<const uint64_t> updates_of(const ScatterProblem& p, const Index& index, int64_t first,
                                     int64_t rows, void* scratch) {
  auto* const found = static_cast<uint64_t*>(scratch);  // [p.count]
  int64_t n = 0;
  for_each_run(index, 0, p.count, [&](int64_t begin, int64_t many, const int64_t* places) {
    for (int64_t k = 0; k < many; ++k) {  // without a jump that would have to be guessed
      const auto row = static_cast<uint64_t>(places[k] - first);
      found[n] = row << 32 | static_cast<uint64_t>(begin + k);
      n += row < static_cast<uint64_t>(rows);
    }
  });
  if (std::is_sorted(found, found + n)) return {found, found + n};
  if (!counts(n, rows)) {
    std::sort(found, found + n);
    return {found, found + n};
  }
  uint64_t* const sorted = found + p.count;  // [p.count]
  auto* const starts = reinterpret_cast<uint32_t*>(sorted + p.count);
  std::fill_n(starts, rows, 0);
  for (int64_t i = 0; i < n; ++i) ++starts[row_of(found[i])];
  uint32_t before = 0;
  for (int64_t r = 0; r < rows; ++r) before += std::exchange(starts[r], before);
  for (int64_t i = 0; i < n; ++i) sorted[starts[row_of(found[i])]++] = found[i];
  return {sorted, sorted + n};
}

// Bytes that updates_of takes for any rows of the axis.
size_t order_bytes(const ScatterProblem& p) {
  return 2 * static_cast<size_t>(p.count) * sizeof(uint64_t) +
         static_cast<size_t>(std::min(p.axis, 16 * (p.count + 1))) * sizeof(uint32_t);
}

// The updates of one row, at least one. The list of them goes on to `listed`.
template <ScatterKind kind, class S>
void combine_row(const ScatterProblem& p, const S* x, const S* updates,
                 std::span<const uint64_t> which, size_t listed, S* out, float* values,
                 [[maybe_unused]] const RowSumFns& fns) {
  const auto update = [&](uint64_t u) { return updates + number_of(u) * p.updates_count; };
  if constexpr (kind == ScatterKind::set) {
    std::copy_n(update(which.back()), p.inner, out);
  } else if constexpr (kind == ScatterKind::add && std::is_floating_point_v<Compute<S>>) {
    fns.of<S>()(out, x, updates, p.updates_count, which.data(), static_cast<int64_t>(which.size()),
                static_cast<int64_t>(listed), p.inner, compensates(p));
  } else if constexpr (kHalf<S>) {
    for (int64_t t = 0; t < p.inner; ++t) values[t] = x ? Element<S>::get(x[t]) : 0.f;
    for (const uint64_t u : which)
      for (int64_t t = 0; t < p.inner; ++t)
        values[t] = combine<kind>(values[t], Element<S>::get(update(u)[t]));
    for (int64_t t = 0; t < p.inner; ++t) out[t] = Element<S>::put(values[t]);
  } else {
    if (!x)
      std::fill_n(out, p.inner, S{});
    else if (x != out)
      std::copy_n(x, p.inner, out);
    for (const uint64_t u : which) {
      const S* const from = update(u);
      for (int64_t t = 0; t < p.inner; ++t) out[t] = combine<kind>(out[t], from[t]);
    }
  }
}

template <ScatterKind kind, class S>
void scatter_together(const ScatterProblem& p, const S* x, const S* updates,
                      std::span<const uint64_t> all, S* out, int64_t first, int64_t rows,
                      float* values) {
  const RowSumFns fns = row_sum_fns(host_isa());
  int64_t done = 0;
  for (size_t i = 0; i < all.size();) {
    const int64_t row = row_of(all[i]);
    size_t end = i + 1;
    while (end < all.size() && row_of(all[end]) == row) ++end;
    begin_rows(p, x, out, first + done, row - done);
    const int64_t at = (first + row) * p.out_axis;
    combine_row<kind>(p, x ? x + at : nullptr, updates, all.subspan(i, end - i), all.size() - i,
                      out + at, values, fns);
    done = row + 1;
    i = end;
  }
  begin_rows(p, x, out, first + done, rows - done);
}

// ---- blocks

// Blocks go over the outer positions of one part of the rows, then over the next part's. Those of one
// call are taken as few rectangles, since each reads all indices.
template <ScatterKind kind, class S>
void scatter_blocks_of(const ScatterProblem& p, const void* x, const void* updates,
                       const void* indices, void* out, uint32_t* flag, int64_t begin, int64_t end,
                       void* scratch) {
  const Index index(indices, p.index_dtype, p.axis, flag);
  const int64_t part_rows = scatter_rows(p);
  const auto at = [&](int64_t o, auto f) {
    f(x ? static_cast<const S*>(x) + o * p.out_outer : nullptr,
      static_cast<const S*>(updates) + o * p.updates_outer, static_cast<S*>(out) + o * p.out_outer);
  };
  for (int64_t block = begin; block < end;) {
    const int64_t part = block / p.outer, outer = block % p.outer, left = end - block;
    const int64_t parts = outer == 0 ? std::max<int64_t>(1, left / p.outer) : 1;
    const int64_t last = std::min(p.outer, outer + (parts > 1 ? p.outer : left));
    const int64_t first = part * part_rows, rows = std::min(parts * part_rows, p.axis - first);
    block += parts > 1 ? parts * p.outer : last - outer;
    if (brings_together(p)) {
      const auto all = updates_of(p, index, first, rows, scratch);
      auto* const values = reinterpret_cast<float*>(static_cast<char*>(scratch) + order_bytes(p));
      for (int64_t o = outer; o < last; ++o)
        at(o, [&](const S* from, const S* u, S* to) {
          scatter_together<kind>(p, from, u, all, to, first, rows, values);
        });
      continue;
    }
    const int64_t some = rows_at_once(p);
    for (int64_t o = outer; o < last; ++o)
      for (int64_t r = 0; r < std::max<int64_t>(1, rows); r += some)  // an empty axis has indices
        at(o, [&](const S* from, const S* u, S* to) {
          scatter_as_they_come<kind>(p, from, u, index, to, first + r, std::min(some, rows - r),
                                     scratch);
        });
  }
}

// Calls f with the kind as a constant.
template <class F>
void visit_kind(ScatterKind kind, F f) {
  using enum ScatterKind;
  switch (kind) {
    case set:
      return f(std::integral_constant<ScatterKind, set>());
    case add:
      return f(std::integral_constant<ScatterKind, add>());
    case mul:
      return f(std::integral_constant<ScatterKind, mul>());
    case min:
      return f(std::integral_constant<ScatterKind, min>());
    case max:
      return f(std::integral_constant<ScatterKind, max>());
  }
}

}  // namespace

void ScatterProblem::set_dense() {
  updates_count = out_axis = inner;
  updates_outer = count * inner;
  out_outer = axis * inner;
}

// An empty axis still gets one block, which reports indices as out of range.
int64_t scatter_blocks(const ScatterProblem& p) { return p.outer * scatter_parts(p); }

size_t scatter_scratch_bytes(const ScatterProblem& p) {
  if (!brings_together(p)) return (is_narrow(p.dtype) + compensates(p)) * values_bytes(p);
  return order_bytes(p) + is_narrow(p.dtype) * static_cast<size_t>(p.inner) * sizeof(float);
}

void scatter(const ScatterProblem& p, const void* x, const void* updates, const void* indices,
             void* out, uint32_t* flag, int64_t begin, int64_t end, void* scratch) {
  check(!is_complex(p.dtype) || p.kind < ScatterKind::min, "an extremum of c64");
  visit_kind(p.kind, [&](auto kind) {
    visit_dtype(p.dtype, [&]<class S>() {
      scatter_blocks_of<kind(), S>(p, x, updates, indices, out, flag, begin, end, scratch);
    });
  });
}

}  // namespace rlx::cpu
