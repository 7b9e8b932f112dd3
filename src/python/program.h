// Program: a compiled graph without parameters that any thread may run, and the caches that keep
// programs.
//
//   std::shared_ptr<Program> p = compile_cached(graph);
//   std::vector<Tensor> y = p->run(inputs);            // gives the interpreter lock away meanwhile
//
// Each thread that runs at the same moment gets a clone of its own. Ctrl-C stops a long run between
// two kernels.
#pragma once

#include <list>
#include <unordered_map>

#include "rlx/base/function_ref.h"
#include "rlx/python/array.h"
#include "rlx/runtime/runtime.h"

namespace rlx::python {

class Program {
 public:
  explicit Program(CompiledGraph compiled);
  Program(const Program&) = delete;
  std::vector<Tensor> run(std::span<const void* const> inputs);

 private:
  std::vector<std::unique_ptr<CompiledGraph>> idle_;
  CompiledGraph* original_;  // of which clones are made; lives in idle_ or in a run
  std::vector<std::pair<DType, Ints>> outputs_;
  bool is_long_;
};

// Keeps the values that were used last.
template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(size_t limit) : limit_(limit) {}

  template <class Equal>
  Value* find(uint64_t hash, Equal&& equal) {
    auto [first, last] = by_hash_.equal_range(hash);
    for (; first != last; ++first)
      if (equal(first->second->key)) {
        entries_.splice(entries_.begin(), entries_, first->second);
        return &first->second->value;
      }
    return nullptr;
  }
  Value* insert(uint64_t hash, Key key, Value value) {
    if (entries_.size() >= limit_) drop_last();
    entries_.push_front({hash, std::move(key), std::move(value)});
    by_hash_.emplace(hash, entries_.begin());
    return &entries_.front().value;
  }
  size_t size() const { return entries_.size(); }
  void clear() { by_hash_.clear(), entries_.clear(); }

 private:
  struct Entry {
    uint64_t hash;
    Key key;
    Value value;
  };
  void drop_last() {
    auto last = std::prev(entries_.end());
    auto [at, end] = by_hash_.equal_range(last->hash);
    while (at->second != last) ++at;
    by_hash_.erase(at);
    entries_.erase(last);
  }
  size_t limit_;
  std::list<Entry> entries_;
  std::unordered_multimap<uint64_t, typename std::list<Entry>::iterator> by_hash_;
};

// The device that ops outside of any trace run on, per thread.
Device& current_device();

// Compiles for the current device, unless an equal graph has been compiled before.
std::shared_ptr<Program> compile_cached(const Graph& g);

// Runs f without the interpreter lock; Ctrl-C sets the flag that f is given and raises
// KeyboardInterrupt afterwards.
void run_interruptibly(bool is_long, FunctionRef<void(const std::atomic<bool>*)> f);

void clear_caches();
void bind_program(nb::module_& m);

}  // namespace rlx::python
