#include "rlx/backend/cpu/kernels/indexing/sort.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <type_traits>

#include "rlx/backend/cpu/kernels/indexing/extremes.h"
#include "rlx/backend/cpu/kernels/isa.h"
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

// The first k of many are selected: what cannot be among them is passed over, vectors at a time, and
// what may be is kept in a list of this many, of which the first k stay when it is full.
int64_t selected_room(const SortProblem& p) { return 2 * p.k + 64; }
bool selects(const SortProblem& p) { return p.k > 0 && 8 * p.k + 128 <= p.n; }

int64_t item_count(const SortProblem& p) { return selects(p) ? selected_room(p) : p.n; }

template <class Item, class S>
Item item_of(const SortProblem& p, const S* x, int64_t i) {
  const auto key = key_of(x[i * p.inner]);
  return Item(p.descending ? ~key : key, i);
}

template <class Item, class S>
void select_items(const SortProblem& p, const S* x, Item* items, StopPoll stop) {
  constexpr int64_t kTested = 16;  // elements that are looked at one by one where one may be wanted
  const NextBeyond<S> next = next_beyond<S>(host_isa(), p.descending);
  const int64_t room = selected_room(p);
  for (int64_t i = 0; i < room; ++i) items[i] = item_of<Item>(p, x, i);
  int64_t kept = room;
  const auto keep_first = [&] {
    std::nth_element(items, items + (p.k - 1), items + kept);
    kept = p.k;
    return items[p.k - 1];
  };
  Item last = keep_first();
  for (int64_t i = room, polled = room; i < p.n;) {
    if (p.inner == 1) i = next(x, i, std::min(p.n, polled + kLongLine), x[last.position()]);
    const int64_t end = std::min(p.n, i + kTested);
    for (; i < end; ++i) {
      const Item item = item_of<Item>(p, x, i);
      if (!(item < last)) continue;
      items[kept++] = item;
      if (kept == room) last = keep_first();
    }
    if (i - polled < kLongLine) continue;
    polled = i;
    if (stop()) throw Stopped();
  }
  keep_first();
  std::sort(items, items + p.k);
}

template <class Item, class S>
void sort_items(const SortProblem& p, const S* x, Item* items, StopPoll stop) {
  if (selects(p)) return select_items(p, x, items, stop);
  for (int64_t i = 0; i < p.n; ++i) items[i] = item_of<Item>(p, x, i);
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
  return static_cast<size_t>(item_count(p)) * (is_packed(p) ? sizeof(Packed) : sizeof(Pair));
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

// ---- search

namespace {

constexpr int64_t kSearches = 256;  // of a block
constexpr int64_t kTogether = 8;    // searches that take their steps side by side

// Numbers of the order above but for NaN, which the searches see to.
template <class S>
auto search_value(S x) {
  if constexpr (std::is_same_v<S, f16_t> || std::is_same_v<S, bf16_t>)
    return half_order<std::is_same_v<S, f16_t>>(static_cast<int16_t>(x.bits));
  else
    return order_value(x);
}

// How many elements of the line are smaller than each value, or not larger: all searches halve what
// is left to them at the same time, without a jump that would have to be guessed.
template <bool right, int64_t count, class S, class V>
void search_together(const S* line, int64_t n, const V* values, int64_t* out) {
  const auto before = [&](int64_t at, V v) {
    const V s = search_value(line[at]);
    return right ? s <= v : s < v;
  };
  int64_t first[count] = {};
  int64_t left = n;
  while (left > 1) {
    const int64_t half = left / 2;
#pragma GCC unroll 8
    for (int64_t q = 0; q < count; ++q)
      first[q] += half & -static_cast<int64_t>(before(first[q] + half - 1, values[q]));
    left -= half;
  }
  for (int64_t q = 0; q < count; ++q)
    out[q] = first[q] + (left == 1 && before(first[q], values[q]));
}

template <bool right, int64_t count, class S>
void search_some(const S* line, int64_t n, const S* values, int64_t* out) {
  using V = decltype(search_value(S{}));
  V wanted[count];
  for (int64_t q = 0; q < count; ++q) wanted[q] = search_value(values[q]);
  search_together<right, count>(line, n, wanted, out);
  if constexpr (std::is_floating_point_v<V>) {
    for (int64_t q = 0; q < count; ++q) {
      if (wanted[q] == wanted[q]) continue;
      const V most = std::numeric_limits<V>::infinity();
      if (right)
        out[q] = n;
      else
        search_together<true, 1>(line, n, &most, out + q);  // all but NaNs are smaller
    }
  }
}

template <bool right, class S>
void search_line(const S* line, int64_t n, const S* values, int64_t count, int64_t* out) {
  int64_t i = 0;
  for (; i + kTogether <= count; i += kTogether)
    search_some<right, kTogether>(line, n, values + i, out + i);
  for (; i < count; ++i) search_some<right, 1>(line, n, values + i, out + i);
}

}  // namespace

int64_t search_blocks(const SearchProblem& p) { return ceil_div(p.lines * p.m, kSearches); }

void search(const SearchProblem& p, const void* sorted, const void* values, int64_t* out,
            int64_t begin, int64_t end) {
  check(!is_complex(p.dtype), "an order of c64");
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (kOrdered<S>) {
      const int64_t last = std::min(p.lines * p.m, end * kSearches);
      for (int64_t i = begin * kSearches; i < last;) {
        const int64_t many = p.one_line ? last - i : std::min(last - i, p.m - i % p.m);
        const S* const line = static_cast<const S*>(sorted) + (p.one_line ? 0 : i / p.m * p.n);
        const S* const from = static_cast<const S*>(values) + i;
        p.right ? search_line<true>(line, p.n, from, many, out + i)
                : search_line<false>(line, p.n, from, many, out + i);
        i += many;
      }
    }
  });
}

}  // namespace rlx::cpu
