// Conventions that finite differences cannot see: kinks, ties, NaN, overflow, indices, complex
// gradients.
#include <gtest/gtest.h>

#include "rlx/ops/core.h"
#include "rlx/ops/elementwise/activations.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/nn/losses.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

Tensor vector(std::vector<double> v) {
  return Tensor::from<double>({static_cast<int64_t>(v.size())}, v);
}

// The values of op(x..) for f64 vectors.
template <class Op>
std::vector<double> value(const Op& op, const std::vector<std::vector<double>>& in) {
  Builder b("f");
  Values args;
  Tensors leaves;
  for (const auto& v : in) {
    leaves.push_back(vector(v));
    args.push_back(b.input(std::to_string(args.size()), leaves.back().type()));
  }
  b.output(b.emit(*&op, {}, args)[0]);
  const Tensor out = evaluate(b.finish(), leaves)[0];
  std::vector<double> numbers;
  for (int64_t i = 0; i < out.elements(); ++i) numbers.push_back(out.get_float(i));
  return numbers;
}

// The cotangent of each operand for a cotangent of ones.
template <class Op>
std::vector<std::vector<double>> gradient(const Op& op, const std::vector<std::vector<double>>& in,
                                          Attrs attrs = {}) {
  Builder b("f");
  Values args;
  Tensors leaves;
  std::vector<std::string> names;
  for (const auto& v : in) {
    leaves.push_back(vector(v));
    names.push_back(std::to_string(args.size()));
    args.push_back(b.input(names.back(), leaves.back().type()));
  }
  b.output(b.emit(*&op, std::move(attrs), args)[0]);
  const Graph g = vjp(b.finish(), names);
  const Type& seed = g.type(g.find_leaf("d_output"));
  leaves.push_back(Tensor::full(seed.dtype, seed.shape.sizes(), 1));
  const Tensors out = evaluate(g, leaves);
  std::vector<std::vector<double>> numbers;
  for (size_t k = 1; k < out.size(); ++k) {
    numbers.emplace_back();
    for (int64_t i = 0; i < out[k].elements(); ++i) numbers.back().push_back(out[k].get_float(i));
  }
  return numbers;
}

using Lists = std::vector<std::vector<double>>;
const double kNan = std::nan("");

TEST(Conventions, DerivativesAtKinks) {
  EXPECT_EQ(gradient(op::relu, {{-1, 0, 2}}), (Lists{{0, 0, 1}}));
  EXPECT_EQ(gradient(op::abs, {{-3, 0, 2}}), (Lists{{-1, 0, 1}}));
  EXPECT_EQ(gradient(op::round_straight_through, {{-0.6, 0.5, 2}}), (Lists{{1, 1, 1}}));
  Builder b("round");  // is a step, as floor is: nothing comes through it
  const Value x = b.input("x", {DType::F64, {3}});
  b.output(sum_axes(b, op::mul(b, x, op::round(b, x)), {0}));
  const Tensor at = Tensor::from<double>({3}, {-0.6, 0.5, 2}),
               slope = evaluate(grad(b.finish(), {"x"}), std::array{at})[0];
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(slope.get_float(i), std::nearbyint(at.get_float(i)));
}

TEST(Conventions, DerivativesOfActivationsAtKinks) {
  EXPECT_EQ(gradient(op::relu6, {{-1, 0, 3, 6, 7}}), (Lists{{0, 0, 1, 0, 0}}));
  EXPECT_EQ(gradient(op::hard_tanh, {{-1, 0, 1}}, HardTanhAttrs{}), (Lists{{0, 1, 0}}));
  EXPECT_EQ(gradient(op::leaky_relu, {{-1, 0, 2}}, LeakyReluAttrs{.alpha = 0.25}),
            (Lists{{0.25, 0.25, 1}}));
  // exp(1000) overflows, but is not used.
  EXPECT_EQ(gradient(op::elu, {{0, 1000}}, AlphaAttrs{.alpha = 2}), (Lists{{2, 1}}));
  EXPECT_EQ(gradient(op::hardshrink, {{-0.5, 0.5, 1}}, ShrinkAttrs{}), (Lists{{0, 0, 1}}));
  EXPECT_EQ(gradient(op::softshrink, {{-0.5, 0.5, 1}}, ShrinkAttrs{}), (Lists{{0, 0, 1}}));
}

// The slope has a pole, the function does not.
TEST(Conventions, DerivativesWhereTheSlopeHasAPole) {
  EXPECT_EQ(gradient(op::hypot, {{0, 3}, {0, 4}}), (Lists{{0, 0.6}, {0, 0.8}}));
  EXPECT_EQ(gradient(op::xlogy, {{0, 0}, {0, 1}})[0], (std::vector<double>{0, 0}));
  EXPECT_EQ(gradient(op::sinc, {{0}}), (Lists{{0}}));
  const double inf = INFINITY;
  EXPECT_EQ(gradient(op::logaddexp, {{-inf, inf}, {-inf, inf}}), (Lists{{0.5, 0.5}, {0.5, 0.5}}));
  EXPECT_EQ(gradient(op::bce_loss, {{0, 1}, {1, 0}}, LossAttrs{.reduction = Reduction::sum})[0],
            (std::vector<double>{0, 0}));
}

