// Speed of the native CPU kernels, as GF/s and as a share of this machine's multiply-add peak
// measured in the same run.
//
//   kernels [threads]          default 1 and 2
//
// The matrix shapes are those of the character GPT (2048 tokens, width 128): forward, gradient of
// the input (B transposed) and of the weight (A transposed). Attention counts only the pairs that
// the mask lets through.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "rlx/backend/cpu/kernels/attention/attention.h"
#include "rlx/backend/cpu/kernels/limits/machine_limits.h"
#include "rlx/backend/cpu/kernels/matmul/matmul.h"
#include "rlx/backend/cpu/kernels/movement/copy.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {
namespace {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;

Memory memory(size_t bytes, bool random = false) {
  Memory m(static_cast<char*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)));
  if (random) {
    float* const x = reinterpret_cast<float*>(m.get());
    for (size_t i = 0; i < bytes / 4; ++i)
      x[i] = static_cast<float>(std::rand()) / static_cast<float>(RAND_MAX) - 0.5f;
  }
  return m;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of the fastest of 20 runs.
template <class F>
double fastest(F f) {
  double best = 1e30;
  for (int i = 0; i < 20; ++i) {
    const double begin = now();
    f();
    best = std::min(best, now() - begin);
  }
  return best;
}

struct Bench {
  int threads;
  double peak;
  std::vector<Memory> scratch;

  void reserve(size_t bytes) {
    scratch.clear();
    for (int i = 0; i < threads; ++i) scratch.push_back(memory(bytes));
  }
  void* worker(int i) { return scratch[static_cast<size_t>(i)].get(); }
  void print(const std::string& what, double operations, double seconds) const {
    const double rate = operations / seconds * 1e-9;
    std::printf("%-46s %9.1f us %7.1f GF/s %5.1f %% of peak\n", what.c_str(), seconds * 1e6, rate,
                100 * rate / peak);
  }

  void matmul(const char* name, const MatmulProblem& p) {
    const auto plan = MatmulPlan::make(p);
    const Memory a = memory(static_cast<size_t>(p.m * p.k) * 4, true),
                 b = memory(static_cast<size_t>(p.k * p.n) * 4, true),
                 c = memory(static_cast<size_t>(p.m * p.n) * 4),
                 packed = memory(plan->packed_b_bytes());
    reserve(plan->scratch_bytes());
    plan->pack_b(b.get(), packed.get());
    const double operations =
        2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    const std::string what = std::string(name) + " " + std::to_string(p.m) + "x" +
                             std::to_string(p.n) + "x" + std::to_string(p.k) + " tile " +
                             std::to_string(plan->rows_per_tile()) + "x" +
                             std::to_string(plan->cols_per_tile());
    print(what, operations, fastest([&] {
            parallel_for_worker(threads, plan->tiles(), [&](int w, int64_t begin, int64_t end) {
              for (int64_t t = begin; t < end; ++t)
                plan->run_tile(t, a.get(), b.get(), c.get(), worker(w));
            });
          }));
    print(what + " packed", operations, fastest([&] {
            parallel_for_worker(threads, plan->tiles(), [&](int w, int64_t begin, int64_t end) {
              for (int64_t t = begin; t < end; ++t)
                plan->run_tile_packed(t, a.get(), packed.get(), c.get(), worker(w));
            });
          }));
  }

  void matmuls() {
    const int64_t tokens = 2048;
    for (auto [k, n] :
         {std::pair<int64_t, int64_t>{128, 128}, {128, 384}, {128, 512}, {512, 128}}) {
      MatmulProblem forward{.m = tokens, .n = n, .k = k};
      forward.set_dense();
      matmul("forward", forward);
      MatmulProblem input{.m = tokens, .n = k, .k = n};
      input.set_dense();
      input.b_row = 1;
      input.b_col = n;
      matmul("d-input", input);
      MatmulProblem weight{.m = k, .n = n, .k = tokens};
      weight.set_dense();
      weight.a_row = 1;
      weight.a_col = k;
      matmul("d-weight", weight);
    }
    MatmulProblem large{.m = 512, .n = 3072, .k = 768};
    large.set_dense();
    matmul("large", large);
    MatmulProblem row{.m = 1, .n = 4096, .k = 4096};
    row.set_dense();
    matmul("one row", row);
  }

