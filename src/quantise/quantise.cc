#include "rlx/quantise/quantise.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "rlx/ops/core.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/rules.h"
#include "rlx/quantise/bake.h"
#include "rlx/quantise/run_values.h"
#include "rlx/quantise/stored_weight.h"

namespace rlx {

namespace {

using Kind = LayerFormat::Kind;

int64_t bytes_of_params(const Graph& g) {
  int64_t sum = 0;
  for (Value v : g.params())
    if (!has_symbols(g.node(v))) sum += g.type(v).bytes();
  return sum;
}

// Why a layer's product cannot be one of integers; "" where it can.
std::string refuse_int8(const Graph& g, const Layer& l) {
  const Node& n = g.node(l.node);
  if (n.op == &op::gather) return "int8 is for products and convolutions; rows take ggml's formats";
  for (Value v : n.in)
    if (g.type(v).dtype != DType::F32)
      return fmt::format("it is computed in {}, not in f32", g.type(v).dtype);
  const Shape& w = g.type(n.in[l.weight]).shape;
  if (!w[at(l.channel_axis)].is_static()) return "the number of output channels is a symbol";
  return "";
}

// One quantisation of a program under way: the program has the values of its layers as further outputs, by which passes
// leave them to be found.
class Quantiser {
 public:
  Quantiser(const Graph& g, const NamedTensors& params, Batches data, const QuantiseOptions& o)
      : params_(params), data_(data), options_(o), plain_(plain_products(g)) {
    layers_ = find_layers(plain_);
    formats_ = choose_formats(plain_, layers_, o.format, o.ops, o.layers);
    outputs_ = plain_.outputs.size();
    watched_ = plain_;
    for (const Layer& l : layers_) watched_.outputs.push_back(l.value());
    for (size_t k = 0; k < layers_.size(); ++k) rows_.push_back(begin_row(k));
    check_any();
  }

  Quantised run() {
    Graph now = store_weights(with_codes(watched_));
    now = run_pass(std::move(now), pass::fuse_quantised);
    note_unfused(now);
    Quantised out;
    bake_codes(now, params_, baked_, options_.calibration.device);
    out.report.layers = rows_;
    if (options_.measure && !data_.empty()) measure(now, out.report);
    now.outputs.resize(outputs_);
    out.graph = drop_dead(std::move(now));
    for (Value v : out.graph.params()) {
      const std::string& name = out.graph.node(v).get<LeafAttrs>().name;
      if (const auto it = baked_.find(name); it != baked_.end())
        out.params.insert(*it);
      else if (const auto old = params_.find(name); old != params_.end())
        out.params.insert(*old);
    }
    out.report.bytes_before = bytes_of_params(plain_);
    out.report.bytes_after = bytes_of_params(out.graph);
    return out;
  }

 private:
  // What a layer's row says before anything is done; formats_ keeps the layers that are refused.
  LayerReport begin_row(size_t k) {
    const Layer& l = layers_[k];
    const Node& n = plain_.node(l.node);
    LayerReport row{.name = l.name, .op = std::string(n.op->name), .format = "float"};
    if (l.has_weight) row.bytes_before = row.bytes_after = plain_.type(n.in[l.weight]).bytes();
    LayerFormat& f = formats_[k];
    if (f.kind == Kind::keep) {
      row.skipped = "the policy keeps it";
      return row;
    }
    row.skipped =
        f.kind == Kind::int8 ? refuse_int8(plain_, l) : refuse_scheme(plain_, l, f.scheme);
    if (row.skipped.empty())
      row.format = f.to_string();
    else
      f = {};
    return row;
  }

  void check_any() const {
    const auto kept = [](const LayerFormat& f) { return f.kind == Kind::keep; };
    if (!std::all_of(formats_.begin(), formats_.end(), kept)) return;
    std::string why;
    for (const LayerReport& r : rows_) why += fmt::format("; {}: {}", r.name, r.skipped);
    fail(ErrorKind::user, "policy-idle", "quantise: no layer of \"{}\" is quantised{}", plain_.name,
         why.empty() ? "; it has none" : why);
  }

  // Where layer k is in a graph that came of watched_.
  Value layer_in(const Graph& g, size_t k) const { return g.outputs[outputs_ + k]; }

  // Quantize and dequantize in front of the int8 layers.
  Graph with_codes(const Graph& g) {
    std::vector<Layer> chosen;
    std::set<int32_t> nodes;
    for (size_t k = 0; k < layers_.size(); ++k)
      if (formats_[k].kind == Kind::int8)
        chosen.push_back(layers_[k]), nodes.insert(layers_[k].node);
    if (chosen.empty()) return g;
    const auto taps = default_taps(g, chosen, options_.calibration.per_channel);
    const CalibrationRecord record = calibrate(g, params_, data_, options_.calibration, taps);
    for (size_t k = 0; k < layers_.size(); ++k) {
      if (formats_[k].kind != Kind::int8 || !layers_[k].has_weight) continue;
      const Value w = g.node(layers_[k].node).in[layers_[k].weight];
      rows_[k].bytes_after =
          g.type(w).shape.elements().value() + 4 * static_cast<int64_t>(record.at(w).scales.size());
    }
    return insert_q_dq(g, record, [&](int32_t i) { return nodes.contains(i); });
  }

