// ProgramCache: compiled programs by graph and device; those used last stay, as many as the limit in bytes allows.
//
//   ProgramCache cache(int64_t{256} << 20);
//   std::shared_ptr<ProgramPool> f = cache.compile(graph);   // compiles what was not compiled before
//   f->take()->run({{"x", x}});
//
// A program that is dropped lives on while somebody holds it. Thread-safe: threads that ask for the same program at once
// wait for one compilation, and what it raises they all raise; it is not remembered.
#pragma once

#include <future>
#include <mutex>

#include "rlx/base/lru_cache.h"
#include "rlx/runtime/program_pool.h"

namespace rlx {

class ProgramCache {
 public:
  static constexpr int64_t kDefaultBytes = int64_t{512} << 20;
  explicit ProgramCache(int64_t limit_bytes = kDefaultBytes);

  // memory_budget, donate: as in CompileOptions; programs of others are others.
  std::shared_ptr<ProgramPool> compile(const Graph& g, const Device& device = default_device(),
                                       int64_t memory_budget = 0,
                                       const std::vector<size_t>& donate = {});

  struct Counts {
    uint64_t hits = 0, compilations = 0;  // since it was made
    size_t programs = 0;                  // now, and what they keep
    int64_t bytes = 0;
  };
  Counts counts() const;
  void clear();

 private:
  using Program = std::shared_ptr<ProgramPool>;
  struct Key {
    Device device;
    int64_t memory_budget = 0;
    std::vector<size_t> donate;
    std::shared_ptr<const Graph> graph;  // as given; the program's own, where that is the same
  };
  struct Pending {  // being compiled
    uint64_t hash;
    const Key* key;
    std::shared_future<Program> program;
  };

  mutable std::mutex mutex_;
  LruCache<Key, Program> programs_;
  std::vector<Pending> pending_;
  uint64_t hits_ = 0, compilations_ = 0;
};

}  // namespace rlx