TEST(Conventions, TiesShareTheGradient) {
  EXPECT_EQ(gradient(op::maximum, {{1, 2, 3}, {1, 1, 4}}), (Lists{{0.5, 1, 0}, {0.5, 0, 1}}));
  EXPECT_EQ(gradient(op::minimum, {{1, 2, 3}, {1, 1, 4}}), (Lists{{0.5, 0, 1}, {0.5, 1, 0}}));
  EXPECT_EQ(gradient(op::reduce_max, {{3, 1, 3, 2}}, ReduceAttrs{.axes = {0}}),
            (Lists{{0.5, 0, 0.5, 0}}));
  EXPECT_EQ(gradient(op::reduce_min, {{1, 1, 3, 1}}, ReduceAttrs{.axes = {0}}),
            (Lists{{1.0 / 3, 1.0 / 3, 0, 1.0 / 3}}));
}

TEST(Conventions, ZerosInProducts) {
  const ReduceAttrs all{.axes = {0}};
  EXPECT_EQ(gradient(op::reduce_prod, {{2, 0, 3}}, all), (Lists{{0, 6, 0}}));
  EXPECT_EQ(gradient(op::reduce_prod, {{2, 0, 0}}, all), (Lists{{0, 0, 0}}));
  EXPECT_EQ(gradient(op::pow, {{0, 0, 2}, {2, 0, 0}}), (Lists{{0, 0, 0}, {0, 0, std::log(2.0)}}));
}

TEST(Conventions, NanPropagates) {
  EXPECT_TRUE(std::isnan(value(op::relu, {{kNan}})[0]));
  EXPECT_TRUE(std::isnan(value(op::sign, {{kNan}})[0]));
  EXPECT_TRUE(std::isnan(value(op::maximum, {{kNan}, {1}})[0]));
  EXPECT_TRUE(std::isnan(value(op::maximum, {{1}, {kNan}})[0]));
  EXPECT_TRUE(std::isnan(value(op::minimum, {{kNan}, {1}})[0]));
  for (const auto* op :
       {&op::reduce_max.def, &op::reduce_min.def, &op::reduce_sum.def, &op::reduce_prod.def}) {
    Builder b("f");
    const Value x = b.input("x", {DType::F64, {3}});
    b.output(b.emit(*op, ReduceAttrs{.axes = {0}}, {&x, 1})[0]);
    EXPECT_TRUE(std::isnan(evaluate(b.finish(), Tensors{vector({1, kNan, 2})})[0].get_float(0)))
        << op->name;
  }
}

TEST(Conventions, EmptyReductions) {
  auto reduce = [](const OpDef& op) {
    Builder b("f");
    const Value x = b.input("x", {DType::F64, {0, 2}});
    b.output(b.emit(op, ReduceAttrs{.axes = {0}}, {&x, 1})[0]);
    return evaluate(b.finish(), Tensors{Tensor(DType::F64, {0, 2})})[0].get_float(0);
  };
  EXPECT_EQ(reduce(op::reduce_sum.def), 0);
  EXPECT_EQ(reduce(op::reduce_prod.def), 1);
  EXPECT_EQ(reduce(op::reduce_max.def), -INFINITY);
  EXPECT_EQ(reduce(op::reduce_min.def), INFINITY);
}

TEST(Conventions, IntegersWrapAndDivisionByZeroIsZero) {
  auto run = [](const Op<>& op, std::vector<int32_t> x, std::vector<int32_t> y) {
    Builder b("f");
    const Type type{DType::I32, {static_cast<int64_t>(x.size())}};
    const Value first = b.input("x", type), second = b.input("y", type);
    b.output(op(b, first, second));
    const Ints sizes = type.shape.sizes();
    const Tensor out =
        evaluate(b.finish(), Tensors{Tensor::from(sizes, x), Tensor::from(sizes, y)})[0];
    return std::vector<int32_t>(out.data<int32_t>(), out.data<int32_t>() + out.elements());
  };
  EXPECT_EQ(run(op::div, {7, -7, INT32_MIN}, {0, 2, -1}), (std::vector<int32_t>{0, -3, INT32_MIN}));
  EXPECT_EQ(run(op::rem, {7, -7, INT32_MIN}, {0, 2, -1}), (std::vector<int32_t>{0, -1, 0}));
  EXPECT_EQ(run(op::add, {INT32_MAX}, {1}), (std::vector<int32_t>{INT32_MIN}));
}

TEST(Conventions, IndicesOutOfRangeRaise) {
  auto run = [](bool scatter, int64_t index) {
    Builder b("f");
    const Value x = b.input("x", {DType::F64, {2, 3}}), i = b.input("i", {DType::I64, {2}});
    b.output(scatter ? op::scatter_add(b, x, i, {.axis = 0, .size = 4}) : op::gather(b, x, i));
    evaluate(b.finish(),
             Tensors{Tensor(DType::F64, {2, 3}), Tensor::from<int64_t>({2}, {0, index})});
  };
  for (bool scatter : {false, true}) {
    EXPECT_NO_THROW(run(scatter, 1));
    for (int64_t bad : {int64_t{-1}, int64_t{4}, INT64_MAX})
      EXPECT_THROW(run(scatter, bad), Error) << scatter << " " << bad;
  }
}

// |z|^2 grows along z: a descent step subtracts it (PyTorch's convention).
TEST(Conventions, ComplexGradientsAreDescentDirections) {
  Builder b("f");
  const Value z = b.input("z", {DType::C64, {}});
  b.output(op::real(b, op::mul(b, z, op::conj(b, z))));
  const Tensors out =
      evaluate(grad(b.finish(), {"z"}), Tensors{Tensor::scalar(DType::C64, {3, -2})});
  EXPECT_EQ(out[0].get_complex(0), Complex(6, -4));
}

}  // namespace
}  // namespace rlx
