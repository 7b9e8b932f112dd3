#include "rlx/quant/coded.h"

#include <algorithm>
#include <cmath>

#include "rlx/quant/minifloat.h"

namespace rlx {

namespace {

struct Matrix {
  const float* values;
  int64_t k, n;
  float at(int64_t i, int64_t j) const { return values[i * n + j]; }
};

struct Span {
  float low = 0, high = 0;  // with 0 in it
  float most() const { return std::max(-low, high); }
};
Span span_of(const Matrix& w, int64_t begin, int64_t end, int64_t column) {
  Span s;
  for (int64_t i = begin; i < end; ++i) {
    s.low = std::min(s.low, w.at(i, column));
    s.high = std::max(s.high, w.at(i, column));
  }
  return s;
}

float or_one(float scale) { return scale > 0 ? scale : 1; }

float nearest_code(float value, float low, float high) {
  return std::clamp(std::round(value), low, high);
}

int64_t groups(int64_t k, int64_t group) { return k / group + (k % group != 0); }

// Nibble i of a tensor of bytes, low ones first.
void put_nibble(Tensor& codes, int64_t i, int64_t value) {
  auto* bytes = codes.mutable_data<uint8_t>();
  bytes[i / 2] = static_cast<uint8_t>(bytes[i / 2] | (value << (i % 2 ? 4 : 0)));
}

CodedWeight store_groups(const QuantScheme& s, const Matrix& w) {
  const bool nibbles = s.format == QuantFormat::int4_block, zeros = s.has_zero_point();
  const int64_t rows = groups(w.k, s.group);
  CodedWeight out{
      nibbles ? Tensor(DType::U8, {(w.k * w.n + 1) / 2}) : Tensor(DType::I8, {w.k, w.n}),
      Tensor(DType::F32, {rows, w.n}),
      {}};
  if (zeros) out.fourth = Tensor(DType::F32, {rows, w.n});
  const float low = nibbles ? 0 : zeros ? -128 : -127, high = nibbles ? 15 : 127;
  for (int64_t g = 0; g < rows; ++g)
    for (int64_t j = 0; j < w.n; ++j) {
      const int64_t begin = g * s.group, end = std::min(w.k, begin + s.group);
      const Span range = span_of(w, begin, end, j);
      const float scale =
          or_one(zeros ? (range.high - range.low) / (high - low) : range.most() / high);
      const float zero = zeros ? nearest_code(low - range.low / scale, low, high) : 0;
      out.scale.set_float(g * w.n + j, static_cast<double>(scale));
      if (zeros) out.fourth->set_float(g * w.n + j, static_cast<double>(zero));
      for (int64_t i = begin; i < end; ++i) {
        const auto code = static_cast<int64_t>(nearest_code(w.at(i, j) / scale + zero, low, high));
        if (nibbles)
          put_nibble(out.codes, i * w.n + j, code);
        else
          out.codes.set_int(i * w.n + j, code);
      }
    }
  return out;
}

CodedWeight store_fp8(const QuantScheme& s, const Matrix& w) {
  const bool e4m3 = s.format == QuantFormat::fp8_e4m3;
  const float largest = e4m3 ? 448 : 57344;
  CodedWeight out{Tensor(DType::U8, {w.k, w.n}), Tensor(DType::F32, {w.n}), {}};
  for (int64_t j = 0; j < w.n; ++j) {
    const float scale = or_one(span_of(w, 0, w.k, j).most() / largest);
    out.scale.set_float(j, static_cast<double>(scale));
    for (int64_t i = 0; i < w.k; ++i) {
      const float x = w.at(i, j) / scale;
      out.codes.mutable_data<uint8_t>()[i * w.n + j] = e4m3 ? float_to_e4m3(x) : float_to_e5m2(x);
    }
  }
  return out;
}

// The scale of all makes the largest group's scale the largest E4M3 number.
CodedWeight store_nvfp4(const QuantScheme& s, const Matrix& w) {
  constexpr float kLargestCode = 6, kLargestScale = 448;
  const int64_t rows = groups(w.k, s.group);
  float most = 0;
  for (int64_t i = 0; i < w.k * w.n; ++i) most = std::max(most, std::fabs(w.values[i]));
  const float all = or_one(most / (kLargestCode * kLargestScale));
  CodedWeight out{Tensor(DType::U8, {(w.k * w.n + 1) / 2}), Tensor(DType::U8, {rows, w.n}),
                  Tensor::full(DType::F32, {1}, static_cast<double>(all))};
  for (int64_t g = 0; g < rows; ++g)
    for (int64_t j = 0; j < w.n; ++j) {
      const int64_t begin = g * s.group, end = std::min(w.k, begin + s.group);
      const uint8_t code = float_to_e4m3(span_of(w, begin, end, j).most() / (kLargestCode * all));
      out.scale.mutable_data<uint8_t>()[g * w.n + j] = code;
      const float scale = e4m3_to_float(code) * all;
      for (int64_t i = begin; i < end; ++i)
        put_nibble(out.codes, i * w.n + j, scale > 0 ? float_to_e2m1(w.at(i, j) / scale) : 0);
    }
  return out;
}

}  // namespace

std::vector<Tensor> CodedWeight::operands() const {
  std::vector<Tensor> out{codes, scale};
  if (fourth) out.push_back(*fourth);
  return out;
}

CodedWeight encode_weight(const QuantScheme& scheme, const float* values, int64_t k, int64_t n) {
  user_check(!scheme.is_gguf(), "quant-scheme",
             "encode_weight: {} holds its scales in its blocks; encode_blocks writes those",
             scheme.to_string());
  const Matrix w{values, k, n};
  if (scheme.scale_is_fp8()) return store_nvfp4(scheme, w);
  return scheme.has_scale() ? store_groups(scheme, w) : store_fp8(scheme, w);
}

}  // namespace rlx
