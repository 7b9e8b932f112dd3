// What keeps the time to compile in step with the program, shown by counts instead of clocks: kernels, steps of
// searches, nodes. bench/compile_growth measures the rest.
#include <gtest/gtest.h>

#include <random>

#include "../support/expect_error.h"
#include "rlx/base/lexer.h"
#include "rlx/ir/text.h"
#include "rlx/ir/verify.h"
#include "rlx/lower/arena.h"
#include "rlx/models/gpt.h"
#include "rlx/ops/core.h"
#include "rlx/ops/elementwise/activations.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/movement/shaping.h"
#include "rlx/ops/nn/experts.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

const Type kVector{DType::F32, {40}};

Tensor ramp(const Type& t) {
  Tensor out(t.dtype, t.shape.sizes());
  for (int64_t i = 0; i < out.elements(); ++i)
    out.set_complex(i, is_float(t.dtype) ? 0.25 * static_cast<double>(i % 13) - 1
                                         : static_cast<double>(i % 13));
  return out;
}

// Compiles g = f(x), expects the reference's values, and gives the number of generated kernels.
int kernels_of(const Graph& g, double tolerance = 0) {
  const Tensor x = ramp(g.type(g.inputs()[0]));
  CompiledGraph f = Session("cpu").compile(g);
  const Tensor got = f.run({{"x", x}})[0], want = evaluate(g, Tensors{x})[0];
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double w = want.get_complex(i).real();
    EXPECT_NEAR(got.get_complex(i).real(), w, tolerance * std::abs(w)) << i << "\n" << print(g);
  }
  return f.info().generated;
}

// 200 ops, each with a number of its own.
template <class F>
Graph chain(const Type& type, F step) {
  Builder b("chain");
  Value v = b.input("x", type);
  for (int i = 0; i < 200; ++i) v = step(b, v, i);
  b.output(v);
  return b.finish();
}

// ---- kernels

TEST(Growth, KernelsThatDifferInConstantsAreOne) {
  // The regions of a chain have at most 96 nodes: whole ones, and what is left.
  EXPECT_LE(kernels_of(chain(kVector,
                             [](Builder& b, Value v, int i) {
                               const Value c = b.constant(DType::F32, 0.503 + 0.01 * i);
                               return i % 2 ? op::add(b, v, c) : op::mul(b, v, c);
                             })),
            2);
  EXPECT_LE(kernels_of(chain({DType::I32, {40}},
                             [](Builder& b, Value v, int i) {
                               const Value c = b.constant(DType::I32, 3 + i);
                               return i % 2 ? op::add(b, v, c) : op::mul(b, v, c);
                             })),
            2);
}

TEST(Growth, KernelsThatDifferInAttributesAreOne) {
  EXPECT_LE(kernels_of(chain(kVector,
                             [](Builder& b, Value v, int i) {
                               return op::leaky_relu(b, v, {.alpha = 0.5 + 0.001 * i});
                             }),
                       1e-4),
            2);
}

TEST(Growth, ArgumentsOfEveryDTypeArrive) {
  for (DType d : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8, DType::I16,
                  DType::I32, DType::I64, DType::U8, DType::U32}) {
    Builder b("g");
    const Value x = b.input("x", {d, {3, 40}}),
                two = op::add(b, op::mul(b, x, b.constant(d, 3)), b.constant(d, 5));
    // Divisors and shifts of integers stay in the code; zero too.
    b.output(op::maximum(b, op::div(b, two, b.constant(d, 2)), b.constant(d, 0)));
    SCOPED_TRACE(info(d).name);
    kernels_of(b.finish());
  }
}

TEST(Growth, ReductionsAndLoopsReadArguments) {
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {6, 40}});
  const Value scaled = op::mul(b, x, b.constant(DType::F32, 0.125));
  const Value top = op::reduce_max(b, scaled, {.axes = {1}, .keepdims = true});
  b.output(op::mul(b, op::sub(b, scaled, top), b.constant(DType::F32, 0.75)));
  EXPECT_EQ(kernels_of(b.finish()), 1);
}

// ---- searches

int64_t searched(const Graph& g) {
  FusionReport report;
  fuse_program(run_passes(g, default_pipeline()), &report);
  return report.searched;
}

GptConfig small_gpt(int64_t layers) {
  GptConfig c;
  c.vocab = 16, c.width = 16, c.heads = 2, c.block = 8, c.batch = 2, c.layers = layers;
  return c;
}

