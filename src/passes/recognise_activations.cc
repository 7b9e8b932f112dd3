// Functions of one element that are written out.
#include <cmath>
#include <numbers>

#include "rlx/ops/elementwise/activations.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/recognise_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

bool is_float_result(const Match& m) { return is_float(m.type().dtype); }

// scale * x^degree.
struct Monomial {
  double scale;
  int degree;
};

std::optional<Monomial> monomial(const Graph& g, Value v, Value of) {
  const Product p = product_of(g, v);
  Monomial out{p.scale, 0};
  for (Value f : p.factors) {
    const Node* square = made_by(g, f, op::square);
    const Node* power = made_by(g, f, op::pow);
    if (f == of) {
      out.degree += 1;
    } else if (square && square->in[0] == of) {
      out.degree += 2;
    } else if (power && power->in[0] == of && real_splat(g, power->in[1]) == 3.0) {
      out.degree += 3;
    } else {
      return std::nullopt;
    }
  }
  return out;
}

bool is_monomial(const Graph& g, Value v, Value of, double scale, int degree) {
  const auto m = monomial(g, v, of);
  return m && m->degree == degree && is_about(g.type(v).dtype, m->scale, scale);
}

// x + 0.044715 x^3, or x (1 + 0.044715 x^2), times sqrt(2 / pi).
bool is_tanh_argument(const Graph& g, Value u, Value of) {
  constexpr double kCubic = 0.044715;
  const Product p = product_of(g, u);
  if (!is_about(g.type(u).dtype, p.scale, std::sqrt(2 / std::numbers::pi))) return false;
  if (p.factors.size() == 1) {
    const Node* sum = made_by(g, p.factors[0], op::add);
    for (size_t i : {0, 1})
      if (sum && sum->in[i] == of && is_monomial(g, sum->in[1 - i], of, kCubic, 3)) return true;
    return false;
  }
  for (size_t i : {0, 1}) {
    if (p.factors.size() != 2 || p.factors[i] != of) continue;
    const Node* sum = made_by(g, p.factors[1 - i], op::add);
    const Value square = sum ? beside(g, *sum, 1) : kNone;
    if (square.valid() && is_monomial(g, square, of, kCubic, 2)) return true;
  }
  return false;
}

// The x of x / 2 * (1 + f(u)) whose u is what the test wants of x.
Value half_of(const Match& m, OpRef f, bool (*is_argument)(const Graph&, Value u, Value of)) {
  const Graph& g = m.graph();
  const Product p = product_of(g, m.root());
  if (p.factors.size() != 2 || !is_about(m.type().dtype, p.scale, 0.5)) return kNone;
  for (size_t i : {0, 1}) {
    const Value of = p.factors[1 - i];
    const Node* sum = made_by(g, p.factors[i], op::add);
    const Value curve = sum ? beside(g, *sum, 1) : kNone;
    const Node* call = curve.valid() ? made_by(g, curve, f) : nullptr;
    if (call && g.type(of) == m.type() && is_argument(g, call->in[0], of)) return of;
    if (call) m.refuse(fmt::format("the argument of {} is another than gelu's", call->op->name));
  }
  return kNone;
}

Value gelu_of(const Match& m) {
  return half_of(m, op::erf, [](const Graph& g, Value u, Value of) {
    return is_monomial(g, u, of, std::numbers::sqrt2 / 2, 1);
  });
}
Value gelu_tanh_of(const Match& m) { return half_of(m, op::tanh, is_tanh_argument); }

// The x of x * sigmoid(1.702 x).
bool is_quick(const Match& m) {
  return is_float_result(m) && m.shape(x) == m.type().shape &&
         is_monomial(m.graph(), m[z], m[x], 1.702, 1);
}

const Pattern one_and_exp = pat(op::add, {pat(op::exp, {pat(op::neg, {x})}), one});

}  // namespace

RuleSet activation_recognisers() {
  return {
      {"sigmoid", pat(op::div, {one, one_and_exp}),
       [](const Match& m) { return is_float_result(m) && m.shape(x) == m.type().shape; },
       [](Builder& b, const Match& m) { return op::sigmoid(b, m[x]); }},
      {"silu", pat(op::mul, {x, pat(op::sigmoid, {x})}), is_float_result,
       [](Builder& b, const Match& m) { return op::silu(b, m[x]); }},
      {"silu-by-quotient", pat(op::div, {x, one_and_exp}), is_float_result,
       [](Builder& b, const Match& m) { return op::silu(b, m[x]); }},
      {"quick-gelu", pat(op::mul, {x, pat(op::sigmoid, {z})}), is_quick,
       [](Builder& b, const Match& m) { return op::quick_gelu(b, m[x]); }},
      {"gelu", pat({op::mul, op::div}, {x, y}), [](const Match& m) { return gelu_of(m).valid(); },
       [](Builder& b, const Match& m) { return op::gelu(b, gelu_of(m)); }},
      {"gelu-tanh", pat({op::mul, op::div}, {x, y}),
       [](const Match& m) { return gelu_tanh_of(m).valid(); },
       [](Builder& b, const Match& m) { return op::gelu_tanh(b, gelu_tanh_of(m)); }},
      {"swiglu", pat(op::mul, {pat(op::silu, {x}), y}),
       [](const Match& m) { return m.type(x) == m.type() && m.type(y) == m.type(); },
       [](Builder& b, const Match& m) { return op::swiglu(b, m[x], m[y]); }},
  };
}

}  // namespace rlx
