#include "rlx/quantise/stored_weight.h"

#include <algorithm>
#include <cmath>

#include "rlx/ops/core.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/rules.h"
#include "rlx/quant/coded.h"

namespace rlx {

namespace {

// A weight as it lies: a batch of matrices, and whether the rows of each are output channels.
struct Lies {
  int64_t batch = 1, rows = 0, columns = 0;
  bool rows_are_outputs = false;
  int64_t k() const { return rows_are_outputs ? columns : rows; }
};
Lies lies(const Graph& g, const Layer& l) {
  const Shape& w = g.type(g.node(l.node).in[l.weight]).shape;
  Lies out;
  if (l.op == &op::matmul) {
    for (size_t i = 0; i + 2 < w.size(); ++i) out.batch *= w[i].value();
    out.rows = w[w.size() - 2].value(), out.columns = w.back().value();
    out.rows_are_outputs = l.channel_axis == w.rank() - 2;
    return out;
  }
  out.rows = w[0].value(), out.columns = 1, out.rows_are_outputs = true;
  for (size_t i = 1; i < w.size(); ++i) out.columns *= w[i].value();
  return out;
}

Tensor transposed(const Tensor& t) {
  const int64_t rows = t.sizes()[0], columns = t.sizes()[1];
  Tensor out(DType::F32, {columns, rows});
  const float* from = t.data<float>();
  auto* to = out.mutable_data<float>();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
  return out;
}

}  // namespace

Tensor weight_matrix(const Graph& g, const Layer& l, const Tensor& weight) {
  const Lies how = lies(g, l);
  const Tensor flat = weight.dtype() == DType::F32 ? weight : cast_tensor(weight, DType::F32);
  if (l.op == &op::gather) return flat.reshaped({how.rows, how.columns});
  if (how.rows_are_outputs) return transposed(flat.reshaped({how.batch * how.rows, how.columns}));
  // [B, K, N] as [K, B * N]
  Tensor out(DType::F32, {how.rows, how.batch * how.columns});
  const float* from = flat.data<float>();
  for (int64_t i = 0; i < how.batch; ++i)
    for (int64_t row = 0; row < how.rows; ++row, from += how.columns)
      std::copy_n(from, how.columns,
                  out.mutable_data<float>() + (row * how.batch + i) * how.columns);
  return out;
}

std::string refuse_scheme(const Graph& g, const Layer& l, const QuantScheme& s) {
  const Node& n = g.node(l.node);
  if (!l.has_weight) return "neither operand is made of weights alone";
  const Type& w = g.type(n.in[l.weight]);
  if (has_symbols(g.node(n.in[l.weight]))) return "the weight's sizes are symbols";
  if (w.shape.elements() == Dim(0)) return "the weight is empty";
  if (n.op == &op::gather && !s.is_gguf()) return "rows of tables take ggml's formats";
  const int64_t k = lies(g, l).k();
  const int64_t block = s.info().block_elements;
  if (s.is_gguf() && k % block != 0)
    return fmt::format("{} elements a row are not whole blocks of {}", k, block);
  return "";
}

namespace {

// Scales of blocks are f16 in most formats.
void check_decoded(const Layer& l, const QuantScheme& s, const Tensor& rows, const Tensor& packed) {
  Tensor back(DType::F32, rows.sizes());
  decode_blocks(s.info(), packed.data<uint8_t>(), rows.elements(), back.mutable_data<float>());
  for (int64_t i = 0; i < back.elements(); ++i)
    user_check(std::isfinite(back.data<float>()[i]), "calibration-value",
               "quantise: the weight of {} has {}, which blocks of {} do not hold", l.name,
               rows.data<float>()[i], s.info().name);
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> store_weight(const Layer& l, const Graph& g,
                                                         const QuantScheme& s,
                                                         const Tensor& matrix) {
  const int64_t k = matrix.sizes()[0], n = matrix.sizes()[1];
  if (!s.is_gguf()) {
    const CodedWeight w = encode_weight(s, matrix.data<float>(), k, n);
    std::vector<std::pair<std::string, Tensor>> out{{"", w.codes}, {".scale", w.scale}};
    if (w.fourth) out.emplace_back(s.scale_is_fp8() ? ".global" : ".zero", *w.fourth);
    return out;
  }
  const Tensor rows = g.node(l.node).op == &op::gather ? matrix : transposed(matrix);
  const FormatInfo& f = s.info();
  Tensor packed(DType::U8, {rows.sizes()[0], rows.sizes()[1] / f.block_elements * f.block_bytes});
  encode_blocks(f, rows.data<float>(), rows.elements(), packed.mutable_data<uint8_t>());
  check_decoded(l, s, rows, packed);
  return {{"", std::move(packed)}};
}

Value layer_over_stored(Builder& b, const Node& n, const Layer& l, Operands in,
                        const QuantScheme& s, Operands stored) {
  const DType dtype = n.type().dtype;
  const Shape w = b.shape(in[l.weight]);
  if (n.op == &op::matmul && w.rank() == 2) {
    // w x is the transpose of x' w'.
    const auto& m = n.get<MatmulAttrs>();
    const bool first = l.weight == 0, turned = first ? !m.transpose_b : m.transpose_a;
    Values operands{turned ? matrix_transpose(b, in[l.x]) : in[l.x]};
    for (Value v : stored) {
      const bool is_scale = b.type(v).dtype == DType::F32;
      operands.push_back(is_scale ? cast_to(b, v, wide_of(dtype)) : v);
    }
    const Value y = b.emit(*&op::dequant_matmul, DequantMatmulAttrs{s}, operands)[0];
    return first ? matrix_transpose(b, y) : y;
  }
  if (n.op == &op::gather) {
    const Value rows = op::gather(b, stored[0], in[1], {.axis = 0});
    return cast_to(b, op::dequantise_blocks(b, rows, {s, n.type().shape}), dtype);
  }
  // The others read the decoded weight: rows of output channels, [.., N, K] or [O, ..].
  const bool is_matmul = n.op == &op::matmul;
  Dim k = 1;
  for (size_t i = 1; !is_matmul && i < w.size(); ++i) k = k * w[i];
  Shape rows = w;
  if (is_matmul) {
    const size_t outputs = at(l.channel_axis), inner = 2 * w.size() - 3 - outputs;
    rows[w.size() - 2] = w[outputs], rows.back() = k = w[inner];
  }
  const Value flat =
      s.is_gguf() ? op::dequantise_blocks(b, stored[0], {s, {w.elements().divide(k).value(), k}})
                  : matrix_transpose(b, decode_weight(b, s, stored, k, DType::F32));
  const Value weight = cast_to(b, reshape_to(b, flat, rows), dtype);
  Values operands(in.begin(), in.end());
  operands[l.weight] = weight;
  if (!is_matmul) return b.emit(*n.op, n.attrs, operands)[0];
  auto m = n.get<MatmulAttrs>();
  (l.weight == 0 ? m.transpose_a : m.transpose_b) = l.weight == 1;
  return op::matmul(b, operands[0], operands[1], m);
}

}  // namespace rlx
