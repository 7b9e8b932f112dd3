#include "rlx/backend/cpu/kernels/matmul/grouped.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/indexing/index.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kRows = 64;      // gathered at a time
constexpr int64_t kColumns = 256;  // of a tile of f32 weights
constexpr int64_t kOuterRows = 16;

int64_t tile_columns(const GroupedProblem& p) {
  return p.format ? weight_tile_rows(p.k) : std::min(p.n, kColumns);
}

// The next rows of an expert from `row` on, up to kRows; returns how many.
int64_t next_rows(const Index& id, int64_t m, int64_t expert, int64_t& row, int64_t* rows) {
  int64_t count = 0;
  for (; row < m && count < kRows; ++row)
    if (id(row) == expert) rows[count++] = row;
  return count;
}

void gather_rows(const float* x, const int64_t* rows, int64_t count, int64_t stride, int64_t n,
                 float* out) {
  for (int64_t r = 0; r < count; ++r)
    std::memcpy(out + r * n, x + rows[r] * stride, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace

int64_t weight_tile_rows(int64_t k) {
  constexpr int64_t kFloats = 1 << 18;
  return std::clamp<int64_t>(kFloats / std::max<int64_t>(k, 1), 4, 64);
}

int64_t grouped_blocks(const GroupedProblem& p) {
  return p.n ? p.experts * ceil_div(p.n, tile_columns(p)) : 0;
}

// Gathered rows of x, their results, and the unpacked tile.
size_t grouped_scratch_bytes(const GroupedProblem& p) {
  const int64_t tile = tile_columns(p);
  const int64_t floats = kRows * p.k + kRows * tile + (p.format ? tile * p.k : 0);
  return static_cast<size_t>(floats) * sizeof(float);
}

void grouped_matmul(const GroupedProblem& p, const float* x, const void* w, const void* ids,
                    float* y, uint32_t* flag, int64_t begin, int64_t end, std::byte* scratch,
                    const RowProducts& f) {
  const int64_t tile = tile_columns(p), tiles = ceil_div(p.n, tile);
  float* own = reinterpret_cast<float*>(scratch);
  float* result = own + kRows * p.k;
  float* unpacked = result + kRows * tile;
  const Index id(ids, p.id_dtype, p.experts, flag);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t expert = block / tiles, first = block % tiles * tile,
                  columns = std::min(tile, p.n - first), slab = expert * p.k * p.n;
    bool ready = false;  // the tile is unpacked
    int64_t rows[kRows];
    for (int64_t row = 0, count; (count = next_rows(id, p.m, expert, row, rows)) > 0;) {
      gather_rows(x, rows, count, p.k, p.k, own);
      if (!p.format && !p.transposed) {
        f.combine(own, p.k, 1, count, static_cast<const float*>(w) + slab + first, p.n, columns,
                  p.k, result, tile);
      } else {
        const float* right = static_cast<const float*>(w) + slab + first * p.k;
        if (p.format) {
          const int64_t at =
              (slab + first * p.k) / p.format->block_elements * p.format->block_bytes;
          if (!ready)
            decode_blocks(*p.format, static_cast<const uint8_t*>(w) + at, columns * p.k, unpacked);
          ready = true;
          right = unpacked;
        }
        f.dot(own, p.k, count, right, p.k, columns, p.k, result, tile);
      }
      for (int64_t r = 0; r < count; ++r)
        std::memcpy(y + rows[r] * p.n + first, result + r * tile,
                    static_cast<size_t>(columns) * sizeof(float));
    }
  }
}

int64_t grouped_outer_blocks(const GroupedProblem& p) {
  return p.experts * ceil_div(p.k, kOuterRows);
}

// Gathered columns of x, gathered rows of y, the sum of a chunk, and what the sum of those lost.
size_t grouped_outer_scratch_bytes(const GroupedProblem& p) {
  return static_cast<size_t>(kRows * kOuterRows + kRows * p.n + 2 * kOuterRows * p.n) *
         sizeof(float);
}

void grouped_outer(const GroupedProblem& p, const float* x, const float* y, const void* ids,
                   float* result, uint32_t* flag, int64_t begin, int64_t end, std::byte* scratch,
                   const RowProducts& f) {
  const int64_t tiles = ceil_div(p.k, kOuterRows);
  float* left = reinterpret_cast<float*>(scratch);
  float* right = left + kRows * kOuterRows;
  float* sum = right + kRows * p.n;
  float* lost = sum + kOuterRows * p.n;
  const Index id(ids, p.id_dtype, p.experts, flag);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t expert = block / tiles, first = block % tiles * kOuterRows,
                  height = std::min(kOuterRows, p.k - first);
    float* out = result + (expert * p.k + first) * p.n;
    std::fill(out, out + height * p.n, 0.0f);
    std::fill(lost, lost + height * p.n, 0.0f);
    int64_t rows[kRows];
    for (int64_t row = 0, count; (count = next_rows(id, p.m, expert, row, rows)) > 0;) {
      gather_rows(x + first, rows, count, p.k, height, left);
      gather_rows(y, rows, count, p.n, p.n, right);
      f.combine(left, 1, height, height, right, p.n, p.n, count, sum, p.n);
      for (int64_t i = 0; i < height * p.n; ++i) add_run(out[i], lost[i], sum[i]);
    }
    for (int64_t i = 0; i < height * p.n; ++i) out[i] += lost[i];
  }
}

}  // namespace rlx::cpu