  // The weights that schemes hold, as new parameters. g came of watched_ node by node.
  Graph store_weights(const Graph& g) {
    std::map<int32_t, size_t> by_node;
    Values weights;
    std::vector<size_t> which;
    for (size_t k = 0; k < layers_.size(); ++k) {
      if (formats_[k].kind != Kind::weight) continue;
      by_node[layer_in(g, k).node] = k;
      weights.push_back(plain_.node(layers_[k].node).in[layers_[k].weight]);
      which.push_back(k);
    }
    if (which.empty()) return g;
    const std::vector<Tensor> values =
        ValueRunner(plain_, weights, params_, options_.calibration.device)({});
    std::map<size_t, Tensor> matrices;
    for (size_t i = 0; i < which.size(); ++i) {
      check_finite(layers_[which[i]].name, values[i]);
      matrices.emplace(which[i], weight_matrix(plain_, layers_[which[i]], values[i]));
    }
    return rebuild(g, [&](Builder& b, int32_t i, Operands in) -> Values {
      const auto it = by_node.find(i);
      if (it == by_node.end()) return b.clone(g.node(i), in);
      const size_t k = it->second;
      return {layer_over_stored(b, g.node(i), layers_[k], in, formats_[k].scheme,
                                stored(b, k, matrices.at(k)))};
    });
  }

  static void check_finite(const std::string& name, const Tensor& t) {
    for (int64_t i = 0; i < t.elements(); ++i)
      user_check(std::isfinite(t.get_float(i)), "calibration-value",
                 "quantise: the weight of {} has {}", name, t.get_float(i));
  }

  // The parameters that hold layer k's weight.
  Values stored(Builder& b, size_t k, const Tensor& matrix) {
    Values out;
    rows_[k].bytes_after = 0;
    for (const auto& [ending, tensor] :
         store_weight(layers_[k], plain_, formats_[k].scheme, matrix)) {
      const std::string name = free_param_name(
          b, fmt::format("{}.{}{}", layers_[k].name, format_name(formats_[k]), ending));
      out.push_back(b.param(name, tensor.type()));
      rows_[k].bytes_after += tensor.type().bytes();
      baked_.emplace(name, tensor);
    }
    return out;
  }

  // "int4" of "int4/32": a name of a parameter holds no slash.
  static std::string format_name(const LayerFormat& f) {
    const std::string text = f.to_string();
    return text.substr(0, text.find('/'));
  }
  std::string free_param_name(const Builder& b, const std::string& wanted) const {
    std::string name = wanted;
    for (int n = 1; plain_.find_leaf(name).valid() || b.find_leaf(name).valid(); ++n)
      name = fmt::format("{}_{}", wanted, n);
    return name;
  }

  // Layers whose codes came to no product of integers; their values are those of int8 nevertheless.
  void note_unfused(const Graph& g) {
    for (size_t k = 0; k < layers_.size(); ++k) {
      const OpDef* op = g.node(layer_in(g, k)).op;
      if (formats_[k].kind == Kind::int8 && (op == &op::matmul || op == &op::conv)) {
        rows_[k].skipped = "its codes are multiplied as floats: sums may leave 32 bits";
        rows_[k].bytes_after = rows_[k].bytes_before;
      }
    }
  }

  // Errors of all layers and outputs over the data.
  void measure(const Graph& quantised, QuantiseReport& report) const {
    const Values before = watched_.outputs, after = quantised.outputs;
    NamedTensors params = params_;
    params.insert(baked_.begin(), baked_.end());
    ValueRunner float_run(watched_, before, params_, options_.calibration.device),
        run(quantised, after, params, options_.calibration.device);
    std::vector<double> error(before.size()), size(before.size());
    for (const NamedTensors& batch : data_) {
      const std::vector<Tensor> want = float_run(batch), got = run(batch);
      for (size_t k = 0; k < want.size(); ++k) add_error(want[k], got[k], error[k], size[k]);
    }
    const auto relative = [&](size_t k) {
      return error[k] == 0 ? 0 : std::sqrt(error[k] / size[k]);
    };
    for (size_t k = 0; k < outputs_; ++k) {
      if (!is_float(watched_.type(watched_.outputs[k]).dtype)) continue;
      LayerReport row{.name = fmt::format("output {}", k)};
      row.relative_rms = relative(k);
      report.outputs.push_back(row);
    }
    for (size_t k = 0; k < layers_.size(); ++k)
      report.layers[k].relative_rms = relative(outputs_ + k);
  }

  static void add_error(const Tensor& want, const Tensor& got, double& error, double& size) {
    if (!is_float(want.dtype())) return;
    for (int64_t i = 0; i < want.elements(); ++i) {
      const double a = want.get_float(i), b = got.get_float(i);
      error += (a - b) * (a - b);
      size += a * a;
    }
  }

  const NamedTensors& params_;
  Batches data_;
  const QuantiseOptions& options_;
  Graph plain_, watched_;
  size_t outputs_ = 0;  // of the program itself
  std::vector<Layer> layers_;
  std::vector<LayerFormat> formats_;
  std::vector<LayerReport> rows_;
  NamedTensors baked_;
};

}  // namespace

Quantised quantise(const Graph& g, const NamedTensors& params, Batches data,
                   const QuantiseOptions& options) {
  return Quantiser(g, params, data, options).run();
}

}  // namespace rlx
