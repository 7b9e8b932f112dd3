// ProgramPool and ProgramCache: clones for threads, programs by graph and device, what is dropped.
#include "rlx/runtime/program_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "../support/expect_error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

constexpr DType f32 = DType::F32;

// x + value, x of any length.
Graph plus(double value, const std::string& name = "plus") {
  Builder b(name);
  Value x = b.input("x", {f32, {Dim::symbol("n")}});
  b.output(op::add(b, x, b.constant(f32, value)));
  return b.finish();
}

Tensor counted(int64_t n) {
  Tensor t(f32, {n});
  for (int64_t i = 0; i < n; ++i) t.set_float(i, static_cast<double>(i));
  return t;
}

double last(const std::vector<Tensor>& outputs) {
  return outputs[0].get_float(outputs[0].elements() - 1);
}

TEST(ProgramPool, HandsOutClonesAndTakesThemBack) {
  ProgramPool pool(Session().compile(plus(1)));
  EXPECT_EQ(pool.clones(), 0u);
  {
    ProgramPool::Lease a = pool.take(), b = pool.take();
    EXPECT_NE(&*a, &*b);
    EXPECT_EQ(last(a->run({{"x", counted(5)}})), 5);
    EXPECT_EQ(last(b->run({{"x", counted(9)}})), 9);
    EXPECT_EQ(a->sizes(), (DimBinding{{"n", 5}}));  // each has its own
    EXPECT_EQ(pool.clones(), 0u);
    CompiledGraph* const first = &*a;
    b = std::move(a);  // gives back what it had
    EXPECT_EQ(&*b, first);
    EXPECT_EQ(pool.clones(), 1u);
  }
  EXPECT_EQ(pool.clones(), 2u);
  const int64_t bytes = pool.resident_bytes();
  EXPECT_GT(bytes, 0);
  {
    const ProgramPool::Lease again = pool.take();
  }
  EXPECT_EQ(pool.clones(), 2u);  // no third one
  EXPECT_EQ(pool.resident_bytes(), bytes);
  EXPECT_EQ(pool.signature().name, "plus");
  EXPECT_EQ(pool.info().per_size, "");
}

TEST(ProgramPool, ALeaseOutlivesItsPool) {
  std::optional<ProgramPool> pool(Session().compile(plus(2)));
  const ProgramPool::Lease f = pool->take();
  pool.reset();
  EXPECT_EQ(last(f->run({{"x", counted(3)}})), 4);
}

TEST(ProgramPool, ARunThatRaisesLeavesAProgramThatRuns) {
  ProgramPool pool(Session().compile(plus(1)));
  expect_error("input-missing", "\"x\"", [&] { pool.take()->run({}); });
  EXPECT_EQ(pool.clones(), 1u);
  EXPECT_EQ(last(pool.take()->run({{"x", counted(4)}})), 4);
}

TEST(ProgramPool, ParametersAreThoseOfTheProgramItWasMadeOf) {
  Builder b("scale");
  b.output(op::mul(b, b.input("x", {f32, {2}}), b.param("w", {f32, {2}})));
  CompiledGraph f = Session().compile(b.finish());
  f.set_param("w", Tensor::from<float>({2}, {3, 4}));
  ProgramPool pool(std::move(f));
  EXPECT_EQ(last(pool.take()->run({{"x", Tensor::from<float>({2}, {1, 10})}})), 40);
}

