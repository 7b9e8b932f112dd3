// Calls that are refused, or for which there is no memory, leave a compiled program as it was; what they were given to
// hold goes when nobody uses it any more.
#include <gtest/gtest.h>

#include "../support/expect_error.h"
#include "../support/hidden_checks.h"
#include "rlx/compile.h"
#include "rlx/front/loops.h"
#include "rlx/front/trace.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/core.h"
#include "rlx/runtime/program_pool.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;
constexpr int64_t kTooMany = int64_t{1} << 45;

Value any_length(Builder& b, const char* name) { return b.input(name, {f32, {Dim::symbol("n")}}); }

// Sizes of which there is no memory, behind a pointer to one element.
Tensor too_large() {
  return Tensor::over(f32, {kTooMany}, std::shared_ptr<std::byte[]>(new std::byte[64]));
}

class Refused : public ::testing::TestWithParam<const char*> {
 protected:
  Refused() { register_hidden_devices(); }
};
INSTANTIATE_TEST_SUITE_P(Refused, Refused, ::testing::Values("cpu", "hidden"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Refused, InputsWithoutMemory) {
  Builder b("g");
  b.output(op::neg(b, any_length(b, "x")));
  CompiledGraph f = Session(GetParam()).compile(b.finish());
  const Tensor x = Tensor::from<float>({2}, {3, 4});
  EXPECT_EQ(f.run({{"x", x}})[0].get_float(1), -4);
  expect_error("out-of-memory", "", [&] { f.set_input("x", too_large()); });
  EXPECT_EQ(f.run({})[0].get_float(1), -4);
  EXPECT_THROW(f.run({{"x", too_large()}}), Error);
  const Tensor y = f.run({})[0];
  ASSERT_EQ(y.sizes(), (Ints{2}));
  EXPECT_EQ(y.get_float(0), -3);
}

TEST_P(Refused, SizesThatMustBeEqual) {
  Builder b("g");
  b.output(op::add(b, any_length(b, "x"), any_length(b, "y")));
  CompiledGraph f = Session(GetParam()).compile(b.finish(), {.hints = {{"n", {.max = 5}}}});
  const auto tensor = [](int64_t n, double v) { return Tensor::full(f32, {n}, v); };
  EXPECT_EQ(f.run({{"x", tensor(2, 1)}, {"y", tensor(2, 2)}})[0].get_float(1), 3);
  for (int round = 0; round < 2; ++round) {
    expect_error("dim-guard", "", [&] { f.run({{"x", tensor(3, 9)}}); });
    EXPECT_EQ(f.run({})[0].get_float(1), 3) << "nothing has changed";
    expect_error("dim-hint", "", [&] { f.run({{"x", tensor(6, 9)}, {"y", tensor(6, 9)}}); });
    EXPECT_EQ(f.run({{"y", tensor(2, 2)}})[0].get_float(1), 3);
    EXPECT_EQ(f.sizes().at("n"), 2);
  }
  EXPECT_EQ(f.run({{"x", tensor(4, 5)}, {"y", tensor(4, 6)}})[0].get_float(3), 11);
}

// What an update would have written is there still.
TEST_P(Refused, UpdatedParametersWithoutMemory) {
  Builder b("g");
  const Value w = b.param("w", {f32, {Dim::symbol("n")}});
  const Value next = op::add(b, w, b.constant(f32, 1));
  b.output(next);
  b.update("w", next);
  CompiledGraph f = Session(GetParam()).compile(b.finish());
  f.set_param("w", Tensor::from<float>({2}, {1, 2}));
  const auto backend = backend_for(GetParam());
  const DeviceTensor huge(backend, f32, {kTooMany}, backend->allocate(64));
  EXPECT_THROW(f.set_param("w", huge), Error);
  EXPECT_EQ(f.run({})[0].get_float(1), 3);
  EXPECT_EQ(f.param("w").get_float(0), 2);
}

TEST(Refused, EmptyInputsNeedNoPointer) {
  Builder b("g");
  b.output(op::reduce_sum(b, any_length(b, "x"), {{0}}));
  CompiledGraph f = Session("cpu").compile(b.finish());
  f.bind_input(0, nullptr, {0});
  f.run();
  EXPECT_EQ(f.output_tensor(0).get_float(0), 0);
  expect_error("input-sizes", "-3", [&] { f.bind_input(0, nullptr, {-3}); });
  f.bind_input(0, nullptr, {4});
  expect_error("input-missing", "x", [&] { f.run(); });
}

TEST(Refused, OutputsOfRunsUnderWayStay) {
  register_hidden_devices();
  Builder b("g");
  b.output(op::exp(b, b.input("x", {f32, {256}})));
  const Graph g = b.finish();
  const Tensor x = Tensor::full(f32, {256}, 1);
  CompiledGraph f = Session("hidden").compile(g);
  f.set_input("x", x);
  for (int i = 0; i < 20; ++i) {
    f.run({.wait = false});
    f.bind_output(0, nullptr);
    const DeviceTensor fives = DeviceTensor::on("hidden", Tensor::full(f32, {256}, 5));
    f.wait();
    for (int64_t k = 0; k < 256; ++k) ASSERT_EQ(fives.to_host().get_float(k), 5) << i;
  }
  f = Session("hidden").compile(g);  // one that runs is waited for
  f.set_input("x", x);
  f.run({.wait = false});
  f = std::move(f);  // NOLINT: stays
  f.wait();
  EXPECT_NEAR(f.output_tensor(0).get_float(3), std::exp(1.0), 1e-6);
}

TEST(Refused, LeasesGiveBackWhatWasBound) {
  Builder b("g");
  b.output(op::neg(b, b.input("x", {f32, {3}})));
  ProgramPool pool(Session("cpu").compile(b.finish()));
  std::vector<float> x{1, 2, 3}, y(3);
  {
    ProgramPool::Lease a = pool.take();
    a->bind_input(0, x.data());
    a->bind_output(0, y.data());
    a->run();
    EXPECT_EQ(y[2], -3);
  }
  ProgramPool::Lease c = pool.take();
  expect_error("input-missing", "x", [&] { c->run(); });
  c->set_input("x", Tensor::from<float>({3}, {7, 8, 9}));
  c->run();
  EXPECT_EQ(c->output_tensor(0).get_float(0), -7);
  EXPECT_EQ(y[2], -3);
}

TEST(Refused, PlansOfOtherGraphs) {
  Builder b("g");
  const Value x = b.input("x", {f32, {4}}), y = op::gelu(b, x);
  b.output(y);
  const GraphModule made = lower_to(CompileStage::lir, b.finish(), *backend_for("cpu"));
  LirModule lir = *made.as_lir();
  ASSERT_TRUE(lir.has_plan());
  lir.mir_mut().as_graph_mut().outputs = {x};
  EXPECT_FALSE(lir.has_plan());
  const Tensor in = Tensor::from<float>({4}, {-1, 0, 1, 2});
  const Tensor out = Session("cpu").compile(lir).run({{"x", in}})[0];
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(out.get_float(i), in.get_float(i));
}

TEST(Refused, LoopsAndShapesThatAreNone) {
  const auto last_of = [](int64_t from, int64_t to) {
    const Graph g = trace("loop", [&](Tracer& t) {
      return fori_loop(
          t, from, to, {t.constant(Tensor(DType::I64, {}))},
          [](Tracer&, const TracedTensor& i, const TracedTensors&) { return TracedTensors{i}; })[0];
    });
    return Session("cpu").compile(g).run({})[0].get_int(0);
  };
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;
  EXPECT_EQ(last_of(kLarge, kLarge + 1), kLarge);
  EXPECT_EQ(last_of(-3, 2), 1);
  EXPECT_EQ(last_of(INT64_MAX, INT64_MIN), 0) << "no step";
  expect_error("loop-steps", "counted", [&] { last_of(INT64_MIN, INT64_MAX); });
  const Tensor four(f32, {4});
  expect_error("reshape-elements", "-1", [&] { four.reshaped({-1, -4}); });
  expect_error("reshape-elements", "[5]", [&] { four.reshaped({5}); });
}

}  // namespace
}  // namespace rlx::testing
