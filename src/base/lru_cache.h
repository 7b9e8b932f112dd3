// LruCache: values by key, least recently used dropped first, bounded by the bytes behind them.
//
//   LruCache<Key, std::shared_ptr<Program>> cache(256 << 20, [](const auto& p) { return p->resident_bytes(); });
//   if (auto* hit = cache.find(hash, [&](const Key& k) { return k == key; })) return **hit;
//   return **cache.insert(hash, key, make());
//
// The bytes of a value may change while it is kept: every insert asks up to 256 values for them, in turn, and then drops
// values until the rest fits; the new one always stays. Dropped values are destroyed last, when the
// cache is whole again: their destructors may use it. Not thread-safe.
#pragma once

#include <algorithm>
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
  LruCache(const LruCache&) = delete;

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
    entries_.push_front({hash, std::move(key), std::move(value), 0});
    try {
      by_hash_.emplace(hash, entries_.begin());
    } catch (...) {
      entries_.pop_front();
      throw;
    }
    Value* const kept = &entries_.front().value;
    ask(entries_.front());
    Place last = entries_.end();  // from here on they go
    int64_t sum = ask_some();
    while (sum > limit_ && std::prev(last) != entries_.begin()) sum -= (--last)->bytes;
    drop(last, entries_.end());
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
    int64_t bytes = 0;  // when it was asked last
  };
  using Place = typename std::list<Entry>::iterator;

  void ask(Entry& e) {
    const int64_t bytes = bytes_of_(e.value);
    bytes_ += bytes - e.bytes;
    e.bytes = bytes;
  }

  // Asks the next ones; returns what all keep. Walking over all of them at each insert would make filling a cache
  // quadratic in how many there are.
  int64_t ask_some() {
    for (size_t i = 0; i < std::min(entries_.size(), kAsked); ++i, ++next_) {
      if (next_ == entries_.end()) next_ = entries_.begin();
      ask(*next_);
    }
    return bytes_;
  }

  void drop(Place first, Place last) {
    for (Place it = first; it != last; ++it) {
      bytes_ -= it->bytes;
      if (it == next_) next_ = last;
      auto [at, end] = by_hash_.equal_range(it->hash);
      while (at->second != it) ++at;
      by_hash_.erase(at);
    }
    std::list<Entry> dropped;
    dropped.splice(dropped.begin(), entries_, first, last);
  }

  int64_t limit_;
  std::function<int64_t(const Value&)> bytes_of_;
  static constexpr size_t kAsked = 256;
  int64_t bytes_ = 0;         // of all, as they were asked last
  std::list<Entry> entries_;  // last used first
  Place next_ = entries_.end();
  std::unordered_multimap<uint64_t, Place> by_hash_;
};

}  // namespace rlx
