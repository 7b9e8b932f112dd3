// trace: writes a program by running C++ code on tensors that stand for its values.
//
//   Graph g = trace("mlp", [](Tracer& t) {
//     auto x = t.input("x", {Dim::symbol("batch"), 784});
//     auto w = t.param("w", {784, 10}), b = t.param("b", {10});
//     return (x.matmul(w) + b).softmax();
//   });
//
// The function is run once and records; it may return one tensor, several (TracedTensors) or none.
// Its tensors end with it.
//
// Control flow that depends on values is written with bodies, functions traced on their own. They
// may use tensors of the programs around them, which become operands:
//
//   auto cell = [&](Tracer&, const TracedTensors& h, const TracedTensors& x) -> ScanResult {
//     TracedTensor next = (x[0].matmul(w) + h[0].matmul(u)).tanh();    // w and u come from outside
//     return {{next}, {next}};
//   };
//   ScanResult r = t.scan({h0}, {xs}, cell);
//   TracedTensors y = t.cond(flag, [&](Tracer&) { return x * 2; }, [&](Tracer&) { return x; });
//   TracedTensors z = t.checkpoint([&](Tracer&) { return x.matmul(w).gelu(); });
//
// Raises Error(user) "trace-mixed", "trace-ended" (traced.h), "update-in-body", "scan-length", and
// what ops and verifier raise.
#pragma once

#include <concepts>

#include "rlx/base/function_ref.h"
#include "rlx/front/traced.h"
#include "rlx/ops/control/checkpoint.h"

namespace rlx {

struct Trace;
class Tracer;

struct ScanResult {
  TracedTensors carries, ys;
};
struct ScanOptions {
  std::optional<Dim> length;  // needed only when nothing is stacked
  bool reverse = false;
  // What reverse mode keeps (ops/control/control.h): 0 for the carries of all steps, else those of so many segments, or
  // with binomial so many in all.
  int64_t checkpoints = 0;
  bool binomial = false;
};

struct CheckpointOptions {
  SavePolicy save = SavePolicy::nothing;
  std::vector<std::string> names = {};  // for SavePolicy::names
};

using TracedFunction = FunctionRef<TracedTensors(Tracer&)>;
using ScanFunction =
    FunctionRef<ScanResult(Tracer&, const TracedTensors& carries, const TracedTensors& x_slices)>;

template <class F>
concept Traceable = std::invocable<F&, Tracer&>;

class Tracer {
 public:
  // Leaves; of the whole program, also when asked for inside a body.
  TracedTensor input(std::string name, Shape shape, DType dtype = DType::F32);
  TracedTensor param(std::string name, Shape shape, DType dtype = DType::F32);

  // The same with sizes that are symbols; `input` takes them too.
  TracedTensor input_dyn(std::string name, Shape dims, DType dtype = DType::F32) {
    return input(std::move(name), std::move(dims), dtype);
  }

  // The methods of these names, as functions of the tracer.
  static TracedTensor matmul(const TracedTensor& lhs, const TracedTensor& rhs) {
    return lhs.matmul(rhs);
  }
  static TracedTensor layer_norm(const TracedTensor& x, const TracedTensor& gamma,
                                 const TracedTensor& beta, double eps = 1e-5) {
    return x.layer_norm(gamma, beta, eps);
  }
  static TracedTensor softmax(const TracedTensor& x, int64_t axis = -1) { return x.softmax(axis); }
  static TracedTensor gather(const TracedTensor& table, const TracedTensor& indices,
                             int64_t axis = 0) {
    return table.gather(indices, axis);
  }

  TracedTensor constant(Tensor value);
  TracedTensor scalar(double value, DType dtype = DType::F32);  // rank 0
  TracedTensor full(Shape shape, double value, DType dtype = DType::F32);
  TracedTensor zeros(Shape shape, DType dtype = DType::F32) {
    return full(std::move(shape), 0, dtype);
  }
  TracedTensor ones(Shape shape, DType dtype = DType::F32) {
    return full(std::move(shape), 1, dtype);
  }
  TracedTensor arange(const Dim& count, DType dtype = DType::I64);

  // After a run the parameter has this value. Not inside bodies.
  void update(const std::string& param, const TracedTensor& value);

  // The body maps (carries, one slice of each xs along axis 0) to (next carries, one slice of each
  // ys).
  ScanResult scan(const TracedTensors& carries, const TracedTensors& xs, ScanFunction body,
                  const ScanOptions& options = {});

  // Only the chosen body runs; both give tensors of the same types. The predicate is a bool of rank
  // 0.
  template <Traceable Then, Traceable Else>
  TracedTensors cond(const TracedTensor& predicate, Then&& then_body, Else&& else_body);

  // The function's values, which reverse mode computes again instead of keeping them, but for those that
  // the options save (ops/control/checkpoint.h); op::checkpoint_name(x, {"name"}) names one.
  template <Traceable F>
  TracedTensors checkpoint(F&& f, const CheckpointOptions& options = {});

  Builder& builder() const;          // of the innermost body being traced
  TracedTensor wrap(Value v) const;  // a value of that builder

 private:
  friend Graph run_trace(const std::string& name, TracedFunction f);
  friend class Scope;
  explicit Tracer(std::shared_ptr<Trace> trace) : trace_(std::move(trace)) {}
  TracedTensor leaf(const Op<LeafAttrs>& op, LeafAttrs attrs);
  TracedTensors branch(const TracedTensor& predicate, TracedFunction then_body,
                       TracedFunction else_body);
  TracedTensors checkpointed(TracedFunction f, const CheckpointOptions& options);
  std::shared_ptr<TraceScope> current() const;

  std::shared_ptr<Trace> trace_;
};

// Names the nodes made while it lives; nested names are joined: "layer0/attention".
class Scope {
 public:
  Scope(Tracer& t, const std::string& name);
  Scope(Builder& b, const std::string& name);
  ~Scope() { builder_.set_label(std::move(saved_)); }
  Scope(const Scope&) = delete;

 private:
  Builder& builder_;
  std::string saved_;
};

Graph run_trace(const std::string& name, TracedFunction f);

// What a traced function returned, as a list.
template <Traceable F>
TracedTensors call_traced(F& f, Tracer& t) {
  using Result = std::invoke_result_t<F&, Tracer&>;
  if constexpr (std::is_void_v<Result>) {
    f(t);
    return {};
  } else if constexpr (std::convertible_to<Result, TracedTensor>) {
    return {f(t)};
  } else {
    return f(t);
  }
}

template <Traceable F>
Graph trace(const std::string& name, F&& f) {
  return run_trace(name, [&](Tracer& t) { return call_traced(f, t); });
}

template <Traceable Then, Traceable Else>
TracedTensors Tracer::cond(const TracedTensor& predicate, Then&& then_body, Else&& else_body) {
  return branch(
      predicate, [&](Tracer& t) { return call_traced(then_body, t); },
      [&](Tracer& t) { return call_traced(else_body, t); });
}

template <Traceable F>
TracedTensors Tracer::checkpoint(F&& f, const CheckpointOptions& options) {
  return checkpointed([&](Tracer& t) { return call_traced(f, t); }, options);
}

}  // namespace rlx
