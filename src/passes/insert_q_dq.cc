#include "rlx/passes/insert_q_dq.h"

#include <charconv>
#include <cmath>

#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/rules.h"

namespace rlx {

namespace {

// What a message calls a tap: the leaf's name, else "%7 add".
std::string name_of_tap(const Graph& g, Value v) {
  const Node& n = g.node(v);
  if (n.op == &op::input || n.op == &op::param) return quote(n.get<LeafAttrs>().name);
  return fmt::format("{} {}", v, n.op->name);
}

template <class List>
List one_per_channel(const List& list, const Dim& channels) {
  if (list.size() != 1 || !channels.is_static()) return list;
  return List(at(channels.value()), list[0]);
}

// The attributes of both ops for a tap; checks the entry.
QuantizeAttrs quantize_attrs(const Graph& g, Value tap, const CalibrationEntry& entry) {
  user_check(tap.node >= 0 && tap.node < g.size() && tap.index >= 0 &&
                 at(tap.index) < g.node(tap).out.size(),
             "calibration-tap", "insert_q_dq: \"{}\" has no value {}", g.name, tap);
  const Type& type = g.type(tap);
  user_check(is_float(type.dtype), "calibration-dtype",
             "insert_q_dq: the tap {} is {}; only floats are quantised", name_of_tap(g, tap), type);
  QuantizeAttrs q{entry.axis, entry.scales, entry.zero_points};
  Dim channels = 1;
  if (q.axis) {
    q.axis = normalise_axis(*q.axis, type.rank(), "insert_q_dq");
    channels = type.shape[at(*q.axis)];
    q.scales = one_per_channel(q.scales, channels);
    q.zero_points = one_per_channel(q.zero_points, channels);
  }
  user_check(
      Dim(static_cast<int64_t>(q.scales.size())) == channels &&
          q.zero_points.size() == q.scales.size(),
      "calibration-scales",
      "insert_q_dq: the tap {} has {} scales and {} zero points; each is one, or one for each "
      "of {} channels",
      name_of_tap(g, tap), entry.scales.size(), entry.zero_points.size(), channels);
  for (double s : q.scales)
    user_check(s > 0 && std::isfinite(static_cast<float>(s)) && static_cast<float>(s) > 0,
               "calibration-scales",
               "insert_q_dq: a scale of the tap {} is {}; it must be positive and finite in f32",
               name_of_tap(g, tap), s);
  for (int64_t z : q.zero_points)
    user_check(z >= -128 && z <= 127, "calibration-scales",
               "insert_q_dq: a zero point of the tap {} is {}; it must be an i8",
               name_of_tap(g, tap), z);
  return q;
}

Value quantised_and_back(Builder& b, Value v, const QuantizeAttrs& q) {
  const DType dtype = b.type(v).dtype;
  return cast_to(b, op::dequantize(b, op::quantize(b, v, q), q), dtype);
}

}  // namespace

Graph insert_q_dq(const Graph& g, const CalibrationRecord& record) {
  return insert_q_dq(g, record, [](int32_t) { return true; });
}

Graph insert_q_dq(const Graph& g, const CalibrationRecord& record,
                  FunctionRef<bool(int32_t node)> reads_dequantised) {
  std::map<Value, QuantizeAttrs> attrs;
  for (const auto& [tap, entry] : record) attrs.emplace(tap, quantize_attrs(g, tap, entry));
  if (attrs.empty()) return g;
  Builder b(g.name);
  ResultMap<Values> plain(g), dequantised(g);
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    b.set_origin(n.origin);
    plain[i] = b.clone(n, reads_dequantised(i) ? dequantised.at(n.in) : plain.at(n.in));
    dequantised[i] = plain[i];
    b.set_pass("insert_q_dq");
    for (auto it = attrs.lower_bound({i, 0}); it != attrs.end() && it->first.node == i; ++it) {
      Value& v = dequantised[i][at(it->first.index)];
      v = quantised_and_back(b, v, it->second);
    }
  }
  const auto& out = reads_dequantised(g.size()) ? dequantised : plain;
  for (Value v : g.outputs) b.output(out.at(v));
  for (const Update& u : g.updates) b.update(u.param, out.at(u.value));
  return drop_dead(b.finish(), true);
}

// ---- as a pass

namespace {

constexpr PassArgument kTapArguments[] = {{"taps",
                                           "name|name: each a leaf or %number, then @axis where "
                                           "scales are of channels, :scale/scale and, "
                                           "where they are not 0, :zero/zero"}};

template <class T>
std::vector<T> read_numbers(std::string_view tap, std::string_view text) {
  std::vector<T> out;
  while (true) {
    const std::string_view word = text.substr(0, text.find('/'));
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    user_check(error == std::errc() && end == word.data() + word.size() && !word.empty(),
               "pass-option", "insert_q_dq: the tap {}: expected a number, got {}", quote(tap),
               quote(word));
    out.push_back(value);
    if (word.size() == text.size()) return out;
    text.remove_prefix(word.size() + 1);
  }
}

Value find_tap(const Graph& g, std::string_view name) {
  Value v = g.find_leaf(name);
  if (!v.valid() && name.starts_with('%')) {
    const auto number = read_numbers<int64_t>(name, name.substr(1));
    if (number.size() == 1 && number[0] >= 0 && number[0] < g.size())
      v = {static_cast<int32_t>(number[0]), 0};
  }
  user_check(v.valid(), "calibration-tap", "insert_q_dq: \"{}\" has no value {}", g.name,
             quote(name));
  return v;
}

CalibrationRecord record_of(const Graph& g, const PassOptions& o) {
  CalibrationRecord out;
  for (const std::string& tap : o.list("taps")) {
    const std::string_view text = tap;
    const size_t colon = text.find(':');
    user_check(colon != text.npos, "pass-option",
               "insert_q_dq: expected name:scale, got the tap {}", quote(tap));
    std::string_view name = text.substr(0, colon), scales = text.substr(colon + 1), zeros;
    if (const size_t second = scales.find(':'); second != scales.npos) {
      zeros = scales.substr(second + 1);
      scales = scales.substr(0, second);
    }
    CalibrationEntry entry;
    if (const size_t sign = name.rfind('@'); sign != name.npos) {
      entry.axis = read_numbers<int64_t>(tap, name.substr(sign + 1))[0];
      name = name.substr(0, sign);
    }
    entry.scales = read_numbers<double>(tap, scales);
    entry.zero_points =
        zeros.empty() ? Ints(entry.scales.size(), 0) : Ints(read_numbers<int64_t>(tap, zeros));
    out[find_tap(g, name)] = entry;
  }
  return out;
}

}  // namespace

constinit const Pass pass::insert_q_dq{
    .name = "insert_q_dq",
    .doc = "Values become i8 codes and back, with the scales that are given.",
    .run = [](Graph&& g, const PassOptions& o) { return rlx::insert_q_dq(g, record_of(g, o)); },
    .in_bodies = false,
    .arguments = kTapArguments};

}  // namespace rlx
