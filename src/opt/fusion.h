// Which fusion passes a target gets: from the ops it has kernels for, and from options.
//
//   Graph h = opt::run_passes(g, opt::fusion_passes(opt::FusionTarget::cpu));
//   opt::fusion_passes_for_supported({"matmul", "fused_swiglu"});
//
// A claim is a list of ops that a backend runs, by their names or by the documents' names for them ("matmul", "MatMul",
// "Binary"); an empty one claims everything. Raises Error(user, "claim-op") for a name that is neither.
#pragma once

#include "rlx/opt/passes.h"

namespace rlx::opt {

enum class FusionTarget : uint8_t { cpu, metal, mlx, wgpu, cuda, rocm, tpu };
inline std::span<const std::string_view> enum_names(FusionTarget) {
  static constexpr std::string_view names[] = {"cpu",  "metal", "mlx", "wgpu",
                                               "cuda", "rocm",  "tpu"};
  return names;
}
std::string_view name(FusionTarget target);
// Of a device's name: gpu, vulkan and webgpu are wgpu; unknown ones are cpu.
FusionTarget fusion_target_of(std::string_view device);

using Claim = std::vector<std::string>;
void check_claim(const Claim& claim);
bool supports_op(const Claim& claim, const OpDef& op);
bool supports_op(const Claim& claim, std::string_view op);  // by name; raises "claim-op"
// What the target of this process runs without rewriting, from its kernels, what lowering does itself and what regions are
// made of. Raises Error(unsupported, "fusion-target") for a target that this process has not, and lists those it has.
Claim supported_for_target(FusionTarget target);

struct FusionOptions {
  bool skip_fusion = false;                 // only the lowerings
  bool unfuse_elementwise_regions = false;  // expand regions again after they were marked
  FusionLimits fusion_limits;
  static FusionOptions for_cpu() { return {false, false, FusionLimits::unbounded()}; }
  bool operator==(const FusionOptions&) const = default;
};
FusionLimits fusion_limits_for_target(FusionTarget target);

// In order: control flow, dot_general, then, where the claim has what they make: linear layers, attention blocks, residual
// norms, merged rows, layers (where RLX_ENABLE_FUSE_TRANSFORMER_LAYER is on), SwiGLU, shared products (unless
// RLX_NO_SHARED_INPUT_MATMUL is on), regions, and dead code. RLX_FUSE_ATTN_THRESHOLD is that of blocks.
Passes fusion_passes_for_supported(const Claim& claim, const FusionOptions& options = {});
// By supported_for_target. Limits that are the default become the target's.
Passes fusion_passes(FusionTarget target, FusionOptions options = {});
// Those that are safe on gradients: nothing that only forward programs have.
Passes backward_cleanup_passes();

}  // namespace rlx::opt
