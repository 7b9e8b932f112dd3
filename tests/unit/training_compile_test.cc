// compile_training: two programs over one memory for the weights. Gradients against JAX (tests/golden/mlp.py), against
// grad_with_loss and train_step; what lies where; that the backward computes nothing a second time.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "../support/expect_error.h"
#include "rlx/backend/hidden/backend.h"
#include "rlx/build.h"
#include "rlx/compile.h"
#include "rlx/front/trace.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/opt.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

using Numbers = std::map<std::string, std::vector<double>>;

const Numbers& golden() {
  static const Numbers all = [] {
    Numbers out;
    std::ifstream file(RLX_SOURCE_DIR "/tests/golden/mlp.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string name, word;
      words >> name;
      while (name != "#" && words >> word) out[name].push_back(std::strtod(word.c_str(), nullptr));
    }
    return out;
  }();
  return all;
}

Tensor golden_tensor(const std::string& name, DType dtype, Ints sizes) {
  Tensor t(dtype, std::move(sizes));
  const std::vector<double>& values = golden().at(name);
  EXPECT_EQ(static_cast<int64_t>(values.size()), t.elements()) << name;
  for (int64_t i = 0; i < t.elements(); ++i)
    is_float(dtype) ? t.set_float(i, values[static_cast<size_t>(i)])
                    : t.set_int(i, static_cast<int64_t>(values[static_cast<size_t>(i)]));
  return t;
}

void expect_golden(const Tensor& got, const std::string& name, double tolerance) {
  const std::vector<double>& want = golden().at(name);
  ASSERT_EQ(static_cast<int64_t>(want.size()), got.elements()) << name;
  for (int64_t i = 0; i < got.elements(); ++i)
    ASSERT_NEAR(got.get_float(i), want[static_cast<size_t>(i)], tolerance) << name << " " << i;
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.type(), b.type());
  for (int64_t i = 0; i < a.elements(); ++i)
    ASSERT_NEAR(a.get_float(i), b.get_float(i), tolerance * (1 + std::abs(b.get_float(i)))) << i;
}

const std::vector<std::string> kWeights = {"w1", "b1", "w2", "b2"};
const std::map<std::string, Ints> kSizes = {
    {"w1", {19, 33}}, {"b1", {33}}, {"w2", {33, 5}}, {"b2", {5}}};

Graph mlp(DType d, const Dim& rows = 7) {
  return trace("mlp", [&](Tracer& t) -> TracedTensors {
    auto x = t.input("x", {rows, 19}, d), labels = t.input("labels", {rows}, DType::I32);
    TracedTensors w;
    for (const std::string& name : kWeights)
      w.push_back(t.param(name, Shape::of(kSizes.at(name)), d));
    auto logits = op::tanh(x.matmul(w[0]) + w[1]).matmul(w[2]) + w[3];
    return {op::softmax_cross_entropy(logits, labels).mean(), logits};
  });
}

NamedTensors mlp_weights(DType d) {
  NamedTensors out;
  for (const auto& [name, sizes] : kSizes) out[name] = golden_tensor(name, d, sizes);
  return out;
}
NamedTensors mlp_inputs(DType d) {
  return {{"x", golden_tensor("x", d, {7, 19})},
          {"labels", golden_tensor("labels", DType::I32, {7})}};
}

opt::CompilePipeline cpu_pipeline(CompileOptions options = {}) {
  return opt::CompilePipeline(backend_for("cpu"), std::move(options));
}

int count_in(const Graph& g, const OpDef& op) {
  int n = 0;
  for (const Node& node : g.nodes) {
    n += node.op == &op;
    for (const NamedBody& body : bodies(node.attrs)) n += count_in(body.graph, op);
  }
  return n;
}

