// The optimizer under the names of its documents: passes as objects, derivatives of graphs and modules, compiling as an
// object, what a backend makes of a program, and what was made of it.
//
//   using namespace rlx;
//   Graph h = opt::run_passes(g, opt::fusion_passes(opt::FusionTarget::cpu));
//   Graph k = opt::grad_with_loss(g, {"w"});
//   opt::format_dispatch_report(opt::analyze_dispatch(g, "cpu", opt::supported_for_target(opt::FusionTarget::cpu)));
//   opt::CompileResult r = opt::CompilePipeline(backend_for("cpu")).compile_graph(g);   // LIR, with what fused
//   opt::CompiledTraining f(opt::compile_training(loss, {"w"}), Session());             // forward and backward, one memory
//   Explanation e = explain(g, "cpu");                                                  // all of it: e.json(), e.html()
//
// It is a face over passes/, transform/ and compile/; those who know these need it not. The documents' modules are the
// namespaces below. (`inline` and `vmap` are words of their own in C++: inlining, batching.)
#pragma once

#include "rlx/compile/pipeline.h"
#include "rlx/explain/explain.h"
#include "rlx/explain/trace.h"
#include "rlx/opt/autodiff.h"
#include "rlx/opt/dispatch.h"
#include "rlx/opt/fusion.h"
#include "rlx/opt/fusion_report.h"
#include "rlx/opt/passes.h"
#include "rlx/opt/svg.h"
#include "rlx/opt/training.h"
#include "rlx/passes/auto_mixed_precision.h"
#include "rlx/passes/insert_q_dq.h"
#include "rlx/passes/quant_propagate.h"
#include "rlx/quantise/qat.h"

namespace rlx::opt {

using fusion_report::MissedFusion;
using fusion_report::MissReason;
using rlx::AutoMixedPrecision;
using rlx::calibrate;
using rlx::CalibrationEntry;
using rlx::CalibrationRecord;
using rlx::CastConfig;
using rlx::insert_q_dq;
using rlx::is_pure_view;
using rlx::MemoryPlanOptions;
using rlx::plan_memory_backward;
using rlx::plan_memory_f32_uniform;
using rlx::plan_memory_with_options;
using rlx::Precision;
using rlx::PrecisionPolicy;
using rlx::SharedWeightLayout;
using rlx::WeightSlot;
using OpKind = PrecisionOpKind;

namespace autodiff {
using opt::grad;
using opt::grad_with_loss;
using opt::grad_with_loss_opts;
using opt::GradWithLossOptions;
using opt::quantized_weight_bits;
}  // namespace autodiff
namespace autodiff_fwd {
using opt::hvp;
using opt::jvp;
}  // namespace autodiff_fwd
namespace compiler {
using opt::compile_training;
using opt::CompilePipeline;
using opt::CompileResult;
using opt::TrainingCompileError;
using opt::TrainingCompileResult;
}  // namespace compiler
namespace const_fold {
using opt::ConstantFolding;
}
namespace control_flow {
using opt::inline_if;
using opt::inline_subgraph_into;
using opt::LowerControlFlow;
using opt::unroll_while;
}  // namespace control_flow
namespace dce {
using opt::DeadCodeElimination;
}
namespace fusion {
using opt::FuseAttentionBlock;
using opt::FuseMatMulBiasAct;
using opt::FuseResidualLN;
using opt::FuseResidualRmsNorm;
using opt::FuseRmsNormReshape;
using opt::FuseSharedInputMatMul;
using opt::FuseSwiGLU;
using opt::FuseSwiGLUDualMatmul;
using opt::FuseTransformerLayer;
using opt::MarkElementwiseRegions;
using opt::UnfuseElementwiseRegions;
}  // namespace fusion
namespace fusion_pipeline {
using opt::fusion_limits_for_target;
using opt::fusion_passes;
using opt::fusion_passes_for_supported;
using opt::FusionLimits;
using opt::FusionOptions;
using opt::FusionTarget;
using opt::supported_for_target;
using opt::supports_op;
}  // namespace fusion_pipeline
namespace inlining {
using opt::inline_into;
}
namespace inspect {
using opt::inspect_compiled;
using opt::inspect_fusion;
using opt::inspect_pipeline;
using opt::maybe_dump_pipeline;
using opt::PipelineInspect;
}  // namespace inspect
namespace legalize {
using opt::format_legalize_error;
using opt::legalize_for_backend;
using opt::LegalizeResult;
}  // namespace legalize
namespace legalize_broadcast {
using opt::LegalizeBroadcast;
inline Graph run(const Graph& g) { return legalize_broadcast_with_map(g).first; }
// And what became of each value.
inline auto run_with_remap(const Graph& g) { return legalize_broadcast_with_map(g); }
}  // namespace legalize_broadcast
namespace lower_dot_general {
using opt::LowerDotGeneral;
}
namespace memory {
using opt::is_pure_view;
using opt::MemoryPlanOptions;
using opt::plan_memory_backward;
using opt::plan_memory_f32_uniform;
using opt::plan_memory_with_options;
using opt::SharedWeightLayout;
using opt::WeightSlot;
using rlx::collect_view_aliases;
using rlx::plan_memory;
using rlx::plan_memory_aligned;
}  // namespace memory
namespace pass {
using opt::Pass;
using opt::run_passes;
}  // namespace pass
namespace precision {
using opt::AutoMixedPrecision;
using opt::CastConfig;
using opt::OpKind;
using opt::Precision;
using opt::PrecisionPolicy;
}  // namespace precision
namespace prepare_ad {
using opt::prepare_graph_for_ad;
using opt::PrepareForAutodiff;
}  // namespace prepare_ad
namespace promote_params {
using opt::promote_params_to_inputs;
}
namespace quant_insert {
using opt::CalibrationEntry;
using opt::CalibrationRecord;
using opt::insert_q_dq;
}  // namespace quant_insert
namespace quant_propagate {
using rlx::quant_propagate::run;
}
namespace unfuse {
using opt::unfuse_fused_for_autodiff;
}
namespace batching {
using opt::vmap;
}

}  // namespace rlx::opt
