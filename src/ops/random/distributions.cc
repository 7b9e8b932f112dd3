// Random numbers of further distributions, and keys derived from keys.
#include "rlx/ops/random/distributions.h"

#include <limits>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/random/draws.h"
#include "rlx/ops/reduce/reduce.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

constexpr std::string_view kNoDrawDerivative =
    "draws by rejection or from integers: the path of a draw has no derivative";

// ---- inference ----------------------------------------------------------------------------------

// The result [k.., *shape] of keys and float parameters of one dtype that broadcast to it.
Types infer_draw(const InferArgs& a, const Shape& shape, DType dtype) {
  Type out = random_type(a, dtype, shape);
  for (size_t i = 1; i < a.in.size(); ++i) {
    if (!kFloats.has(a.in[i].dtype) || a.in[i].dtype != a.in[1].dtype)
      bad_operands(a, "dtype", "parameters must be floats of one dtype");
    if (!may_broadcast(a.in[i].shape, out.shape))
      bad_operands(a, "random-shape",
                   fmt::format("the parameter {} does not broadcast to {}", a.in[i], out));
  }
  return {out};
}

void require_float(const InferArgs& a, DType dtype) {
  if (!kFloats.has(dtype))
    bad_operands(a, "dtype",
                 fmt::format("does not make {}; allowed are {}", dtype, kFloats.to_string()));
}

Types infer_standard(const InferArgs& a) {
  const auto& [dtype, shape] = a.get<RandomAttrs>();
  require_float(a, dtype);
  return {random_type(a, dtype, shape)};
}

Types infer_like_parameter(const InferArgs& a) {
  return infer_draw(a, a.get<BitsAttrs>().shape, a.in[1].dtype);
}

Types infer_truncated(const InferArgs& a) {
  const auto& [dtype, shape, lower, upper] = a.get<TruncatedNormalAttrs>();
  require_float(a, dtype);
  if (!(lower < upper))
    bad_operands(a, "random-range", fmt::format("nothing lies between {} and {}", lower, upper));
  return {random_type(a, dtype, shape)};
}

Types infer_randint(const InferArgs& a) {
  const auto& [dtype, shape, low, high] = a.get<RandintAttrs>();
  if (!kInts.has(dtype))
    bad_operands(a, "dtype",
                 fmt::format("does not make {}; allowed are {}", dtype, kInts.to_string()));
  const int bits = 8 * size_of(dtype) - (info(dtype).is_signed ? 1 : 0);
  const int64_t most = bits == 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
  const int64_t least = info(dtype).is_signed ? -most - 1 : 0;
  if (low >= high || low < least || high - 1 > most ||
      static_cast<uint64_t>(high) - static_cast<uint64_t>(low) > uint64_t{1} << 31)
    bad_operands(
        a, "random-range",
        fmt::format("[{}, {}) must have 1 to 2^31 numbers that {} holds", low, high, dtype));
  return {random_type(a, dtype, shape)};
}

Types infer_keys(const InferArgs& a) {
  return {random_type(a, DType::U32, {a.get<KeyCountAttrs>().n, 2})};
}

Types infer_fold_in(const InferArgs& a) {
  Type key = random_type(a, DType::U32, {});
  if (!is_int(a.in[1].dtype)) bad_operands(a, "dtype", "what is folded in must be integers");
  const auto both = broadcast_shapes(key.shape, a.in[1].shape);
  if (!both) bad_operands(a, "random-shape", "keys and integers do not broadcast");
  key.shape = *both;
  key.shape.push_back(2);
  return {key};
}

Types infer_categorical(const InferArgs& a) {
  const Type& logits = a.in[1];
  const Type out = random_type(a, DType::I64, a.get<BitsAttrs>().shape);
  if (!kFloats.has(logits.dtype)) bad_operands(a, "dtype", "logits must be floats");
  if (logits.rank() == 0 || logits.shape.back() == Dim(0))
    bad_operands(a, "random-shape", "logits are [.., V] with at least one element a row");
  if (!may_broadcast(Shape(logits.shape.begin(), logits.shape.end() - 1), out.shape))
    bad_operands(a, "random-shape", fmt::format("the rows of logits do not broadcast to {}", out));
  return {out};
}

// ---- reference values ---------------------------------------------------------------------------

