// Batched matrix product C[b,m,n] = sum_k A[b,m,k] * B[b,k,n], cut into tiles that threads share
// out.
//
//   MatmulProblem p{.dtype = DType::F32, .m = 2048, .n = 512, .k = 128};
//   p.set_dense();                                       // row-major strides
//   std::shared_ptr<const MatmulPlan> plan = MatmulPlan::make(p);
//   parallel_for(threads, plan->tiles(), [&](int64_t begin, int64_t end) {
//     for (int64_t t = begin; t < end; ++t) plan->run_tile(t, a, b, c, scratch_of_this_thread);
//   });
//
// Guarantees
// - The tiles and the order of every sum depend on the problem and the Isa only: results are equal
//   bit for bit for any number of threads and any order of tiles. The sum over k is never split
//   between tiles.
// - run_tile takes no lock and starts no thread; a plan may be used by many threads at once. Our
//   own tiles allocate nothing and never fail; oneDNN's are in onednn.h.
// - f16 and bf16 are multiplied and summed in f32 and rounded once; integers wrap; bool is
//   or-of-ands; c64 uses f32 sums.
// - k == 0 gives zeros (or leaves C alone when accumulating).
//
// Raises (make): user errors `matmul-strides` (no unit stride in one of the last two dims of an
// operand), `matmul-dtype` (output dtype that the inputs do not go to), `matmul-dims` (negative
// sizes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {

// One batch dimension; strides in elements, 0 = the operand is broadcast along it.
struct MatmulBatch {
  int64_t size = 1;
  int64_t a = 0, b = 0, c = 0;
  bool operator==(const MatmulBatch&) const = default;
};

struct MatmulProblem {
  DType dtype = DType::F32;      // of A and B
  DType out_dtype = DType::F32;  // of C: `dtype`, or F32 for f16/bf16, or I32 for i8/u8/i16
  int64_t m = 0, n = 0, k = 0;
  // Strides in elements. Of each pair at least one must be 1 (or its dim have size 1); so a
  // transposed view of any operand costs nothing.
  int64_t a_row = 0, a_col = 0;    // A[m,k] = a[m * a_row + k * a_col]
  int64_t b_row = 0, b_col = 0;    // B[k,n] = b[k * b_row + n * b_col]
  int64_t c_row = 0, c_col = 0;    // C[m,n] = c[m * c_row + n * c_col]
  std::vector<MatmulBatch> batch;  // outermost first
  bool accumulate = false;         // C += A B instead of C = A B
  bool weights = false;            // B comes packed: the tiles are those that suit it

  // Row-major strides for all three operands and out_dtype = dtype; batch strides are left alone.
  void set_dense();
  bool operator==(const MatmulProblem&) const = default;
};

// What one tile computes: rows [m_begin, m_end) and columns [n_begin, n_end) of C in batch `batch`.
struct MatmulTile {
  int64_t batch = 0;
  int64_t m_begin = 0, m_end = 0;
  int64_t n_begin = 0, n_end = 0;
};

// The most rows and columns that a tile has.
inline constexpr int64_t kTallestTile = 128, kWidestTile = 1024;

// The tile sizes chosen for a problem of these dims: a function of the dims alone. `weights`: B is packed already.
struct TileShape {
  int64_t m = 1, n = 1;
};
TileShape matmul_tile_shape(int64_t m, int64_t n, int64_t k, int64_t batches, bool weights = false);

// How a problem is cut into tiles.
class MatmulTiles {
 public:
  MatmulTiles(const MatmulProblem& problem, TileShape shape);

  int64_t tiles() const { return tiles_m_ * tiles_n_ * batches_; }
  MatmulTile tile(int64_t index) const;
  // Whether each tile spans all n columns, so that a row epilogue may run on it.
  bool full_rows() const { return tiles_n_ == 1; }
  int64_t rows_per_tile() const { return tile_m_; }
  int64_t cols_per_tile() const { return tile_n_; }
  // Elements between the pointer given as `c` and the first element that tile `index` writes. To
  // let a tile land in a private buffer, pass c = buffer - c_offset(index) * size of an element.
  int64_t c_offset(int64_t index) const;
  const MatmulProblem& problem() const { return problem_; }
  int64_t batches() const { return batches_; }
  struct BatchOffsets {
    int64_t a = 0, b = 0, c = 0;
    int64_t b_index = 0;  // which of the distinct B matrices
  };
  BatchOffsets offsets(int64_t batch) const;
  int64_t distinct_b() const;
  std::string b_text() const;  // which B it is: dtype, sizes, strides

 protected:
  MatmulProblem problem_;
  int64_t batches_ = 1;
  int64_t tile_m_ = 1, tile_n_ = 1;    // size of a tile; the last of a row or column may be smaller
  int64_t tiles_m_ = 0, tiles_n_ = 0;  // tiles per matrix
};

class MatmulPlan : public MatmulTiles {
 public:
  // Returns the plan of this problem; all who hold one at a time share it.
  static std::shared_ptr<const MatmulPlan> make(const MatmulProblem& problem, Isa isa = host_isa());

  virtual ~MatmulPlan() = default;

  // Which implementation runs, for reports.
  virtual const char* name() const = 0;

  // Bytes of scratch each thread needs, 64-byte aligned; may be 0.
  virtual size_t scratch_bytes() const = 0;
  virtual void run_tile(int64_t tile, const void* a, const void* b, void* c,
                        void* scratch) const = 0;

  // A B that does not change (weights) is packed once and then used by every run.
  //   std::vector<std::byte, aligned> packed(plan->packed_b_bytes());
  //   plan->pack_b(b, packed.data());
  //   plan->run_tile_packed(tile, a, packed.data(), c, scratch);
  // Same values as run_tile but for the rounding of the sums. `packed` is 64-byte aligned.
  virtual size_t packed_b_bytes() const = 0;
  // Plans of other problems that say the same pack the same B alike.
  virtual std::string packed_b_form() const = 0;
  virtual void pack_b(const void* b, void* packed) const = 0;
  virtual void run_tile_packed(int64_t tile, const void* a, const void* packed, void* c,
                               void* scratch) const = 0;

 protected:
  explicit MatmulPlan(const MatmulProblem& problem);
};

}  // namespace rlx::cpu