// No two places of the plan that are alive at once and no views of each other lie in the same bytes, and only parameters lie
// where weights do.
void expect_weights_apart(const Graph& g, const MemoryPlan& plan,
                          const SharedWeightLayout& weights) {
  const auto aliases = collect_view_aliases(g);
  for (const WeightSlot& slot : weights.slots) {
    const Value v = g.find_leaf(slot.name);
    if (v.valid()) {
      EXPECT_EQ(plan.assignments.at(v), (BufferSlot{slot.offset, slot.size})) << slot.name;
    }
  }
  for (const auto& [value, slot] : plan.assignments) {
    const auto alias = aliases.find(value);
    const Value root = alias == aliases.end() ? value : alias->second.root;
    if (g.node(root).op == &op::param) continue;
    EXPECT_GE(slot.offset, weights.arena_size) << to_string(value);
  }
  EXPECT_GE(plan.arena_size, weights.arena_size);
}

TEST(TrainingCompile, GradientsOfANetworkAreThoseOfJax) {
  for (const char* device : {"cpu", "reference"})
    for (DType d : {DType::F64, DType::F32}) {
      SCOPED_TRACE(fmt::format("{} {}", device, d));
      const auto r = opt::compile_training(cpu_pipeline(), mlp(d), {"w1", "b1", "w2", "b2"});
      opt::CompiledTraining f(r, Session(device));
      f.set_params(mlp_weights(d));
      const double tolerance = d == DType::F64 ? 1e-12 : 1e-5;
      for (int run = 0; run < 2; ++run) {
        const Tensors y = f.forward(mlp_inputs(d));
        ASSERT_EQ(y.size(), 2u);
        expect_golden(y[0], "loss", tolerance);
        const Tensors gradients = f.backward();
        ASSERT_EQ(gradients.size(), 4u);
        for (size_t k = 0; k < 4; ++k) expect_golden(gradients[k], "d_" + kWeights[k], tolerance);
        expect_golden(f.backward()[0], "d_w1", tolerance);  // of the same forward
      }
    }
}

TEST(TrainingCompile, OnADeviceWithItsOwnMemory) {
  register_backend(hidden::make_hidden_backend(0));
  {
    const opt::CompilePipeline pipeline(backend_for("hidden"));
    TrainOptions step{.optimizer = sgd({.rate = constant_rate(0.5)})};
    const auto r =
        opt::compile_training(pipeline, mlp(DType::F64), {"w1", "b1", "w2", "b2"}, {.step = step});
    opt::CompiledTraining f(r, Session("hidden"));
    f.set_params(r.state);
    f.set_params(mlp_weights(DType::F64));
    for (int k = 0; k < 2; ++k) f.forward(mlp_inputs(DType::F64)), f.backward();
    for (const std::string& name : kWeights)
      expect_golden(f.params().at(name), "after_" + name, 1e-12);
  }
  unregister_backend("hidden");
}

TEST(TrainingCompile, AStepWritesTheWeightsThatTheForwardReads) {
  for (const char* device : {"cpu", "reference"}) {
    SCOPED_TRACE(device);
    TrainOptions step{.optimizer = sgd({.rate = constant_rate(0.5)})};
    const auto r = opt::compile_training(cpu_pipeline(), mlp(DType::F64), {"w1", "b1", "w2", "b2"},
                                         {.step = step});
    EXPECT_EQ(r.backward.lir.as_graph().outputs.size(), 0u);
    opt::CompiledTraining f(r, Session(device));
    f.set_params(r.state);
    f.set_params(mlp_weights(DType::F64));
    const std::byte* region = f.weights();
    std::vector<double> losses;
    for (int k = 0; k < 2; ++k) {
      losses.push_back(f.forward(mlp_inputs(DType::F64))[0].get_float(0));
      EXPECT_TRUE(f.backward().empty());
    }
    EXPECT_LT(losses[1], losses[0]);
    EXPECT_EQ(f.weights(), region);
    for (const std::string& name : kWeights) {
      expect_golden(f.params().at(name), "after_" + name, 1e-12);
      const auto slot = std::find_if(r.weights.slots.begin(), r.weights.slots.end(),
                                     [&](const WeightSlot& s) { return s.name == name; });
      const double first = *reinterpret_cast<const double*>(region + slot->offset);
      EXPECT_NEAR(first, golden().at("after_" + name)[0], 1e-12);
    }
    expect_error("training-order", "run that first", [&] { f.backward(); });
  }
}

