// How many units in the last place elementwise functions are off, from 1e-30 to 1e30 and where they turn: on the CPU and on
// the reference, in f32 and f64, against exact values (tests/golden/ulps.txt).
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

namespace rlx::testing {
namespace {

// Units in the last place of the exact value, of the smallest normal number where it is smaller. Beyond the default bound
// stand names with reasons; tests/golden/ulps.py says for which ops the value is not the measure.
struct Bound {
  double f32 = 4, f64 = 4;
};
const std::map<std::string, Bound> kBounds = {
    // The division, the polynomial and the exponential, each rounded.
    {"normal_cdf", {5, 5}},
    {"gelu", {5, 5}},
    // A power n + 1 of a rounded cotangent for x < 0.
    {"polygamma", {4, 12}},
};

// x times a factor: where the factor is denormal its last place, times x, is that of the product.
const std::set<std::string> kProducts = {"gelu", "gelu_tanh", "quick_gelu",
                                         "silu", "mish",      "swiglu"};

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
  double x, y = 0, value, scale;
};
struct Section {
  std::string op, attrs;
  bool two = false;
  std::vector<Point> points;
};

std::vector<Section> read_sections() {
  std::ifstream file(RLX_SOURCE_DIR "/tests/golden/ulps.txt");
  std::vector<Section> out;
  std::string line;
  std::getline(file, line);  // versions
  const std::set<std::string> two = {"div",       "pow",   "hypot",  "atan2",
                                     "logaddexp", "xlogy", "swiglu", "prelu"};
  while (std::getline(file, line)) {
    if (line.starts_with("op ")) {
      const size_t brace = line.find('{');
      const std::string name = line.substr(3, brace == line.npos ? line.npos : brace - 4);
      out.push_back({name, brace == line.npos ? "" : line.substr(brace), two.contains(name), {}});
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
  const double unit = unit_at(std::min(p.scale, largest), d);
  const double factors = kProducts.contains(s.op) ? std::max(std::fabs(p.x), std::fabs(p.y)) : 0;
  return std::fabs(got - p.value) / std::max(unit, unit_at(0, d) * factors);
}

struct Worst {
  double units = 0;
  Point at{};
  double got = 0;
};

void check(DType d) {
  const std::vector<Section> sections = read_sections();
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
    b.output(b.emit(*op, read_attrs(*op, s.attrs), in)[0]);
  }
  const Graph g = b.finish();
  const Tensors reference = evaluate(g, operands);
  const Tensors cpu = Session(Device::cpu).compile(g, {.threads = 1}).run(inputs);
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& s = sections[i];
    const auto listed = kBounds.find(s.op);
    const Bound bound = listed == kBounds.end() ? Bound{} : listed->second;
    const double most = d == DType::F32 ? bound.f32 : bound.f64;
    for (const auto& [where, results] : {std::pair{"cpu", &cpu}, {"reference", &reference}}) {
      Worst worst;
      for (size_t k = 0; k < s.points.size(); ++k) {
        const double got = (*results)[i].get_float(static_cast<int64_t>(k));
        const double off = units_off(s, s.points[k], got, d);
        if (off > worst.units) worst = {off, s.points[k], got};
      }
      EXPECT_LE(worst.units, most)
          << s.op << s.attrs << " in " << to_string(d) << " on the " << where << ": at "
          << worst.at.x << (s.two ? ", " + std::to_string(worst.at.y) : "") << " it is "
          << worst.got << ", not " << worst.at.value;
    }
  }
}

TEST(Ulps, F32) { check(DType::F32); }
TEST(Ulps, F64) { check(DType::F64); }

// Ops that map floats to floats element by element, as far as the table can tell.
TEST(Ulps, EveryElementwiseOpIsListed) {
  std::set<std::string> listed;
  for (const Section& s : read_sections()) listed.insert(s.op);
  for (const auto& [op, family] : op_table().entries()) {
    const bool each = op->kind == Kind::elementwise ||
                      (op->kind == Kind::composite && op->vmap == vmap_elementwise);
    if (!each || op->arity < 1 || !op->dtypes.has(DType::F32) || !op->dtypes.has(DType::F64))
      continue;
    if (op->not_differentiable == "the result is bool") continue;
    const std::string name(op->name);
    EXPECT_NE(listed.contains(name), kNotListed.contains(name)) << name;
  }
}

}  // namespace
}  // namespace rlx::testing
