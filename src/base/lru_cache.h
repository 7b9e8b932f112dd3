// LruCache: values by key, least recently used dropped first, bounded by the bytes behind them.
//
//   LruCache<Key, std::shared_ptr<Program>> cache(256 << 20, [](const auto& p) { return p->resident_bytes(); });
//   if (auto* hit = cache.find(hash, [&](const Key& k) { return k == key; })) return **hit;
//   return **cache.insert(hash, key, make());
//
// The bytes of a value may change while it is kept: they are asked for at every insert, which then
// drops values until the rest fits; the new one always stays. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <unordered_map>
#include <utility>

namespace rlx {

template <class Key, class Value>
class LruCache {
 public:
  LruCache(int64_t limit_bytes, std::function<int64_t(const Value&)> bytes_of)
      : limit_(limit_bytes), bytes_of_(std::move(bytes_of)) {}

  // nullptr when there is none; valid until the next insert or clear.
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
    entries_.push_front({hash, std::move(key), std::move(value)});
    try {
      by_hash_.emplace(hash, entries_.begin());
    } catch (...) {
      entries_.pop_front();
      throw;
    }
    int64_t sum = 0;
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      sum += bytes_of_(it->value);
      if (sum <= limit_ || it == entries_.begin()) continue;
      drop_from(it);
      break;
    }
    return &entries_.front().value;
  }

  size_t size() const { return entries_.size(); }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Entry& e : entries_) sum += bytes_of_(e.value);
    return sum;
  }
  void clear() { by_hash_.clear(), entries_.clear(); }

 private:
  struct Entry {
    uint64_t hash;
    Key key;
    Value value;
  };
  using Place = typename std::list<Entry>::iterator;

  // This one and all that were used before it.
  void drop_from(Place first) {
    for (Place it = first; it != entries_.end(); ++it) {
      auto [at, end] = by_hash_.equal_range(it->hash);
      while (at->second != it) ++at;
      by_hash_.erase(at);
    }
    entries_.erase(first, entries_.end());
  }

  int64_t limit_;
  std::function<int64_t(const Value&)> bytes_of_;
  std::list<Entry> entries_;  // last used first
  std::unordered_multimap<uint64_t, Place> by_hash_;
};

}  // namespace rlx
