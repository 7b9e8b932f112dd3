// rlx bench: typical kernels beside the limits of this machine, all measured now.
#include <algorithm>
#include <filesystem>

#include "rlx/base/clock.h"
#include "rlx/base/suggest.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/interrupt.h"
#include "rlx/cli/output.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/core.h"

namespace rlx::cli {

namespace {

struct Work {
  std::string name;
  Graph graph;
  double flops = 0;              // 0: memory is the limit
  double read = 0, written = 0;  // bytes, at least
};

constexpr DType f32 = DType::F32;

Work matmul(int64_t m, int64_t k, int64_t n) {
  Builder b("matmul");
  b.output(op::matmul(b, b.input("x", {f32, {m, k}}), b.param("w", {f32, {k, n}})));
  return {fmt::format("matmul {}x{}x{}", m, k, n), b.finish(), 2.0 * static_cast<double>(m * k * n),
          0, 0};
}

// One row-wise or elementwise op over 64 MiB.
template <class F>
Work streaming(const std::string& name, F&& make) {
  const Type type{f32, {1 << 15, 512}};
  Builder b(name);
  const Value x = b.input("x", type), y = make(b, x);
  b.output(y);
  const auto read = static_cast<double>(type.bytes()),
             written = static_cast<double>(b.type(y).bytes());
  return {fmt::format("{} {}x{}", name, 1 << 15, 512), b.finish(), 0, read, written};
}

std::vector<Work> all_work() {
  std::vector<Work> out{matmul(512, 512, 512), matmul(2048, 128, 512), matmul(128, 384, 1536),
                        matmul(512, 768, 3072)};
  out.push_back(
      streaming("softmax", [](Builder& b, Value x) { return op::softmax(b, x, {.axis = -1}); }));
  out.push_back(streaming("layer_norm", [](Builder& b, Value x) {
    const Value gain = b.constant(Tensor::full(f32, {512}, 1)),
                bias = b.constant(Tensor(f32, {512}));
    return op::layer_norm(b, x, gain, bias);
  }));
  out.push_back(streaming("gelu_tanh", [](Builder& b, Value x) { return op::gelu_tanh(b, x); }));
  out.push_back(streaming("reduce_sum",
                          [](Builder& b, Value x) { return op::reduce_sum(b, x, {.axes = {1}}); }));
  return out;
}

// The best of the runs that fit in about 0.3 s; at least three.
double best_seconds(CompiledGraph& f) {
  const auto start = Clock::now();
  double best = 1e9;
  for (int i = 0; i < 4 || Clock::now() - start < std::chrono::milliseconds(300); ++i) {
    check_interrupt();
    const auto begin = Clock::now();
    f.run({.cancel = &cancel_flag()});
    const double seconds = seconds_since(begin);
    if (i > 0) best = std::min(best, seconds);
  }
  return best;
}

Tensor ramp(const Type& t) {
  Tensor out(t.dtype, t.shape.sizes());
  for (int64_t i = 0; i < out.elements(); ++i)
    out.mutable_data<float>()[i] = static_cast<float>(i % 17) * 0.125f - 1;
  return out;
}

// The least time that this machine needs for such work; 0: not known. Measured before and after the
// kernel, the better of the two: other programs only ever take away.
double limit_seconds(const Work& w, int threads) {
  const auto device = backend_for(default_device());
  if (w.flops == 0)
    return device->traffic_seconds(threads, static_cast<size_t>(w.read),
                                   static_cast<size_t>(w.written));
  const double peak = device->peak_gflops(threads);
  return peak > 0 ? w.flops / peak * 1e-9 : 0;
}

double measure(const Work& w, int threads) {
  CompiledGraph f = Session(default_device()).compile(w.graph, {.threads = threads});
  const Graph& g = f.signature();
  for (Value v : g.inputs()) f.set_input(g.node(v).get<LeafAttrs>().name, ramp(g.type(v)));
  for (Value v : g.params()) f.set_param(g.node(v).get<LeafAttrs>().name, ramp(g.type(v)));
  return best_seconds(f);
}

void bench(const Globals& globals) {
  const int threads = thread_count(globals);
  say("on {} threads; the limit is the FMA peak for products, and for the others a loop that "
      "reads\n"
      "and writes as many bytes and does nothing else, both measured beside each kernel\n",
      threads);
  say("{:<26} {:>10} {:>12} {:>12} {:>8}\n", "", "time", "rate", "limit", "of limit");
  for (const Work& w : all_work()) {
    const double before = limit_seconds(w, threads), seconds = measure(w, threads),
                 limit = std::min(before, limit_seconds(w, threads));
    const double amount = (w.flops > 0 ? w.flops : w.read + w.written) * 1e-9;
    const char* unit = w.flops > 0 ? "GF/s" : "GB/s";
    say("{:<26} {:>7.0f} us {:>7.1f} {} {:>12} {:>8}\n", w.name, seconds * 1e6, amount / seconds,
        unit, limit > 0 ? fmt::format("{:.1f} {}", amount / limit, unit) : "",
        limit > 0 ? fmt::format("{:.0f} %", 100 * limit / seconds) : "");
    flush_output();
  }
}

// For programs that compare with other libraries (bench/peers).
void say_limits(const Globals& globals) {
  constexpr size_t kBytes = size_t{1} << 27;
  const auto device = backend_for(default_device());
  const int threads = thread_count(globals);
  const double read = device->traffic_seconds(threads, kBytes, 0),
               copy = device->traffic_seconds(threads, kBytes / 2, kBytes / 2);
  const auto rate = [](double seconds) {
    return seconds > 0 ? static_cast<double>(kBytes) / seconds * 1e-9 : 0;
  };
  say("{{\"gflops\": {:.1f}, \"read_gbytes\": {:.2f}, \"copy_gbytes\": {:.2f}}}\n",
      device->peak_gflops(threads), rate(read), rate(copy));
}

// A word that is nearly a command's name, and no file's, is not meant as a FILE.
void refuse_misspelt_command(const CLI::App& bench, const std::string& word) {
  std::error_code none;
  if (std::filesystem::exists(word, none)) return;
  std::vector<std::string_view> names;
  for (const CLI::App* command : bench.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (const std::string hint = did_you_mean(word, names); !hint.empty())
    throw CLI::ValidationError("bench", fmt::format("there is no command {}{}", word, hint));
}

}  // namespace

void add_bench(Cli& cli) {
  struct Arguments {
    BenchProgram program;
    bool limits = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* c = cli.command("bench",
                            "A program, or typical kernels, beside this machine's limits; with a "
                            "name, a benchmark of its own",
                            "rlx bench model.rlx --threads 2");
  c->add_option("FILE", a->program.file,
                "Program to time, whole and kernel by kernel; without one, typical kernels");
  c->add_option("--input", a->program.inputs, "NAME=FILE.npy; what is not given is made up")
      ->allow_extra_args(false);
  c->add_option("--param", a->program.params, "NAME=FILE.npy, likewise")->allow_extra_args(false);
  c->add_option("--dim", a->program.dims, "NAME=SIZE of a symbolic dim, once per dim")
      ->allow_extra_args(false);
  c->add_option("--runs", a->program.runs, "Runs of the program")
      ->check(whole_number(1, 1000000))
      ->capture_default_str();
  c->add_flag("--json", a->program.json, "What rlx explain --json says, measured");
  c->add_flag("--limits", a->limits,
              "Only what the machine can do: f32 operations, reading and copying, as JSON");
  add_bench_train_step(cli, c);
  c->callback([&cli, c, a] {
    if (!c->get_subcommands().empty()) return;
    refuse_misspelt_command(*c, a->program.file);
    const BenchProgram& p = a->program;
    if (a->limits && !p.file.empty())
      throw CLI::ValidationError("bench",
                                 fmt::format("--limits is of the machine, not of {}", p.file));
    if (p.file.empty() && (!p.inputs.empty() || !p.params.empty() || !p.dims.empty() || p.json))
      throw CLI::ValidationError("bench", "--input, --param, --dim and --json belong to a FILE");
    cli.action = [&cli, a] {
      if (a->limits)
        say_limits(cli.globals);
      else if (a->program.file.empty())
        bench(cli.globals);
      else
        bench_program(a->program, cli.globals);
    };
  });
}

}  // namespace rlx::cli
