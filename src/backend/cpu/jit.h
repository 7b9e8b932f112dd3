// Compiles kernels (rlx/codegen/kernel.h) to machine code of this CPU with LLVM.
//
//   CpuJit jit({.vector_bits = host_vector_bits()});
//   std::vector<KernelFn> fns = jit.compile(kernels);     // in order of `kernels`
//   fns[0](buffers, sizes, 0, blocks);
//
// The code lives as long as the CpuJit. compile() may be called repeatedly, from one thread at a
// time. No other header of the project shows LLVM. Raises Error (device, "llvm") when LLVM refuses,
// (user, "vector-bits") for a width this CPU does not have, (internal) for a kernel that does not
// verify, and std::bad_alloc or (resource, "out-of-memory"), after which LLVM's objects are abandoned
// (jit.cc says why) and only that memory is lost. LLVM's handlers for fatal errors and failed
// allocations are set, for the process, by the first CpuJit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rlx/codegen/kernel.h"

namespace rlx::cpu {

class CodeCache;  // code_cache.h

using KernelFn = void (*)(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end);

// 512 with AVX-512 (F, BW, DQ, VL), 256 with AVX2 and FMA, else 0: this CPU cannot run generated
// code.
int host_vector_bits();
std::string host_cpu_name();

struct CpuJitOptions {
  int vector_bits = 0;      // 256 or 512; 0: the host's widest
  int compile_threads = 1;  // modules compiled side by side
  int kernels_per_module = 16;
  std::string dump_directory;  // not empty: NAME.ll and NAME.s of every module are written there
  CodeCache* cache =
      nullptr;  // code that was made before is taken from there, and new code put there
};

class CpuJit {
 public:
  explicit CpuJit(CpuJitOptions options = {});
  ~CpuJit();
  CpuJit(CpuJit&&) noexcept;
  CpuJit& operator=(CpuJit&&) noexcept;

  std::vector<KernelFn> compile(std::span<const codegen::Kernel* const> kernels);
  int vector_bits() const;
  int64_t resident_bytes() const;  // the code
  int64_t generated() const;       // kernels that LLVM was called for; the others were in the cache

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rlx::cpu
