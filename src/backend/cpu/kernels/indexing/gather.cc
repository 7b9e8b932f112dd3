#include "rlx/backend/cpu/kernels/indexing/gather.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/kernels/indexing/index.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kBlockBytes = 16 << 10;
constexpr int64_t kTakenPerBlock = 4096;

// Indices handled by one gather block.
int64_t gather_rows(const GatherProblem& p) {
  const int64_t row = std::max<int64_t>(1, p.inner * static_cast<int64_t>(p.element_bytes));
  return std::clamp<int64_t>(kBlockBytes / row, 1, std::max<int64_t>(p.count, 1));
}

struct Bytes12 {  // three channels of f32
  uint32_t parts[3];
};
struct Bytes16 {
  uint64_t halves[2];
};

// Calls f with a type of that many bytes; false when there is none.
template <class F>
bool visit_bytes(int64_t bytes, F f) {
  switch (bytes) {
    case 1:
      return f.template operator()<uint8_t>(), true;
    case 2:
      return f.template operator()<uint16_t>(), true;
    case 4:
      return f.template operator()<uint32_t>(), true;
    case 8:
      return f.template operator()<uint64_t>(), true;
    case 12:
      return f.template operator()<Bytes12>(), true;
    case 16:
      return f.template operator()<Bytes16>(), true;
    default:
      return false;
  }
}

// Rows that come next are asked for before they are copied: no machine guesses where they lie.
constexpr int64_t kLine = 64, kAsked = 8192;  // bytes: of a line of the cache, of a row at most

void ask_for(const char* row, int64_t bytes) {
  for (int64_t i = 0; i < std::min(bytes, kAsked); i += kLine) __builtin_prefetch(row + i);
}

// to[i] = from[indices[i] * index_step + i * step] for i in [0, n), in one go where the indices are of a
// dtype that most are. False when one of them is out of range: what was written does not count then.
template <class I, class E>
bool take(const I* indices, int64_t axis, int64_t n, const E* from, int64_t index_step,
          int64_t step, E* to) {
  bool right = true;
  const auto each = [&](auto place) {
    for (int64_t i = 0; i < n; ++i) {
      const auto index = static_cast<uint64_t>(static_cast<int64_t>(indices[i]));
      const bool in_range = index < static_cast<uint64_t>(axis);
      right &= in_range;
      to[i] = from[place(static_cast<int64_t>(in_range ? index : 0), i)];
    }
  };
  if (index_step == 1 && step == 0)
    each([](int64_t index, int64_t) { return index; });
  else
    each([=](int64_t index, int64_t i) { return index * index_step + i * step; });
  return right;
}
template <class E>
bool take(DType dtype, const void* indices, int64_t first, int64_t axis, int64_t n, const E* from,
          int64_t index_step, int64_t step, E* to) {
  if (dtype == DType::I64)
    return take(static_cast<const int64_t*>(indices) + first, axis, n, from, index_step, step, to);
  if (dtype == DType::I32)
    return take(static_cast<const int32_t*>(indices) + first, axis, n, from, index_step, step, to);
  return false;
}

// n rows of row_bytes from `source` to `target`, both in steps of bytes.
void copy_rows(const char* source, int64_t source_step, const int64_t* rows, int64_t n,
               char* target, int64_t target_step, int64_t row_bytes) {
  const bool small = visit_bytes(row_bytes, [&]<class E>() {
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(target + i * target_step, source + rows[i] * source_step, sizeof(E));
  });
  if (small) return;
  const int64_t ahead = std::clamp<int64_t>(kAsked / row_bytes, 1, 8);
  for (int64_t i = 0; i < n; ++i) {
    if (i + ahead < n) ask_for(source + rows[i + ahead] * source_step, row_bytes);
    std::memcpy(target + i * target_step, source + rows[i] * source_step,
                static_cast<size_t>(row_bytes));
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
  const int64_t bytes = static_cast<int64_t>(p.element_bytes), row_bytes = p.inner * bytes,
                step = p.out_count * bytes;
  const Index index(indices, p.index_dtype, p.axis, flag);
  // Blocks of one outer position that follow each other are one.
  for (int64_t block = begin; block < end;) {
    const int64_t o = block / chunks, chunk = block % chunks;
    const int64_t many = std::min(end - block, chunks - chunk);
    const int64_t first = chunk * rows, last = std::min(p.count, first + many * rows);
    const char* const source = static_cast<const char*>(table) + o * p.table_outer * bytes;
    char* const target = static_cast<char*>(out) + o * p.out_outer * bytes;
    block += many;
    bool taken = false;
    if (p.inner == 1 && p.out_count == 1 && p.axis > 0)
      visit_bytes(bytes, [&]<class E>() {
        taken = take(p.index_dtype, indices, first, p.axis, last - first,
                     reinterpret_cast<const E*>(source), p.table_axis, 0,
                     reinterpret_cast<E*>(target) + first);
      });
    if (taken) continue;
    for_each_run(index, first, last, [&](int64_t at, int64_t n, const int64_t* from) {
      char* const to = target + at * step;
      if (p.axis > 0) return copy_rows(source, p.table_axis * bytes, from, n, to, step, row_bytes);
      for (int64_t i = 0; i < n; ++i) std::memset(to + i * step, 0, static_cast<size_t>(row_bytes));
    });
  }
}

int64_t take_along_blocks(const TakeAlongProblem& p) {
  return ceil_div(p.outer * p.count * p.inner, kTakenPerBlock);
}

void take_along(const TakeAlongProblem& p, const void* x, const void* indices, void* out,
                uint32_t* flag, int64_t begin, int64_t end) {
  const int64_t bytes = static_cast<int64_t>(p.element_bytes);
  const int64_t first = begin * kTakenPerBlock,
                last = std::min(p.outer * p.count * p.inner, end * kTakenPerBlock);
  // Along a piece of the result x is read from one place on, `step` further for each element.
  const int64_t piece = p.inner == 1 ? p.count : p.inner, step = p.inner == 1 ? 0 : 1,
                pieces = p.inner == 1 ? 1 : p.count;
  // Lines that are read all over.
  const int64_t line_bytes = p.axis * bytes;
  const bool asks = p.inner == 1 && line_bytes <= kAsked && p.count >= p.axis / 8;
  const Index index(indices, p.index_dtype, p.axis, flag);
  const bool known = visit_bytes(bytes, [&]<class E>() {
    E* const to = static_cast<E*>(out);
    int64_t o = first / piece / pieces, number = first / piece % pieces, t = first % piece;
    for (int64_t at = first; at < last;) {
      const int64_t n = std::min(piece - t, last - at);
      const E* const from = static_cast<const E*>(x) + o * p.axis * p.inner + t * step;
      if (asks && at + n < last) ask_for(reinterpret_cast<const char*>(from + p.axis), line_bytes);
      if (p.axis == 0 || !take(p.index_dtype, indices, at, p.axis, n, from, p.inner, step, to + at))
        for_each_run(index, at, at + n, [&](int64_t k, int64_t many, const int64_t* rows) {
          for (int64_t j = 0; j < many; ++j)
            to[k + j] = p.axis ? from[rows[j] * p.inner + (k - at + j) * step] : E{};
        });
      at += n, t = 0;
      if (++number == pieces) number = 0, ++o;
    }
  });
  check(known, "elements of {} bytes", bytes);
}

}  // namespace rlx::cpu