TEST(ProgramPool, ThreadsRunAtOnceAtTheirSizes) {
  ProgramPool pool(Session().compile(plus(1)));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      for (int i = 0; i < 200; ++i) {
        const int64_t n = 2 + (i * 7 + k) % 30;
        const ProgramPool::Lease f = pool.take();
        if (last(f->run({{"x", counted(n)}})) != static_cast<double>(n)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(pool.clones(), 4u);
}

TEST(ProgramCache, CompilesAGraphOncePerDevice) {
  ProgramCache cache;
  const auto a = cache.compile(plus(1)), b = cache.compile(plus(1)), c = cache.compile(plus(2));
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_EQ(last(b->take()->run({{"x", counted(3)}})), 3);
  EXPECT_NE(cache.compile(plus(1), "reference"), a);
  const ProgramCache::Counts counts = cache.counts();
  EXPECT_EQ(counts.hits, 1u);
  EXPECT_EQ(counts.compilations, 3u);
  EXPECT_EQ(counts.programs, 3u);
  EXPECT_GT(counts.bytes, 0);
  cache.clear();
  EXPECT_EQ(cache.counts().programs, 0u);
  EXPECT_EQ(last(a->take()->run({{"x", counted(3)}})), 3);  // who holds it may run it
  EXPECT_NE(cache.compile(plus(1)), a);
}

TEST(ProgramCache, AProgramPerMemoryBudget) {
  Builder b("wide");
  Value x = b.input("x", {f32, {64, 64}});
  for (int i = 0; i < 3; ++i) x = op::matmul(b, x, x);
  b.output(x);
  const Graph g = b.finish();
  ProgramCache cache;
  const auto free = cache.compile(g, Device("cpu"));
  EXPECT_EQ(cache.compile(g, Device("cpu"), 0), free);
  const auto within = cache.compile(g, Device("cpu"), int64_t{1} << 20);
  EXPECT_NE(within, free);
  EXPECT_EQ(cache.compile(g, Device("cpu"), int64_t{1} << 20), within);
  EXPECT_EQ(cache.counts().compilations, 2u);
  expect_error("memory-budget", "at least", [&] { cache.compile(g, Device("cpu"), 100); });
}

TEST(ProgramCache, DropsWhatWasUsedLongestAgo) {
  ProgramCache cache(1);  // less than any program keeps: the last one stays
  const auto a = cache.compile(plus(1));
  EXPECT_EQ(cache.compile(plus(1)), a);
  (void)a->take()->run({{"x", counted(1000)}});
  cache.compile(plus(2));
  EXPECT_EQ(cache.counts().programs, 1u);
  EXPECT_NE(cache.compile(plus(1)), a);
}

TEST(ProgramCache, RemembersNoErrors) {
  ProgramCache cache;
  for (int i = 0; i < 2; ++i)
    expect_error("device", "abacus", [&] { cache.compile(plus(1), "abacus"); });
  EXPECT_EQ(cache.counts().programs, 0u);
  EXPECT_EQ(cache.counts().compilations, 2u);
}

TEST(ProgramCache, ThreadsThatAskAtOnceWaitForOneCompilation) {
  ProgramCache cache;
  std::vector<std::shared_ptr<ProgramPool>> found(8);
  std::vector<std::thread> threads;
  for (size_t k = 0; k < found.size(); ++k)
    threads.emplace_back([&, k] { found[k] = cache.compile(plus(static_cast<double>(k % 2))); });
  for (std::thread& t : threads) t.join();
  for (size_t k = 2; k < found.size(); ++k) EXPECT_EQ(found[k], found[k % 2]);
  EXPECT_EQ(cache.counts().compilations, 2u);
  EXPECT_EQ(cache.counts().hits, 6u);
}

TEST(OutputTypes, AreThoseAtTheSizesThatAreSet) {
  CompiledGraph f = Session().compile(plus(1));
  expect_error("input-missing", "\"x\"", [&] { (void)f.output_types(); });
  for (const int64_t n : {3, 8}) {
    const Tensor x = counted(n);
    f.bind_input(0, x.raw(), {n});
    EXPECT_EQ(f.output_types(), (Types{{f32, {n}}}));
    EXPECT_EQ(f.sizes(), (DimBinding{{"n", n}}));
    Tensor y(f32, {n});
    f.run_into(std::vector<void*>{y.mutable_raw()});
    EXPECT_EQ(last({y}), static_cast<double>(n));
  }
  Builder b("both");
  b.output(
      op::add(b, b.input("x", {f32, {Dim::symbol("n")}}), b.input("y", {f32, {Dim::symbol("m")}})));
  CompiledGraph g = Session().compile(b.finish());
  const Tensor x = counted(3), y = counted(4);
  g.bind_input(0, x.raw(), {3}), g.bind_input(1, y.raw(), {4});
  expect_error("dim-guard", "must be equal", [&] { (void)g.output_types(); });
}

}  // namespace
}  // namespace rlx
