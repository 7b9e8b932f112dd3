// Ops of the user: entries of the table with a kernel, and functions by name.
#include "rlx/runtime/extend.h"

#include <gtest/gtest.h>

#include "rlx/ops/core.h"
#include "rlx/ops/custom.h"
#include "rlx/ops/evaluate.h"
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
  EXPECT_EQ(Session(Device::cpu).compile(g).run({{"x", kX}})[0].get_float(2), 27);
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
  EXPECT_EQ(Session(Device::cpu).compile(g).run({{"x", kX}})[0].get_float(0), 101);
  EXPECT_EQ(calls, 1);
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
  EXPECT_EQ(Session(Device::cpu).compile(g).run({{"x", kX}})[0].get_float(2), 13);
  EXPECT_EQ(evaluate(g, Tensors{kX})[0].get_float(2), 13);

  auto code_of = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.code();
    }
    return "";
  };
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
