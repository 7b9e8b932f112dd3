#include "rlx/backend/cpu/kernels/limits/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "rlx/backend/cpu/kernels/limits/machine_limits_loop.h"
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

// Memory delivers lines of 64 bytes: a word of each is enough to wait for all of them, and adding all
// words would be slower than memory.
uint64_t touch_lines(const uint64_t* data, size_t count) {
  constexpr size_t kLine = 64 / sizeof(uint64_t);
  uint64_t a = 0, b = 0, c = 0, d = 0;
  size_t i = 0;
  for (; i + 4 * kLine <= count; i += 4 * kLine) {
    a += data[i];
    b += data[i + kLine];
    c += data[i + 2 * kLine];
    d += data[i + 3 * kLine];
  }
  for (; i < count; i += kLine) a += data[i];
  return a + b + c + d;
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
      constexpr size_t kWords = kChunk / sizeof(uint64_t);
      const uint64_t total = touch_lines(data.data() + static_cast<size_t>(begin) * kWords,
                                         static_cast<size_t>(end - begin) * kWords);
      __atomic_fetch_add(&sink, total, __ATOMIC_RELAXED);
    });
  });
  return static_cast<double>(chunks * kChunk) / time * 1e-9;
}

double measure_traffic(int threads, size_t read, size_t written) {
  constexpr size_t kWords = size_t{1} << 14;  // of a block that is read: 128 KiB
  constexpr double kSeconds = 0.3;            // many runs: on a busy machine few are undisturbed
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
          __atomic_fetch_add(&sink, touch_lines(in, in_words), __ATOMIC_RELAXED);
          std::fill_n(out, out_words, sink);
        } else if (by_library) {
          std::memcpy(out, in, in_words * sizeof(uint64_t));
        } else {
          for (size_t i = 0; i < in_words; ++i) out[i] = in[i] + 1;
        }
      }
    });
  };
  const double library = best_time(kSeconds, [&] { pass(true); });
  return std::min(library, best_time(kSeconds, [&] { pass(false); }));
}

MachineLimits measure_machine(int threads) {
  return {threads, measure_fma_peak(threads), measure_read_bandwidth(threads)};
}

}  // namespace rlx::cpu
