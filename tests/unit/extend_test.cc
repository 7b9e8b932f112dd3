// Ops of the user: entries of the table with a kernel, and functions by name.
#include "rlx/runtime/extend.h"

#include <gtest/gtest.h>

#include "rlx/ops/core.h"
#include "rlx/ops/custom.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/ops/rules.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

constinit const Op<> cubed = OpDef{
    .name = "test_cubed",
    .doc = "x^3.",
    .infer = infer_same,
    .decompose = [](Builder& b, const Node&, Operands in) -> Values {
      return {op::mul(b, in[0], op::mul(b, in[0], in[0]))};
    },
};

void register_once() {
  if (!op_table().find("test_cubed")) register_op(cubed.def);
}

Graph cubed_graph() {
  register_once();
  Builder b("g");
  b.output(cubed(b, b.input("x", {DType::F32, {3}})));
  return b.finish();
}

const Tensor kX = Tensor::from<float>({3}, {1, 2, 3});

TEST(Extend, AnEntryHasTextBytesDerivativesAndCode) {
  const Graph g = cubed_graph();
  EXPECT_EQ(parse(print(g)), g);
  EXPECT_EQ(from_bytes(to_bytes(g)), g);
  EXPECT_EQ(Session("cpu").compile(g).run({{"x", kX}})[0].get_float(2), 27);
  const Tensors d = evaluate(jvp(g, {"x"}), Tensors{kX, Tensor::full(DType::F32, {3}, 1)});
  EXPECT_EQ(d[1].get_float(1), 12);
  EXPECT_EQ(
      evaluate(vmap(g, {{"x", 0}}, 2), Tensors{Tensor::full(DType::F32, {2, 3}, 2)})[0].get_float(
          5),
      8);
  EXPECT_THROW(register_op(cubed.def), Error);
}

TEST(Extend, AKernelOfTheUserComesFirst) {
  const Graph g = cubed_graph();
  static int calls = 0;
  register_cpu_kernel(
      cubed.def, [](const Node& n, std::span<const HostView> in, std::span<const HostView> out) {
        ++calls;
        EXPECT_EQ(n.op->name, "test_cubed");
        EXPECT_EQ(in[0].dims, Ints{3});
        for (int64_t i = 0; i < 3; ++i)
          static_cast<float*>(out[0].data)[i] = 100 + static_cast<const float*>(in[0].data)[i];
      });
  EXPECT_EQ(Session("cpu").compile(g).run({{"x", kX}})[0].get_float(0), 101);
  EXPECT_EQ(calls, 1);
}

// Nobody clears results before a run: what a kernel leaves unwritten is what lay there.
TEST(Extend, ResultsAreNotCleared) {
  static constinit const Op<> first_only = OpDef{
      .name = "test_first_only",
      .infer = infer_same,
      .eval = [](const EvalArgs& e) -> Tensors { return {e.in[0]}; },
  };
  if (!op_table().find("test_first_only")) register_op(first_only.def);
  static int64_t writes = 3;
  register_cpu_kernel(
      first_only.def, [](const Node&, std::span<const HostView> in, std::span<const HostView> out) {
        for (int64_t i = 0; i < writes; ++i)
          static_cast<float*>(out[0].data)[i] = 10 * static_cast<const float*>(in[0].data)[i];
      });
  Builder b("g");
  b.output(first_only(b, b.input("x", {DType::F32, {3}})));
  CompiledGraph f = Session("cpu").compile(b.finish());
  f.set_input("x", kX);
  f.run();
  EXPECT_EQ(f.output_tensor(0).get_float(2), 30);
  writes = 1;
  f.set_input("x", Tensor::from<float>({3}, {7, 8, 9}));
  f.run();
  EXPECT_EQ(f.output_tensor(0).get_float(0), 70);
  EXPECT_EQ(f.output_tensor(0).get_float(2), 30) << "of the run before";
  float mine[3] = {-1, -2, -3};
  void* const outputs[] = {mine};
  f.run_into(outputs);
  EXPECT_EQ(mine[0], 70);
  EXPECT_EQ(mine[2], -3);
}

