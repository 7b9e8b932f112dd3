// The golden values of the specification (ops.md, appendix C), six decimals.
#include <gtest/gtest.h>

#include "rlx/ops/control/loops.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/nn/backward.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/ops/signal/fft.h"
#include "rlx/ops/signal/fft_helpers.h"

namespace rlx {
namespace {

struct Operand {
  Ints sizes;
  std::vector<double> values;
  DType dtype = DType::F64;
};

Tensor tensor(const Operand& o) {
  Tensor t(o.dtype, o.sizes);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_complex(i, o.values[static_cast<size_t>(i)]);
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

TEST(SpecValues, Activations) {
  const Operand x{{5}, {-2, -0.5, 0, 0.5, 2}};
  const struct {
    Activation kind;
    std::vector<double> values, slopes;
  } rows[] = {
      {Activation::gelu,
       {-0.045500, -0.154269, 0, 0.345731, 1.954500},
       {-0.085232, 0.132505, 0.5, 0.867495, 1.085232}},
      {Activation::gelu_tanh,
       {-0.045402, -0.154286, 0, 0.345714, 1.954598},
       {-0.086099, 0.132630, 0.5, 0.867370, 1.086099}},
      {Activation::silu,
       {-0.238406, -0.188770, 0, 0.311230, 1.761594},
       {-0.090784, 0.260039, 0.5, 0.739961, 1.090784}},
  };
  for (const auto& row : rows) {
    expect_values(run(op_of(row.kind), NoAttrs{}, {x})[0], row.values);
    expect_values(
        run(op::activation_backward.def, ActivationAttrs{row.kind}, {x, {{5}, {1, 1, 1, 1, 1}}})[0],
        row.slopes);
  }
}

TEST(SpecValues, Norms) {
  const Operand x{{1, 4}, {1, 2, 3, 4}}, one{{4}, {1, 1, 1, 1}}, zero{{4}, {0, 0, 0, 0}};
  const Operand dy{{1, 4}, {1, 0, 0, 0}};
  expect_values(run(op::layer_norm.def, NormAttrs{}, {x, one, zero})[0],
                {-1.341635, -0.447212, 0.447212, 1.341635});
  expect_values(run(op::rms_norm.def, NormAttrs{}, {x, one, zero})[0],
                {0.365148, 0.730296, 1.095444, 1.460593});
  expect_values(run(op::layer_norm_backward_input.def, NormAttrs{}, {x, one, dy})[0],
                {0.268330, -0.357768, -0.089443, 0.178882});
  expect_values(run(op::rms_norm_backward_input.def, NormAttrs{}, {x, one, zero, dy})[0],
                {0.352977, -0.024343, -0.036515, -0.048686});
}

TEST(SpecValues, CrossEntropy) {
  const Operand logits{{1, 3}, {1, 2, 3}}, label{{1}, {0}, DType::I64};
  expect_values(run(op::softmax_cross_entropy.def, NoAttrs{}, {logits, label})[0], {2.407606});
  expect_values(
      run(op::softmax_cross_entropy_backward.def, NoAttrs{}, {logits, label, {{1}, {1}}})[0],
      {-0.909969, 0.244728, 0.665241});
}

TEST(SpecValues, Cumsum) {
  const Operand dy{{3}, {1, 2, 3}};
  expect_values(run(op::cumsum_backward.def, CumsumAttrs{}, {dy})[0], {6, 5, 3});
  expect_values(run(op::cumsum_backward.def, CumsumAttrs{.exclusive = true}, {dy})[0], {5, 3, 0});
}

TEST(SpecValues, Fourier) {
  expect_values(run(op::fft.def, FftAttrs{}, {{{6}, {1, 2, 3, 0, 0, 0}}})[0],
                {6, -1.5, -1.5, 0, 0.866025, -0.866025});
  Builder b;
  const Value x = b.input("x", {DType::F32, {3}});
  const auto [re, im] = signal::rfft(b, x, FftNorm::none);
  for (Value v : {re, im, signal::psd_real(b, x, FftNorm::none), signal::fftfreq_tensor(b, 4),
                  signal::fftfreq_tensor(b, 5)})
    b.output(v);
  const Tensors r =
      evaluate(b.finish(), Tensors{Tensor::from<float>({3}, std::vector<float>{1, 2, 3})});
  expect_values(r[0], {6, -2, 2});
  expect_values(r[1], {0, -2, 0});
  expect_values(r[2], {12, 2.666667, 1.333333});
  expect_values(r[3], {0, 0.25, 0.5, -0.25});
  expect_values(r[4], {0, 0.2, 0.4, -0.4, -0.2});
}

TEST(SpecValues, Quantise) {
  const Tensor q = run(op::quantize.def, QuantizeAttrs{{}, {0.5}, {3}},
                       {{{6}, {-100, -0.75, -0.25, 0.25, 0.75, 100}}})[0];
  const int64_t want[] = {-128, 1, 2, 4, 5, 127};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(q.get_int(i), want[i]) << i;
  FakeQuantizeAttrs four;
  four.bits = 4;
  expect_values(run(op::fake_quantize.def, four, {{{4}, {-1, -0.3, 0.05, 0.7}}})[0],
                {-1, -0.285714, 0, 0.714286});
}

TEST(SpecValues, Checkpoints) {
  EXPECT_EQ(checkpoint_steps(10, 3), (Ints{3, 6, 9}));
  EXPECT_EQ(checkpoint_steps(7, 4), (Ints{1, 3, 5, 6}));
}

TEST(SpecValues, MeanPoolCountsPadding) {
  PoolAttrs a;
  a.kind = PoolKind::mean;
  a.kernel = a.stride = {2, 2};
  a.low = a.high = {1, 1};
  expect_values(run(op::pool.def, a, {{{1, 1, 3, 3}, std::vector<double>(9, 1)}})[0],
                {0.25, 0.5, 0.5, 1});
}

}  // namespace
}  // namespace rlx
