// How the CPU arranges steps. Neighbouring steps over the same rows run tile by tile: the mechanism behind matmul
// prologues and epilogues.
#include <algorithm>
#include <numeric>

#include "rlx/backend/cpu/block_kernel.h"
#include "rlx/backend/cpu/target.h"
#include "rlx/lower/lower.h"

namespace rlx::cpu {

namespace {

constexpr int64_t kMaxTileRows = 512;
constexpr int32_t kMaxSteps = 8;

// Whether what the step touches of the buffer are only the rows it works on.
bool touches_own_rows_of(const Program& p, const Step& s, int32_t buffer) {
  for (size_t i = 0; i < operand_count(s); ++i)
    if (operand_of(s, i).buffer == buffer && !touches_own_rows(p, s, i)) return false;
  return true;
}

// Buffers that one step writes and the other touches must be touched at the same rows by both.
bool compatible(const Program& p, const Step& a, const Step& b) {
  for (const View& v : a.out) {
    if (!touches_own_rows_of(p, a, v.buffer) || !touches_own_rows_of(p, b, v.buffer)) return false;
    for (const View& w : b.out)
      if (w.buffer == v.buffer) return false;
  }
  for (const View& v : b.out)
    if (!touches_own_rows_of(p, b, v.buffer) || !touches_own_rows_of(p, a, v.buffer)) return false;
  return true;
}

bool shares_data(const Step& a, const Step& b) {
  for (const View& v : b.in) {
    for (const View& w : a.out)
      if (v.buffer == w.buffer) return true;
    for (const View& w : a.in)
      if (v.buffer == w.buffer) return true;
  }
  return false;
}

}  // namespace

void CpuTarget::arrange(Program& p) const {
  for (const Step& s : p.steps) {
    if (s.kernel)
      p.scratch_bytes = std::max(
          p.scratch_bytes, align_up(static_cast<int64_t>(block_kernel(s).scratch_bytes()), 64));
    for (const auto& body : s.bodies)
      p.scratch_bytes = std::max(p.scratch_bytes, body->scratch_bytes);
  }
  const auto count = static_cast<int32_t>(p.steps.size());
  for (int32_t begin = 0; begin < count;) {
    Chain chain{begin, begin + 1, 0, 0};
    const Step& first = p.steps[static_cast<size_t>(begin)];
    if (first.kernel && first.kernel->rows() > 0) {
      const int64_t rows = first.kernel->rows();
      int64_t tile = first.kernel->rows_per_block();
      while (chain.end < count && chain.end - begin < kMaxSteps) {
        const Step& next = p.steps[static_cast<size_t>(chain.end)];
        if (!next.kernel || next.kernel->rows() != rows) break;
        const int64_t both = std::lcm(tile, next.kernel->rows_per_block());
        if (both > kMaxTileRows) break;
        bool fits = false;
        for (int32_t s = begin; s < chain.end; ++s)
          fits = fits || shares_data(p.steps[static_cast<size_t>(s)], next);
        for (int32_t s = begin; s < chain.end; ++s)
          fits = fits && compatible(p, p.steps[static_cast<size_t>(s)], next);
        if (!fits) break;
        tile = both;
        ++chain.end;
      }
      if (chain.end - begin > 1) {
        // Cheap steps alone would make tiles of one row; give a tile a few thousand elements of
        // work.
        while (tile < 64 && 2 * tile <= kMaxTileRows) tile *= 2;
        chain.rows = rows;
        chain.tile = tile;
      }
    }
    p.chains.push_back(chain);
    begin = chain.end;
  }
}

}  // namespace rlx::cpu
