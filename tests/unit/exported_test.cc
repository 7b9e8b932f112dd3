// Layers as PyTorch's exporters write them out (tests/text/exported, written by tests/golden/exporters) become the programs
// that they are with our composites, and have PyTorch's values; layers that mean something else do not.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "../support/lowered.h"
#include "rlx/ir/graph.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "text_cases.h"

namespace rlx::testing {
namespace {

struct Exported {
  std::string name;
  Graph graph;
  std::vector<double> values;  // of PyTorch's result, evenly spaced
  std::string broken;          // an op that it does not have
};

Exported read_exported(const std::string& name) {
  const auto path = text_cases::root() / "exported" / (name + ".rlx");
  std::ifstream in(path);
  check(in.good(), "cannot read {}", path.string());
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Exported out{name, parse(text), {}, {}};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && line.starts_with("// ");) {
    std::istringstream words(line.substr(3));
    std::string kind;
    words >> kind;
    if (kind == "not") words >> out.broken;
    for (double v; kind == "values" && words >> v;) out.values.push_back(v);
  }
  return out;
}

std::vector<std::string> names_that(const std::regex& match) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(text_cases::root() / "exported")) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".rlx" && std::regex_match(name, match)) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// leaf_values() of write.py.
Tensor leaf_values(const std::string& name, const Type& type) {
  int64_t seed = 0;
  for (unsigned char c : name) seed += c;
  Tensor t(type.dtype, type.shape.sizes());
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (!is_float(type.dtype)) {
      t.set_int(i, (seed + 3 * i) % 10);
      continue;
    }
    double v = std::sin(static_cast<double>(seed) + 1.3 * static_cast<double>(i) +
                        0.01 * static_cast<double>((7 * i) % 31));
    if (name == "mask")
      v = v > -0.5 ? 1 : 0;
    else if (name.ends_with("running_var"))
      v += 1.5;
    else if (type.rank() > 1 && name.ends_with("weight"))
      v *= 0.3;
    t.set_float(i, v);
  }
  return t;
}

// Weights of linear layers lie as [in, out] in what the ONNX exporter writes and in GPT-2, as [out, in] else: leaves have the
// values that they have where the layer was made.
NamedTensors leaves_of(const Exported& e) {
  NamedTensors out;
  for (const Node& n : e.graph.nodes) {
    if (n.op != &op::input && n.op != &op::param) continue;
    const std::string& name = n.get<LeafAttrs>().name;
    const bool turned = e.name.find(".onnx") != std::string::npos && !e.name.starts_with("gpt2") &&
                        n.type().rank() == 2 && name.ends_with("weight");
    if (!turned) {
      out[name] = leaf_values(name, n.type());
      continue;
    }
    const Ints sizes = n.type().shape.sizes();
    const Tensor lies = leaf_values(name, {n.type().dtype, {sizes[1], sizes[0]}});
    Tensor t(n.type().dtype, sizes);
    for (int64_t i = 0; i < sizes[0]; ++i)
      for (int64_t j = 0; j < sizes[1]; ++j)
        t.set_float(i * sizes[1] + j, lies.get_float(j * sizes[0] + i));
    out[name] = t;
  }
  return out;
}

