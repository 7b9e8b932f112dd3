// How many units in the last place elementwise functions and their first and second derivatives are off, from 1e-30 to 1e30
// and where they turn: on the CPU and on the reference, in f32 and f64, against exact values (tests/golden/ulps.txt and
// slopes.txt).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "../support/samples.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/ops/rules.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/reverse.h"

namespace rlx::testing {
namespace {

// Units in the last place of the exact value, of the smallest normal number where it is smaller. Beyond the default bound
// stand names with reasons; tests/golden/ulps.py says for which ops the value is not the measure.
struct Bound {
  double f32, f64;
};
struct Bounds {
  Bound others;
  std::map<std::string, Bound> named;
};
const Bounds kBounds = {{4, 4},
                        {
                            // The division, the polynomial and the exponential, each rounded.
                            {"normal_cdf", {5, 5}},
                            {"gelu", {5, 5}},
                            // A power n + 1 of a rounded cotangent for x < 0.
                            {"polygamma", {4, 12}},
                        }};

// Of first and second derivatives: sums, products and quotients of a few such functions, each rounded.
const Bounds kSlopeBounds = {
    {6, 6},
    {
        // A power n + 1 of a rounded cotangent for x < 0.
        {"digamma", {4, 14}},
        {"polygamma", {4, 16}},
        // The fifth power of a rounded root.
        {"cbrt", {10, 16}},
        // The fourth power of a rounded root, in the difference of two terms.
        {"atan2", {8, 10}},
    }};

// x times a factor: where the factor is denormal its last place, times x, is that of the product.
const std::set<std::string> kProducts = {"gelu", "gelu_tanh", "quick_gelu",
                                         "silu", "mish",      "swiglu"};
// Derivatives of which the same holds.
const std::set<std::string> kSlopeProducts = {"normal_pdf", "erf", "erfc"};

// Ops without values in the file.
const std::map<std::string, std::string> kNotListed = {
    {"add", "one rounding of IEEE arithmetic"},
    {"sub", "one rounding of IEEE arithmetic"},
    {"mul", "one rounding of IEEE arithmetic"},
    {"rem", "exact by IEEE"},
    {"mod", "exact by IEEE but for one sum"},
    {"floor_div", "whole numbers"},
    {"maximum", "one of the operands"},
    {"minimum", "one of the operands"},
    {"copysign", "one of the operands"},
    {"heaviside", "0, 1 or an operand"},
    {"select", "one of the operands"},
    {"clamp", "one of the operands"},
    {"lerp", "a difference of the operands: cancels with them"},
    {"conj", "x itself for real x"},
    {"cast", "cast.jsonl has every pair of dtypes"},
};

struct Point {
  double x, y = 0, value, scale, one = 1;
};
struct Section {
  std::string op, attrs,
      by;  // by which of the operands x and y it is differentiated: "", "x", "x y"
  bool two = false;
  std::vector<Point> points;
};

// "op NAME {attributes} by x x"
Section read_heading(std::string line) {
  static const std::set<std::string> kTwo = {"div",       "pow",   "hypot",  "atan2",
                                             "logaddexp", "xlogy", "swiglu", "prelu"};
  Section s;
  if (const size_t by = line.find(" by "); by != line.npos)
    s.by = line.substr(by + 4), line.resize(by);
  if (const size_t brace = line.find(" {"); brace != line.npos)
    s.attrs = line.substr(brace + 1), line.resize(brace);
  s.op = line.substr(3);
  s.two = kTwo.contains(s.op);
  return s;
}

std::vector<Section> read_sections(const std::string& name) {
  std::ifstream file(RLX_SOURCE_DIR "/tests/golden/" + name);
  std::vector<Section> out;
  std::string line;
  std::getline(file, line);  // versions
  while (std::getline(file, line)) {
    if (line.starts_with("op ")) {
      out.push_back(read_heading(line));
      continue;
    }
    std::vector<double> numbers;
    std::istringstream words(line);
    for (std::string word; words >> word;) numbers.push_back(std::strtod(word.c_str(), nullptr));
    Section& s = out.back();
    size_t at = 0;
    Point p;
    p.x = numbers[at++];
    if (s.two) p.y = numbers[at++];
    p.value = numbers[at++];
    p.scale = at < numbers.size() ? numbers[at] : std::fabs(p.value);
    s.points.push_back(p);
  }
  return out;
}

// Of the numbers of a dtype around |v|.
double unit_at(double v, DType d) {
  const int bits = d == DType::F32 ? 23 : 52, low = d == DType::F32 ? -126 : -1022;
  const int exponent = v == 0 ? low : std::ilogb(v);
  return std::ldexp(1.0, std::max(exponent, low) - bits);
}

// How far a result is off, in units; infinity where it is of another kind.
double units_off(const Section& s, const Point& p, double got, DType d) {
  const double largest = d == DType::F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
  if (std::isnan(got)) return INFINITY;
  if (std::fabs(p.value) > largest)  // overflows; the largest number is a unit away
    return std::fabs(got) >= largest && std::signbit(got) == std::signbit(p.value) ? 0 : INFINITY;
  if (std::isinf(got)) return std::fabs(p.value) >= largest * (1 - 0x1p-20) ? 1 : INFINITY;
  double unit = unit_at(std::min(p.scale, largest), d);
  const bool product = kProducts.contains(s.op) || (!s.by.empty() && kSlopeProducts.contains(s.op));
  double factors = product ? std::max(std::fabs(p.x), std::fabs(p.y)) : 0;
  if (!s.by.empty()) {  // a derivative is a product whose factors may underflow before it does
    const double least = d == DType::F32 ? 0x1p-126 : 0x1p-1022;
    if (std::fabs(p.value) < least) unit = std::max(unit, least);
    factors *= std::max(1.0, factors);
  }
  return std::fabs(got - p.value) / std::max(unit, unit_at(0, d) * factors);
}

// The derivative by the operands that `by` names, in order.
Value differentiated(Builder& b, Value y, Operands in, const std::string& by, Value ones) {
  for (size_t i = 0; i < by.size() && y.valid(); i += 2) {
    const Value wrt[] = {in[by[i] == 'x' ? 0 : 1]};
    y = reverse(b, {&y, 1}, {&ones, 1}, wrt)[0];
  }
  return y;
}

struct Worst {
  double units = 0;
  Point at{};
  double got = 0;
};

void check(DType d, const std::string& file, const Bounds& bounds) {
  const std::vector<Section> sections = read_sections(file);
  Builder b("functions");
  NamedTensors inputs;
  Tensors operands;
  auto input = [&](const std::string& name, const Section& s, double Point::* part) {
    Tensor t(d, {static_cast<int64_t>(s.points.size())});
    for (size_t i = 0; i < s.points.size(); ++i)
      t.set_float(static_cast<int64_t>(i), s.points[i].*part);
    inputs.emplace(name, t);
    operands.push_back(t);
    return b.input(name, t.type());
  };
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& s = sections[i];
    const OpDef* op = op_table().find(s.op);
    ASSERT_NE(op, nullptr) << s.op;
    const std::string name = "x" + std::to_string(i);
    Values in{input(name, s, &Point::x)};
    if (s.two) in.push_back(input(name + "b", s, &Point::y));
    Value y = b.emit(*op, read_attrs(*op, s.attrs), in)[0];
    if (!s.by.empty()) {
      const Value ones = input(name + "ones", s, &Point::one);
      y = differentiated(b, y, in, s.by, ones);
      if (!y.valid()) y = op::sub(b, ones, ones);  // no path: zero
    }
    b.output(y);
  }
  const Graph g = b.finish();
  const Tensors reference = evaluate(g, operands);
  const Tensors cpu = Session("cpu").compile(g, {.threads = 1}).run(inputs);
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& s = sections[i];
    const auto named = bounds.named.find(s.op);
    const Bound bound = named == bounds.named.end() ? bounds.others : named->second;
    const double most = d == DType::F32 ? bound.f32 : bound.f64;
    for (const auto& [where, results] : {std::pair{"cpu", &cpu}, {"reference", &reference}}) {
      Worst worst;
      for (size_t k = 0; k < s.points.size(); ++k) {
        const double got = (*results)[i].get_float(static_cast<int64_t>(k));
        const double off = units_off(s, s.points[k], got, d);
        if (off > worst.units) worst = {off, s.points[k], got};
      }
      EXPECT_LE(worst.units, most) << s.op << s.attrs << (s.by.empty() ? "" : " by " + s.by)
                                   << " in " << to_string(d) << " on the " << where << ": at "
                                   << worst.at.x << (s.two ? ", " + std::to_string(worst.at.y) : "")
                                   << " it is " << worst.got << ", not " << worst.at.value;
    }
  }
}

