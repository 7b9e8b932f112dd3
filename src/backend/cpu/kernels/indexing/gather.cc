#include "rlx/backend/cpu/kernels/indexing/gather.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/indexing/index.h"
#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/lines/lines.h"
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

// The indices [first, first + n) as places of the axis, kept until others are asked for: blocks that differ in what is
// outside the axis have the same.
constexpr int64_t kMostPlaces = 512;
class Places {
 public:
  explicit Places(const Index& index) : index_(index) {}
  const int64_t* of(int64_t first, int64_t n) {
    if (first != first_ || n != n_)
      for (int64_t i = 0; i < n; ++i) at_[i] = index_(first + i);
    first_ = first, n_ = n;
    return at_;
  }

 private:
  Index index_;
  int64_t first_ = -1, n_ = 0;
  int64_t at_[kMostPlaces];
};

// Rows of a size that the compiler knows, 0: of `bytes`.
template <size_t size>
void copy_rows(const char* source, int64_t source_row, const int64_t* at, int64_t n, char* target,
               int64_t target_row, size_t bytes) {
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(target + i * target_row, source + at[i] * source_row, size ? size : bytes);
}

void copy_rows(const GatherProblem& p, const char* source, const int64_t* at, int64_t n,
               char* target) {
  const int64_t element = static_cast<int64_t>(p.element_bytes);
  const size_t bytes = static_cast<size_t>(p.inner * element);
  const int64_t from = p.table_axis * element, to = p.out_count * element;
  if (p.axis == 0) {
    for (int64_t i = 0; i < n; ++i) std::memset(target + i * to, 0, bytes);
    return;
  }
  switch (bytes) {
    case 1:
      return copy_rows<1>(source, from, at, n, target, to, bytes);
    case 2:
      return copy_rows<2>(source, from, at, n, target, to, bytes);
    case 4:
      return copy_rows<4>(source, from, at, n, target, to, bytes);
    case 8:
      return copy_rows<8>(source, from, at, n, target, to, bytes);
    case 12:
      return copy_rows<12>(source, from, at, n, target, to, bytes);
    case 16:
      return copy_rows<16>(source, from, at, n, target, to, bytes);
    default:
      return copy_rows<0>(source, from, at, n, target, to, bytes);
  }
}

// Target rows owned by one scatter block: every block reads all indices, so there are only a few of
// them, and fewer when an index carries little work.
int64_t scatter_rows(const ScatterProblem& p) {
  const int64_t parts = p.inner >= 16 ? 16 : 4;
  return std::max<int64_t>(1, ceil_div(p.axis, parts));
}

