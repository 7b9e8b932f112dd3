#include "rlx/quantise/qat.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rlx/ops/core.h"
#include "rlx/ops/rules.h"
#include "rlx/quantise/run_values.h"

namespace rlx {

namespace {

double largest_code(int64_t bits) { return static_cast<double>((1 << (bits - 1)) - 1); }

void check_bits(const QatOptions& o) {
  for (int64_t bits : {o.weight_bits, o.activation_bits ? o.activation_bits : 8})
    user_check(bits >= 2 && bits <= 8, "quant-bits",
               "prepare_qat: bits must be 2 to 8 (activations: or 0), not {}", bits);
}

// 2 mean|x| / sqrt(q_max) of each channel (Esser et al., Learned Step Size Quantization).
class StepSize {
 public:
  explicit StepSize(std::optional<int64_t> axis) : axis_(axis) {}
  void add(const Tensor& t) {
    int64_t inner = 1;
    if (axis_)
      for (size_t i = at(*axis_) + 1; i < t.sizes().size(); ++i) inner *= t.sizes()[i];
    sums_.resize(axis_ ? at(t.sizes()[at(*axis_)]) : 1);
    for (int64_t i = 0; i < t.elements(); ++i)
      sums_[axis_ ? at(i / inner) % sums_.size() : 0] += std::fabs(t.get_float(i));
    count_ += static_cast<double>(t.elements()) / static_cast<double>(sums_.size());
  }
  Tensor value(DType dtype, int64_t bits) const {
    Tensor out(dtype, {static_cast<int64_t>(sums_.size())});
    for (size_t i = 0; i < sums_.size(); ++i)
      out.set_float(static_cast<int64_t>(i),
                    std::max(1e-6, 2 * sums_[i] / count_ / std::sqrt(largest_code(bits))));
    return out;
  }

 private:
  std::optional<int64_t> axis_;
  std::vector<double> sums_;
  double count_ = 0;
};

class Preparer {
 public:
  Preparer(const Graph& g, const NamedTensors& params, const QatOptions& o, Batches data)
      : o_(o), data_(data), g_(plain_products(g)), b_(g.name) {
    check_bits(o);
    out_.params = params;
    for (Value v : g_.params())
      if (const std::string& name = g_.node(v).get<LeafAttrs>().name;
          is_float(g_.type(v).dtype) &&
          std::none_of(g_.updates.begin(), g_.updates.end(),
                       [&](const Update& u) { return u.param == name; }))
        out_.trained.push_back(name);
    layers_ = find_layers(g_);
    std::erase_if(layers_, [&](const Layer& l) { return g_.node(l.node).op == &op::gather; });
    const auto formats = choose_formats(g_, layers_, "int8", o.ops, o.layers);
    for (size_t k = 0; k < layers_.size(); ++k)
      if (formats[k].kind != LayerFormat::Kind::keep && layers_[k].has_weight)
        chosen_[layers_[k].node] = &layers_[k];
    user_check(!chosen_.empty(), "policy-idle", "prepare_qat: no layer of \"{}\" is quantised",
               g_.name);
    find_steps();
  }

  QatProgram run() {
    ResultMap<Values> map(g_);
    for (int32_t i = 0; i < g_.size(); ++i) {
      const Node& n = g_.node(i);
      b_.set_origin(n.origin);
      Values in = map.at(n.in);
      if (const auto it = chosen_.find(i); it != chosen_.end())
        quantise_operands(n, *it->second, in);
      map[i] = b_.clone(n, in);
    }
    for (Value v : g_.outputs) b_.output(map.at(v));
    for (const Update& u : g_.updates) b_.update(u.param, map.at(u.value));
    for (const auto& [name, value] : states_) b_.update(name, value);
    out_.graph = b_.finish();
    return std::move(out_);
  }

 private:
  void quantise_operands(const Node& n, const Layer& l, Values& in) {
    b_.set_pass("prepare_qat");
    if (o_.activation_bits) in[l.x] = fake_activation(n.in[l.x], in[l.x], l);
    in[l.weight] = fake_weight(n.in[l.weight], in[l.weight], l);
  }

