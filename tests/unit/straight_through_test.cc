// Derivatives through codes: a program that quantises and comes back has those of the program that adds the rounding as a
// number, whatever moves or chooses codes in between, in every mode; its values stay, and so do its integer products.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "../support/expect_error.h"
#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/insert_q_dq.h"
#include "rlx/runtime/runtime.h"
#include "rlx/train/train_step.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

Tensor uniform(DType dtype, Ints sizes, uint64_t seed, double reach = 1) {
  Tensor t(dtype, std::move(sizes));
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> d(-reach, reach);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, d(rng));
  return t;
}

void expect_near(const Tensor& want, const Tensor& got, double tolerance, std::string_view what) {
  ASSERT_EQ(want.type(), got.type()) << what;
  for (int64_t i = 0; i < want.elements(); ++i)
    ASSERT_NEAR(want.get_float(i), got.get_float(i), tolerance) << what << " at " << i;
}

template <class F>
Body body_of(const Types& types, F&& f) {
  Builder b("body");
  Values in;
  for (const Type& t : types) in.push_back(b.input(fmt::format("in{}", in.size()), t));
  for (Value v : f(b, in)) b.output(v);
  return b.finish();
}

// Something that only moves or chooses the elements of a [4, 6]; v are codes or floats.
struct Movement {
  std::string name;
  Value (*move)(Builder& b, Value v);
};

Value flipped(Builder& b, Value v) { return op::reverse(b, v, {{0}}); }
Value counted(Builder& b, std::vector<int64_t> v) {
  Tensor t(DType::I32, {static_cast<int64_t>(v.size())});
  for (size_t i = 0; i < v.size(); ++i) t.set_int(static_cast<int64_t>(i), v[i]);
  return b.constant(std::move(t));
}
Value checkered(Builder& b) {
  Tensor t(DType::Bool, {4, 6});
  for (int64_t i = 0; i < 24; ++i) t.set_int(i, i % 5 < 2);
  return b.constant(std::move(t));
}
Value one_of(Builder& b, Value v, double c) { return full(b, b.type(v), c); }

// A carry that turns over, rows that are chosen by it, and a constant.
Value scanned(Builder& b, Value v, int64_t checkpoints = 0, bool binomial = false) {
  const Type row{b.type(v).dtype, {6}}, all = b.type(v);
  ScanAttrs s;
  s.body = body_of({row, row, all}, [](Builder& i, const Values& in) -> Values {
    const Value first = op::reshape(i, op::slice(i, in[2], {{2, 0}, {3, 6}, {}}), {Shape{6}});
    Tensor half(DType::Bool, {6});
    for (int64_t k = 0; k < 3; ++k) half.set_int(k, 1);
    const Value mask = i.constant(std::move(half));
    return {op::select(i, mask, op::reverse(i, in[0], {{0}}), in[1]),
            op::select(i, mask, in[0], first)};
  });
  s.length = 4, s.num_carries = 1, s.num_xs = 1, s.checkpoints = checkpoints, s.binomial = binomial;
  const Value start = op::reshape(b, op::slice(b, v, {{1, 0}, {2, 6}, {}}), {Shape{6}});
  const Values out = b.emit(op::scan.def, s, Values{start, v, v});
  const Value last = op::reshape(b, out[0], {Shape{1, 6}});
  return b.emit(op::concat.def, AxisAttrs{0}, Values{out[1], last})[0];
}