// As much for the second half of the layers as for the first.
TEST(Growth, FusionSearchesNoFurtherInLongerPrograms) {
  const int64_t a = searched(gpt_train_step(small_gpt(4))),
                b = searched(gpt_train_step(small_gpt(8))),
                c = searched(gpt_train_step(small_gpt(16)));
  EXPECT_GT(a, 0);
  EXPECT_LE(c - b, 2 * (b - a) + (b - a) / 4) << a << " " << b << " " << c;
}

// Values that are computed early and read late, all of one long chain ahead of them and all of another behind their
// readers: the answer to whether a path leads around is not in reach, and the search says so.
TEST(Growth, ASearchEnds) {
  constexpr int kLate = 10, kLong = 2000;
  Builder b("late");
  const Value x = b.input("x", {DType::F32, {16, 16}});
  std::vector<Value> early;
  Value ahead = x, v = x;
  for (int i = 0; i < kLate; ++i) {
    early.push_back(op::tanh(b, b.input(fmt::format("e{}", i), {DType::F32, {16, 16}})));
    ahead = op::matmul(b, ahead, early.back());
  }
  for (int i = 0; i < kLong; ++i) ahead = op::matmul(b, ahead, x);
  for (int i = 0; i < kLong; ++i) v = op::matmul(b, v, x);
  for (Value e : early) v = op::matmul(b, op::add(b, v, e), x);
  b.output(ahead);
  b.output(v);
  FusionReport report;
  const Graph fused = fuse_regions(b.finish(), &report);
  EXPECT_NO_THROW(verify(fused, "fuse_regions"));
  EXPECT_GT(report.searched, kLate * 100);
  EXPECT_LE(report.searched, kLate * 700);
}

// ---- the arena

struct Life {
  int64_t first, last, bytes;
};

// Largest first, each at the lowest gap: against all that were placed before.
std::vector<int64_t> placed_simply(const std::vector<Life>& lives) {
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < lives.size(); ++i) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (size_t j = 0; j < i; ++j)
      if (lives[j].first <= lives[i].last && lives[i].first <= lives[j].last)
        taken.emplace_back(offsets[j], offsets[j] + lives[j].bytes);
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + lives[i].bytes <= begin) break;
      offset = std::max(offset, end);
    }
    offsets.push_back(offset);
  }
  return offsets;
}

TEST(Arena, TakesTheLowestGap) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto moments = static_cast<int64_t>(random() % 60 + 1);
    std::vector<Life> lives(random() % 120);
    for (Life& l : lives) {
      l.first = static_cast<int64_t>(random()) % moments;
      l.last = std::min<int64_t>(moments - 1, l.first + static_cast<int64_t>(random() % 12));
      l.bytes = 64 * static_cast<int64_t>(random() % 9 + 1);
    }
    std::stable_sort(lives.begin(), lives.end(),
                     [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
    Arena arena(moments);
    const std::vector<int64_t> want = placed_simply(lives);
    for (size_t i = 0; i < lives.size(); ++i)
      ASSERT_EQ(arena.place(lives[i].first, lives[i].last, lives[i].bytes), want[i]) << round;
  }
}