// CompileOptions::poison: memory that a step is the first to write holds NaN before it, whatever lay there. The carries of a
// scan take turns in two places, which hold older carries: the fifth would lie over the third.
TEST(Extend, PoisonShowsWhatAKernelLeaves) {
  static constinit const Op<> lazy = OpDef{
      .name = "test_lazy",
      .infer = infer_same,
      .eval = [](const EvalArgs& e) -> Tensors { return {e.in[0]}; },
  };
  if (!op_table().find("test_lazy")) register_op(lazy.def);
  static int calls = 0;
  register_cpu_kernel(
      lazy.def, [](const Node&, std::span<const HostView> in, std::span<const HostView> out) {
        const int64_t writes = ++calls == 4 || calls == 5 ? 1 : 3;
        for (int64_t i = 0; i < writes; ++i)
          static_cast<float*>(out[0].data)[i] = 1 + static_cast<const float*>(in[0].data)[i];
      });
  Builder body("body");
  body.output(lazy(body, body.input("x", {DType::F32, {3}})));
  Builder b("g");
  b.output(op::scan(b, b.input("x", {DType::F32, {3}}),
                    {.body = Body(body.finish()), .length = 6, .num_carries = 1}));
  const Graph g = b.finish();
  const Tensor y = Session("cpu").compile(g, {.poison = true}).run({{"x", kX}})[0];
  EXPECT_EQ(calls, 6);
  EXPECT_EQ(y.get_float(0), 7);
  EXPECT_TRUE(std::isnan(y.get_float(2))) << y.get_float(2);
}

std::string code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return "";
}

TEST(Extend, AnEntryMustStateWhatItIs) {
  static constinit const Op<> empty = OpDef{.name = "test_empty"};
  static constinit const Op<> valueless = OpDef{.name = "test_valueless", .infer = infer_same};
  static constinit const Op<> typeless = OpDef{
      .name = "test_typeless", .eval = [](const EvalArgs& e) -> Tensors { return {e.in[0]}; }};
  static constinit const Op<> nameless = OpDef{.name = "", .infer = infer_same};
  EXPECT_EQ(code_of([] { register_op(empty.def); }), "op-rule");
  EXPECT_EQ(code_of([] { register_op(valueless.def); }), "op-rule");
  EXPECT_EQ(code_of([] { register_op(typeless.def); }), "op-rule");
  EXPECT_EQ(code_of([] { register_op(nameless.def); }), "op-name");
  EXPECT_EQ(op_table().find("test_empty"), nullptr);
}

HostKernel adds(float amount) {
  return [amount](const Node& n, std::span<const HostView> in, std::span<const HostView> out) {
    for (int64_t i = 0; i < n.type().shape.elements().value(); ++i)
      static_cast<float*>(out[0].data)[i] = static_cast<const float*>(in[0].data)[i] + amount;
  };
}

