// Counter-based randomness.
#include "rlx/ops/random/random.h"

#include <cmath>

#include "rlx/base/philox.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"

namespace rlx {

Type random_type(const InferArgs& a, DType dtype, const Shape& shape) {
  const Shape& key = a.in[0].shape;
  if (key.empty() || differ(key.back(), 2))
    bad_operands(a, "random-key", "a key is u32 [2]; several keys are u32 [.., 2]");
  for (const Dim& d : shape)
    if (is_negative(d))
      bad_operands(a, "negative-dim", fmt::format("the shape {} has a negative size", shape));
  Shape out(key.begin(), key.end() - 1);
  out.insert(out.end(), shape.begin(), shape.end());
  return {dtype, out};
}

Values vmap_keys(Builder& b, const VmapArgs& a) { return b.clone(a.node, a.in); }

namespace {

Types infer_random(const InferArgs& a) {
  const auto& [dtype, shape] = a.get<RandomAttrs>();
  if (!kFloats.has(dtype))
    bad_operands(a, "dtype",
                 fmt::format("does not make {}; allowed are {}", dtype, kFloats.to_string()));
  return {random_type(a, dtype, shape)};
}

Tensors evaluate_bits(const EvalArgs& e) {
  Tensor out = e.make();
  const uint32_t* key = e.in[0].data<uint32_t>();
  uint32_t* bits = out.mutable_data<uint32_t>();
  const int64_t keys = e.in[0].elements() / 2, each = product(e.get<BitsAttrs>().shape.sizes());
  for (int64_t k = 0; k < keys; ++k, key += 2, bits += each) {
    PhiloxBlock block{};
    for (int64_t i = 0; i < each; ++i) {
      if (i % 4 == 0)
        block = philox4x32({key[0], key[1]}, philox_counter(static_cast<uint64_t>(i / 4)));
      bits[i] = block[static_cast<size_t>(i % 4)];
    }
  }
  return {out};
}

// The top `kept` bits of random words as a number in [0, 1), exactly.
Expr unit_interval(Expr bits, int kept, DType dtype) {
  Expr top = kept == 32 ? bits : bits / std::exp2(32 - kept);
  return Expr(bits.builder(), cast_to(bits.builder(), top, dtype)) * std::exp2(-kept);
}

Values decompose_uniform(Builder& b, const Node& n, Operands in) {
  const auto& [dtype, shape] = n.get<RandomAttrs>();
  const Expr bits(b, op::random_bits(b, in[0], {shape}));
  const int kept = std::min(info(dtype).digits, 24);
  return {cast_to(b, unit_interval(bits, kept, DType::F32), dtype)};
}

// Every second word, from `first` on, of random words with a last axis of 2.
Expr half_of(Expr pairs, int64_t first) {
  SliceAttrs s{Shape(pairs.shape().size(), Dim(0)), pairs.shape(), {}};
  s.start.back() = first, s.limit.back() = first + 1;
  Shape shape = pairs.shape();
  shape.pop_back();
  return op::reshape(op::slice(pairs, s), ShapeAttrs{shape});
}

Values decompose_normal(Builder& b, const Node& n, Operands in) {
  const auto& [dtype, shape] = n.get<RandomAttrs>();
  const DType wide = dtype == DType::F64 ? DType::F64 : DType::F32;
  Shape pairs = shape;
  pairs.push_back(2);
  const Expr bits(b, op::random_bits(b, in[0], {pairs}));
  // u1 in (0, 1], so that its logarithm is finite.
  const Expr u1 = unit_interval(half_of(bits, 0), 24, wide) + 0x1p-24,
             u2 = unit_interval(half_of(bits, 1), 24, wide);
  const Expr radius = op::sqrt(op::log(u1) * -2.0);
  return {cast_to(b, radius * op::cos(u2 * (2 * M_PI)), dtype)};
}

constexpr OpDef distribution(std::string_view name, std::string_view doc, DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .arity = 1, .dtypes = kKeyTypes};
  d.infer = infer_random;
  d.decompose = decompose;
  d.vmap = vmap_keys;
  d.not_differentiable = kNoKeyDerivative;
  return d;
}

}  // namespace

namespace op {

constinit const Op<BitsAttrs> random_bits = OpDef{
    .name = "random_bits",
    .doc =
        "Random u32 words of a key (u32 [2]): element i is word i % 4 of block i / 4 of "
        "Philox4x32-10. Keys [k.., 2] give "
        "[k.., *shape], each key its own stream.",
    .kind = Kind::random,
    .arity = 1,
    .operands = "key",
    .dtypes = kKeyTypes,
    .infer = [](const InferArgs& a) -> Types {
      return {random_type(a, DType::U32, a.get<BitsAttrs>().shape)};
    },
    .eval = evaluate_bits,
    .vmap = vmap_keys,
    .not_differentiable = kNoKeyDerivative,
};

constinit const Op<RandomAttrs> random_uniform = named(
    "key",
    distribution("random_uniform",
                 "Uniform numbers in [0, 1): the top 24 bits of random_bits times 2^-24. f16 takes "
                 "11 bits and bf16 8, as many as "
                 "they hold, so that nothing rounds up to 1.",
                 decompose_uniform));

constinit const Op<RandomAttrs> random_normal = named(
    "key",
    distribution("random_normal",
                 "Standard normal numbers by Box and Muller: sqrt(-2 ln u1) cos(2 pi u2) with u1 = "
                 "((bits[2i] >> 8) + 1) * 2^-24 and "
                 "u2 = (bits[2i+1] >> 8) * 2^-24, computed in f32 (f64 for f64).",
                 decompose_normal));

}  // namespace op

namespace {
constexpr const OpDef* kRandomOps[] = {&op::random_bits, &op::random_uniform, &op::random_normal};
}  // namespace
constinit const Family kRandom{"random", kRandomOps};

}  // namespace rlx