TEST(TrainingCompile, TheJointProgramIsThatOfTrainStep) {
  TrainOptions step{
      .optimizer = adamw({.rate = constant_rate(0.01)}), .clip_norm = 0.5, .report_norm = true};
  const NamedTensors weights = mlp_weights(DType::F32);
  const auto r = opt::compile_training(cpu_pipeline(), mlp(DType::F32), {"w1", "b1", "w2", "b2"},
                                       {.step = step});
  const TrainStep whole = train_step(mlp(DType::F32), weights, step);
  EXPECT_EQ(print(r.joint), print(whole.graph));
  opt::CompiledTraining f(r, Session("cpu"));
  f.set_params(r.state);
  f.set_params(weights);
  CompiledGraph g = Session("cpu").compile(whole.graph);
  g.set_params(whole.state);
  for (int k = 0; k < 3; ++k) {
    const Tensors want = g.run(mlp_inputs(DType::F32)), y = f.forward(mlp_inputs(DType::F32)),
                  norm = f.backward();
    ASSERT_EQ(norm.size(), 1u);
    expect_near(y[0], want[0], 1e-6);
    expect_near(norm[0], want[2], 1e-5);
  }
  const NamedTensors after = f.params();
  for (const auto& [name, value] : g.params()) expect_near(after.at(name), value, 1e-5);
}

TEST(TrainingCompile, TheBackwardComputesNothingAgain) {
  const auto r = opt::compile_training(cpu_pipeline(), mlp(DType::F32), {"w1", "b1", "w2", "b2"});
  const Graph &forward = r.forward.lir.as_graph(), &backward = r.backward.lir.as_graph();
  EXPECT_EQ(count_in(forward, op::matmul.def), 2);
  EXPECT_EQ(count_in(backward, op::matmul.def), 3);  // none by x
  EXPECT_EQ(count_in(forward, op::tanh.def), 1);
  EXPECT_EQ(count_in(backward, op::tanh.def), 0);
  EXPECT_EQ(count_in(backward, op::exp.def), 0);  // softmax's
  EXPECT_EQ(count_in(backward, op::gather.def), 0);
  EXPECT_EQ(forward.outputs.size(), 2 + r.saved);
  EXPECT_EQ(r.saved, [&] {
    size_t n = 0;
    for (Value v : backward.inputs())
      n += backward.node(v).get<LeafAttrs>().name.starts_with("saved_");
    return n;
  }());
  EXPECT_TRUE(r.backward.lir.has_plan());
  EXPECT_GT(count_in(backward, op::region.def), 0);  // it is fused, too
}

TEST(TrainingCompile, BothPlansHaveTheWeightsInOnePlace) {
  const auto r = opt::compile_training(cpu_pipeline(), mlp(DType::F32), {"w1", "b1", "w2", "b2"});
  ASSERT_EQ(r.weights.slots.size(), 4u);
  int64_t end = 0, bytes = 0;
  for (const WeightSlot& s : r.weights.slots) {
    EXPECT_EQ(s.offset % 64, 0);
    end = std::max(end, s.offset + s.size), bytes += (s.size + 63) / 64 * 64;
  }
  EXPECT_EQ(r.weights.arena_size, end);
  EXPECT_LE(end, bytes);  // nothing lies between
  const Graph &forward = r.forward.lir.as_graph(), &backward = r.backward.lir.as_graph();
  expect_weights_apart(forward, r.forward_plan, r.weights);
  expect_weights_apart(backward, r.backward_plan, r.weights);
  EXPECT_TRUE(backward.find_leaf("w2").valid());
  EXPECT_EQ(r.backward_plan.assignments.at(backward.find_leaf("w2")),
            r.forward_plan.assignments.at(forward.find_leaf("w2")));
}

