// What an op says its value costs (OpDef::cost, evaluation_cost) is what evaluating it takes: folding constants
// trusts it. Every sample of the table is made larger, all sizes twice as large again and again, until it
// should take some ten thousand operations; an operation of the reference takes some nanoseconds, and none of
// its ops may take as many hundreds for each that it states.
#include <gtest/gtest.h>
#include <time.h>

#include <cmath>

#include "../support/samples.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/image/conv.h"
#include "rlx/passes/passes.h"

namespace rlx {
namespace {

constexpr double kEnough = 5e4;  // operations
#ifdef __SANITIZE_ADDRESS__
constexpr double kSlower = 20;  // by checks that are compiled in
#else
constexpr double kSlower = 1;
#endif
constexpr double kMostNanoseconds = 600 * kSlower;  // for each

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

testing::Sample grown(testing::Sample s, int64_t factor) {
  for (testing::OperandSpec& o : s.operands) {
    for (int64_t& n : o.sizes) n = n > 1 ? n * factor : n;
    o.limit *= factor;
  }
  return s;
}

// The operands' types and the cost; nothing where the sizes no longer fit the attributes.
struct Sized {
  std::optional<testing::Case> at;
  double cost = 0;
};
Sized sized(const testing::Sample& s, DType d) {
  double elements = 0;  // a cost of its own; and they are made before the cost is known
  for (const testing::OperandSpec& o : s.operands) {
    double product = 1;
    for (int64_t n : o.sizes) product *= static_cast<double>(n);
    elements += product;
  }
  if (elements > 4 * kEnough) return {};
  try {
    Sized out{testing::make_case(s, d)};
    if (!out.at) return {};
    const Node& n = out.at->node();
    Types in;
    for (Value v : n.in) in.push_back(out.at->graph.type(v));
    out.cost = evaluation_cost(n, in);
    return out;
  } catch (const Error&) {
    return {};
  }
}

TEST(OpCost, EvaluationTakesNoLongerThanStated) {
  int measured = 0;
  for (const testing::Sample& s : testing::samples()) {
    if (!testing::is_wanted(s.op)) continue;
    for (DType d : {DType::F32, DType::I32, DType::C64, DType::U32, DType::Bool}) {
      Sized now = sized(s, d);
      if (!now.at) continue;
      for (int64_t factor = 1; factor <= 1024; factor *= 2) {
        if (factor > 1) now = sized(grown(s, factor), d);
        if (!now.at || !std::isfinite(now.cost) || now.cost > 4 * kEnough) break;
        double spent = 0;
        try {
          const double start = cpu_seconds();
          evaluate(now.at->graph, now.at->operands);
          spent = cpu_seconds() - start;
        } catch (const Error&) {  // no value: an index out of range, a singular matrix
          break;
        }
        ++measured;
        // Making a graph of the op and the first touch of memory count for nothing.
        const bool honest = 1e9 * (spent - 5e-3 * kSlower) <= kMostNanoseconds * now.cost;
        EXPECT_TRUE(honest) << s.text << " (" << s.where << ", " << info(d).name << ", sizes x "
                            << factor << "): " << spent << " s, stated are " << now.cost
                            << " operations";
        if (!honest || now.cost > kEnough) break;
      }
      break;  // one dtype of a row is enough
    }
  }
  if (!testing::is_filtered()) {
    EXPECT_GT(measured, 2000);
  }
}

// ---- folding spends what was promised

int folded(const Graph& g) {
  int constants = 0;
  const Graph after = run_passes(g, {pass::fold_constants, pass::fold_constants});
  for (Value v : after.outputs) constants += after.node(v).op == &op::constant;
  return constants;
}

TEST(OpCost, FoldingHasOneBudget) {
  // 100 products of two million operations each: four of them fit.
  Builder b("products");
  for (int i = 0; i < 100; ++i) {
    Tensor x(DType::F32, {126, 126});
    x.set_float(0, i);
    const Value v = b.constant(std::move(x));
    b.output(op::matmul(b, v, v));
  }
  EXPECT_EQ(folded(b.finish()), static_cast<int>(kPassWork / (126.0 * 126 * 126)));
}

TEST(OpCost, BodiesShareTheBudget) {
  Builder b("bodies");
  Value x = b.input("x", {DType::F32, {126, 126}});
  for (int i = 0; i < 20; ++i) {
    Builder body("body");
    Tensor c(DType::F32, {126, 126});
    c.set_float(0, i);
    const Value y = body.input("y", {DType::F32, {126, 126}}), v = body.constant(std::move(c));
    body.output(op::add(body, y, op::matmul(body, v, v)));
    x = b.emit(op::scan.def, ScanAttrs{.body = body.finish(), .length = 2, .num_carries = 1},
               Values{x})[0];
  }
  b.output(x);
  const Graph g = run_passes(b.finish(), {pass::fold_constants});
  int left = 0;
  for (const Node& n : g.nodes)
    if (n.op == &op::scan)
      for (const Node& inner : n.get<ScanAttrs>().body->nodes) left += inner.op == &op::matmul;
  EXPECT_EQ(left, 20 - static_cast<int>(kPassWork / (126.0 * 126 * 126)));
}

TEST(OpCost, AConstantConvolutionIsLeftToTheRun) {
  Builder b("conv");
  const Value x = b.constant(Tensor(DType::F32, {1, 32, 64, 64})),
              w = b.constant(Tensor(DType::F32, {32, 32, 7, 7}));
  b.output(op::conv(b, x, w, {.low = {3, 3}, .high = {3, 3}}));
  EXPECT_EQ(folded(b.finish()), 0);
}

}  // namespace
}  // namespace rlx
