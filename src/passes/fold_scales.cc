// Scales and shifts of channels behind a convolution, as a batch norm with given statistics is, go into its weights and one bias:
//
//   (conv(x, w) - mean) * s + b  =  conv(x, w * s) + (b - mean * s)
//
// Only where w, mean, s and b are made of weights alone: then the new weights are computed once, when they are set (weights.h), and
// what is left is the convolution and its bias. It rounds otherwise; scales must be finite and not so small that weights vanish.
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/passes.h"
#include "rlx/passes/recognise_rules.h"
#include "rlx/passes/weights.h"

namespace rlx {

namespace {

using namespace rule_words;

constexpr int64_t kChannels = 1;  // the axis of a convolution's result

// A value of weights for each channel of `of`, as it lies beside it.
bool is_by_channel(const Match& m, Value v, const Type& of) {
  const Type& t = m.graph().type(v);
  const int64_t missing = of.rank() - t.rank();
  if (!is_float(of.dtype) || t.dtype != of.dtype || missing < 0 || missing > kChannels)
    return false;
  for (int64_t i = 0; i < t.rank(); ++i)
    if (!(t.shape[at(i)] == (i + missing == kChannels ? of.shape[at(kChannels)] : Dim(1))))
      return false;
  return is_of_weights(m.graph(), v, m.updates());
}

// conv(x, w) * s or / s.
constexpr std::string_view kNotByChannel = "the scale is not one number for each channel";

bool scales_convolution(const Match& m) {
  if (m.type(x) != m.type()) return false;
  if (!is_by_channel(m, m[y], m.type()))
    return is_of_weights(m.graph(), m[y], m.updates()) && m.refuse(std::string(kNotByChannel));
  if (!is_of_weights(m.graph(), m.node(x).in[1], m.updates()))
    return m.refuse("the weights of the convolution are not the same in every run");
  return m.single_use(x) || m.refuse("the convolution is read elsewhere too");
}

Value scaled_convolution(Builder& b, const Match& m) {
  const Node conv = m.node(x);  // NOLINT: a copy, the graph grows
  const Type weight = b.type(conv.in[1]);
  Shape column(at(weight.rank()), Dim(1));
  column[0] = weight.shape[0];
  const Value s = reshape_to(b, m[y], column);
  const Value w = b.emit(*m.root().op, m.root().attrs, Values{conv.in[1], s})[0];
  return b.emit(op::conv.def, conv.attrs, Values{conv.in[0], w})[0];
}

// (conv + t) * s, z the sum: conv * s + t * s.
bool scales_shifted(const Match& m) {
  if (!is_by_channel(m, m[y], m.type()) && is_of_weights(m.graph(), m[y], m.updates()))
    return m.refuse(std::string(kNotByChannel));
  return m.type(z) == m.type() && m.type(x) == m.type() && is_by_channel(m, m[y], m.type()) &&
         is_by_channel(m, m[c], m.type()) &&
         is_of_weights(m.graph(), m.node(x).in[1], m.updates()) &&
         ((m.single_use(x) && m.single_use(z)) ||
          m.refuse("the convolution is read elsewhere too"));
}

Value scaled_apart(Builder& b, const Match& m) {
  const OpDef &scale = *m.root().op, &shift = *m.node(z).op;
  const Value conv = b.emit(scale, NoAttrs{}, Values{m[x], m[y]})[0],
              t = b.emit(scale, NoAttrs{}, Values{m[c], m[y]})[0];
  return b.emit(shift, NoAttrs{}, Values{conv, t})[0];
}

// (conv + t) + u, z the inner sum: conv + (t + u).
bool shifts_twice(const Match& m) {
  return m.type(z) == m.type() && m.type(x) == m.type() && is_by_channel(m, m[y], m.type()) &&
         is_by_channel(m, m[c], m.type()) && m.single_use(z);
}

Value shifted_once(Builder& b, const Match& m) {
  const bool first_minus = m.node(z).op == &op::sub, then_minus = m.root().op == &op::sub;
  if (first_minus && then_minus) return op::sub(b, m[x], op::add(b, m[c], m[y]));
  const Value t = first_minus  ? op::sub(b, m[y], m[c])
                  : then_minus ? op::sub(b, m[c], m[y])
                               : op::add(b, m[c], m[y]);
  return op::add(b, m[x], t);
}

// A reshape that moves axes of size 1 alone, of what is computed of weights elementwise: as the formula of batch norm has
// it, which computes on [C, 1, 1] what exporters compute on [C].
bool only_moves_units(const Shape& from, const Shape& to) {
  const auto sizes = [](const Shape& s) {
    std::vector<Dim> out;
    for (const Dim& d : s)
      if (!(d == Dim(1))) out.push_back(d);
    return out;
  };
  return sizes(from) == sizes(to);
}

bool is_reshaped_weight(const Match& m) {
  const Node& n = m.node(x);
  if (n.in.empty() || !only_moves_units(m.shape(x), m.type().shape)) return false;
  for (Value v : n.in)
    if (m.graph().type(v).rank() > 0 && m.graph().type(v).shape != m.shape(x)) return false;
  return m.single_use(x) && is_of_weights(m.graph(), m[x], m.updates());
}

Value on_reshaped_weights(Builder& b, const Match& m) {
  const Node n = m.node(x);  // NOLINT: a copy, the graph grows
  Values in = n.in;
  for (Value& v : in)
    if (b.type(v).rank() > 0) v = reshape_to(b, v, m.type().shape);
  return b.emit(*n.op, n.attrs, in)[0];
}

const Pattern shifted = pat({op::add, op::sub}, {pat(op::conv).as(x), c}).as(z);

}  // namespace

const RuleSet& fold_scales_rules() {
  static const RuleSet rules{
      {"conv-scale", pat(op::mul, {pat(op::conv).as(x), y}), scales_convolution,
       scaled_convolution},
      {"conv-divisor", pat(op::div, {pat(op::conv).as(x), y}), scales_convolution,
       scaled_convolution},
      {"conv-shift-scale", pat(op::mul, {shifted, y}), scales_shifted, scaled_apart},
      {"conv-shift-divisor", pat(op::div, {shifted, y}), scales_shifted, scaled_apart},
      {"weight-shape", pat(op::reshape, {pat(Kind::elementwise).as(x)}), is_reshaped_weight,
       on_reshaped_weights},
      {"conv-shifts", pat({op::add, op::sub}, {shifted, y}), shifts_twice, shifted_once},
  };
  return rules;
}

constinit const Pass pass::fold_scales{
    "fold_scales", "Scales and shifts of channels behind a convolution go into its weights.",
    [](Graph&& g, const PassOptions& o) {
      return rewrite(std::move(g), fold_scales_rules(), {.pass = "fold_scales"}, o.stats);
    }};

}  // namespace rlx
