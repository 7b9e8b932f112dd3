// Native kernels: products.
#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/matmul/matmul.h"
#include "rlx/backend/cpu/product_views.h"
#include "rlx/ops/core.h"

namespace rlx::cpu {

namespace {

bool unit(int64_t stride, int64_t size) { return stride == 1 || size == 1; }

}  // namespace

Decision matmul_view(const Node&, size_t, const View& v) {
  const size_t r = v.dims.size();
  if (unit(v.strides[r - 1], v.dims[r - 1]) || unit(v.strides[r - 2], v.dims[r - 2]))
    return Decision::yes();
  return Decision::no("one of the last two dims must have stride 1");
}

namespace {

// Row and column strides of the last two dims, swapped when transposed; a dim of size 1 counts as
// dense.
struct Matrix {
  int64_t rows, cols, row_stride, col_stride;
};
Matrix matrix_of(const View& v, bool transpose) {
  const size_t r = v.dims.size();
  Matrix m{v.dims[r - 2], v.dims[r - 1], v.strides[r - 2], v.strides[r - 1]};
  if (m.cols == 1 && m.row_stride != 1) m.col_stride = 1;
  if (m.rows == 1 && m.col_stride != 1) m.row_stride = 1;
  if (m.rows == 1 && m.col_stride == 1) m.row_stride = m.cols;
  if (transpose) m = {m.cols, m.rows, m.col_stride, m.row_stride};
  return m;
}

}  // namespace

MatmulProblem matmul_problem(const MatmulAttrs& attrs, std::span<const View> in,
                             std::span<const View> out) {
  const Matrix a = matrix_of(in[0], attrs.transpose_a), b = matrix_of(in[1], attrs.transpose_b),
               c = matrix_of(out[0], false);
  MatmulProblem p;
  p.dtype = in[0].dtype;
  p.out_dtype = out[0].dtype;
  p.m = a.rows, p.k = a.cols, p.n = b.cols;
  p.a_row = a.row_stride, p.a_col = a.col_stride;
  p.b_row = b.row_stride, p.b_col = b.col_stride;
  p.c_row = c.row_stride, p.c_col = c.col_stride;
  const size_t batch_rank = out[0].dims.size() - 2;
  auto stride = [&](const View& v, size_t d) -> int64_t {
    const size_t own = v.dims.size() - 2, missing = batch_rank - own;
    if (d < missing || v.dims[d - missing] == 1) return 0;
    return v.strides[d - missing];
  };
  for (size_t d = 0; d < batch_rank; ++d)
    if (out[0].dims[d] != 1)
      p.batch.push_back({out[0].dims[d], stride(in[0], d), stride(in[1], d), stride(out[0], d)});
  // Batches that share B are more rows of one product.
  while (!p.batch.empty()) {
    const MatmulBatch& last = p.batch.back();
    if (last.b != 0 || last.a != p.m * p.a_row || last.c != p.m * p.c_row) break;
    p.m *= last.size;
    p.batch.pop_back();
  }
  return p;
}

namespace {

class MatmulKernel final : public BlockKernel {
 public:
  explicit MatmulKernel(std::shared_ptr<const MatmulPlan> plan, Isa isa, bool is_packed = false)
      : plan_(std::move(plan)), isa_(isa), packed_(is_packed) {}
  std::shared_ptr<const StepKernel> packed(int in) const override {
    if (in != 1 || !plan_->packed_b_bytes()) return nullptr;
    MatmulProblem p = plan_->problem();
    p.weights = true;
    return std::make_shared<MatmulKernel>(MatmulPlan::make(p, isa_), isa_, true);
  }
  int64_t packed_bytes() const override { return static_cast<int64_t>(plan_->packed_b_bytes()); }
  void pack(const void* source, void* target) const override { plan_->pack_b(source, target); }
  std::string packed_form() const override { return plan_->packed_b_form(); }
  std::string name() const override {
    return fmt::format("matmul ({}{})", plan_->name(), packed_ ? ", packed weights" : "");
  }
  int64_t blocks() const override { return plan_->tiles(); }
  size_t scratch_bytes() const override { return plan_->scratch_bytes(); }
  int64_t work() const override { return static_cast<int64_t>(flops() / 8); }
  double flops() const override {
    const MatmulProblem& p = plan_->problem();
    double f = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    for (const MatmulBatch& b : p.batch) f *= static_cast<double>(b.size);
    return f;
  }
  // Rows of A make rows of C; B is read whole, and so is an A that lies otherwise.
  int64_t rows() const override {
    const MatmulProblem& p = plan_->problem();
    return plan_->full_rows() && p.batch.empty() && p.c_col == 1 && p.c_row == p.n ? p.m : 0;
  }
  int64_t rows_per_block() const override { return plan_->rows_per_tile(); }
  std::optional<BlockSpan> span(size_t operand) const override {
    const MatmulProblem& p = plan_->problem();
    if (rows() == 0 || operand == 1) return std::nullopt;
    if (operand == 0 && (p.a_col != 1 || p.a_row != p.k)) return std::nullopt;
    const int64_t elements = rows_per_block() * (operand == 0 ? p.k : p.n);
    return BlockSpan{elements, 0, elements - 1};
  }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    for (int64_t t = begin; t < end; ++t) {
      if (packed_)
        plan_->run_tile_packed(t, m.operands[0], m.operands[1], m.operands[2], m.scratch);
      else
        plan_->run_tile(t, m.operands[0], m.operands[1], m.operands[2], m.scratch);
    }
  }

 private:
  std::shared_ptr<const MatmulPlan> plan_;
  Isa isa_;
  bool packed_;
};

std::shared_ptr<const StepKernel> make_matmul(Isa isa, const Node& n, std::span<const View> in,
                                              std::span<const View> out) {
  return std::make_shared<MatmulKernel>(
      MatmulPlan::make(matmul_problem(n.get<MatmulAttrs>(), in, out), isa), isa);
}

constexpr KernelRow kCoreKernels[] = {
    {&op::matmul, "matmul", always, matmul_view, make_matmul},
};

}  // namespace

std::span<const KernelRow> core_kernels() { return kCoreKernels; }

}  // namespace rlx::cpu
