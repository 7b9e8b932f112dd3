// Complex numbers: parts, modulus, angle.
#include "rlx/ops/elementwise/complex.h"

#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

constexpr DTypeSet kParts{DType::F32};

Types infer_complex(const InferArgs& a) { return {{DType::C64, infer_broadcast(a)[0].shape}}; }
Types infer_real(const InferArgs& a) { return {{DType::F32, a.in[0].shape}}; }

Types infer_scaled(const InferArgs& a) {
  const auto shape = broadcast_shapes(a.in[0].shape, a.in[1].shape);
  if (a.in[1].dtype != DType::F32) bad_operands(a, "dtype-mixed", "the factor must be f32");
  if (!shape) bad_operands(a, "broadcast", "the shapes do not broadcast");
  return {{DType::C64, *shape}};
}

// A value per element of complex operands (real ones have an imaginary part of 0).
template <int N, auto F>
Tensors evaluate_complex(const EvalArgs& e) {
  return {detail::map_pointwise<Complex, F>(e, std::make_index_sequence<N>{})};
}

// x * y for complex x and real y, part by part: an infinity makes no NaN of the other part.
Value scaled(Builder& b, Value x, Value y) {
  return op::complex(b, op::mul(b, op::real(b, x), y), op::mul(b, op::imag(b, x), y));
}

// 1 / x, and 0 with all its derivatives for 0.
Value inverse_or_zero(Builder& b, Value x) {
  const Value zero = b.constant_like(x, 0), is_zero = op::eq(b, x, zero);
  const Value divisor = op::select(b, is_zero, b.constant_like(x, 1), x);
  return op::select(b, is_zero, zero, op::reciprocal(b, divisor));
}

// z / |z|, 0 for 0.
Value direction(Builder& b, Value z, Value modulus) {
  return scaled(b, z, inverse_or_zero(b, modulus));
}

// i z / |z|^2, 0 for 0: where the angle grows.
Value angle_gradient(Builder& b, Value z) {
  const Value scale = inverse_or_zero(b, op::complex_norm_sq(b, z));
  return op::complex(b, op::mul(b, op::neg(b, op::imag(b, z)), scale),
                     op::mul(b, op::real(b, z), scale));
}

// A real function with gradient u (complex) changes by Re(conj(u) t).
Values jvp_real(Builder& b, Value u, Value t) {
  return {op::real(b, op::mul(b, op::conj(b, u), t))};
}

Values vjp_complex(Builder& b, const VjpArgs& a) {
  const Value g = a.cotangents[0];
  Values out = {kNone, kNone};
  if (a.wanted[0]) out[0] = unbroadcast(b, op::real(b, g), Shape(b.shape(a.in[0])));
  if (a.wanted[1]) out[1] = unbroadcast(b, op::imag(b, g), Shape(b.shape(a.in[1])));
  return out;
}

Values jvp_complex(Builder& b, const JvpArgs& a) {
  auto part = [&](size_t i) {
    return a.tangents[i].valid() ? a.tangents[i] : full(b, {DType::F32, b.shape(a.in[i])}, 0);
  };
  return {op::complex(b, part(0), part(1))};
}

// A real function of a complex number.
constexpr OpDef measure(std::string_view name, std::string_view doc) {
  return {
      .name = name, .doc = doc, .kind = Kind::elementwise, .dtypes = kComplex, .infer = infer_real};
}

}  // namespace

namespace op {

constinit const Op<> complex = OpDef{
    .name = "complex",
    .doc = "re + i im as c64, from f32 parts that broadcast; the parts are taken as they are.",
    .kind = Kind::elementwise,
    .arity = 2,
    .operands = "re, im",
    .dtypes = kParts,
    .infer = infer_complex,
    .eval =
        evaluate_complex<2, [](Complex re, Complex im) { return Complex(re.real(), im.real()); }>,
    .jvp = jvp_complex,
    .vjp = vjp_complex,
};

constinit const Op<> polar = OpDef{
    .name = "polar",
    .doc = "r e^(i angle) as c64, from f32 that broadcast; r may be negative.",
    .arity = 2,
    .operands = "r, angle",
    .dtypes = kParts,
    .infer = infer_complex,
    .decompose = [](Builder& b, const Node&, Operands in) -> Values {
      const Value r = in[0], angle = in[1];
      return {op::complex(b, op::mul(b, r, op::cos(b, angle)), op::mul(b, r, op::sin(b, angle)))};
    },
};

constinit const Op<> complex_abs = named("z", [] {
  OpDef d = measure("complex_abs",
                    "Modulus |z| as f32, without overflow on the way; inf when a part is infinite. "
                    "All derivatives at 0 are 0.");
  d.eval = evaluate_complex<1, [](Complex z) { return Complex(std::abs(z)); }>;
  d.jvp = [](Builder& b, const JvpArgs& a) {
    return jvp_real(b, direction(b, a.in[0], a.out[0]), a.tangents[0]);
  };
  d.vjp = [](Builder& b, const VjpArgs& a) {
    return single(scaled(b, direction(b, a.in[0], a.out[0]), a.cotangents[0]));
  };
  return d;
}());

constinit const Op<> complex_angle = named("z", [] {
  OpDef d = measure("complex_angle",
                    "Angle of z in [-pi, pi] as f32: atan2(im, re), with the signs of zeros. All "
                    "derivatives at 0 are 0.");
  d.eval = evaluate_complex<1, [](Complex z) { return Complex(std::arg(z)); }>;
  d.jvp = [](Builder& b, const JvpArgs& a) {
    return jvp_real(b, angle_gradient(b, a.in[0]), a.tangents[0]);
  };
  d.vjp = [](Builder& b, const VjpArgs& a) {
    return single(scaled(b, angle_gradient(b, a.in[0]), a.cotangents[0]));
  };
  return d;
}());

constinit const Op<> complex_norm_sq = OpDef{
    .name = "complex_norm_sq",
    .doc = "re^2 + im^2 as f32.",
    .reference = "ComplexNormSq",
    .operands = "z",
    .dtypes = kComplex,
    .infer = infer_real,
    .decompose = [](Builder& b, const Node&, Operands in) -> Values {
      return {op::add(b, op::square(b, op::real(b, in[0])), op::square(b, op::imag(b, in[0])))};
    },
};

constinit const Op<> complex_norm_sq_backward = OpDef{
    .name = "complex_norm_sq_backward",
    .doc =
        "(g re, g im) for c64 z and f32 g: the Wirtinger derivative of |z|^2 by conj(z), half of "
        "what gradients carry here.",
    .reference = "ComplexNormSqBackward",
    .arity = 2,
    .operands = "z, g",
    .dtypes = kComplex,
    .infer = infer_scaled,
    .decompose = [](Builder& b, const Node&, Operands in) -> Values {
      return {scaled(b, in[0], in[1])};
    },
};

}  // namespace op

namespace {
constexpr const OpDef* kComplexNumbersOps[] = {&op::complex,         &op::polar,
                                               &op::complex_abs,     &op::complex_angle,
                                               &op::complex_norm_sq, &op::complex_norm_sq_backward};
}  // namespace
constinit const Family kComplexNumbers{"complex", kComplexNumbersOps};

}  // namespace rlx
