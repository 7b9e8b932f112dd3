// LoopNest: which loops a region's kernel has, and where its operands lie as seen from them.
//
// Neighbouring axes of the domain become one loop when every operand and result walks them as one
// (its stride along the outer axis equals the stride along the inner axis times its size).
#pragma once

#include "rlx/codegen/kernel_builder.h"
#include "rlx/lower/lir.h"

namespace rlx::codegen {

class LoopNest {
 public:
  LoopNest() = default;
  // Elementwise: all axes in one list; the last merged loop is the inner one.
  static LoopNest make(const Ints& domain, const std::vector<Ints>& strides, const Ints& axes);
  // Two lists that are never merged with each other.
  static LoopNest make(const Ints& domain, const std::vector<Ints>& strides, const Ints& outer,
                       const Ints& inner);

  size_t rank() const { return outer_.size() + inner_.size(); }
  int64_t outer_size() const;  // product of the outer loops
  int64_t inner_size() const;  // product of the inner loops
  const Ints& inner_sizes() const { return inner_sizes_; }
  int64_t last_size() const;  // elementwise: the inner loop; else the last outer loop

  // Giving loops their index. A tile's index is tile * size + i.
  void bind_outer(KernelBuilder& b, Value flat);
  void bind_outer_but_last(KernelBuilder& b, Value flat);
  void bind_last(Value i);
  void bind_last_tile(Value tile, int64_t size, Value i);
  void bind_tile(Value tile, int64_t size, Value i);  // the inner loop
  void bind_inner(Value i);
  void bind_inner_flat(KernelBuilder& b, Value i);
  void bind_inner_dim(size_t d, Value j);
  void bind_inner_tile(size_t d, Value tile, int64_t size, Value j);
  void leave_inner();
  Value inner() const { return inner_flat_; }

  // The address, or the number, sum of strides[axis] * index[axis] over the domain's axes.
  Address address(const Ints& strides) const;
  Value linear(KernelBuilder& b, const Ints& strides) const;

 private:
  struct Dim {
    int64_t size = 1;
    size_t axis = 0;  // innermost merged axis: its stride is the loop's
    std::vector<std::pair<int64_t, Value>>
        index;  // sum of factor * value; empty: not inside this loop
  };
  static std::vector<Dim> merge(const Ints& domain, const std::vector<Ints>& strides,
                                const Ints& axes);
  static void bind_flat(KernelBuilder& b, std::span<Dim> dims, Value flat);
  template <class F>
  void each_term(const Ints& strides, F&& f) const;

  std::vector<Dim> outer_, inner_;
  Ints inner_sizes_;
  Value inner_flat_;
  bool split_ = false;  // two lists
};

}  // namespace rlx::codegen
