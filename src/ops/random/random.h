// Randomness: pure functions of a key (u32[2]) by Philox4x32-10. Element i of random_bits is word i
// % 4 of block i / 4. Several keys, u32[k.., 2], give [k.., *shape]: each key its own stream.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct BitsAttrs {
  Shape shape;
  static constexpr auto fields() { return Fields<&BitsAttrs::shape>(); }
};
struct RandomAttrs {
  DType dtype = DType::F32;
  Shape shape;
  static constexpr auto fields() { return Fields<&RandomAttrs::dtype, &RandomAttrs::shape>(); }
};

namespace op {
extern const Op<BitsAttrs> random_bits;       // u32; primitive
extern const Op<RandomAttrs> random_uniform;  // [0, 1): (bits >> 8) * 2^-24
extern const Op<RandomAttrs> random_normal;   // Box-Muller of bits[2i], bits[2i+1]
}  // namespace op

// For ops that take keys: keys [k.., 2] and a shape give [k.., *shape] (raises "random-key",
// "negative-dim"); and vmap of an op whose only operand is the key, a batch of keys being just more
// of them.
Type random_type(const InferArgs& a, DType dtype, const Shape& shape);
Values vmap_keys(Builder& b, const VmapArgs& a);
inline constexpr std::string_view kNoKeyDerivative = "a function of an integer key";
inline constexpr DTypeSet kKeyTypes{DType::U32};

extern const Family kRandom;

}  // namespace rlx