const Movement kMovements[] = {
    {"nothing", [](Builder&, Value v) { return v; }},
    {"reshape", [](Builder& b, Value v) { return op::reshape(b, v, {{8, 3}}); }},
    {"transpose", [](Builder& b, Value v) { return op::transpose(b, v, {{1, 0}}); }},
    {"slice", [](Builder& b, Value v) { return op::slice(b, v, {{1, 0}, {4, 5}, {1, 2}}); }},
    {"reverse", flipped},
    {"broadcast", [](Builder& b, Value v) { return op::broadcast(b, v, {{2, 4, 6}}); }},
    {"barrier", [](Builder& b, Value v) { return op::barrier(b, v); }},
    {"concat",
     [](Builder& b, Value v) {
       return b.emit(op::concat.def, AxisAttrs{1}, Values{v, one_of(b, v, 3), flipped(b, v)})[0];
     }},
    {"pad",
     [](Builder& b, Value v) { return op::pad(b, v, b.constant_like(v, 2), {{1, -1}, {0, 2}}); }},
    {"padded with a code",
     [](Builder& b, Value v) {
       const Value one = op::reshape(b, op::slice(b, v, {{1, 2}, {2, 3}, {}}), {Shape{}});
       return op::pad(b, v, one, {{0, 1}, {2, 0}});
     }},
    {"gather",
     [](Builder& b, Value v) { return op::gather(b, v, counted(b, {3, 0, 3, 1}), {.axis = 0}); }},
    {"dynamic slice",
     [](Builder& b, Value v) { return op::dynamic_slice(b, v, counted(b, {1, 9}), {{2, 3}}); }},
    {"dynamic update",
     [](Builder& b, Value v) {
       const Value part = op::slice(b, v, {{0, 0}, {2, 3}, {}});
       return op::dynamic_update_slice(b, v, part, counted(b, {2, 1}));
     }},
    {"select", [](Builder& b, Value v) { return op::select(b, checkered(b), v, flipped(b, v)); }},
    {"scatter",
     [](Builder& b, Value v) {
       const Value rows = op::slice(b, v, {{0, 0}, {3, 6}, {}});
       return op::scatter(b, v, counted(b, {2, 0, 2}), rows, {0, ScatterMode::set});
     }},
    {"split",
     [](Builder& b, Value v) {
       const Values parts =
           b.emit(op::split.def, SplitAttrs{.axis = 1, .sizes = {2, 4}}, Values{v});
       return b.emit(op::concat.def, AxisAttrs{1}, Values{parts[1], parts[0], parts[1]})[0];
     }},
    {"checkpoint",
     [](Builder& b, Value v) {
       const Body body = body_of({b.type(v)}, [](Builder& i, const Values& in) -> Values {
         return {op::transpose(i, in[0], {{1, 0}})};
       });
       return b.emit(op::checkpoint.def, CheckpointAttrs{.body = body}, Values{v})[0];
     }},
    {"function",
     [](Builder& b, Value v) {
       const Body body = body_of(
           {b.type(v)}, [](Builder& i, const Values& in) -> Values { return {flipped(i, in[0])}; });
       return b.emit(op::custom_fn.def, CustomFnAttrs{body, {}, {}}, Values{v})[0];
     }},
    {"cond",
     [](Builder& b, Value v) {
       const Body yes = body_of(
           {b.type(v)}, [](Builder& i, const Values& in) -> Values { return {flipped(i, in[0])}; });
       const Body no = body_of({b.type(v)}, [](Builder& i, const Values& in) -> Values {
         return {one_of(i, in[0], 1)};
       });
       return b.emit(op::cond.def, CondAttrs{yes, no}, Values{b.constant(DType::Bool, 1), v})[0];
     }},
    {"scan", [](Builder& b, Value v) { return scanned(b, v); }},
    {"scan in segments", [](Builder& b, Value v) { return scanned(b, v, 2); }},
    {"scan by snapshots", [](Builder& b, Value v) { return scanned(b, v, 2, true); }},
    {"while",
     [](Builder& b, Value v) {
       const Type count{DType::I32, {}}, all = b.type(v);
       WhileAttrs w;
       w.num_carries = 2, w.max_iterations = 5;
       w.cond = body_of({count, all}, [](Builder& i, const Values& in) -> Values {
         return {op::lt(i, in[0], i.constant(DType::I32, 3))};
       });
       w.body = body_of({count, all}, [](Builder& i, const Values& in) -> Values {
         return {op::add(i, in[0], i.constant(DType::I32, 1)), flipped(i, in[1])};
       });
       return b.emit(op::while_loop.def, w, Values{b.constant(DType::I32, 0), v})[1];
     }},
};

