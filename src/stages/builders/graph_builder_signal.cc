// Fourier transforms along axes, and the spectral helpers.
#include <algorithm>
#include <numeric>

#include "rlx/ops/movement/movement.h"
#include "rlx/ops/signal/fft_helpers.h"
#include "rlx/stages/builders/graph_builder.h"

namespace rlx {

FftNorm norm_of(BuilderFftNorm norm) {
  static constexpr FftNorm kNorms[] = {FftNorm::none, FftNorm::backward, FftNorm::ortho};
  return kNorms[static_cast<size_t>(norm)];
}

NodeId GraphBuilder::fft_norm(NodeId x, bool inverse, BuilderFftNorm norm) {
  return emit(op::fft.def, FftAttrs{.inverse = inverse, .norm = norm_of(norm)}, {x});
}

NodeId GraphBuilder::fft_axis(NodeId x, int64_t axis, bool inverse) {
  const int64_t rank = shape(x).rank();
  axis = normalise_axis(axis, rank, "fft_axis");
  if (axis == rank - 1) return fft(x, inverse);
  Ints swap(static_cast<size_t>(rank));
  std::iota(swap.begin(), swap.end(), 0);
  std::swap(swap[static_cast<size_t>(axis)], swap.back());
  return transpose_(fft(transpose_(x, swap), inverse), swap);
}

NodeId GraphBuilder::fftn(NodeId x, Ints axes, bool inverse) {
  for (int64_t& axis : axes) axis = normalise_axis(axis, shape(x).rank(), "fftn");
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  user_check(axes.size() < 2 || is_complex(shape(x).dtype), "fft-axes",
             "fftn: {} axes of {}; blocks of real and imaginary parts lie along one axis, several "
             "need c64",
             axes.size(), shape(x));
  for (int64_t axis : axes) x = fft_axis(x, axis, inverse);
  return x;
}

NodeId GraphBuilder::pad_last_axis_to_pow2(NodeId x) {
  return signal::pad_last_axis_to_pow2(b_, x);
}
NodePair GraphBuilder::split_spectrum(NodeId spectrum) {
  return signal::split_spectrum(b_, spectrum);
}
NodePair GraphBuilder::fft_real(NodeId x, BuilderFftNorm norm) {
  return signal::fft_real(b_, x, norm_of(norm));
}
NodePair GraphBuilder::fft_batch_real(NodeId x, BuilderFftNorm norm) {
  return signal::fft_batch_real(b_, x, norm_of(norm));
}
NodePair GraphBuilder::rfft(NodeId x, BuilderFftNorm norm) {
  return signal::rfft(b_, x, norm_of(norm));
}
NodeId GraphBuilder::irfft(NodeId re_half, NodeId im_half, int64_t n, BuilderFftNorm norm) {
  return signal::irfft(b_, re_half, im_half, n, norm_of(norm));
}
NodeId GraphBuilder::stft(NodeId x, int64_t frame_len, int64_t hop, BuilderFftNorm norm) {
  return signal::stft(b_, x, frame_len, hop, norm_of(norm));
}
NodeId GraphBuilder::fft_conv1d(NodeId a, NodeId b, int64_t n_fft, BuilderFftNorm norm) {
  return signal::fft_conv1d(b_, a, b, n_fft, norm_of(norm));
}
NodeId GraphBuilder::fftfreq_tensor(int64_t n) { return signal::fftfreq_tensor(b_, n); }
NodeId GraphBuilder::rfftfreq_tensor(int64_t n) { return signal::rfftfreq_tensor(b_, n); }
NodeId GraphBuilder::psd_real(NodeId x, BuilderFftNorm norm) {
  return signal::psd_real(b_, x, norm_of(norm));
}
NodeId GraphBuilder::ifft_spectrum(NodeId re, NodeId im, BuilderFftNorm norm) {
  return signal::ifft_spectrum(b_, re, im, norm_of(norm));
}
NodeId GraphBuilder::psd(NodeId re, NodeId im) { return signal::psd(b_, re, im); }

}  // namespace rlx
