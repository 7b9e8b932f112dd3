// What the transforms share.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "rlx/ir/builder.h"
#include "rlx/ops/control/control_hooks.h"

namespace rlx {

// The transforms handed to rules of ops with bodies.
extern const BodyTransforms kBodies;

struct ValueHash {
  size_t operator()(Value v) const {
    return static_cast<size_t>(v.node) * 8 + static_cast<size_t>(v.index);
  }
};
using ValueMap = std::unordered_map<Value, Value, ValueHash>;
using ValueSet = std::unordered_set<Value, ValueHash>;

// The value for v, or kNone.
inline Value find(const ValueMap& map, Value v) {
  const auto it = map.find(v);
  return it == map.end() ? kNone : it->second;
}

// Nodes made while it lives come from `pass`; of(node) gives them the node's label.
class OriginScope {
 public:
  OriginScope(Builder& b, std::string pass)
      : b_(b), label_(b.set_label("")), pass_(b.set_pass(std::move(pass))) {
    b_.set_label(label_);
  }
  ~OriginScope() { b_.set_origin({label_, pass_}); }
  OriginScope(const OriginScope&) = delete;
  void of(const Node& n) { b_.set_label(n.origin.label); }

 private:
  Builder& b_;
  std::string label_, pass_;
};

// A builder that holds a copy of g (values keep their numbers) without its outputs.
Builder builder_of(const Graph& g, std::string_view ending);
// The leaves of these names. Raises "no-leaf".
Values find_leaves(const Graph& g, const std::vector<std::string>& names,
                   std::string_view transform);
// `name`, or with the first of "_1", "_2".. that makes it new.
std::string free_name(const Builder& b, const std::string& name);
// Raises "wrt-dtype" for values without derivatives.
void check_differentiable(const Graph& g, Operands wrt, std::string_view transform);
// "%7 gather", for messages.
std::string describe(const Graph& g, Value v);
// The shortest way from one of `outputs` back to node i, for messages: "%9 reduce_sum <- %7 mul <- %4 sort"; long
// ways lose their middle. Empty when there is none.
std::string path_back(const Graph& g, Operands outputs, int32_t i);
[[noreturn]] void no_rule(std::string_view transform, const Node& n, std::string_view path = {});

// Values that depend on `wrt` through differentiable edges, among the results of nodes [begin,
// end).
ValueSet active_values(const Graph& g, Operands wrt, int32_t begin, int32_t end);
// The nodes of [begin, end) that some of `outputs` depends on.
std::vector<bool> needed_nodes(const Graph& g, Operands outputs, int32_t begin, int32_t end);

// Derivatives end here: the op states why.
bool blocks(const Node& n);

// The tangents of node i's results, given those of its operands, by its forward rule (forward.h): kNone
// where nothing moves; none at all when no result does.
Values tangents_of_node(Builder& b, int32_t i, Operands tangents);

// Zeros of a type.
Value zeros(Builder& b, const Type& type);

// The range of nodes that can lie between: from the first of `from` to the last of `to`.
struct Range {
  int32_t begin = 0, end = 0;
};
Range range_between(const Graph& g, Operands from, Operands to);

}  // namespace rlx
