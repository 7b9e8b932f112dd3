// Programs on a device whose memory the host cannot touch and whose streams are late (backend/hidden): whatever above the
// backends reads device memory crashes here, and whatever does not wait is wrong.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "../support/hidden_checks.h"
#include "../support/symbolic_programs.h"
#include "rlx/base/function_ref.h"
#include "rlx/models/gpt.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/extend.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;

class Hidden : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { register_hidden_devices(); }
};

std::string error_of(FunctionRef<void()> f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
std::string code_of(FunctionRef<void()> f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return "no error";
}

Tensor ramp(Ints sizes, float first = 0) {
  Tensor t(f32, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, first + static_cast<float>(i));
  return t;
}

// y = x @ w + c; w <- w + 1. The constant is too large for an argument.
Graph linear_with_update() {
  Builder b("linear");
  const Value x = b.input("x", {f32, {2, 3}}), w = b.param("w", {f32, {3, 2}});
  b.output(op::add(b, op::matmul(b, x, w), b.constant(ramp({2, 2}, 10))));
  b.update("w", op::add(b, w, b.constant(f32, 1)));
  return b.finish();
}

// ---- the walls themselves

using HiddenDeathTest = Hidden;
TEST_F(HiddenDeathTest, TheHostCannotTouchItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const DeviceTensor t = DeviceTensor::on("hidden", ramp({4}));
  EXPECT_FALSE(t.is_on_host());
  volatile const std::byte* read = t.data().get();
  volatile std::byte* written = t.data().get();
  EXPECT_DEATH((void)*read, "");
  EXPECT_DEATH(*written = std::byte{1}, "");
  EXPECT_TRUE(t.to_host().same_bits(ramp({4})));
}

TEST_F(Hidden, TheDeviceRefusesAddressesOfTheHost) {
  const auto backend = backend_for("hidden");
  const auto stream = backend->make_stream(1);
  std::byte own[4];
  EXPECT_EQ(code_of([&] { stream->fill(own, 0, 4); }), "internal");
  EXPECT_EQ(code_of([&] { stream->upload(own, own, 4); }), "internal");
}

TEST_F(Hidden, StreamsAreLate) {
  const auto backend = backend_for("hidden");
  const auto stream = backend->make_stream(1), other = backend->make_stream(1);
  const MemoryBlock a = backend->allocate(8), b = backend->allocate(8);
  std::byte given[8], got[8];
  std::memset(given, 7, 8);
  stream->upload(a.get(), given, 8);
  std::memset(given, 9, 8);  // was taken when upload() returned
  stream->copy(b.get(), a.get(), 8);
  const auto event = stream->record();
  EXPECT_FALSE(event->has_come());
  stream->fill(b.get(), 3, 4);  // behind the event
  other->wait_for(event);
  other->copy(a.get(), b.get(), 8);
  other->download(got, a.get(), 8);
  EXPECT_TRUE(event->has_come());
  EXPECT_EQ(got[7], std::byte{7});
  stream->download(got, b.get(), 8);
  EXPECT_EQ(got[0], std::byte{3});
  EXPECT_EQ(got[4], std::byte{7});
  const auto last = stream->record();
  last->wait();
  EXPECT_TRUE(last->has_come());
}

TEST_F(Hidden, MemoryGoesBack) {
  const auto backend = backend_for("hidden");
  const std::byte* first = nullptr;
  for (int i = 0; i < 100; ++i) {
    const MemoryBlock small = backend->allocate(100), large = backend->allocate(int64_t{3} << 20);
    if (!first) first = large.get();
    EXPECT_EQ(large.get(), first);
  }
  EXPECT_EQ(code_of([&] { (void)backend->allocate(int64_t{1} << 40); }), "out-of-memory");
}

// ---- programs

TEST_F(Hidden, SomeSamples) {
  register_sample_ops();
  EXPECT_GT(check_samples_on_hidden(23), 150);
}

TEST_F(Hidden, RandomPrograms) { check_random_programs_on_hidden(0, 40); }

TEST_F(Hidden, Training) {
  GptConfig c;
  c.vocab = 11, c.width = 8, c.layers = 2, c.heads = 2, c.block = 6, c.batch = 2;
  const Graph g = gpt_train_step(c);
  std::vector<Tensor> losses[2];
  NamedTensors params[2];
  const char* const devices[] = {"cpu", "hidden"};
  for (int d = 0; d < 2; ++d) {
    CompiledGraph f = Session(devices[d]).compile(g, {.threads = 2});
    f.set_params(gpt_train_state(c, gpt_init(c, 3)));
    for (int64_t step = 0; step < 12; ++step) {
      Tensor x(DType::I32, {c.batch, c.block}), y(DType::I32, {c.batch, c.block});
      for (int64_t i = 0; i < x.elements(); ++i)
        x.set_int(i, (i * 5 + step) % c.vocab), y.set_int(i, (i * 5 + step + 3) % c.vocab);
      losses[d].push_back(f.run({{"x", x}, {"y", y}})[0]);
    }
    params[d] = f.params();
  }
  EXPECT_LT(losses[1].back().get_float(0), losses[1].front().get_float(0));
  for (size_t i = 0; i < losses[0].size(); ++i) EXPECT_TRUE(losses[0][i].same_bits(losses[1][i]));
  for (const auto& [name, value] : params[0]) EXPECT_TRUE(value.same_bits(params[1].at(name)));
}

// One compilation on each device, at sizes on both sides of tiles and back again: weights, updates of weights, control
// flow with gradients. What one size left in memory must not show at the next.
TEST_F(Hidden, SymbolicPrograms) {
  std::vector<SymbolicProgram> programs = small_symbolic_programs();
  std::erase_if(programs, [](const SymbolicProgram& p) {
    return p.name != "softmax" && p.name != "reductions" && p.name != "products" &&
           p.name != "views" && p.name != "train_step";
  });
  programs.push_back(symbolic_rnn());
  ASSERT_EQ(programs.size(), 6u);
  std::mt19937_64 random(17);
  for (const SymbolicProgram& p : programs) {
    CompiledGraph cpu = Session("cpu").compile(p.graph),
                  hidden = Session("hidden").compile(p.graph);
    EXPECT_EQ(hidden.info().per_size, "") << p.name;
    const NamedTensors params = random_params(p.graph, random);
    cpu.set_params(params), hidden.set_params(params);
    for (const int64_t n : {5, 64, 1, 65, 127, 128, 0, 129, 5}) {
      DimBinding sizes;
      for (const auto& [symbol, range] : p.sizes)
        sizes[symbol] = symbol == "m" ? (n * 7 + 3) % 130 : n;
      if (n == 0 && p.name == "train_step") continue;  // a mean of nothing spoils the weights
      SCOPED_TRACE(fmt::format("{} at {}", p.name, n));
      const NamedTensors inputs = random_inputs(rlx::bind(p.graph, sizes), random);
      const std::vector<Tensor> want = cpu.run(inputs), got = hidden.run(inputs);
      EXPECT_EQ(hidden.sizes(), sizes);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_TRUE(got[i].same_bits(want[i])) << "output " << i;
    }
    for (const auto& [name, value] : cpu.params())
      EXPECT_TRUE(hidden.param(name).same_bits(value)) << p.name << ": " << name;
  }
}

// ---- tensors that stay

TEST_F(Hidden, TensorsStayOnTheDevice) {
  CompiledGraph f = Session("hidden").compile(linear_with_update());
  EXPECT_EQ(name(f.device()), "hidden");
  const DeviceTensor x = DeviceTensor::on("hidden", ramp({2, 3})),
                     w = DeviceTensor::on("hidden", ramp({3, 2}));
  f.set_param("w", w);
  const std::vector<DeviceTensor> y = f.run_on_device({{"x", x}});
  EXPECT_EQ(y[0].device(), Device("hidden"));
  EXPECT_EQ(y[0].to_host().get_float(0), 0 * 0 + 1 * 2 + 2 * 4 + 10);
  EXPECT_TRUE(w.to_host().same_bits(ramp({3, 2})));  // the update went to a copy
  EXPECT_TRUE(f.param("w").same_bits(ramp({3, 2}, 1)));
  const DeviceTensor now = f.device_param("w");
  f.run();
  EXPECT_TRUE(now.to_host().same_bits(ramp({3, 2}, 1)));  // nor does it change with the next run
  EXPECT_TRUE(f.device_param("w").to_host().same_bits(ramp({3, 2}, 2)));
  EXPECT_TRUE(x.to("cpu").to_host().same_bits(ramp({2, 3})));
  EXPECT_TRUE(x.to("hidden:1").to("hidden").to_host().same_bits(ramp({2, 3})));
  EXPECT_EQ(x.to("hidden").data(), x.data());
  EXPECT_NE(x.copy().data(), x.data());
  EXPECT_TRUE(x.copy().to_host().same_bits(ramp({2, 3})));
}

TEST_F(Hidden, OnTheHostTensorsAreShared) {
  const Tensor host = ramp({2, 3});
  const DeviceTensor x = DeviceTensor::on("cpu", host);
  EXPECT_EQ(x.data().get(), host.raw());
  EXPECT_EQ(x.to("reference").data(), x.data());  // reads the same memory
  EXPECT_EQ(x.to_host().raw(), host.raw());
  CompiledGraph f = Session("cpu").compile(linear_with_update());
  f.set_param("w", ramp({3, 2}));
  EXPECT_EQ(f.run_on_device({{"x", x}})[0].to_host().get_float(0), 20);
}

TEST_F(Hidden, ParametersThatNoUpdateWritesAreShared) {
  Builder b("product");
  b.output(op::matmul(b, b.input("x", {f32, {64, 64}}), b.param("w", {f32, {64, 64}})));
  for (const char* device : {"cpu", "hidden"}) {
    CompiledGraph f = Session(device).compile(b.graph());
    const DeviceTensor w = DeviceTensor::on(device, ramp({64, 64}));
    f.set_param("w", w);
    EXPECT_EQ(f.device_param("w").data(), w.data());
    const Tensor one = f.run({{"x", ramp({64, 64})}})[0];
    f.set_param("w", DeviceTensor::on(device, ramp({64, 64}, 1)));  // packed anew
    EXPECT_FALSE(f.run({})[0].same_bits(one));
    f.set_param("w", w);
    EXPECT_TRUE(f.run({})[0].same_bits(one));
    f.set_param("w", ramp({64, 64}, 5));  // takes memory of its own
    EXPECT_TRUE(w.to_host().same_bits(ramp({64, 64})));
  }
}

TEST_F(Hidden, MemoryOfAnotherDeviceIsRefused) {
  CompiledGraph f = Session("hidden").compile(linear_with_update());
  const DeviceTensor x = DeviceTensor::on("cpu", ramp({2, 3})),
                     w = DeviceTensor::on("hidden:1", ramp({3, 2}));
  EXPECT_NE(error_of([&] {
              f.set_input("x", x);
            }).find("input \"x\" lies in memory of cpu, the program reads memory of hidden"),
            std::string::npos);
  EXPECT_EQ(code_of([&] { f.set_param("w", w); }), "param-device");
  EXPECT_EQ(code_of([&] { f.run_on_device({{"x", x}}); }), "input-device");
  EXPECT_EQ(code_of([&] { (void)x.to("hidden:2"); }), "device");
  f.set_input("x", x.to("hidden"));
  f.set_param("w", w.to("hidden"));
  f.run();
  EXPECT_EQ(f.output_tensor(0).get_float(0), 20);
}

TEST_F(Hidden, SharedInputsAreNotWritten) {
  CompiledGraph f = Session("hidden").compile(linear_with_update());
  f.set_param("w", ramp({3, 2}));
  const DeviceTensor x = DeviceTensor::on("hidden", ramp({2, 3}));
  f.set_input("x", x);
  f.set_input("x", ramp({2, 3}, 100));
  f.run();
  EXPECT_TRUE(x.to_host().same_bits(ramp({2, 3})));
  f.set_input("x", x);
  CompiledGraph g = f.clone();
  f.set_input("x", ramp({2, 3}, 50));
  g.run();
  EXPECT_EQ(g.output_tensor(0).get_float(0), 0 * 1 + 1 * 3 + 2 * 5 + 10);
}

// ---- runs that are not waited for

TEST_F(Hidden, RunsInARow) {
  CompiledGraph f = Session("hidden").compile(linear_with_update());
  f.set_param("w", ramp({3, 2}));
  f.set_input("x", ramp({2, 3}));
  for (int i = 0; i < 50; ++i) f.run({.wait = false});
  f.wait();
  EXPECT_TRUE(f.param("w").same_bits(ramp({3, 2}, 50)));
  f.run({.wait = false});
  EXPECT_TRUE(f.param("w").same_bits(ramp({3, 2}, 51)));  // reading waits
}

// What was packed of a weight stays until the runs that read it are over.
TEST_F(Hidden, AParameterIsSetBehindARun) {
  Builder b("product");
  b.output(op::matmul(b, b.input("x", {f32, {64, 64}}), b.param("w", {f32, {64, 64}})));
  CompiledGraph f = Session("hidden").compile(b.graph());
  f.set_param("w", ramp({64, 64}));
  f.set_input("x", ramp({64, 64}));
  f.run();
  const Tensor want = f.output_tensor(0);
  f.run({.wait = false});
  f.set_param("w", ramp({64, 64}, 1));
  f.wait();
  EXPECT_TRUE(f.output_tensor(0).same_bits(want));
}

TEST_F(Hidden, OneProgramAfterAnother) {
  Builder b("twice");
  const Value x = b.input("x", {f32, {2, 2}});
  b.output(op::add(b, x, x));
  CompiledGraph f = Session("hidden").compile(linear_with_update()),
                g = Session("hidden").compile(b.finish());
  f.set_param("w", ramp({3, 2}));
  f.set_input("x", ramp({2, 3}));
  f.run();
  g.bind_input(0, f.output(0));
  for (int i = 0; i < 20; ++i) {
    f.run({.wait = false});
    g.after(f);
    g.run();
    EXPECT_EQ(g.output_tensor(0).get_float(0), 2 * (20 + 3 * (i + 1)));
    f.wait();
  }
}

TEST_F(Hidden, ErrorsComeWithWaiting) {
  Builder b("pick");
  const Value i = b.input("i", {DType::I32, {2}});
  b.output(op::gather(b, b.constant(ramp({4, 3})), i, {.axis = 0}));
  CompiledGraph f = Session("hidden").compile(b.graph()), c = Session("cpu").compile(b.graph());
  const Tensor bad = Tensor::from<int32_t>({2}, {1, 4}), good = Tensor::from<int32_t>({2}, {1, 3});
  const std::string want = error_of([&] { c.run({{"i", bad}}); });
  EXPECT_NE(want.find("out of range"), std::string::npos);
  EXPECT_EQ(error_of([&] { f.run({{"i", bad}}); }), want);
  f.run({.wait = false});
  EXPECT_EQ(error_of([&] { f.wait(); }), want);
  f.wait();  // told once
  f.set_input("i", good);
  f.run();
  EXPECT_EQ(f.output_tensor(0).get_float(3), 9);
}

// A body's fault is told as on the CPU, and ends a loop whose condition would go on for ever.
TEST_F(Hidden, FaultsInBodies) {
  Builder b("scan");
  Builder body("body");
  const Value c = body.input("c", {f32, {}}), at = body.input("at", {DType::I32, {}});
  const Value row = op::gather(body, body.constant(ramp({4})), at, {.axis = 0});
  body.output(op::add(body, c, row));
  const Value start = b.input("start", {f32, {}}), all = b.input("all", {DType::I32, {5}});
  for (Value v :
       b.emit(op::scan.def,
              ScanAttrs{.body = body.finish(), .length = 5, .num_carries = 1, .num_xs = 1},
              Values{start, all}))
    b.output(v);
  CompiledGraph hidden = Session("hidden").compile(b.graph()),
                cpu = Session("cpu").compile(b.graph());
  const Tensor zero = Tensor::scalar(f32, 0);
  const NamedTensors bad{{"start", zero}, {"all", Tensor::from<int32_t>({5}, {0, 1, 9, 2, 3})}};
  const std::string want = error_of([&] { cpu.run(bad); });
  EXPECT_NE(want.find("out of range"), std::string::npos);
  EXPECT_EQ(error_of([&] { hidden.run(bad); }), want);
  EXPECT_EQ(hidden.run({{"start", zero}, {"all", Tensor::from<int32_t>({5}, {0, 1, 3, 2, 3})}})[0]
                .get_float(0),
            9);
}

TEST_F(Hidden, NanProfileAndCancel) {
  Builder b("log");
  const Value x = b.input("x", {f32, {4, 4}});
  b.output(op::matmul(b, op::log(b, x), x));
  CompiledGraph f = Session("hidden").compile(b.graph()), c = Session("cpu").compile(b.graph());
  const NamedTensors negative{{"x", Tensor::full(f32, {4, 4}, -1)}};
  const std::string want = error_of([&] { c.run(negative, {.check_nan = true}); });
  EXPECT_NE(want.find("made a NaN"), std::string::npos);
  EXPECT_EQ(error_of([&] { f.run(negative, {.check_nan = true}); }), want);
  f.run({.profile = true});
  EXPECT_EQ(f.times().size(), c.times().size());
  const std::atomic<bool> stop = true;
  EXPECT_EQ(code_of([&] { f.run({.cancel = &stop}); }), "cancelled");
  f.run();
}

TEST_F(Hidden, KernelsOfTheUserThatRaise) {
  static constinit const Op<> raises = OpDef{
      .name = "test_raises",
      .infer = infer_same,
      .eval = [](const EvalArgs& e) -> Tensors { return {e.in[0]}; },
  };
  if (!op_table().find("test_raises")) register_op(raises.def);
  const auto raise = [](const Node&, std::span<const HostView>, std::span<const HostView>) {
    throw Error(ErrorKind::user, "mine", "no");
  };
  register_kernel("hidden", raises.def, raise);
  Builder b("f");
  b.output(raises(b, b.input("x", {f32, {4}})));
  CompiledGraph f = Session("hidden").compile(b.graph());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(code_of([&] { f.run({{"x", ramp({4})}}); }), "mine");
  f.run({.wait = false});
  f.run({.wait = false});
  EXPECT_EQ(code_of([&] { f.wait(); }), "mine");
}

TEST_F(Hidden, ClonesOnThreads) {
  CompiledGraph f = Session("hidden").compile(linear_with_update());
  f.set_param("w", ramp({3, 2}));
  f.set_input("x", ramp({2, 3}));
  std::vector<CompiledGraph> clones;
  for (int i = 0; i < 4; ++i) clones.push_back(f.clone());
  std::vector<std::thread> threads;
  for (CompiledGraph& c : clones)
    threads.emplace_back([&c] {
      for (int i = 0; i < 30; ++i) c.run({.wait = i % 3 == 0});
      c.wait();
    });
  for (std::thread& t : threads) t.join();
  for (CompiledGraph& c : clones) EXPECT_TRUE(c.param("w").same_bits(ramp({3, 2}, 30)));
  EXPECT_TRUE(f.param("w").same_bits(ramp({3, 2})));
}

}  // namespace
}  // namespace rlx::testing
