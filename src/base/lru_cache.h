// LruCache: values by key, least recently used dropped first, bounded by the bytes behind them.
//
//   LruCache<Key, std::shared_ptr<Program>> cache(256 << 20, [](const auto& p) { return p->resident_bytes(); });
//   if (auto* hit = cache.find(hash, [&](const Key& k) { return k == key; })) return **hit;
//   return **cache.insert(hash, key, make());
//
// The bytes of a value may change while it is kept: they are asked for at every insert, which then
// drops values until the rest fits; the new one always stays. Dropped values are destroyed last, when the
// cache is whole again: their destructors may use it. Not thread-safe.
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

  // As find(), without counting as a use.
  template <class Equal>
  bool contains(uint64_t hash, Equal&& equal) const {
    auto [first, last] = by_hash_.equal_range(hash);
    for (; first != last; ++first)
      if (equal(first->second->key)) return true;
    return false;
  }

  Value* insert(uint64_t hash, Key key, Value value) {
    entries_.push_front({hash, std::move(key), std::move(value)});
    try {
      by_hash_.emplace(hash, entries_.begin());
    } catch (...) {
      entries_.pop_front();
      throw;
    }
    Value* const kept = &entries_.front().value;
    int64_t sum = 0;
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      sum += bytes_of_(it->value);
      if (sum <= limit_ || it == entries_.begin()) continue;
      drop(it, entries_.end());  // this one and all that were used before it
      break;
    }
    return kept;
  }

  template <class Equal>
  void erase(uint64_t hash, Equal&& equal) {
    auto [first, last] = by_hash_.equal_range(hash);
    for (; first != last; ++first)
      if (equal(first->second->key)) {
        const Place place = first->second;
        drop(place, std::next(place));
        return;
      }
  }

  size_t size() const { return entries_.size(); }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Entry& e : entries_) sum += bytes_of_(e.value);
    return sum;
  }
  void clear() { drop(entries_.begin(), entries_.end()); }

 private:
  struct Entry {
    uint64_t hash;
    Key key;
    Value value;
  };
  using Place = typename std::list<Entry>::iterator;

  void drop(Place first, Place last) {
    for (Place it = first; it != last; ++it) {
      auto [at, end] = by_hash_.equal_range(it->hash);
      while (at->second != it) ++at;
      by_hash_.erase(at);
    }
    std::list<Entry> dropped;
    dropped.splice(dropped.begin(), entries_, first, last);
  }

  int64_t limit_;
  std::function<int64_t(const Value&)> bytes_of_;
  std::list<Entry> entries_;  // last used first
  std::unordered_multimap<uint64_t, Place> by_hash_;
};

}  // namespace rlx