// A pair of ops that quantise and come back.
enum class Pair { plain, linear, dynamic };

constexpr double kScale = 0.1;

// loss(x, r) = sum of sin(y) cos(i): y is x quantised, moved and back, or (codes false) x moved, plus r.
Graph program(const Movement& m, Pair pair, bool codes, DType dtype = DType::F32) {
  Builder b("f");
  const Value x = b.input("x", {dtype, {4, 6}});
  Value y;
  if (!codes) {
    y = m.move(b, x);
    y = op::add(b, y, b.input("r", b.type(y)));
  } else if (pair == Pair::plain) {
    const QuantizeAttrs q{{}, {kScale}, {3}};
    y = cast_to(b, op::dequantize(b, m.move(b, op::quantize(b, x, q)), q), dtype);
  } else if (pair == Pair::linear) {
    const Value scale = b.constant(dtype, kScale), zero = b.constant(DType::U8, 120);
    y = op::dequantize_linear(b, m.move(b, op::quantize_linear(b, x, scale, zero)), scale, zero);
  } else {
    const Values q = b.emit(*&op::dynamic_quantize_linear, NoAttrs{}, Values{x});
    y = op::dequantize_linear(b, m.move(b, q[0]), q[1], q[2]);
  }
  Tensor k(dtype, b.type(y).shape.sizes());
  for (int64_t i = 0; i < k.elements(); ++i) k.set_float(i, std::cos(static_cast<double>(i)));
  const Value terms = op::mul(b, op::sin(b, y), b.constant(std::move(k)));
  Ints axes(b.type(y).shape.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  b.output(op::reduce_sum(b, terms, {.axes = axes}));
  b.output(y);
  return b.finish();
}

// The rounding as numbers: what the program with codes has, less what was moved.
Tensor rounding(const Movement& m, const Tensor& x, const Tensor& y) {
  Builder b("moved");
  b.output(m.move(b, b.input("x", x.type())));
  const Tensor moved = evaluate(b.finish(), {{"x", x}}).outputs[0];
  Tensor r(y.dtype(), y.sizes());
  for (int64_t i = 0; i < r.elements(); ++i) r.set_float(i, y.get_float(i) - moved.get_float(i));
  return r;
}

class StraightThrough : public testing::TestWithParam<std::tuple<size_t, Pair>> {
 protected:
  const Movement& movement() const { return kMovements[std::get<0>(GetParam())]; }
  Pair pair() const { return std::get<1>(GetParam()); }
  // With elements that saturate.
  const Tensor x_ = uniform(DType::F32, {4, 6}, 7, 15);
  const Tensor t_ = uniform(DType::F32, {4, 6}, 8);
};

TEST_P(StraightThrough, IsTheDerivativeOfWhatAddsTheRounding) {
  const Graph f = program(movement(), pair(), true), plain = program(movement(), pair(), false);
  const NamedTensors leaves{{"x", x_}};
  const Tensors value = evaluate(f, leaves).outputs;
  NamedTensors with_r = leaves;
  with_r["r"] = rounding(movement(), x_, value[1]);

  const Graph g = value_and_grad(f, {"x"});
  const Tensors got = evaluate(g, leaves).outputs;
  const Tensor want = evaluate(grad(plain, {"x"}), with_r).outputs[0];
  EXPECT_TRUE(got[0].same_bits(value[0]));
  EXPECT_TRUE(got[1].same_bits(value[1]));
  expect_near(want, got[2], 1e-5, "grad");
  CompiledGraph compiled = Session().compile(g);
  expect_near(want, compiled.run(leaves)[2], 1e-5, "grad, compiled");
  double most = 0;
  for (int64_t i = 0; i < want.elements(); ++i) most = std::max(most, std::fabs(want.get_float(i)));
  EXPECT_GT(most, 0.1);

  NamedTensors moving = leaves, moving_r = with_r;
  moving["tangent_x"] = moving_r["tangent_x"] = t_;
  const Graph hessian_f = hvp(f, {"x"}), hessian_plain = hvp(plain, {"x"});
  expect_near(evaluate(jvp(plain, {"x"}), moving_r).outputs[2],
              evaluate(jvp(f, {"x"}), moving).outputs[2], 1e-5, "jvp");
  const Tensors second = evaluate(hessian_plain, moving_r).outputs,
                second_got = evaluate(hessian_f, moving).outputs;
  expect_near(second.back(), second_got.back(), 1e-5, "hvp");

  moving.erase("tangent_x"), moving_r.erase("tangent_x");
  moving["d1_x"] = moving_r["d1_x"] = t_;
  moving["d2_x"] = moving_r["d2_x"] = uniform(DType::F32, {4, 6}, 9);
  const Tensors series = evaluate(jet(plain, {"x"}, 2), moving_r).outputs,
                series_got = evaluate(jet(f, {"x"}, 2), moving).outputs;
  ASSERT_EQ(series.size(), series_got.size());
  for (size_t i = 2; i < series.size(); ++i) expect_near(series[i], series_got[i], 1e-5, "jet");
}

TEST_P(StraightThrough, UnderVmap) {
  const Graph g = grad(program(movement(), pair(), true), {"x"});
  const Tensor both = uniform(DType::F32, {2, 4, 6}, 10, 15);
  const Tensor got = evaluate(vmap(g, {{"x", 0}}, 2), {{"x", both}}).outputs[0];
  const Graph later = grad(program(movement(), pair(), true), {"x"});
  // The other way around, of the sum over the batch.
  const Graph back = vjp(vmap(program(movement(), pair(), true), {{"x", 0}}, 2), {"x"});
  NamedTensors leaves{{"x", both}, {"d_0", Tensor::from<float>({2}, {1, 1})}};
  const Type y = back.type(back.find_leaf("d_1"));
  leaves["d_1"] = Tensor(y.dtype, y.shape.sizes());
  const Tensor turned = evaluate(back, leaves).outputs.back();
  for (int64_t k = 0; k < 2; ++k) {
    Tensor x(DType::F32, {4, 6});
    for (int64_t i = 0; i < 24; ++i) x.set_float(i, both.get_float(24 * k + i));
    const Tensor want = evaluate(later, {{"x", x}}).outputs[0];
    for (int64_t i = 0; i < 24; ++i) {
      ASSERT_NEAR(got.get_float(24 * k + i), want.get_float(i), 1e-6) << i;
      ASSERT_NEAR(turned.get_float(24 * k + i), want.get_float(i), 1e-6) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, StraightThrough,
    testing::Combine(testing::Range<size_t>(0, std::size(kMovements)),
                     testing::Values(Pair::plain, Pair::linear, Pair::dynamic)),
    [](const auto& i) {
      std::string name = kMovements[std::get<0>(i.param)].name;
      std::replace(name.begin(), name.end(), ' ', '_');
      const Pair pair = std::get<1>(i.param);
      return name + (pair == Pair::plain ? "Plain" : pair == Pair::linear ? "Linear" : "Dynamic");
    });

// ---- dtypes

// The cotangent comes through bit for bit, in the chain's own dtype, saturated or not.
TEST(StraightThroughDtypes, CotangentsAreUnchanged) {
  for (DType d : {DType::F64, DType::F32, DType::F16, DType::BF16}) {
    Builder b("f");
    const Value x = b.input("x", {d, {3, 4}});
    const Value scale = b.constant(d, 0.125);
    const Value codes = op::transpose(b, op::quantize_linear(b, x, scale), {{1, 0}});
    b.output(op::dequantize_linear(b, codes, scale));
    const Graph g = vjp(b.finish(), {"x"});
    const Tensor cotangent = uniform(d, {4, 3}, 4);
    const Tensor got =
        evaluate(g, {{"x", uniform(d, {3, 4}, 3, 1000)}, {"d_output", cotangent}}).outputs[1];
    ASSERT_EQ(got.type(), (Type{d, {3, 4}}));
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 4; ++j)
        EXPECT_EQ(got.get_float(4 * i + j), cotangent.get_float(3 * j + i));
  }
}

// x of f16 and bf16 whose codes come back as f32.
TEST(StraightThroughDtypes, NarrowOperands) {
  for (DType d : {DType::F16, DType::BF16, DType::F64}) {
    Builder b("f");
    const QuantizeAttrs q{0, {0.1, 0.2}, {0, 1}};
    const Value y = op::dequantize(b, op::quantize(b, b.input("x", {d, {2, 3}}), q), q);
    b.output(op::reduce_sum(b, op::square(b, y), {.axes = {0, 1}}));
    b.output(y);
    const Tensors out =
        evaluate(value_and_grad(b.finish(), {"x"}), {{"x", uniform(d, {2, 3}, 5)}}).outputs;
    ASSERT_EQ(out[2].type(), (Type{d, {2, 3}}));
    for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(out[2].get_float(i), 2 * out[1].get_float(i), 0.01);
  }
}

// By the scale a dequantised value moves as it says; differences of the reference value.
TEST(StraightThroughDtypes, ByTheScale) {
  for (bool channels : {false, true}) {
    Builder b("f");
    const Value x = b.input("x", {DType::F64, {2, 3}});
    const Value scale = b.input("s", {DType::F64, channels ? Shape{3} : Shape{}});
    const Value codes =
        op::quantize_linear(b, x, b.constant(DType::F64, 0.25), b.constant(DType::I8, 3));
    const Value y = op::dequantize_linear(b, codes, scale, b.constant(DType::I8, 3), {.axis = 1});
    b.output(op::reduce_sum(b, op::sin(b, y), {.axes = {0, 1}}));
    const Graph f = b.finish();
    const Tensor at_x = uniform(DType::F64, {2, 3}, 6, 3);
    Tensor s = uniform(DType::F64, channels ? Ints{3} : Ints{}, 7);
    const Tensor by_s = evaluate(grad(f, {"s"}), {{"x", at_x}, {"s", s}}).outputs[0];
    const Tensor moved =
        evaluate(jvp(f, {"s"}),
                 {{"x", at_x},
                  {"s", s},
                  {"tangent_s",
                   Tensor::from<double>(s.sizes(), std::vector<double>(at(s.elements()), 1.0))}})
            .outputs[1];
    double sum = 0;
    for (int64_t i = 0; i < s.elements(); ++i) {
      const double here = s.get_float(i), step = 1e-6;
      const auto value = [&](double v) {
        s.set_float(i, v);
        return evaluate(f, {{"x", at_x}, {"s", s}}).outputs[0].get_float(0);
      };
      const double slope = (value(here + step) - value(here - step)) / (2 * step);
      s.set_float(i, here);
      EXPECT_NEAR(by_s.get_float(i), slope, 1e-6);
      sum += slope;
    }
    EXPECT_NEAR(moved.get_float(0), sum, 1e-6);
  }
}

// ---- what is no movement

// Codes that are computed with are integers like others: nothing comes through them.
TEST(Codes, ThatAreComputedWithHaveNoDerivative) {
  const auto program = [](Value (*use)(Builder&, Value)) {
    Builder b("f");
    const QuantizeAttrs q{{}, {0.5}, {0}};
    const Value codes = op::quantize(b, b.input("x", {DType::F32, {3}}), q);
    b.output(op::reduce_sum(b, use(b, codes), {.axes = {0}}));
    return b.finish();
  };
  Value (*const uses[])(Builder&, Value) = {
      [](Builder& b, Value v) { return op::cast(b, v, {DType::F32}); },
      [](Builder& b, Value v) { return op::dequantize(b, op::add(b, v, v), {{}, {0.5}, {0}}); },
      [](Builder& b, Value v) {
        const Value back = op::cast(b, op::cast(b, v, {DType::I32}), {DType::I8});
        return op::dequantize(b, back, {{}, {0.5}, {0}});
      },
      [](Builder& b, Value v) {
        const Value where = counted(b, {0, 1, 2});
        return op::dequantize(b, op::scatter(b, v, where, v, {0, ScatterMode::add}),
                              {{}, {0.5}, {0}});
      },
      [](Builder& b, Value v) {  // indices
        const Value table = b.constant(uniform(DType::F32, {4}, 1));
        return op::gather(b, table, v, {.axis = 0});
      },
  };
  const Tensor x = Tensor::from<float>({3}, {0.1f, 0.6f, 1.1f});
  for (const auto use : uses) {
    const Graph f = program(use);
    expect_error("no-gradient", "no gradient reaches input \"x\"", [&] { grad(f, {"x"}); });
    const Tensor zero = evaluate(grad(f, {"x"}, {.zero_missing = true}), {{"x", x}}).outputs[0];
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(zero.get_float(i), 0);
    const Tensor still = evaluate(jvp(f, {"x"}), {{"x", x}, {"tangent_x", x}}).outputs[1];
    EXPECT_EQ(still.get_float(0), 0);
  }
}

// A function with stated derivatives sees integers as it always did.
TEST(Codes, InFunctionsWithDerivativesOfTheirOwn) {
  const Type codes{DType::I8, {3}}, floats{DType::F32, {3}};
  const QuantizeAttrs q{{}, {0.5}, {0}};
  CustomFnAttrs c;
  c.fwd = body_of({codes, floats}, [&](Builder& b, const Values& in) -> Values {
    return {op::mul(b, op::dequantize(b, in[0], q), in[1])};
  });
  c.vjp = body_of({codes, floats, floats, floats}, [](Builder& b, const Values& in) -> Values {
    return {full(b, b.type(in[0]), 0), op::mul(b, in[3], b.constant_like(in[3], 7))};
  });
  c.jvp = body_of({codes, floats, codes, floats}, [](Builder& b, const Values& in) -> Values {
    return {op::mul(b, in[3], b.constant_like(in[3], 7))};
  });
  Builder b("f");
  const Value x = b.input("x", floats);
  const Value y = b.emit(op::custom_fn.def, c, Values{op::quantize(b, x, q), x})[0];
  b.output(op::reduce_sum(b, y, {.axes = {0}}));
  const Graph f = b.finish();
  const Tensor at_x = Tensor::from<float>({3}, {0.1f, 0.6f, 1.1f});
  const Tensor got = evaluate(grad(f, {"x"}), {{"x", at_x}}).outputs[0];
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(got.get_float(i), 7);
  const Tensor one = Tensor::from<float>({3}, {1, 1, 1});
  EXPECT_EQ(evaluate(jvp(f, {"x"}), {{"x", at_x}, {"tangent_x", one}}).outputs[1].get_float(0), 21);
}

// ---- programs that insert_q_dq has run on

Graph two_layers() {
  Builder b("net");
  const Value x = b.input("x", {DType::F32, {8, 16}});
  const Value w = b.param("w", {DType::F32, {16, 12}}), v = b.param("v", {DType::F32, {12, 1}});
  const Value y = op::matmul(b, op::relu(b, op::matmul(b, x, w)), v);
  b.output(op::reduce_mean(b, op::square(b, y), {.axes = {0, 1}}));
  return b.finish();
}

Graph with_codes(const Graph& g) {
  CalibrationRecord record{{g.find_leaf("x"), CalibrationEntry::per_tensor(0.01)},
                           {g.find_leaf("w"), CalibrationEntry::per_tensor(0.005)},
                           {g.find_leaf("v"), CalibrationEntry::per_tensor(0.005)}};
  for (int32_t i = 0; i < g.size(); ++i)
    if (g.node(i).op == &op::relu) record[{i, 0}] = CalibrationEntry::per_tensor(0.02);
  return insert_q_dq(g, record);
}

double rounded(double v, double scale) {
  return std::clamp(std::round(v / scale), -128.0, 127.0) * scale;
}

// dloss/dw of two_layers() with codes, straight through, written out.
std::vector<double> expected_gradient(const Tensor& x, const Tensor& w, const Tensor& v) {
  std::vector<double> out(16 * 12);
  for (int64_t i = 0; i < 8; ++i) {
    double h[12], y = 0;
    for (int64_t j = 0; j < 12; ++j) {
      h[j] = 0;
      for (int64_t k = 0; k < 16; ++k)
        h[j] += rounded(x.get_float(16 * i + k), 0.01) * rounded(w.get_float(12 * k + j), 0.005);
      y += rounded(std::max(h[j], 0.0), 0.02) * rounded(v.get_float(j), 0.005);
    }
    for (int64_t j = 0; j < 12; ++j)
      for (int64_t k = 0; k < 16 && h[j] > 0; ++k)
        out[at(12 * k + j)] +=
            2 * y / 8 * rounded(v.get_float(j), 0.005) * rounded(x.get_float(16 * i + k), 0.01);
  }
  return out;
}

TEST(Inserted, GradientsAreStraightThroughAndProductsOfIntegers) {
  const Graph f = with_codes(two_layers());
  const NamedTensors leaves{{"x", uniform(DType::F32, {8, 16}, 1)},
                            {"w", uniform(DType::F32, {16, 12}, 2, 0.5)},
                            {"v", uniform(DType::F32, {12, 1}, 3, 0.5)}};
  const auto want = expected_gradient(leaves.at("x"), leaves.at("w"), leaves.at("v"));
  CompiledGraph forward = Session().compile(f), both = Session().compile(value_and_grad(f, {"w"}));
  EXPECT_NE(both.info().recognition_report.find("2 integer-matmul"), std::string::npos)
      << both.info().recognition_report;
  for (CompiledGraph* c : {&forward, &both})
    c->set_param("w", leaves.at("w")), c->set_param("v", leaves.at("v"));
  const Tensors got = both.run({{"x", leaves.at("x")}});
  EXPECT_TRUE(got[0].same_bits(forward.run({{"x", leaves.at("x")}})[0]));
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[1].get_float(static_cast<int64_t>(i)), want[i], 1e-5) << i;
}

// The step of an optimiser of rate 1 subtracts that gradient.
TEST(Inserted, TrainSteps) {
  const Graph f = with_codes(two_layers());
  const NamedTensors leaves{{"w", uniform(DType::F32, {16, 12}, 2, 0.5)},
                            {"v", uniform(DType::F32, {12, 1}, 3, 0.5)}};
  const Tensor x = uniform(DType::F32, {8, 16}, 1);
  const auto slope = expected_gradient(x, leaves.at("w"), leaves.at("v"));
  TrainOptions o;
  o.optimizer = sgd({.rate = constant_rate(1)});
  o.params = {"w"};
  const TrainStep step = train_step(f, leaves, o);
  const Evaluated r = [&] {
    NamedTensors all = step.state;
    for (const auto& [name, value] : leaves) all.insert({name, value});
    all["x"] = x;
    return evaluate(step.graph, all);
  }();
  for (size_t i = 0; i < slope.size(); ++i) {
    const auto k = static_cast<int64_t>(i);
    ASSERT_NEAR(r.updates.at("w").get_float(k), leaves.at("w").get_float(k) - slope[i], 1e-5);
  }
}

}  // namespace
}  // namespace rlx
