// A Kernel (rlx/codegen/kernel.h) as an LLVM function with the kernel ABI.
//
// Emission is direct: loops become phis, vector loops full-width vectors, so no optimisation pass
// has to follow. A vector loop of extent n becomes a main loop over `unroll` vectors at a time and
// a masked loop over the rest; each is left out when n is known and does not need it. The unrolled
// vectors advance instruction by instruction, so a serial loop inside a vector loop is unrolled and
// jammed. Accumulators are `unroll` vectors of partial results, combined pairwise and then by
// halves of the vector: the order depends on the kernel and on the vector width, nothing else.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "rlx/codegen/kernel.h"

namespace rlx::cpu {

struct EmitOptions {
  int vector_bits = 256;  // 512 implies AVX-512 F, BW, DQ, VL; 256 AVX2, FMA, F16C
};

// Adds the function `symbol` to the module. The kernel must verify.
llvm::Function* emit_kernel(const codegen::Kernel& kernel, llvm::Module& module,
                            const std::string& symbol, const EmitOptions& options);

}  // namespace rlx::cpu