TEST(TrainingCompile, LeavesAreFoundByNameWhateverThePassesDo) {
  // Dead nodes in front and blocks: values have other numbers in the end.
  const GraphModule hir = GraphModule::define("net", [](HirModule& h) {
    const HirNodeId dead = h.input("dead", {DType::F32, {4}});
    h.mir(op::exp, {dead});
    const HirNodeId x = h.input("x", {DType::F32, {3, 8}}), w = h.param("w", {DType::F32, {8, 5}});
    return h.mir(AnyOp(op::reduce_sum, ReduceAttrs{{0, 1}, false}), {h.linear(x, w)});
  });
  const auto r = opt::compile_training(cpu_pipeline(), hir, {"w"});
  opt::CompiledTraining f(r, Session("cpu"));
  Tensor x(DType::F32, {3, 8}), w(DType::F32, {8, 5});
  for (int64_t i = 0; i < 24; ++i) x.set_float(i, static_cast<double>(i));
  f.set_params({{"w", w}});
  f.forward({{"x", x}, {"dead", Tensor(DType::F32, {4})}});
  const Tensor dw = f.backward()[0];
  for (int64_t i = 0; i < 40; ++i)
    EXPECT_EQ(dw.get_float(i), static_cast<double>(24 + 3 * (i / 5))) << i;  // column sums of x

  const Graph g = mlp(DType::F32);
  const auto by_value = opt::compile_training(cpu_pipeline(), g, {g.find_leaf("w2")});
  EXPECT_EQ(by_value.backward.lir.as_graph().output_types()[0].shape, (Shape{33, 5}));
  expect_error("not-leaf", "matmul", [&] {
    opt::compile_training(cpu_pipeline(), g, {Value{g.find_leaf("b2").node + 1, 0}});
  });
  expect_error("no-leaf", "w9", [&] { opt::compile_training(cpu_pipeline(), g, {"w9"}); });
}

TEST(TrainingCompile, ParametersAreSetAllOrNone) {
  TrainOptions step{.optimizer = adamw({.rate = constant_rate(0.1)})};
  const auto r = opt::compile_training(cpu_pipeline(), mlp(DType::F64), {"w1", "b1", "w2", "b2"},
                                       {.step = step});
  opt::CompiledTraining f(r, Session("cpu"));
  f.set_params(r.state);
  f.set_params(mlp_weights(DType::F64));
  f.forward(mlp_inputs(DType::F64));
  std::string other;  // state of the optimiser
  for (const auto& [name, value] : r.state)
    if (value.rank() > 0 && !mlp_weights(DType::F64).contains(name)) other = name;
  ASSERT_NE(other, "");
  const Tensor before = f.params().at("b1");
  const Tensor moved = Tensor::full(before.dtype(), before.sizes(), 77);
  expect_error("param-type", other,
               [&] { f.set_params({{"b1", moved}, {other, Tensor(DType::F64, {9, 9, 9})}}); });
  EXPECT_TRUE(f.params().at("b1").same_bits(before));
  expect_error("input-unknown", "nosuch", [&] { f.backward({{"nosuch", before}}); });
  EXPECT_NO_THROW(f.backward()) << "nothing has changed";
}

TEST(TrainingCompile, LirIsTheWrongStage) {
  const GraphModule lir =
      lower_to(CompileStage::lir, mlp(DType::F32), *backend_for("cpu"), {}, CompileStage::mir);
  try {
    opt::compile_training(lir, {"w1"});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(opt::training_compile_error(e), opt::TrainingCompileError::wrong_stage);
    EXPECT_EQ(e.code(), "training-stage");
    EXPECT_TRUE(e.message().starts_with("training compile: ")) << e.message();
  }
  expect_error("output-index", "output 0 must be the loss",
               [&] { opt::compile_training(Graph{"empty"}, {"w1"}); });
}

