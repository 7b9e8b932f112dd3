// Which format each layer gets.
#include <algorithm>

#include "rlx/base/suggest.h"
#include "rlx/ops/core.h"
#include "rlx/quantise/quantise.h"

namespace rlx {

namespace {

constexpr std::string_view kLayerOps[] = {"matmul", "conv", "gather"};

std::optional<QuantScheme> find_scheme(std::string_view text) {
  try {
    return parse_scheme(text);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::data) throw;
    return std::nullopt;
  }
}

}  // namespace

std::string LayerFormat::to_string() const {
  if (kind == Kind::keep) return "float";
  if (kind == Kind::int8) return "int8";
  std::string name = scheme.to_string();
  if (name.starts_with("gguf_")) name = name.substr(5);
  return name;
}

LayerFormat parse_layer_format(std::string_view text) {
  if (text == "float") return {};
  if (text == "int8") return {LayerFormat::Kind::int8, {}};
  for (const std::string& name : {std::string(text), fmt::format("gguf_{}", text)})
    if (const auto scheme = find_scheme(name)) return {LayerFormat::Kind::weight, *scheme};
  std::vector<std::string> names{"float", "int8"};
  for (const FormatInfo& f : quant_formats()) {
    const QuantScheme s{f.format, f.format == QuantFormat::nvfp4_block ? 16 : 32};
    names.push_back(LayerFormat{LayerFormat::Kind::weight, s}.to_string());
  }
  fail(ErrorKind::user, "quant-format",
       "there is no format {}; there are {} (behind a / stands how many elements share a scale){}",
       quote(text), fmt::join(names, ", "), did_you_mean(text, {names.begin(), names.end()}));
}

std::vector<LayerFormat> choose_formats(const Graph& g, std::span<const Layer> layers,
                                        const std::string& otherwise, const FormatChoices& ops,
                                        const FormatChoices& by_name) {
  std::vector<LayerFormat> out(layers.size(), parse_layer_format(otherwise));
  for (const auto& [op, format] : ops) {
    user_check(std::find(std::begin(kLayerOps), std::end(kLayerOps), op) != std::end(kLayerOps),
               "policy-op", "a quantisation policy names the op {}; those with layers are {}",
               quote(op), fmt::join(kLayerOps, ", "));
    for (size_t k = 0; k < layers.size(); ++k)
      if (layers[k].op->name == op) out[k] = parse_layer_format(format);
  }
  for (const auto& [pattern, format] : by_name) {
    bool found = false;
    const LayerFormat parsed = parse_layer_format(format);
    for (size_t k = 0; k < layers.size(); ++k)
      if (name_matches(pattern, layers[k].name)) out[k] = parsed, found = true;
    std::vector<std::string_view> names;
    for (const Layer& l : layers) names.push_back(l.name);
    user_check(found, "policy-layer", "\"{}\" has no layer {}; its layers are {}{}", g.name,
               quote(pattern), fmt::join(names, ", "), did_you_mean(pattern, names));
  }
  return out;
}

}  // namespace rlx
