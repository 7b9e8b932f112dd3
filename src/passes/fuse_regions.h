// The region grower: groups nodes that run as one kernel (see ops/region.h).
//
//   FusionReport report;
//   Graph fused = fuse_regions(g, &report);
//   report.to_string();     // what fused, and why the rest did not
//
// Every elementwise op, iota and reduction ends up in a region, alone if need be, so that code
// generation has one path.
#pragma once

#include <string>
#include <vector>

#include "rlx/base/decision.h"
#include "rlx/base/function_ref.h"
#include "rlx/ir/graph.h"
#include "rlx/ir/size_questions.h"
#include "rlx/ops/region_schedule.h"

namespace rlx {

struct FusionReport {
  // Nodes by their numbers in the graph before; -1: it was made on the way.
  struct Refusal {
    std::string producer, consumer, why;
    std::string where;  // the body of control flow, "%3.body/%1.then_body"; empty: the graph itself
    int32_t producer_node = -1, consumer_node = -1;
  };
  struct Group {
    std::string where;
    std::vector<int32_t>
        nodes;            // that became one region; a reduction that was cut in two is in both
    int32_t region = -1;  // its number in the graph after
    const Graph* body = nullptr;  // while the graph is built
  };
  int nodes_before = 0;  // nodes that would each be a kernel
  int regions = 0;       // kernels after fusion
  int64_t searched = 0;  // steps of the searches for paths around regions
  std::vector<Refusal> refusals;
  std::vector<Group> groups;
  std::string where;  // the body that is being fused
  std::string to_string() const;
};

// Whether a node may be part of a region at all.
Decision fusible(const Node& n, const Graph& g);

// Whether nodes of this op are what regions are made of.
bool makes_regions(const OpDef& op);

// Nodes that must stay out of every region: the target has a kernel for them that goes first.
using NodeFilter = FunctionRef<bool(const Node&)>;
inline constexpr auto no_node = [](const Node&) { return false; };

struct FusionOptions {
  bool grow = true;  // else each node is a region of its own: the unfused program
  NodeFilter alone = no_node;
  RegionSchedule schedule;
  // What is made of weights alone stays apart from the rest: it is computed once. Not in bodies.
  bool weights_apart = false;
  // Who answers whether a reduction runs in parts where its sizes are symbols; nobody: it does not.
  SizeQuestions* questions = nullptr;
};

Graph fuse_regions(const Graph& g, FusionReport* report = nullptr,
                   const FusionOptions& options = {});
// Whether sizes cut one of the graph's reductions in parts or in two, by the answers of options.questions: a region's
// body of which this is so is fused anew with them.
bool cuts_reductions(const Graph& g, const FusionOptions& options);
// The same for a whole program: first the bodies of its control flow, innermost first.
Graph fuse_program(const Graph& g, FusionReport* report = nullptr,
                   const FusionOptions& options = {});

}  // namespace rlx
