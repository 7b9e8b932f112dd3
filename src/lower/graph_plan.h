// Memory plans of graphs, node by node: what a program of one kernel per node would need, before anything is lowered.
//
//   MemoryPlan plan = plan_memory(g);                       // slots of 64 bytes' alignment
//   plan.arena_size, plan.assignments.at({3, 0}).offset;
//   plan.report();                                          // a table, for people
//
//   auto weights = SharedWeightLayout::from_forward(forward, plan_memory(forward));
//   MemoryPlan back = plan_memory_backward(backward, 64, weights);   // parameters where the forward program has them
//
// Lives and places are those of the plan of LIR (lower.h): a value lives from its node to its last reader, outputs to the
// end, leaves always; the largest first, each at the lowest gap that is free for its whole life (arena.h). Results never lie
// in the memory of an operand. Views have no memory of their own. A value whose size is not known has no slot.
//
// Raises Error(user, "plan-alignment") for an alignment that is not a power of two, "program-too-large".
#pragma once

#include <map>

#include "rlx/lower/lir.h"

namespace rlx {

struct BufferSlot {
  int64_t offset = 0, size = 0;
  bool operator==(const BufferSlot&) const = default;
};

struct MemoryPlan {
  int64_t arena_size = 0;
  std::map<Value, BufferSlot> assignments;
  std::vector<int32_t> schedule;  // nodes, in order

  int64_t total_unshared_bytes() const;  // of all slots
  int64_t bytes_saved() const;           // against that, by sharing; at least 0
  std::string report() const;
};

// Where parameters of a forward program lie, for other programs over the same memory.
struct WeightSlot {
  std::string name;
  Value forward_id;
  int64_t offset = 0, size = 0;
};
struct SharedWeightLayout {
  int64_t arena_size = 0;         // up to the last slot
  std::vector<WeightSlot> slots;  // by name
  static SharedWeightLayout from_forward(const Graph& g, const MemoryPlan& plan);
  // Puts the parameters of g that it knows, and views of them, where it has them.
  void apply_to_plan(const Graph& g, MemoryPlan& plan) const;
};

struct MemoryPlanOptions {
  bool allocate_params = true, allocate_inputs = true, allocate_constants = true;
  int64_t alignment = 64;
  bool f32_uniform = false;                     // every element takes four bytes
  const SharedWeightLayout* weights = nullptr;  // its range is taken from the start

  static MemoryPlanOptions inference() { return {}; }
  static MemoryPlanOptions backward_activations_only() { return {.allocate_params = false}; }
};

MemoryPlan plan_memory_with_options(const Graph& g, const MemoryPlanOptions& options);
inline MemoryPlan plan_memory(const Graph& g) { return plan_memory_with_options(g, {}); }
MemoryPlan plan_memory_aligned(const Graph& g, int64_t alignment);
MemoryPlan plan_memory_f32_uniform(const Graph& g, int64_t alignment);
MemoryPlan plan_memory_backward(const Graph& g, int64_t alignment,
                                const SharedWeightLayout& weights);

// Whether a node's result is its first operand's memory, or a run of it: reshape, a cast to the same dtype, a slice of whole
// rows along the first axis that is longer than 1, a broadcast to the same shape, a transpose that only moves axes of
// size 1, barrier and checkpoint_name.
bool is_pure_view(const Graph& g, Value node);

struct ViewAlias {
  Value root;
  int64_t offset = 0;  // bytes
  bool operator==(const ViewAlias&) const = default;
};
// Every view with what it is a view of, through chains of them.
std::map<Value, ViewAlias> collect_view_aliases(const Graph& g, bool f32_uniform = false);

// The largest sum of bytes that are alive at one moment of a program: no plan needs less.
int64_t largest_live_bytes(const Program& p);

}  // namespace rlx
