// rlx bench FILE: a program's time beside the machine's limits, whole and kernel by kernel.
#include <nlohmann/json.hpp>

#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/interrupt.h"
#include "rlx/cli/output.h"
#include "rlx/explain/explain.h"

namespace rlx::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string time_text(double seconds) {
  return seconds < 1e-6   ? fmt::format("{:.0f} ns", seconds * 1e9)
         : seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6)
         : seconds < 1    ? fmt::format("{:.2f} ms", seconds * 1e3)
                          : fmt::format("{:.2f} s", seconds);
}

std::string share(double part, double whole) {
  return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : "";
}

// What steps are called that are launched together: `matmul (native, packed weights) + layer_norm`.
std::string launch_name(const Json& program, const Json& launch) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> names;
  size_t more = 0;
  for (size_t i = launch.at("begin"); i < launch.at("end").get<size_t>(); ++i) {
    const Json& step = program.at("steps")[i];
    const std::string name = step.value("kernel", step.value("control", ""));
    if (std::ranges::find(names, name) != names.end()) continue;
    if (names.size() < kNamed)
      names.push_back(name);
    else
      ++more;
  }
  return fmt::format("{}{}", fmt::join(names, " + "),
                     more ? fmt::format(" + {} more", more) : std::string());
}

// The kernels that take longest, launches of one name together.
void list_kernels(const Json& program, double total) {
  struct Kernel {
    double seconds = 0, limit = 0, flops = 0, bytes = 0;
    int launches = 0;
  };
  std::map<std::string, Kernel> kernels;
  for (const Json& launch : program.at("launches")) {
    Kernel& k = kernels[launch_name(program, launch)];
    k.seconds += launch.at("seconds").get<double>();
    k.limit += launch.value("limit_seconds", 0.0);
    k.flops += launch.at("flops").get<double>();
    k.bytes += launch.at("bytes").get<double>();
    ++k.launches;
  }
  std::vector<std::pair<std::string, Kernel>> sorted(kernels.begin(), kernels.end());
  std::ranges::stable_sort(
      sorted, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  constexpr size_t kListed = 20;
  say("\n{:>12} {:>8} {:>9} {:>12} {:>12} {:>9}  kernel\n", "time", "of all", "launches", "GF/s",
      "GB/s", "of limit");
  for (const auto& [name, k] : std::span(sorted).first(std::min(kListed, sorted.size())))
    say("{:>12} {:>8} {:>9} {:>12.1f} {:>12.1f} {:>9}  {}\n", time_text(k.seconds),
        share(k.seconds, total), k.launches, k.flops / k.seconds * 1e-9, k.bytes / k.seconds * 1e-9,
        share(k.limit, k.seconds), name);
  if (sorted.size() > kListed) say("{:>12} further kernels\n", sorted.size() - kListed);
}

void report(const Json& j) {
  const Json &measured = j.at("measured"), &run = measured.at("run"), &program = j.at("program");
  const double median = run.at("median").get<double>(),
               kernels = measured.at("seconds").get<double>();
  double flops = 0, limit = 0;
  for (const Json& launch : program.at("launches")) {
    flops += launch.at("flops").get<double>();
    limit += launch.value("limit_seconds", 0.0);
  }
  say("{}: {} on {} of {} threads, {} steps in {} launches\n",
      quote(j.at("name").get<std::string>()), j.at("environment").at("device").get<std::string>(),
      j.at("environment").at("threads").get<int>(),
      j.at("environment").at("machine_threads").get<int>(), program.at("steps").size(),
      program.at("launches").size());
  say("a run: {} (median of {}; quartiles {} and {}, least {})\n", time_text(median),
      measured.at("runs").get<int>(), time_text(run.at("low").get<double>()),
      time_text(run.at("high").get<double>()), time_text(run.at("least").get<double>()));
  say("kernels: {}, measured one by one; {:.4g} GF in all, {:.1f} GF/s\n", time_text(kernels),
      flops * 1e-9, flops / median * 1e-9);
  if (!j.at("limits").is_null())
    say("limit: {} by {:.0f} GF/s and {:.1f} GB/s, measured now: {} of it is reached\n",
        time_text(limit), j.at("limits").at("gflops").get<double>(),
        j.at("limits").at("gbytes").get<double>(), share(limit, median));
  if (const Json& made_up = measured.at("made_up"); !made_up.empty())
    say("made up: the values of {} inputs and parameters\n", made_up.size());
  list_kernels(program, kernels);
}

}  // namespace

void bench_program(const BenchProgram& b, const Globals& globals) {
  ExplainOptions options;
  options.inputs = read_tensors(b.inputs, "--input");
  options.params = read_tensors(b.params, "--param");
  options.compile.threads = globals.threads;
  options.compile.dims = read_dims(b.dims);
  options.run = true;
  options.runs = b.runs;
  options.cancel = &cancel_flag();
  const std::string json = explain(read_module(b.file), default_device(), options).json();
  if (b.json)
    say("{}\n", json);
  else
    report(Json::parse(json));
}

}  // namespace rlx::cli
