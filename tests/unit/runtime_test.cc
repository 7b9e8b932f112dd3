// The runtime on every device: values, parameters and updates, the hot path, clones, and the
// errors.
#include "rlx/runtime/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "../support/allocations.h"
#include "rlx/base/large_blocks.h"
#include "rlx/ir/builder.h"
#include "rlx/lower/lir.h"
#include "rlx/ops/core.h"
#include "rlx/ops/custom.h"
#include "rlx/ops/elementwise/complex.h"

namespace rlx {
namespace {

constexpr DType f32 = DType::F32;

// y = x @ w; then w <- w + 1.
Graph linear_with_update() {
  Builder b("linear");
  Value x = b.input("x", {f32, {2, 3}});
  Value w = b.param("w", {f32, {3, 2}});
  b.output(op::matmul(b, x, w));
  b.update("w", op::add(b, w, b.constant(f32, 1)));
  return b.finish();
}

Tensor x_value() { return Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6}); }
Tensor w_value() { return Tensor::from<float>({3, 2}, {1, 0, 0, 1, 1, 1}); }

std::vector<float> floats(const Tensor& t) {
  return {t.data<float>(), t.data<float>() + t.elements()};
}

template <class F>
std::string code_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_FALSE(e.message().empty());
    return e.code();
  }
  return "no error";
}

