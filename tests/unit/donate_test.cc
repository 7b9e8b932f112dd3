// Inputs that are given away: outputs lie in their memory where the plan can prove that it changes nothing, values are
// bit for bit those without, and nobody gets to see a value that was written over.
#include <gtest/gtest.h>

#include <atomic>

#include "../support/expect_error.h"
#include "../support/lowered.h"
#include "rlx/backend/hidden/backend.h"
#include "rlx/compile/compile.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/indexing/scatter.h"
#include "rlx/runtime/program_cache.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;
const Device kCpu("cpu");

Tensor filled(Ints sizes, double first) {
  Tensor t(f32, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, first + 0.37 * static_cast<double>(i % 19));
  return t;
}

// p, m, x -> p', m', a sum: momentum. x has a size of its own.
Graph momentum(const Dim& rows = 30, const Dim& others = 50) {
  Builder b("momentum");
  const Value p = b.input("p", {f32, {rows, 40}}), m = b.input("m", {f32, {rows, 40}}),
              x = b.input("x", {f32, {others, 40}});
  const Value g = op::reduce_sum(b, op::tanh(b, x), {{0}});
  const Value next = op::add(b, op::mul(b, m, b.constant(f32, 0.9)), g);
  b.output(op::sub(b, p, op::mul(b, next, b.constant(f32, 0.01))));
  b.output(next);
  b.output(op::reduce_sum(b, g, {{0}}));
  return b.finish();
}

NamedTensors momentum_inputs(int64_t rows = 30, int64_t others = 50) {
  return {{"p", filled({rows, 40}, 1)},
          {"m", filled({rows, 40}, -2)},
          {"x", filled({others, 40}, 0.1)}};
}

CompiledGraph compiled(const Graph& g, std::vector<size_t> donate, const Device& device = kCpu) {
  return Session(device).compile(g, {.donate = std::move(donate), .poison = true});
}

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].same_bits(b[i])) << "output " << i;
}

std::vector<int32_t> donors(const Program& p) {
  std::vector<int32_t> out;
  for (size_t k = 0; k < p.outputs.size(); ++k) out.push_back(donor_of(p, k));
  return out;
}
using Donors = std::vector<int32_t>;

Program planned(const Graph& g, const std::vector<size_t>& donate) {
  Program p = lower_for_cpu(g, 256, donate).program;
  EXPECT_EQ(plan_faults(p), "") << to_string(p);
  return p;
}

std::string refusal(const Program& p) {
  try {
    verify(p);
    return {};
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    return e.what();
  }
}

#define EXPECT_REFUSED(program, part)                                            \
  EXPECT_NE(refusal(program).find(part), std::string::npos) << refusal(program); \
  EXPECT_NE(plan_faults(program), "")

// ---- the plan

TEST(DonatedPlan, StateIsWrittenInPlace) {
  const Program plain = planned(momentum(), {}), p = planned(momentum(), {0, 1});
  EXPECT_EQ(donors(plain), (Donors{-1, -1, -1}));
  EXPECT_EQ(donors(p), (Donors{0, 1, -1})) << to_string(p);
  EXPECT_EQ(p.steps.size(), plain.steps.size());  // no copy
  EXPECT_EQ(p.arena_bytes, plain.arena_bytes);
  const auto bytes = [](std::vector<size_t> donate) {
    return compiled(momentum(), std::move(donate)).info().planned_bytes;
  };
  EXPECT_EQ(bytes({}) - bytes({0, 1}), 2 * 30 * 40 * 4);
  EXPECT_EQ(bytes({}) - bytes({1}), 30 * 40 * 4);
}

TEST(DonatedPlan, OnlyWhatHasAsManyBytes) {
  EXPECT_EQ(donors(planned(momentum(), {2})), (Donors{-1, -1, -1}));
  EXPECT_EQ(donors(planned(momentum(30, 30), {2})), (Donors{2, -1, -1}));  // x is done with before
  Builder b("empty");
  b.output(op::neg(b, b.input("x", {f32, {0, 3}})));
  EXPECT_EQ(donors(planned(b.finish(), {0})), (Donors{-1}));
}

