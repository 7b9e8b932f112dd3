// rlx bench: typical kernels beside the limits of this machine, all measured now.
#include <algorithm>

#include "rlx/base/clock.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/interrupt.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/core.h"
#ifdef RLX_CPU
#include "rlx/backend/cpu/kernels/machine_limits.h"
#endif

namespace rlx::cli {

namespace {

struct Work {
  std::string name;
  Graph graph;
  double flops = 0;  // 0: memory is the limit
  double bytes = 0;  // read and written at least
};

constexpr DType f32 = DType::F32;

Work matmul(int64_t m, int64_t k, int64_t n) {
  Builder b("matmul");
  b.output(op::matmul(b, b.input("x", {f32, {m, k}}), b.param("w", {f32, {k, n}})));
  return {fmt::format("matmul {}x{}x{}", m, k, n), b.finish(), 2.0 * static_cast<double>(m * k * n),
          0};
}

// One row-wise or elementwise op over 64 MiB, which no cache holds.
template <class F>
Work streaming(const std::string& name, F&& make) {
  const Type type{f32, {1 << 15, 512}};
  Builder b(name);
  const Value x = b.input("x", type), y = make(b, x);
  b.output(y);
  const double bytes = static_cast<double>(type.bytes() + b.type(y).bytes());
  return {fmt::format("{} {}x{}", name, 1 << 15, 512), b.finish(), 0, bytes};
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

struct Limits {
  double gflops = 0, gbytes = 0;
};

// The better of two measurements, before and after: other programs only ever take away.
void measure_limits([[maybe_unused]] int threads, [[maybe_unused]] Limits& limits) {
#ifdef RLX_CPU
  const cpu::MachineLimits now = cpu::measure_machine(threads);
  limits.gflops = std::max(limits.gflops, now.fma_gflops);
  limits.gbytes = std::max(limits.gbytes, now.read_gbytes);
#endif
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
  Limits limits;
  measure_limits(threads, limits);
  const std::vector<Work> work = all_work();
  std::vector<double> seconds;
  for (const Work& w : work) seconds.push_back(measure(w, threads));
  measure_limits(threads, limits);
  fmt::print("limits on {} threads: {:.0f} GF/s f32 FMA, {:.1f} GB/s read\n", threads,
             limits.gflops, limits.gbytes);
  fmt::print("{:<26} {:>10} {:>12} {:>8}\n", "", "time", "rate", "of limit");
  for (size_t i = 0; i < work.size(); ++i) {
    const bool computes = work[i].flops > 0;
    const double rate = (computes ? work[i].flops : work[i].bytes) / seconds[i] * 1e-9;
    const double limit = computes ? limits.gflops : limits.gbytes;
    fmt::print("{:<26} {:>7.0f} us {:>7.1f} {} {:>8}\n", work[i].name, seconds[i] * 1e6, rate,
               computes ? "GF/s" : "GB/s",
               limit > 0 ? fmt::format("{:.0f} %", 100 * rate / limit) : "");
  }
}

}  // namespace

void add_bench(Cli& cli) {
  CLI::App* c = cli.command(
      "bench", "Kernels beside this machine's limits; with a name, a benchmark of its own",
      "rlx bench --threads 2");
  add_bench_train_step(cli, c);
  c->callback([&cli, c] {
    if (c->get_subcommands().empty()) cli.action = [&cli] { bench(cli.globals); };
  });
}

}  // namespace rlx::cli
