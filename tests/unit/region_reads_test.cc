// Which values the members of a region read of each other: a value per row that lacks the reduced axes means a value per
// column to its reader, and a reduction in parts is there only when all parts are. Every small program of
// elementwise work and reductions, and programs in which a shared producer joins two groups.
#include <gtest/gtest.h>

#include <random>

#include "../support/error_bound.h"
#include "../support/expect_error.h"
#include "../support/lowered.h"
#include "rlx/front/trace.h"
#include "rlx/ops/region.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/reverse.h"

namespace rlx::testing {
namespace {

Tensor some_values(const Type& t) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> number(0.5, 1.5);
  Tensor out(t.dtype, t.shape.sizes());
  for (int64_t i = 0; i < out.elements(); ++i) out.set_float(i, number(random));
  return out;
}

void expect_as_reference(const Graph& g, const std::string& what) {
  NamedTensors leaves;
  for (Value v : g.inputs()) leaves[g.node(v).get<LeafAttrs>().name] = some_values(g.type(v));
  const BoundedRun want = evaluate_bounded(g, leaves, 1);
  CompiledGraph f = Session("cpu").compile(g, {.poison = true});
  const Tensors got = f.run(leaves);
  for (size_t k = 0; k < got.size(); ++k)
    ASSERT_EQ(want.outputs[k].mismatch(got[k]), "") << what << ", output " << k << "\n" << print(g);
}

using Formula = TracedTensor (*)(const TracedTensor&);
struct Named {
  const char* text;
  Formula f;
};

// Values per row, read along the columns and along the rows, beside what they were made of.
constexpr Named kByRows[] = {
    {"(x - sum(e)) * e",
     [](const TracedTensor& x) {
       const TracedTensor e = x.exp();
       return (x - e.sum({-1})) * e;
     }},
    {"(x - max(e)) * e",
     [](const TracedTensor& x) {
       const TracedTensor e = x.exp();
       return (x - e.max({-1})) * e;
     }},
    {"0.85 x / sum |x| + 0.15 |x|",
     [](const TracedTensor& x) {
       const TracedTensor a = x.abs();
       return x * 0.85 / a.sum({-1}) + a * 0.15;
     }},
    {"e / sum(e) + e",
     [](const TracedTensor& x) {
       const TracedTensor e = x.exp();
       return e / e.sum({-1}) + e;
     }},
    {"normalised adjacency",
     [](const TracedTensor& x) {
       const TracedTensor d = x.square().sum({-1}).sqrt();
       return x / d / d.unsqueeze(-1);
     }},
    {"two sums, one kept",
     [](const TracedTensor& x) {
       const TracedTensor e = x.exp();
       return (x * e.sum({-1}, true) - e.sum({-1})) * e;
     }},
};

TEST(RegionReads, ValuesPerRowBesideWhatTheyWereMadeOf) {
  for (const Named& c : kByRows)
    for (const Shape& shape : {Shape{2, 2}, Shape{3, 3}, Shape{70, 70}, Shape{130, 130},
                               Shape{1, 4, 4}, Shape{5, 5, 5}}) {
      const Graph g = trace("g", [&](Tracer& t) { return c.f(t.input("x", shape)); });
      expect_as_reference(g, c.text);
      const Graph loss = trace("g", [&](Tracer& t) { return c.f(t.input("x", shape)).sum(); });
      if (shape.size() == 2) expect_as_reference(grad(loss, {"x"}), c.text);
    }
}

TEST(RegionReads, WholeReductionsBesideWhatTheyWereMadeOf) {
  const Named formulas[] = {
      {"(x - sum(e)) * e",
       [](const TracedTensor& x) {
         const TracedTensor e = x.exp();
         return (x - e.sum()) * e;
       }},
      {"e / sum(e) + e",
       [](const TracedTensor& x) {
         const TracedTensor e = x.exp();
         return e / e.sum() + e;
       }},
      {"sum((x - max(e)) * e)",
       [](const TracedTensor& x) {
         const TracedTensor e = x.exp();
         return ((x - e.max()) * e).sum();
       }},
  };
  for (const Named& c : formulas)
    for (const Shape& shape :
         {Shape{30000}, Shape{40000}, Shape{200, 200}, Shape{7, 9000}, Shape{9000, 7}})
      expect_as_reference(trace("g", [&](Tracer& t) { return c.f(t.input("x", shape)); }), c.text);
}

// Every program of `depth` nodes on x, each read by a later one: exponentials, sums over the axes with and without them, and
// products of two values. Calls f with each.
void each_program(const Shape& shape, const Ints& axes, int depth,
                  FunctionRef<void(const Graph&)> f) {
  struct Choice {
    int kind, a, b;  // 0 exp, 1 sum, 2 sum that keeps its axes, 3 product
  };
  std::vector<Choice> chosen;
  const auto emit = [&] {
    std::vector<int> readers(static_cast<size_t>(depth) + 1, 0);
    for (const Choice& c : chosen) {
      ++readers[static_cast<size_t>(c.a)];
      if (c.kind == 3) ++readers[static_cast<size_t>(c.b)];
    }
    for (int i = 1; i < depth; ++i)
      if (!readers[static_cast<size_t>(i)]) return;
    try {
      Builder b("g");
      Values values{b.input("x", {DType::F32, shape})};
      for (const Choice& c : chosen) {
        const Value v = values[static_cast<size_t>(c.a)];
        if ((c.kind == 1 || c.kind == 2) && !(b.type(v).shape == shape)) return;
        values.push_back(c.kind == 0   ? op::exp(b, v)
                         : c.kind == 3 ? op::mul(b, v, values[static_cast<size_t>(c.b)])
                                       : op::reduce_sum(b, v, {axes, c.kind == 2}));
      }
      b.output(values.back());
      f(b.finish());
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::user) throw;  // shapes that do not broadcast
    }
  };
  const std::function<void(int)> choose = [&](int at) {
    if (at > depth) return emit();
    for (int a = 0; a < at; ++a) {
      for (int kind = 0; kind < 3; ++kind) {
        chosen.push_back({kind, a, 0});
        choose(at + 1);
        chosen.pop_back();
      }
      for (int b = a + 1; b < at; ++b) {
        chosen.push_back({3, a, b});
        choose(at + 1);
        chosen.pop_back();
      }
    }
  };
  choose(1);
}

