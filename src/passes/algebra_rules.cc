// Elementwise identities. Without fast_math they keep every value, NaN, infinities and the sign of
// zero included.
#include <cmath>

#include "rlx/ops/rules.h"
#include "rlx/passes/simplify_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

bool integer(const Match& m) { return is_int(m.type().dtype); }
bool real(const Match& m) { return !is_complex(m.type().dtype); }
bool exact_or_fast(const Match& m) { return integer(m) || m.fast_math(); }

// c is +0 (or -0) in all its parts; integers have only one zero.
bool signed_zero(const Match& m, bool negative) {
  const Complex v = m.splat(c);
  if (integer(m)) return true;
  return std::signbit(v.real()) == negative && (real(m) || std::signbit(v.imag()) == negative);
}

// 1 / v is exact in the dtype: v is a power of two whose inverse is a normal number.
bool exact_inverse(DType dtype, double v) {
  int exponent = 0;
  if (v == 0 || !std::isfinite(v) || std::fabs(std::frexp(v, &exponent)) != 0.5) return false;
  return std::abs(exponent - 1) < info(dtype).exponent;
}

bool keeps_shape_of_bool(const Match& m) {
  return m.type(x) == m.type() && is_bool(m.type().dtype);
}

// Every value of `from` is a value of `to`.
bool lossless(DType from, DType to) {
  if (from == to || is_bool(from)) return true;
  if (is_bool(to) || is_complex(from) || (is_float(from) && is_int(to))) return false;
  if (is_int(to) && info(from).is_signed && !info(to).is_signed) return false;
  return info(from).digits <= info(to).digits && info(from).exponent <= info(to).exponent;
}

// cast(cast(x)) equals one cast: the first loses nothing, and the second means the same for both
// dtypes (from integers it wraps, from floats it saturates).
bool casts_merge(const Match& m) {
  const DType from = m.type(x).dtype, middle = m.type(y).dtype, to = m.type().dtype;
  return lossless(from, middle) &&
         (is_bool(from) || info(from).cls == info(middle).cls || !is_int(to));
}

bool splat_divisor(const Match& m) {
  return is_float(m.type().dtype) &&
         (m.fast_math() || exact_inverse(m.type().dtype, m.splat(c).real()));
}

// Constants are brought together; x itself must not be one, else three constants would chase each
// other.
bool constants_merge(const Match& m) { return exact_or_fast(m) && !splat_value(m.graph(), m[x]); }

}  // namespace

RuleSet algebra_rules() {
  return {
      {"add-zero", pat(op::add, {x, zero.as(c)}),
       [](const Match& m) { return signed_zero(m, true) || m.fast_math(); },
       [](Builder&, const Match& m) { return m[x]; }},
      {"sub-zero", pat(op::sub, {x, zero.as(c)}),
       [](const Match& m) { return signed_zero(m, false) || m.fast_math(); },
       [](Builder&, const Match& m) { return m[x]; }},
      {"sub-self", pat(op::sub, {x, x}), exact_or_fast,
       [](Builder& b, const Match& m) { return full(b, m.type(), 0); }},
      {"sub-neg", pat(op::sub, {x, pat(op::neg, {y})}),
       [](Builder& b, const Match& m) { return op::add(b, m[x], m[y]); }},
      {"add-neg", pat(op::add, {x, pat(op::neg, {y})}),
       [](Builder& b, const Match& m) { return op::sub(b, m[x], m[y]); }},
      {"neg-neg", pat(op::neg, {pat(op::neg, {x})}), [](Builder&, const Match& m) { return m[x]; }},
      {"add-constants", pat(op::add, {pat(op::add, {x, any_splat.as(c)}), any_splat.as(d)}),
       constants_merge,
       [](Builder& b, const Match& m) { return op::add(b, m[x], op::add(b, m[c], m[d])); }},

      {"mul-one", pat(op::mul, {x, one}), real, [](Builder&, const Match& m) { return m[x]; }},
      {"mul-minus-one", pat(op::mul, {x, minus_one}), real,
       [](Builder& b, const Match& m) { return op::neg(b, m[x]); }},
      {"mul-zero", pat(op::mul, {x, zero}), exact_or_fast,
       [](Builder& b, const Match& m) { return full(b, m.type(), 0); }},
      {"mul-self", pat(op::mul, {x, x}),
       [](Builder& b, const Match& m) { return op::square(b, m[x]); }},
      {"mul-constants", pat(op::mul, {pat(op::mul, {x, any_splat.as(c)}), any_splat.as(d)}),
       constants_merge,
       [](Builder& b, const Match& m) { return op::mul(b, m[x], op::mul(b, m[c], m[d])); }},
      {"div-one", pat(op::div, {x, one}), real, [](Builder&, const Match& m) { return m[x]; }},
      {"div-constant", pat(op::div, {x, any_splat.as(c)}), splat_divisor,
       [](Builder& b, const Match& m) {
         return op::mul(b, m[x], b.constant(m.type().dtype, 1.0 / m.splat(c)));
       }},

      {"pow-zero", pat(op::pow, {x, zero}),
       [](Builder& b, const Match& m) { return full(b, m.type(), 1); }},
      {"pow-one", pat(op::pow, {x, one}), [](Builder&, const Match& m) { return m[x]; }},
      {"pow-two", pat(op::pow, {x, two}),
       [](Builder& b, const Match& m) { return op::square(b, m[x]); }},

      {"select-constant", pat(op::select, {any_splat.as(c), x, y}),
       [](Builder&, const Match& m) { return m.splat(c) == Complex(0) ? m[y] : m[x]; }},
      {"select-same", pat(op::select, {c, x, x}), [](Builder&, const Match& m) { return m[x]; }},
      {"and-constant", pat(op::logical_and, {x, any_splat.as(c)}), keeps_shape_of_bool,
       [](Builder& b, const Match& m) {
         return m.splat(c) == Complex(0) ? full(b, m.type(), 0) : m[x];
       }},
      {"or-constant", pat(op::logical_or, {x, any_splat.as(c)}), keeps_shape_of_bool,
       [](Builder& b, const Match& m) {
         return m.splat(c) == Complex(0) ? m[x] : full(b, m.type(), 1);
       }},
      {"not-not", pat(op::logical_not, {pat(op::logical_not, {x})}),
       [](Builder&, const Match& m) { return m[x]; }},

      {"cast-same", pat(op::cast, {x}), [](const Match& m) { return m.type(x) == m.type(); },
       [](Builder&, const Match& m) { return m[x]; }},
      {"cast-cast", pat(op::cast, {pat(op::cast, {x}).as(y)}), casts_merge,
       [](Builder& b, const Match& m) { return cast_to(b, m[x], m.type().dtype); }},
      {"stop-gradient-twice", pat(op::stop_gradient, {pat(op::stop_gradient, {x}).as(y)}),
       [](Builder&, const Match& m) { return m[y]; }},
  };
}

}  // namespace rlx
