#include "hidden_checks.h"

#include <gtest/gtest.h>

#include "cpu_checks.h"
#include "rlx/backend/hidden/backend.h"
#include "rlx/ir/text.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {

namespace {

struct HiddenRun {
  Tensors results;
  NamedTensors params;
  std::string error;
};

HiddenRun run_on(const char* device, const Graph& g, const NamedTensors& leaves) {
  HiddenRun out;
  std::vector<size_t> donate;  // on every second one
  for (size_t i = 0; i < g.inputs().size() && g.hash() % 2; ++i) donate.push_back(i);
  CompiledGraph f = Session(device).compile(g, {.threads = 2, .donate = donate, .poison = true});
  NamedTensors inputs;
  for (Value v : g.inputs()) {
    const std::string& name = g.node(v).get<LeafAttrs>().name;
    inputs[name] = leaves.at(name);
  }
  for (Value v : g.params()) {
    const std::string& name = g.node(v).get<LeafAttrs>().name;
    f.set_param(name, leaves.at(name));
  }
  try {
    out.results = f.run(inputs);
    out.results = f.run(inputs);  // parameters have moved on
  } catch (const Error& e) {
    out.error = e.what();
  }
  if (out.error.empty()) out.params = f.params();
  return out;
}

}  // namespace

void register_hidden_devices() {
  static const bool once = [] {
    register_backend(hidden::make_hidden_backend(0));
    register_backend(hidden::make_hidden_backend(1));
    return true;
  }();
  (void)once;
}

std::string differs_on_hidden(const Graph& g, const NamedTensors& leaves) {
  register_hidden_devices();
  const HiddenRun want = run_on("cpu", g, leaves), got = run_on("hidden", g, leaves);
  if (want.error != got.error)
    return fmt::format("raises \"{}\" instead of \"{}\"", got.error, want.error);
  for (size_t i = 0; i < want.results.size(); ++i)
    if (!got.results[i].same_bits(want.results[i])) return fmt::format("result {} differs", i);
  for (const auto& [name, value] : want.params)
    if (!got.params.at(name).same_bits(value)) return fmt::format("param {} differs", name);
  return {};
}

int check_samples_on_hidden(size_t step) {
  int ran = 0;
  size_t row = 0;
  Builder b("samples");
  NamedTensors in;
  std::string what;
  auto flush = [&] {
    if (in.empty() && b.graph().outputs.empty()) return;
    const Graph g = b.finish();
    EXPECT_EQ(differs_on_hidden(g, in), "") << what << print(g);
    b = Builder("samples");
    in.clear(), what.clear();
  };
  auto add = [&](const Graph& g, const Tensors& operands, const std::string& text) {
    Values values;
    for (const Tensor& t : operands) {
      const std::string name = fmt::format("{}", in.size());
      values.push_back(b.input(name, t.type()));
      in[name] = t;
    }
    for (Value v : b.inline_graph(g, values)) b.output(v);
    what += text + "\n";
    if (++ran % 16 == 0) flush();
  };
  for (const Sample& s : samples()) {
    if (row++ % step || !is_wanted(s.op)) continue;
    for (const DTypeInfo& d : kDTypes) {
      const auto c = make_case(s, d.dtype);
      if (!c) continue;
      add(c->graph, c->operands, fmt::format("{} at {}", s.text, d.dtype));
      if (auto g = gradient_of(*c)) add(g->graph, g->in, g->what);
      if (!s.swept()) break;
    }
  }
  flush();
  return ran;
}

int check_random_programs_on_hidden(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const RandomProgram p = seed % 50 == 7 ? random_large_program(seed)
                            : seed % 2     ? random_square_program(seed)
                                           : random_program(seed);
    EXPECT_EQ(differs_on_hidden(p.graph, p.leaves), "") << "program " << seed << "\n"
                                                        << to_string(p);
  }
  return static_cast<int>(count);
}

}  // namespace rlx::testing
