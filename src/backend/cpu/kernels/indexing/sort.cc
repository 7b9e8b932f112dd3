#include "rlx/backend/cpu/kernels/indexing/sort.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <type_traits>

#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

// Values as unsigned numbers of the same order. Floats: those above 0 keep their bits with the sign
// set, those below have all bits flipped; both zeros and all NaNs become one.
template <class F, class Bits>
Bits float_key(F x) {
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  if (x != x) return ~Bits{0};
  const Bits bits = std::bit_cast<Bits>(x == 0 ? F{0} : x);
  return bits & sign ? ~bits : bits | sign;
}

template <class S>
auto key_of(S x) {
  const auto v = order_value(x);
  using V = std::remove_const_t<decltype(v)>;
  if constexpr (std::is_same_v<V, double>)
    return float_key<double, uint64_t>(v);
  else if constexpr (std::is_same_v<V, float>)
    return float_key<float, uint32_t>(v);
  else if constexpr (sizeof(V) == 8)
    return static_cast<uint64_t>(v) ^ (uint64_t{1} << 63);
  else if constexpr (std::is_signed_v<V>)
    return static_cast<uint32_t>(static_cast<int32_t>(v)) ^ (uint32_t{1} << 31);
  else
    return static_cast<uint32_t>(v);
}

// A key with its position: distinct, so that any sort is stable. Keys of 32 bits and their
// positions fit one word.
struct Packed {
  uint64_t word;
  Packed() = default;
  Packed(uint32_t key, int64_t at) : word(uint64_t{key} << 32 | static_cast<uint32_t>(at)) {}
  int64_t position() const { return static_cast<uint32_t>(word); }
  auto operator<=>(const Packed&) const = default;
};
struct Pair {
  uint64_t key;
  int64_t at;
  Pair() = default;
  Pair(uint64_t k, int64_t a) : key(k), at(a) {}
  int64_t position() const { return at; }
  auto operator<=>(const Pair&) const = default;
};

constexpr int64_t kMaxPacked = int64_t{1} << 32;

// Small lines go several to a block.
int64_t lines_per_block(const SortProblem& p) { return std::max<int64_t>(1, 4096 / (p.n + 1)); }

// An order that asks, from time to time, whether it is still wanted, and raises when not.
struct Stopped {};
template <class Item>
struct PolledOrder {
  StopPoll stop;
  mutable uint32_t until = 1 << 20;
  bool operator()(const Item& a, const Item& b) const {
    if (--until == 0) {
      until = 1 << 20;
      if (stop()) throw Stopped();
    }
    return a < b;
  }
};

constexpr int64_t kLongLine = 1 << 20;

template <class Item, class S>
void sort_items(const SortProblem& p, const S* x, Item* items, StopPoll stop) {
  for (int64_t i = 0; i < p.n; ++i) {
    const auto key = key_of(x[i * p.inner]);
    items[i] = Item(p.descending ? ~key : key, i);
  }
  if (stop.ask && p.n >= kLongLine) {
    PolledOrder<Item> order{stop};  // one counter for all copies that the algorithms make
    if (p.k < p.n) std::nth_element(items, items + p.k, items + p.n, std::ref(order));
    std::sort(items, items + p.k, std::ref(order));
    return;
  }
  if (p.k < p.n) std::nth_element(items, items + p.k, items + p.n);
  std::sort(items, items + p.k);
}

template <class I>
I sorted_index_as(int64_t i) {
  if constexpr (std::is_same_v<I, f16_t> || std::is_same_v<I, bf16_t>)
    return Element<I>::put(static_cast<float>(i));
  else
    return static_cast<I>(i);
}

template <class Item, class S>
void sort_lines(const SortProblem& p, const S* x, S* values, void* indices, int64_t begin,
                int64_t end, void* scratch, StopPoll stop) {
  Item* const items = static_cast<Item*>(scratch);
  const int64_t lines = p.outer * p.inner, per_block = lines_per_block(p);
  for (int64_t line = begin * per_block; line < std::min(lines, end * per_block); ++line) {
    const int64_t o = line / p.inner, t = line % p.inner;
    const S* const from = x + o * p.n * p.inner + t;
    try {
      sort_items(p, from, items, stop);
    } catch (const Stopped&) {
      return;
    }
    const int64_t to = o * p.k * p.inner + t;
    if (values)
      for (int64_t i = 0; i < p.k; ++i)
        values[to + i * p.inner] = from[items[i].position() * p.inner];
    if (!indices) continue;
    visit_dtype(p.index_dtype, [&]<class I>() {
      if constexpr (!std::is_same_v<I, c64_t> && !std::is_same_v<I, bool_t>)
        for (int64_t i = 0; i < p.k; ++i)
          static_cast<I*>(indices)[to + i * p.inner] = sorted_index_as<I>(items[i].position());
    });
  }
}

template <class S>
constexpr bool kOrdered = !std::is_same_v<S, c64_t>;

bool is_packed(const SortProblem& p) { return size_of(p.dtype) < 8 && p.n <= kMaxPacked; }

}  // namespace

int64_t sort_blocks(const SortProblem& p) {
  return p.k == 0 ? 0 : ceil_div(p.outer * p.inner, lines_per_block(p));
}

size_t sort_scratch_bytes(const SortProblem& p) {
  return static_cast<size_t>(p.n) * (is_packed(p) ? sizeof(Packed) : sizeof(Pair));
}

void sort(const SortProblem& p, const void* x, void* values, void* indices, int64_t begin,
          int64_t end, void* scratch, StopPoll stop) {
  check(!is_complex(p.dtype), "an order of c64");
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (kOrdered<S>) {
      const auto* from = static_cast<const S*>(x);
      auto* to = static_cast<S*>(values);
      if constexpr (sizeof(S) < 8)
        if (is_packed(p))
          return sort_lines<Packed>(p, from, to, indices, begin, end, scratch, stop);
      sort_lines<Pair>(p, from, to, indices, begin, end, scratch, stop);
    }
  });
}

namespace {
constexpr int64_t kSearches = 256;  // of a block
}

int64_t search_blocks(const SearchProblem& p) { return ceil_div(p.lines * p.m, kSearches); }

void search(const SearchProblem& p, const void* sorted, const void* values, int64_t* out,
            int64_t begin, int64_t end) {
  check(!is_complex(p.dtype), "an order of c64");
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (kOrdered<S>) {
      for (int64_t i = begin * kSearches; i < std::min(p.lines * p.m, end * kSearches); ++i) {
        const S* const line = static_cast<const S*>(sorted) + (p.one_line ? 0 : i / p.m * p.n);
        const auto key = key_of(static_cast<const S*>(values)[i]);
        const S* const found =
            p.right
                ? std::upper_bound(line, line + p.n, key, [](auto k, S s) { return k < key_of(s); })
                : std::lower_bound(line, line + p.n, key,
                                   [](S s, auto k) { return key_of(s) < k; });
        out[i] = found - line;
      }
    }
  });
}

}  // namespace rlx::cpu
