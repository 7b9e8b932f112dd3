// Deterministic mutation fuzzing: seeds, mutations that know the format, a target that may only
// answer with a result or with an Error that blames the data. A program is `fuzz_<format>
// [iterations] [seed]`; it ends with an error and prints the input when the target crashes the
// rules: another exception, an internal error, more than 5 seconds on the processor, or more memory
// than the cap.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "rlx/base/error.h"

namespace rlx::fuzz {

using Random = std::mt19937_64;

inline size_t pick(Random& r, size_t n) { return n ? r() % n : 0; }

struct Fuzzer {
  std::vector<std::string> seeds;
  std::string (*mutate)(Random&, const std::string& seed, const std::vector<std::string>& seeds);
  void (*target)(const std::string& input);  // raises Error for bad input
};

// Numbers at which sizes, offsets and counts go wrong.
inline const std::vector<std::string>& bad_numbers() {
  static const std::vector<std::string> list = {"0",
                                                "1",
                                                "-1",
                                                "2",
                                                "127",
                                                "128",
                                                "255",
                                                "256",
                                                "65535",
                                                "65536",
                                                "2147483647",
                                                "2147483648",
                                                "4294967295",
                                                "4294967296",
                                                "1099511627776",
                                                "4611686018427387904",
                                                "9223372036854775807",
                                                "-9223372036854775808",
                                                "9223372036854775808",
                                                "18446744073709551615",
                                                "99999999999999999999999",
                                                "1e308",
                                                "1e400",
                                                "nan",
                                                "inf",
                                                "-0",
                                                "0x10",
                                                "1.5"};
  return list;
}

// One change of bytes that knows nothing about the format.
inline std::string mutate_bytes(Random& r, std::string s) {
  const size_t at = pick(r, s.size());
  switch (pick(r, 6)) {
    case 0:
      if (!s.empty()) s[at] = static_cast<char>(s[at] ^ (1 << pick(r, 8)));
      break;
    case 1:
      if (!s.empty()) s[at] = static_cast<char>(r());
      break;
    case 2:
      s.insert(s.begin() + static_cast<int64_t>(at), static_cast<char>(r()));
      break;
    case 3:
      s.erase(at, 1 + pick(r, 16));
      break;
    case 4:
      s.resize(at);
      break;
    default:
      s.insert(at, s.substr(pick(r, s.size()), 1 + pick(r, 64)));
      break;
  }
  return s;
}

inline std::string g_current;  // the input under test, for the signal handler

inline void on_signal(int signal) {
  std::fprintf(stderr, "signal %d on the input:\n", signal);
  std::fwrite(g_current.data(), 1, g_current.size(), stderr);
  std::_Exit(3);
}

inline long resident_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

inline double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

#if defined(__SANITIZE_ADDRESS__)
inline constexpr long kMemoryCapMib = 1536;  // the sanitizer's own memory
#else
inline constexpr long kMemoryCapMib = 512;
#endif

struct Tally {
  long valid = 0, refused = 0;
};

// Empty, or why the answer is not allowed.
inline std::string try_one(const Fuzzer& f, const std::string& input, Tally& tally) {
  g_current = input;
  alarm(300);  // for what waits instead of working
  const double start = processor_seconds();
  try {
    f.target(input);
    ++tally.valid;
  } catch (const Error& e) {
    ++tally.refused;
    if (e.kind() == ErrorKind::internal) return e.what();
  } catch (const std::exception& e) {
    return std::string("not an Error: ") + e.what();
  }
  if (processor_seconds() - start > 5) return "took more than 5 seconds";
  if (resident_mib() > kMemoryCapMib) return "took more memory than the cap";
  return {};
}

inline int run(const Fuzzer& f, int argc, char** argv) {
  const long iterations = argc > 1 ? std::atol(argv[1]) : 20000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  for (int s : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL, SIGALRM}) std::signal(s, on_signal);
  Random random(seed);
  Tally tally;
  for (long i = 0; i < iterations; ++i) {
    std::string input = f.seeds[pick(random, f.seeds.size())];
    for (size_t rounds = i < static_cast<long>(f.seeds.size()) ? 0 : 1 + pick(random, 4);
         rounds > 0; --rounds)
      input = f.mutate(random, input, f.seeds);
    if (input.size() > (1 << 16)) input.resize(1 << 16);
    const std::string why = try_one(f, input, tally);
    if (why.empty()) continue;
    std::fprintf(stderr, "iteration %ld of seed %llu: %s\n", i,
                 static_cast<unsigned long long>(seed), why.c_str());
    std::fwrite(input.data(), 1, input.size(), stderr);
    return 1;
  }
  std::printf("%ld inputs, %ld valid, %ld refused, %ld MiB\n", iterations, tally.valid,
              tally.refused, resident_mib());
  return 0;
}

}  // namespace rlx::fuzz
