// Processes that write to a cache of code and are killed at any moment.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "rlx/backend/cpu/code_cache.h"
#include "rlx/base/format.h"

namespace rlx::testing {

inline std::string cache_key(int i) { return fmt::format("key {}", i) + std::string(100, 'k'); }
inline std::string cache_code(int i) {
  return std::string(1000 + static_cast<size_t>(i), static_cast<char>('a' + i % 26));
}

// After each of them every entry is right or not there.
inline void kill_cache_writers(const std::filesystem::path& folder, int kills) {
  std::mt19937 random(1);
  for (int k = 0; k < kills; ++k) {
    const pid_t child = ::fork();
    if (child == 0) {
      cpu::CodeCache cache(folder);
      for (int i = k;; ++i) cache.store(cache_key(i % 10), cache_code(i % 10));
    }
    ::usleep(static_cast<useconds_t>(random() % 5000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    cpu::CodeCache cache(folder);
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(cache.load(cache_key(i)).value_or(cache_code(i)), cache_code(i)) << "kill " << k;
  }
}

}  // namespace rlx::testing
