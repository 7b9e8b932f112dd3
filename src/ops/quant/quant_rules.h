// What the quantisation families share.
#pragma once

#include "rlx/ops/rules.h"
#include "rlx/quant/format.h"

namespace rlx {

// The nearest integer, halves away from zero; in floats.
Expr round_half_away(Expr x);

// Per-channel values [C] as they broadcast against a tensor of this rank; [1] for no axis.
Value channel_view(Builder& b, Value v, int64_t rank, std::optional<int64_t> axis);

// The ggml format of a scheme; raises "quant-scheme" for another one.
const FormatInfo& ggml_format(std::string_view op, const QuantScheme& scheme);
// Blocks of a row of K elements in bytes; raises "quant-block" when K is symbolic or not whole blocks.
int64_t row_bytes(std::string_view op, const FormatInfo& f, const Dim& k);

template <class A>
void normalise_channel(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& axis = static_cast<A*>(attrs)->axis;
  if (axis) axis = normalise_axis(*axis, in[0].rank(), op);
}

}  // namespace rlx