// Leaves first, in the order of their names: where a program mentions them is no part of what it does.
Graph with_leaves_first(const Graph& g) {
  const auto is_leaf = [](const Node& n) { return n.op == &op::input || n.op == &op::param; };
  std::vector<int32_t> order;
  for (int32_t i = 0; i < static_cast<int32_t>(g.nodes.size()); ++i) order.push_back(i);
  const auto name = [&](int32_t i) {
    const Node& n = g.nodes[static_cast<size_t>(i)];
    return std::pair(!is_leaf(n), is_leaf(n) ? n.get<LeafAttrs>().name : std::string());
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return name(a) < name(b); });
  std::vector<int32_t> now(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    now[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
  Graph out = g;
  const auto moved = [&](Value v) { return Value{now[static_cast<size_t>(v.node)], v.index}; };
  for (size_t i = 0; i < order.size(); ++i) {
    out.nodes[i] = g.nodes[static_cast<size_t>(order[i])];
    for (Value& v : out.nodes[i].in) v = moved(v);
  }
  for (Value& v : out.outputs) v = moved(v);
  return out;
}

// Steps and generated kernels, without the numbers that nodes have in their graph, and with buffers counted as they come up.
std::string lir_of(const Graph& g) {
  static const std::regex node("%[0-9]+"), buffer("\\bb[0-9]+");
  const Lowered l = lower_for_cpu(with_leaves_first(g), 256);
  const std::string text =
      std::regex_replace(stage_text(l, Stage::lower) + stage_text(l, Stage::kernel), node, "%");
  std::map<std::string, size_t> known;
  std::string out;
  auto at = text.cbegin();
  for (std::sregex_iterator i(text.begin(), text.end(), buffer), end; i != end; ++i) {
    out.append(at, text.begin() + i->position());
    out += fmt::format("b{}", known.try_emplace(i->str(), known.size()).first->second);
    at = text.begin() + i->position() + i->length();
  }
  return out.append(at, text.cend());
}

bool is_broken(const Exported& e) { return !e.broken.empty(); }

// The same layer with our composites.
std::string ours_of(const std::string& name) {
  return std::regex_replace(name, std::regex("\\.sdpa$"), ".torch") + ".ours";
}

// What PyTorch computed, by the evaluator and on the CPU. Weights into which an exporter folded others are compared with
// our composites alone.
TEST(Exported, ValuesAreThoseOfPyTorch) {
  int compared = 0;
  for (const std::string& name : names_that(std::regex(".*"))) {
    SCOPED_TRACE(name);
    const Exported e = read_exported(name);
    const NamedTensors leaves = leaves_of(e);
    const Tensor want = evaluate(e.graph, leaves).outputs[0];
    const int64_t step = std::max<int64_t>(1, want.elements() / 16);
    ASSERT_TRUE(e.values.size() == 16 || name.starts_with("resnet.onnx"));
    for (int64_t i = 0; i < std::ssize(e.values); ++i)
      ASSERT_NEAR(want.get_float(i * step), e.values[static_cast<size_t>(i)],
                  3e-5 * (1 + std::fabs(e.values[static_cast<size_t>(i)])))
          << i;
    if (!is_broken(e) && !name.ends_with(".ours")) {
      const Tensor ours = evaluate(read_exported(ours_of(name)).graph, leaves).outputs[0];
      for (int64_t i = 0; i < want.elements(); ++i)
        ASSERT_NEAR(ours.get_float(i), want.get_float(i), 1e-5 * (1 + std::fabs(want.get_float(i))))
            << i;
    }
    CompiledGraph f = Session("cpu").compile(e.graph);
    NamedTensors inputs;
    for (const Node& n : e.graph.nodes) {
      if (n.op != &op::input && n.op != &op::param) continue;
      const std::string& leaf = n.get<LeafAttrs>().name;
      if (n.op == &op::input)
        inputs[leaf] = leaves.at(leaf);
      else
        f.set_param(leaf, leaves.at(leaf));
    }
    const Tensor got = f.run(inputs)[0];
    for (int64_t i = 0; i < want.elements(); ++i)
      ASSERT_NEAR(got.get_float(i), want.get_float(i), 3e-5 * (1 + std::fabs(want.get_float(i))))
          << i;
    ++compared;
  }
  EXPECT_GE(compared, 40);
}

TEST(Exported, LowersToWhatItMeans) {
  int compared = 0;
  for (const std::string& name : names_that(std::regex(".*\\.(torch|onnx|sdpa)"))) {
    SCOPED_TRACE(name);
    EXPECT_EQ(lir_of(read_exported(name).graph), lir_of(read_exported(ours_of(name)).graph));
    ++compared;
  }
  EXPECT_GE(compared, 14);
}

// How many nodes of the op there are whose second operand (keys, factors) is no constant.
int count_of(const Graph& written, std::string_view op_name) {
  const Graph g =
      run_passes(written, parse_pipeline("simplify,fold_constants,cse,recognise,simplify"), {});
  const auto is_constant = [&](Value v) {
    while (g.node(v).op->kind == Kind::movement && !g.node(v).in.empty()) v = g.node(v).in[0];
    return g.node(v).op == &op::constant;
  };
  int count = 0;
  for (const Node& n : g.nodes) count += n.op->name == op_name && !is_constant(n.in[1]);
  return count;
}

TEST(Exported, WhatIsBrokenIsNotRecognised) {
  int compared = 0;
  for (const std::string& name : names_that(std::regex(".*\\.broken-.*"))) {
    SCOPED_TRACE(name);
    const Exported e = read_exported(name);
    const Exported whole = read_exported(name.substr(0, name.find('.')) + ".torch.ours");
    EXPECT_LT(count_of(e.graph, e.broken), count_of(whole.graph, e.broken)) << e.broken;
    EXPECT_TRUE(lir_of(e.graph) != lir_of(whole.graph));
    ++compared;
  }
  EXPECT_GE(compared, 20);
}

// The report names what nearly was the op, and why it is not. An eps outside of the root of a batch norm is no near miss: it
// is a scale like any other and goes into the weights.
TEST(Exported, WhatIsBrokenHasAReason) {
  const std::map<std::string, std::string> rules{{"attention", "attention"},
                                                 {"layer_norm", "layer-norm|norm-scale"},
                                                 {"rms_norm", "rms-norm|norm-scale"},
                                                 {"rope", "rope"},
                                                 {"batch_norm", "conv-(shift-)?scale"}};
  for (const std::string& name : names_that(std::regex(".*\\.broken-.*"))) {
    SCOPED_TRACE(name);
    if (name == "resnet.broken-eps") continue;
    const Exported e = read_exported(name);
    PassReport report;
    run_passes(e.graph, default_pipeline(), {.report = &report});
    const std::regex wanted(rules.at(e.broken));
    int reasons = 0;
    for (const PassRecord& r : report.passes)
      for (const NearMiss& miss : r.rules.misses) {
        reasons += std::regex_match(std::string(miss.rule), wanted);
        EXPECT_FALSE(miss.why.empty());
      }
    EXPECT_GT(reasons, 0);
  }
}

}  // namespace
}  // namespace rlx::testing
