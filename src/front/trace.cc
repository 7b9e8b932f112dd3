#include "rlx/front/trace.h"

#include <algorithm>

#include "rlx/front/trace_scope.h"
#include "rlx/ops/rules.h"

namespace rlx {

Value TraceScope::import(const TraceScope& owner, Value v) {
  if (this == &owner) return v;
  check(parent_ != nullptr, "trace \"{}\": a value of no scope around the innermost", trace->name);
  const Value outer = parent_->import(owner, v);
  auto [it, fresh] = imported_.try_emplace(outer);
  if (!fresh) return it->second;
  const Node& n = parent_->builder.node(outer);
  if (n.op == &op::constant && n.get<ConstantAttrs>().value.elements() == 1)
    return it->second = builder.constant(n.get<ConstantAttrs>().value);
  operands.push_back(outer);
  return it->second = builder.input(fmt::format("outer{}", operands.size() - 1),
                                    parent_->builder.type(outer));
}

std::shared_ptr<TraceScope> Tracer::current() const {
  user_check(trace_->current != nullptr, "trace-ended",
             "the tracer of \"{}\" was used after the trace ended", trace_->name);
  return trace_->current->shared_from_this();
}

Builder& Tracer::builder() const { return current()->builder; }

TracedTensor Tracer::wrap(Value v) const { return TracedTensor(current(), v); }

TracedTensor Tracer::leaf(const Op<LeafAttrs>& op, LeafAttrs attrs) {
  current();
  const auto root = trace_->root->shared_from_this();
  const std::string name = attrs.name;
  user_check(!trace_->leaves.contains(name), "leaf-name",
             "{} \"{}\": trace \"{}\" has an input or parameter of that name", op.def.name, name,
             trace_->name);
  const Value v = op(root->builder, {}, std::move(attrs));
  trace_->leaves.insert(name);
  return TracedTensor(root, v);
}

TracedTensor Tracer::input(std::string name, Shape shape, DType dtype) {
  return leaf(op::input, {std::move(name), dtype, std::move(shape)});
}

TracedTensor Tracer::param(std::string name, Shape shape, DType dtype) {
  return leaf(op::param, {std::move(name), dtype, std::move(shape)});
}

TracedTensor Tracer::constant(Tensor value) { return wrap(builder().constant(std::move(value))); }

TracedTensor Tracer::scalar(double value, DType dtype) {
  return wrap(builder().constant(dtype, value));
}

TracedTensor Tracer::full(Shape shape, double value, DType dtype) {
  return wrap(rlx::full(builder(), {dtype, std::move(shape)}, value));
}

TracedTensor Tracer::arange(const Dim& count, DType dtype) {
  return wrap(op::iota(builder(), {}, {dtype, {count}, 0}));
}

void Tracer::update(const std::string& param, const TracedTensor& value) {
  user_check(current().get() == trace_->root, "update-in-body",
             "update of \"{}\": a body cannot update parameters; return the value from it", param);
  builder().update(param, value.value());
}

namespace {

// The body as a graph of its own over `operands` (values of the parent, which cover those of the
// scope).
Graph close_over(const TraceScope& scope, const Graph& body, const Values& operands,
                 const Builder& parent) {
  Builder b(body.name);
  Values all, mine;
  for (Value v : operands)
    all.push_back(b.input(fmt::format("outer{}", all.size()), parent.type(v)));
  for (Value v : scope.operands)
    mine.push_back(all[static_cast<size_t>(std::find(operands.begin(), operands.end(), v) -
                                           operands.begin())]);
  for (Value v : b.inline_graph(body, mine)) b.output(v);
  return b.finish();
}

Values values_of(const TracedTensors& tensors) {
  Values out;
  for (const TracedTensor& x : tensors) out.push_back(x.value());
  return out;
}

}  // namespace

ScanResult Tracer::scan(const TracedTensors& carries, const TracedTensors& xs, ScanFunction body,
                        const ScanOptions& options) {
  const auto outer = current();
  ScanAttrs attrs;
  attrs.num_carries = static_cast<int64_t>(carries.size());
  attrs.num_xs = static_cast<int64_t>(xs.size());
  attrs.reverse = options.reverse;
  attrs.checkpoints = options.checkpoints;
  attrs.binomial = options.binomial;
  user_check(options.length || !xs.empty(), "scan-length",
             "scan: without stacked inputs the length must be given");
  for (const TracedTensor& x : xs)
    user_check(x.rank() > 0, "scan-length",
               "scan: a stacked input needs an axis to run along, got {}", x.type());
  attrs.length = options.length ? *options.length : xs[0].size(0);

  Values operands = values_of(carries);
  for (Value v : values_of(xs)) operands.push_back(v);
  auto scope = std::make_shared<TraceScope>(trace_, "scan_body");
  {
    EnterScope enter(*scope);
    TracedTensors inner_carries, slices;
    for (const TracedTensor& c : carries)
      inner_carries.push_back(
          wrap(scope->builder.input(fmt::format("carry{}", inner_carries.size()), c.type())));
    for (const TracedTensor& x : xs) {
      Type slice = x.type();
      slice.shape.erase(slice.shape.begin());
      slices.push_back(wrap(scope->builder.input(fmt::format("x{}", slices.size()), slice)));
    }
    ScanResult r = body(*this, inner_carries, slices);
    user_check(r.carries.size() == carries.size(), "scan-carries",
               "scan: the body takes {} carries but returns {}", carries.size(), r.carries.size());
    for (Value v : values_of(r.carries)) scope->builder.output(v);
    for (Value v : values_of(r.ys)) scope->builder.output(v);
    attrs.body = Body(scope->builder.finish());
  }
  operands.insert(operands.end(), scope->operands.begin(), scope->operands.end());
  ScanResult result;
  for (Value v : outer->builder.emit(op::scan.def, attrs, operands))
    (result.carries.size() < carries.size() ? result.carries : result.ys).push_back(wrap(v));
  return result;
}

TracedTensors Tracer::branch(const TracedTensor& predicate, TracedFunction then_body,
                             TracedFunction else_body) {
  const auto outer = current();
  std::shared_ptr<TraceScope> scopes[2];
  Graph bodies[2];
  for (int i = 0; i < 2; ++i) {
    scopes[i] = std::make_shared<TraceScope>(trace_, i == 0 ? "then_body" : "else_body");
    EnterScope enter(*scopes[i]);
    for (Value v : values_of((i == 0 ? then_body : else_body)(*this))) scopes[i]->builder.output(v);
    bodies[i] = scopes[i]->builder.finish();
  }
  Values arguments = scopes[0]->operands;
  for (Value v : scopes[1]->operands)
    if (std::find(arguments.begin(), arguments.end(), v) == arguments.end()) arguments.push_back(v);
  CondAttrs attrs{Body(close_over(*scopes[0], bodies[0], arguments, outer->builder)),
                  Body(close_over(*scopes[1], bodies[1], arguments, outer->builder))};
  arguments.insert(arguments.begin(), predicate.value());
  TracedTensors result;
  for (Value v : outer->builder.emit(op::cond.def, attrs, arguments)) result.push_back(wrap(v));
  return result;
}

TracedTensors Tracer::checkpointed(TracedFunction f, const CheckpointOptions& options) {
  const auto outer = current();
  user_check(options.names.empty() || options.save == SavePolicy::names, "checkpoint",
             "checkpoint: names are given, but the policy does not save by name");
  CheckpointAttrs attrs{.save = options.save, .names = options.names};
  auto scope = std::make_shared<TraceScope>(trace_, "checkpoint");
  {
    EnterScope enter(*scope);
    for (Value v : values_of(f(*this))) scope->builder.output(v);
    attrs.body = Body(scope->builder.finish());
  }
  TracedTensors result;
  for (Value v : outer->builder.emit(op::checkpoint.def, attrs, scope->operands))
    result.push_back(wrap(v));
  return result;
}

Graph run_trace(const std::string& name, TracedFunction f) {
  auto shared = std::make_shared<Trace>();
  shared->name = name;
  auto scope = std::make_shared<TraceScope>(shared, name);
  struct End {
    Trace& trace;
    ~End() { trace.root = nullptr; }
  } end{*shared};
  shared->root = scope.get();
  EnterScope enter(*scope);
  Tracer tracer(shared);
  for (Value v : values_of(f(tracer))) scope->builder.output(v);
  return scope->builder.finish();
}

Scope::Scope(Tracer& t, const std::string& name) : Scope(t.builder(), name) {}

Scope::Scope(Builder& b, const std::string& name) : builder_(b), saved_(b.set_label({})) {
  builder_.set_label(saved_.empty() ? name : saved_ + "/" + name);
}

}  // namespace rlx
