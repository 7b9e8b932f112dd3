// Few against std::vector: the same calls on both, at sizes on both sides of what lies inside.
#include "rlx/base/few.h"

#include <gtest/gtest.h>

#include <random>

#include "rlx/base/shared_text.h"

namespace rlx {
namespace {

template <uint32_t N>
void same_calls(uint32_t seed) {
  std::mt19937 random(seed);
  auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Few<int, N> few;
  std::vector<int> model;
  int next = 0;
  for (int step = 0; step < 2000; ++step) {
    switch (below(15)) {
      case 0:
      case 1:
        few.push_back(next), model.push_back(next), ++next;
        break;
      case 2:
        if (!model.empty()) few.push_back(few.front()), model.push_back(int(model.front()));
        break;
      case 3:
        if (!model.empty()) few.pop_back(), model.pop_back();
        break;
      case 4: {
        const size_t at = below(model.size() + 1);
        EXPECT_EQ(few.insert(few.begin() + at, next) - few.begin(), static_cast<ptrdiff_t>(at));
        model.insert(model.begin() + static_cast<ptrdiff_t>(at), next++);
        break;
      }
      case 5: {
        const std::vector<int> more(below(4), next++);
        const size_t at = below(model.size() + 1);
        few.insert(few.begin() + at, more.begin(), more.end());
        model.insert(model.begin() + static_cast<ptrdiff_t>(at), more.begin(), more.end());
        break;
      }
      case 6:
        if (!model.empty()) {
          const size_t first = below(model.size()), last = first + below(model.size() - first + 1);
          few.erase(few.begin() + first, few.begin() + last);
          model.erase(model.begin() + static_cast<ptrdiff_t>(first),
                      model.begin() + static_cast<ptrdiff_t>(last));
        }
        break;
      case 7: {
        const size_t n = below(2 * N + 3);
        few.resize(n, next), model.resize(n, next), ++next;
        break;
      }
      case 8: {
        Few<int, N> copy = few;
        copy.push_back(-1);
        few = copy;
        model.push_back(-1);
        break;
      }
      case 9: {
        Few<int, N> taken = std::move(few);
        EXPECT_TRUE(few.empty());  // NOLINT: what is left is an empty list
        few.push_back(7);          // which can be used
        few = std::move(taken);
        break;
      }
      case 10: {
        const Few<int, N>& self = few;
        few = self;
        break;
      }
      case 13: {
        const size_t at = below(model.size() + 1), n = below(4);
        few.insert(few.begin() + at, n, next);
        model.insert(model.begin() + static_cast<ptrdiff_t>(at), n, next++);
        break;
      }
      case 11:
        few.assign(3, next), model.assign(3, next), ++next;
        break;
      case 12:
        few = Few<int, N>{1, 2}, model = {1, 2};
        break;
      default:
        few.clear(), model.clear();
    }
    ASSERT_EQ(std::vector<int>(few.begin(), few.end()), model)
        << "seed " << seed << " step " << step;
    ASSERT_EQ(std::vector<int>(few.rbegin(), few.rend()),
              std::vector<int>(model.rbegin(), model.rend()));
    ASSERT_LE(few.size(), few.capacity());
  }
}

TEST(Few, DoesWhatAVectorDoes) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    same_calls<1>(seed);
    same_calls<2>(seed);
    same_calls<5>(seed);
  }
}

TEST(Few, ComparesInOrder) {
  using List = Few<int, 2>;
  const std::vector<std::vector<int>> lists{{}, {1}, {1, 2}, {1, 2, 3}, {1, 3}, {2}, {2, 0, 0, 0}};
  for (const auto& a : lists)
    for (const auto& b : lists) {
      EXPECT_EQ(List(a) == List(b), a == b);
      EXPECT_EQ(List(a) < List(b), a < b);
    }
}

TEST(Few, OneElementMoreThanFitsIsTheFirstAllocation) {
  Few<int, 2> few{1, 2};
  const auto inside = [&] {
    const auto* at = reinterpret_cast<const std::byte*>(few.data());
    const auto* self = reinterpret_cast<const std::byte*>(&few);
    return at >= self && at < self + sizeof few;
  };
  EXPECT_TRUE(inside());
  few.push_back(3);
  EXPECT_FALSE(inside());
}

// Elements that own memory are moved with it, copied deeply, and destroyed once (ASan sees both).
TEST(Few, ElementsMayBeLists) {
  using List = Few<int, 1>;
  Few<List, 2> lists;
  for (int i = 0; i < 9; ++i) lists.push_back(List(static_cast<size_t>(i), i));
  lists.insert(lists.begin() + 1, 2, lists[8]);
  lists.erase(lists.begin() + 4);
  const Few<List, 2> copy = lists;
  lists.clear();
  std::vector<size_t> sizes;
  for (const List& list : copy) sizes.push_back(list.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{0, 8, 8, 1, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(copy[1], List(8, 8));
}

// A copy that fails leaves a list without it.
struct FailsOnCopy {
  int id = 0;
  static inline int alive = 0, left = 1 << 20;
  FailsOnCopy() { ++alive; }
  FailsOnCopy(const FailsOnCopy& o) : id(o.id) {
    if (left-- == 0) throw std::bad_alloc();
    ++alive;
  }
  FailsOnCopy(FailsOnCopy&& o) noexcept : id(o.id) { ++alive; }
  ~FailsOnCopy() { --alive; }
};

}  // namespace
template <>
inline constexpr bool kMovesAsBytes<FailsOnCopy> = true;
namespace {

TEST(Few, CopiesThatFail) {
  for (int at = 0; at < 5; ++at)
    for (size_t before = 0; before < 4; ++before) {
      {
        std::vector<FailsOnCopy> source(5);
        Few<FailsOnCopy, 2> few(before);
        FailsOnCopy::left = at;
        EXPECT_THROW(few.insert(few.begin() + before / 2, source.begin(), source.end()),
                     std::bad_alloc);
        FailsOnCopy::left = 1 << 20;
        EXPECT_EQ(few.size(), before);
        EXPECT_EQ(FailsOnCopy::alive, static_cast<int>(before) + 5);
      }
      EXPECT_EQ(FailsOnCopy::alive, 0);
    }
}

TEST(SharedText, CopiesAreOneString) {
  const SharedText a = "layer0", b = a, c = std::string("layer0"), none;
  EXPECT_EQ(&a.str(), &b.str());
  EXPECT_EQ(a, c);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none, SharedText(""));
  EXPECT_EQ(none.str(), "");
  EXPECT_FALSE(a == none);
}

}  // namespace
}  // namespace rlx