class OnDevice : public ::testing::TestWithParam<Device> {
 protected:
  Session session{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Runtime, OnDevice, ::testing::ValuesIn(available_devices()),
                         [](const auto& info) { return name(info.param); });

TEST_P(OnDevice, RunsByNameAndAppliesUpdates) {
  CompiledGraph f = session.compile(linear_with_update());
  f.set_param("w", w_value());
  EXPECT_EQ(floats(f.run({{"x", x_value()}})[0]), (std::vector<float>{4, 5, 10, 11}));
  EXPECT_EQ(floats(f.param("w")), (std::vector<float>{2, 1, 1, 2, 2, 2}));
  // x keeps its value.
  EXPECT_EQ(floats(f.run(NamedTensors{})[0]), (std::vector<float>{10, 11, 25, 26}));
}

TEST_P(OnDevice, RunsTypedBytes) {
  CompiledGraph f = session.compile(linear_with_update());
  f.set_param("w", w_value());
  const Tensor x = x_value();
  const CompiledGraph::TypedInput in[] = {{"x", f32, {x.raw(), x.bytes()}}};
  EXPECT_EQ(floats(f.run_typed(in)[0]), (std::vector<float>{4, 5, 10, 11}));
  const CompiledGraph::TypedInput short_one[] = {{"x", f32, {x.raw(), x.bytes() - 4}}};
  EXPECT_EQ(code_of([&] { f.run_typed(short_one); }), "input-type");
  const CompiledGraph::TypedInput other[] = {{"x", DType::I32, {x.raw(), x.bytes()}}};
  EXPECT_EQ(code_of([&] { f.run_typed(other); }), "input-type");
}

TEST_P(OnDevice, BoundMemory) {
  CompiledGraph f = session.compile(linear_with_update());
  f.set_param("w", w_value());
  Tensor x = x_value(), y(f32, {2, 2}), z(f32, {2, 2});
  f.bind_input(f.input_index("x"), x.raw());
  f.bind_output(0, y.mutable_raw());
  f.run();
  EXPECT_EQ(f.output(0), y.raw());
  EXPECT_EQ(floats(y), (std::vector<float>{4, 5, 10, 11}));
  void* outputs[] = {z.mutable_raw()};
  f.run_into(outputs);
  EXPECT_EQ(floats(z), (std::vector<float>{10, 11, 25, 26}));
  EXPECT_EQ(floats(y), (std::vector<float>{4, 5, 10, 11}));  // left alone
  EXPECT_EQ(floats(f.output_tensor(0)), floats(y));
  f.bind_output(0, nullptr);  // memory of its own again
  f.run();
  EXPECT_NE(f.output(0), y.raw());
  EXPECT_NE(floats(f.output_tensor(0)), floats(y));
  EXPECT_EQ(floats(y), (std::vector<float>{4, 5, 10, 11}));
}

TEST_P(OnDevice, WrongNamesAndTypes) {
  CompiledGraph f = session.compile(linear_with_update());
  EXPECT_EQ(code_of([&] { f.set_param("v", w_value()); }), "param-unknown");
  EXPECT_EQ(code_of([&] { f.set_param("x", x_value()); }), "param-unknown");
  EXPECT_EQ(code_of([&] { f.set_input("w", w_value()); }), "input-unknown");
  EXPECT_EQ(code_of([&] { f.set_param("w", x_value()); }), "param-type");
  EXPECT_EQ(code_of([&] { f.set_input("x", Tensor(DType::F64, {2, 3})); }), "input-type");
  EXPECT_EQ(code_of([&] { f.bind_input(1, nullptr); }), "input-unknown");
  EXPECT_EQ(code_of([&] { f.bind_output(1, nullptr); }), "output-index");
  EXPECT_EQ(code_of([&] { f.output_tensor(1); }), "output-index");
  EXPECT_EQ(code_of([&] { f.param("w"); }), "param-missing");
}

TEST_P(OnDevice, MissingLeavesAreErrors) {
  CompiledGraph f = session.compile(linear_with_update());
  EXPECT_EQ(code_of([&] { f.run(); }), "input-missing");
  f.set_input("x", x_value());
  EXPECT_EQ(code_of([&] { f.run(); }), "param-missing");
  f.set_param("w", w_value());
  f.run();
  f.bind_input(0, nullptr);
  EXPECT_EQ(code_of([&] { f.run(); }), "input-missing");
  f.set_input("x", x_value());
  EXPECT_EQ(code_of([&] { f.run_into({}); }), "output-index");
  EXPECT_EQ(code_of([&] { f.run_into(std::vector<void*>(1)); }), "output-index");
}

TEST_P(OnDevice, SetParamsIsAllOrNothing) {
  Builder b;
  for (const char* name : {"a", "b"}) b.output(op::neg(b, b.param(name, {f32, {1}})));
  CompiledGraph f = session.compile(b.finish());
  const Tensor one = Tensor::from<float>({1}, {1}), wrong = Tensor::from<float>({2}, {1, 1});
  f.set_params({{"a", one}, {"b", one}});
  const Tensor two = Tensor::from<float>({1}, {2});
  EXPECT_EQ(code_of([&] { f.set_params({{"a", two}, {"b", wrong}}); }), "param-type");
  EXPECT_EQ(code_of([&] { f.set_params({{"a", two}, {"c", two}}); }), "param-unknown");
  EXPECT_EQ(floats(f.param("a")), (std::vector<float>{1}));
  EXPECT_EQ(f.params().size(), 2u);
}

TEST_P(OnDevice, SymbolicDims) {
  Builder b;
  b.output(op::neg(b, b.input("x", {f32, {Dim::symbol("n"), 2}})));
  const Graph g = b.finish();
  EXPECT_EQ(code_of([&] { session.compile(g, {.dims = {{"n", 1}, {"m", 1}}}); }), "dim-unknown");
  EXPECT_EQ(code_of([&] { session.compile(g, {.dims = {{"n", -1}}}); }), "negative-dim");
  CompiledGraph f = session.compile(g, {.dims = {{"n", 2}}});
  EXPECT_EQ(floats(f.run({{"x", Tensor::from<float>({2, 2}, {1, 2, 3, 4})}})[0]),
            (std::vector<float>{-1, -2, -3, -4}));
}

TEST_P(OnDevice, EmptyTensors) {
  Builder b;
  b.output(op::neg(b, b.input("x", {f32, {0, 2}})));
  CompiledGraph f = session.compile(b.finish());
  EXPECT_EQ(f.run({{"x", Tensor(f32, {0, 2})}})[0].elements(), 0);
}

TEST_P(OnDevice, OptionsAreChecked) {
  EXPECT_EQ(code_of([&] { session.compile(linear_with_update(), {.threads = -1}); }), "threads");
}

TEST_P(OnDevice, CancelStopsARunAndTheNextOneWorks) {
  CompiledGraph f = session.compile(linear_with_update());
  f.set_param("w", w_value());
  f.set_input("x", x_value());
  std::atomic<bool> cancel{true};
  EXPECT_EQ(code_of([&] { f.run({.cancel = &cancel}); }), "cancelled");
  cancel = false;
  f.run({.cancel = &cancel});
  EXPECT_EQ(floats(f.output_tensor(0)), (std::vector<float>{4, 5, 10, 11}));
}

TEST_P(OnDevice, CheckNanNamesTheNode) {
  Builder b;
  Value x = b.input("x", {f32, {1}});
  b.output(op::log(b, x));
  CompiledGraph f = session.compile(b.finish());
  f.set_input("x", Tensor::from<float>({1}, {-1}));
  f.run();
  EXPECT_EQ(code_of([&] { f.run({.check_nan = true}); }), "nan");
}

TEST_P(OnDevice, CheckNanLooksAtBothPartsOfComplexNumbers) {
  Builder b;
  const Value re = b.input("re", {f32, {2}}), im = b.input("im", {f32, {2}});
  b.output(op::complex(b, re, im));
  CompiledGraph f = session.compile(b.finish());
  const Tensor fine = Tensor::from<float>({2}, {1, 2}),
               not_one = Tensor::from<float>({2}, {1, NAN});
  const auto code = [&](const Tensor& r, const Tensor& i) {
    f.set_input("re", r);
    f.set_input("im", i);
    return code_of([&] { f.run({.check_nan = true}); });
  };
  EXPECT_EQ(code(fine, fine), "no error");
  EXPECT_EQ(code(not_one, fine), "nan");
  EXPECT_EQ(code(fine, not_one), "nan");
}

TEST_P(OnDevice, OutOfRangeIndexIsAnError) {
  Builder b;
  Value x = b.input("x", {f32, {3, 2}}), i = b.input("i", {DType::I32, {1}});
  b.output(op::gather(b, x, i, {.axis = 0}));
  CompiledGraph f = session.compile(b.finish());
  const Tensor table(f32, {3, 2});
  EXPECT_EQ(code_of([&] { f.run({{"x", table}, {"i", Tensor::from<int32_t>({1}, {3})}}); }),
            "index-range");
  EXPECT_EQ(f.run({{"i", Tensor::from<int32_t>({1}, {2})}})[0].elements(), 2);
}

TEST_P(OnDevice, ClonesOwnWhatUpdatesWrite) {
  CompiledGraph f = session.compile(linear_with_update());
  f.set_param("w", w_value());
  f.set_input("x", x_value());
  CompiledGraph g = f.clone();
  f.run();
  f.run();
  EXPECT_EQ(floats(g.param("w")), floats(w_value()));
  g.set_input("x", Tensor(f32, {2, 3}));
  g.run();
  EXPECT_EQ(floats(g.output_tensor(0)), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(floats(f.output_tensor(0)), (std::vector<float>{10, 11, 25, 26}));
  EXPECT_EQ(floats(f.param("w")), (std::vector<float>{3, 2, 2, 3, 3, 3}));
}

// What was set stays the clone's: the source takes other inputs without it.
TEST_P(OnDevice, ClonesOwnTheirInputs) {
  CompiledGraph f = session.compile(linear_with_update());
  f.set_param("w", w_value());
  f.set_input("x", x_value());
  CompiledGraph g = f.clone();
  f.set_input("x", Tensor(f32, {2, 3}));
  g.run();
  EXPECT_EQ(floats(g.output_tensor(0)), (std::vector<float>{4, 5, 10, 11}));
  f.run();
  EXPECT_EQ(floats(f.output_tensor(0)), (std::vector<float>{0, 0, 0, 0}));
}

// ---- one call at a time

std::function<void()> inside;  // what the op test.inside does while it runs

// x, after `inside` has run.
Graph graph_with_inside() {
  if (!find_custom_op("test.inside"))
    register_custom_op(
        {.name = "test.inside",
         .infer = [](std::span<const Type> in, std::string_view) { return Types{in[0]}; },
         .compute =
             [](std::span<const Tensor> in, std::string_view) {
               inside();
               return Tensors{in[0]};
             }});
  Builder b("inside");
  b.output(custom_op(b, "test.inside", "", Values{b.input("x", {f32, {2}})})[0]);
  b.output(op::neg(b, b.param("w", {f32, {2}})));
  return b.finish();
}

// Every call of the same object that reads or changes what a run does.
std::vector<std::function<void()>> calls_of(CompiledGraph& f) {
  static const Tensor t(f32, {2});
  static Tensor y(f32, {2}), z(f32, {2});
  static void* const pointers[] = {y.mutable_raw(), z.mutable_raw()};
  return {[&] { f.run(); },
          [&] { f.run({{"x", t}}); },
          [&] { f.run_into(pointers); },
          [&] { f.run_typed({}); },
          [&] { f.clone(); },
          [&] { f.prepare(); },
          [&] { f.set_param("w", t); },
          [&] { f.set_params({{"w", t}}); },
          [&] { f.param("w"); },
          [&] { f.params(); },
          [&] { f.set_input("x", t); },
          [&] { f.bind_input(0, t.raw()); },
          [&] { f.bind_output(0, nullptr); },
          [&] { f.output(0); },
          [&] { f.output_tensor(0); },
          [&] { f.times(); },
          [&] { f.resident_bytes(); }};
}

TEST_P(OnDevice, UseByTwoThreadsAtOnceIsAnError) {
  CompiledGraph f = session.compile(graph_with_inside());
  const Tensor x = Tensor::from<float>({2}, {1, 2});
  f.set_param("w", x);
  std::vector<std::string> codes;
  inside = [&] {
    for (const auto& call : calls_of(f)) {
      std::thread other([&] { codes.push_back(code_of(call)); });
      other.join();
      codes.push_back(code_of(call));  // from a kernel of its own
    }
    EXPECT_EQ(f.input_index("x"), 0u);  // what no run changes may be read
    EXPECT_EQ(f.signature().name, "inside");
  };
  EXPECT_EQ(floats(f.run({{"x", x}})[0]), floats(x));
  EXPECT_EQ(codes, std::vector<std::string>(2 * calls_of(f).size(), "running"));
  inside = [] {};
  EXPECT_EQ(floats(f.run({{"x", x}})[0]), floats(x));  // and it can be used again
  inside = [] { fail(ErrorKind::user, "test", "a kernel raises"); };
  EXPECT_EQ(code_of([&] { f.run(); }), "test");
  inside = [] {};
  for (const auto& call : calls_of(f)) EXPECT_NE(code_of(call), "running");
}

TEST_P(OnDevice, AMovedFromGraphIsAnError) {
  CompiledGraph f = session.compile(graph_with_inside());
  const Tensor x = Tensor::from<float>({2}, {1, 2});
  inside = [] {};
  f.set_params({{"w", x}});
  CompiledGraph g = std::move(f);
  for (const auto& call : calls_of(f)) EXPECT_EQ(code_of(call), "moved-from");  // NOLINT
  EXPECT_EQ(code_of([&] { f.info(); }), "moved-from");
  EXPECT_EQ(code_of([&] { f.signature(); }), "moved-from");
  EXPECT_EQ(code_of([&] { f.input_index("x"); }), "moved-from");
  EXPECT_EQ(floats(g.run({{"x", x}})[0]), floats(x));
  f = std::move(g);
  EXPECT_EQ(floats(f.run({{"x", x}})[0]), floats(x));
  EXPECT_EQ(code_of([&] { g.run(); }), "moved-from");  // NOLINT
}

TEST_P(OnDevice, RunWithEmptyBracesKeepsAllInputs) {
  CompiledGraph f = session.compile(linear_with_update());
  f.set_param("w", w_value());
  f.set_input("x", x_value());
  const std::vector<Tensor> y = f.run({});
  EXPECT_EQ(floats(y[0]), (std::vector<float>{4, 5, 10, 11}));
}

// ---- memory

TEST_P(OnDevice, OutputsAreMadeWhenAskedFor) {
  constexpr long kBytes = 4 << 20;
  keep_blocks(0);  // what is counted is what was asked of the system
  const testing::AllocationCounter counter;
  std::vector<CompiledGraph> kept;
  const Tensor x = Tensor::full(f32, {1024, 1024}, 2);
  for (int i = 0; i < 20; ++i) {
    Builder b("product");
    const Value v = b.input("x", {f32, {1024, 1024}});
    b.output(op::mul(b, v, b.constant(f32, i)));
    CompiledGraph f = session.compile(b.finish());
    f.bind_input(0, x.raw());
    Tensor y(f32, {1024, 1024});
    void* const out[] = {y.mutable_raw()};
    if (i == 19 || GetParam() == Device("cpu")) {
      f.run_into(out);
      EXPECT_EQ(y.get_float(7), 2 * i);
    }
    kept.push_back(std::move(f));
  }
  // x, and the code of twenty programs.
  EXPECT_LT(counter.bytes(), 2 * kBytes + 20 * (1 << 20));
  EXPECT_EQ(code_of([&] { kept[0].output(0); }), "output-missing");
  EXPECT_EQ(code_of([&] { kept[0].output_tensor(0); }), "output-missing");
  EXPECT_EQ(code_of([&] { kept[0].output(1); }), "output-index");
  const long before = counter.bytes();
  kept[19].run();
  EXPECT_EQ(kept[19].output_tensor(0).get_float(7), 38);
  EXPECT_GE(counter.bytes(), before + kBytes);
  EXPECT_LT(counter.bytes(), before + 2 * kBytes);
  keep_blocks(256 << 20);
}

TEST_P(OnDevice, AnOutputIsThatOfARunThatSucceeded) {
  CompiledGraph f = session.compile(graph_with_inside());
  const Tensor x = Tensor::from<float>({2}, {1, 2});
  inside = [] {};
  const auto missing = [&] {
    EXPECT_EQ(code_of([&] { f.output(0); }), "output-missing");
    EXPECT_EQ(code_of([&] { f.output_tensor(0); }), "output-missing");
  };
  EXPECT_EQ(code_of([&] { f.run(); }), "input-missing");
  missing();
  f.set_param("w", x);
  f.set_input("x", x);
  inside = [] { fail(ErrorKind::user, "test", "a kernel raises"); };
  EXPECT_EQ(code_of([&] { f.run(); }), "test");
  missing();
  inside = [] {};
  f.run();
  EXPECT_EQ(floats(f.output_tensor(0)), floats(x));
  Tensor y(f32, {2});
  f.bind_output(0, y.mutable_raw());
  EXPECT_EQ(f.output(0), y.raw());
  f.bind_output(0, nullptr);  // the graph's own memory again, in which nothing is yet
  missing();
  EXPECT_EQ(floats(f.output_tensor(1)), (std::vector<float>{-1, -2}));  // where it was
}

// A cache can count on what a graph says of its memory.
TEST(Runtime, ResidentBytesAreTheBytesKept) {
  if (!is_available("cpu")) GTEST_SKIP() << "no cpu backend";
  const auto graph = [] {
    Builder b("sum");
    const Value x = b.input("x", {f32, {512, 512}});
    const Value w = b.constant(Tensor::full(f32, {512, 512}, 0.5));
    b.output(op::matmul(b, op::matmul(b, x, w), w));
    return b.finish();
  };
  {
    Session("cpu").compile(graph());
  }  // what LLVM makes once
  const testing::AllocationCounter counter;
  CompiledGraph f = Session("cpu").compile(graph(), {.threads = 1});  // which keeps the constant
  f.set_input("x", Tensor::full(f32, {512, 512}, 1));
  for (int step = 0; step < 2; ++step) {
    const double kept = static_cast<double>(counter.bytes()),
                 said = static_cast<double>(f.resident_bytes());
    EXPECT_LT(kept, 1.3 * said) << step;
    EXPECT_GT(kept, 0.7 * said) << step;
    f.run();
  }
}

// Also of small programs, of which a cache holds many; with symbols, too, and on the device that walks.
TEST(Runtime, ResidentBytesOfSmallProgramsAreTheBytesKept) {
  const auto chain = [](const Dim& n, int length) {
    Builder b("chain");
    Value x = b.input("x", {f32, {n, 8}});
    for (int i = 0; i < length; ++i)
      x = op::matmul(b, op::softmax(b, op::tanh(b, x)), b.constant(Tensor::full(f32, {8, 8}, i)));
    b.output(x);
    return b.finish();
  };
  for (const auto& device : {"cpu", "reference"})
    for (const bool symbolic : {false, true})
      for (const int length : {1, 8}) {
        if (!is_available(device)) continue;
        const auto make = [&] {
          auto f = std::make_unique<CompiledGraph>(Session(device).compile(
              chain(symbolic ? Dim::symbol("n") : Dim(6), length), {.threads = 1}));
          f->run({{"x", Tensor::full(f32, {6, 8}, 1)}});
          return f;
        };
        make();  // what is made once
        const testing::AllocationCounter counter;
        double said = 0, kept = 0;
        std::vector<std::unique_ptr<CompiledGraph>> programs;
        for (int i = 0; i < 10; ++i) {
          programs.push_back(make());
          said += static_cast<double>(programs.back()->resident_bytes());
          if (const auto& p =
                  programs.back()->info().program)  // pages, which operator new does not make
            kept += static_cast<double>(p->code_bytes);
        }
        kept += static_cast<double>(counter.bytes());
        EXPECT_LT(kept, 1.5 * said) << device << symbolic << length;
        EXPECT_GT(kept, 0.6 * said) << device << symbolic << length;
        EXPECT_LT(kept / 10, 150'000) << device << symbolic << length;
      }
}

TEST_P(OnDevice, ClonesRunOnThreadsOfTheirOwn) {
  CompiledGraph f = session.compile(linear_with_update(), {.threads = 1});
  f.set_param("w", w_value());
  f.set_input("x", x_value());
  CompiledGraph g = f.clone();
  auto run = [](CompiledGraph& c) {
    for (int i = 0; i < 50; ++i) c.run();
  };
  std::thread other([&] { run(g); });
  run(f);
  other.join();
  EXPECT_EQ(floats(f.output_tensor(0)), floats(g.output_tensor(0)));
}

TEST(Runtime, HotPathAllocatesNothing) {
  if (!is_available("cpu")) GTEST_SKIP() << "no cpu backend";
  Builder b;
  Value x = b.input("x", {f32, {64, 32}}), w = b.param("w", {f32, {32, 32}});
  Value h = op::softmax(b, op::matmul(b, x, w), {.axis = -1});
  b.output(op::reduce_sum(b, op::tanh(b, h), {.axes = {1}}));
  CompiledGraph f = Session("cpu").compile(b.finish());
  f.set_param("w", Tensor::full(f32, {32, 32}, 0.5));
  f.set_input("x", Tensor::full(f32, {64, 32}, 0.25));
  f.run();  // threads start
  const testing::AllocationCounter counter;
  for (int i = 0; i < 3; ++i) f.run();
  EXPECT_EQ(counter.ours(), 0);
}

TEST(Runtime, Devices) {
  EXPECT_EQ(Device("cuda:1").kind, "cuda");
  EXPECT_EQ(Device("cuda:1").ordinal, 1);
  EXPECT_EQ(name(Device("cuda:1")), "cuda:1");
  EXPECT_EQ(Device("cuda:0"), Device("cuda"));
  EXPECT_EQ(name(Device("cuda:0")), "cuda");
  for (const char* bad :
       {"", ":", "cuda:", ":1", "cuda:-1", "cuda:x", "cuda:1:2", "cuda:99999999999", "c pu", "CPU"})
    EXPECT_EQ(code_of([&] { Device d(bad); }), "device-name") << bad;
  EXPECT_EQ(default_device(), available_devices()[0]);
  const auto kept = backend_for("reference");
  unregister_backend("reference");
  EXPECT_FALSE(is_available("reference"));
  try {
    Session s("reference");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), "device");
    EXPECT_EQ(e.message(),
              "the device reference is not available here; there is " + name(default_device()));
  }
  EXPECT_EQ(code_of([] { Session s("cpu:1"); }), "device");
  register_backend(kept);
  EXPECT_TRUE(is_available("reference"));
  EXPECT_EQ(code_of([] { register_backend(nullptr); }), "device");
}

}  // namespace
}  // namespace rlx
