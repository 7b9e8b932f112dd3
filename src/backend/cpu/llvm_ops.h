// The arithmetic of the kernel form (rlx/codegen/kernel.h) as LLVM IR, over scalars or vectors
// alike.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "rlx/backend/cpu/vector_math.h"
#include "rlx/codegen/kernel.h"

namespace rlx::cpu {

class LlvmOps {
 public:
  LlvmOps(llvm::IRBuilder<>& builder, bool avx512) : b_(builder), math_(builder, avx512) {}

  // The type of values of a dtype (Bool: i1), and of elements in memory (Bool: i8, narrow
  // floats: integers of their size).
  llvm::Type* value_type(DType dtype, int lanes);
  llvm::Type* memory_type(DType dtype, int lanes);

  // An arithmetic operation, comparison or Select on operands of `dtype`. active: lanes that count
  // (null: all).
  llvm::Value* apply(codegen::KernelOp op, DType dtype, std::array<llvm::Value*, 3> x,
                     llvm::Value* active);
  llvm::Value* cast(llvm::Value* x, DType from, DType to);
  llvm::Value* round(llvm::Value* x, DType from, DType memory);
  llvm::Value* constant(DType dtype, uint64_t bits);

  // Between a memory_type and a value_type.
  llvm::Value* from_memory(llvm::Value* x, DType memory);
  llvm::Value* to_memory(llvm::Value* x, DType memory);

  // Accumulators.
  llvm::Value* combine(codegen::Combine how, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* identity(codegen::Combine how, DType dtype, int lanes);
  // All lanes of a vector combined, halves first.
  llvm::Value* reduce(codegen::Combine how, DType dtype, llvm::Value* x);

 private:
  llvm::Value* float_op(codegen::KernelOp op, std::array<llvm::Value*, 3> x, llvm::Value* active);
  llvm::Value* int_op(codegen::KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* divide(codegen::KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* shift(codegen::KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* compare(codegen::KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* extremum(bool max, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* round_to_odd(llvm::Value* x);
  llvm::Value* bf16_bits(llvm::Value* x);
  llvm::Value* f8_bits(llvm::Value* x, const NarrowFloat& f);
  llvm::Value* f8_value(llvm::Value* u, const NarrowFloat& f);

  llvm::IRBuilder<>& b_;
  VectorMath math_;
};

}  // namespace rlx::cpu
