// The loop-level kernel form: nested loops over scalar SSA instructions, one value type per
// target-neutral program. A region is lowered to a Kernel; emitters (LLVM IR, CUDA C++) and the
// interpreter read it.
//
//   KernelBuilder b("scale");                            // out[i] = 2 * in[i], blocks of 4096
//   BufferId in = b.input(DType::F32), out = b.output(DType::F32);
//   Size n = b.size();
//   b.loop(LoopKind::Block, n, [&](ValueId block) {...});  // whole examples: kernel_builder.h
//
// ABI: void kernel(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end) runs the
// Block loop's iterations [begin, end). Results never depend on how [0, blocks) is split into such
// calls. `sizes` holds what differs between steps that run the same code: sizes of loops, then scalar
// arguments, each in a word of its own (the value's bits, zero-extended).
//
// SEMANTICS
//
// Values have one of the types F32 F64 I8 I16 I32 I64 U8 U32 Bool. Narrow floats exist in memory
// only: a load widens to F32, a store rounds to nearest even, `round` keeps an F32 value at that
// precision. A C64 buffer is addressed in units of F32 (re at 2k, im at 2k+1).
// - Integers wrap. Division truncates, x/0 = 0, MIN/-1 = MIN; x rem 0 = 0, MIN rem -1 = 0. A shift
//   by the width or more (or a negative amount) gives 0, or the sign for a signed shr.
//   abs(MIN) = MIN.
// - Floats follow IEEE 754 without contraction; fma only where `fma` stands. Denormals are kept.
//   rem is fmod. max(a,b) is a where a > b or a is NaN, else b (so NaN propagates); min likewise.
//   copysign(a, b) is |a| with the sign of b, also where that is a zero or NaN. rint rounds to even. Comparisons are ordered, except ne, which is true on NaN.
// - Casts: float to int truncates, saturates, NaN gives 0; int to int wraps; to Bool is x != 0;
//   Bool to a number is 0 or 1; the rest round to nearest even.
// - exp log tanh erf sin cos pow have ULP bounds per target (vector_math.h of the emitter); special
//   values are C's.
//
// Loops run [0, extent) in order. A Vector loop runs its iterations side by side: it carries
// accumulators only with a combine operation, and may contain Serial loops whose extent is the same
// for all its iterations.
// - An accumulator with a combine operation starts at its init value and is combined with each
//   update; the order of combining is fixed per target, vector width and extent, but is not that of
//   the iterations. A float sum over n iterations is off by no more than one by halves: by at most
//   (16 + log2(n / 128)) * epsilon times the sum of the magnitudes.
// - A carried value without one (Combine::None) may be read in the body; `update` sets its next
//   value.
//
// Memory: a buffer that is written may share memory with one that is read only where every element
// is read by the iteration that writes it, before the write. Scratch buffers are uninitialised on
// entry of every block.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/ir/scalar.h"

namespace rlx::codegen {

// A constant (argument < 0: `scale`) or scale * sizes[argument].
struct Size {
  int64_t scale = 0;
  int32_t argument = -1;

  constexpr Size(int64_t constant = 0) : scale(constant) {}
  static constexpr Size arg(int32_t index, int64_t scale = 1) {
    Size s(scale);
    s.argument = index;
    return s;
  }
  constexpr bool is_constant() const { return argument < 0; }
  constexpr bool is(int64_t constant) const { return argument < 0 && scale == constant; }
  constexpr Size operator*(int64_t k) const {
    Size s(scale * k);
    s.argument = argument;
    return s;
  }
  constexpr bool operator==(const Size&) const = default;
};

// The result of the instruction at `id` in Kernel::body.
struct ValueId {
  int32_t id = -1;
  constexpr explicit operator bool() const { return id >= 0; }
  constexpr bool operator==(const ValueId&) const = default;
};

// A buffer parameter or a scratch array: position in Kernel::buffers.
struct BufferId {
  int32_t id = -1;
  constexpr explicit operator bool() const { return id >= 0; }
  constexpr bool operator==(const BufferId&) const = default;
};

// A loop's trip count: `total`, or for one tile of a split dimension min(tile, total - outer *
// tile).
struct Extent {
  Size total;
  Size tile;  // 0: not a tile
  ValueId outer;

