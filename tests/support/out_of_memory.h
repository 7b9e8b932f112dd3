// Every allocation fails once: some work with the n-th allocation of the thread failing, for n = first, first + stride,
// ...; each attempt ends in Error(resource) or works, and the next one without a failure gives the same as ever. Needs
// allocations.h in the same program.
//
//   walk_allocations("print", [&] { return print(g); }, /*first=*/1, /*stride=*/1);   // how many failed
#pragma once

#include <gtest/gtest.h>

#include "allocations.h"
#include "rlx/ops/core.h"
#include "rlx/ops/ops.h"
#include "rlx/runtime/runtime.h"

#ifdef __SANITIZE_ADDRESS__
// What LLVM was at when memory ran out is left alone, not destroyed: that is no leak of ours.
extern "C" inline __attribute__((used)) const char* __lsan_default_suppressions() {
  return "leak:libLLVM\nleak:rlx::cpu::CpuJit\n";
}
#endif

namespace rlx::testing {

// While it lives no allocation fails: what the test itself does.
class Unfailing {
 public:
  Unfailing() : left_(std::exchange(until_failure, 0)) {}
  ~Unfailing() { until_failure = left_; }
  Unfailing(const Unfailing&) = delete;

 private:
  long left_;
};

// False: there is no n-th allocation. `attempt` gives something that can be compared with what it gave before.
template <class Attempt, class Result>
bool fails_well(const std::string& name, Attempt&& attempt, const Result& expected, long n) {
  bool reached = false;
  try {
    const FailingAllocation failure(n);
    const Result got = attempt();
    reached = FailingAllocation::reached();
    if (!(got == expected)) ADD_FAILURE() << name << ": wrong values, allocation " << n;
  } catch (const Error& e) {
    reached = true;
    if (e.kind() != ErrorKind::resource)
      ADD_FAILURE() << name << ", allocation " << n << ": " << e.what();
  } catch (const std::exception& e) {
    reached = true;
    ADD_FAILURE() << name << ", allocation " << n << ": not an rlx::Error: " << e.what();
  }
  if (reached && !(attempt() == expected))
    ADD_FAILURE() << name << ": wrong values after allocation " << n << " failed";
  return reached;
}

// All that are at first + k * stride; returns how many failed.
template <class Attempt>
long walk_allocations(const std::string& name, Attempt&& attempt, long first, long stride) {
  const auto expected = attempt();
  EXPECT_TRUE(attempt() == expected) << name;  // what is made once is made
  long points = 0;
  for (long n = first; fails_well(name, attempt, expected, n) && !::testing::Test::HasFailure();
       n += stride)
    ++points;
  return points;
}

struct OutOfMemoryCase {
  std::string name, text;
  bool has_param;
};

// Regions of all three shapes, products with packed weights and epilogues, control flow, native kernels,
// an update.
inline std::vector<OutOfMemoryCase> out_of_memory_cases() {
  const Type x_type{DType::F32, {8, 16}}, w_type{DType::F32, {16, 16}};
  std::vector<OutOfMemoryCase> out;
  auto add = [&](const char* name, bool has_param,
                 FunctionRef<void(Builder&, Value x, Value w)> f) {
    Builder b(name);
    const Value x = b.input("x", x_type), w = has_param ? b.param("w", w_type) : kNone;
    f(b, x, w);
    out.push_back({name, print(b.finish()), has_param});
  };
  add("layer", true, [](Builder& b, Value x, Value w) {
    const Value y = op::softmax(b, op::tanh(b, op::matmul(b, x, w)), {.axis = 1});
    b.output(y);
    b.output(op::reduce_sum(b, y, {.axes = {0}}));
  });
  add("update", true, [](Builder& b, Value x, Value w) {
    const Value y = op::matmul(b, x, w);
    b.output(y);
    b.update("w", op::sub(b, w, op::matmul(b, x, y, {.transpose_a = true})));
  });
  add("scan", false, [&](Builder& b, Value x, Value) {
    Builder body("body");
    const Value c = body.input("c", x_type);
    body.output(op::cumsum(body, op::sort(body, op::sin(body, c), {.axis = 1}), {.axis = 0}));
    b.output(op::scan(b, x, {.body = Body(body.finish()), .length = 3, .num_carries = 1}));
  });
  return out;
}

// Parses, compiles and runs the case.
inline long walk_compiling(const OutOfMemoryCase& c, long first, long stride) {
  Tensor x(DType::F32, {8, 16}), w(DType::F32, {16, 16});
  for (int64_t i = 0; i < x.elements(); ++i) x.set_float(i, 0.01 * static_cast<double>(i % 37));
  for (int64_t i = 0; i < w.elements(); ++i) w.set_float(i, 0.02 * static_cast<double>(i % 23));
  const NamedTensors inputs{{"x", x}};
  auto attempt = [&] {
    CompiledGraph f = Session("cpu").compile(parse(c.text), {.threads = 1});
    if (c.has_param) f.set_param("w", w);
    const Tensors y = f.run(inputs);
    const NamedTensors params = f.params();
    const Unfailing tests_own;
    std::string bytes;
    auto add = [&](const Tensor& t) {
      bytes.append(reinterpret_cast<const char*>(t.raw()), t.bytes());
    };
    for (const Tensor& t : y) add(t);
    for (const auto& [name, t] : params) add(t);
    return bytes;
  };
  return walk_allocations(c.name, attempt, first, stride);
}

}  // namespace rlx::testing
