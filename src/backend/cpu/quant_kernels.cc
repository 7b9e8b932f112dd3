// Native kernels: packed weights, products with them, grouped products.
#include <algorithm>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/matmul/dequant.h"
#include "rlx/backend/cpu/kernels/matmul/grouped.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/checked.h"
#include "rlx/ops/nn/experts.h"
#include "rlx/ops/quant/quantise.h"

namespace rlx::cpu {
namespace {

using Views = std::span<const View>;

Decision takes_f32(const Node& n, const Graph& g) {
  if (g.type(n.in[0]).dtype == DType::F32) return Decision::yes();
  return Decision::no("the kernel is for f32");
}

Decision takes_f32_experts(const Node& n, const Graph& g) {
  if (Decision d = takes_f32(n, g); !d) return d;
  const bool none = n.op == &op::grouped_outer ? n.out[0].shape[0] == Dim(0)
                                               : g.type(n.in[1]).shape.elements() == Dim(0);
  return none ? Decision::no("there are no experts") : Decision::yes();
}

// ---- blocks

// Whole format blocks of a tensor, many to a block of work.
int64_t blocks_per_step(const FormatInfo& f) { return std::max(1, 4096 / f.block_elements); }

Plan plan_dequantise(const Node& n, Views, Views out) {
  const FormatInfo& f = n.get<BlocksAttrs>().scheme.info();
  const int64_t count = out[0].elements() / f.block_elements, step = blocks_per_step(f);
  return {.blocks = ceil_div(count, step),
          .work = out[0].elements(),
          .run = [=, &f](const StepMemory& m, int64_t begin, int64_t end) {
            const int64_t first = begin * step, last = std::min(end * step, count);
            decode_blocks(f, static_cast<const uint8_t*>(m.operands[0]) + first * f.block_bytes,
                          (last - first) * f.block_elements,
                          static_cast<float*>(m.operands[1]) + first * f.block_elements);
          }};
}

// One format block at a time through f32.
template <class S>
void encode_as_f32(const FormatInfo& f, const S* x, int64_t blocks, uint8_t* out) {
  float values[256];
  for (int64_t b = 0; b < blocks; ++b, x += f.block_elements, out += f.block_bytes) {
    for (int i = 0; i < f.block_elements; ++i)
      values[i] = static_cast<float>(Element<S>::get(x[i]));
    f.encode(values, out);
  }
}

Plan plan_quantise(const Node& n, Views in, Views) {
  const FormatInfo& f = n.get<SchemeAttrs>().scheme.info();
  const DType dtype = in[0].dtype;
  const int64_t count = in[0].elements() / f.block_elements,
                step = std::max<int64_t>(1, blocks_per_step(f) / 8);
  return {.blocks = ceil_div(count, step),
          .work = 50 * in[0].elements(),
          .run = [=, &f](const StepMemory& m, int64_t begin, int64_t end) {
            const int64_t first = begin * step, last = std::min(end * step, count);
            auto* out = static_cast<uint8_t*>(m.operands[1]) + first * f.block_bytes;
            visit_dtype(dtype, [&]<class S>() {
              if constexpr (std::is_convertible_v<Compute<S>, float>)
                encode_as_f32(f, static_cast<const S*>(m.operands[0]) + first * f.block_elements,
                              last - first, out);
            });
          }};
}

// ---- products

double product_flops(int64_t m, int64_t k, int64_t n) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
}
int64_t product_work(double flops) { return static_cast<int64_t>(flops / 8); }

Decision takes_activations(const Node& n, const Graph& g) {
  const auto& [scheme, activations] = n.get<DequantMatmulAttrs>();
  if (activations == Activations::q8 && !row_format(scheme.format))
    return Decision::no("x is rounded before the product: no integer products with {}",
                        scheme.to_string());
  return takes_f32(n, g);
}

class DequantKernel final : public BlockKernel {
 public:
  DequantKernel(const DequantProblem& problem, Isa isa, size_t operands, bool is_packed)
      : problem_(problem),
        isa_(isa),
        product_(problem, isa, is_packed),
        operands_(operands),
        packed_(is_packed) {}
  std::shared_ptr<const StepKernel> packed(int in) const override {
    return in == 1 && product_.takes_panels()
               ? std::make_shared<DequantKernel>(problem_, isa_, operands_, true)
               : nullptr;
  }
  int64_t packed_bytes() const override { return packed_ ? product_.packed_bytes() : 0; }
  void pack(const void* source, void* target) const override { product_.pack_w(source, target); }
  std::string packed_form() const override { return product_.packed_form(); }
  std::string name() const override {
    return packed_ ? "dequant_matmul (packed weights)" : "dequant_matmul";
  }
  int64_t blocks() const override { return product_.blocks(); }
  size_t scratch_bytes() const override { return product_.scratch_bytes(); }
  int64_t work() const override { return product_work(flops()) + problem_.k * problem_.n; }
  double flops() const override { return product_flops(problem_.m, problem_.k, problem_.n); }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    auto at = [&](size_t i) { return i < operands_ ? m.operands[i] : nullptr; };
    product_.run({static_cast<const float*>(m.operands[0]), at(1), at(2), at(3)},
                 static_cast<float*>(m.operands[operands_]), begin, end, m.scratch);
  }

