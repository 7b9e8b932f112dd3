#include "rlx/quantise/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "rlx/ops/control/unread.h"
#include "rlx/ops/core.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/rules.h"
#include "rlx/quantise/bake.h"
#include "rlx/quantise/int8_bodies.h"
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

// Whether sums over what a channel of a weight has stay in 32 bits, whatever the zero points are.
bool sums_fit(const Layer& l, const Shape& w) {
  constexpr int64_t kMost = ((int64_t{1} << 31) - 1) / (255 * 255);
  Dim terms = 1;
  const size_t first = l.op == &op::matmul ? w.size() - 2 : 0;
  for (size_t i = first; i < w.size(); ++i)
    if (i != at(l.channel_axis)) terms = terms * w[i];
  return terms.is_static() && terms.value() <= kMost;
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
  if (!l.in.empty() && !sums_fit(l, w)) return "sums may leave 32 bits";
  return "";
}

// One quantisation of a program under way: the program has the values of its layers as further outputs, by which passes
// leave them to be found. Those of layers in bodies are not seen outside.
class Quantiser {
 public:
  Quantiser(const Graph& g, const NamedTensors& params, Batches data, const QuantiseOptions& o)
      : params_(params), data_(data), options_(o), plain_(plain_products_to_run(g)) {
    all_ = find_all_layers(plain_);
    formats_ = choose_formats(plain_, all_.layers, o.format, o.ops, o.layers);
    outputs_ = plain_.outputs.size();
    watched_ = plain_;
    for (size_t k = 0; k < all_.layers.size(); ++k) {
      by_place_[{layer(k).in, layer(k).node}] = k;
      watched_as_.push_back(watched_.outputs.size());
      if (layer(k).in.empty()) watched_.outputs.push_back(layer(k).value());
      rows_.push_back(begin_row(k));
    }
    check_any();
  }

