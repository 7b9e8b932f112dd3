// The tables of a Fourier transform, as the loops of fft_impl.h read them: plain data, owned by the
// FftPlan that made it. Numbers are computed in double and rounded to the type T of the transform.
#pragma once

#include <cstdint>

namespace rlx::cpu {

// Larger prime factors go through Bluestein's convolution.
inline constexpr int kFftMaxPrime = 127;

// One pass of radix r over n = stride * radix * groups elements.
template <class T>
struct FftStage {
  int64_t radix = 1, stride = 1, groups = 1;
  const T* twiddles = nullptr;  // [groups][radix - 1]: e^(-2 pi i p k / (groups * radix))
  const T* roots = nullptr;     // [radix]: e^(-2 pi i j / radix)
};

// A transform of n points: stages, or a convolution of `padded` points.
template <class T>
struct FftTables {
  int64_t n = 1, stages = 0;
  const FftStage<T>* stage = nullptr;
  int64_t padded = 0;         // 0: no convolution
  const T* chirp = nullptr;   // [n]: e^(-i pi k^2 / n)
  const T* kernel = nullptr;  // [padded]: the transform of the conjugate chirp, over `padded`
  const FftTables* inner = nullptr;
  int64_t points = 1;  // elements that a buffer of lanes needs
};

// n = column.n * row.n points as a matrix.
template <class T>
struct FftSplit {
  FftTables<T> column, row;
  const T* twiddles = nullptr;  // [2][column.n][pitch]: e^(-2 pi i k j / n), real parts first
  int64_t pitch = 0;
  int64_t points = 1;
};

// What to do with every line.
template <class T>
struct FftProgram {
  int64_t lines = 0;
  bool inverse = false;
  T scale = 1;
  bool by_line = false;  // one line after another by `split`, else several lines side by side
  FftTables<T> tables;
  FftSplit<T> split;  // of n, or of tables.padded
};

// Lines of complex numbers in memory: element k of line i has its real part at
// base[offset(i) + k * step], its imaginary part `im` behind it.
template <class P>
struct FftLines {
  P* base;
  int64_t inner, outer_step, inner_step, step, im;
  [[gnu::always_inline]] int64_t offset(int64_t line) const {
    return line / inner * outer_step + line % inner * inner_step;
  }
};

// Blocks [begin, end): lines, or groups of as many lines as a vector of W bytes has lanes.
template <class T, int W>
void fft_run(const FftProgram<T>& f, const FftLines<const T>& x, const FftLines<T>& y,
             int64_t begin, int64_t end, T* scratch);

}  // namespace rlx::cpu
