#include "rlx/opt/fusion.h"

#include <set>

#include "rlx/base/suggest.h"
#include "rlx/compile/compile.h"
#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/core.h"
#include "rlx/opt/environment.h"
#include "rlx/runtime/runtime.h"
#include "rlx/stages/builders/vocabulary.h"

namespace rlx::opt {

std::string_view name(FusionTarget target) {
  return enum_names(target)[static_cast<size_t>(target)];
}

FusionTarget fusion_target_of(std::string_view device) {
  if (device == "gpu" || device == "vulkan" || device == "webgpu") return FusionTarget::wgpu;
  const auto names = enum_names(FusionTarget{});
  const auto at = std::find(names.begin(), names.end(), device);
  return at == names.end() ? FusionTarget::cpu : static_cast<FusionTarget>(at - names.begin());
}

namespace {

// The names of ops, and of the documents' kinds.
const std::set<std::string, std::less<>>& known_names() {
  static const auto names = [] {
    std::set<std::string, std::less<>> out;
    for (const OpTable::Entry& e : op_table().entries()) {
      out.emplace(e.op->name);
      out.insert(op_kind(*e.op));
    }
    return out;
  }();
  return names;
}

}  // namespace

void check_claim(const Claim& claim) {
  for (const std::string& name : claim) {
    if (known_names().contains(name) || op_table().find(name)) continue;
    const std::vector<std::string_view> names(known_names().begin(), known_names().end());
    fail(ErrorKind::user, "claim-op", "{} is no op and no kind of op{}", quote(name),
         did_you_mean(name, names));
  }
}

bool supports_op(const Claim& claim, const OpDef& op) {
  if (claim.empty()) return true;
  const std::string kind = op_kind(op);
  return std::any_of(claim.begin(), claim.end(),
                     [&](const std::string& c) { return c == op.name || c == kind; });
}

bool supports_op(const Claim& claim, std::string_view op) {
  check_claim({std::string(op)});
  const OpDef* const def = op_table().find(op);
  if (def) return supports_op(claim, *def);
  if (claim.empty()) return true;
  for (const OpTable::Entry& e : op_table().entries())  // a kind: any op of it
    if (op_kind(*e.op) == op && supports_op(claim, *e.op)) return true;
  return false;
}

Claim supported_for_target(FusionTarget target) {
  std::vector<std::string> present;
  for (const Device& d : available_devices())
    if (std::find(present.begin(), present.end(), d.kind) == present.end())
      present.push_back(d.kind);
  std::erase_if(present, [](const std::string& kind) {
    const auto names = enum_names(FusionTarget{});
    return std::find(names.begin(), names.end(), kind) == names.end();
  });
  const std::string wanted(name(target));
  if (std::find(present.begin(), present.end(), wanted) == present.end())
    fail(ErrorKind::unsupported, "fusion-target",
         "this process has no target {}, so its ops are not known; it has {}", quote(wanted),
         present.empty() ? "none" : fmt::format("{}", fmt::join(present, ", ")));
  Claim out = native_ops(*backend_for(wanted));
  for (const OpTable::Entry& e : op_table().entries())  // what regions compute, and leaves
    if (e.op->scalar || e.op->kind == Kind::leaf) out.emplace_back(e.op->name);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

FusionLimits fusion_limits_for_target(FusionTarget target) {
  return target == FusionTarget::cpu ? FusionLimits::unbounded() : FusionLimits::gpu_native();
}

Passes fusion_passes_for_supported(const Claim& claim, const FusionOptions& options) {
  check_claim(claim);
  const auto has = [&](const auto& op) { return supports_op(claim, op.def); };
  const bool loops = !claim.empty() && supports_op(claim, "while_loop");
  Passes out{pass_of<LowerControlFlow>(loops), pass_of<LowerDotGeneral>()};
  if (options.skip_fusion) return out;
  const int64_t threshold = environment_number("RLX_FUSE_ATTN_THRESHOLD", kAttentionThreshold);
  const auto add = [&](bool wanted, PassPtr pass) {
    if (wanted) out.push_back(std::move(pass));
  };
  add(has(op::fused_matmul_bias_act), pass_of<FuseMatMulBiasAct>());
  add(has(op::fused_attention_block), pass_of<FuseAttentionBlock>(threshold));
  add(has(op::fused_residual_ln), pass_of<FuseResidualLN>());
  add(has(op::fused_residual_rms_norm), pass_of<FuseResidualRmsNorm>());
  add(true, pass_of<FuseRmsNormReshape>());
  add(environment_flag("RLX_ENABLE_FUSE_TRANSFORMER_LAYER") && has(op::fused_transformer_layer) &&
          has(op::fused_attention_block),
      pass_of<FuseTransformerLayer>(threshold));
  add(has(op::fused_swiglu), pass_of<FuseSwiGLUDualMatmul>());
  add(has(op::matmul) && !environment_flag("RLX_NO_SHARED_INPUT_MATMUL"),
      pass_of<FuseSharedInputMatMul>());
  add(has(op::fused_swiglu), pass_of<FuseSwiGLU>());
  const bool keeps_regions = has(op::region) && !options.unfuse_elementwise_regions;
  add(keeps_regions, pass_of<MarkElementwiseRegions>(options.fusion_limits));
  add(!keeps_regions, pass_of<UnfuseElementwiseRegions>());
  add(true, pass_of<DeadCodeElimination>());
  return out;
}

Passes fusion_passes(FusionTarget target, FusionOptions options) {
  if (options.fusion_limits == FusionLimits{})
    options.fusion_limits = fusion_limits_for_target(target);
  return fusion_passes_for_supported(supported_for_target(target), options);
}

Passes backward_cleanup_passes() {
  return {pass_of<DeadCodeElimination>(), pass_of<LowerDotGeneral>()};
}

}  // namespace rlx::opt
