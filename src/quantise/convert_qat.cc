// What was trained with fake quantisation, as it runs.
#include <algorithm>
#include <cmath>

#include "rlx/ops/core.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/rules.h"
#include "rlx/quantise/qat.h"
#include "rlx/quantise/run_values.h"
#include "rlx/quantise/stored_weight.h"

namespace rlx {

namespace {

constexpr double kLeastScale = 1e-12;

struct Fake {
  int64_t bits = 8;
  std::optional<int64_t> axis;
  bool from_values = false;  // the scale is the largest magnitude of what is quantised
  double q_max() const { return static_cast<double>((1 << (bits - 1)) - 1); }
};

std::optional<Fake> as_fake(const Node& n) {
  if (n.op == &op::fake_quantize_lsq) return Fake{n.get<LsqAttrs>().bits, n.get<LsqAttrs>().axis};
  if (n.op != &op::fake_quantize) return std::nullopt;
  const auto& f = n.get<FakeQuantizeAttrs>();
  return Fake{f.bits, f.axis, f.scale_mode == ScaleMode::per_batch};
}

// The codes of a weight and the scale of each channel, by the formula of fake_quantize.
struct Codes {
  Tensor codes;  // i8
  std::vector<double> scales;
};

Codes encode(const Tensor& w, const Fake& f, const Tensor* given) {
  int64_t inner = std::max<int64_t>(w.elements(), 1), channels = 1;
  if (f.axis) {
    channels = w.sizes()[at(*f.axis)];
    inner = 1;
    for (size_t i = at(*f.axis) + 1; i < w.sizes().size(); ++i) inner *= w.sizes()[i];
  }
  const auto channel = [&](int64_t i) { return at(i / inner % channels); };
  std::vector<float> scales(at(channels));
  for (int64_t i = 0; i < w.elements(); ++i)
    scales[channel(i)] =
        std::max(scales[channel(i)], std::fabs(static_cast<float>(w.get_float(i))));
  for (size_t c = 0; c < scales.size(); ++c) {
    scales[c] = given ? static_cast<float>(given->get_float(static_cast<int64_t>(c)))
                      : scales[c] / static_cast<float>(f.q_max());
    scales[c] = std::max(scales[c], static_cast<float>(kLeastScale));
  }
  Codes out{Tensor(DType::I8, w.sizes()), {scales.begin(), scales.end()}};
  const auto most = static_cast<float>(f.q_max());
  for (int64_t i = 0; i < w.elements(); ++i) {
    const float code = std::round(static_cast<float>(w.get_float(i)) / scales[channel(i)]);
    out.codes.set_int(i, static_cast<int64_t>(std::clamp(code, -most, most)));
  }
  return out;
}

class Converter {
 public:
  Converter(const Graph& g, const NamedTensors& params, const Device& device)
      : g_(g), params_(params), device_(device), layers_(find_layers(g)) {
    find_fakes();
  }

  Quantised run() {
    Quantised out;
    Graph now = rebuild(g_, [&](Builder& b, int32_t i, Operands in) { return make(b, i, in); });
    std::erase_if(now.updates, [&](const Update& u) { return is_state(u.param); });
    now = run_pass(drop_dead(std::move(now)), pass::fuse_quantised);
    out.report = std::move(report_);
    for (Value v : now.params()) {
      const std::string& name = now.node(v).get<LeafAttrs>().name;
      out.report.bytes_after += now.type(v).bytes();
      if (const auto it = stored_.find(name); it != stored_.end())
        out.params.insert(*it);
      else if (const auto old = params_.find(name); old != params_.end())
        out.params.insert(*old);
    }
    for (Value v : g_.params()) out.report.bytes_before += g_.type(v).bytes();
    out.graph = std::move(now);
    return out;
  }

 private:
  struct Weight {
    Fake fake;
    std::string name;
    Codes codes;
  };

