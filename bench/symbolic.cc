// What symbolic sizes cost: one compilation for all sizes against one whose sizes are constant.
//
//   symbolic                 BERT-base (f32) and smaller models: compiling, binding a new size, running
//   symbolic --sizes 10000   and what memory does over so many sizes
//
// Binding is timed at sizes that were not seen; running at one size, symbolic and static in turns, the median ratio of the
// rounds.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>

#include "rlx/base/clock.h"
#include "rlx/compile/compile.h"
#include "rlx/ir/builder.h"
#include "rlx/runtime/runtime.h"
#include "symbolic_cases.h"

namespace rlx::symbolic {
namespace {

Tensor random_tensor(const Type& type, std::mt19937_64& random) {
  Tensor t(type.dtype, type.shape.sizes());
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (is_float(type.dtype))
      t.set_float(i, 0.05 * (static_cast<double>(random() % 1000) / 500 - 1));
    else
      t.set_int(i, static_cast<int64_t>(random() % 40));
  }
  return t;
}

NamedTensors tensors_of(const Graph& g, const Values& leaves, std::mt19937_64& random) {
  NamedTensors out;
  for (Value v : leaves)
    out.emplace(g.node(v).get<LeafAttrs>().name, random_tensor(g.type(v), random));
  return out;
}

DimBinding drawn(const SymbolicProgram& p, std::mt19937_64& random) {
  DimBinding out;
  for (const auto& [name, range] : p.sizes)
    out.emplace(name, range.first + 1 +
                          static_cast<int64_t>(random() %
                                               static_cast<uint64_t>(range.second - range.first)));
  return out;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

int64_t resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::atoll(line.c_str() + 6);
  return 0;
}

void measure(const SymbolicProgram& p, int rounds) {
  std::mt19937_64 random(1);
  const CompileOptions options{.cache = false};
  auto start = Clock::now();
  CompiledGraph f = Session().compile(p.graph, options);
  const double compile = seconds_since(start);
  const NamedTensors params = tensors_of(p.graph, p.graph.params(), random);
  f.set_params(params);
  std::vector<double> binds, colds;
  const auto executable = rlx::compile(p.graph, backend_for(default_device()), options);
  for (int i = 0; i < 20; ++i) {
    const DimBinding sizes = drawn(p, random);
    start = Clock::now();
    executable->bind(sizes);
    binds.push_back(seconds_since(start));
    if (i >= 3) continue;
    const Graph bound = rlx::bind(p.graph, sizes);
    start = Clock::now();
    const CompiledGraph cold = Session().compile(bound, options);
    colds.push_back(seconds_since(start));
  }
  std::vector<double> ratios;
  const DimBinding sizes = drawn(p, random);
  const Graph bound = rlx::bind(p.graph, sizes);
  const NamedTensors inputs = tensors_of(bound, bound.inputs(), random);
  CompiledGraph fixed = Session().compile(bound, options);
  fixed.set_params(params);
  double seconds = 0;
  for (int i = 0; i < rounds; ++i) {
    start = Clock::now();
    fixed.run(inputs);
    const double by_static = seconds_since(start);
    start = Clock::now();
    f.run(inputs);
    const double by_symbolic = seconds_since(start);
    if (i > 0) ratios.push_back(by_static / by_symbolic);
    seconds = by_symbolic;
  }
  fmt::print("{:10} {:9.1f} {:9.1f} {:9.2f} {:8.1f} % {:10.3f} {:9.2f}\n", p.name, compile * 1e3,
             median(colds) * 1e3, median(binds) * 1e3, 100 * median(binds) / median(colds),
             median(ratios), seconds * 1e3);
}

void many_sizes(int count) {
  SymbolicProgram p = symbolic_bert(2, 96, 6, 50);
  p.sizes = {{"batch", {0, 100}}, {"length", {0, 120}}};
  std::mt19937_64 random(2);
  CompiledGraph f = Session().compile(p.graph);
  f.set_params(tensors_of(p.graph, p.graph.params(), random));
  int64_t at_start = 0;
  for (int i = 0; i < count; ++i) {
    DimBinding sizes = drawn(p, random);
    sizes["batch"] = 1 + sizes["batch"] % 4;
    sizes["length"] = 1 + i % 120;
    const Graph bound = rlx::bind(p.graph, sizes);
    f.run(tensors_of(bound, bound.inputs(), random));
    if (i + 1 == std::min(count, 1000)) at_start = resident_kilobytes();
  }
  fmt::print("{} sizes: {} kB resident after 1,000 of them, {} kB at the end\n", count, at_start,
             resident_kilobytes());
}

}  // namespace
}  // namespace rlx::symbolic

int main(int argc, char** argv) {
  using namespace rlx::symbolic;
  fmt::print("{:10} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9}\n", "", "compile", "static", "bind",
             "of static", "run", "run");
  fmt::print("{:10} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9}\n", "model", "ms", "ms", "ms", "",
             "ratio", "ms");
  measure(symbolic_bert(12, 768, 12, 1000), 9);
  measure(symbolic_gpt(12, 768, 12, 1000), 9);
  measure(symbolic_conv_net(), 40);
  measure(symbolic_rnn(), 40);
  if (argc > 2 && std::string_view(argv[1]) == "--sizes") many_sizes(std::atoi(argv[2]));
}
