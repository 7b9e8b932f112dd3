// The cache bounded by bytes: what it keeps, and what goes first.
#include "rlx/base/lru_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace rlx {
namespace {

using Sized = std::shared_ptr<int64_t>;  // its own bytes
using Cache = LruCache<int, Sized>;

Cache make_cache(int64_t limit) {
  return {limit, [](const Sized& v) { return *v; }};
}
// All keys of the same hash: equality decides.
const Sized* find(Cache& c, int key) {
  return c.find(1, [&](int k) { return k == key; });
}
void insert(Cache& c, int key, int64_t bytes) {
  EXPECT_EQ(**c.insert(1, key, std::make_shared<int64_t>(bytes)), bytes);
}

TEST(LruCache, DropsWhatWasUsedLongestAgo) {
  Cache c = make_cache(100);
  for (int key = 0; key < 4; ++key) insert(c, key, 25);
  EXPECT_NE(find(c, 0), nullptr);  // used: key 1 is the oldest now
  insert(c, 4, 25);
  EXPECT_EQ(find(c, 1), nullptr);
  for (int key : {0, 2, 3, 4}) EXPECT_NE(find(c, key), nullptr) << key;
  EXPECT_EQ(c.bytes(), 100);
}

TEST(LruCache, ALargeValueDropsSeveralAndStaysAlone) {
  Cache c = make_cache(100);
  for (int key = 0; key < 10; ++key) insert(c, key, 10);
  insert(c, 10, 75);
  EXPECT_EQ(c.size(), 3u);  // and the two used last
  EXPECT_NE(find(c, 9), nullptr);
  insert(c, 11, 1000);
  EXPECT_EQ(c.size(), 1u);
  EXPECT_NE(find(c, 11), nullptr);
  insert(c, 12, 1);
  EXPECT_EQ(c.size(), 1u);
}

TEST(LruCache, BytesThatGrowAreCounted) {
  Cache c = make_cache(100);
  insert(c, 0, 10), insert(c, 1, 10);
  **c.find(1, [](int k) { return k == 1; }) = 95;
  insert(c, 2, 4);
  EXPECT_NE(find(c, 1), nullptr);
  EXPECT_EQ(find(c, 0), nullptr);
}

// Of many values each insert asks some, in turn, and after a round all have been asked.
TEST(LruCache, AsksManyInTurn) {
  int asked = 0;
  LruCache<int, Sized> c(100'000, [&](const Sized& s) { return ++asked, *s; });
  std::vector<Sized> values;
  for (int key = 0; key < 1000; ++key) {
    values.push_back(std::make_shared<int64_t>(1));
    c.insert(static_cast<uint64_t>(key), key, values.back());
  }
  asked = 0;
  c.insert(1000, 1000, std::make_shared<int64_t>(1));
  EXPECT_LT(asked, 300);
  for (const Sized& s : values) *s = 1000;  // ten times what is allowed
  for (int key = 1001; key < 1006; ++key)
    c.insert(static_cast<uint64_t>(key), key, std::make_shared<int64_t>(1));
  EXPECT_LE(c.bytes(), 100'000);
  EXPECT_GT(c.size(), 90u);
  c.clear();
  EXPECT_EQ(c.bytes(), 0);
  c.insert(0, 0, std::make_shared<int64_t>(1));
  EXPECT_EQ(c.size(), 1u);
}

TEST(LruCache, ErasesOne) {
  Cache c = make_cache(100);
  for (int key = 0; key < 4; ++key) insert(c, key, 25);
  c.erase(1, [](int k) { return k == 2; });
  c.erase(1, [](int k) { return k == 7; });
  c.erase(5, [](int) { return true; });
  EXPECT_EQ(c.size(), 3u);
  EXPECT_EQ(c.bytes(), 75);
  EXPECT_EQ(find(c, 2), nullptr);
  insert(c, 2, 25);
  for (int key = 0; key < 4; ++key) EXPECT_NE(find(c, key), nullptr) << key;
}

// A value whose destructor takes another one out, as objects of an interpreter may.
TEST(LruCache, DroppedValuesMayUseTheCache) {
  using Values = LruCache<int, std::shared_ptr<void>>;
  Values c(3, [](const auto&) { return int64_t{1}; });
  for (int key = 0; key < 8; ++key) {
    c.insert(1, key, std::shared_ptr<void>(nullptr, [&c, key](void*) {
               if (key % 2 == 0) c.erase(1, [&](int k) { return k == key + 1; });
             }));
    EXPECT_LE(c.size(), 3u);
    EXPECT_NE(c.find(1, [&](int k) { return k == key; }), nullptr);
  }
  c.clear();
  EXPECT_EQ(c.size(), 0u);
}

TEST(LruCache, DroppedValuesAreFreed) {
  Cache c = make_cache(10);
  const auto value = std::make_shared<int64_t>(6);
  c.insert(1, 0, value);
  EXPECT_EQ(value.use_count(), 2);
  insert(c, 1, 6);
  EXPECT_EQ(value.use_count(), 1);
  c.clear();
  EXPECT_EQ(c.size(), 0u);
  EXPECT_EQ(find(c, 1), nullptr);
}

}  // namespace
}  // namespace rlx
