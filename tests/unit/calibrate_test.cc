// Calibration: ranges against NumPy (tests/golden/calibrate.py), what they do not depend on, errors.
#include "rlx/quantise/calibrate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "../support/expect_error.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

Tensor read_tensor(std::istream& in) {
  int64_t rank = 0;
  in >> rank;
  Ints sizes(static_cast<size_t>(rank));
  for (int64_t& s : sizes) in >> s;
  Tensor t(DType::F32, sizes);
  for (int64_t i = 0; i < t.elements(); ++i) {
    double v = 0;
    in >> v;
    t.set_float(i, v);
  }
  return t;
}

Tensor tensor_of(std::vector<float> values, Ints sizes = {}) {
  if (sizes.empty()) sizes = {static_cast<int64_t>(values.size())};
  Tensor t(DType::F32, sizes);
  for (size_t i = 0; i < values.size(); ++i)
    t.set_float(static_cast<int64_t>(i), static_cast<double>(values[i]));
  return t;
}

double squared_error(const std::vector<Tensor>& batches, double scale) {
  double sum = 0;
  for (const Tensor& t : batches)
    for (int64_t i = 0; i < t.elements(); ++i) {
      const double x = t.get_float(i);
      const double y = std::clamp(std::round(x / scale), -127.0, 127.0) * scale;
      sum += (x - y) * (x - y);
    }
  return sum;
}

TEST(Observer, FindsNumpysRanges) {
  std::ifstream in(std::string(RLX_SOURCE_DIR) + "/tests/golden/calibrate.txt");
  int cases = 0;
  for (std::string word, name, method; in >> word >> name >> method; ++cases) {
    ASSERT_EQ(word, "case");
    RangeOptions o;
    int64_t axis = 0, count = 0;
    in >> o.percentile >> o.asymmetric >> axis >> count;
    o.method = parse_calibration_method(method);
    SCOPED_TRACE(fmt::format("{} {} {}", name, method, o.asymmetric));
    Observer seen(name, axis < 0 ? std::nullopt : std::optional(axis));
    Observer backwards = seen;
    std::vector<Tensor> batches;
    for (int64_t i = 0; i < count; ++i) seen.add(batches.emplace_back(read_tensor(in)));
    for (size_t i = batches.size(); i-- > 0;) backwards.add(batches[i]);
    const CalibrationEntry got = seen.entry(o);
    EXPECT_EQ(got, backwards.entry(o));
    EXPECT_EQ(got.axis.has_value(), axis >= 0);
    ASSERT_EQ(got.scales.size(), axis < 0 ? 1u : 3u);
    for (double s : got.scales) {
      double want = 0;
      in >> want;
      EXPECT_NEAR(s, want, 1e-12 * want);
    }
    for (int64_t z : got.zero_points) {
      int64_t want = 0;
      in >> want;
      EXPECT_EQ(z, want);
    }
    double least = 0;
    in >> least;
    if (o.method == CalibrationMethod::mse && !o.asymmetric && axis < 0 && got.scales[0] > 1e-6) {
      // Of 113 ranges, by the centres of bins.
      EXPECT_LE(squared_error(batches, got.scales[0]), 1.1 * least);
    }
  }
  EXPECT_EQ(cases, 8 * 4 * 2 * 2);
}

TEST(Observer, TheSpecificationsScale) {
  Observer seen("x");
  seen.add(tensor_of({0.5f, -2.54f, 1}));
  EXPECT_FLOAT_EQ(static_cast<float>(seen.entry({}).scales[0]), 0.02f);
  Observer zeros("x");
  zeros.add(tensor_of({0, 0}));
  EXPECT_EQ(zeros.entry({}).scales[0], 1e-6);
  for (const auto method :
       {CalibrationMethod::percentile, CalibrationMethod::entropy, CalibrationMethod::mse})
    EXPECT_EQ(zeros.entry({.method = method}).scales[0], 1e-6);
}

TEST(Observer, Errors) {
  Observer seen("conv1");
  expect_error("calibration-data", "conv1", [&] { seen.entry({}); });
  seen.add(tensor_of({1, 2}));
  expect_error("calibration-value", "conv1 has nan in batch 1",
               [&] { seen.add(tensor_of({1, NAN})); });
  expect_error("calibration-value", "conv1 has -inf in batch 1",
               [&] { seen.add(tensor_of({-INFINITY})); });
  expect_error("calibration-percentile", "(0, 100]", [&] { seen.entry({.percentile = 0}); });
  expect_error("calibration-percentile", "101", [&] { seen.entry({.percentile = 101}); });
  expect_error("calibration-scale", "positive", [&] { seen.entry({.smallest_scale = 0}); });
  expect_error("calibration-method", "min_max", [] { parse_calibration_method("minmax"); });
  Observer channels("w", 0);
  channels.add(tensor_of({1, 2}, {2, 1}));
  expect_error("calibration-shape", "3 channels in batch 1",
               [&] { channels.add(tensor_of({1, 2, 3}, {3, 1})); });
}

