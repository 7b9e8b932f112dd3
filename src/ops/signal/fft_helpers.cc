#include "rlx/ops/signal/fft_helpers.h"

#include <algorithm>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"

namespace rlx::signal {
namespace {

int64_t last_size(Builder& b, Value x, std::string_view who) {
  user_check(b.type(x).rank() > 0, "fft-length", "{}: {} has no last axis", who, b.type(x));
  return b.shape(x).back().value();
}

void require_f32(Builder& b, Value x, std::string_view who) {
  user_check(b.type(x).dtype == DType::F32, "fft-dtype", "{}: takes f32, not {}", who, b.type(x));
}

// Elements [begin, end) of the last axis.
Value narrow(Builder& b, Value x, int64_t begin, int64_t end) {
  SliceAttrs s{Shape(b.shape(x).size(), Dim(0)), b.shape(x), {}};
  s.start.back() = begin, s.limit.back() = end;
  return op::slice(b, x, s);
}

Value join(Builder& b, Value x, Value y) { return op::concat(b, x, y, {b.type(x).rank() - 1}); }

// x with zeros behind its last axis up to `size`.
Value pad_to(Builder& b, Value x, int64_t size, std::string_view who) {
  const int64_t missing = size - last_size(b, x, who);
  if (missing == 0) return x;
  Type zeros = b.type(x);
  zeros.shape.back() = missing;
  return join(b, x, full(b, zeros, 0));
}

}  // namespace

int64_t next_pow2(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

Value pad_last_axis_to_pow2(Builder& b, Value x) {
  return pad_to(b, x, next_pow2(last_size(b, x, "pad_last_axis_to_pow2")), "pad_last_axis_to_pow2");
}

Spectrum split_spectrum(Builder& b, Value s) {
  const int64_t size = last_size(b, s, "split_spectrum");
  user_check(size % 2 == 0, "fft-length", "split_spectrum: the last axis of {} is odd", b.type(s));
  return {narrow(b, s, 0, size / 2), narrow(b, s, size / 2, size)};
}

Spectrum fft_real(Builder& b, Value x, FftNorm norm) {
  require_f32(b, x, "fft_real");
  const Value re = pad_last_axis_to_pow2(b, x), im = full(b, Type(b.type(re)), 0);
  return split_spectrum(b, op::fft(b, join(b, re, im), {.norm = norm}));
}

Spectrum fft_batch_real(Builder& b, Value x, FftNorm norm) { return fft_real(b, x, norm); }

Spectrum rfft(Builder& b, Value x, FftNorm norm) {
  const auto [re, im] = fft_real(b, x, norm);
  const int64_t half = last_size(b, re, "rfft") / 2 + 1;
  return {narrow(b, re, 0, half), narrow(b, im, 0, half)};
}

Value ifft_spectrum(Builder& b, Value re, Value im, FftNorm norm) {
  const int64_t n = last_size(b, re, "ifft_spectrum");
  return narrow(b, op::fft(b, join(b, re, im), {.inverse = true, .norm = norm}), 0, n);
}

Value irfft(Builder& b, Value re, Value im, int64_t n, FftNorm norm) {
  require_f32(b, re, "irfft");
  const int64_t half = last_size(b, re, "irfft");
  user_check(n >= 1 && half == next_pow2(n) / 2 + 1, "fft-length",
             "irfft: {} numbers have {} bins, not the {} of {}", n, next_pow2(n) / 2 + 1, half,
             b.type(re));
  if (half > 2) {  // bins half - 2 .. 1 again, conjugated
    auto mirrored = [&](Value x) {
      return op::reverse(b, narrow(b, x, 1, half - 1), {{b.type(x).rank() - 1}});
    };
    const Value re_tail = mirrored(re), im_tail = op::neg(b, mirrored(im));
    re = join(b, re, re_tail), im = join(b, im, im_tail);
  }
  return narrow(b, ifft_spectrum(b, re, im, norm), 0, n);
}

Value stft(Builder& b, Value x, int64_t frame_len, int64_t hop, FftNorm norm) {
  const int64_t size = last_size(b, x, "stft");
  user_check(frame_len >= 1 && hop >= 1 && size >= frame_len, "fft-length",
             "stft: {} has no frame of {} every {}", b.type(x), frame_len, hop);
  Values frames;
  for (int64_t first = 0; first + frame_len <= size; first += hop) {
    const auto [re, im] = rfft(b, narrow(b, x, first, first + frame_len), norm);
    const Value both = join(b, re, im);
    frames.push_back(op::reshape(b, both, {prepend(1, b.shape(both))}));
  }
  return frames.size() == 1 ? frames[0] : b.emit(*&op::concat, AxisAttrs{0}, frames)[0];
}

Value fft_conv1d(Builder& b, Value x, Value y, int64_t n_fft, FftNorm norm) {
  const int64_t size = last_size(b, x, "fft_conv1d") + last_size(b, y, "fft_conv1d") - 1;
  user_check(size >= 1, "fft-length", "fft_conv1d: nothing to convolve in {} and {}", b.type(x),
             b.type(y));
  const int64_t n = next_pow2(std::max(n_fft, size));
  const auto [xr, xi] = rfft(b, pad_to(b, x, n, "fft_conv1d"), norm);
  const auto [yr, yi] = rfft(b, pad_to(b, y, n, "fft_conv1d"), norm);
  const Expr a(b, xr), c(b, xi), d(b, yr), e(b, yi);
  return narrow(b, irfft(b, a * d - c * e, a * e + c * d, n, norm), 0, size);
}

namespace {
Value frequencies(Builder& b, int64_t n, int64_t bins) {
  user_check(n >= 1, "fft-length", "fftfreq: {} bins", n);
  std::vector<double> values;
  for (int64_t k = 0; k < bins; ++k)
    values.push_back(static_cast<double>(k <= n / 2 ? k : k - n) / static_cast<double>(n));
  return b.constant(Tensor::from<double>({bins}, values));
}
}  // namespace

Value fftfreq_tensor(Builder& b, int64_t n) { return frequencies(b, n, n); }
Value rfftfreq_tensor(Builder& b, int64_t n) { return frequencies(b, n, n / 2 + 1); }

Value psd(Builder& b, Value re, Value im) {
  const Expr x(b, re), y(b, im);
  return (x * x + y * y) * (1.0 / static_cast<double>(last_size(b, re, "psd")));
}

Value psd_real(Builder& b, Value x, FftNorm norm) {
  const auto [re, im] = rfft(b, x, norm);
  return psd(b, re, im);
}

}  // namespace rlx::signal
