#include "rlx/ops/evaluate.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

namespace rlx {

namespace {

bool is_leaf(const Node& n) { return n.op == &op::input || n.op == &op::param; }

std::vector<int32_t> leaf_nodes(const Graph& g) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < g.size(); ++i)
    if (is_leaf(g.node(i))) out.push_back(i);
  return out;
}

const LeafAttrs& leaf(const Graph& g, int32_t node) { return g.node(node).get<LeafAttrs>(); }

ResultMap<Tensors> run_nodes(const Graph& g, std::span<const Tensor> leaves, NodeObserver observe,
                             Poll poll) {
  const std::vector<int32_t> last = last_readers(g);
  ResultMap<Tensors> values(g);  // emptied after the last read
  size_t next = 0;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    Tensors& out = values[i];
    if (is_leaf(n)) {
      out = {leaves[next++]};
      continue;
    }
    const Tensors in = values.at(n.in);
    poll();
    try {
      out = evaluate_node(n, in, poll);
    } catch (const Error& e) {
      throw e.where().empty() ? e.at(fmt::format("%{} {}", i, n.op->name)) : e;
    }
    observe(i, out);
    for (Value v : n.in)
      if (last[static_cast<size_t>(v.node)] == i) values[v.node].clear();
  }
  return values;
}

// g with its symbols bound to the sizes of the leaves; g itself when it has none.
class BoundGraph {
 public:
  BoundGraph(const Graph& g, std::span<const Tensor> leaves) : graph_(&g) {
    const DimBinding binding = match_symbols(g, leaves);
    if (!binding.empty()) graph_ = &bound_.emplace(bind(g, binding));
  }
  BoundGraph(const BoundGraph&) = delete;
  const Graph& operator*() const { return *graph_; }

 private:
  std::optional<Graph> bound_;
  const Graph* graph_;
};

Values scratch_inputs(Builder& b, std::span<const Type> in) {
  Values values;
  for (size_t i = 0; i < in.size(); ++i) values.push_back(b.input(std::to_string(i), in[i]));
  return values;
}

}  // namespace

DimBinding match_symbols(const Graph& g, std::span<const Tensor> leaves) {
  const std::vector<int32_t> nodes = leaf_nodes(g);
  user_check(nodes.size() == leaves.size(), "leaf-missing",
             "graph \"{}\" has {} leaves, {} tensors are given", g.name, nodes.size(),
             leaves.size());
  DimBinding binding;
  for (size_t k = 0; k < nodes.size(); ++k) {
    const Shape& declared = leaf(g, nodes[k]).shape;
    const Ints& sizes = leaves[k].sizes();
    for (size_t d = 0; d < std::min(declared.size(), sizes.size()); ++d) {
      std::vector<std::string> names;
      declared[d].collect_symbols(names);
      if (names.size() == 1 && declared[d] == Dim::symbol(names[0]))
        binding.emplace(names[0], sizes[d]);
    }
  }
  for (size_t k = 0; k < nodes.size(); ++k) {
    const LeafAttrs& attrs = leaf(g, nodes[k]);
    user_check(Type{attrs.dtype, attrs.shape.bind(binding)} == leaves[k].type(), "leaf-type",
               "\"{}\" is declared as {}, given is {}", attrs.name, Type{attrs.dtype, attrs.shape},
               leaves[k].type());
  }
  return binding;
}

Graph decomposed(const Node& n, std::span<const Type> in) {
  Builder b(std::string(n.op->name));
  b.set_origin(n.origin);
  for (Value v : b.expand(n, scratch_inputs(b, in))) b.output(v);
  return std::move(b.mutable_graph());
}

double evaluation_cost(const Node& n, std::span<const Type> in) {
  double sum = 1;
  if (n.op->cost)
    sum += n.op->cost(n, in);
  else if (!n.op->eval && n.op->decompose)
    sum += evaluation_cost(decomposed(n, in));
  for (const Type& t : in) sum += element_count(t);
  for (const Type& t : n.out) sum += element_count(t);
  return sum;
}

double evaluation_cost(const Graph& g) {
  double sum = 0;
  for (const Node& n : g.nodes) {
    if (n.op->kind == Kind::leaf) continue;
    Types in;
    for (Value v : n.in) in.push_back(g.type(v));
    sum += evaluation_cost(n, in);
  }
  return sum;
}

double element_count(const Type& t) {
  const auto count = t.shape.elements().static_value();
  return count ? static_cast<double>(*count) : std::numeric_limits<double>::infinity();
}

namespace {

Evaluated evaluate_polling(const Graph& unbound, std::span<const Tensor> leaves,
                           NodeObserver observe, Poll poll) {
  const BoundGraph bound(unbound, leaves);
  const Graph& g = *bound;
  const ResultMap<Tensors> values = run_nodes(g, leaves, observe, poll);
  Evaluated out;
  out.outputs = values.at(g.outputs);
  for (const Update& u : g.updates) out.updates[u.param] = values.at(u.value);
  return out;
}

constexpr auto kUnobserved = [](int32_t, const Tensors&) {};

bool has_no_elements(const Type& t) {
  const auto elements = t.shape.elements().static_value();
  return elements && *elements == 0;
}

}  // namespace

Tensors evaluate_node(const Node& n, std::span<const Tensor> in, Poll poll) {
  Tensors out;
  auto body = [&](const Graph& g, std::span<const Tensor> leaves) {
    return evaluate_polling(g, leaves, kUnobserved, poll).outputs;
  };
  if (std::all_of(n.out.begin(), n.out.end(), has_no_elements)) {
    for (const Type& t : n.out) out.emplace_back(t.dtype, t.shape.sizes());
    return out;
  }
  if (n.op->eval) {
    out = n.op->eval(EvalArgs{n, in, body});
  } else if (n.op->decompose) {
    Types types;
    for (const Tensor& t : in) types.push_back(t.type());
    out = body(decomposed(n, types), in);
  } else {
    fail(ErrorKind::internal, "no-rule", "{} states neither eval nor decompose", n.op->name);
  }
  check(out.size() == n.out.size(), "{}: evaluated to {} results, inferred are {}", n.op->name,
        out.size(), n.out.size());
  for (size_t i = 0; i < out.size(); ++i)
    check(out[i].type() == n.out[i], "{}: result {} evaluated to {}, inferred is {}", n.op->name, i,
          out[i].type(), n.out[i]);
  return out;
}

Evaluated evaluate(const Graph& g, std::span<const Tensor> leaves, NodeObserver observe,
                   Poll poll) {
  return within_memory([&] { return evaluate_polling(g, leaves, observe, poll); });
}

Tensors evaluate(const Graph& g, std::span<const Tensor> leaves) {
  return evaluate(g, leaves, kUnobserved).outputs;
}

Evaluated evaluate(const Graph& g, const NamedTensors& named) {
  Tensors leaves;
  std::unordered_set<std::string_view> names;
  for (int32_t node : leaf_nodes(g)) {
    names.insert(leaf(g, node).name);
    const auto it = named.find(leaf(g, node).name);
    user_check(it != named.end(), "leaf-missing", "graph \"{}\": \"{}\" is not given", g.name,
               leaf(g, node).name);
    leaves.push_back(it->second);
  }
  for (const auto& [name, tensor] : named)
    user_check(names.contains(name), "leaf-unknown",
               "graph \"{}\" has no input or parameter \"{}\"", g.name, name);
  return evaluate(g, leaves, kUnobserved);
}

}  // namespace rlx
