// LoopNest: which loops a region's kernel has, and where its operands lie as seen from them.
//
// Neighbouring axes of the domain become one loop when every operand and result walks them as one
// (its stride along the outer axis equals the stride along the inner axis times its size), whatever sizes symbols
// stand for.
#pragma once

#include "rlx/codegen/amount.h"
#include "rlx/codegen/kernel_builder.h"
#include "rlx/lower/layout.h"

namespace rlx::codegen {

// A kernel's builder, and the words that its steps are called with: what is not constant is an argument.
class RegionBuilder : public KernelBuilder {
 public:
  using KernelBuilder::KernelBuilder;
  using KernelBuilder::size;
  // A word of its own.
  Size word(Amount value);
  // The number itself, or the word that holds it.
  Size size(const Amount& value);
  const std::vector<Amount>& words() const { return words_; }

 private:
  std::vector<Amount> words_;
};

class LoopNest {
 public:
  LoopNest() = default;
  // Elementwise: all axes in one list; the last merged loop is the inner one.
  static LoopNest make(const Shape& domain, const std::vector<Shape>& strides, const Ints& axes);
  // Two lists that are never merged with each other.
  static LoopNest make(const Shape& domain, const std::vector<Shape>& strides, const Ints& outer,
                       const Ints& inner);

  size_t rank() const { return outer_.size() + inner_.size(); }
  size_t outer_rank() const { return outer_.size(); }
  Dim outer_size() const;           // product of the outer loops
  Dim outer_size_but_last() const;  // without the last of them
  Dim inner_size() const;           // product of the inner loops
  const Shape& inner_sizes() const { return inner_sizes_; }
  Dim last_size() const;  // elementwise: the inner loop; else the last outer loop

  // Giving loops their index. A tile's index is tile * size + i.
  void bind_outer(RegionBuilder& b, ValueId flat);
  void bind_outer_but_last(RegionBuilder& b, ValueId flat);
  void bind_last(ValueId i);
  void bind_last_tile(ValueId tile, int64_t size, ValueId i);
  void bind_tile(ValueId tile, int64_t size, ValueId i);  // the inner loop
  void bind_inner(ValueId i);
  void bind_inner_flat(RegionBuilder& b, ValueId i);
  void bind_inner_dim(size_t d, ValueId j);
  void bind_inner_tile(size_t d, ValueId tile, const Amount& size, ValueId j);
  void leave_inner();
  ValueId inner() const { return inner_flat_; }

  // The address, or the number, sum of strides[axis] * index[axis] over the domain's axes.
  Address address(RegionBuilder& b, const Shape& strides) const;
  ValueId linear(RegionBuilder& b, const Shape& strides) const;

 private:
  struct Loop {
    Dim size{1};
    size_t axis = 0;  // innermost merged axis: its stride is the loop's
    std::vector<std::pair<Amount, ValueId>>
        index;  // sum of factor * value; empty: not inside this loop
  };
  static std::vector<Loop> merge(const Shape& domain, const std::vector<Shape>& strides,
                                 const Ints& axes);
  static void bind_flat(RegionBuilder& b, std::span<Loop> loops, ValueId flat);
  static Dim size_of(std::span<const Loop> loops);
  template <class F>
  void each_term(const Shape& strides, F&& f) const;

  std::vector<Loop> outer_, inner_;
  Shape inner_sizes_;
  ValueId inner_flat_;
  bool split_ = false;  // two lists
};

}  // namespace rlx::codegen
