// Few: a vector whose first elements lie in the object itself. For lists that are nearly always
// short and of which there are many: the operands of a node, the dims of a shape.
//
//   Few<Value, 2> in{a, b};              // no allocation
//   in.push_back(c);                     // now there is one
//
// The interface is std::vector's, except that moving a Few may move its elements: references and
// iterators to them do not survive it.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlx {

// Whether an object may be moved by copying its bytes and forgetting the old place: of plain data, and of types that
// say so.
template <class T>
inline constexpr bool kMovesAsBytes = std::is_trivially_copyable_v<T>;

template <class T, uint32_t N>
class Few {
 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using pointer = T*;
  using const_pointer = const T*;
  using iterator = T*;
  using const_iterator = const T*;
  using reverse_iterator = std::reverse_iterator<T*>;
  using const_reverse_iterator = std::reverse_iterator<const T*>;

  Few() noexcept { static_assert(kMovesAsBytes<T> && N > 0); }
  explicit Few(size_t n, const T& value = T()) : Few() { resize(n, value); }
  Few(std::initializer_list<T> list) : Few(list.begin(), list.end()) {}
  template <std::input_iterator It>
  Few(It first, It last) : Few() {  // NOLINT: iterators go by value
    insert(end(), first, last);
  }
  Few(const Few& other) : Few(other.begin(), other.end()) {}
  Few(Few&& other) noexcept { take(other); }
  Few(const std::vector<T>& list) : Few(list.begin(), list.end()) {}  // NOLINT: implicit by design
  ~Few() { release(); }
  Few& operator=(const Few& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  Few& operator=(Few&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t capacity() const { return capacity_; }
  T* data() { return capacity_ > N ? store_.heap : seen(store_.inside); }
  const T* data() const { return capacity_ > N ? store_.heap : seen(store_.inside); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  const T* cbegin() const { return begin(); }
  const T* cend() const { return end(); }
  reverse_iterator rbegin() { return reverse_iterator(end()); }
  reverse_iterator rend() { return reverse_iterator(begin()); }
  const_reverse_iterator rbegin() const { return const_reverse_iterator(end()); }
  const_reverse_iterator rend() const { return const_reverse_iterator(begin()); }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& front() { return *begin(); }
  const T& front() const { return *begin(); }
  T& back() { return end()[-1]; }
  const T& back() const { return end()[-1]; }

  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void clear() {
    std::destroy(begin(), end());
    size_ = 0;
  }
  void resize(size_t n, const T& value = T()) {
    if (n < size_) {
      std::destroy(data() + n, end());
    } else if (n > size_) {
      const T copy = value;  // NOLINT: it may be an element
      reserve(n);
      std::uninitialized_fill(end(), data() + n, copy);
    }
    size_ = static_cast<uint32_t>(n);
  }
  void push_back(T value) {
    if (size_ == capacity_) grow(size_t{size_} + 1);
    new (static_cast<void*>(end())) T(std::move(value));
    ++size_;
  }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    push_back(T{std::forward<Args>(args)...});
    return back();
  }
  void pop_back() { std::destroy_at(data() + --size_); }
  // The range lies outside this list.
  template <std::input_iterator It>
  void assign(It first, It last) {
    clear();
    insert(end(), first, last);
  }
  void assign(size_t n, const T& value) {
    const T copy = value;  // NOLINT: it may be an element
    clear();
    resize(n, copy);
  }
  T* insert(const T* at, T value) { return insert(at, &value, &value + 1); }
  T* insert(const T* at, size_t count, const T& value) { return put(at, Few(count, value)); }
  T* insert(const T* at, std::initializer_list<T> list) {
    return insert(at, list.begin(), list.end());
  }
  // The range lies outside this list.
  template <std::input_iterator It>
  T* insert(const T* at, It first, It last) {  // NOLINT: iterators go by value
    if (at != end()) return put(at, Few(first, last));
    const size_t before = size_;
    reserve(size_ + static_cast<size_t>(std::distance(first, last)));
    size_ = static_cast<uint32_t>(std::uninitialized_copy(first, last, end()) - data());
    return data() + before;
  }
  T* erase(const T* at) { return erase(at, at + 1); }
  T* erase(const T* first, const T* last) {
    T* to = data() + (first - begin());
    const auto count = static_cast<size_t>(last - first);
    std::destroy(to, to + count);
    move_bytes(to, to + count, static_cast<size_t>(end() - (to + count)));
    size_ -= static_cast<uint32_t>(count);
    return to;
  }

  bool operator==(const Few& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  auto operator<=>(const Few& other) const
    requires std::three_way_comparable<T>
  {
    return std::lexicographical_compare_three_way(begin(), end(), other.begin(), other.end());
  }

 private:
  static void move_bytes(T* to, const T* from, size_t n) {
    if (n) std::memmove(static_cast<void*>(to), static_cast<const void*>(from), n * sizeof(T));
  }
  // What the object may hold at a place, for a compiler that would follow branches that are not taken
  // and warn of what lies beyond the place.
  template <class P>
  static P* seen(P* place) {
    asm("" : "+r"(place));
    return place;
  }
  // Moves the elements of `list` to before `at`.
  T* put(const T* at, Few list) {
    const auto before = static_cast<size_t>(at - begin());
    reserve(size_t{size_} + list.size_);
    T* to = data() + before;
    move_bytes(to + list.size_, to, size_ - before);
    move_bytes(to, list.data(), list.size_);
    size_ += std::exchange(list.size_, 0);
    return to;
  }
  void grow(size_t least) {
    const size_t n = std::max(least, 2 * size_t{capacity_});
    if (n > std::numeric_limits<uint32_t>::max()) throw std::bad_alloc();
    T* fresh = std::allocator<T>().allocate(n);
    move_bytes(fresh, data(), size_);
    if (capacity_ > N) std::allocator<T>().deallocate(store_.heap, capacity_);
    store_.heap = fresh;
    capacity_ = static_cast<uint32_t>(n);
  }
  void release() {
    std::destroy(begin(), end());
    if (capacity_ > N) std::allocator<T>().deallocate(store_.heap, capacity_);
  }
  void take(Few& other) noexcept {
    std::memcpy(static_cast<void*>(&store_), static_cast<const void*>(seen(&other.store_)),
                sizeof store_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, N);
  }

  union Store {
    Store() {}
    ~Store() {}
    T inside[N];
    T* heap;
  } store_;
  uint32_t size_ = 0, capacity_ = N;
};

template <class T, uint32_t N>
inline constexpr bool kMovesAsBytes<Few<T, N>> = true;

}  // namespace rlx
