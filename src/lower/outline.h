// Outline: a fused program for all sizes. The code of its regions is made once, from layouts; binding sizes makes
// views, kernels of libraries and a memory plan, and no code.
//
//   Outline outline(fused, target);          // asks the target for a form of each region
//   target.finish();                         // makes their code
//   Program p = outline.at({{"n", 128}}, target);
//
// A region whose reductions sizes may cut in parts, so that results do not fit one kernel, has a second form: its body
// fused anew. Which one is taken is decided by the numbers that decide it in a program whose sizes are constant.
#pragma once

#include "rlx/ir/size_questions.h"
#include "rlx/lower/lower.h"

namespace rlx {

class Outline {
 public:
  // A region, one way: its kernel, or what its body becomes instead.
  struct RegionWay {
    std::shared_ptr<const KernelForm> form;
    std::shared_ptr<const Outline> instead;
  };
  struct Entry {               // of a node
    bool is_symbolic = false;  // its types or attributes have symbols
    bool copies = false;       // a reshape that is no view for some sizes
    std::vector<SizeWay<RegionWay>> ways;
    // Sizes of operands that its code takes for sizes of what it makes: the same for all sizes, or not to be run.
    std::vector<std::pair<Dim, Dim>> equal;
    // Of control flow: programs of bodies without symbols, outlines of the others.
    std::vector<std::shared_ptr<const Program>> programs;
    std::vector<std::shared_ptr<const Outline>> bodies;
  };

  Outline(const Graph& fused, Target& target);
  // Of a body of control flow; or of what stands in the place of a region, which reads operands that lie like this.
  static std::shared_ptr<const Outline> of_body(const Graph& fused, Target& target);
  static std::shared_ptr<const Outline> of_region(const Graph& fused, Target& target,
                                                  std::span<const Layout> operands);

  Program at(const DimBinding& sizes, Target& target, const Donated& donated = {}) const;

  const Graph& graph() const { return graph_; }
  const std::shared_ptr<const void>& origin() const { return origin_; }  // Program::origin
  // The graph with numbers; bodies stay as they are.
  Graph bound(const DimBinding& sizes) const;
  const Entry& entry(size_t node) const { return entries_[node]; }

 private:
  Outline(const Graph& fused, Target& target, bool is_body, std::span<const Layout> inputs);

  Graph graph_;
  std::vector<Entry> entries_;
  bool is_body_;
  std::shared_ptr<const void> origin_ = make_origin();
};

}  // namespace rlx
