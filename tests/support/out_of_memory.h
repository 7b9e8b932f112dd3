// Every allocation fails once: parse, compile and run a program with the n-th allocation of the thread
// failing, for n = first, first + stride, ...; each attempt ends in Error(resource) or works, and the
// next one without a failure gives the same bits as ever. Needs allocations.h in the same program.
//
//   OutOfMemoryWalk(c).walk(/*first=*/1, /*stride=*/97);   // how many failed
#pragma once

#include <gtest/gtest.h>

#include "allocations.h"
#include "rlx/ops/core.h"
#include "rlx/ops/ops.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {

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

class OutOfMemoryWalk {
 public:
  explicit OutOfMemoryWalk(const OutOfMemoryCase& c) : c_(c) {
    Tensor x(DType::F32, {8, 16});
    w_ = Tensor(DType::F32, {16, 16});
    for (int64_t i = 0; i < x.elements(); ++i) x.set_float(i, 0.01 * static_cast<double>(i % 37));
    for (int64_t i = 0; i < w_.elements(); ++i) w_.set_float(i, 0.02 * static_cast<double>(i % 23));
    inputs_.emplace("x", x);
    expected_ = attempt();
    EXPECT_TRUE(same(attempt(), expected_));  // what is made once is made
  }

  // False: there is no n-th allocation.
  bool fail_at(long n) {
    bool reached = false;
    try {
      const FailingAllocation failure(n);
      const Tensors y = attempt();
      reached = FailingAllocation::reached();
      if (!same(y, expected_)) ADD_FAILURE() << c_.name << ": wrong values, allocation " << n;
    } catch (const Error& e) {
      reached = true;
      if (e.kind() != ErrorKind::resource)
        ADD_FAILURE() << c_.name << ", allocation " << n << ": " << e.what();
    } catch (const std::exception& e) {
      reached = true;
      ADD_FAILURE() << c_.name << ", allocation " << n << ": not an rlx::Error: " << e.what();
    }
    if (reached && !same(attempt(), expected_))
      ADD_FAILURE() << c_.name << ": wrong values after allocation " << n << " failed";
    return reached;
  }

  // All that are at first + k * stride; returns how many failed.
  long walk(long first, long stride) {
    long points = 0;
    for (long n = first; fail_at(n) && !::testing::Test::HasFailure(); n += stride) ++points;
    return points;
  }

 private:
  static bool same(const Tensors& a, const Tensors& b) {
    bool equal = a.size() == b.size();
    for (size_t i = 0; equal && i < a.size(); ++i) equal = a[i].same_bits(b[i]);
    return equal;
  }

  Tensors attempt() const {
    CompiledGraph f = Session(Device::cpu).compile(parse(c_.text), {.threads = 1});
    if (c_.has_param) f.set_param("w", w_);
    Tensors y = f.run(inputs_);
    const NamedTensors params = f.params();
    const long left = std::exchange(until_failure, 0);  // what follows is the test's
    for (const auto& [name, value] : params) y.push_back(value);
    until_failure = left;
    return y;
  }

  OutOfMemoryCase c_;
  Tensor w_;
  NamedTensors inputs_;
  Tensors expected_;
};

}  // namespace rlx::testing
