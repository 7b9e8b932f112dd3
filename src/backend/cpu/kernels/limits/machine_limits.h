// What this machine can do at best, measured now: the yardstick for every kernel's report.
//
//   MachineLimits limits = measure_machine(2);
//   printf("%.0f GF/s, %.1f GB/s\n", limits.fma_gflops, limits.read_gbytes);
//
// The floating-point peak is the rate of independent f32 fused multiply-adds held in registers,
// with the widest vectors that the Isa has (a multiply and an add count as two operations).
#pragma once

#include <cstddef>

#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx::cpu {

// GF/s of f32 FMA on `threads` threads, best of a few runs that take about `seconds` in all.
double measure_fma_peak(int threads, Isa isa = host_isa(), double seconds = 0.1);

// GB/s of reading an array of `bytes` (larger than the caches by default) with `threads` threads.
double measure_read_bandwidth(int threads, size_t bytes = size_t{256} << 20);

// Seconds of the fastest loop found here that reads an array of `read` bytes and writes another of
// `written` bytes on `threads` threads: what a kernel with this traffic is measured against. Caches
// help it as they help the kernel, so no kernel is faster but by chance.
double measure_traffic(int threads, size_t read, size_t written);

struct MachineLimits {
  int threads = 1;
  double fma_gflops = 0;
  double read_gbytes = 0;
};
MachineLimits measure_machine(int threads);

}  // namespace rlx::cpu
