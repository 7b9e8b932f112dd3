// Registering ops, kernels and functions while other threads read the table, parse and compile. Under
// ThreadSanitizer this is the test that the registries are safe.
#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "rlx/ops/core.h"
#include "rlx/ops/ops.h"
#include "rlx/ops/rules.h"
#include "rlx/runtime/extend.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

constexpr int kOps = 1200;  // more than the table has room for at first

Values decompose_twice(Builder& b, const Node&, Operands in) { return {op::add(b, in[0], in[0])}; }

TEST(RegistryThreads, RegisteringWhileOthersCompile) {
  static std::deque<std::string> names;  // as long as the table
  static std::deque<Op<>> ops;
  for (int i = 0; i < kOps; ++i) {
    names.push_back(fmt::format("test_op_{}", i));
    ops.emplace_back(OpDef{
        .name = names.back(), .doc = "2 x.", .infer = infer_same, .decompose = decompose_twice});
  }
  std::atomic<int> done{0}, wrong{0};
  std::thread ops_thread([&] {
    for (const Op<>& op : ops) register_op(op.def), ++done;
  });
  std::thread kernels_thread([&] {
    for (int i = 0; i < 200; ++i) {
      register_cpu_kernel(op::softsign.def, [](const Node&, std::span<const HostView> in,
                                               std::span<const HostView> out) {
        *static_cast<float*>(out[0].data) = *static_cast<const float*>(in[0].data) + 1;
      });
      register_custom_op({.name = fmt::format("test.f{}", i),
                          .infer = [](auto in, auto) { return Types{in[0]}; },
                          .compute = [](auto in, auto) { return Tensors{in[0]}; }});
    }
  });
  const Tensor x = Tensor::from<float>({1}, {3});
  auto compile = [&] {
    for (int i = 0; i < 8; ++i) {
      const int known = done;
      size_t entries = 0;
      for (const OpTable::Entry& e : op_table().entries()) entries += !e.op->name.empty();
      wrong += entries < static_cast<size_t>(known);
      const std::string op = known ? names[static_cast<size_t>(known) - 1] : "neg";
      const Graph g = parse(fmt::format(R"(graph @"g" {{
  %0 = input() {{name="x", shape=[1]}} : [1] f32
  %1 = {}(%0) : [1] f32
  %2 = softsign(%0) : [1] f32
  return %1, %2
}})",
                                        op));
      const Tensors y = Session("cpu").compile(g, {.threads = 1}).run({{"x", x}});
      wrong += y[0].get_float(0) != (known ? 6 : -3);
      wrong += y[1].get_float(0) != 0.75 && y[1].get_float(0) != 4;  // built in, or the user's
    }
  };
  std::thread first(compile), second(compile);
  for (std::thread* t : {&ops_thread, &kernels_thread, &first, &second}) t->join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(op_table().find(names.back()), &ops.back().def);
}

}  // namespace
}  // namespace rlx
