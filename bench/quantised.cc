// Speed of quantised products and convolutions, through `run` of compiled programs.
//
//   quantised [threads] [rounds] [table]          default 2 threads, 30 rounds, all tables: products, convolutions, row, rows
//
// Products and convolutions: u8 activations and i8 weights with the scales, the bias and the activation behind them, against
// the same in f32, in turns: the fastest runs and their ratio, and the median of the rounds' ratios (a round: the fastest of a
// few runs of each). Rows of weights in ggml's blocks: 4096 x 4096, one
// row of x, several matrices in turns so that they come from memory, against the read bandwidth measured between the rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/limits/machine_limits.h"
#include "rlx/ops/core.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

Tensor random_tensor(const Type& type, uint32_t seed) {
  Tensor t(type.dtype, type.shape.sizes());
  std::mt19937 random(seed);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const int byte = static_cast<int>(random() >> 24);
    t.set_float(i, type.dtype == DType::U8   ? byte
                   : type.dtype == DType::I8 ? byte - 128
                                             : (byte - 128) / 64.0);
  }
  return t;
}

CompiledGraph ready(const CompileOptions& options, const Graph& g) {
  CompiledGraph f = Session("cpu").compile(g, options);
  uint32_t seed = 0;
  for (const Node& n : g.nodes) {
    if (n.op == &op::param) f.set_param(n.get<LeafAttrs>().name, random_tensor(n.type(), ++seed));
    if (n.op == &op::input) f.set_input(n.get<LeafAttrs>().name, random_tensor(n.type(), ++seed));
  }
  f.run();
  return f;
}

// Seconds of the fastest of so many runs.
double time_of(CompiledGraph& f, int runs) {
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const double begin = now();
    f.run();
    best = std::min(best, now() - begin);
  }
  return best;
}

void compare(const CompileOptions& options, const std::string& what, double operations, int rounds,
             const Graph& integers, const Graph& floats) {
  CompiledGraph a = ready(options, integers), b = ready(options, floats);
  const int runs = std::max(1, static_cast<int>(4e-3 / time_of(b, 1)));
  std::vector<double> fast, slow, ratio;
  for (int i = 0; i < rounds; ++i) {
    fast.push_back(time_of(a, runs));
    slow.push_back(time_of(b, runs));
    ratio.push_back(slow.back() / fast.back());
  }
  const double best = *std::min_element(fast.begin(), fast.end()),
               best_slow = *std::min_element(slow.begin(), slow.end());
  std::printf("| %-22s | %8.1f us | %6.0f GOP/s | %8.1f us | %5.0f GF/s | %5.2f | %5.2f |\n",
              what.c_str(), best * 1e6, operations / best * 1e-9, best_slow * 1e6,
              operations / best_slow * 1e-9, best_slow / best, median(ratio));
}

// relu(sum * scale + bias), for each column or channel
Value behind(Builder& b, Value sum, Shape shape, bool is_integer) {
  Expr y(b, is_integer ? op::cast(b, sum, {DType::F32}) : sum);
  if (is_integer) y = y * Expr(b, b.param("scale", {DType::F32, shape}));
  return op::relu(b, y + Expr(b, b.param("bias", {DType::F32, shape})));
}

Graph product(int64_t m, int64_t k, int64_t n, bool is_integer) {
  Builder b("product");
  const Value x = b.input("x", {is_integer ? DType::U8 : DType::F32, {m, k}});
  const Value w = b.param("w", {is_integer ? DType::I8 : DType::F32, {k, n}});
  const Value sum = is_integer ? op::matmul_integer(b, x, w) : op::matmul(b, x, w);
  b.output(behind(b, sum, {n}, is_integer));
  return b.finish();
}

struct Layer {
  const char* name;
  int64_t in, size, out, kernel, stride, groups;
};

Graph convolution(const Layer& l, bool is_integer) {
  Builder b("convolution");
  const Value x = b.input("x", {is_integer ? DType::U8 : DType::F32, {1, l.in, l.size, l.size}});
  const Value w = b.param(
      "w", {is_integer ? DType::I8 : DType::F32, {l.out, l.in / l.groups, l.kernel, l.kernel}});
  const int64_t pad = l.kernel / 2;
  const ConvAttrs c{{l.stride, l.stride}, {1, 1}, {pad, pad}, {pad, pad}, l.groups};
  const Value sum = is_integer ? op::conv_integer(b, x, w, c) : op::conv(b, x, w, c);
  b.output(behind(b, sum, {l.out, 1, 1}, is_integer));
  return b.finish();
}

void products(const CompileOptions& options, int rounds) {
  std::printf(
      "\n| product | int8 | | f32 | | ratio | by rounds |\n|---|---|---|---|---|---|---|\n");
  for (const auto& [m, k, n] : {std::tuple{1, 4096, 4096},
                                {16, 768, 768},
                                {128, 768, 768},
                                {128, 768, 3072},
                                {512, 768, 3072},
                                {1024, 1024, 1024}})
    compare(options, fmt::format("{}x{}x{}", m, n, k),
            2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n), rounds,
            product(m, k, n, true), product(m, k, n, false));
}