// What an input passes on stays where it is, whatever shape it is given.
TEST(DonatedPlan, ReturnedAsItIs) {
  Builder b("swap");
  const Value x = b.input("x", {f32, {4, 6}}), y = b.input("y", {f32, {4, 6}});
  b.output(op::reshape(b, y, {.shape = {24}}));
  b.output(x);
  b.output(y);
  const Graph g = b.finish();
  const Program p = planned(g, {0, 1});
  EXPECT_EQ(donors(p), (Donors{1, 0, -1}));  // y can be given once
  EXPECT_EQ(p.steps.size(), 1u);
  expect_same(compiled(g, {0, 1}).run({{"x", filled({4, 6}, 1)}, {"y", filled({4, 6}, 9)}}),
              compiled(g, {}).run({{"x", filled({4, 6}, 1)}, {"y", filled({4, 6}, 9)}}));
}

// y is written before x is read for the last time.
TEST(DonatedPlan, ReadLater) {
  Builder b("later");
  const Value x = b.input("x", {f32, {64, 64}});
  const Value y = op::cumsum(b, x, {.axis = 0});
  b.output(y);
  b.output(op::matmul(b, y, x));
  const Program p = planned(b.finish(), {0});
  EXPECT_EQ(donors(p), (Donors{-1, -1})) << to_string(p);
}

// Read by a step before, of the same chain: other tiles may not have read their rows yet.
TEST(DonatedPlan, ReadInTheSameChain) {
  Builder b("chain");
  const Value x = b.input("x", {f32, {300, 300}}), w = b.input("w", {f32, {300, 32}});
  b.output(op::softmax(b, op::matmul(b, x, w)));
  const Graph g = b.finish();
  Program p = planned(g, {1});
  ASSERT_EQ(p.chains.size(), 1u);
  EXPECT_EQ(donors(p), (Donors{-1})) << to_string(p);
  Buffer& out = p.buffers[static_cast<size_t>(p.outputs[0].buffer)];
  out.shares = p.input_buffers[1];  // w is read whole by every tile
  EXPECT_REFUSED(p, "written by one tile and touched by another");
}

// An input that another operand of the same step views in another order.
TEST(DonatedPlan, ReadInTwoWays) {
  Builder b("views");
  const Value x = b.input("x", {f32, {70, 70}});
  b.output(op::add(b, x, op::transpose(b, x, {{1, 0}})));
  EXPECT_EQ(donors(planned(b.finish(), {0})), (Donors{-1}));
  Builder c("transposed");
  c.output(op::transpose(c, c.input("x", {f32, {70, 70}}), {{1, 0}}));
  EXPECT_EQ(donors(planned(c.finish(), {0})), (Donors{-1}));
}

TEST(DonatedPlan, UpdatesReadItLast) {
  Builder b("update");
  const Value x = b.input("x", {f32, {16}});
  b.param("w", {f32, {16}});
  b.output(op::cumsum(b, x, {.axis = 0}));
  b.update("w", x);
  EXPECT_EQ(donors(planned(b.finish(), {0})), (Donors{-1}));
}

TEST(DonatedPlan, CachesAreWrittenInPlace) {
  Builder b("cache");
  const Value cache = b.input("cache", {f32, {128, 16}}), row = b.input("row", {f32, {1, 16}}),
              at = b.input("at", {DType::I64, {2}});
  const Value next = op::dynamic_update_slice(b, cache, row, at);
  b.output(next);
  b.output(op::reduce_sum(b, next, {{0}}));
  const Graph g = b.finish();
  EXPECT_EQ(donors(planned(g, {0})), (Donors{0, -1}));
  const NamedTensors in{{"cache", filled({128, 16}, 1)},
                        {"row", filled({1, 16}, 7)},
                        {"at", Tensor::from<int64_t>({2}, {77, 0})}};
  expect_same(compiled(g, {0}).run(in), compiled(g, {}).run(in));
}

// A body that swaps the carries and adds x.
Graph swapping(int64_t length) {
  const Type type{f32, {32}};
  Builder body("body");
  const Value a = body.input("a", type), c = body.input("b", type);
  const Value x = body.input("x", type);
  body.output(op::add(body, op::mul(body, c, body.constant(f32, 0.5)), x));
  body.output(op::tanh(body, a));
  Builder b("swapping");
  const Value p = b.input("p", type), q = b.input("q", type), y = b.input("y", type);
  ScanAttrs scan;
  scan.body = body.finish();
  scan.length = length;
  scan.num_carries = 2;
  for (Value v : b.emit(op::scan.def, scan, Values{p, q, y})) b.output(v);
  return b.finish();
}

