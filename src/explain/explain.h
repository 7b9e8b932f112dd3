// What was made of a program, and why: one JSON document, and a page that shows it.
//
//   Explanation e = explain(graph, "cpu", {.inputs = {{"x", x}}, .params = params, .run = true});
//   write_file("report.json", e.json());      // docs/explain.md says what stands where
//   write_file("report.html", e.html());      // one file for a browser; it asks nothing of any network
//
// The program takes the one way of compile/compile.h; nothing here decides anything. All sizes must be known: those of
// symbols from options.compile.dims, or from the inputs and parameters that are given.
//
// Raises what compiling and running raise: "stage" (a device that walks programs has no kernels to explain), "unbound-dim",
// "input-missing", ...; Error(user, "limits") for limits that are no positive numbers, "runs" for fewer runs than one.
#pragma once

#include <optional>

#include "rlx/compile/compile.h"
#include "rlx/runtime/runtime.h"

namespace rlx {

// What the machine can do at most: f32 operations (a multiply-add is two) and traffic with memory, in 1e9 a second.
struct MachineLimits {
  double gflops = 0, gbytes = 0;
};

struct ExplainOptions {
  CompileOptions compile;
  CompileStage graph_is = CompileStage::mir;  // how far a graph has come
  NamedTensors inputs, params;
  // Runs the program and measures its kernels: the best of so many runs. Leaves without a value get one (floats between
  // -1 and 1, integers 0), and are listed as made up.
  bool run = false;
  int runs = 5;
  std::optional<MachineLimits> limits;        // unset: measured, where the program is run
  const std::atomic<bool>* cancel = nullptr;  // polled by runs
};

class Explanation {
 public:
  explicit Explanation(std::string json) : json_(std::move(json)) {}
  const std::string& json() const { return json_; }
  std::string html() const;

 private:
  std::string json_;
};

Explanation explain(GraphModule program, const Device& device = default_device(),
                    const ExplainOptions& options = {});

}  // namespace rlx