TEST(Ulps, F32) { check(DType::F32, "ulps.txt", kBounds); }
TEST(Ulps, F64) { check(DType::F64, "ulps.txt", kBounds); }
TEST(Ulps, SlopesF32) { check(DType::F32, "slopes.txt", kSlopeBounds); }
TEST(Ulps, SlopesF64) { check(DType::F64, "slopes.txt", kSlopeBounds); }

// Of target 0 it is softplus(x), of target 1 softplus(-x), whichever is small; the slopes are those of softplus.
TEST(Ulps, BinaryCrossEntropy) {
  for (const std::string file : {"ulps.txt", "slopes.txt"})
    for (const Section& s : read_sections(file)) {
      if (s.op != "softplus") continue;
      const auto size = static_cast<int64_t>(s.points.size());
      for (const double target : {0.0, 1.0}) {
        const double sign = target == 0 ? 1 : -1;
        Tensor at(DType::F32, {size}), one(DType::F32, {size}), targets(DType::F32, {size});
        for (int64_t i = 0; i < size; ++i) {
          at.set_float(i, sign * s.points[static_cast<size_t>(i)].x);
          one.set_float(i, 1);
          targets.set_float(i, target);
        }
        Builder b("loss");
        const Value x = b.input("x", at.type()), t = b.input("t", at.type()),
                    ones = b.input("ones", at.type()), in[] = {x};
        const Value loss = op::bce_with_logits_loss(b, x, t, LossAttrs{Reduction::none});
        b.output(differentiated(b, loss, in, s.by, ones));
        const Graph g = b.finish();
        const Tensors operands{at, targets, one}, got = evaluate(g, operands);
        const double odd = s.by == "x" ? sign : 1;
        for (int64_t i = 0; i < size; ++i) {
          const Point& p = s.points[static_cast<size_t>(i)];
          EXPECT_LE(units_off(s, p, odd * got[0].get_float(i), DType::F32), 4)
              << "target " << target << " by " << s.by << " at " << sign * p.x;
        }
      }
    }
}