TEST(TrainingCompile, ALossThatIsNoScalarIsWeighed) {
  const Graph g =
      trace("g", [](Tracer& t) { return op::square(t.input("x", {3}) * t.param("w", {3})); });
  opt::CompiledTraining f(opt::compile_training(cpu_pipeline(), g, {"w"}), Session("cpu"));
  const Tensor x = Tensor::from<float>({3}, {1, 2, 3}), w = Tensor::from<float>({3}, {4, 5, 6});
  f.set_params({{"w", w}});
  EXPECT_EQ(f.forward({{"x", x}})[0].get_float(2), 324);
  const Tensor dw = f.backward({{"d_output", Tensor::from<float>({3}, {1, 0, 2})}})[0];
  EXPECT_EQ(dw.get_float(0), 8);
  EXPECT_EQ(dw.get_float(1), 0);
  EXPECT_EQ(dw.get_float(2), 2 * 2 * 18 * 3);
}

TEST(TrainingCompile, WhatTheForwardUpdatesIsReadAsItWas) {
  // The gradient of w needs the running mean m as it was before this run.
  const Graph g = trace("g", [](Tracer& t) {
    auto x = t.input("x", {4}), w = t.param("w", {4}), m = t.param("m", {4});
    t.update("m", m * 0.5 + x * 0.5);
    return (w * m).sum();
  });
  opt::CompiledTraining f(opt::compile_training(cpu_pipeline(), g, {"w"}), Session("cpu"));
  f.set_params({{"w", Tensor::from<float>({4}, {1, 1, 1, 1})},
                {"m", Tensor::from<float>({4}, {1, 2, 3, 4})}});
  const Tensor x = Tensor::from<float>({4}, {9, 9, 9, 9});
  EXPECT_EQ(f.forward({{"x", x}})[0].get_float(0), 10);
  EXPECT_EQ(f.backward()[0].get_float(3), 4);
  EXPECT_EQ(f.params().at("m").get_float(3), 6.5);
  EXPECT_EQ(f.forward({{"x", x}})[0].get_float(0), 5 + 5.5 + 6 + 6.5);
  EXPECT_EQ(f.backward()[0].get_float(3), 6.5);
}

// The policy is applied to the whole, before it is cut.
TEST(TrainingCompile, InMixedPrecision) {
  CompileOptions options;
  options.precision = PrecisionPolicy::mixed(Precision::BF16);
  const auto r =
      opt::compile_training(cpu_pipeline(options), mlp(DType::F32), {"w1", "b1", "w2", "b2"});
  for (const Graph* g : {&r.forward.lir.as_graph(), &r.backward.lir.as_graph()})
    for (const Node& n : g->nodes)
      if (n.op == &op::matmul) {
        EXPECT_EQ(n.type().dtype, DType::BF16);
      }
  opt::CompiledTraining f(r, Session("cpu"));
  f.set_params(mlp_weights(DType::F32));
  expect_golden(f.forward(mlp_inputs(DType::F32))[0], "loss", 2e-2);
  const Tensors gradients = f.backward();
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(gradients[k].dtype(), DType::F32);
    expect_golden(gradients[k], "d_" + kWeights[k], 1e-2);
  }
}

TEST(TrainingCompile, AnyNumberOfRows) {
  const auto r = opt::compile_training(cpu_pipeline(), mlp(DType::F32, Dim::symbol("n")), {"w1"});
  EXPECT_TRUE(r.forward.has_dynamic_dims());
  opt::CompiledTraining f(r, Session("cpu"));
  f.set_params(mlp_weights(DType::F32));
  expect_golden(f.forward(mlp_inputs(DType::F32))[0], "loss", 1e-5);
  expect_golden(f.backward()[0], "d_w1", 1e-5);
  NamedTensors one{{"x", Tensor(DType::F32, {1, 19})}, {"labels", Tensor(DType::I32, {1})}};
  f.forward(one);
  EXPECT_EQ(f.backward()[0].get_float(5), 0);
}