  Extent() = default;
  Extent(Size n) : total(n) {}
  Extent(int64_t n) : total(n) {}
  bool is_tile() const { return !tile.is(0); }
  static Extent tail(Size total, Size tile, ValueId outer) {
    Extent e(total);
    e.tile = tile;
    e.outer = outer;
    return e;
  }
  bool operator==(const Extent&) const = default;
};

// An element address: the sum of stride * index over its terms (I64 values: loop indices or
// computed ones); a term without an index is an offset. Strides and offsets count elements of the
// buffer's dtype (F32 for C64).
struct Term {
  Size stride;
  ValueId index;
  Term(Size stride, ValueId index = {}) : stride(stride), index(index) {}
  bool operator==(const Term&) const = default;
};
using Address = std::vector<Term>;

enum class LoopKind : uint8_t { Block, Serial, Vector };
enum class Combine : uint8_t { None, Add, Mul, Max, Min, And, Or };
enum class Access : uint8_t { Read, Write, ReadWrite, Scratch };

// clang-format off
enum class KernelOp : uint8_t {
  // structure
  Const,       // bits
  SizeValue,   // extent.total as an I64
  Argument,    // the scalar in word extent.total.argument of the ABI's `sizes`
  Loop,        // kind, extent; its value is the index (I64); everything to the matching End is its body
  Carry,       // directly after Loop: args[0] = init, combine
  Update,      // args[0] = carry of the innermost loop, args[1] = contribution
  End,         // args[0] = loop
  Result,      // args[0] = carry of a loop that has ended in this body: its final value
  // memory
  Load,        // buffer, address
  Store,       // buffer, address, args[0]
  // arithmetic; Cast takes args[0] to dtype
  RLX_SCALAR_OPS,
  Round,       // args[0] (F32 or F64) rounded once to `memory`, a narrow float, as F32
};
// clang-format on

constexpr KernelOp kernel_op(ScalarOp op) {
  return static_cast<KernelOp>(static_cast<int>(KernelOp::Add) + static_cast<int>(op));
}

// What an operation takes and gives. One row per KernelOp; printer, builder and verifier read it.
enum class OpForm : uint8_t { Structure, Memory, Arithmetic, Compare, Choice, Convert };
struct OpInfo {
  KernelOp op;
  std::string_view name;
  OpForm form;
  int arity;
  DTypeSet operands;       // allowed types of the operands (Select: of its last two)
  bool expensive = false;  // a polynomial or a division: costs about ten simple operations
};
const OpInfo& info(KernelOp op);
int op_count();

struct Instr {
  KernelOp op = KernelOp::Const;
  DType dtype = DType::I64;   // of the value; Update, End and Store have none and say I64
  DType memory = DType::F32;  // Round: a narrow float
  LoopKind kind = LoopKind::Serial;
  Combine combine = Combine::None;
  std::array<ValueId, 3> args{};
  BufferId buffer;
  uint64_t bits = 0;  // Const: the value's bits, zero-extended
  bool free = false;  // Const, while building: its value is not part of the kernel's form
  Extent extent;
  Address address;
  bool operator==(const Instr&) const = default;
};

struct BufferDecl {
  DType dtype = DType::F32;
  Access access = Access::Read;
  int64_t length = 0;  // Scratch: elements
  int32_t slot = -1;   // parameters: position in the ABI's `buffers`
  bool operator==(const BufferDecl&) const = default;
};

inline constexpr int64_t kMaxScratchBytes = 256 * 1024;

struct Kernel {
  std::string name;
  std::vector<BufferDecl> buffers;
  int32_t parameters = 0;  // buffer parameters of the ABI
  int32_t sizes = 0;       // words of the ABI's `sizes`
  std::vector<Instr> body;

  const Instr& operator[](ValueId v) const { return body[static_cast<size_t>(v.id)]; }
  const BufferDecl& operator[](BufferId b) const { return buffers[static_cast<size_t>(b.id)]; }
};

// The type a value has when it is loaded from memory of this dtype (narrow floats, C64: F32).
constexpr DType value_dtype(DType memory) {
  return is_complex(memory) ? DType::F32 : wide_of(memory);
}

// Same buffers and body; the name does not count.
bool same_structure(const Kernel& a, const Kernel& b);
uint64_t structural_hash(const Kernel& kernel);
std::string structure_bytes(const Kernel& kernel);  // equal for kernels of the same structure only

// The text form, for dumps and tests.
std::string to_string(const Kernel& kernel);

// Throws an internal Error that names the instruction if the kernel is not well formed.
void verify(const Kernel& kernel);

// The same kernel with every instruction that does not depend on a loop moved before it. Loads move
// too when nothing in the kernel writes their buffer and the loop surely runs.
Kernel hoist_invariants(const Kernel& kernel);

// A slow, obvious evaluation: one iteration after the other in order, libm in double.
void interpret(const Kernel& kernel, void* const* buffers, const int64_t* sizes, int64_t begin,
               int64_t end);

}  // namespace rlx::codegen