  Quantised run() {
    find_codes();
    Graph now = run_pass(quantised(), pass::fuse_quantised);
    note_unfused(now);
    Quantised out;
    bake_codes(now, params_, baked_, options_.calibration.device);
    out.report.layers = rows_;
    if (options_.measure && !data_.empty()) measure(now, out.report);
    now.outputs.resize(outputs_);
    out.graph = drop_dead(drop_unread(std::move(now)));  // what bodies had as floats goes, too
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
    const Layer& l = layer(k);
    const Graph& g = graph_of(plain_, l);
    LayerReport row{.name = l.name, .op = std::string(l.op->name), .format = "float"};
    if (l.has_weight)
      row.bytes_before = row.bytes_after = g.type(g.node(l.node).in[l.weight]).bytes();
    LayerFormat& f = formats_[k];
    if (f.kind == Kind::keep) {
      row.skipped = "the policy keeps it";
      return row;
    }
    row.skipped = f.kind == Kind::int8 ? refuse_int8(g, l) : refuse_scheme(g, l, f.scheme);
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
  Value layer_in(const Graph& g, size_t k) const { return g.outputs[watched_as_[k]]; }

  // ---- integers

  // Quantize and dequantize in front of the int8 layers. g came of watched_, whose values `now` has in it.
  Graph with_codes(const Graph& g, const ResultMap<Values>& now) {
    std::vector<Layer> chosen;
    std::set<int32_t> nodes;
    for (size_t k = 0; k < all_.layers.size(); ++k)
      if (formats_[k].kind == Kind::int8 && layer(k).in.empty())
        chosen.push_back(layer(k)), nodes.insert(now.at(layer(k).value()).node);
    if (chosen.empty()) return g;
    const auto taps = default_taps(watched_, chosen, options_.calibration.per_channel);
    const CalibrationRecord record =
        calibrate(watched_, params_, data_, options_.calibration, taps);
    for (size_t k = 0; k < all_.layers.size(); ++k) {
      if (formats_[k].kind != Kind::int8 || !layer(k).has_weight || !layer(k).in.empty()) continue;
      const Value w = plain_.node(layer(k).node).in[layer(k).weight];
      rows_[k].bytes_after = plain_.type(w).shape.elements().value() +
                             4 * static_cast<int64_t>(record.at(w).scales.size());
    }
    CalibrationRecord moved;
    for (const auto& [tap, entry] : record) moved[now.at(tap)] = entry;
    return insert_q_dq(g, moved, [&](int32_t i) { return nodes.contains(i); });
  }

  // In bodies both ops are written where layers stand, with codes of weights as parameters.
  void find_codes() {
    std::vector<size_t> which;
    for (size_t k = 0; k < all_.layers.size(); ++k)
      if (formats_[k].kind == Kind::int8 && !layer(k).in.empty()) which.push_back(k);
    for (auto& [k, at] :
         int8_in_bodies(all_, plain_, which, params_, data_, options_.calibration)) {
      if (at) {
        codes_[k] = std::move(*at);
        continue;
      }
      formats_[k] = {};
      rows_[k].format = "float";
      rows_[k].skipped = "the data never came to the body that it is in";
    }
    check_any();
  }

  // ---- stored weights

  using Stored = std::map<size_t, Values>;  // by layers, the values that hold their weights

  // The program with the weights that schemes hold as new parameters, then with codes.
  Graph quantised() {
    find_matrices();
    Builder b(watched_.name);
    ResultMap<Values> now(watched_);
    Stored held;
    for (int32_t i = 0; i < watched_.size(); ++i) {
      b.set_origin(watched_.node(i).origin);
      for (size_t k : layers_at(watched_, {}, i)) held[k] = stored(b, k);
      now[i] = over_stored(b, watched_, {}, i, now.at(watched_.node(i).in), held);
    }
    for (Value v : watched_.outputs) b.output(now.at(v));
    for (const Update& u : watched_.updates) b.update(u.param, now.at(u.value));
    return with_codes(b.finish(), now);
  }

  void find_matrices() {
    Values weights;
    std::vector<size_t> which;
    for (size_t k = 0; k < all_.layers.size(); ++k)
      if (formats_[k].kind == Kind::weight) weights.push_back(all_.weights[k]), which.push_back(k);
    if (which.empty()) return;
    const std::vector<Tensor> values =
        ValueRunner(all_.graph, weights, params_, options_.calibration.device)({});
    for (size_t i = 0; i < which.size(); ++i) {
      const Layer& l = layer(which[i]);
      check_finite(l.name, values[i]);
      matrices_.emplace(which[i], weight_matrix(graph_of(plain_, l), l, values[i]));
    }
  }

  // The layers with stored weights that node i of a graph at this place is, or has in its bodies.
  std::vector<size_t> layers_at(const Graph& g, const std::vector<BodyPlace>& in, int32_t i) const {
    std::vector<size_t> out;
    if (const auto it = by_place_.find({in, i}); it != by_place_.end() && is_rewritten(it->second))
      out.push_back(it->second);
    if (bodies(g.node(i).attrs).empty()) return out;
    for (size_t k = 0; k < all_.layers.size(); ++k) {
      const std::vector<BodyPlace>& place = layer(k).in;
      if (is_rewritten(k) && place.size() > in.size() &&
          std::equal(in.begin(), in.end(), place.begin()) && place[in.size()].node == i)
        out.push_back(k);
    }
    return out;
  }

  // Node i over its operands, with what holds the weights of the layers at it.
  Values over_stored(Builder& b, const Graph& g, const std::vector<BodyPlace>& in, int32_t i,
                     const Values& operands, const Stored& held) const {
    const Node& n = g.node(i);
    const std::vector<size_t> here = layers_at(g, in, i);
    if (here.empty()) return b.clone(n, operands);
    if (layer(here[0]).in == in) {
      const size_t k = here[0];
      if (const auto at = codes_.find(k); at != codes_.end())
        return {layer_over_codes(b, n, layer(k), at->second, operands, held.at(k))};
      return {layer_over_stored(b, n, layer(k), operands, formats_[k].scheme, held.at(k))};
    }
    // They come in behind the other operands, in each body of the node.
    Values more = operands;
    for (size_t k : here) more.insert(more.end(), held.at(k).begin(), held.at(k).end());
    size_t number = 0;
    const Attrs attrs = map_bodies(n.attrs, [&](const Body& body) {
      std::vector<BodyPlace> place = in;
      place.push_back({i, number++});
      return body_over_stored(b, *body, place, here, held);
    });
    return b.emit(*n.op, attrs, more);
  }

  Body body_over_stored(const Builder& outer, const Graph& body,
                        const std::vector<BodyPlace>& place, const std::vector<size_t>& layers,
                        const Stored& outside) const {
    Builder b(body.name);
    ResultMap<Values> now(body);
    for (Value v : body.inputs())
      now[v.node] = {b.input(body.node(v).get<LeafAttrs>().name, body.type(v))};
    Stored held;
    for (size_t k : layers) {
      Values& own = held[k];
      for (Value v : outside.at(k)) own.push_back(b.input(free_input_name(b, k), outer.type(v)));
    }
    for (int32_t i = 0; i < body.size(); ++i) {
      const Node& n = body.node(i);
      if (n.op == &op::input) continue;
      b.set_origin(n.origin);
      now[i] = over_stored(b, body, place, i, now.at(n.in), held);
    }
    for (Value v : body.outputs) b.output(now.at(v));
    return b.finish();
  }
  static std::string free_input_name(const Builder& b, size_t k) {
    std::string name;
    for (int n = 0; name.empty() || b.find_leaf(name).valid(); ++n)
      name = fmt::format("weight_{}_{}", k, n);
    return name;
  }

  static void check_finite(const std::string& name, const Tensor& t) {
    for (int64_t i = 0; i < t.elements(); ++i)
      user_check(std::isfinite(t.get_float(i)), "calibration-value",
                 "quantise: the weight of {} has {}", name, t.get_float(i));
  }

  bool is_rewritten(size_t k) const { return matrices_.contains(k) || codes_.contains(k); }

  std::vector<std::pair<std::string, Tensor>> parts_of(size_t k) const {
    const Layer& l = layer(k);
    const auto it = codes_.find(k);
    if (it == codes_.end())
      return store_weight(l, graph_of(plain_, l), formats_[k].scheme, matrices_.at(k));
    if (!l.has_weight) return {};
    return {{"", it->second.codes}};
  }

  // The parameters that hold layer k's weight; those of an earlier layer, where they are the same.
  Values stored(Builder& b, size_t k) {
    const auto parts = parts_of(k);
    if (parts.empty()) return {};
    rows_[k].bytes_after = 0;
    for (const auto& [ending, tensor] : parts) rows_[k].bytes_after += tensor.type().bytes();
    if (const auto it = codes_.find(k); it != codes_.end())
      rows_[k].bytes_after += 4 * static_cast<int64_t>(it->second.weight.scales.size());
    Values out;
    for (const auto& [earlier, values] : stored_) {
      out.clear();
      for (size_t i = 0; i < parts.size() && i < values.size(); ++i)
        if (formats_[earlier].to_string() == formats_[k].to_string() &&
            same_bits(baked_.at(b.node(values[i]).get<LeafAttrs>().name), parts[i].second))
          out.push_back(values[i]);
      if (out.size() == parts.size()) return out;
    }
    out.clear();
    for (const auto& [ending, tensor] : parts) {
      const std::string name = free_param_name(
          b, fmt::format("{}.{}{}", layer(k).name, format_name(formats_[k]), ending));
      out.push_back(b.param(name, tensor.type()));
      baked_.emplace(name, tensor);
    }
    stored_[k] = out;
    return out;
  }
  static bool same_bits(const Tensor& a, const Tensor& b) {
    return a.type() == b.type() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
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
    for (size_t k = 0; k < all_.layers.size(); ++k) {
      if (formats_[k].kind != Kind::int8 || !layer(k).in.empty()) continue;
      const OpDef* op = g.node(layer_in(g, k)).op;
      if (op == &op::matmul || op == &op::conv) {
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
    for (size_t k = 0; k < all_.layers.size(); ++k)
      if (layer(k).in.empty()) report.layers[k].relative_rms = relative(watched_as_[k]);
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
  const Layer& layer(size_t k) const { return all_.layers[k]; }

  Graph plain_, watched_;
  size_t outputs_ = 0;  // of the program itself
  AllLayers all_;
  std::map<std::pair<std::vector<BodyPlace>, int32_t>, size_t> by_place_;
  std::vector<size_t> watched_as_;  // the number of the output
  std::vector<LayerFormat> formats_;
  std::vector<LayerReport> rows_;
  std::map<size_t, Int8InBody> codes_;  // of layers in bodies
  std::map<size_t, Tensor> matrices_;   // of the layers whose weights schemes hold
  Stored stored_;                       // of those that have parameters of their own
  NamedTensors baked_;
};

}  // namespace

Quantised quantise(const Graph& g, const NamedTensors& params, Batches data,
                   const QuantiseOptions& options) {
  return Quantiser(g, params, data, options).run();
}

}  // namespace rlx