// draw(stream, parameter) for every element; the parameter is 0 when there is none.
template <class Draw>
Tensors draw_elements(const EvalArgs& e, Draw draw) {
  Tensor out = e.make();
  const uint32_t* key = e.in[0].data<uint32_t>();
  const int64_t keys = e.in[0].elements() / 2, each = keys ? out.elements() / keys : 0;
  const bool has_parameter = e.in.size() > 1;
  const Ints strides = has_parameter ? broadcast_strides(e.in[1].sizes(), out.sizes()) : Ints{};
  int64_t i = 0;
  for_each_index(out.sizes(), [&](const Ints& index) {
    int64_t at = 0;
    for (size_t d = 0; d < strides.size(); ++d) at += index[d] * strides[d];
    const int64_t k = i / each;
    DrawStream stream({key[2 * k], key[2 * k + 1]}, static_cast<uint64_t>(i % each));
    out.set_float(i++, draw(stream, has_parameter ? e.in[1].get_float(at) : 0.0));
  });
  return {out};
}

Tensors evaluate_gamma(const EvalArgs& e) {
  const bool log = e.get<GammaAttrs>().log;
  return draw_elements(e, [=](DrawStream& s, double alpha) { return draw_gamma(s, alpha, log); });
}

Tensors evaluate_truncated(const EvalArgs& e) {
  const auto& a = e.get<TruncatedNormalAttrs>();
  return draw_elements(
      e, [&](DrawStream& s, double) { return draw_truncated_normal(s, a.lower, a.upper); });
}

Tensors evaluate_permutation(const EvalArgs& e) {
  Tensor out = e.make();
  const uint32_t* key = e.in[0].data<uint32_t>();
  const int64_t keys = e.in[0].elements() / 2, n = out.sizes().back();
  for (int64_t k = 0; k < keys; ++k)
    draw_permutation({key[2 * k], key[2 * k + 1]}, n, out.mutable_data<int64_t>() + k * n);
  return {out};
}

Tensors evaluate_gamma_grad(const EvalArgs& e) {
  Tensor out = e.make();
  const bool log = e.get<GammaGradAttrs>().log;
  for (int64_t i = 0; i < out.elements(); ++i)
    out.set_float(i, gamma_derivative(e.in[0].get_float(i), e.in[1].get_float(i), log));
  return {out};
}

// ---- derivatives and vmap -----------------------------------------------------------------------

Value gamma_slope(Builder& b, const Node& n, Value alpha, Value drawn) {
  const Value each = broadcast_to(b, alpha, Shape(b.shape(drawn)));
  return op::random_gamma_grad(b, each, drawn, {n.get<GammaAttrs>().log});
}

Values jvp_gamma(Builder& b, const JvpArgs& a) {
  if (!a.tangents[1].valid()) return {kNone};
  return {op::mul(b, a.tangents[1], gamma_slope(b, a.node, a.in[1], a.out[0]))};
}

Values vjp_gamma(Builder& b, const VjpArgs& a) {
  if (!a.wanted[1]) return {kNone, kNone};
  const Value moved = op::mul(b, a.cotangents[0], gamma_slope(b, a.node, a.in[1], a.out[0]));
  return {kNone, unbroadcast(b, moved, Shape(b.shape(a.in[1])))};
}

Values vmap_gamma_grad(Builder& b, const VmapArgs& a) {
  Values in(a.in.begin(), a.in.end());
  for (size_t i = 0; i < in.size(); ++i)
    if (!a.batched[i]) in[i] = batch_operand(b, in[i], a.size);
  return b.emit(*a.node.op, a.node.attrs, in);
}

// Keys and parameters all broadcast to [batch, k.., *shape]; one key for all gives all the same
// stream.
Values vmap_draw(Builder& b, const VmapArgs& a) {
  Values in(a.in.begin(), a.in.end());
  if (!a.batched[0]) in[0] = batch_operand(b, in[0], a.size);
  for (size_t i = 1; i < in.size(); ++i)
    if (a.batched[i]) in[i] = align_batched(b, in[i], a.node.type().rank());
  return b.emit(*a.node.op, a.node.attrs, in);
}

// ---- decompositions -----------------------------------------------------------------------------

