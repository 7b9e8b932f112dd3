// The golden values of the specification (ops.md, appendix C), six decimals.
#include <gtest/gtest.h>

#include "rlx/ops/evaluate.h"
#include "rlx/ops/sequence.h"

namespace rlx {
namespace {

struct Operand {
  Ints sizes;
  std::vector<double> values;
};

Tensor tensor(const Operand& o) {
  Tensor t(DType::F64, o.sizes);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, o.values[static_cast<size_t>(i)]);
  return t;
}

Tensors run(const OpDef& op, Attrs attrs, const std::vector<Operand>& operands) {
  Builder b;
  Values in;
  Tensors values;
  for (const Operand& o : operands) {
    values.push_back(tensor(o));
    in.push_back(b.input(std::to_string(in.size()), values.back().type()));
  }
  for (Value v : b.emit(op, std::move(attrs), in)) b.output(v);
  return evaluate(b.finish(), values);
}

void expect_values(const Tensor& got, const std::vector<double>& want) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got.get_float(static_cast<int64_t>(i)), want[i], 6e-7) << "element " << i;
}

TEST(SpecValues, Rope) {
  const double c1 = std::cos(1.0), s1 = std::sin(1.0), c2 = std::cos(0.01), s2 = std::sin(0.01);
  const Operand x{{1, 4}, {1, 2, 3, 4}};
  expect_values(
      run(op::rope.def, RopeAttrs{.head_dim = 4}, {x, {{1, 2}, {c1, c2}}, {{1, 2}, {s1, s2}}})[0],
      {-1.984111, 1.959901, 2.462378, 4.019800});
  expect_values(run(op::rope.def, RopeAttrs{.head_dim = 4, .n_rot = 2},
                    {x, {{1, 1}, {c1}}, {{1, 1}, {s1}}})[0],
                {-1.142640, 1.922076, 3, 4});
}

TEST(SpecValues, AxialRope2d) {
  const AxialRopeAttrs attrs{.end_x = 2, .end_y = 2, .head_dim = 4};
  const Operand x{{1, 4, 4}, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}};
  const Tensor y = run(op::axial_rope2d.def, attrs, {x})[0];
  Tensor two(DType::F64, {8});
  for (int64_t i = 0; i < 8; ++i) two.set_float(i, y.get_float(4 + i));  // tokens 1 and 2
  expect_values(two, {-1.142640, 1.922076, 3, 4, 1, 2, -1.744977, 4.685622});
}

TEST(SpecValues, Attention) {
  const std::vector<Operand> qkv{
      {{2, 2}, {1, 0, 0, 1}}, {{3, 2}, {1, 0, 0, 1, 1, 1}}, {{3, 2}, {1, 2, 3, 4, 5, 6}}};
  const auto out = [&](const AttentionAttrs& a) { return run(op::attention.def, a, qkv)[0]; };
  expect_values(out({.mask = MaskKind::causal}), {1.660477, 2.660477, 3.406673, 4.406673});
  expect_values(out({}), {3, 4, 3.406673, 4.406673});
  expect_values(out({.mask = MaskKind::sliding_window}), {3, 4, 5, 6});
  expect_values(out({.mask = MaskKind::causal, .softcap = 1.0}),
                {1.704639, 2.704639, 3.358517, 4.358517});
}

TEST(SpecValues, SelectiveScan) {
  expect_values(run(op::selective_scan.def, NoAttrs{},
                    {{{1, 2, 1}, {1, 2}},
                     {{1, 2, 1}, {0.5, 1}},
                     {{1, 2}, {-1, -2}},
                     {{1, 2, 2}, {1, 2, 0.5, 1}},
                     {{1, 2, 2}, {1, 1, 2, 1}}})[0],
                {1.5, 4.503215});
}

TEST(SpecValues, GatedDeltaNet) {
  const Ints rows{1, 2, 1, 2}, gates{1, 2, 1};
  const Tensors r = run(op::gated_delta_net.def, NoAttrs{},
                        {{rows, {1, 0, 0, 1}},
                         {rows, {0.6, 0.8, 1, 0}},
                         {rows, {1, 2, 3, -1}},
                         {gates, {-0.1, -0.2}},
                         {gates, {0.5, 1}}});
  expect_values(r[0], {0.212132, 0.424264, 0.231572, 0.463144});
  expect_values(r[1], {3, -1, 0.327492, 0.654985});
}

}  // namespace
}  // namespace rlx