template <ScatterKind kind, class S>
S combine(S a, S b) {
  if constexpr (kind == ScatterKind::set) {
    return b;
  } else if constexpr (std::is_same_v<S, c64_t>) {
    if (kind == ScatterKind::mul) return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
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
size_t target_bytes(const ScatterProblem& p) {
  return static_cast<size_t>(scatter_rows(p) * p.inner) * (p.dtype == DType::F64 ? 8 : 4);
}

// Combines the updates whose index lies in rows [first, first + rows) with `target`, whose row 0 is
// `first` and which is in the type of computation for the halves. lost: nullptr, or zeros [rows,
// inner] for what additions round away.
template <ScatterKind kind, class S, class Target>
void combine_rows(const ScatterProblem& p, const S* updates, const void* indices, uint32_t* flag,
                  int64_t first, int64_t rows, Target* target, int64_t target_row, Target* lost) {
  const Index index(indices, p.index_dtype, p.axis, flag);
  [[maybe_unused]] const LineFns fns = line_fns(host_isa());
  for (int64_t u = 0; u < p.count; ++u) {
    const int64_t row = index(u) - first;
    if (row < 0 || row >= rows) continue;
    const S* const from = updates + u * p.updates_count;
    Target* const to = target + row * target_row;
    if constexpr (kind == ScatterKind::add && std::is_floating_point_v<Target>) {
      if (lost) {
        Target* const rest = lost + row * p.inner;
        if constexpr (std::is_same_v<S, float>)
          fns.add_run(to, rest, from, p.inner);
        else
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
  if constexpr (std::is_floating_point_v<Target>)
    for (int64_t r = 0; lost && r < rows; ++r)
      for (int64_t t = 0; t < p.inner; ++t) target[r * target_row + t] += lost[r * p.inner + t];
}

template <class Target>
Target* cleared_losses(const ScatterProblem& p, int64_t rows, void* memory) {
  if (!compensates(p)) return nullptr;
  std::memset(memory, 0, static_cast<size_t>(rows * p.inner) * sizeof(Target));
  return static_cast<Target*>(memory);
}

template <ScatterKind kind, class S>
void scatter_block(const ScatterProblem& p, const S* x, const S* updates, const void* indices,
                   S* out, uint32_t* flag, int64_t first, int64_t rows, void* scratch) {
  if constexpr (kHalf<S>) {
    float* const values = static_cast<float*>(scratch);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < p.inner; ++t) {
        values[r * p.inner + t] = x ? Element<S>::get(x[(first + r) * p.out_axis + t]) : 0.f;
      }
    }
    combine_rows<kind>(p, updates, indices, flag, first, rows, values, p.inner,
                       cleared_losses<float>(p, rows, values + rows * p.inner));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < p.inner; ++t) {
        out[(first + r) * p.out_axis + t] = Element<S>::put(values[r * p.inner + t]);
      }
    }
  } else {
    S* const target = out + first * p.out_axis;
    for (int64_t r = 0; r < rows; ++r) {
      S* const row = target + r * p.out_axis;
      if (!x) {
        std::fill_n(row, p.inner, S{});
      } else if (x != out) {
        std::copy_n(x + (first + r) * p.out_axis, p.inner, row);
      }
    }
    combine_rows<kind>(p, updates, indices, flag, first, rows, target, p.out_axis,
                       cleared_losses<S>(p, rows, scratch));
  }
}

template <ScatterKind kind, class S>
void scatter_blocks_of(const ScatterProblem& p, const void* x, const void* updates,
                       const void* indices, void* out, uint32_t* flag, int64_t begin, int64_t end,
                       void* scratch) {
  const int64_t rows = scatter_rows(p), parts = std::max<int64_t>(1, ceil_div(p.axis, rows));
  for (int64_t block = begin; block < end; ++block) {
    const int64_t o = block / parts, first = block % parts * rows;
    scatter_block<kind>(p, x ? static_cast<const S*>(x) + o * p.out_outer : nullptr,
                        static_cast<const S*>(updates) + o * p.updates_outer, indices,
                        static_cast<S*>(out) + o * p.out_outer, flag, first,
                        std::min(rows, p.axis - first), scratch);
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
  Places places(Index(indices, p.index_dtype, p.axis, flag));
  for (int64_t block = begin; block < end; ++block) {
    const int64_t o = block / chunks, last = std::min(p.count, (block % chunks + 1) * rows);
    const char* const source = static_cast<const char*>(table) + o * p.table_outer * bytes;
    char* const target = static_cast<char*>(out) + o * p.out_outer * bytes;
    for (int64_t i = block % chunks * rows; i < last; i += kMostPlaces) {
      const int64_t n = std::min(last - i, kMostPlaces);
      copy_rows(p, source, places.of(i, n), n, target + i * p.out_count * bytes);
    }
  }
}

void ScatterProblem::set_dense() {
  updates_count = out_axis = inner;
  updates_outer = count * inner;
  out_outer = axis * inner;
}

int64_t scatter_blocks(const ScatterProblem& p) {
  // An empty axis still gets one block, which reports indices as out of range.
  return p.outer * (p.axis == 0 ? 1 : ceil_div(p.axis, scatter_rows(p)));
}

size_t scatter_scratch_bytes(const ScatterProblem& p) {
  return (is_narrow(p.dtype) + compensates(p)) * target_bytes(p);
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