TEST(DonatedPlan, CarriesAreWrittenInPlace) {
  const NamedTensors in{{"p", filled({32}, 1)}, {"q", filled({32}, -1)}, {"y", filled({32}, 0.2)}};
  for (const int64_t length : {0, 1, 2, 3, 8}) {
    const Graph g = swapping(length);
    const Donors found = donors(planned(g, {0, 1, 2}));
    // A single step reads what it writes.
    EXPECT_EQ(found, length > 1 ? (Donors{0, 1}) : (Donors{-1, -1})) << length;
    expect_same(compiled(g, {0, 1, 2}).run(in), compiled(g, {}).run(in));
  }
}

Graph counting(double limit) {
  const Type type{f32, {32}}, one{f32, {}};
  Builder cond("cond");
  {
    const Value n = cond.input("n", one);
    cond.input("a", type), cond.input("b", type);
    cond.output(op::lt(cond, n, cond.constant(f32, limit)));
  }
  Builder body("body");
  {
    const Value n = body.input("n", one), a = body.input("a", type), c = body.input("b", type);
    body.output(op::add(body, n, body.constant(f32, 1)));
    body.output(op::tanh(body, c));
    body.output(op::add(body, a, c));
  }
  Builder b("while");
  const Values init{b.input("n", one), b.input("a", type), b.input("b", type)};
  WhileAttrs loop;
  loop.cond = cond.finish();
  loop.body = body.finish();
  loop.num_carries = 3;
  for (Value v : b.emit(op::while_loop.def, loop, init)) b.output(v);
  return b.finish();
}

TEST(DonatedPlan, CarriesOfLoops) {
  const NamedTensors in{
      {"n", Tensor::scalar(f32, 0)}, {"a", filled({32}, 1)}, {"b", filled({32}, -1)}};
  for (const double limit : {0.0, 1.0, 2.0, 5.0}) {
    const Graph g = counting(limit);
    EXPECT_EQ(donors(planned(g, {0, 1, 2})), (Donors{0, 1, 2}));
    EXPECT_EQ(donors(planned(g, {1})), (Donors{-1, 1, -1}));
    expect_same(compiled(g, {0, 1, 2}).run(in), compiled(g, {}).run(in));
  }
}

// ---- the verifier

TEST(DonatedPlan, TheVerifierKnows) {
  const Program good = planned(momentum(), {0, 1});
  const auto output = [](Program& p, size_t k) -> Buffer& {
    return p.buffers[static_cast<size_t>(p.outputs[k].buffer)];
  };
  EXPECT_EQ(refusal(good), "");
  Program p = good;
  p.donated[0] = false;
  EXPECT_REFUSED(p, "which is no donated input");
  p = good;
  output(p, 1).shares = output(p, 0).shares;
  EXPECT_REFUSED(p, "two outputs lie in");
  p = good;
  output(p, 2).shares = p.input_buffers[0];
  output(p, 0).shares = -1;
  EXPECT_REFUSED(p, "of 4 bytes lies in");
  p = good;
  output(p, 0).shares = p.outputs[1].buffer;
  EXPECT_REFUSED(p, "which is no donated input");

  Builder b("later");
  const Value x = b.input("x", {f32, {64, 64}});
  const Value y = op::cumsum(b, x, {.axis = 1});
  b.output(y);
  b.output(op::matmul(b, y, x));
  p = planned(b.finish(), {0});
  output(p, 0).shares = p.input_buffers[0];
  EXPECT_REFUSED(p, "after step");
  output(p, 0).shares = -1;
  output(p, 1).shares = p.input_buffers[0];
  EXPECT_NE(refusal(p).find("which its kernel does not allow"), std::string::npos) << refusal(p);

  Builder c("part");
  const Value z = c.input("x", {f32, {4, 6}});
  c.output(z);
  c.output(op::neg(c, z));
  p = planned(c.finish(), {0});
  EXPECT_EQ(donors(p), (Donors{0, -1}));
  output(p, 1).shares = p.input_buffers[0];
  EXPECT_REFUSED(p, "two outputs lie in");
  p.outputs[0] = view_slice(p.outputs[0], {0, 0}, {2, 6}, {});
  EXPECT_REFUSED(p, "");
}

// ---- runs

