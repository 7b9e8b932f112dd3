// Products of one value with several weights run as one: fewer steps, no copies, the same bits, weights joined once.
#include <gtest/gtest.h>

#include "../support/hidden_checks.h"
#include "../support/lowered.h"
#include "../support/replay.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;

Tensor wave(Ints sizes, double first) {
  Tensor t(f32, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, std::sin(first + 1.7 * static_cast<double>(i)));
  return t;
}

struct Widths {
  std::vector<int64_t> widths;
  bool biases, transposed;
};

// tanh of x times each weight, [.., k] -> [.., width]; of one of them alone, or of all.
Graph products(const Shape& x_shape, const Widths& w, int only = -1) {
  Builder b("products");
  const Value x = b.input("x", {f32, x_shape});
  const Dim k = x_shape.back();
  for (size_t i = 0; i < w.widths.size(); ++i) {
    if (only >= 0 && static_cast<size_t>(only) != i) continue;
    const Dim n = w.widths[i];
    const Value v = b.param(fmt::format("w{}", i), {f32, w.transposed ? Shape{n, k} : Shape{k, n}});
    Value y = op::matmul(b, x, v, {.transpose_b = w.transposed});
    if (w.biases) y = op::add(b, y, b.param(fmt::format("b{}", i), {f32, {n}}));
    b.output(op::tanh(b, y));
  }
  return b.finish();
}

void set_weights(CompiledGraph& f, int64_t k, const Widths& w, int only = -1) {
  for (size_t i = 0; i < w.widths.size(); ++i) {
    if (only >= 0 && static_cast<size_t>(only) != i) continue;
    const int64_t n = w.widths[i];
    f.set_param(fmt::format("w{}", i),
                wave(w.transposed ? Ints{n, k} : Ints{k, n}, static_cast<double>(i)));
    if (w.biases) f.set_param(fmt::format("b{}", i), wave({n}, 0.5 + static_cast<double>(i)));
  }
}

int steps_of(const Graph& g, std::string_view op) {
  int count = 0;
  for (const Step& s : lower_for_cpu(g).program.steps)
    count += s.label.find(op) != std::string::npos;
  return count;
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  for (int64_t i = 0; i < a.elements(); ++i) ASSERT_EQ(a.get_float(i), b.get_float(i)) << i;
}

class JoinProducts : public ::testing::TestWithParam<const char*> {
 protected:
  JoinProducts() { register_hidden_devices(); }
};
INSTANTIATE_TEST_SUITE_P(JoinProducts, JoinProducts, ::testing::Values("cpu", "hidden"),
                         [](const auto& info) { return std::string(info.param); });

// Rows, depths and widths on both sides of tiles, panels and blocks of k; the bits of a product alone.
TEST_P(JoinProducts, BitsOfEachAlone) {
  for (const Widths& w : {Widths{{9, 70, 130}, true, false}, Widths{{33, 9}, false, true}})
    for (const auto& [rows, k] :
         {std::pair<int64_t, int64_t>{1, 70}, {9, 9}, {70, 350}, {130, 70}, {300, 33}}) {
      SCOPED_TRACE(fmt::format("{} rows of {}", rows, k));
      const Shape shape{rows, k};
      const Graph all = products(shape, w);
      EXPECT_EQ(steps_of(all, "matmul"), 1);
      CompiledGraph f = Session(GetParam()).compile(all, {.threads = 2, .poison = true});
      set_weights(f, k, w);
      const Tensor x = wave({rows, k}, 0.25);
      const Tensors together = f.run({{"x", x}});
      for (int i = 0; i < static_cast<int>(w.widths.size()); ++i) {
        CompiledGraph one = Session(GetParam()).compile(products(shape, w, i), {.threads = 2});
        set_weights(one, k, w, i);
        expect_same_bits(together[static_cast<size_t>(i)], one.run({{"x", x}})[0]);
      }
    }
}

// One program for all batches and lengths, with the bits of the one for that size.
TEST_P(JoinProducts, SizesThatAreSymbols) {
  const Widths w{{9, 70}, true, true};
  const int64_t k = 33;
  CompiledGraph any = Session(GetParam())
                          .compile(products({Dim::symbol("b"), Dim::symbol("s"), k}, w),
                                   {.threads = 2, .poison = true});
  set_weights(any, k, w);
  for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{1, 1}, {2, 9}, {3, 130}}) {
    SCOPED_TRACE(fmt::format("{} of {}", batch, length));
    CompiledGraph one = Session(GetParam()).compile(products({batch, length, k}, w));
    set_weights(one, k, w);
    const Tensor x = wave({batch, length, k}, 0.75);
    const Tensors got = any.run({{"x", x}}), want = one.run({{"x", x}});
    for (size_t i = 0; i < got.size(); ++i) expect_same_bits(got[i], want[i]);
  }
}

