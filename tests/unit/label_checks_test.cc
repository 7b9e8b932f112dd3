// A label, or an index, out of range raises when only the derivative is asked for: in the evaluator, on the CPU and on the
// reference device, however the loss is written.
#include <gtest/gtest.h>

#include "../support/expect_error.h"
#include "rlx/front/trace.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

struct Loss {
  std::string name;
  std::function<TracedTensor(const TracedTensor& x, const TracedTensor& labels)> of;
};

// Of x [3, 5] and labels [3].
const std::vector<Loss>& losses() {
  static const std::vector<Loss> list = {
      {"softmax_cross_entropy",
       [](const TracedTensor& x, const TracedTensor& l) {
         return op::softmax_cross_entropy(x, l).mean();
       }},
      {"cross_entropy",
       [](const TracedTensor& x, const TracedTensor& l) {
         return op::cross_entropy(x, l, {.axis = -1});
       }},
      {"nll_loss",
       [](const TracedTensor& x, const TracedTensor& l) {
         return op::nll_loss(op::log_softmax(x, {1}), l, {.axis = 1});
       }},
      {"written out, with take_along_axis",
       [](const TracedTensor& x, const TracedTensor& l) {
         return -op::take_along_axis(op::log_softmax(x, {1}), l.reshape({3, 1}), {1}).mean();
       }},
      {"a linear loss, by take_along_axis",
       [](const TracedTensor& x, const TracedTensor& l) {
         return op::take_along_axis(x, l.reshape({3, 1}), {1}).sum();
       }},
      {"rows of a table",
       [](const TracedTensor& x, const TracedTensor& l) {
         return op::gather(x.transpose({1, 0}), l).sum();
       }},
      {"places in n dimensions",
       [](const TracedTensor& x, const TracedTensor& l) {
         return op::gather_nd(x.transpose({1, 0}), l.reshape({3, 1})).sum();
       }},
  };
  return list;
}

Graph loss_graph(const Loss& loss, DType labels) {
  return trace("loss", [&](Tracer& t) {
    return loss.of(t.input("x", {3, 5}), t.input("labels", {3}, labels));
  });
}

TEST(LabelChecks, AGradientAloneRaises) {
  Tensor x(DType::F32, {3, 5});
  for (int64_t i = 0; i < 15; ++i) x.set_float(i, static_cast<double>(i % 4));
  for (const Loss& loss : losses())
    for (DType d : {DType::I32, DType::I64, DType::F32})
      for (bool recognise : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, labels {}, recognised {}", loss.name, d, recognise));
        if (d == DType::F32 && loss.name.starts_with("written"))
          continue;  // ids there are integers
        Graph forward = loss_graph(loss, d);
        if (recognise) forward = recognised(forward);
        const Graph g = grad(forward, {"x"});
        ASSERT_EQ(g.outputs.size(), 1u);
        CompiledGraph cpu = Session("cpu").compile(g), reference = Session("reference").compile(g);
        for (double label : {-1.0, 5.0, 4.0}) {
          Tensor labels(d, {3});
          labels.set_complex(1, label);
          const NamedTensors in{{"x", x}, {"labels", labels}};
          const auto code = [&](FunctionRef<void()> f) -> std::string {
            try {
              f();
            } catch (const Error& e) {
              return std::string(e.code());
            }
            return "";
          };
          const std::string want = label == 4 ? "" : "index-range";
          EXPECT_EQ(code([&] { evaluate(g, in); }), want) << label;
          EXPECT_EQ(code([&] { cpu.run(in); }), want) << "cpu " << label;
          EXPECT_EQ(code([&] { reference.run(in); }), want) << "reference " << label;
        }
      }
}

TEST(LabelChecks, TheNamedBackwardRaises) {
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {2, 3}}), l = b.input("l", {DType::I32, {2}}),
              d = b.input("d", {DType::F32, {2}});
  b.output(op::softmax_cross_entropy_backward(b, x, l, d));
  const Graph g = b.finish();
  const auto run = [&](int32_t label) {
    return Session("cpu").compile(g).run({{"x", Tensor(DType::F32, {2, 3})},
                                          {"l", Tensor::from<int32_t>({2}, {0, label})},
                                          {"d", Tensor::full(DType::F32, {2}, 1)}});
  };
  EXPECT_NEAR(run(2)[0].get_float(5), 1.0 / 3 - 1, 1e-6);
  expect_error("index-range", "", [&] { run(3); });
  expect_error("index-range", "", [&] { run(-1); });
}

}  // namespace
}  // namespace rlx
