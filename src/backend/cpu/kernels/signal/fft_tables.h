// The tables of a Fourier transform, as the loops of fft_impl.h read them: plain data, owned by the
// FftPlan that made it. Numbers are computed in double and rounded to the type T of the transform.
#pragma once

#include <cstdint>

namespace rlx::cpu {

// Larger prime factors go through a convolution.
inline constexpr int kFftMaxPrime = 127;
// Bins that a block makes of the halves of a long real line.
inline constexpr int64_t kFftBinBlock = 8192;

// One pass of radix r over n = stride * radix * groups elements.
template <class T>
struct FftStage {
  int64_t radix = 1, stride = 1, groups = 1;
  const T* twiddles = nullptr;  // [groups][radix - 1]: e^(-2 pi i p k / (groups * radix))
  const T* roots = nullptr;     // [radix]: e^(-2 pi i j / radix)
};

// A transform of n points as a circular one of `padded` points, whose factors are the transform of
// the other operand, over `padded`: pairs for lanes, real parts before imaginary ones for a line. Rader, for a prime n and padded = n - 1: element k + 1 of the
// operand is x[gather[k]], element k of the result belongs to bin scatter[k]. Bluestein: operand and
// result are multiplied with the chirp.
template <class T>
struct FftConvolution {
  int64_t padded = 0;                                   // 0: none
  const T* factors = nullptr;                           // [padded]
  const int32_t *gather = nullptr, *scatter = nullptr;  // [padded]: Rader
  const T* chirp = nullptr;                             // [n]: e^(-i pi k^2 / n)
};

// Transforms of n points of the lines in a buffer of lanes: stages, or a convolution over `inner`.
template <class T>
struct FftTables {
  int64_t n = 1, stages = 0;
  const FftStage<T>* stage = nullptr;
  FftConvolution<T> convolution;
  const FftTables* inner = nullptr;
  int64_t points = 1;  // elements that a buffer of lanes needs
};

// The transform of one line whose elements are neighbours.
template <class T>
struct FftLine {
  enum class Way : uint8_t {
    none,
    row,       // n = L m, L lanes: radix L across, then m points by `tables`
    matrix,    // n = column.n * row.n
    convolved  // by `inner`, a line of its own
  };
  Way way = Way::none;
  int64_t n = 1;
  FftTables<T> tables;
  // row: for blocks of L values of p (the last one may overlap its neighbour): [L][re L, im L] of
  // e^(-2 pi i k p / n)
  const T* across = nullptr;
  // matrix: e^(-2 pi i k j / n) is the product of the factor of j's group of L, [groups][column.n], and
  // of the one of its lane, [column.n][re L, im L]
  FftTables<T> column, row;
  const T *group = nullptr, *lane = nullptr;
  FftConvolution<T> convolution;
  const FftLine* inner = nullptr;
  int64_t buffer = 0;   // row, matrix: numbers of a buffer of lanes
  int64_t middle = 0;   // matrix: numbers between its two halves
  int groups = 1;       // matrix: of L columns or rows, in a block
  int64_t scratch = 0;  // numbers
};

// Real lines of n numbers, n even, are n / 2 complex ones to the transform, and bins 0 .. n / 2.
enum class FftReal : uint8_t { none, to_bins, from_bins };

// What to do with every line.
template <class T>
struct FftProgram {
  enum class Way : uint8_t {
    lanes,   // several lines side by side by `tables`
    lines,   // one line after another by `line`
    phases,  // the halves of `line`, a matrix, as steps of their own
  };
  Way way = Way::lanes;
  int64_t lines = 0, n = 1;
  int groups = 1;          // lanes: of L lines, in a block
  int64_t row_blocks = 0;  // lanes: blocks for each run of `inner` lines; 0: blocks over all lines
  int64_t buffer = 0;      // lanes: numbers of a buffer
  int64_t phase_groups[3] = {};  // phases: blocks of a line in each
  bool inverse = false;
  FftReal real = FftReal::none;
  T scale = 1;
  FftTables<T> tables;
  FftLine<T> line;
  const T* half = nullptr;  // real: [re, im][pitch] of e^(-i pi k / n), n complex numbers
  int64_t half_pitch = 0;
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

// Blocks [begin, end) of a phase; what it reads is x or what the phase before it wrote, what it
// writes is y or what the next one reads.
template <class T, int W>
void fft_run(const FftProgram<T>& f, int phase, const FftLines<const T>& x, const FftLines<T>& y,
             int64_t begin, int64_t end, T* scratch);

}  // namespace rlx::cpu