TEST(TrainingCompile, ScansKeepWhatTheirBackwardReads) {
  const Graph g = trace("rnn", [](Tracer& t) {
    auto w = t.param("w", {8, 8}), xs = t.input("xs", {6, 8}), h = t.input("h", {8});
    Builder body("step");
    const Value c = body.input("c", {DType::F32, {8}}), x = body.input("x", {DType::F32, {8}}),
                m = body.input("m", {DType::F32, {8, 8}});
    const Value row = op::reshape(body, c, {{1, 8}});
    const Value moved = op::reshape(body, op::matmul(body, row, m), {{8}});
    body.output(op::tanh(body, op::add(body, moved, x)));
    const ScanAttrs attrs{Body(body.finish()), 6, 1, 1};
    const Value last =
        t.builder().emit(op::scan.def, attrs, Values{h.value(), xs.value(), w.value()})[0];
    return op::square(TracedTensor(t.builder(), last)).sum();
  });
  NamedTensors in{{"xs", Tensor(DType::F32, {6, 8})}, {"h", Tensor(DType::F32, {8})}};
  Tensor w(DType::F32, {8, 8});
  for (int64_t i = 0; i < 64; ++i) w.set_float(i, std::sin(static_cast<double>(i)) / 3);
  for (int64_t i = 0; i < 48; ++i) in["xs"].set_float(i, std::cos(static_cast<double>(i)));
  NamedTensors all = in;
  all["w"] = w;
  const Tensor want = evaluate(opt::grad(g, {"w"}), all).outputs[0];
  opt::CompiledTraining f(opt::compile_training(cpu_pipeline(), g, {"w"}), Session("cpu"));
  f.set_params({{"w", w}});
  f.forward(in);
  expect_near(f.backward()[0], want, 1e-5);
}

TEST(TrainingCompile, ABackwardOfOnesOwnIsCleanedUpAndOptimised) {
  Builder b("back");
  const Value x = b.input("x", {DType::F32, {4, 6}}), y = b.input("y", {DType::F32, {6, 5}});
  b.param("unused", {DType::F32, {2}});
  b.output(op::exp(b, op::dot_general(b, x, y, {{1}, {0}, {}, {}})));
  const opt::CompilePipeline pipeline = cpu_pipeline();
  const Graph g = opt::optimize_backward(pipeline, b.finish()).into_graph();
  EXPECT_EQ(count_in(g, op::dot_general.def), 0);
  EXPECT_EQ(count_in(g, op::matmul.def), 1);
  EXPECT_EQ(count_in(g, op::region.def), 1);
  EXPECT_FALSE(g.find_leaf("unused").valid());
}

TEST(TrainingCompile, WrongParametersChangeNothing) {
  opt::CompiledTraining f(opt::compile_training(cpu_pipeline(), mlp(DType::F32), {"w1"}),
                          Session("cpu"));
  NamedTensors values = mlp_weights(DType::F32);
  f.set_params(values);
  const double before = f.forward(mlp_inputs(DType::F32))[0].get_float(0);
  values["w1"] = Tensor(DType::F32, {19, 33});
  values["w3"] = Tensor(DType::F32, {1});
  expect_error("param-unknown", "w3", [&] { f.set_params(values); });
  values.erase("w3");
  values["w2"] = Tensor(DType::F32, {33, 6});
  expect_error("param-type", "w2", [&] { f.set_params(values); });
  EXPECT_EQ(f.forward(mlp_inputs(DType::F32))[0].get_float(0), before);
  EXPECT_EQ(f.backward()[0].sizes(), (Ints{19, 33}));
}

}  // namespace
}  // namespace rlx
