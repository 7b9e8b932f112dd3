#include "rlx/quantise/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace rlx {

namespace {

std::string error_text(const LayerReport& l) {
  if (!l.relative_rms) return fmt::format("{:>10} {:>8}", "-", "-");
  return fmt::format("{:>10.2e} {:>8.1f}", *l.relative_rms, *l.sqnr_db());
}

nlohmann::ordered_json number(std::optional<double> v) {
  if (!v || !std::isfinite(*v)) return nullptr;
  return *v;
}

nlohmann::ordered_json layer_json(const LayerReport& l) {
  return {{"name", l.name},
          {"op", l.op},
          {"format", l.format},
          {"skipped", l.skipped},
          {"bytes_before", l.bytes_before},
          {"bytes_after", l.bytes_after},
          {"relative_rms", number(l.relative_rms)},
          {"sqnr_db", number(l.sqnr_db())}};
}

}  // namespace

std::optional<double> LayerReport::sqnr_db() const {
  if (!relative_rms) return std::nullopt;
  return -20 * std::log10(*relative_rms);
}

std::string QuantiseReport::to_string() const {
  size_t name = 5, format = 6;
  for (const LayerReport& l : layers) {
    name = std::max(name, l.name.size());
    format = std::max(format, l.format.size());
  }
  std::string out = fmt::format("{:<{}}  {:<6}  {:<{}}  {:>10}  {:>10}  {:>10} {:>8}\n", "layer",
                                name, "op", "format", format, "bytes", "after", "error", "SQNR dB");
  for (const LayerReport& l : layers) {
    out += fmt::format("{:<{}}  {:<6}  {:<{}}  {:>10}  {:>10}  {}", l.name, name, l.op, l.format,
                       format, l.bytes_before, l.bytes_after, error_text(l));
    out += l.skipped.empty() ? "\n" : fmt::format("  {}\n", l.skipped);
  }
  for (const LayerReport& l : outputs)
    out += fmt::format("{:<{}}  {:<6}  {:<{}}  {:>10}  {:>10}  {}\n", l.name, name, "", "", format,
                       "", "", error_text(l));
  return out + fmt::format("{:<{}}  {:<6}  {:<{}}  {:>10}  {:>10}\n", "all parameters", name, "",
                           "", format, bytes_before, bytes_after);
}

std::string QuantiseReport::to_json() const {
  nlohmann::ordered_json j{{"layers", nlohmann::ordered_json::array()},
                           {"outputs", nlohmann::ordered_json::array()},
                           {"bytes_before", bytes_before},
                           {"bytes_after", bytes_after}};
  for (const LayerReport& l : layers) j["layers"].push_back(layer_json(l));
  for (const LayerReport& l : outputs)
    j["outputs"].push_back({{"name", l.name},
                            {"relative_rms", number(l.relative_rms)},
                            {"sqnr_db", number(l.sqnr_db())}});
  return j.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace rlx
