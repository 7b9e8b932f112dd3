// rlx bench: typical kernels beside the limits of this machine, all measured now.
#include <chrono>

#include "rlx/cli/cli.h"
#include "rlx/cli/interrupt.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/ops.h"
#ifdef RLX_CPU
#include "rlx/backend/cpu/kernels/machine_limits.h"
#endif

namespace rlx::cli {

namespace {

using Clock = std::chrono::steady_clock;

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
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
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

void bench(const Globals& globals) {
  const int threads = thread_count(globals);
  double gflops = 0, gbytes = 0;
#ifdef RLX_CPU
  const cpu::MachineLimits limits = cpu::measure_machine(threads);
  gflops = limits.fma_gflops, gbytes = limits.read_gbytes;
  fmt::print("limits on {} threads: {:.0f} GF/s f32 FMA, {:.1f} GB/s read\n", threads, gflops,
             gbytes);
#endif
  fmt::print("{:<26} {:>10} {:>12} {:>8}\n", "", "time", "rate", "of limit");
  for (const Work& w : all_work()) {
    CompiledGraph f = Session(default_device()).compile(w.graph, {.threads = threads});
    const Graph& g = f.signature();
    for (Value v : g.inputs()) f.set_input(g.node(v).get<LeafAttrs>().name, ramp(g.type(v)));
    for (Value v : g.params()) f.set_param(g.node(v).get<LeafAttrs>().name, ramp(g.type(v)));
    const double seconds = best_seconds(f);
    const double rate = (w.flops > 0 ? w.flops : w.bytes) / seconds * 1e-9,
                 limit = w.flops > 0 ? gflops : gbytes;
    fmt::print("{:<26} {:>7.0f} us {:>7.1f} {} {:>8}\n", w.name, seconds * 1e6, rate,
               w.flops > 0 ? "GF/s" : "GB/s",
               limit > 0 ? fmt::format("{:.0f} %", 100 * rate / limit) : "");
    std::fflush(stdout);
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
