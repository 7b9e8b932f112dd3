#include "rlx/backend/cpu/kernels/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "rlx/backend/cpu/kernels/machine_limits_loop.h"
#include "rlx/base/error.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Calls f until `seconds` are spent (at least three times) and returns the shortest time of a call.
template <class F>
double best_time(double seconds, F f) {
  const double start = seconds_now();
  double best = 0;
  for (int run = 0; run < 3 || seconds_now() - start < seconds; ++run) {
    const double begin = seconds_now();
    f();
    const double time = seconds_now() - begin;
    best = run == 0 ? time : std::min(best, time);
  }
  return best;
}

float fma_rounds(Isa isa, int64_t rounds) {
  volatile float seed = 1.5f;
  return for_isa(isa, [&](auto width) { return fma_loop<width>(rounds, seed); });
}

}  // namespace

double measure_fma_peak(int threads, Isa isa, double seconds) {
  check(isa_supported(isa), "this machine has no {}", isa_name(isa));
  constexpr int64_t kRounds = 500'000;
  const double time = best_time(seconds, [&] {
    parallel_for(threads, threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        volatile float used = fma_rounds(isa, kRounds);
        static_cast<void>(used);
      }
    });
  });
  const int lanes = vector_bytes(isa) / static_cast<int>(sizeof(float));
  return static_cast<double>(threads) * kRounds * kFmaChains * lanes * 2 / time * 1e-9;
}

double measure_read_bandwidth(int threads, size_t bytes) {
  constexpr size_t kChunk = size_t{1} << 20;
  const size_t chunks = std::max<size_t>(1, bytes / kChunk);
  const std::vector<uint64_t> data(chunks * kChunk / sizeof(uint64_t), 1);
  uint64_t sink = 0;
  const double time = best_time(0, [&] {
    parallel_for(threads, static_cast<int64_t>(chunks), [&](int64_t begin, int64_t end) {
      uint64_t sum[8] = {};
      const size_t per_chunk = kChunk / sizeof(uint64_t);
      for (size_t i = static_cast<size_t>(begin) * per_chunk;
           i < static_cast<size_t>(end) * per_chunk; i += 8) {
        for (size_t j = 0; j < 8; ++j) sum[j] += data[i + j];
      }
      uint64_t total = 0;
      for (uint64_t s : sum) total += s;
      __atomic_fetch_add(&sink, total, __ATOMIC_RELAXED);
    });
  });
  return static_cast<double>(chunks * kChunk) / time * 1e-9;
}

namespace {

uint64_t sum_of(const uint64_t* data, size_t count) {
  uint64_t sum[8] = {}, total = 0;
  for (size_t i = 0; i + 8 <= count; i += 8)
    for (size_t j = 0; j < 8; ++j) sum[j] += data[i + j];
  for (uint64_t s : sum) total += s;
  return total;
}

}  // namespace

double measure_traffic(int threads, size_t read, size_t written) {
  constexpr size_t kWords = size_t{1} << 14;  // of a block that is read: 128 KiB
  const size_t words = read / sizeof(uint64_t), blocks = std::max<size_t>(1, words / kWords);
  const std::vector<uint64_t> from(words, 1);
  std::vector<uint64_t> to(std::max<size_t>(1, written / sizeof(uint64_t)), 1);
  uint64_t sink = 0;
  // Block i of both arrays; equal blocks are copied, by the library or by a loop.
  const auto pass = [&](bool by_library) {
    parallel_for(threads, static_cast<int64_t>(blocks), [&](int64_t begin, int64_t end) {
      for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end); ++b) {
        const uint64_t* in = from.data() + words * b / blocks;
        uint64_t* out = to.data() + to.size() * b / blocks;
        const size_t in_words = words * (b + 1) / blocks - words * b / blocks;
        const size_t out_words = to.size() * (b + 1) / blocks - to.size() * b / blocks;
        if (in_words != out_words) {
          __atomic_fetch_add(&sink, sum_of(in, in_words), __ATOMIC_RELAXED);
          std::fill_n(out, out_words, sink);
        } else if (by_library) {
          std::memcpy(out, in, in_words * sizeof(uint64_t));
        } else {
          for (size_t i = 0; i < in_words; ++i) out[i] = in[i] + 1;
        }
      }
    });
  };
  const double library = best_time(0.1, [&] { pass(true); });
  return std::min(library, best_time(0.1, [&] { pass(false); }));
}

MachineLimits measure_machine(int threads) {
  return {threads, measure_fma_peak(threads), measure_read_bandwidth(threads)};
}

}  // namespace rlx::cpu