// Weights are not kept a third time: joined ones of which packed ones were made are let go, and come again when a part is set.
TEST_P(JoinProducts, JoinedWeightsAreLetGo) {
  const int64_t k = 256;
  const Widths w{{256, 256}, false, false};
  const Graph g = products({4, k}, w);
  CompiledGraph f = Session(GetParam()).compile(g);
  set_weights(f, k, w);
  const Tensor x = wave({4, k}, 0.25);
  f.run({{"x", x}});
  // A program with one weight as large keeps as much.
  const Widths whole{{512}, false, false};
  CompiledGraph one = Session(GetParam()).compile(products({4, k}, whole));
  set_weights(one, k, whole);
  one.run({{"x", x}});
  const int64_t weights = k * 512 * 4;
  EXPECT_LT(f.resident_bytes(), one.resident_bytes() + weights / 2) << "the joined ones are kept";
  const Tensor other = wave({k, 256}, 9);
  f.set_param("w1", other);
  const Tensor got = f.run({{"x", x}})[1];
  const Tensor want = evaluate(g, {{"x", x}, {"w0", wave({k, 256}, 0)}, {"w1", other}}).outputs[1];
  for (int64_t i = 0; i < want.elements(); ++i)
    ASSERT_NEAR(got.get_float(i), want.get_float(i), 1e-4) << i;
}

// An encoder layer has four products of six, a decoder layer four of seven; nothing is copied for it.
TEST(JoinedLayers, StepsOfBertAndLlama) {
  Pipeline without = default_pipeline();
  std::erase_if(without, [](const PassUse& u) { return u.pass == &pass::join_products; });
  for (const ReplayProgram& p : replay_programs()) {
    if (p.name != "bert_layer" && p.name != "llama_layer") continue;
    SCOPED_TRACE(p.name);
    const bool is_bert = p.name == "bert_layer";
    auto target = std::make_shared<cpu::CpuTarget>(cpu::CpuJitOptions{});
    PassContext context;
    context.keeps = [&](const Node& n, const Graph& at) {
      return n.op != &op::region && target->accepts(n, at);
    };
    const Program apart = lower(fuse_program(run_passes(p.graph, without, context)), *target),
                  joined = lower_for_cpu(p.graph).program;
    const auto count = [](const Program& program, std::string_view name) {
      int n = 0;
      for (const Step& s : program.steps)
        n += s.kernel && s.kernel->name().find(name) != std::string::npos;
      return n;
    };
    EXPECT_EQ(count(apart, "matmul"), is_bert ? 6 : 7);
    EXPECT_EQ(count(joined, "matmul"), 4);
    EXPECT_EQ(count(joined, "copy"), count(apart, "copy"));
    // Of the encoder, two sums with biases less, too.
    EXPECT_EQ(std::ssize(apart.steps) - std::ssize(joined.steps), is_bert ? 4 : 3);
  }
}

TEST(JoinedLayers, TheReportSaysWhyNot) {
  const auto refusals = [](const Graph& g) {
    FusionReport report;
    run_passes(g, Pipeline{pass::join_products}, {.fusion = &report});
    std::string out;
    for (const auto& r : report.refusals)
      out += fmt::format("{}|{}|{}\n", r.producer, r.consumer, r.why);
    return out;
  };
  EXPECT_EQ(refusals(products({300, 8}, {{700, 500}, false, false})),
            "matmul by w1|matmul by w0|not joined: 1200 columns are too many for regions to follow "
            "their rows\n");
  Builder b("results");
  const Value x = b.input("x", {f32, {9, 4}});
  for (const char* name : {"v", "w"}) b.output(op::matmul(b, x, b.param(name, {f32, {4, 5}})));
  EXPECT_EQ(refusals(b.finish()),
            "matmul by v|matmul by w|not joined: a result of the program would be copied\n"
            "matmul by w|matmul by v|not joined: a result of the program would be copied\n");
  // Few rows are one tile, whatever its width.
  EXPECT_EQ(refusals(products({100, 8}, {{700, 500}, false, false})), "");
}

}  // namespace
}  // namespace rlx::testing