  void attention(int64_t batch, int64_t length, int64_t d, AttentionMask mask) {
    AttentionProblem p{.batch = batch,
                       .heads = 4,
                       .kv_heads = 4,
                       .q_len = length,
                       .kv_len = length,
                       .head_dim = d,
                       .mask = mask,
                       .scale = 1 / std::sqrt(static_cast<double>(d))};
    p.set_dense();
    const size_t bytes = static_cast<size_t>(batch * 4 * length * d) * 4;
    const Memory q = memory(bytes, true), k = memory(bytes, true), v = memory(bytes, true),
                 out = memory(bytes), lse = memory(bytes), dout = memory(bytes, true),
                 dq = memory(bytes), dk = memory(bytes), dv = memory(bytes);
    reserve(std::max(attention_forward_scratch_bytes(p), attention_backward_scratch_bytes(p)));
    const double n = static_cast<double>(length);
    const double pairs =
        (mask == AttentionMask::Causal ? n * (n + 1) / 2 : n * n) * static_cast<double>(batch) * 4;
    const std::string what = "attention S" + std::to_string(length) + " D" + std::to_string(d) +
                             (mask == AttentionMask::Causal ? " causal" : "");
    print(what + " forward", 4 * pairs * static_cast<double>(d), fastest([&] {
            parallel_for_worker(
                threads, attention_forward_blocks(p), [&](int w, int64_t begin, int64_t end) {
                  attention_forward(p, {q.get(), k.get(), v.get(), out.get(), lse.get()}, begin,
                                    end, worker(w));
                });
          }));
    print(what + " backward", 10 * pairs * static_cast<double>(d), fastest([&] {
            parallel_for_worker(
                threads, attention_backward_blocks(p), [&](int w, int64_t begin, int64_t end) {
                  attention_backward(p,
                                     {q.get(), k.get(), v.get(), out.get(), lse.get(), dout.get(),
                                      dq.get(), dk.get(), dv.get()},
                                     begin, end, worker(w));
                });
          }));
  }

  void transpose(int64_t rows, int64_t cols) {
    const Memory from = memory(static_cast<size_t>(rows * cols) * 4, true),
                 to = memory(static_cast<size_t>(rows * cols) * 4);
    const CopyPlan plan = CopyPlan::make(4, std::vector{rows, cols}, std::vector<int64_t>{1, rows},
                                         std::vector{cols, int64_t{1}});
    const double time = fastest([&] {
      parallel_for(threads, plan.blocks(),
                   [&](int64_t b, int64_t e) { plan.run(from.get(), to.get(), b, e); });
    });
    std::printf("%-46s %9.1f us %7.1f GB/s read and written\n",
                ("transpose " + std::to_string(rows) + "x" + std::to_string(cols)).c_str(),
                time * 1e6, static_cast<double>(rows * cols) * 8 / time * 1e-9);
  }
};

void run(int threads) {
  const MachineLimits limits = measure_machine(threads);
  std::printf("threads %d, %s: %.1f GF/s multiply-add, %.1f GB/s read\n", threads,
              std::string(isa_name(host_isa())).c_str(), limits.fma_gflops, limits.read_gbytes);
  Bench bench{threads, limits.fma_gflops, {}};
  bench.matmuls();
  for (auto [length, d] : {std::pair<int64_t, int64_t>{128, 32}, {128, 64}, {512, 32}, {512, 64}}) {
    for (AttentionMask mask : {AttentionMask::Causal, AttentionMask::None}) {
      bench.attention(2048 / length, length, d, mask);
    }
  }
  bench.transpose(2048, 512);
  std::printf("\n");
}

}  // namespace
}  // namespace rlx::cpu

int main(int argc, char** argv) {
  if (argc > 1) {
    rlx::cpu::run(std::max(1, std::atoi(argv[1])));
  } else {
    rlx::cpu::run(1);
    rlx::cpu::run(2);
  }
}
