// Native kernels: products and convolutions of bytes in integers.
#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/image/byte_conv.h"
#include "rlx/backend/cpu/kernels/matmul/byte_product.h"
#include "rlx/backend/cpu/product_views.h"
#include "rlx/ops/quant/quantise.h"

namespace rlx::cpu {
namespace {

using Views = std::span<const View>;

class ByteProductKernel final : public BlockKernel {
 public:
  ByteProductKernel(const ByteProblem& problem, DotIsa isa, size_t operands, bool is_packed)
      : problem_(problem),
        product_(problem, isa, is_packed),
        operands_(operands),
        packed_(is_packed) {}
  std::shared_ptr<const StepKernel> packed(int in) const override {
    return in == 1 && product_.packed_bytes()
               ? std::make_shared<ByteProductKernel>(problem_, product_.isa(), operands_, true)
               : nullptr;
  }
  int64_t packed_bytes() const override { return static_cast<int64_t>(product_.packed_bytes()); }
  void pack(const void* source, void* target) const override { product_.pack_b(source, target); }
  std::string packed_form() const override { return product_.packed_form(); }
  std::string name() const override {
    return fmt::format("matmul_integer ({}{})", dot_isa_name(product_.isa()),
                       packed_ ? ", packed weights" : "");
  }
  int64_t blocks() const override { return product_.tiles(); }
  size_t scratch_bytes() const override { return product_.scratch_bytes(); }
  int64_t work() const override { return static_cast<int64_t>(flops() / 16); }
  double flops() const override {
    const MatmulProblem& p = problem_.product;
    return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
           static_cast<double>(product_.batches());
  }
  // Rows of A make rows of C; B and the zero points are read whole.
  int64_t rows() const override {
    const MatmulProblem& p = problem_.product;
    return product_.full_rows() && p.batch.empty() && p.c_col == 1 && p.a_col == 1 && p.a_row == p.k
               ? p.m
               : 0;
  }
  int64_t rows_per_block() const override { return product_.rows_per_tile(); }
  std::optional<BlockSpan> span(size_t operand) const override {
    if (rows() == 0 || (operand > 0 && operand < operands_)) return std::nullopt;
    const MatmulProblem& p = problem_.product;
    const int64_t elements = rows_per_block() * (operand == 0 ? p.k : p.n);
    return BlockSpan{elements, 0, elements - 1};
  }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    const ByteOperands in{m.operands[0], m.operands[1], operands_ > 2 ? m.operands[2] : nullptr,
                          operands_ > 3 ? m.operands[3] : nullptr, m.operands[operands_]};
    for (int64_t t = begin; t < end; ++t) product_.run_tile(t, in, m.scratch);
  }

 private:
  ByteProblem problem_;
  ByteProduct product_;
  size_t operands_;
  bool packed_;
};

class ByteConvKernel final : public BlockKernel {
 public:
  ByteConvKernel(const ByteConvProblem& problem, DotIsa isa, size_t operands, bool is_packed)
      : problem_(problem), conv_(problem, isa), operands_(operands), packed_(is_packed) {}
  std::shared_ptr<const StepKernel> packed(int in) const override {
    return in == 1 && conv_.packed_bytes()
               ? std::make_shared<ByteConvKernel>(problem_, conv_.isa(), operands_, true)
               : nullptr;
  }
  int64_t packed_bytes() const override { return static_cast<int64_t>(conv_.packed_bytes()); }
  void pack(const void* source, void* target) const override { conv_.pack_w(source, target); }
  std::string packed_form() const override { return conv_.packed_form(); }
  std::string name() const override {
    return fmt::format("conv_integer ({}{})", dot_isa_name(conv_.isa()),
                       packed_ ? ", packed weights" : "");
  }
  int64_t blocks() const override { return conv_.blocks(); }
  size_t scratch_bytes() const override { return conv_.scratch_bytes(); }
  int64_t work() const override { return static_cast<int64_t>(flops() / 16); }
  double flops() const override {
    const ConvProblem& p = problem_.conv;
    return 2.0 * static_cast<double>(p.images * p.groups * p.out) *
           static_cast<double>(p.positions()) * static_cast<double>(p.depth());
  }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    const ByteOperands in{m.operands[0], m.operands[1], operands_ > 2 ? m.operands[2] : nullptr,
                          operands_ > 3 ? m.operands[3] : nullptr, m.operands[operands_]};
    for (int64_t block = begin; block < end; ++block) conv_.run(block, in, packed_, m.scratch);
  }

 private:
  ByteConvProblem problem_;
  ByteConv conv_;
  size_t operands_;
  bool packed_;
};

std::shared_ptr<const StepKernel> make_conv_integer(Isa isa, const Node& n, Views in, Views out) {
  const ByteConvProblem p{.conv = conv_problem(n.get<ConvAttrs>(), in[0], in[1], out[0]),
                          .x_dtype = in[0].dtype,
                          .w_dtype = in[1].dtype,
                          .x_zeros = in.size() > 2 ? in[2].elements() : 0,
                          .w_zeros = in.size() > 3 ? in[3].elements() : 0};
  return std::make_shared<ByteConvKernel>(p, dot_isa(isa), in.size(), false);
}

Decision integer_view(const Node& n, size_t i, const View& v) {
  return i < 2 ? matmul_view(n, i, v) : dense_only(n, i, v);
}

std::shared_ptr<const StepKernel> make_matmul_integer(Isa isa, const Node&, Views in, Views out) {
  const ByteProblem p{.product = matmul_problem(MatmulAttrs{}, in.subspan(0, 2), out),
                      .b_dtype = in[1].dtype,
                      .a_zeros = in.size() > 2 ? in[2].elements() : 0,
                      .b_zeros = in.size() > 3 ? in[3].elements() : 0};
  return std::make_shared<ByteProductKernel>(p, dot_isa(isa), in.size(), false);
}

constexpr KernelRow kIntegerKernels[] = {
    {&op::matmul_integer, "", always, integer_view, make_matmul_integer},
    {&op::conv_integer, "", always, dense_only, make_conv_integer},
};

}  // namespace

std::span<const KernelRow> integer_kernels() { return kIntegerKernels; }

}  // namespace rlx::cpu