// Fused and lowered, which proves the regions and the steps.
TEST(RegionReads, EverySmallProgramIsLowered) {
  int programs = 0;
  struct Kind {
    Shape shape;
    Ints axes;
    int depth;
  };
  for (const Kind& k : {Kind{{4, 4}, {1}, 5}, Kind{{4, 4}, {0}, 4}, Kind{{4, 4}, {0, 1}, 4},
                        Kind{{190, 190}, {0, 1}, 4}})
    each_program(k.shape, k.axes, k.depth, [&](const Graph& g) {
      lower_for_cpu(g);
      ++programs;
    });
  EXPECT_GT(programs, 4000);
}

// A part of them run, many as one program.
TEST(RegionReads, SmallProgramsRunAsTheReferenceDoes) {
  for (const auto& [shape, axes] :
       {std::pair{Shape{4, 4}, Ints{1}}, {Shape{190, 190}, Ints{0, 1}}}) {
    const int every = shape[0] == Dim(4) ? 1 : 10;
    int at = 0;
    Builder b("together");
    const Value x = b.input("x", {DType::F32, shape});
    int waiting = 0;
    const auto run = [&] {
      if (!waiting) return;
      expect_as_reference(b.finish(), "together");
      b = Builder("together");
      b.input("x", {DType::F32, shape});
      waiting = 0;
    };
    each_program(shape, axes, 4, [&](const Graph& g) {
      if (at++ % every != 0) return;
      for (Value v : b.inline_graph(g, std::span(&x, 1))) b.output(v);
      if (++waiting == 64) run();
    });
    run();
  }
}

RegionAttrs region_of(const Shape& domain, RegionKind kind, Ints axes,
                      FunctionRef<Value(Builder&, Value)> body) {
  Builder b("region");
  const Value x = b.input("x0", {DType::F32, domain});
  b.output(body(b, x));
  return {Body(b.finish()), kind, domain, std::move(axes)};
}

TEST(RegionReads, BodiesOfAnotherFormAreRefused) {
  const auto misaligned = [](Builder& b, Value x) {
    return op::mul(b, x, op::reduce_sum(b, x, {{1}, false}));
  };
  const auto kept = [](Builder& b, Value x) {
    return op::mul(b, x, op::reduce_sum(b, x, {{1}, true}));
  };
  const Shape square{5, 5};
  EXPECT_TRUE(region_fits(region_of(square, RegionKind::row, {1}, kept)));
  EXPECT_FALSE(region_fits(region_of(square, RegionKind::row, {1}, misaligned)));
  EXPECT_FALSE(region_fits(region_of(square, RegionKind::split, {1}, kept)));
  EXPECT_FALSE(region_fits(region_of(square, RegionKind::column, {1}, kept)));
  EXPECT_FALSE(region_fits(region_of(square, RegionKind::elementwise, {}, kept)));
  EXPECT_FALSE(region_fits(region_of(square, RegionKind::row, {0}, kept)));
  // Of another shape than the domain.
  EXPECT_FALSE(region_fits(region_of(square, RegionKind::elementwise, {}, [](Builder& b, Value x) {
    return op::exp(b, op::reshape(b, x, {{25}}));
  })));
}

}  // namespace
}  // namespace rlx::testing
