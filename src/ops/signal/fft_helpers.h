// The specification's spectral helpers: functions that append nodes for real signals, whose spectra
// are pairs (re, im) of f32 tensors. They pad the last axis with zeros to a power of two; op::rfft
// and op::irfft (fft.h) take any length and c64.
//
//   auto [re, im] = signal::rfft(b, x, FftNorm::backward);        // [.., next_pow2(n) / 2 + 1]
//   Value back = signal::irfft(b, re, im, n, FftNorm::backward);  // [.., n]
//
// Norms are FftNorm's. The last axis must be static. Raises "fft-dtype" for signals that are not
// f32, "fft-length" for lengths that do not fit.
#pragma once

#include <utility>

#include "rlx/ops/signal/fft.h"

namespace rlx::signal {

using Spectrum = std::pair<Value, Value>;  // re, im

int64_t next_pow2(int64_t n);  // the smallest power of two >= n; 1 for 0

// x with zeros behind its last axis up to the next power of two.
Value pad_last_axis_to_pow2(Builder& b, Value x);
// [.., 2 N] blocks as the real and the imaginary parts, [.., N] each.
Spectrum split_spectrum(Builder& b, Value s);

Spectrum fft_real(Builder& b, Value x, FftNorm norm);        // all next_pow2(n) bins
Spectrum fft_batch_real(Builder& b, Value x, FftNorm norm);  // the same
Spectrum rfft(Builder& b, Value x, FftNorm norm);            // bins 0 .. next_pow2(n) / 2
// The real part of the inverse transform of a whole spectrum.
Value ifft_spectrum(Builder& b, Value re, Value im, FftNorm norm);
// The first n numbers whose padded transform has these first half of bins.
Value irfft(Builder& b, Value re, Value im, int64_t n, FftNorm norm);

// Frames of `frame_len` numbers every `hop`, neither windowed nor centred, each transformed:
// [frames, .., 2 half] with the real before the imaginary parts.
Value stft(Builder& b, Value x, int64_t frame_len, int64_t hop, FftNorm norm);
// Linear convolution along the last axis, [.., la + lb - 1], by transforms of at least n_fft points.
// The result is scaled by 1 (backward), 1/n (forward), 1/sqrt(n) (ortho) or n (none).
Value fft_conv1d(Builder& b, Value x, Value y, int64_t n_fft, FftNorm norm);

// Frequencies of the bins in cycles per sample, f64: k / n, and (k - n) / n above n / 2.
Value fftfreq_tensor(Builder& b, int64_t n);
Value rfftfreq_tensor(Builder& b, int64_t n);  // k / n for k <= n / 2

Value psd(Builder& b, Value re, Value im);          // (re^2 + im^2) / (size of the last axis)
Value psd_real(Builder& b, Value x, FftNorm norm);  // psd of rfft: divided by its number of bins

}  // namespace rlx::signal
