#include "rlx/backend/cpu/stream.h"

#include "rlx/base/checked.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {

namespace {

constexpr int64_t kSerialWork = 1 << 14;  // smaller steps are not worth waking a thread for
constexpr double kPollWork =
    1 << 20;  // between two looks at a request to stop: a millisecond or so

}  // namespace

void CpuStream::prepare(const Program& program) {
  if (scratch_ && program.scratch_bytes <= scratch_bytes_) return;
  scratch_bytes_ = program.scratch_bytes;
  scratch_ = allocate_on_host(scratch_bytes_ * threads_);
}

// Steps one after the other over all their blocks, or, in a longer chain, over one row tile after
// the other.
void CpuStream::launch(const Launch& l) {
  const Chain& chain = l.chain;
  int64_t work = 0;
  for (int32_t s = chain.begin; s < chain.end; ++s)
    work += l.program.steps[static_cast<size_t>(s)].kernel->work();
  const int64_t tiles = chain.rows
                            ? ceil_div(chain.rows, chain.tile)
                            : l.program.steps[static_cast<size_t>(chain.begin)].kernel->blocks();
  const int threads = work < kSerialWork ? 1 : threads_;
  // Blocks may be tiny, so several run between two polls.
  const double share = kPollWork / static_cast<double>(std::max<int64_t>(work, 1));
  const int64_t per_poll =
      l.cancellation.watched() && share < 1
          ? std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(tiles)))
          : tiles;
  parallel_for_worker(threads, tiles, [&](int worker, int64_t begin, int64_t end) {
    for (; begin < end && !l.cancellation.poll(); begin += per_poll)
      run_tiles(l, worker, begin, std::min(begin + per_poll, end));
  });
}

void CpuStream::run_tiles(const Launch& l, int worker, int64_t begin, int64_t end) const {
  const Chain& chain = l.chain;
  std::byte* scratch = scratch_.get() + worker * scratch_bytes_;
  auto run = [&](int32_t s, void* const* operands, int64_t first, int64_t last) {
    block_kernel(l.program.steps[static_cast<size_t>(s)])
        .run({operands, scratch, l.faults + (s - chain.begin), &l.cancellation}, first, last);
  };
  if (!chain.rows) return run(chain.begin, l.operands, begin, end);
  for (int64_t tile = begin; tile < end; ++tile) {
    void* const* operands = l.operands;
    for (int32_t s = chain.begin; s < chain.end && !l.cancellation.poll(); ++s) {
      const Step& step = l.program.steps[static_cast<size_t>(s)];
      const int64_t per_block = step.kernel->rows_per_block();
      const int64_t last_row = std::min((tile + 1) * chain.tile, chain.rows);
      run(s, operands, tile * chain.tile / per_block, ceil_div(last_row, per_block));
      operands += operand_count(step);
    }
  }
}

void CpuStream::pack(const StepKernel& kernel, const std::byte* from, std::byte* to) {
  block_kernel(kernel).pack(from, to);
}

}  // namespace rlx::cpu