 private:
  DequantProblem problem_;
  Isa isa_;
  DequantProduct product_;
  size_t operands_;
  bool packed_;
};

std::shared_ptr<const StepKernel> make_dequant_matmul(Isa isa, const Node& n, Views in, Views out) {
  const auto& [scheme, activations] = n.get<DequantMatmulAttrs>();
  DequantProblem p;
  p.k = in[0].dims.back(), p.n = out[0].dims.back();
  p.m = p.n ? out[0].elements() / p.n : 0;
  p.scheme = scheme;
  p.rounded = activations == Activations::q8;
  return std::make_shared<DequantKernel>(p, isa, in.size(), false);
}

Plan grouped_plan(GroupedProblem p) {
  const double flops = product_flops(p.m, p.k, p.n);
  return {
      .blocks = grouped_blocks(p),
      .work = product_work(flops) + (p.format ? p.experts * p.k * p.n : 0),
      .scratch = grouped_scratch_bytes(p),
      .flops = flops,
      .run = [=, f = row_products(host_isa())](const StepMemory& m, int64_t begin, int64_t end) {
        grouped_matmul(p, static_cast<const float*>(m.operands[0]), m.operands[1], m.operands[2],
                       static_cast<float*>(m.operands[3]), m.flag, begin, end, m.scratch, f);
      }};
}

Plan plan_grouped(const Node& n, Views in, Views out) {
  return grouped_plan({.m = in[0].dims[0],
                       .k = in[0].dims[1],
                       .n = out[0].dims[1],
                       .experts = in[1].dims[0],
                       .id_dtype = in[2].dtype,
                       .transposed = n.get<GroupedMatmulAttrs>().transpose_weight});
}

Plan plan_dequant_grouped(const Node& n, Views in, Views out) {
  const FormatInfo& f = n.get<DequantGroupedAttrs>().scheme.info();
  const int64_t k = in[0].dims[1], columns = out[0].dims[1];
  return grouped_plan({.m = in[0].dims[0],
                       .k = k,
                       .n = columns,
                       .experts = in[1].elements() / packed_bytes(f, columns * k),
                       .id_dtype = in[2].dtype,
                       .format = &f});
}

Plan plan_grouped_outer(const Node&, Views in, Views out) {
  const GroupedProblem p{.m = in[0].dims[0],
                         .k = in[0].dims[1],
                         .n = in[1].dims[1],
                         .experts = out[0].dims[0],
                         .id_dtype = in[2].dtype};
  const double flops = product_flops(p.m, p.k, p.n);
  return {
      .blocks = grouped_outer_blocks(p),
      .work = product_work(flops) + out[0].elements(),
      .scratch = grouped_outer_scratch_bytes(p),
      .flops = flops,
      .run = [=, f = row_products(host_isa())](const StepMemory& m, int64_t begin, int64_t end) {
        grouped_outer(p, static_cast<const float*>(m.operands[0]),
                      static_cast<const float*>(m.operands[1]), m.operands[2],
                      static_cast<float*>(m.operands[3]), m.flag, begin, end, m.scratch, f);
      }};
}

const KernelRow kQuantKernels[] = {
    dense_kernel<plan_dequantise>(&op::dequantise_blocks),
    dense_kernel<plan_quantise>(&op::quantise_blocks),
    {&op::dequant_matmul, "", takes_activations, dense_only, make_dequant_matmul},
    dense_kernel<plan_grouped>(&op::grouped_matmul, takes_f32_experts),
    dense_kernel<plan_grouped_outer>(&op::grouped_outer, takes_f32_experts),
    dense_kernel<plan_dequant_grouped>(&op::dequant_grouped_matmul, takes_f32_experts),
};

}  // namespace

std::span<const KernelRow> quant_kernels() { return kQuantKernels; }

}  // namespace rlx::cpu
