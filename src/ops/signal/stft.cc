// Short-time Fourier transforms, and the windows for them.
#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/image/resize.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/signal/fft.h"

namespace rlx {
namespace {

int64_t window_length(const InferArgs& a) {
  const Type& w = a.in[1];
  const int64_t n = w.rank() == 1 ? w.shape[0].static_value().value_or(0) : 0;
  if (w.dtype != DType::F32 || n < 1)
    bad_operands(a, "stft-window", "the window must be f32 of one axis with a known size above 0");
  if (const int64_t hop = a.get<StftAttrs>().hop; hop < 1)
    bad_operands(a, "stft-hop", fmt::format("hop must be at least 1, not {}", hop));
  return n;
}

Types infer_stft(const InferArgs& a) {
  const int64_t length = window_length(a);
  Shape out = a.in[0].shape;
  if (out.empty() || is_negative(out.back() - length))
    bad_operands(a, "fft-length",
                 fmt::format("the last axis must have a size of at least {}", length));
  const Dim frames = floor_div(out.back() - length, a.get<StftAttrs>().hop) + 1;
  out.back() = length / 2 + 1;
  out.push_back(frames);
  return {{DType::C64, out}};
}

Types infer_istft(const InferArgs& a) {
  const int64_t length = window_length(a);
  Shape out = a.in[0].shape;
  if (out.size() < 2 || is_negative(out.back() - 1) ||
      differ(out[out.size() - 2], Dim(length / 2 + 1)))
    bad_operands(a, "fft-length",
                 fmt::format("the last two axes must be {} bins and a number of frames above 0",
                             length / 2 + 1));
  const Dim frames = out.back();
  out.pop_back();
  out.back() = (frames - 1) * a.get<StftAttrs>().hop + length;
  return {{DType::F32, out}};
}

// All but the last `kept` axes as one.
Value flattened(Builder& b, Value x, size_t kept) {
  const Shape shape = b.shape(x);
  Shape out{Dim(1)};
  for (size_t i = 0; i < shape.size(); ++i)
    if (i + kept < shape.size())
      out[0] = out[0] * shape[i];
    else
      out.push_back(shape[i]);
  return reshape_to(b, x, out);
}

// The window [w, 1], beside frames [.., w, frames].
Value column(Builder& b, Value window) {
  return reshape_to(b, window, {b.shape(window)[0], Dim(1)});
}

Values decompose_stft(Builder& b, const Node& n, Operands in) {
  const auto& [hop, norm] = n.get<StftAttrs>();
  const Value lines = flattened(b, in[0], 1);
  const Value image = reshape_to(b, lines, {b.shape(lines)[0], Dim(1), b.shape(lines)[1]});
  const int64_t length = b.shape(in[1])[0].value();
  const Value frames = op::unfold(b, image, {.kernel = {length}, .stride = {hop}});
  const Value z = op::rfft(b, op::mul(b, frames, column(b, in[1])), {norm, 1});
  return {reshape_to(b, z, n.type().shape)};
}

// Of all signals the one whose frames are nearest: the windowed frames added up, divided by the sum
// of the squares of the windows.
Values decompose_istft(Builder& b, const Node& n, Operands in) {
  const auto& [hop, norm] = n.get<StftAttrs>();
  const int64_t length = b.shape(in[1])[0].value();
  const Value window = column(b, in[1]);
  const Value frames = op::irfft(b, flattened(b, in[0], 2), {length, norm, 1});
  const Value weights =
      broadcast_to(b, op::square(b, window), {Dim(1), Dim(length), b.shape(frames)[2]});
  FoldAttrs fold;
  fold.kernel = {length}, fold.stride = {hop}, fold.size = {n.type().shape.back()};
  const Expr sum(b, op::fold(b, op::mul(b, frames, window), fold));
  const Expr weight(b, op::fold(b, weights, fold)), zero = weight.like(0);
  const Value none = op::eq(weight, zero);
  const Expr divisor(b, op::select(b, none, weight.like(1), weight));
  return {reshape_to(b, op::select(b, none, zero, sum / divisor), n.type().shape)};
}

Types infer_window(const InferArgs& a) {
  const auto& w = a.get<CosineWindowAttrs>();
  user_check(kFloats.has(w.dtype), "dtype",
             "general_cosine_window: does not make {}; allowed are {}", w.dtype,
             kFloats.to_string());
  user_check(w.size >= 0, "fill-range", "general_cosine_window: {} elements", w.size);
  return {{w.dtype, {w.size}}};
}

double cosine_window_at(const CosineWindowAttrs& w, int64_t i) {
  const int64_t period = w.periodic ? w.size : w.size - 1;
  double sum = 0;
  for (size_t k = 0; k < w.coefficients.size(); ++k) {
    const int64_t turn = i * static_cast<int64_t>(k) % period;
    const double c = std::cos(2 * M_PI * static_cast<double>(turn) / static_cast<double>(period));
    sum += (k % 2 ? -c : c) * w.coefficients[k];
  }
  return sum;
}

}  // namespace

namespace op {

constinit const Op<StftAttrs> stft = OpDef{
    .name = "stft",
    .doc =
        "Short-time Fourier transform of x [.., n] with a window [w], both f32: bins 0 .. w / 2 of "
        "every frame x[t hop .. t hop + w) times the window, [.., w / 2 + 1, frames], for the "
        "1 + (n - w) / hop frames that lie in x whole. Pad x first to centre them.",
    .arity = 2,
    .operands = "x, window",
    .dtypes = {DType::F32},
    .infer = infer_stft,
    .decompose = decompose_stft,
    .since = 2,
};

constinit const Op<StftAttrs> istft = OpDef{
    .name = "istft",
    .doc =
        "The signal [.., w + (frames - 1) hop] whose stft with the same window [w] and hop is "
        "nearest to z [.., w / 2 + 1, frames]; 0 where the windows leave nothing of it.",
    .arity = 2,
    .operands = "z, window",
    .dtypes = kComplex,
    .infer = infer_istft,
    .decompose = decompose_istft,
    .since = 2,
};

constinit const Op<CosineWindowAttrs> general_cosine_window = OpDef{
    .name = "general_cosine_window",
    .doc =
        "w[i] = sum over k of (-1)^k coefficients[k] cos(2 pi k i / N), with N = size - 1, or size "
        "when periodic; a window of one element is 1. Hann's has 0.5, 0.5 (the default), Hamming's "
        "0.54, 0.46, Blackman's 0.42, 0.5, 0.08.",
    .arity = 0,
    .operands = "",
    .infer = infer_window,
    .decompose = [](Builder& b, const Node& n, Operands) -> Values {
      const auto& w = n.get<CosineWindowAttrs>();
      Tensor out(w.dtype, {w.size});
      for (int64_t i = 0; i < w.size; ++i)
        out.set_float(i, w.size == 1 ? 1 : cosine_window_at(w, i));
      return {b.constant(out)};
    },
    .not_differentiable = "it has no operands",
};

}  // namespace op

}  // namespace rlx