  // Weights are what no input reaches.
  void find_fakes() {
    std::vector<bool> varies(g_.nodes.size());
    std::vector<std::string> names(g_.nodes.size());
    Values wanted;
    std::vector<int32_t> nodes;
    for (int32_t i = 0; i < g_.size(); ++i) {
      const Node& n = g_.node(i);
      bool v = n.op == &op::input || n.op->kind == Kind::random;
      if (n.op == &op::param) names[at(i)] = n.get<LeafAttrs>().name;
      for (Value in : n.in) {
        v = v || varies[at(in.node)];
        if (names[at(i)].empty()) names[at(i)] = names[at(in.node)];
      }
      varies[at(i)] = v;
      const auto fake = as_fake(n);
      if (!fake) continue;
      (varies[at(n.in[0].node)] ? activations_ : weights_)[i] = {
          *fake, names[at(n.in[0].node)], {}};
      if (n.in.size() > 1 && n.op == &op::fake_quantize)
        states_.push_back(g_.node(n.in[1]).op == &op::param ? g_.node(n.in[1]).get<LeafAttrs>().name
                                                            : "");
    }
    user_check(!weights_.empty(), "qat-idle",
               "convert_qat: \"{}\" has no weight that is fake-quantised; prepare_qat makes such a "
               "program",
               g_.name);
    for (auto& [node, w] : weights_) {
      wanted.push_back(g_.node(node).in[0]);
      nodes.push_back(node);
      if (!w.fake.from_values) wanted.push_back(g_.node(node).in[1]);
    }
    const std::vector<Tensor> values = ValueRunner(g_, wanted, params_, device_)({});
    size_t next = 0;
    for (auto& [node, w] : weights_) {
      const Tensor& value = values[next++];
      w.codes = encode(value, w.fake, w.fake.from_values ? nullptr : &values[next++]);
    }
  }

  bool is_state(const std::string& param) const {
    return std::find(states_.begin(), states_.end(), param) != states_.end();
  }

  Values make(Builder& b, int32_t i, Operands in) {
    const Node& n = g_.node(i);
    if (const auto it = weights_.find(i); it != weights_.end())
      return with_state(b, n, in, weight(b, n, it->second));
    if (const auto it = activations_.find(i); it != activations_.end())
      return with_state(b, n, in, activation(b, n, in[0], it->second.fake));
    return b.clone(n, in);
  }
  // ema's second result is not read any more; the state stands in for it.
  static Values with_state(Builder&, const Node& n, Operands in, Value v) {
    Values out{v};
    if (n.out.size() > 1) out.push_back(in[1]);
    return out;
  }

  std::string free_name(const Builder& b, const std::string& wanted) const {
    std::string name = wanted;
    for (int k = 1; g_.find_leaf(name).valid() || b.find_leaf(name).valid(); ++k)
      name = fmt::format("{}_{}", wanted, k);
    return name;
  }
  Value keep(Builder& b, const std::string& wanted, const Tensor& value) {
    const std::string name = free_name(b, wanted);
    stored_.emplace(name, value);
    report_.layers.back().bytes_after += value.type().bytes();
    return b.param(name, value.type());
  }

  Value weight(Builder& b, const Node& n, const Weight& w) {
    const bool nibbles = w.fake.bits <= 4;
    report_.layers.push_back({.name = w.name,
                              .op = "weight",
                              .format = nibbles ? fmt::format("int4 ({} bits)", w.fake.bits)
                                                : fmt::format("int8 ({} bits)", w.fake.bits),
                              .bytes_before = n.type().bytes()});
    if (nibbles) return four_bits(b, n, w);
    const Value codes = keep(b, w.name + ".int8", w.codes.codes);
    report_.layers.back().bytes_after += 4 * static_cast<int64_t>(w.codes.scales.size());
    const QuantizeAttrs q{w.fake.axis, w.codes.scales, Ints(w.codes.scales.size(), 0)};
    return cast_to(b, op::dequantize(b, codes, q), n.type().dtype);
  }

