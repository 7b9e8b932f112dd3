// The golden values (tests/golden/*.jsonl; the format is documented in generate.py), for any way of
// running a graph.
//
//   GoldenReport r = run_golden([](const Graph& g, const Tensors& in) { return evaluate(g, in); });
//   EXPECT_TRUE(r.clean()) << r.text();
//
// Who looks into the samples themselves includes <nlohmann/json.hpp>.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "samples.h"

namespace rlx::testing {

using Json = nlohmann::json;
using Execute = std::function<Tensors(const Graph&, const Tensors& inputs)>;

struct Tolerance {
  double rel = 0, abs = 0;
  bool any_zero = false, signed_zero = false;
};

// Mismatches by op, the first few in words.
struct GoldenReport {
  int samples = 0;
  std::map<std::string, std::vector<std::string>> mismatches;
  bool clean() const { return mismatches.empty(); }
  std::string text() const;
};

std::string golden_attrs(const Json& attrs);
bool accept_real(double x, double y, const Tolerance& t);

// Samples as one graph: a node each, with operands of its own.
struct GoldenBatch {
  std::vector<Json> samples;

  // What is wrong with each sample; nothing where all is well. What fails the whole graph is tried again one by one.
  std::vector<std::string> run(const Execute& execute) const;
};

// Calls `use` with every sample of the golden files in the order of their names; RLX_OPS filters them.
void for_each_golden(const std::function<void(const Json&)>& use);

// Runs all samples, `batch` to a graph.
GoldenReport run_golden(const Execute& execute, size_t batch = 1);

// The same on the CPU backend, with vectors of that many bits (0: the machine's widest). Memory is poisoned; 32 samples
// share a graph, so that the code generator starts once for all of them.
GoldenReport golden_on_cpu(int vector_bits);

}  // namespace rlx::testing