class Donated : public ::testing::TestWithParam<Device> {
 protected:
  static void SetUpTestSuite() { register_backend(hidden::make_hidden_backend(0)); }
  DeviceTensor there(const Tensor& t) const { return DeviceTensor::on(GetParam(), t).copy(); }
  bool plans() const { return GetParam().kind != "reference"; }
};
INSTANTIATE_TEST_SUITE_P(Devices, Donated,
                         ::testing::Values(Device("cpu"), Device("hidden"), Device("reference")),
                         [](const auto& info) { return info.param.kind; });

TEST_P(Donated, SameBitsInTheSameMemory) {
  CompiledGraph plain = compiled(momentum(), {}, GetParam()),
                f = compiled(momentum(), {0, 1}, GetParam());
  NamedTensors in = momentum_inputs();
  DeviceTensor p = there(in.at("p")), m = there(in.at("m"));
  const DeviceTensor x = there(in.at("x"));
  const std::byte* const p_memory = p.data().get();
  const std::byte* const m_memory = m.data().get();
  for (int step = 0; step < 5; ++step) {
    const std::vector<Tensor> want = plain.run(in);
    in["p"] = want[0], in["m"] = want[1];
    const std::vector<DeviceTensor> got = f.run_on_device({{"p", p}, {"m", m}, {"x", x}});
    for (size_t k = 0; k < 3; ++k) EXPECT_TRUE(got[k].to_host().same_bits(want[k])) << k;
    p = got[0], m = got[1];
    if (!plans()) continue;
    EXPECT_EQ(p.data().get(), p_memory);
    EXPECT_EQ(m.data().get(), m_memory);
  }
}

TEST_P(Donated, HostTensorsStayAsTheyAre) {
  CompiledGraph plain = compiled(momentum(), {}, GetParam()),
                f = compiled(momentum(), {0, 1}, GetParam());
  const NamedTensors in = momentum_inputs();
  const NamedTensors copies = momentum_inputs();
  const std::vector<Tensor> first = f.run(in), second = f.run(in);
  expect_same(first, plain.run(in));
  expect_same(second, first);  // neither wrote over the other
  for (const auto& [name, t] : copies) EXPECT_TRUE(in.at(name).same_bits(t)) << name;
  for (const auto& [name, t] : in) f.set_input(name, t);
  f.run();
  const Tensor kept = f.output_tensor(0);
  f.set_input("p", filled({30, 40}, 100));
  EXPECT_TRUE(f.output_tensor(0).same_bits(kept));  // until the next run
  EXPECT_TRUE(kept.same_bits(first[0]));
}

TEST_P(Donated, ARunTakesThem) {
  CompiledGraph f = compiled(momentum(), {1}, GetParam());
  const NamedTensors in = momentum_inputs();
  expect_error("input-missing", "\"m\" ([30, 40] f32) was never set",
               [&] { f.run({{"p", in.at("p")}, {"x", in.at("x")}}); });
  const std::vector<Tensor> want = f.run(in);
  expect_error("input-missing", "\"m\" ([30, 40] f32) was given to the last run; set it again",
               [&] { f.run(); });
  expect_same(f.run({{"m", in.at("m")}}), want);  // the others are still there
  // A run that has begun, too.
  f.set_input("m", in.at("m"));
  std::atomic<bool> cancel{true};
  expect_error("cancelled", "", [&] { f.run(RunOptions{.cancel = &cancel}); });
  expect_error("input-missing", "was given to the last run", [&] { f.run(); });
  // One that has not begun takes nothing.
  f.set_input("m", in.at("m"));
  expect_error("output-index", "2 pointers", [&] {
    std::vector<void*> pointers(2, nullptr);
    f.run_into(pointers);
  });
  f.run();
}

TEST_P(Donated, ClonesHaveTheirOwn) {
  CompiledGraph f = compiled(momentum(), {0, 1}, GetParam());
  const NamedTensors in = momentum_inputs();
  const std::vector<Tensor> want = f.run(in);
  for (const auto& [name, t] : in) f.set_input(name, there(t));
  CompiledGraph g = f.clone();
  expect_same(f.run(std::initializer_list<NamedTensors::value_type>{}), want);
  expect_same(g.run(std::initializer_list<NamedTensors::value_type>{}), want);
}

