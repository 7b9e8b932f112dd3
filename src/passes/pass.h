// Passes: named functions from graph to graph, and the runner that verifies, times and dumps
// between them.
//
//   PassReport report;
//   Graph h = run_passes(g, parse_pipeline("simplify,cse,grad(wrt=w|b)"), {.report = &report});
//   Graph k = run_passes(g, default_pipeline(), {.dump_dir = "dump"});
//                                                 // dump/00-input.rlx, dump/01-simplify.rlx, ...
//
// Raises Error(user): "pass-unknown", "pass-option" (names what is allowed), "pipeline" (malformed
// text), "file-open" (a dump cannot be written); Error(internal) when a pass leaves an invalid graph
// or changes the signature it must keep.
#pragma once

#include <functional>
#include <map>

#include "rlx/ops/region_schedule.h"
#include "rlx/rewrite/rewrite.h"

namespace rlx {

struct FusionReport;  // fuse_regions.h

// What one use of a pass says in brackets: `grad(wrt=w|b)`.
using PassArguments = std::map<std::string, std::string, std::less<>>;

// The most scalar operations that the passes of a pipeline spend together on evaluating parts of the program: a
// second or less.
inline constexpr double kPassWork = 1e7;

struct PassOptions {
  bool fast_math =
      false;  // value-changing algebra: x + 0, x * 0, reassociation, x / c as x * (1 / c)
  // Which composites the target has a kernel for; legalise decomposes the others. Unset: none.
  std::function<bool(const Node&, const Graph&)> keeps;
  // Which nodes stay out of every region: the target has a kernel for them that goes first. Unset: none.
  std::function<bool(const Node&)> alone;
  RegionSchedule schedule;         // how the target wants regions
  FusionReport* fusion = nullptr;  // filled by fuse_regions
  PassArguments arguments;
  RewriteStats* stats = nullptr;  // filled by passes made of rules
  double* work =
      nullptr;  // scalar operations that passes may still spend on evaluating; unset: kPassWork each

  std::string argument(std::string_view name, std::string_view otherwise = {}) const;
  std::vector<std::string> list(std::string_view name) const;  // split at '|'
};

struct PassArgument {
  std::string_view name, doc;
};

struct Pass {
  std::string_view name;  // a verb
  std::string_view doc;   // one line
  // Has the graph for itself: what it leaves as it is need not be copied.
  Graph (*run)(Graph&&, const PassOptions&);
  bool in_bodies = true;  // runs inside the bodies of control flow and regions too, innermost first
  bool keeps_signature = true;  // inputs and output types stay; transforms change them
  std::span<const PassArgument> arguments = {};
};

// One step of a pipeline.
struct PassUse {
  PassUse(const Pass& p, PassArguments a = {})
      : pass(&p), arguments(std::move(a)) {}  // NOLINT: implicit by design
  const Pass* pass;
  PassArguments arguments;
};
using Pipeline = std::vector<PassUse>;

std::string to_string(const Pipeline& pipeline);  // parse_pipeline reads it back

struct PassRecord {
  std::string pass;
  double seconds = 0;
  int32_t nodes_before = 0, nodes_after = 0;
  RewriteStats rules;
};
struct PassReport {
  std::vector<PassRecord> passes;
  std::string to_string() const;  // a table, one line per pass, rules below
  // What the passes recognise, fuse_quantised and fold_scales found, and what it nearly did and why not; a line each.
  std::string recognition() const;
};

struct PassContext {
  bool verify = true;
  std::string dump_dir;  // numbered dumps NN-name.rlx; empty: none
  bool fast_math = false;
  std::function<bool(const Node&, const Graph&)> keeps;
  std::function<bool(const Node&)> alone;
  RegionSchedule schedule;
  PassReport* report = nullptr;
  FusionReport* fusion = nullptr;
  // Told after each pass: what it did, and the graph that it left.
  std::function<void(const PassRecord&, const Graph&)> watch;
};

Graph run_pass(Graph g, const Pass& pass, const PassOptions& options = {});
Graph run_passes(Graph g, const Pipeline& pipeline, const PassContext& context = {});

// Every pass there is, in the order of the documentation.
std::span<const Pass* const> all_passes();
const Pass* find_pass(std::string_view name);  // nullptr when unknown
Pipeline parse_pipeline(std::string_view text);

}  // namespace rlx