// Uniform in (0, 1), neither end: (the top 23 bits + 1/2) 2^-23 in f32, all 32 bits in f64.
Expr open_unit(Builder& b, Value key, const Shape& shape, DType dtype) {
  const Expr bits(b, op::random_bits(b, key, {shape}));
  if (dtype == DType::F64) return (Expr(b, cast_to(b, bits, dtype)) + 0.5) * 0x1p-32;
  return (Expr(b, cast_to(b, bits / 512.0, DType::F32)) + 0.5) * 0x1p-23;
}

// Entry i of axis `axis` (from the end) of x, without that axis.
Value entry(Builder& b, Value x, int64_t i, size_t from_end) {
  SliceAttrs s{Shape(b.shape(x).size(), Dim(0)), b.shape(x), {}};
  Shape shape = b.shape(x);
  const size_t axis = shape.size() - from_end;
  s.start[axis] = i, s.limit[axis] = i + 1;
  shape.erase(shape.begin() + static_cast<int64_t>(axis));
  return op::reshape(b, op::slice(b, x, s), {shape});
}

// A key that is used for nothing else.
Value salted(Builder& b, Value key, uint32_t salt) {
  return op::add(b, key, b.constant(Tensor::from<uint32_t>({2}, {salt, ~salt})));
}

Values decompose_key_split(Builder& b, const Node& n, Operands in) {
  return {op::random_bits(b, salted(b, in[0], 0x73706c74), {{n.get<KeyCountAttrs>().n, 2}})};
}

Values decompose_fold_in(Builder& b, const Node&, Operands in) {
  const Expr base(b, op::random_bits(b, salted(b, in[0], 0x666f6c64), {{2}}));
  Shape column = b.shape(in[1]);
  column.push_back(1);
  const Expr data(b, reshape_to(b, cast_to(b, in[1], DType::U32), column)),
      first(b, b.constant(Tensor::from<uint32_t>({2}, {1, 0})));
  return {op::random_bits(b, base + data * first, {{2}})};
}

Values decompose_randint(Builder& b, const Node& n, Operands in) {
  const auto& [dtype, shape, low, high] = n.get<RandintAttrs>();
  Shape pairs = shape;
  pairs.push_back(2);
  const Value bits = op::random_bits(b, in[0], {pairs});
  const Expr high_word(b, cast_to(b, entry(b, bits, 0, 1), DType::I64)),
      low_word(b, cast_to(b, entry(b, bits, 1, 1), DType::I64));
  const auto count = static_cast<double>(high - low);
  const Expr drawn = (high_word * count + low_word * count / 0x1p32) / 0x1p32;
  // The sum fits: high - 1 does. In i64, where a double might not hold `low`.
  const Value first = b.constant(Tensor::from<int64_t>({}, {low}));
  return {cast_to(b, op::add(b, drawn.value(), first), dtype)};
}

template <Expr (*transform)(Expr u)>
Values decompose_standard(Builder& b, const Node& n, Operands in) {
  const auto& [dtype, shape] = n.get<RandomAttrs>();
  return {cast_to(b, transform(open_unit(b, in[0], shape, wide_of(dtype))), dtype)};
}

Expr exponential(Expr u) { return -op::log(u); }
Expr gumbel(Expr u) { return -op::log(-op::log(u)); }
Expr laplace(Expr u) {
  const Expr v = u - 0.5;
  return -(op::sign(v) * op::log1p(op::abs(v) * -2.0));
}

Values decompose_bernoulli(Builder& b, const Node& n, Operands in) {
  const DType wide = wide_of(b.type(in[1]).dtype);
  const Shape& shape = n.get<BitsAttrs>().shape;
  const Value u = op::random_uniform(b, in[0], {wide, shape});
  return {op::lt(b, u, cast_to(b, in[1], wide))};
}

Values decompose_categorical(Builder& b, const Node& n, Operands in) {
  const DType wide = wide_of(b.type(in[1]).dtype);
  Shape shape = n.get<BitsAttrs>().shape;
  shape.push_back(b.shape(in[1]).back());
  const Value noise = op::random_gumbel(b, in[0], {wide, shape});
  return {op::argmax(b, op::add(b, noise, cast_to(b, in[1], wide)), {.axis = -1})};
}

Value log_gamma_draw(Builder& b, Value key, Value alpha, const Shape& shape) {
  const DType wide = wide_of(b.type(alpha).dtype);
  return op::random_gamma(b, key, cast_to(b, alpha, wide), {shape, true});
}