TEST_P(Donated, NotWaitedFor) {
  CompiledGraph f = compiled(momentum(), {0, 1, 2}, GetParam());
  const NamedTensors in = momentum_inputs();
  const std::vector<Tensor> want = f.run(in);
  for (int i = 0; i < 3; ++i) {
    NamedDeviceTensors given;
    for (const auto& [name, t] : in) given.emplace(name, there(t));
    const std::vector<DeviceTensor> got = f.run_on_device(given, {.wait = false});
    given.clear();  // x, which no output could use, is read all the same
    const DeviceTensor other = there(filled({50, 40}, 1e6));
    f.wait();
    for (size_t k = 0; k < 3; ++k) EXPECT_TRUE(got[k].to_host().same_bits(want[k])) << k;
  }
  for (const auto& [name, t] : in) f.set_input(name, t);
  f.run(RunOptions{.wait = false});
  for (const auto& [name, t] : in) f.set_input(name, t);
  f.run(RunOptions{.wait = false});
  f.wait();
  EXPECT_TRUE(f.output_tensor(0).same_bits(want[0]));
}

// Pointers: the output is where its donor is, unless somebody wants it elsewhere.
TEST(DonatedRuns, Pointers) {
  CompiledGraph f = compiled(momentum(), {0, 1});
  const NamedTensors in = momentum_inputs();
  const std::vector<Tensor> want = compiled(momentum(), {}).run(in);
  Tensor p, m, sum(f32, {}), elsewhere(f32, {30, 40});
  const auto give = [&] {
    p = filled({30, 40}, 1), m = filled({30, 40}, -2);
    f.bind_input(0, p.mutable_raw());
    f.bind_input(1, m.mutable_raw());
    f.bind_input(2, in.at("x").raw());
  };
  give();
  EXPECT_EQ(std::vector<int32_t>(f.donors().begin(), f.donors().end()), (Donors{0, 1, -1}));
  std::vector<void*> pointers{p.mutable_raw(), nullptr, sum.mutable_raw()};
  f.run_into(pointers);
  expect_same({p, m, sum}, want);
  expect_error("input-missing", "was given to the last run", [&] { f.run_into(pointers); });
  give();
  pointers[0] = elsewhere.mutable_raw();
  f.run_into(pointers);
  expect_same({elsewhere, m, sum}, want);
  give();
  pointers[2] = nullptr;  // has no donor
  expect_error("output-index", "output 2 is null", [&] { f.run_into(pointers); });
  f.run();  // outputs in memory of its own
  for (size_t k = 0; k < 3; ++k) EXPECT_TRUE(f.output_tensor(k).same_bits(want[k])) << k;
  give();
  f.bind_output(0, p.mutable_raw());
  f.bind_output(1, elsewhere.mutable_raw());
  f.run();
  expect_same({p, elsewhere, f.output_tensor(2)}, want);
}

// Decided for each size: 30 rows of p and 30 of x have as many bytes.
TEST_P(Donated, SizesThatAreSymbols) {
  const Graph g = momentum(Dim::symbol("n"), Dim::symbol("k"));
  CompiledGraph f = compiled(g, {1, 2}, GetParam()), plain = compiled(g, {}, GetParam());
  for (const auto& [rows, others] :
       {std::pair<int64_t, int64_t>{30, 50}, {30, 30}, {7, 50}, {1, 1}, {0, 3}, {30, 50}}) {
    const NamedTensors in = momentum_inputs(rows, others);
    for (const auto& [name, t] : in) f.set_input(name, t);
    if (plans() && rows > 1) {
      const auto found = f.donors();
      EXPECT_EQ(std::vector<int32_t>(found.begin(), found.end()),
                rows == others ? (Donors{2, 1, -1}) : (Donors{-1, 1, -1}));
    }
    expect_same(f.run(in), plain.run(in));
  }
}

TEST(DonatedRuns, Options) {
  expect_error("donate", "graph \"momentum\" has no input 3 that could be donated; it has 3",
               [] { compiled(momentum(), {3}); });
  // LIR says itself what was donated.
  const auto backend = backend_for(kCpu);
  const GraphModule lir = lower_to(CompileStage::lir, momentum(), *backend, {.donate = {0, 1}});
  CompiledGraph f = Session(kCpu).compile(lir);
  const NamedTensors in = momentum_inputs();
  expect_same(f.run(in), compiled(momentum(), {}).run(in));
  expect_error("input-missing", "was given to the last run", [&] { f.run(); });
  ProgramCache cache;
  const auto pool = cache.compile(momentum()), other = cache.compile(momentum(), kCpu, 0, {0, 1});
  EXPECT_NE(pool, other);
  EXPECT_EQ(cache.compile(momentum(), kCpu, 0, {0, 1}), other);
}

}  // namespace
}  // namespace rlx::testing
