// Training as two programs over one memory for the weights: a forward that gives what the backward reads, and a backward
// that computes nothing again.
//
//   opt::TrainingCompileResult r = opt::compile_training(loss, {"w", "b"});     // loss: a module or a graph
//   opt::CompiledTraining f(r, Session("cpu"));
//   f.set_params({{"w", w}, {"b", b}});
//   Tensors y = f.forward({{"x", x}});                       // the loss and what else the program gives
//   Tensors gradients = f.backward();                        // of that forward, in the order of wrt
//
//   opt::compile_training(loss, {"w", "b"}, {.step = TrainOptions{.optimizer = adamw({})}});
//
// With a step the backward writes the parameters in place, in the memory that the forward reads, and gives what train_step
// gives besides the loss (the norm, where asked for).
//
// Both are cut from one program, grad_with_loss's or train_step's, after the default pipeline: what the forward's outputs
// need is the forward, the rest is the backward. Between them lie the values that cross, views apart, which cost nothing.
//
// Raises Error(user) "training-stage" (LIR: its graph says what was compiled), and what grad_with_loss, train_step and the
// pipeline raise; "training-order" (backward before forward).
#pragma once

#include <map>
#include <set>

#include "rlx/compile/pipeline.h"
#include "rlx/lower/graph_plan.h"
#include "rlx/opt/autodiff.h"
#include "rlx/runtime/runtime.h"
#include "rlx/train/train_step.h"

namespace rlx::opt {

// What an Error of compile_training means in the documents' words.
enum class TrainingCompileError : uint8_t { wrong_stage, lower };
inline std::span<const std::string_view> enum_names(TrainingCompileError) {
  static constexpr std::string_view names[] = {"WrongStage", "Lower"};
  return names;
}
std::optional<TrainingCompileError> training_compile_error(const Error& e);

struct TrainingOptions {
  // The hook for an optimiser; `params` is what wrt says.
  std::optional<TrainOptions> step;
  GradWithLossOptions gradients = {};
};

struct TrainingCompileResult {
  // Outputs: those of the program, then what the backward reads.
  CompileResult forward;
  // Inputs: what it reads of the program's, "d_output" where the loss is no scalar, and "saved_0", "saved_1"..: the
  // forward's last outputs in order. Outputs: the gradients, or with a step what that reports.
  CompileResult backward;
  size_t saved = 0;            // how many values cross
  SharedWeightLayout weights;  // the forward's parameters, from offset 0 on
  // Node by node, as plan_memory makes them: parameters lie where `weights` says, in both, and nothing else does.
  MemoryPlan forward_plan, backward_plan;
  // Both in one, as it was written: for those who want one program.
  Graph joint;
  NamedTensors state;  // with a step: the first values of its own parameters
};

// Modules at HIR are lowered, at MIR taken as they are. wrt are leaves; they are found by name in what the passes leave.
TrainingCompileResult compile_training(const CompilePipeline& pipeline, const GraphModule& module,
                                       const Wrts& wrt, const TrainingOptions& options = {});
// For the default device.
TrainingCompileResult compile_training(const GraphModule& module, const Wrts& wrt,
                                       const TrainingOptions& options = {});
// A backward program: cleaned up (backward_cleanup_passes), through the default pipeline, fused.
MirModule optimize_backward(const CompilePipeline& pipeline, MirModule backward);

// Both programs on a device. One thread at a time.
class CompiledTraining {
 public:
  CompiledTraining(const TrainingCompileResult& programs, const Session& session);

  void set_params(const NamedTensors& values);  // those of the step too; all or nothing
  NamedTensors params() const;                  // as the last step left them
  // The program's own outputs; what the backward reads stays on the device.
  Tensors forward(const NamedTensors& inputs);
  // Of the last forward. Inputs that both read need not be given again.
  Tensors backward(const NamedTensors& inputs = {});
  const std::byte* weights() const { return region_.get(); }  // of the device; both read it

 private:
  std::optional<DeviceTensor> weight(const std::string& name) const;

  SharedWeightLayout layout_;
  size_t outputs_ = 0;  // of the program itself
  CompiledGraph forward_, backward_;
  std::shared_ptr<const Backend> backend_;
  MemoryBlock region_;
  std::unique_ptr<Stream> stream_;
  std::map<std::string, Type> types_;  // of the forward's parameters
  std::set<std::string> params_;       // all there are
  std::set<std::string> backward_inputs_;
  std::set<std::string> changed_;  // weights that the backward writes
  bool has_run_ = false;           // forward, since which no weight has changed
};

}  // namespace rlx::opt
