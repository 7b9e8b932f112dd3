#include "rlx/explain/trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace rlx {

namespace {

// Whole nanoseconds: ends that are rounded alike nest as they did before.
double microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

nlohmann::ordered_json event(const RunSpan& s, std::string_view category, double from) {
  const double begin = microseconds(from + s.start), end = microseconds(from + s.start + s.seconds);
  nlohmann::ordered_json out = {{"name", s.label},
                                {"cat", category},
                                {"ph", "X"},
                                {"ts", begin},
                                {"dur", std::round((end - begin) * 1e3) / 1e3},
                                {"pid", 1},
                                {"tid", 1}};
  if (!s.kernel.empty()) out["args"] = {{"kernel", s.kernel}, {"flops", s.flops}};
  return out;
}

}  // namespace

std::string chrome_trace(const RunTrace& run, std::span<const RunSpan> phases,
                         Clock::time_point origin) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  events.push_back(
      {{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "rlx"}}}});
  for (const RunSpan& p : phases) events.push_back(event(p, "phase", 0));
  const double from = std::chrono::duration<double>(run.began - origin).count();
  for (const RunSpan& s : run.spans) events.push_back(event(s, s.depth ? "body" : "step", from));
  Json out = {{"traceEvents", std::move(events)},
              {"displayTimeUnit", "ms"},
              {"otherData", {{"dropped_spans", run.dropped}}}};
  return out.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace rlx
