// Discrete Fourier transforms: X[k] = c sum_n x[n] e^(-2 pi i n k / N), + for the inverse.
//
//   Value spectrum = op::fft(b, z);                                             // c64, last axis
//   Value back = op::fft(b, spectrum, {.inverse = true});                       // z again
//   Value half = op::rfft(b, x);                                  // f32 [.., n] -> c64 [.., n/2 + 1]
//   Value x2 = op::irfft(b, half, {.n = n});
//   Value hann = op::general_cosine_window(b, {.size = 400, .coefficients = {0.5, 0.5}});
//   Value z = op::stft(b, x, hann, {.hop = 160});                 // [.., n] -> [.., 201, frames]
//
// Complex numbers are c64, or f32/f64 in blocks: the axis holds the N real parts, then the N
// imaginary ones. Any N >= 1. Raises "fft-length" for a length that cannot be (an odd block, no
// elements, a half spectrum of another length, a signal shorter than its window), "fft-axes" for
// blocks along several axes, "stft-window" and "stft-hop" for windows and steps that cannot be.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

// The factor c, by NumPy's names: which direction has the 1/N that makes one the other's inverse.
enum class FftNorm : uint8_t {
  none,      // 1 both ways: the inverse of the transform is N times x
  backward,  // 1 forward, 1/N inverse
  forward,   // 1/N forward, 1 inverse
  ortho,     // 1/sqrt(N) both ways
};
inline std::span<const std::string_view> enum_names(FftNorm) {
  static constexpr std::string_view names[] = {"none", "backward", "forward", "ortho"};
  return names;
}
double fft_scale(FftNorm norm, bool inverse, int64_t n);

// Version 1 of the language (ir/text.h) has three norms: backward, which is none; forward, which is
// backward; and ortho.
template <>
struct Codec<FftNorm> {
  static std::string type() { return "none|backward|forward|ortho"; }
  static void print(Printer& p, FftNorm v);
  static void read(Reader& r, FftNorm& v);
  static void write(ByteWriter& w, FftNorm v);
  static void load(ByteReader& r, FftNorm& v);
  static uint64_t hash(FftNorm v) { return static_cast<uint64_t>(v); }
  static bool equal(FftNorm a, FftNorm b) { return a == b; }
};

struct FftAttrs {
  bool inverse = false;
  FftNorm norm = FftNorm::backward;
  int64_t axis = -1;
  static constexpr auto fields() {
    return Fields<&FftAttrs::inverse, &FftAttrs::norm, &FftAttrs::axis>();
  }
};
struct FftnAttrs {
  Ints axes;
  bool inverse = false;
  FftNorm norm = FftNorm::backward;
  static constexpr auto fields() {
    return Fields<&FftnAttrs::axes, &FftnAttrs::inverse, &FftnAttrs::norm>();
  }
};
struct RfftAttrs {
  FftNorm norm = FftNorm::backward;
  int64_t axis = -1;
  static constexpr auto fields() { return Fields<&RfftAttrs::norm, &RfftAttrs::axis>(); }
};
struct IrfftAttrs {
  int64_t n = 0;  // of the result; 0: 2 (half - 1)
  FftNorm norm = FftNorm::backward;
  int64_t axis = -1;
  static constexpr auto fields() {
    return Fields<&IrfftAttrs::n, &IrfftAttrs::norm, &IrfftAttrs::axis>();
  }
};
struct StftAttrs {
  int64_t hop = 1;  // from one frame to the next
  FftNorm norm = FftNorm::backward;
  static constexpr auto fields() { return Fields<&StftAttrs::hop, &StftAttrs::norm>(); }
};
struct CosineWindowAttrs {  // hann: 0.5, 0.5; hamming: 0.54, 0.46; blackman: 0.42, 0.5, 0.08
  int64_t size = 0;
  std::vector<double> coefficients = {0.5, 0.5};
  bool periodic = false;  // of a window of size + 1 all but the last: for stft
  DType dtype = DType::F32;
  static constexpr auto fields() {
    return Fields<&CosineWindowAttrs::size, &CosineWindowAttrs::coefficients,
                  &CosineWindowAttrs::periodic, &CosineWindowAttrs::dtype>();
  }
};
struct FftShiftAttrs {
  Ints axes;  // empty: nothing is shifted
  static constexpr auto fields() { return Fields<&FftShiftAttrs::axes>(); }
};

namespace op {
extern const Op<FftAttrs> fft;                       // primitive
extern const Op<FftnAttrs> fftn;                     // fft along several axes
extern const Op<RfftAttrs> rfft;                     // f32 -> c64, exact length
extern const Op<IrfftAttrs> irfft;                   // c64 -> f32
extern const Op<FftShiftAttrs> fftshift, ifftshift;  // frequency 0 to the middle and back
extern const Op<StftAttrs> stft;   // x [.., n], window [w] -> c64 [.., w / 2 + 1, frames]
extern const Op<StftAttrs> istft;  // back, [.., w + (frames - 1) hop]
extern const Op<CosineWindowAttrs> general_cosine_window;
}  // namespace op

extern const Family kFft;

}  // namespace rlx
