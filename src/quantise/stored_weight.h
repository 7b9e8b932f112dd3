// A weight in a scheme: the tensors that hold it, and the values that read them. quantise and convert_qat write with it.
#pragma once

#include "rlx/quant/format.h"
#include "rlx/quantise/layers.h"

namespace rlx {

// The weight of a layer as what it multiplies with: [K, N] for products and convolutions (a batch [B, K, N] as [K, B N],
// [O, ..] as [.., O]), the table
// itself for rows; f32.
Tensor weight_matrix(const Graph& g, const Layer& layer, const Tensor& weight);
// Why the layer's weight cannot be stored in the scheme; "" where it can.
std::string refuse_scheme(const Graph& g, const Layer& layer, const QuantScheme& scheme);

// The tensors, by the endings of their names ("", ".scale", ..), of a matrix as weight_matrix gives it.
std::vector<std::pair<std::string, Tensor>> store_weight(const Layer& layer, const Graph& g,
                                                         const QuantScheme& scheme,
                                                         const Tensor& matrix);

// The layer over its stored weight: n is its node over operands of b, `stored` the tensors' values.
Value layer_over_stored(Builder& b, const Node& n, const Layer& layer, Operands in,
                        const QuantScheme& scheme, Operands stored);

}  // namespace rlx