  std::string new_param(const std::string& name) const {
    user_check(!g_.find_leaf(name).valid(), "leaf-name",
               "prepare_qat: \"{}\" has a leaf {} already", g_.name, quote(name));
    return name;
  }

  Value learned(Value old, Value v, const std::string& name, int64_t bits,
                std::optional<int64_t> axis) {
    const Tensor& first = steps_.at(old);
    const Value scale = b_.param(new_param(name), first.type());
    out_.params.insert({name, first});
    out_.trained.push_back(name);
    return op::fake_quantize_lsq(b_, v, scale,
                                 {.bits = bits, .axis = axis, .gradient_scale = true});
  }

  Value fake_weight(Value old, Value v, const Layer& l) {
    if (const auto it = faked_.find(old); it != faked_.end()) return it->second;
    const Value fake =
        o_.learned ? learned(old, v, l.name + ".w_scale", o_.weight_bits, l.channel_axis)
                   : b_.emit(op::fake_quantize.def,
                             FakeQuantizeAttrs{
                                 .bits = o_.weight_bits, .axis = l.channel_axis, .ste = o_.ste},
                             Values{v})[0];
    return faked_[old] = fake;
  }

  Value fake_activation(Value old, Value v, const Layer& l) {
    if (const auto it = faked_.find(old); it != faked_.end()) return it->second;
    const std::string name = l.name + ".x_scale";
    if (o_.learned) return faked_[old] = learned(old, v, name, o_.activation_bits, std::nullopt);
    const Type type{wide_of(b_.type(v).dtype), {1}};
    const Value state = b_.param(new_param(name), type);
    out_.params.insert({name, Tensor(type.dtype, {1})});
    const Values both = b_.emit(op::fake_quantize.def,
                                FakeQuantizeAttrs{.bits = o_.activation_bits,
                                                  .ste = o_.ste,
                                                  .scale_mode = ScaleMode::ema,
                                                  .decay = o_.decay},
                                Values{v, state});
    states_.emplace_back(name, both[1]);
    return faked_[old] = both[0];
  }

  // The first values of learned scales. What several layers read is quantised as the first of them wants it.
  void find_steps() {
    if (!o_.learned) return;
    Values weights, values;
    std::vector<std::optional<int64_t>> axes;
    for (const auto& [node, l] : chosen_) {
      const Node& n = g_.node(node);
      weights.push_back(n.in[l->weight]);
      axes.push_back(l->channel_axis);
      if (o_.activation_bits) values.push_back(n.in[l->x]);
    }
    user_check(
        values.empty() || !data_.empty(), "calibration-data",
        "prepare_qat: learned scales of activations begin at what data says, and there is none");
    const std::vector<Tensor> held = ValueRunner(g_, weights, out_.params)({});
    for (size_t k = 0; k < weights.size(); ++k)
      add_step(weights[k], axes[k], {&held[k], 1}, o_.weight_bits);
    if (values.empty()) return;
    ValueRunner run(g_, values, out_.params);
    std::vector<std::vector<Tensor>> seen(values.size());
    for (const NamedTensors& batch : data_) {
      const std::vector<Tensor> out = run(batch);
      for (size_t k = 0; k < out.size(); ++k) seen[k].push_back(out[k]);
    }
    for (size_t k = 0; k < values.size(); ++k)
      add_step(values[k], std::nullopt, seen[k], o_.activation_bits);
  }
  void add_step(Value v, std::optional<int64_t> axis, std::span<const Tensor> seen, int64_t bits) {
    StepSize step(axis);
    for (const Tensor& t : seen) step.add(t);
    steps_.try_emplace(v, step.value(wide_of(g_.type(v).dtype), bits));
  }

  const QatOptions& o_;
  Batches data_;
  Graph g_;
  Builder b_;
  std::vector<Layer> layers_;
  std::map<int32_t, const Layer*> chosen_;
  std::map<Value, Tensor> steps_;
  std::map<Value, Value> faked_;  // by values of g_
  std::vector<std::pair<std::string, Value>> states_;
  QatProgram out_;
};

}  // namespace

QatProgram prepare_qat(const Graph& g, const NamedTensors& params, const QatOptions& options,
                       Batches data) {
  return Preparer(g, params, options, data).run();
}

}  // namespace rlx
