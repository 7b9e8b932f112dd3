// Products of matrices of bytes in i32, exact modulo 2^32: the interface between ByteProduct and ByteConv and the code
// compiled per instruction set.
//
// Along k numbers come in groups that fill 32 bits: four bytes where the machine multiplies bytes (VNNI), else two 16-bit
// numbers. Rows of A are such groups one after the other. B comes in panels of `panel` columns: for each group of k that of
// every column.
//
// VNNI multiplies unsigned bytes by signed ones. A is taken as it is; B is stored as the other kind, its bytes shifted by
// 128 where they are of the same (b_flip), which the zero point of B makes up for:
//
//   sum (a - za)(b - zb) = sum a b' - za (sum b' - k zb') - zb' sum a,   b' = b - shift, zb' = zb - shift
#pragma once

#include <cstdint>

#include "rlx/backend/cpu/kernels/dot_isa.h"

namespace rlx::cpu {

// Added to a tile of C where its last group of k is done: minus row[i] * column[j]. Columns are whole panels.
struct ByteTerm {
  const uint32_t* row = nullptr;  // nullptr: no such term
  const uint32_t* column = nullptr;
};

// C[m, n] = A B + terms
struct ByteTile {
  int64_t m, n, groups;
  bool a_signed;
  const uint32_t* a;
  int64_t a_row;  // in bytes
  const uint32_t* b;
  int64_t panel_stride;  // in groups
  int32_t* c;
  int64_t c_row;
  ByteTerm terms[2];
};

// Rows of B (or lines of an image) that make one group of k for a run of columns.
struct ByteRows {
  const uint8_t* row[4];
  int64_t step;  // between columns, in bytes
  bool is_signed;
  uint32_t keep, flip;  // masks of a group: what is not padding, and what is inverted
};

// Groups of k of the columns of an image, line by line: `width` columns that follow each other, and the next line.
struct GroupLines {
  const uint32_t* from;  // column 0 of the first line
  int64_t line, width;   // between lines, in groups; columns
  int64_t column;        // where the first line begins
};
inline constexpr int64_t kGroupSlack =
    16;  // groups behind lines that may be read, and behind `flat` that are written

struct ByteDotFns {
  int64_t panel, group;  // columns of a panel; elements of k in a group
  void (*run)(const ByteTile& tile);
  // Columns [0, count) of one group, to `out` + [at, at + count); panels are panel_stride groups apart.
  void (*pack_rows)(const ByteRows& rows, int64_t count, uint32_t* out, int64_t at,
                    int64_t panel_stride);
  // `count` columns of such lines, by way of `flat`, which has room for them.
  void (*copy_lines)(const GroupLines& lines, int64_t count, uint32_t* flat, uint32_t* out,
                     int64_t at, int64_t panel_stride);
  // k elements as groups, zeros behind them.
  void (*pack_line)(const uint8_t* from, int64_t step, int64_t k, bool is_signed, uint32_t* out);
  // The sum of the numbers in so many groups of A.
  uint32_t (*sum)(const uint32_t* a, int64_t groups, bool is_signed);
  // Convolutions of single channels, in floats that hold them exactly: bytes minus `zero`, and, for i < count,
  // sums[i] = sum over t < taps of factor[t] * x[t][i].
  void (*numbers)(const uint8_t* from, int64_t count, bool is_signed, int32_t zero, float* out);
  void (*sum_taps)(const float* const* x, const float* factor, int64_t taps, int64_t count,
                   int32_t* sums);
};

// One per instruction set (byte_dots_<isa>.cc).
template <DotIsa I>
ByteDotFns byte_dot_fns_of();
ByteDotFns byte_dot_fns(DotIsa isa);

// Of B's bytes: what they are stored as, inverted in their highest bit or not, and what that adds to them.
struct ByteShift {
  uint8_t flip;
  int32_t shift;
};
constexpr ByteShift byte_shift(DotIsa isa, bool a_signed, bool b_signed) {
  if (!has_vnni(isa) || a_signed != b_signed) return {0, 0};
  return {0x80, b_signed ? -128 : 128};
}

}  // namespace rlx::cpu
