// Regions under schedules of other targets than this CPU: the same values, cut as the schedule says.
#include "rlx/ops/region_schedule.h"

#include <gtest/gtest.h>

#include "../support/cpu_checks.h"
#include "rlx/codegen/region_kernel.h"
#include "rlx/ops/nn/norms.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;

Tensor wave(const Ints& sizes) {
  Tensor t(f32, sizes);
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, static_cast<double>(i * 7919 % 2003) / 1000 + 0.1);
  return t;
}

struct Program {
  std::string name;
  Graph graph;
};

std::vector<Program> programs() {
  std::vector<Program> all;
  auto add = [&](const std::string& name, const Shape& shape, auto&& build) {
    Builder b("g");
    build(b, b.input("x", {f32, shape}));
    all.push_back({name, b.finish()});
  };
  for (int64_t n : {1, 7, 8, 9, 63, 64, 65, 1000}) {
    add(fmt::format("elementwise {}", n), {n},
        [](Builder& b, Value x) { b.output(op::tanh(b, op::exp(b, x))); });
    add(fmt::format("softmax of {} rows", n), {n, 37},
        [](Builder& b, Value x) { b.output(op::softmax(b, x, {.axis = -1})); });
    add(fmt::format("two levels, {} rows", n), {3, n, 70}, [](Builder& b, Value x) {
      const Value mean = op::reduce_mean(b, x, {.axes = {2}, .keepdims = true}),
                  d = op::sub(b, x, mean);
      b.output(op::reduce_sum(b, op::square(b, op::exp(b, d)), {.axes = {2}}));
      b.output(d);
    });
    add(fmt::format("columns of {} rows", n), {n, 67},
        [](Builder& b, Value x) { b.output(op::reduce_sum(b, op::exp(b, x), {.axes = {0}})); });
    add(fmt::format("columns between, {} rows", n), {5, n, 19},
        [](Builder& b, Value x) { b.output(op::reduce_max(b, op::square(b, x), {.axes = {1}})); });
    add(fmt::format("all of {} rows", n), {n, 67},
        [](Builder& b, Value x) { b.output(op::reduce_sum(b, x, {.axes = {0, 1}})); });
  }
  return all;
}

const std::vector<RegionSchedule>& schedules() {
  static const std::vector<RegionSchedule> all = {
      {.tile = 64, .rows_per_block = 4, .columns = 8, .stage_bytes = 0},
      {.nodes = 3, .operands = 2, .rows_per_block = 8},
      {.split_elements = 64,
       .few_rows = 64,
       .few_columns = 4,
       .many_rows = 9,
       .part = 128,
       .part_align = 8},
      {.split_elements = 1,
       .many_rows = 1,
       .tile = 8,
       .rows_per_block = 3,
       .columns = 16,
       .part = 1,
       .part_align = 1,
       .stage_cost = 1,
       .stage_bytes = 512},
  };
  return all;
}