// However many gaps there are, what lives at one moment lies apart.
TEST(Arena, GivesUpGapsAndNeverOverlaps) {
  std::mt19937 random(8);
  const int64_t moments = 3000;
  std::vector<Life> lives(3000);
  for (Life& l : lives) {
    l.first = static_cast<int64_t>(random()) % moments;
    l.last = l.first + static_cast<int64_t>(random()) % (moments - l.first);
    l.bytes = 64 * static_cast<int64_t>(random() % 500 + 1);
  }
  Arena arena(moments);
  std::vector<int64_t> offsets;
  for (const Life& l : lives) offsets.push_back(arena.place(l.first, l.last, l.bytes));
  for (size_t i = 0; i < lives.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (lives[j].first <= lives[i].last && lives[i].first <= lives[j].last) {
        ASSERT_TRUE(offsets[i] + lives[i].bytes <= offsets[j] ||
                    offsets[j] + lives[j].bytes <= offsets[i]);
      }
}

// The lives of a training step: what the forward half keeps, last in, first out; short ones between.
int64_t visits(int64_t layers) {
  Arena arena(2 * layers);
  for (int64_t i = 0; i < layers; ++i) arena.place(i, 2 * layers - 1 - i, 4096);
  for (int64_t i = 0; i + 1 < 2 * layers; ++i) arena.place(i, i + 1, 1024);
  for (int64_t i = 0; i + 2 < 2 * layers; ++i) arena.place(i, i + 2, 64);
  return arena.visits();
}

TEST(Arena, LooksAtNoMoreInLongerPrograms) {
  // n log n: ten times the layers are at most 15 times the work.
  EXPECT_LE(visits(10000), 15 * visits(1000));
}

// ---- depth

Graph nested_scans(int depth) {
  Builder inner("step");
  const Value c = inner.input("x", kVector);
  inner.output(op::mul(inner, op::tanh(inner, c), c));
  Graph body = inner.finish();
  for (int i = 0; i < depth; ++i) {
    Builder b("step");
    const Value v = op::neg(b, b.input("x", kVector));
    b.output(b.emit(op::scan.def, ScanAttrs{.body = std::move(body), .length = 1, .num_carries = 1},
                    Values{v})[0]);
    body = b.finish();
  }
  return body;
}

TEST(Growth, TheDeepestProgramsCompile) {
  const Graph g = nested_scans(Lexer::kMaxDepth);  // a region makes it one deeper
  const Tensor x = ramp(kVector);
  const Tensor want = evaluate(g, Tensors{x})[0];
  for (const Device& d : {Device("cpu"), Device("reference")}) {
    const Tensor got = Session(d).compile(g).run({{"x", x}})[0];
    for (int64_t i = 0; i < got.elements(); ++i)
      ASSERT_NEAR(got.get_float(i), want.get_float(i), 1e-6);
  }
  for (const char* passes : {"simplify,cse,fold_constants,dead_code", "decompose", "fuse_regions"})
    EXPECT_NO_THROW(run_passes(g, parse_pipeline(passes)));
  expect_error("body", "too deeply", [] { verify(nested_scans(Lexer::kMaxDepth + 1)); });
}

// ---- definitions

TEST(Growth, GatesOfManyExpertsAreOneOp) {
  Builder b("gate");
  const Value logits = b.input("x", {DType::F32, {1, int64_t{1} << 40}});
  for (Value v : b.emit(op::moe_gate.def, MoeGateAttrs{.k = int64_t{1} << 40}, Values{logits}))
    b.output(v);
  EXPECT_LE(run_passes(b.finish(), {pass::decompose}).size(), 64);
}

// Needs as many nodes as its attribute says.
struct RepeatAttrs {
  int64_t times = 0;
  static constexpr auto fields() { return Fields<&RepeatAttrs::times>(); }
};
constinit const Op<RepeatAttrs> repeated = OpDef{
    .name = "test_repeated",
    .doc = "x negated again and again.",
    .infer = [](const InferArgs& a) -> Types { return {a.in[0]}; },
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      Value v = in[0];
      for (int64_t i = 0; i < n.get<RepeatAttrs>().times; ++i) v = op::neg(b, v);
      return {v};
    },
};

// What the operands are many of is no unrolling.
TEST(Growth, OpsOfManyOperandsHaveLongerDefinitions) {
  Builder b("g");
  const Values parts(5000, b.input("x", {DType::F32, {2}}));
  b.output(b.emit(*&op::stack, AxisAttrs{0}, parts)[0]);
  const Graph g = run_passes(b.finish(), {pass::decompose});
  EXPECT_EQ(g.type(g.outputs[0]).shape, Shape::of({5000, 2}));
}

TEST(Growth, ADefinitionHasAnEnd) {
  auto program = [](int64_t times) {
    Builder b("g");
    b.output(op::reduce_sum(b, repeated(b, b.input("x", kVector), {times}), {.axes = {0}}));
    return b.finish();
  };
  EXPECT_NO_THROW(run_passes(program(Builder::kMaxDefinition), {pass::decompose}));
  const Graph g = program(int64_t{1} << 40);
  auto refuses = [](auto&& f) { expect_error("definition-size", "test_repeated", f); };
  refuses([&] { run_passes(program(Builder::kMaxDefinition + 1), {pass::decompose}); });
  refuses([&] { run_passes(g, {pass::decompose}); });
  refuses([&] { evaluate(g, Tensors{ramp(kVector)}); });
  for (const char* passes : {"grad(wrt=x)", "jvp(wrt=x)", "vmap(over=x,size=3)"}) {
    SCOPED_TRACE(passes);
    refuses([&] { run_passes(g, parse_pipeline(passes)); });
  }
}

}  // namespace
}  // namespace rlx