// relu(x w) w2, and the taps that calibration chooses of it.
struct TwoLayers {
  Builder b{"two"};
  Value x = b.input("x", {DType::F32, {Dim::symbol("n"), 4}}),
        w = b.param("w", {DType::F32, {4, 3}}), w2 = b.param("w2", {DType::F32, {2, 3}});
  Value hidden = op::relu(b, op::matmul(b, x, w));
  Value y = op::matmul(b, hidden, w2, MatmulAttrs{.transpose_b = true});
  NamedTensors params{{"w", tensor_of({1, 0, 0, 0, 2, 0, 0, 0, -3, 0, 0, 1}, {4, 3})},
                      {"w2", tensor_of({1, 2, 3, -4, 5, 6}, {2, 3})}};
  Graph graph() {
    b.output(y);
    return b.finish();
  }
};

TEST(Calibrate, OperandsOfProducts) {
  TwoLayers m;
  const Graph g = m.graph();
  const std::vector<Layer> layers = find_layers(g);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].name, "w");
  EXPECT_EQ(layers[0].channel_axis, 1);
  EXPECT_EQ(layers[1].channel_axis, 0);
  const std::vector<NamedTensors> data{{{"x", tensor_of({1, 1, 1, 1, 0, 0, 0, -127}, {2, 4})}},
                                       {{"x", tensor_of({2, 2, 2, 2}, {1, 4})}}};
  const CalibrationRecord r = calibrate(g, m.params, data);
  ASSERT_EQ(r.size(), 4u);
  EXPECT_EQ(r.at(m.x), CalibrationEntry::per_tensor(1));
  // Hidden values: [1, 2, 0], [0, 0, 0] and [2, 4, 0].
  EXPECT_EQ(r.at(m.hidden), CalibrationEntry::per_tensor(4.0 / 127));
  EXPECT_EQ(r.at(m.w), CalibrationEntry::per_channel(1, {1.0 / 127, 2.0 / 127, 3.0 / 127}));
  EXPECT_EQ(r.at(m.w2), CalibrationEntry::per_channel(0, {3.0 / 127, 6.0 / 127}));
  const CalibrationRecord tensor = calibrate(g, m.params, data, {.per_channel = false});
  EXPECT_EQ(tensor.at(m.w), CalibrationEntry::per_tensor(3.0 / 127));
  const CalibrationTap own[] = {{m.y, "y"}};
  EXPECT_EQ(calibrate(g, m.params, data, {}, own).at(m.y).scales[0], 12.0 / 127);
}

TEST(Calibrate, Errors) {
  TwoLayers m;
  const Graph g = m.graph();
  const std::vector<NamedTensors> good{{{"x", tensor_of({1, 1, 1, 1}, {1, 4})}}};
  expect_error("calibration-data", "there is no data", [&] { calibrate(g, m.params, {}); });
  const std::vector<NamedTensors> nan{good[0], {{"x", tensor_of({1, NAN, 1, 1}, {1, 4})}}};
  expect_error("calibration-value", "x has nan in batch 1", [&] { calibrate(g, m.params, nan); });
  const std::vector<NamedTensors> unknown{{{"z", good[0].at("x")}}};
  expect_error("input-unknown", "\"z\"", [&] { calibrate(g, m.params, unknown); });
  const CalibrationTap none[] = {{{99, 0}, "y"}};
  expect_error("calibration-tap", "%99", [&] { calibrate(g, m.params, good, {}, none); });
  expect_error("param-missing", "w2", [&] { calibrate(g, {{"w", m.params.at("w")}}, good); });
}

TEST(InsertQDq, ChecksTheRecord) {
  TwoLayers m;
  const Graph g = m.graph();
  const auto with = [&](Value v, CalibrationEntry e) {
    return [&g, v, e] { insert_q_dq(g, {{v, e}}); };
  };
  expect_error("calibration-tap", "%50", with({50, 0}, CalibrationEntry::per_tensor(1)));
  expect_error("calibration-tap", "%0:3", with({0, 3}, CalibrationEntry::per_tensor(1)));
  expect_error("calibration-scales", "2 scales",
               with(m.w, CalibrationEntry::per_channel(1, {1, 2})));
  expect_error("calibration-scales", "2 scales", with(m.w, {{}, {1, 2}, {0, 0}}));
  expect_error("calibration-scales", "2 zero points", with(m.w, {1, {1, 2, 3}, {0, 0}}));
  expect_error("calibration-scales", "is 0", with(m.x, CalibrationEntry::per_tensor(0)));
  expect_error("calibration-scales", "inf", with(m.x, CalibrationEntry::per_tensor(INFINITY)));
  expect_error("calibration-scales", "zero point", with(m.x, {{}, {1}, {128}}));
  expect_error("axis-range", "2", with(m.w, CalibrationEntry::per_channel(2, {1})));
  expect_error("calibration-scales", "1 scales", with(m.x, CalibrationEntry::per_channel(0, {1})));
  EXPECT_EQ(insert_q_dq(g, {}), g);
  const Graph q = insert_q_dq(g, {{m.x, CalibrationEntry::per_tensor(0.5)}});
  EXPECT_EQ(q.size(), g.size() + 2);
  Builder b;
  b.output(op::neg(b, b.input("i", {DType::I32, {2}})));
  const Graph ints = b.finish();
  expect_error("calibration-dtype", "only floats",
               [&] { insert_q_dq(ints, {{{0, 0}, CalibrationEntry::per_tensor(1)}}); });
}

}  // namespace
}  // namespace rlx
