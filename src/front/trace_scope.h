// A program or body while it is being traced. Scopes of one trace form a stack; nodes go to the
// innermost.
#pragma once

#include <map>
#include <set>

#include "rlx/ir/builder.h"

namespace rlx {

class TraceScope;

struct Trace {
  std::string name;
  TraceScope* root = nullptr;  // both null when the trace has ended
  TraceScope* current = nullptr;
  std::set<std::string> leaves;  // names of inputs and parameters
};

class TraceScope : public std::enable_shared_from_this<TraceScope> {
 public:
  TraceScope(std::shared_ptr<Trace> owner, const std::string& body)
      : name(body), builder(body), trace(std::move(owner)), parent_(trace->current) {
    if (parent_) {
      std::string label = parent_->builder.set_label({});
      builder.set_label(label);
      parent_->builder.set_label(std::move(label));
    }
  }

  // The value v of this scope or of one around it, here. Values from outside become inputs.
  Value import(const TraceScope& owner, Value v);

  std::string name;
  Builder builder;
  std::shared_ptr<Trace> trace;
  bool open = true;
  Values operands;  // in the parent: what the inputs of this body stand for, in order

 private:
  TraceScope* parent_;
  std::map<Value, Value> imported_;
};

// Makes a scope the innermost one while it lives; then the scope is closed.
class EnterScope {
 public:
  explicit EnterScope(TraceScope& scope)
      : scope_(scope), saved_(std::exchange(scope.trace->current, &scope)) {}
  ~EnterScope() {
    scope_.trace->current = saved_;
    scope_.open = false;
  }
  EnterScope(const EnterScope&) = delete;

 private:
  TraceScope& scope_;
  TraceScope* saved_;
};

}  // namespace rlx