// x / (x + y) of gamma draws x and y, by their logarithms.
Values decompose_beta(Builder& b, const Node& n, Operands in) {
  const Shape& shape = n.get<BitsAttrs>().shape;
  const Value keys = op::random_split(b, in[0], {2});
  const Value x = log_gamma_draw(b, entry(b, keys, 0, 2), in[1], shape),
              y = log_gamma_draw(b, entry(b, keys, 1, 2), in[2], shape);
  return {cast_to(b, op::sigmoid(b, op::sub(b, x, y)), n.type().dtype)};
}

Values decompose_dirichlet(Builder& b, const Node& n, Operands in) {
  const Value x = log_gamma_draw(b, in[0], in[1], n.get<BitsAttrs>().shape);
  return {cast_to(b, op::softmax(b, x, {.axis = -1}), n.type().dtype)};
}

Types infer_dirichlet(const InferArgs& a) {
  if (a.get<BitsAttrs>().shape.empty())
    bad_operands(a, "random-shape", "the shape must have a last axis, along which the sum is 1");
  return infer_like_parameter(a);
}

// ---- kinds of entries ---------------------------------------------------------------------------

constexpr OpDef drawn(std::string_view name, std::string_view doc, int arity, InferRule infer) {
  OpDef d{.name = name, .doc = doc, .arity = arity, .dtypes = kKeyTypes};
  d.infer = infer;
  d.not_differentiable = arity == 1 ? kNoKeyDerivative : kNoDrawDerivative;
  return d;
}

constexpr OpDef composed(std::string_view name, std::string_view doc, int arity, InferRule infer,
                         DecomposeRule decompose) {
  OpDef d = drawn(name, doc, arity, infer);
  d.decompose = decompose;
  if (arity == 1) d.vmap = vmap_keys;
  return d;
}

constexpr OpDef native(std::string_view name, std::string_view doc, int arity, InferRule infer,
                       EvalRule eval) {
  OpDef d = drawn(name, doc, arity, infer);
  d.kind = Kind::random;
  d.eval = eval;
  d.vmap = vmap_draw;
  return d;
}

}  // namespace