  // Nibbles of [K, N], the channels in columns, read back as the tensor that the weight was.
  Value four_bits(Builder& b, const Node& n, const Weight& w) {
    const Ints sizes = w.codes.codes.sizes();
    const int64_t rank = static_cast<int64_t>(sizes.size()), axis = w.fake.axis.value_or(rank - 1);
    Ints order;  // the channels last
    for (int64_t i = 0; i < rank; ++i)
      if (i != axis) order.push_back(i);
    order.push_back(axis);
    const int64_t columns = sizes[at(axis)],
                  rows = w.codes.codes.elements() / std::max<int64_t>(columns, 1);
    Ints strides(at(rank), 1), moved;
    for (int64_t i = rank - 1; i-- > 0;) strides[at(i)] = strides[at(i + 1)] * sizes[at(i + 1)];
    for (int64_t i : order) moved.push_back(sizes[at(i)]);
    Tensor bytes(DType::U8, {(rows * columns + 1) / 2});
    int64_t place = 0;
    for_each_index(moved, [&](const Ints& index) {
      int64_t from = 0;
      for (size_t i = 0; i < index.size(); ++i) from += index[i] * strides[at(order[i])];
      const int64_t code = w.codes.codes.get_int(from) + 8;
      auto& byte = bytes.mutable_data<uint8_t>()[place / 2];
      byte = static_cast<uint8_t>(byte | (code << (place % 2 ? 4 : 0)));
      ++place;
    });
    Tensor scale(DType::F32, {1, columns}), zero = Tensor::full(DType::F32, {1, columns}, 8);
    for (int64_t c = 0; c < columns; ++c)
      scale.set_float(c, w.codes.scales[w.fake.axis ? at(c) : 0]);
    const QuantScheme scheme{QuantFormat::int4_block, std::max<int64_t>(rows, 1)};
    const Values stored{keep(b, w.name + ".int4", bytes), keep(b, w.name + ".int4.scale", scale),
                        keep(b, w.name + ".int4.zero", zero)};
    const Value matrix = decode_weight(b, scheme, stored, rows, DType::F32);
    Ints back(at(rank));
    for (int64_t i = 0; i < rank; ++i) back[at(order[at(i)])] = i;
    const Value whole = transpose_to(b, reshape_to(b, matrix, Shape::of(moved)), back);
    return cast_to(b, whole, n.type().dtype);
  }

  // i8 codes and back; as it is where all weights have four bits or less, whose products are of floats.
  Value activation(Builder& b, const Node& n, Value x, const Fake& f) {
    const bool integers = std::any_of(weights_.begin(), weights_.end(),
                                      [](const auto& w) { return w.second.fake.bits > 4; });
    if (!integers) return x;
    const double scale = scale_of(n, f);
    const QuantizeAttrs q{{}, {scale}, {0}};
    const Expr codes(b, op::quantize(b, x, q));
    const Value inside = op::clamp(b, codes, codes.like(-f.q_max()), codes.like(f.q_max()));
    return cast_to(b, op::dequantize(b, inside, q), b.type(x).dtype);
  }

  double scale_of(const Node& n, const Fake& f) const {
    const auto refuse = [&](std::string_view why) {
      fail(ErrorKind::user, "qat-scale", "convert_qat: the activation in front of {} {}",
           describe_reader(n), why);
    };
    if (f.from_values || f.axis)
      refuse("has no scale of its own: it is one of each batch or channel");
    const Node& leaf = g_.node(n.in[1]);
    if (leaf.op != &op::param) refuse("has a scale that is no parameter");
    const auto it = params_.find(leaf.get<LeafAttrs>().name);
    if (it == params_.end() || !(it->second.get_float(0) > 0))
      refuse(fmt::format("has the scale {} of 0: it has seen no batch",
                         quote(leaf.get<LeafAttrs>().name)));
    return it->second.get_float(0);
  }
  std::string describe_reader(const Node& n) const {
    return n.origin.label.empty() ? std::string(n.op->name) : quote(n.origin.label.str());
  }

  const Graph& g_;
  const NamedTensors& params_;
  const Device& device_;
  std::vector<Layer> layers_;
  std::map<int32_t, Weight> weights_, activations_;
  std::vector<std::string> states_;
  NamedTensors stored_;
  QuantiseReport report_;
};

}  // namespace

Quantised convert_qat(const Graph& g, const NamedTensors& params, const Device& device) {
  return Converter(g, params, device).run();
}

}  // namespace rlx