// An elementwise op between others that fuse, in a body too; an op with a kernel of ours; a reduction.
TEST(Extend, AKernelForABuiltInOpIsUsed) {
  auto softsign_of = [](Builder& b, Value x) {
    return op::neg(b, op::softsign(b, op::mul(b, x, b.constant(DType::F32, 2))));
  };
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {3}});
  Builder body("body");
  body.output(softsign_of(body, body.input("x", {DType::F32, {3}})));
  b.output(softsign_of(b, x));
  b.output(op::scan(b, x, {.body = Body(body.finish()), .length = 2, .num_carries = 1}));
  b.output(op::sort(b, x, {.axis = 0}));
  b.output(op::reduce_prod(b, x, {.axes = {0}}));
  const Graph g = b.finish();
  CompiledGraph before = Session("cpu").compile(g);
  register_cpu_kernel(op::softsign.def, adds(10));
  register_cpu_kernel(op::sort.def, adds(20));
  register_cpu_kernel(op::reduce_prod.def, adds(30));
  CompiledGraph first = Session("cpu").compile(g);
  register_cpu_kernel(op::softsign.def, adds(100));
  CompiledGraph second = Session("cpu").compile(g);
  const NamedTensors in{{"x", kX}};
  EXPECT_EQ(before.run(in)[2].get_float(0), 1);  // keeps what it has
  const Tensors y = first.run(in), z = second.run(in);
  EXPECT_EQ(y[0].get_float(1), -14);  // -(2 * 2 + 10)
  EXPECT_EQ(y[1].get_float(1), 18);   // -(2 * -14 + 10)
  EXPECT_EQ(y[2].get_float(1), 22);
  EXPECT_EQ(y[3].get_float(0), 31);
  EXPECT_EQ(z[0].get_float(1), -104);
  // No kernel is called where there is nothing to compute.
  register_cpu_kernel(op::softsign.def,
                      [](const Node&, std::span<const HostView>, std::span<const HostView>) {
                        ADD_FAILURE() << "called";
                      });
  Builder e("empty");
  e.output(op::softsign(e, e.input("x", {DType::F32, {0}})));
  EXPECT_EQ(Session("cpu").compile(e.finish()).run({{"x", Tensor()}})[0].elements(), 0);
  EXPECT_EQ(code_of([] { register_cpu_kernel(op::transpose.def, adds(1)); }), "kernel");
  EXPECT_EQ(code_of([] { register_cpu_kernel(op::neg.def, nullptr); }), "kernel");
}

TEST(Extend, FunctionsByName) {
  auto same = [](std::span<const Type> in, std::string_view) { return Types{in[0]}; };
  register_custom_op({.name = "test.plus",
                      .infer = same,
                      .compute = [](std::span<const Tensor> in, std::string_view attrs) {
                        Tensor out(in[0].dtype(), in[0].sizes());
                        for (int64_t i = 0; i < out.elements(); ++i)
                          out.set_float(i, in[0].get_float(i) + std::stod(std::string(attrs)));
                        return Tensors{out};
                      }});
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {3}});
  b.output(custom_op(b, "test.plus", "10", Values{x})[0]);
  const Graph g = b.finish();
  EXPECT_EQ(parse(print(g)), g);
  EXPECT_EQ(Session("cpu").compile(g).run({{"x", kX}})[0].get_float(2), 13);
  EXPECT_EQ(evaluate(g, Tensors{kX})[0].get_float(2), 13);

  EXPECT_EQ(code_of([&] { jvp(g, {"x"}); }), "no-gradient");
  EXPECT_EQ(code_of([&] { vmap(g, {{"x", 0}}, 2); }), "no-vmap");
  Builder d("wrong");
  const Value y = d.input("x", {DType::F32, {3}});
  EXPECT_EQ(code_of([&] { custom_op(d, "test.none", "", Values{y}); }), "custom-unknown");
  EXPECT_EQ(code_of([&] { custom_op(d, "test.plus", "", Values{y, y}); }), "custom-arity");
  register_custom_op({.name = "test.liar", .infer = same, .compute = [](auto, auto) {
                        return Tensors{Tensor::scalar(DType::F32, 1)};
                      }});
  Builder c("liar");
  c.output(custom_op(c, "test.liar", "", Values{c.input("x", {DType::F32, {3}})})[0]);
  EXPECT_EQ(code_of([&] { evaluate(c.finish(), Tensors{kX}); }), "custom-type");
  EXPECT_EQ(code_of([&] { register_custom_op({.name = "", .infer = same}); }), "op-name");
  EXPECT_EQ(code_of([&] { register_custom_op({.name = "test.empty"}); }), "custom-rule");
}

}  // namespace
}  // namespace rlx