namespace op {

constinit const Op<KeyCountAttrs> random_split = named(
    "key",
    composed("random_split",
             "n new keys of a key, [k.., n, 2]: random_bits of the key plus the constant "
             "(0x73706c74, ~0x73706c74), so that they have nothing to do with what the key draws.",
             1, infer_keys, decompose_key_split));

constinit const Op<> random_fold_in = named(
    "key, data",
    composed(
        "random_fold_in",
        "A new key for every integer (taken modulo 2^32), [.., 2]; keys and integers broadcast. "
        "The key plus (0x666f6c64, ~0x666f6c64) draws two words, the integer is added to the "
        "first, and these as a key draw the new key.",
        2, infer_fold_in, decompose_fold_in));

constinit const Op<KeyCountAttrs> random_permutation = named(
    "key", native(
               "random_permutation",
               "0 .. n - 1 in random order as i64 [k.., n]; every order is equally likely.", 1,
               [](const InferArgs& a) -> Types {
                 return {random_type(a, DType::I64, {a.get<KeyCountAttrs>().n})};
               },
               evaluate_permutation));

constinit const Op<RandintAttrs> random_randint = named(
    "key",
    composed("random_randint",
             "Uniform integers in [low, high), at most 2^31 of them: the high part of 64 random "
             "bits times high - low.",
             1, infer_randint, decompose_randint));

constinit const Op<RandomAttrs> random_exponential = named(
    "key",
    composed("random_exponential",
             "Exponential numbers of mean 1: -log(u) for u = (random 23 bits + 1/2) 2^-23 (f64: 32 "
             "bits).",
             1, infer_standard, decompose_standard<exponential>));

constinit const Op<RandomAttrs> random_gumbel =
    named("key", composed("random_gumbel",
                          "Standard Gumbel numbers: -log(-log(u)), u as for random_exponential.", 1,
                          infer_standard, decompose_standard<gumbel>));

constinit const Op<RandomAttrs> random_laplace = named(
    "key", composed("random_laplace",
                    "Standard Laplace numbers: -sign(v) log1p(-2 |v|) for v = u - 1/2, u as for "
                    "random_exponential.",
                    1, infer_standard, decompose_standard<laplace>));

constinit const Op<TruncatedNormalAttrs> random_truncated_normal = named(
    "key",
    native(
        "random_truncated_normal",
        "Standard normal numbers given that they lie between the bounds (which may be infinite), "
        "by inverting the distribution in f64.",
        1, infer_truncated, evaluate_truncated));

constinit const Op<BitsAttrs> random_bernoulli = named(
    "key, p",
    composed(
        "random_bernoulli", "Whether a uniform number of the key is below p, as bool.", 2,
        [](const InferArgs& a) { return infer_draw(a, a.get<BitsAttrs>().shape, DType::Bool); },
        decompose_bernoulli));

constinit const Op<BitsAttrs> random_categorical = named(
    "key, logits",
    composed("random_categorical",
             "Indices along the last axis of the logits, each with its softmax as probability: the "
             "largest of logits plus Gumbel noise. i64 [k.., *shape], to which the rows broadcast.",
             2, infer_categorical, decompose_categorical));

constinit const Op<GammaAttrs> random_gamma = named("key, alpha", [] {
  OpDef d = native(
      "random_gamma",
      "Gamma numbers of shape alpha and scale 1 (Marsaglia and Tsang), drawn in f64; with log "
      "their logarithm. 0 for alpha = 0, NaN for a negative one. The derivative by alpha is that "
      "of implicit reparameterisation (random_gamma_grad), not of the rejection.",
      2, [](const InferArgs& a) { return infer_draw(a, a.get<GammaAttrs>().shape, a.in[1].dtype); },
      evaluate_gamma);
  d.jvp = jvp_gamma;
  d.vjp = vjp_gamma;
  d.not_differentiable = {};
  return d;
}());

constinit const Op<GammaGradAttrs> random_gamma_grad = OpDef{
    .name = "random_gamma_grad",
    .doc =
        "How a gamma number x moves with its shape alpha while its quantile stays: -(dP/dalpha) / "
        "(dP/dx) for the distribution function P(alpha, x). With log, of log x. Both operands have "
        "one shape.",
    .kind = Kind::random,
    .arity = 2,
    .operands = "alpha, x",
    .dtypes = kFloats,
    .infer = [](const InferArgs& a) -> Types {
      require_same_dtype(a);
      if (!may_be_equal(a.in[0], a.in[1]))
        bad_operands(a, "random-shape", "alpha and the numbers must have one shape");
      return {a.in[0]};
    },
    .eval = evaluate_gamma_grad,
    .vmap = vmap_gamma_grad,
    .not_differentiable =
        "a second derivative of the gamma distribution by its shape is not defined",
};

constinit const Op<BitsAttrs> random_beta = named("key, a, b", [] {
  OpDef d = composed("random_beta",
                     "Beta numbers of parameters a and b: x / (x + y) for gamma numbers x of a and "
                     "y of b, of the two keys that random_split gives.",
                     3, infer_like_parameter, decompose_beta);
  d.not_differentiable = {};
  return d;
}());

constinit const Op<BitsAttrs> random_dirichlet = named("key, alpha", [] {
  OpDef d =
      composed("random_dirichlet",
               "Dirichlet numbers: gamma numbers of alpha divided by their sum along the last "
               "axis.",
               2, infer_dirichlet, decompose_dirichlet);
  d.not_differentiable = {};
  return d;
}());

constinit const Op<BitsAttrs> random_poisson = named(
    "key, rate",
    native(
        "random_poisson",
        "Poisson numbers of a rate, in its dtype: products of uniform numbers below 10, Hoermann's "
        "transformed rejection above. NaN for a negative, infinite or NaN rate.",
        2, infer_like_parameter, [](const EvalArgs& e) { return draw_elements(e, draw_poisson); }));

}  // namespace op

namespace {
constexpr const OpDef* kDistributionsOps[] = {
    &op::random_split,       &op::random_fold_in,
    &op::random_permutation, &op::random_randint,
    &op::random_exponential, &op::random_gumbel,
    &op::random_laplace,     &op::random_truncated_normal,
    &op::random_bernoulli,   &op::random_categorical,
    &op::random_gamma,       &op::random_gamma_grad,
    &op::random_beta,        &op::random_dirichlet,
    &op::random_poisson,     &op::top_k_mask,
    &op::top_p_mask,         &op::top_k_filter,
    &op::top_p_filter,       &op::sample,
};
}  // namespace
constinit const Family kDistributions{"distributions", kDistributionsOps};

}  // namespace rlx