void convolutions(const CompileOptions& options, int rounds) {
  std::printf(
      "\n| convolution | int8 | | f32 | | ratio | by rounds |\n|---|---|---|---|---|---|---|\n");
  for (const Layer& l :
       {Layer{"7x7/2 3x224 to 64", 3, 224, 64, 7, 2, 1}, Layer{"3x3 64x56", 64, 56, 64, 3, 1, 1},
        Layer{"3x3 128x28", 128, 28, 128, 3, 1, 1}, Layer{"3x3 256x14", 256, 14, 256, 3, 1, 1},
        Layer{"3x3 512x7", 512, 7, 512, 3, 1, 1}, Layer{"3x3/2 128x56", 128, 56, 128, 3, 2, 1},
        Layer{"1x1 64x56 to 256", 64, 56, 256, 1, 1, 1},
        Layer{"1x1 256x56 to 64", 256, 56, 64, 1, 1, 1},
        Layer{"1x1 512x28 to 128", 512, 28, 128, 1, 1, 1},
        Layer{"1x1 1024x14 to 256", 1024, 14, 256, 1, 1, 1},
        Layer{"3x3 depthwise 96x56", 96, 56, 96, 3, 1, 96}}) {
    const auto positions = static_cast<double>((l.size / l.stride) * (l.size / l.stride));
    compare(options, l.name,
            2.0 * positions * static_cast<double>(l.out * l.in / l.groups * l.kernel * l.kernel),
            rounds, convolution(l, true), convolution(l, false));
  }
}

// Blocks of a few random rows, again and again.
Tensor packed_weights(const FormatInfo& f, int64_t rows, int64_t k) {
  constexpr int64_t kDistinct = 16;
  const Tensor numbers = random_tensor({DType::F32, {kDistinct, k}}, 7);
  std::vector<uint8_t> some(static_cast<size_t>(packed_bytes(f, kDistinct * k)));
  encode_blocks(f, numbers.data<float>(), kDistinct * k, some.data());
  Tensor out(DType::U8, {rows, packed_bytes(f, k)});
  auto* to = out.mutable_data<uint8_t>();
  for (int64_t i = 0; i < rows / kDistinct; ++i) to = std::copy(some.begin(), some.end(), to);
  return out;
}

// One row times packed weights, several matrices in one program after the other.
void row(const CompileOptions& options, int rounds, const char* name, Activations kind) {
  constexpr int64_t kSize = 4096;
  const QuantScheme scheme = parse_scheme(name);
  const int64_t bytes = packed_bytes(scheme.info(), kSize * kSize);
  const int64_t count = (int64_t{448} << 20) / bytes + 1;
  Builder b("rows");
  const Value x = b.input("x", {DType::F32, {1, kSize}});
  for (int64_t i = 0; i < count; ++i)
    b.output(op::dequant_matmul(
        b, x, b.param(fmt::format("w{}", i), {DType::U8, {kSize, bytes / kSize}}), {scheme, kind}));
  const Graph g = b.finish();
  CompiledGraph f = Session("cpu").compile(g, options);
  const Tensor weights = packed_weights(scheme.info(), kSize, kSize);
  for (int64_t i = 0; i < count; ++i) f.set_param(fmt::format("w{}", i), weights);
  f.set_input("x", random_tensor({DType::F32, {1, kSize}}, 1));
  f.run();
  std::vector<double> time, bandwidths, share;
  for (int i = 0; i < rounds; ++i) {
    bandwidths.push_back(cpu::measure_read_bandwidth(options.threads));
    time.push_back(time_of(f, 1) / static_cast<double>(count));
    share.push_back(static_cast<double>(bytes) / time.back() * 1e-9 / bandwidths.back());
  }
  const double best = *std::min_element(time.begin(), time.end());
  const double rate = static_cast<double>(bytes) / best * 1e-9;
  std::printf("| %-12s | %-5s | %7.1f us | %5.1f GB/s | %4.2f | %4.2f |\n", name,
              kind == Activations::q8 ? "q8" : "exact", best * 1e6, rate,
              rate / *std::max_element(bandwidths.begin(), bandwidths.end()), median(share));
}

void rows(const CompileOptions& options, int rounds) {
  std::printf(
      "\n| row x 4096x4096 | x | | | of the read bandwidth | by rounds "
      "|\n|---|---|---|---|---|---|\n");
  for (const Activations kind : {Activations::exact, Activations::q8})
    for (const char* name :
         {"gguf_q8_0", "gguf_q4_0", "gguf_q4k", "gguf_q5k", "gguf_q6k", "gguf_iq4_xs"})
      row(options, rounds, name, kind);
}

// Many rows times packed weights: x rounded to 8 bits against x as it is.
void many_rows(const CompileOptions& options, int rounds) {
  std::printf(
      "\n| 512 rows x 2048x2048 | q8 | | exact | | ratio | by rounds "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const char* name : {"gguf_q8_0", "gguf_q4_0", "gguf_q4k", "gguf_q6k"}) {
    const auto program = [&](Activations kind) {
      const QuantScheme scheme = parse_scheme(name);
      Builder b("rows");
      const Value x = b.input("x", {DType::F32, {512, 2048}});
      b.output(op::dequant_matmul(b, x, b.constant(packed_weights(scheme.info(), 2048, 2048)),
                                  {scheme, kind}));
      return b.finish();
    };
    compare(options, name, 2.0 * 512 * 2048 * 2048, rounds, program(Activations::q8),
            program(Activations::exact));
  }
}

}  // namespace
}  // namespace rlx

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 30;
  const auto limits = rlx::cpu::measure_machine(threads);
  std::printf("%d threads, %s: %.0f GF/s f32 multiply-add, %.1f GB/s read\n", threads,
              std::string(rlx::cpu::dot_isa_name(rlx::cpu::dot_isa(rlx::cpu::host_isa()))).c_str(),
              limits.fma_gflops, limits.read_gbytes);
  const rlx::CompileOptions options{.threads = threads};
  const std::string table = argc > 3 ? argv[3] : "";
  if (table.empty() || table == "products") rlx::products(options, rounds);
  if (table.empty() || table == "convolutions") rlx::convolutions(options, rounds);
  if (table.empty() || table == "row") rlx::rows(options, rounds);
  if (table.empty() || table == "rows") rlx::many_rows(options, rounds);
  return 0;
}