// Straight lines between points: there is no second derivative.
std::set<std::string> lines() {
  std::set<std::string> out;
  std::istringstream words(
      "neg abs relu relu6 leaky_relu prelu hard_tanh softshrink hardshrink threshold deg2rad "
      "rad2deg "
      "thresholded_relu nan_to_num frac hard_sigmoid round_straight_through");
  for (std::string word; words >> word;) out.insert(word);
  return out;
}

// Ops that map floats to floats element by element, as far as the table can tell.
TEST(Ulps, EveryElementwiseOpIsListed) {
  const std::set<std::string> straight = lines();
  std::set<std::string> listed, slopes;
  for (const Section& s : read_sections("ulps.txt")) listed.insert(s.op);
  for (const Section& s : read_sections("slopes.txt")) slopes.insert(s.op + " by " + s.by);
  for (const auto& [op, family] : op_table().entries()) {
    const bool each = op->kind == Kind::elementwise ||
                      (op->kind == Kind::composite && op->vmap == vmap_elementwise);
    if (!each || op->arity < 1 || !op->dtypes.has(DType::F32) || !op->dtypes.has(DType::F64))
      continue;
    if (op->not_differentiable == "the result is bool") continue;
    const std::string name(op->name);
    EXPECT_NE(listed.contains(name), kNotListed.contains(name)) << name;
    if (!listed.contains(name)) continue;
    const bool has = op->not_differentiable.empty();
    for (const std::string by : {"x", "y", "x x", "x y", "y y"}) {
      if (by.back() == 'y' && op->arity < 2) continue;
      const bool smooth = by.size() == 1 || !straight.contains(name);
      EXPECT_EQ(has && smooth, slopes.contains(name + " by " + by)) << name << " by " << by;
    }
  }
}

}  // namespace
}  // namespace rlx::testing
