// Reductions to few results: in parts that run side by side, with the work before them inside; and
// what is made of such reductions.
#include <gtest/gtest.h>

#include "../support/exact_sums.h"
#include "../support/worse.h"
#include "rlx/backend/cpu/target.h"
#include "rlx/codegen/region_kernel.h"
#include "rlx/lower/lower.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/nn/norms.h"
#include "rlx/ops/reduce/statistics.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

Tensor wave(DType dtype, const Ints& sizes) {
  Tensor t(dtype, sizes);
  for (int64_t i = 0; i < t.elements(); ++i)
    is_float(dtype) ? t.set_float(i, static_cast<double>(i * 7919 % 2003) / 1000 + 0.1)
                    : t.set_int(i, i * 7919 % 201 % 3 - 1);
  return t;
}

struct Case {
  std::string name;
  Graph graph;
  NamedTensors inputs;
};

// Gives the inputs of the program values, and names it.
Case made(Builder& b, std::string name) {
  Case c{std::move(name), b.finish(), {}};
  for (Value v : c.graph.inputs())
    c.inputs[c.graph.node(v).get<LeafAttrs>().name] =
        wave(c.graph.type(v).dtype, c.graph.type(v).shape.sizes());
  return c;
}

// Every kind of work around a reduction in parts.
std::vector<Case> cases() {
  std::vector<Case> all;
  auto add = [&](const std::string& name, const std::function<void(Builder&)>& build) {
    Builder b("case");
    build(b);
    all.push_back(made(b, name));
  };
  const auto x = [](Builder& b, const Shape& s, DType d = DType::F32) {
    return b.input("x", {d, s});
  };
  add("one row", [&](Builder& b) { b.output(op::reduce_sum(b, x(b, {50'001}), {{0}})); });
  add("few rows, kept", [&](Builder& b) {
    b.output(op::reduce_sum(b, op::exp(b, x(b, {2, 3, 20'011})), {{2}, true}));
  });
  add("two axes that are one",
      [&](Builder& b) { b.output(op::reduce_sum(b, op::square(b, x(b, {211, 203})), {{0, 1}})); });
  add("two axes that are not", [&](Builder& b) {
    b.output(op::reduce_sum(b, op::mul(b, x(b, {1'001, 203}), b.input("c", {DType::F32, {203}})),
                            {{0, 1}}));
  });
  add("two axes, the last longer", [&](Builder& b) {
    b.output(op::reduce_sum(b, op::mul(b, x(b, {3, 30'001}), b.input("c", {DType::F32, {3, 1}})),
                            {{0, 1}}));
  });
  add("through a transpose", [&](Builder& b) {
    const Value y = op::transpose(b, x(b, {307, 211}), {{1, 0}});
    b.output(op::reduce_sum(b, op::add(b, y, b.input("c", {DType::F32, {211, 307}})), {{0, 1}}));
  });
  add("one column", [&](Builder& b) { b.output(op::reduce_sum(b, x(b, {40'000, 1}), {{0}})); });
  add("few columns",
      [&](Builder& b) { b.output(op::reduce_sum(b, op::abs(b, x(b, {20'003, 5})), {{0}})); });
  add("few columns of few rows", [&](Builder& b) {
    b.output(op::reduce_sum(b, op::abs(b, x(b, {3, 9'001, 4})), {{1}, true}));
  });
  add("outer axes of f16",
      [&](Builder& b) { b.output(op::reduce_mean(b, x(b, {101, 3, 307}, DType::F16), {{0, 2}})); });
  add("values and their sums", [&](Builder& b) {
    const Value e = op::exp(b, x(b, {40'000}));
    b.output(e);
    b.output(op::reduce_sum(b, e, {{0}}));
    b.output(op::reduce_max(b, e, {{0}}));
    b.output(op::mul(b, e, e));
  });
  add("by the reduction", [&](Builder& b) {
    const Value v = x(b, {2, 33'000});
    b.output(op::div(b, v, op::reduce_sum(b, op::abs(b, v), {{1}, true})));
  });
  add("index", [&](Builder& b) {
    const Value i = b.emit(op::iota.def, IotaAttrs{DType::F32, {40'000}, 0}, {})[0];
    b.output(op::reduce_sum(b, op::mul(b, x(b, {40'000}), op::sqrt(b, i)), {{0}}));
  });
  add("extrema", [&](Builder& b) {
    const Value v = x(b, {40'000}, DType::I32);
    b.output(op::reduce_max(b, v, {{0}}));
    b.output(op::reduce_min(b, v, {{0}}));
    b.output(
        op::reduce_prod(b, op::cast(b, op::ne(b, v, b.constant_like(v, 7)), {DType::I64}), {{0}}));
  });
  add("truth", [&](Builder& b) {
    const Value v = x(b, {40'000}, DType::U8);
    b.output(op::any(b, v, {{0}}));
    b.output(op::all(b, v, {{0}}));
    b.output(op::count_nonzero(b, v, {{0}}));
  });
  add("softmax", [&](Builder& b) { b.output(op::softmax(b, x(b, {3, 50'000}))); });
  add("norm", [&](Builder& b) {
    const Value v = x(b, {2, 40'000}), c = b.input("c", {DType::F32, {40'000}});
    b.output(op::layer_norm(b, v, c, c, {}));
    b.output(op::variance(b, v, {{1}}));
  });
  add("long rows, many", [&](Builder& b) { b.output(op::softmax(b, x(b, {9, 50'000}))); });
  add("long rows, many passes", [&](Builder& b) {
    const Value s = op::softmax(b, x(b, {9, 50'000}));
    b.output(op::softmax(b, op::exp(b, s)));
    b.output(s);
  });
  return all;
}

void expect_near(const Tensor& got, const Tensor& want, const std::string& name,
                 const CompiledGraph& f) {
  const double epsilon = want.dtype() == DType::F16 ? 1e-3 : 1e-7;
  double largest = 0;
  for (int64_t i = 0; i < want.elements(); ++i)
    largest = std::max(largest, std::fabs(want.get_float(i)));
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double w = want.get_float(i);
    ASSERT_NEAR(got.get_float(i), w, 20 * epsilon * std::fabs(w) + 4 * epsilon * largest)
        << name << ", element " << i << "\n"
        << f.info().plan();
  }
}

TEST(SplitReductions, AgreeWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) {
    Tensors leaves, first;
    for (Value v : c.graph.inputs())
      leaves.push_back(c.inputs.at(c.graph.node(v).get<LeafAttrs>().name));
    const Tensors want = evaluate(c.graph, leaves);
    for (const bool fuse : {true, false})
      for (const int threads : {1, 2, 3, 7}) {
        if (!fuse && threads > 1) continue;
        CompiledGraph f =
            Session("cpu").compile(c.graph, {.threads = threads, .fuse = fuse, .poison = true});
        const Tensors got = f.run(c.inputs);
        for (size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], c.name, f);
        if (first.empty()) first = got;
        for (size_t k = 0; fuse && k < got.size(); ++k)
          EXPECT_TRUE(got[k].same_bits(first[k])) << c.name << " with " << threads << " threads";
      }
  }
}

Program lowered(const Graph& g, cpu::CpuTarget& target) {
  PassContext context;
  context.keeps = [&](const Node& n, const Graph& at) {
    return static_cast<bool>(target.accepts(n, at));
  };
  return lower(fuse_regions(run_passes(g, default_pipeline(), context)), target);
}

// Largest step, by blocks.
int64_t most_blocks(const Graph& g) {
  cpu::CpuTarget target({});
  int64_t blocks = 0;
  const Program p = lowered(g, target);
  for (const Step& s : p.steps) blocks = std::max(blocks, s.kernel->blocks());
  return blocks;
}

TEST(SplitReductions, RunInBlocks) {
  for (const auto& [sizes, axes] : {std::pair<Ints, Ints>{{1'000'000}, {0}},
                                    {{1'000'000, 1}, {0}},
                                    {{3, 1'000'000}, {1}},
                                    {{1'000, 1'000}, {0, 1}},
                                    {{1'000'000, 3}, {0}},
                                    {{2, 500'000, 3}, {1}}})
    for (DType d : {DType::F32, DType::BF16, DType::U8}) {
      Builder b("blocks");
      b.output(op::reduce_sum(b, b.input("x", {d, Shape::of(sizes)}), {axes}));
      EXPECT_GE(most_blocks(b.finish()), 32) << fmt::format("{} {}", d, fmt::join(sizes, "x"));
    }
}

// The work before a reduction is done inside its blocks: nothing of the operand's size is built.
TEST(SplitReductions, BuildNoOperand) {
  const int64_t n = int64_t{1} << 31;
  for (const Shape& s : {Shape{n}, Shape{n, 1}, Shape{n / 2, 2}, Shape{5, n / 8}}) {
    Ints axes;
    for (size_t a = 0; a < s.size(); ++a) axes.push_back(static_cast<int64_t>(a));
    Builder b("count");
    b.output(op::count_nonzero(b, b.input("x", {DType::U8, s}), {axes}));
    const CompiledGraph f = Session("cpu").compile(b.finish(), {.threads = 1});
    EXPECT_LT(f.info().planned_bytes, 4 << 20) << f.info().plan();
    EXPECT_LE(f.info().kernels, 4) << f.info().plan();
  }
}

int exponentials(const Graph& g) {
  cpu::CpuTarget target({});
  const Program p = lowered(g, target);
  int count = 0;
  for (const Node& n : p.graph.nodes) {
    if (n.op != &op::region) continue;
    std::vector<View> in, out;
    for (Value v : n.in) in.push_back(View::dense(0, p.graph.type(v)));
    for (const Type& t : n.out) out.push_back(View::dense(0, t));
    const codegen::RegionKernel made = codegen::lower_region(n, in, out);
    for (const codegen::Instr& i : made.kernel->body) count += i.op == codegen::KernelOp::Exp;
  }
  return count;
}

// Also where a row does not fit on the stack.
TEST(SplitReductions, SoftmaxComputesItsExponentialsOnce) {
  for (const Shape& s : {Shape{64, 1'000}, Shape{9, 50'000}, Shape{100, 1'000'000},
                         Shape{1'000'000}, Shape{3, 100'000}}) {
    Builder b("softmax");
    b.output(op::softmax(b, b.input("x", {DType::F32, s})));
    EXPECT_EQ(exponentials(b.finish()), 1) << fmt::format("{}", s);
  }
}

// The errors of a program's result relative to `want`, at these elements.
double relative_error(const Graph& g, const Tensor& x, const Ints& elements,
                      const std::function<double(int64_t)>& want) {
  CompiledGraph f = Session("cpu").compile(g, {.threads = 2});
  const Tensor got = f.run({{"x", x}})[0];
  double worst = 0;
  for (int64_t i : elements) worst = worse(worst, std::fabs(got.get_float(i) / want(i) - 1));
  return worst;
}

// One row of a million, as it stands and as a column.
TEST(SplitReductions, WhatIsMadeOfSumsKeepsItsDigits) {
  constexpr int64_t n = 1'000'003;
  constexpr double eps = std::numeric_limits<float>::epsilon();
  for (const SumInput& input : sum_inputs()) {
    const Tensor row = sum_input(DType::F32, {n}, input);
    const double mean = exact_sums(row, {0})[0].value() / n;
    double squares = 0, spread = 0, exponentials = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double v = row.data<float>()[i];
      squares += v * v, spread += (v - mean) * (v - mean), exponentials += std::exp(v);
    }
    const double logs = std::log(exponentials);
    for (const Ints& sizes : {Ints{n}, Ints{n, 1}}) {
      const Tensor x = row.reshaped(sizes);
      const auto error = [&](const std::function<Value(Builder&, Value)>& f, const Ints& elements,
                             const std::function<double(int64_t)>& want) {
        Builder b("made");
        b.output(f(b, b.input("x", x.type())));
        return relative_error(b.finish(), x, elements, want);
      };
      const auto reduced = [&](auto& op, double want) {
        return error([&](Builder& b, Value v) { return op(b, v, {{0}}); }, {0},
                     [&](int64_t) { return want; });
      };
      const bool cancels = input.name == "alternating", flat = input.name == "constant 0.1";
      EXPECT_LT(cancels ? 0 : reduced(op::reduce_mean, mean), 8 * eps) << input.name;
      EXPECT_LT(reduced(op::norm, std::sqrt(squares)), 4 * eps) << input.name;
      EXPECT_LT(reduced(op::logsumexp, logs), 2 * eps) << input.name;
      EXPECT_LT(flat ? 0 : reduced(op::variance, spread / n), 8 * eps) << input.name;
      const Ints elements{0, n / 2, n - 1};
      EXPECT_LT(error([](Builder& b, Value v) { return op::softmax(b, v, {.axis = 0}); }, elements,
                      [&](int64_t i) { return std::exp(row.data<float>()[i] - logs); }),
                8 * eps)
          << input.name;
      EXPECT_LT(error([](Builder& b, Value v) { return op::log_softmax(b, v, {.axis = 0}); },
                      elements, [&](int64_t i) { return row.data<float>()[i] - logs; }),
                2 * eps)
          << input.name;
    }
  }
}

}  // namespace
}  // namespace rlx::testing