TEST(Schedules, GiveTheSameValues) {
  const std::vector<Program> all = programs();
  Builder b("all");
  NamedTensors in;
  for (const Program& p : all) {
    const Type type = p.graph.type(p.graph.inputs()[0]);
    const Value x = b.input(p.name, type);
    in[p.name] = wave(type.shape.sizes());
    for (Value v : b.inline_graph(p.graph, Values{x})) b.output(v);
  }
  const Graph g = b.finish();
  for (size_t s = 0; s < schedules().size(); ++s) {
    Tensors first;
    for (int threads : {1, 3}) {
      CompiledGraph f = Session("cpu").compile(
          g, {.threads = threads, .poison = true, .schedule = schedules()[s]});
      const Tensors got = f.run(in);
      if (threads > 1) {
        for (size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(got[k].same_bits(first[k])) << k;
        continue;
      }
      first = got;
      auto next = got.begin();
      for (const Program& p : all) {
        const auto count = static_cast<std::ptrdiff_t>(p.graph.outputs.size());
        const CpuCase c{p.graph, {in.at(p.name)}, "softmax", p.name};
        for (const std::string& why : against_reference(c, {next, next + count}))
          ADD_FAILURE() << p.name << ", schedule " << s << ": " << why;
        next += count;
      }
    }
  }
}

// The region of a graph with one, lowered.
codegen::RegionKernel kernel_of(const Graph& g, const RegionSchedule& s) {
  const Graph fused = fuse_regions(g, nullptr, {.schedule = s});
  for (const Node& n : fused.nodes)
    if (n.op == &op::region) {
      std::vector<View> in, out;
      for (Value v : n.in) in.push_back(View::dense(0, fused.type(v)));
      for (const Type& t : n.out) out.push_back(View::dense(1, t));
      return codegen::lower_region(n, in, out, s);
    }
  throw std::runtime_error("no region");
}

Graph one(const Shape& shape, const std::function<Value(Builder&, Value)>& build) {
  Builder b("g");
  b.output(build(b, b.input("x", {f32, shape})));
  return b.finish();
}

TEST(Schedules, SayHowRegionsAreCut) {
  const Graph tanh = one({1000}, [](Builder& b, Value x) { return op::tanh(b, x); });
  EXPECT_EQ(kernel_of(tanh, {}).blocks, 1);
  EXPECT_EQ(kernel_of(tanh, {.tile = 64}).blocks, 16);
  const Graph rows =
      one({100, 40}, [](Builder& b, Value x) { return op::reduce_sum(b, x, {.axes = {1}}); });
  EXPECT_EQ(kernel_of(rows, {}).blocks, 100);
  const codegen::RegionKernel some = kernel_of(rows, {.rows_per_block = 16});
  EXPECT_EQ(some.blocks, 7);
  EXPECT_EQ(some.rows, 100);
  EXPECT_EQ(some.rows_per_block, 16);
  EXPECT_EQ(some.spans[0], (BlockSpan{640, 0, 639}));  // a block reads its own rows
  const Graph columns =
      one({3000, 40}, [](Builder& b, Value x) { return op::reduce_sum(b, x, {.axes = {0}}); });
  EXPECT_EQ(kernel_of(columns, {}).blocks, 1);
  EXPECT_EQ(kernel_of(columns, {.columns = 32}).blocks, 2);
  EXPECT_EQ(kernel_of(columns, {.columns = 8}).blocks, 5);
  EXPECT_EQ(kernel_of(columns, {}).combine, nullptr);
  const codegen::RegionKernel two_steps = kernel_of(columns, {.many_rows = 3000, .part = 4000});
  EXPECT_EQ(two_steps.blocks, 47);  // 64 rows each
  ASSERT_NE(two_steps.combine, nullptr);
  EXPECT_EQ(two_steps.combine->blocks, 40);
  EXPECT_EQ(kernel_of(columns, {.many_rows = 3001}).combine, nullptr);
  // Fusion asks the target of a compilation.
  const auto plan = [&](const CompileOptions& o) {
    return Session("cpu").compile(columns, o).info().plan();
  };
  EXPECT_EQ(plan({}).find("combine"), std::string::npos);
  EXPECT_NE(plan({.schedule = RegionSchedule{.many_rows = 3000}}).find("combine"),
            std::string::npos);
}

TEST(Schedules, BoundWhatFuses) {
  const Graph chain = one({8}, [](Builder& b, Value x) {
    for (int i = 0; i < 9; ++i) x = op::tanh(b, x);
    return x;
  });
  const auto regions = [](const Graph& g, const RegionSchedule& s) {
    FusionReport report;
    fuse_regions(g, &report, {.schedule = s});
    return report.regions;
  };
  EXPECT_EQ(regions(chain, {}), 1);
  EXPECT_EQ(regions(chain, {.nodes = 3}), 3);
  Builder b("sum");
  Value sum = b.input("x0", {f32, {8}});
  for (int i = 1; i < 9; ++i) sum = op::add(b, sum, b.input(fmt::format("x{}", i), {f32, {8}}));
  b.output(sum);
  EXPECT_EQ(regions(b.graph(), {}), 1);
  EXPECT_EQ(regions(b.graph(), {.operands = 3}), 4);
}

}  // namespace
}  // namespace rlx::testing
