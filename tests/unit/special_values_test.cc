// NaN, infinities, signed zeros, denormals and the largest numbers in every operand of every op; the other dtypes and more
// places are in tests/long.
#include "../support/special_values.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "../support/golden.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

TEST(SpecialValues, EveryOperandOfEverySample) {
  const SpecialReport report =
      check_special_values({.dtypes = {DType::F32, DType::BF16, DType::C64, DType::I32}});
  std::cout << report.counts() << std::endl;
  EXPECT_TRUE(report.clean()) << report.text();
}

// tests/golden/special_values.jsonl holds each of them at the grid of values.
TEST(SpecialValues, EveryElementwiseOpHasGoldens) {
  const std::set<std::string_view> elsewhere = {
      "cast",  // cast.jsonl has every pair of dtypes with these values
  };
  std::set<std::string> with;
  std::ifstream file(RLX_SOURCE_DIR "/tests/golden/special_values.jsonl");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) with.insert(Json::parse(line).at("op").get<std::string>());
  for (const auto& [op, family] : op_table().entries()) {
    if (op->kind != Kind::elementwise || !op->dtypes.has(DType::F32) ||
        elsewhere.contains(op->name))
      continue;
    EXPECT_TRUE(with.contains(std::string(op->name))) << op->name;
  }
}

// ---- what rewriting might lose

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

Tensor special_vector(DType d) {
  const std::vector<SpecialValue> values = special_values(d);
  constexpr int64_t kRepeats = 5;  // several vectors and a tail
  Tensor t(d, {kRepeats * static_cast<int64_t>(values.size() + 2)});
  int64_t i = 0;
  for (int64_t k = 0; k < kRepeats; ++k) {
    for (const SpecialValue& v : values) t.set_float(i++, v.value);
    for (double v : {1.5, -3.0}) t.set_float(i++, v);
  }
  return t;
}

// op(x, c), op(c, x) for constants that rules of algebra look for, and op(x, x), on the CPU.
TEST(SpecialValues, ConstantOperands) {
  constexpr DType d = DType::F32;
  const Tensor x = special_vector(d);
  const double constants[] = {1, -1, 2, 0.0, -0.0, INFINITY, std::nan("")};
  for (const auto& [op, family] : op_table().entries()) {
    if (op->kind != Kind::elementwise || op->arity != 2 || !op->dtypes.has(d)) continue;
    Builder b("constants");
    const Value v = b.input("x", x.type());
    b.output(emit(b, *op, read_attrs(*op, ""), {v, v}));
    for (double c : constants) {
      b.output(emit(b, *op, read_attrs(*op, ""), {v, b.constant(d, c)}));
      b.output(emit(b, *op, read_attrs(*op, ""), {b.constant(d, c), v}));
    }
    const Graph g = b.finish();
    const Tensors want = evaluate(g, std::array{x});
    const Tensors got = Session("cpu").compile(g, {.threads = 1}).run({{"x", x}});
    for (size_t r = 0; r < want.size(); ++r)
      for (int64_t i = 0; i < want[r].elements(); ++i) {
        const double y = want[r].get_complex(i).real(), z = got[r].get_complex(i).real();
        // What is not rounded once may differ by a few units, but not in its kind.
        const bool close = y != 0 && std::isfinite(y) && std::fabs(y - z) <= 1e-5 * std::fabs(y);
        const bool either = y == 0 && z == 0 && (op == &op::maximum || op == &op::minimum);
        ASSERT_TRUE(same(y, z) || close || either)
            << op->name << ", output " << r << ", x = " << x.get_float(i) << ": " << z
            << " instead of " << y;
      }
  }
}

// Identities that hold for every number, to the bit: for all of f16 and bf16, and the special ones of f32 and f64.
TEST(SpecialValues, Identities) {
  for (DType d : {DType::F16, DType::BF16, DType::F32, DType::F64}) {
    Tensor x = special_vector(d);
    if (size_of(d) == 2) {
      std::vector<uint16_t> bits(1 << 16);
      for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
      x = Tensor::from_bytes(d, {1 << 16}, bits.data(), 2 * bits.size());
    }
    Builder b("identities");
    const Value v = b.input("x", x.type()), one = b.input("one", {d, {}});
    auto constant = [&](double c) { return b.constant(d, c); };
    for (Value y :
         {op::mul(b, v, constant(1)), op::mul(b, v, one), op::div(b, v, constant(1)),
          op::div(b, v, one), op::add(b, v, constant(-0.0)), op::sub(b, v, constant(0)),
          op::neg(b, op::neg(b, v)), op::maximum(b, v, v), op::minimum(b, v, v),
          op::copysign(b, op::abs(b, v), v), op::mul(b, op::mul(b, v, constant(-1)), constant(-1)),
          op::pow(b, v, constant(1)), op::reverse(b, op::reverse(b, v, {{0}}), {{0}}),
          op::cast(b, op::cast(b, v, {DType::F64}), {d})})
      b.output(y);
    const Tensors got = Session("cpu")
                            .compile(b.finish(), {.threads = 1})
                            .run({{"x", x}, {"one", Tensor::scalar(d, 1)}});
    for (size_t r = 0; r < got.size(); ++r)
      for (int64_t i = 0; i < x.elements(); ++i)
        ASSERT_TRUE(same(x.get_float(i), got[r].get_float(i)))
            << to_string(d) << ", output " << r << ": " << got[r].get_float(i) << " instead of "
            << x.get_float(i);
  }
}

}  // namespace
}  // namespace rlx::testing
