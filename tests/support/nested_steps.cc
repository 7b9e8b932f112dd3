#include "nested_steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "op_checks.h"
#include "rlx/base/hash.h"
#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {

namespace {

using Names = std::vector<std::string>;

bool is_free(const Node& n) { return n.op == &op::input || n.op == &op::param; }
const std::string& name_in(const Node& n) { return n.get<LeafAttrs>().name; }

// ---- programs

// Appends g. A leaf is what `bound` says, else the builder's of that name, else a new one.
Values append(Builder& b, const Graph& g, const std::map<std::string, Value>& bound = {}) {
  ResultMap<Values> map(g);
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    Value leaf = kNone;
    if (is_free(n)) {
      const auto it = bound.find(name_in(n));
      leaf = it != bound.end() ? it->second : b.find_leaf(name_in(n));
    }
    map[i] = leaf.valid() ? Values{leaf} : b.clone(n, map.at(n.in));
  }
  return map.at(g.outputs);
}

Names leaves_in_order(const Graph& g) {
  Names out;
  for (const Node& n : g.nodes)
    if (is_free(n)) out.push_back(name_in(n));
  return out;
}

// A closed graph of g: its leaves in order are inputs.
Graph body_of(const Graph& g, const std::string& name) {
  Builder b(name);
  for (const Node& n : g.nodes)
    if (is_free(n)) b.input(name_in(n), n.type());
  for (Value v : append(b, g)) b.output(v);
  return b.finish();
}

// The leaves of g, in order, as leaves of another program.
Values same_leaves(Builder& b, const Graph& g) {
  Values out;
  for (const Node& n : g.nodes)
    if (is_free(n)) out.push_back(b.clone(n, {})[0]);
  return out;
}

Value sum_of(Builder& b, Value v) {
  Ints axes(static_cast<size_t>(b.type(v).rank()));
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  return sum_axes(b, v, axes);
}

Tensor random_like(const Type& t, uint64_t seed) {
  return noise(Tensor(t.dtype, t.shape.sizes()), seed);
}

// The outputs weighted and added up: a number.
Graph scalar_of(const Graph& g, const Tensors& weights) {
  Builder b(g.name);
  Value sum = kNone;
  const Values y = append(b, g);
  for (size_t i = 0; i < y.size(); ++i)
    sum = add_maybe(b, sum, sum_of(b, op::mul(b, y[i], b.constant(weights[i]))));
  b.output(sum);
  return b.finish();
}
Graph scalar_of(const Graph& g, uint64_t seed) {
  Tensors weights;
  for (const Type& t : g.output_types())
    weights.push_back(random_like(t, mix(seed, weights.size())));
  return scalar_of(g, weights);
}

NamedTensors named_leaves(const Graph& g, const NamedTensors& all) {
  NamedTensors out;
  for (const std::string& name : leaves_in_order(g)) {
    check(all.count(name) > 0, "no value for leaf {}", name);
    out[name] = all.at(name);
  }
  return out;
}

Tensors values(const Graph& g, const NamedTensors& all) {
  return evaluate(g, named_leaves(g, all)).outputs;
}

// The leaves that a transform has added whose names begin so, in order: that of what they belong to.
Names added(const Graph& before, const Graph& after, const std::string& prefix) {
  Names out;
  for (const std::string& name : leaves_in_order(after))
    if (!before.find_leaf(name).valid() && name.starts_with(prefix)) out.push_back(name);
  return out;
}

std::string free_name(const Graph& g, const std::string& name) {
  std::string out = name;
  while (g.find_leaf(out).valid()) out += "'";
  return out;
}

// ---- directions

// Whole numbers may be labels or signs: they do not move.
bool may_move(const Tensor& t) {
  if (t.dtype() != DType::F64 || t.elements() == 0) return false;
  for (int64_t i = 0; i < t.elements(); ++i)
    if (t.get_float(i) != std::floor(t.get_float(i))) return true;
  return false;
}

// One to three leaves to differentiate by, those that matter where there are any.
Names choose_wrt(const Nested& n, uint64_t seed, int64_t most_elements = 1000) {
  std::mt19937_64 random(mix(seed, 5));
  Names all;
  for (const std::string& name : leaves_in_order(drop_dead(n.graph)))
    if (may_move(n.leaves.at(name))) all.push_back(name);
  std::shuffle(all.begin(), all.end(), random);
  Names out;
  int64_t elements = 0;
  const size_t wanted = 1 + random() % 3;
  for (const std::string& name : all) {
    const int64_t more = n.leaves.at(name).elements();
    if (out.size() == wanted || elements + more > most_elements) continue;
    out.push_back(name), elements += more;
  }
  return out;
}

using Direction = std::map<std::string, Tensor>;

Direction random_direction(const Nested& n, const Names& wrt, uint64_t seed) {
  Direction out;
  for (const std::string& name : wrt)
    out[name] = noise(n.leaves.at(name), mix(seed, 100 + out.size()));
  return out;
}

NamedTensors moved(NamedTensors leaves, const Direction& along, double t) {
  for (const auto& [name, v] : along) leaves[name] = combine(leaves.at(name), v, t);
  return leaves;
}

double inner(const Tensors& a, const Tensors& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += rlx::testing::inner(a[i], b[i]);
  return sum;
}
double inner_scale(const Tensors& a, const Tensors& b) {
  double sum = 1;
  for (size_t i = 0; i < a.size(); ++i)
    for (int64_t k = 0; k < a[i].elements(); ++k)
      sum += std::fabs(a[i].get_float(k) * b[i].get_float(k));
  return sum;
}

Tensors in_order(const Direction& d, const Names& names) {
  Tensors out;
  for (const std::string& name : names) out.push_back(d.at(name));
  return out;
}

Tensors part(const Tensors& all, size_t first, size_t count) {
  return {all.begin() + static_cast<int64_t>(first),
          all.begin() + static_cast<int64_t>(first + count)};
}

Tensor number(double v) { return Tensor::scalar(DType::F64, v); }

// What a step has found: the first fault counts.
class Findings {
 public:
  explicit Findings(DifferenceCounts& counts) : counts_(counts) {}
  void equal(const std::string& what, const Tensors& a, const Tensors& b) {
    compare(what, a, b, 1, false);
  }
  void equal_derivatives(const std::string& what, const Tensors& a, const Tensors& b,
                         double scale = 1) {
    compare(what, a, b, scale, true);
  }
  void slopes(const std::string& what, FunctionRef<Tensors(double)> f, const Tensors& stated) {
    add(what, against_differences(f, stated, counts_));
  }
  std::string fault;

 private:
  void compare(const std::string& what, const Tensors& a, const Tensors& b, double scale,
               bool derivatives) {
    if (a.size() != b.size()) add(what, fmt::format("{} and {} values", a.size(), b.size()));
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      add(fmt::format("{}, value {}", what, i), nearly_equal(a[i], b[i], scale, derivatives));
  }
  void add(const std::string& what, const std::string& why) {
    if (fault.empty() && !why.empty()) fault = fmt::format("{}: {}", what, why);
  }
  DifferenceCounts& counts_;
};

// The program before a step, and what may be asked of it.
struct Question {
  const Nested& before;
  Names wrt;
  Direction along;
  uint64_t seed;
  Findings& found;

  const Graph& g() const { return before.graph; }
  // d/dt of h's outputs along the direction is `stated`.
  void slopes(const std::string& what, const Graph& h, const Tensors& stated) const {
    found.slopes(what, [&](double t) { return values(h, moved(before.leaves, along, t)); }, stated);
  }
  // The leaves with the tangents of a forward transform.
  NamedTensors with_tangents(const Graph& from, const Graph& after) const {
    NamedTensors out = before.leaves;
    const Names names = added(from, after, "tangent_");
    for (size_t i = 0; i < wrt.size(); ++i) out[names.at(i)] = along.at(wrt[i]);
    return out;
  }
  // The tangents of h's outputs by forward mode.
  Tensors tangents(const Graph& h) const {
    const Graph forward = rlx::jvp(h, wrt);
    const Tensors all = values(forward, with_tangents(h, forward));
    return part(all, h.outputs.size(), h.outputs.size());
  }
};

using Made = std::optional<Nested>;

// ---- derivatives

Made step_grad(const Question& a) {
  const Graph loss = scalar_of(a.g(), a.seed);
  Nested out{value_and_grad(loss, a.wrt, {.zero_missing = true}), a.before.leaves};
  const Tensors all = values(out.graph, out.leaves), g = part(all, 1, a.wrt.size()),
                v = in_order(a.along, a.wrt);
  a.found.equal("the value", {all[0]}, values(loss, a.before.leaves));
  a.slopes("the gradient", loss, {number(inner(g, v))});
  a.found.equal_derivatives("reverse and forward", {number(inner(g, v))}, a.tangents(loss),
                            inner_scale(g, v));
  return out;
}

Made step_jvp(const Question& a) {
  Nested out{rlx::jvp(a.g(), a.wrt), {}};
  out.leaves = a.with_tangents(a.g(), out.graph);
  const size_t n = a.g().outputs.size();
  const Tensors all = values(out.graph, out.leaves), tangents = part(all, n, n);
  a.found.equal("the values", part(all, 0, n), values(a.g(), a.before.leaves));
  a.slopes("the tangents", a.g(), tangents);
  return out;
}

// A program that pulls back the cotangents in these leaves; the results from `first` on are those of the leaves.
Made pulled_back(const Question& a, Graph back, size_t first, const Names& from) {
  Nested out{std::move(back), a.before.leaves};
  Tensors cotangents;
  const Types types = a.g().output_types();
  for (size_t i = 0; i < types.size(); ++i) {
    cotangents.push_back(random_like(types[i], mix(a.seed, 30 + i)));
    out.leaves[from[i]] = cotangents.back();
  }
  const Tensors g = part(values(out.graph, out.leaves), first, a.wrt.size()),
                v = in_order(a.along, a.wrt), tangents = a.tangents(a.g());
  a.found.equal_derivatives("pulled back and pushed forward", {number(inner(g, v))},
                            {number(inner(cotangents, tangents))},
                            std::max(inner_scale(g, v), inner_scale(cotangents, tangents)));
  a.slopes("what is pulled back", scalar_of(a.g(), cotangents), {number(inner(g, v))});
  return out;
}

Made step_vjp(const Question& a) {
  Graph back = rlx::vjp(a.g(), a.wrt, {.zero_missing = true});
  const Names from = added(a.g(), back, "d_");
  return pulled_back(a, std::move(back), a.g().outputs.size(), from);
}

// Both parts of a linearised program as one: the values, then what `second` says on the residuals. Its other leaves get
// the names that `renamed` says, which no leaf has yet.
Graph joined(const Linearized& l, const Graph& second, const std::string& name,
             const std::map<std::string, std::string>& renamed) {
  Builder b(name);
  const Values first = append(b, l.value);
  std::map<std::string, Value> bound;
  const size_t n = l.value.outputs.size() - l.residuals;
  for (size_t i = 0; i < l.residuals; ++i) bound[fmt::format("residual_{}", i)] = first[n + i];
  for (const auto& [was, now] : renamed)
    bound[was] = b.input(now, second.type(second.find_leaf(was)));
  for (size_t i = 0; i < n; ++i) b.output(first[i]);
  for (Value v : append(b, second, bound)) b.output(v);
  return b.finish();
}

Made step_linearize(const Question& a) {
  const Linearized l = rlx::linearize(a.g(), a.wrt);
  std::map<std::string, std::string> names;
  Nested out{{}, a.before.leaves};
  const Names tangents = added(a.g(), l.tangent, "tangent_");
  for (size_t i = 0; i < a.wrt.size(); ++i) {
    names[tangents.at(i)] = free_name(a.g(), tangents[i]);
    out.leaves[names[tangents[i]]] = a.along.at(a.wrt[i]);
  }
  out.graph = joined(l, l.tangent, a.g().name + "_lin", names);
  const size_t n = a.g().outputs.size();
  const Tensors moved = part(values(out.graph, out.leaves), n, n);
  a.slopes("the linear program", a.g(), moved);
  a.found.equal_derivatives("linearize and jvp", moved, a.tangents(a.g()));
  return out;
}

Made step_transpose(const Question& a) {
  const Linearized l = rlx::linearize(a.g(), a.wrt);
  Graph back;
  try {
    back = rlx::linear_transpose(l.tangent, added(a.g(), l.tangent, "tangent_"));
  } catch (const Error& e) {
    // The tangent of expm is a block of the exponential of a larger matrix, which says nothing of its being linear.
    OpCounts ops;
    count_ops(a.g(), ops);
    if (e.code() == "not-linear" && ops.count("expm")) return std::nullopt;
    throw;
  }
  std::map<std::string, std::string> names;
  Names cotangents;
  const size_t n = a.g().outputs.size();
  for (const std::string& leaf : added(l.tangent, back, "d_"))
    cotangents.push_back(names[leaf] = free_name(a.g(), leaf));
  return pulled_back(a, joined(l, back, a.g().name + "_transposed", names), n, cotangents);
}

// The sum over a leaf's elements of J [y.., x..] v.
Tensor contracted(const Tensor& jacobian, const Tensor& v, const Ints& y) {
  Tensor out(DType::F64, y);
  for (int64_t i = 0; i < out.elements(); ++i) {
    double sum = 0;
    for (int64_t k = 0; k < v.elements(); ++k)
      sum += jacobian.get_float(i * v.elements() + k) * v.get_float(k);
    out.set_float(i, sum);
  }
  return out;
}

Made step_jacobian(const Question& a, bool forward) {
  int64_t columns = 0, rows = 0;
  for (const std::string& name : a.wrt) columns += a.before.leaves.at(name).elements();
  const Types types = a.g().output_types();
  for (const Type& t : types) rows += product(t.shape.sizes());
  if (rows * columns > 300) return std::nullopt;
  Nested out{forward ? rlx::jacfwd(a.g(), a.wrt) : rlx::jacrev(a.g(), a.wrt), a.before.leaves};
  const Tensors all = values(out.graph, out.leaves);
  Tensors along;
  for (size_t i = 0; i < types.size(); ++i) {
    const Ints sizes = types[i].shape.sizes();
    Tensor sum(DType::F64, sizes);
    for (size_t k = 0; k < a.wrt.size(); ++k)
      sum = combine(sum, contracted(all[i * a.wrt.size() + k], a.along.at(a.wrt[k]), sizes), 1);
    along.push_back(sum);
  }
  a.slopes("the Jacobian", a.g(), along);
  const Graph other = forward ? rlx::jacrev(a.g(), a.wrt) : rlx::jacfwd(a.g(), a.wrt);
  a.found.equal_derivatives("jacfwd and jacrev", all, values(other, a.before.leaves));
  return out;
}

// The gradient of <gradient, v>, by reverse mode alone.
Graph reverse_over_reverse(const Question& a, const Graph& gradient) {
  return rlx::grad(scalar_of(gradient, in_order(a.along, a.wrt)), a.wrt, {.zero_missing = true});
}

Made step_hvp(const Question& a) {
  const Graph loss = scalar_of(a.g(), a.seed),
              gradient = rlx::grad(loss, a.wrt, {.zero_missing = true});
  Graph made;
  try {
    made = rlx::hvp(loss, a.wrt);
  } catch (const Error& e) {
    if (e.code() != "no-gradient") throw;
    return std::nullopt;  // a leaf that the loss does not depend on
  }
  Nested out{std::move(made), {}};
  out.leaves = a.with_tangents(loss, out.graph);
  const Tensors all = values(out.graph, out.leaves);
  const size_t n = a.wrt.size();
  const Tensors products = part(all, all.size() - n, n);
  a.slopes("the gradient's tangents", gradient, products);
  a.found.equal_derivatives("forward over reverse and reverse over reverse", products,
                            values(reverse_over_reverse(a, gradient), a.before.leaves));
  return out;
}

Made step_hessian(const Question& a) {
  const Graph loss = scalar_of(a.g(), a.seed),
              gradient = rlx::grad(loss, a.wrt, {.zero_missing = true});
  Nested out{rlx::hessian(loss, a.wrt), a.before.leaves};
  const Tensors all = values(out.graph, out.leaves);
  Tensors along;
  for (size_t i = 0; i < a.wrt.size(); ++i) {
    const Ints sizes = a.before.leaves.at(a.wrt[i]).sizes();
    Tensor sum(DType::F64, sizes);
    for (size_t k = 0; k < a.wrt.size(); ++k)
      sum = combine(sum, contracted(all[i * a.wrt.size() + k], a.along.at(a.wrt[k]), sizes), 1);
    along.push_back(sum);
  }
  a.slopes("the Hessian", gradient, along);
  a.found.equal_derivatives("hessian and jacrev of grad", all,
                            values(rlx::jacrev(gradient, a.wrt), a.before.leaves));
  return out;
}

// Along x + t d1 + t^2 / 2 d2 the first derivative moves by the second.
Made step_jet(const Question& a) {
  Nested out{rlx::jet(a.g(), a.wrt, 2), a.before.leaves};
  Direction bend;
  const Names first = added(a.g(), out.graph, "d1_"), second = added(a.g(), out.graph, "d2_");
  for (size_t i = 0; i < a.wrt.size(); ++i) {
    const std::string& name = a.wrt[i];
    bend[name] = noise(a.before.leaves.at(name), mix(a.seed, 60 + i));
    out.leaves[first.at(i)] = a.along.at(name);
    out.leaves[second.at(i)] = bend.at(name);
  }
  const size_t n = a.g().outputs.size();
  const Tensors all = values(out.graph, out.leaves);
  a.slopes("the first derivatives", a.g(), part(all, n, n));
  const Graph forward = rlx::jvp(a.g(), a.wrt);
  const Names tangents = added(a.g(), forward, "tangent_");
  a.found.slopes(
      "the second derivatives",
      [&](double t) {
        NamedTensors at = moved(moved(a.before.leaves, a.along, t), bend, t * t / 2);
        for (size_t i = 0; i < a.wrt.size(); ++i)
          at[tangents.at(i)] = combine(a.along.at(a.wrt[i]), bend.at(a.wrt[i]), t);
        return part(values(forward, at), n, n);
      },
      part(all, 2 * n, n));
  return out;
}

// ---- samples

// Another sample of a leaf, of the same kind.
Tensor sample_of(const Tensor& t, uint64_t seed, int64_t k) {
  if (may_move(t)) {
    Tensor near = noise(t, mix(seed, static_cast<uint64_t>(k)));
    for (int64_t i = 0; i < near.elements(); ++i)
      near.set_float(i, t.get_float(i) * (1 + 0.04 * near.get_float(i)));
    return near;
  }
  Tensor out(t.dtype(), t.sizes());  // its elements turned by k places
  const auto size = static_cast<size_t>(size_of(t.dtype()));
  for (int64_t i = 0; i < t.elements(); ++i)
    std::memcpy(out.mutable_raw() + static_cast<size_t>(i) * size,
                t.raw() + static_cast<size_t>((i + k) % t.elements()) * size, size);
  if (is_bool(t.dtype()) && t.sizes().empty()) out.set_int(0, (t.get_int(0) + k) % 2);
  return out;
}

// Samples of some leaves and those leaves stacked, in front.
struct Samples {
  Names names;
  std::vector<NamedTensors> each;
  NamedTensors stacked;
};

Samples samples_of(const Nested& n, uint64_t seed, int64_t size) {
  std::mt19937_64 random(mix(seed, 8));
  Samples out{{}, std::vector<NamedTensors>(static_cast<size_t>(size), n.leaves), n.leaves};
  for (const std::string& name : leaves_in_order(n.graph)) {
    const Tensor& t = n.leaves.at(name);
    if (random() % 3 == 0) continue;
    Ints sizes = t.sizes();
    sizes.insert(sizes.begin(), size);
    Tensor all(t.dtype(), sizes);
    for (int64_t k = 0; k < size; ++k) {
      const Tensor one = sample_of(t, mix(seed, 200 + out.names.size()), k);
      out.each[static_cast<size_t>(k)][name] = one;
      std::memcpy(all.mutable_raw() + static_cast<size_t>(k) * one.bytes(), one.raw(), one.bytes());
    }
    out.stacked[name] = all;
    out.names.push_back(name);
  }
  return out;
}

// The results of a loop over the samples, stacked; nothing where one of them is refused.
std::optional<Tensors> looped(const Graph& g, const Samples& s) {
  std::vector<Tensors> each;
  try {
    for (const NamedTensors& leaves : s.each) each.push_back(values(g, leaves));
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return std::nullopt;
  }
  Tensors out;
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    Ints sizes = each[0][i].sizes();
    sizes.insert(sizes.begin(), static_cast<int64_t>(each.size()));
    Tensor all(DType::F64, sizes);
    for (size_t k = 0; k < each.size(); ++k)
      std::memcpy(all.mutable_raw() + k * each[k][i].bytes(), each[k][i].raw(), each[k][i].bytes());
    out.push_back(all);
  }
  return out;
}

// t with its first axis at `axis`.
Tensor with_axis_at(const Tensor& t, int64_t axis) {
  Builder b("move");
  Ints perm;
  for (int64_t i = 1; i < t.rank(); ++i) perm.push_back(i);
  perm.insert(perm.begin() + axis, 0);
  b.output(op::transpose(b, b.input("x", t.type()), {perm}));
  return evaluate(b.finish(), Tensors{t})[0];
}

Made step_vmap(const Nested& n, uint64_t seed, Findings& found) {
  const int64_t size = 2 + static_cast<int64_t>(seed % 2);
  const Samples s = samples_of(n, seed, size);
  if (s.names.empty()) return std::nullopt;
  const auto want = looped(n.graph, s);
  if (!want) return std::nullopt;
  std::map<std::string, int64_t> batched;
  Nested out{{}, s.stacked};
  for (const std::string& name : s.names) {
    const auto places = static_cast<uint64_t>(s.stacked.at(name).rank());
    batched[name] = seed / 2 % 3 == 0 ? static_cast<int64_t>(mix(seed, places) % places) : 0;
    out.leaves[name] = with_axis_at(s.stacked.at(name), batched[name]);
  }
  out.graph = rlx::vmap(n.graph, batched, Dim(size));
  found.equal("vmap and a loop", values(out.graph, out.leaves), *want);
  return out;
}

Made step_scan_over(const Nested& n, uint64_t seed, Findings& found) {
  const int64_t size = 2 + static_cast<int64_t>(seed % 3);
  const Samples s = samples_of(n, seed, size);
  if (s.names.empty()) return std::nullopt;
  const auto want = looped(n.graph, s);
  if (!want) return std::nullopt;
  // The step's carry is a number that the first results are added to.
  Builder step("step");
  const Value sum = step.input("the sum", {DType::F64, {}});
  const auto is_stacked = [&](const std::string& name) {
    return std::find(s.names.begin(), s.names.end(), name) != s.names.end();
  };
  for (bool stacked : {true, false})
    for (const Node& node : n.graph.nodes)
      if (is_free(node) && is_stacked(name_in(node)) == stacked)
        step.input(name_in(node), node.type());
  const Values y = append(step, n.graph);
  step.output(op::add(step, sum, op::tanh(step, sum_of(step, y[0]))));
  for (Value v : y) step.output(v);
  Builder b(n.graph.name + "_over");
  Nested out{{}, s.stacked};
  Values in{b.constant(DType::F64, 0)};
  for (bool stacked : {true, false})
    for (const Node& node : n.graph.nodes) {
      if (!is_free(node) || is_stacked(name_in(node)) != stacked) continue;
      const Type t = s.stacked.at(name_in(node)).type();
      in.push_back(node.op == &op::param ? b.param(name_in(node), t) : b.input(name_in(node), t));
    }
  ScanAttrs attrs{.body = step.finish(),
                  .length = size,
                  .num_carries = 1,
                  .num_xs = static_cast<int64_t>(s.names.size()),
                  .reverse = seed / 3 % 2 == 1};
  if (seed / 6 % 2) attrs.checkpoints = size - 1, attrs.binomial = size > 2 && seed / 12 % 2 == 1;
  Tensors wanted{number(0)};
  for (const Tensor& t : *want) wanted.push_back(t);
  for (int64_t k = 0, each = (*want)[0].elements() / size; k < size; ++k) {
    double all = 0;
    for (int64_t i = 0; i < each; ++i) all += (*want)[0].get_float(k * each + i);
    wanted[0].set_float(0, wanted[0].get_float(0) + std::tanh(all));
  }
  for (Value v : b.emit(op::scan.def, attrs, in)) b.output(v);
  out.graph = b.finish();
  found.equal("scan and a loop", values(out.graph, out.leaves), wanted);
  return out;
}

// ---- around the program

Made step_checkpoint(const Nested& n, uint64_t seed, Findings& found) {
  Builder b(n.graph.name + "_again");
  const SavePolicy save = seed % 2 ? SavePolicy::nothing : SavePolicy::products;
  for (Value v :
       b.emit(op::checkpoint.def, CheckpointAttrs{.body = body_of(n.graph, "kept"), .save = save},
              same_leaves(b, n.graph)))
    b.output(v);
  Nested out{b.finish(), n.leaves};
  found.equal("a checkpoint and its body", values(out.graph, out.leaves),
              values(n.graph, n.leaves));
  return out;
}

// x' = 0.7 x + 0.2 tanh(mean of y), y the program's first result.
Value next_of(Builder& b, Value x, Value y) {
  const int64_t count = std::max<int64_t>(1, product(b.shape(y).sizes()));
  const Value mean =
      op::mul(b, sum_of(b, y), b.constant(DType::F64, 1.0 / static_cast<double>(count)));
  return op::add(b, op::mul(b, x, b.constant(DType::F64, 0.7)),
                 op::mul(b, op::tanh(b, mean), b.constant(DType::F64, 0.2)));
}

Made step_scan_again(const Nested& n, uint64_t seed, Findings& found) {
  const Names moving = choose_wrt(n, seed);
  if (moving.empty()) return std::nullopt;
  const std::string& name = moving[0];
  const int64_t length = 2 + static_cast<int64_t>(seed % 2);
  const Type carried = n.graph.type(n.graph.find_leaf(name)), counter{DType::I32, {}};
  const bool is_while = seed / 2 % 3 == 0;
  const auto inputs = [&](Builder& b) {
    Values out{b.input(name, carried)};
    if (is_while) out.push_back(b.input("steps done", counter));
    for (const Node& node : n.graph.nodes)
      if (is_free(node) && name_in(node) != name) b.input(name_in(node), node.type());
    return out;
  };
  Builder step("step");
  const Values carries = inputs(step), y = append(step, n.graph);
  step.output(next_of(step, carries[0], y[0]));
  if (is_while) step.output(op::add(step, carries[1], step.constant(DType::I32, 1)));

  Builder b(n.graph.name + "_repeated"), unrolled("unrolled");
  const auto in_order = [&](Builder& of) {
    Values out;
    for (const Node& node : n.graph.nodes)
      if (is_free(node)) {
        const Value leaf = of.clone(node, {})[0];
        if (name_in(node) == name)
          out.insert(out.begin(), leaf);
        else
          out.push_back(leaf);
      }
    return out;
  };
  Values in = in_order(b);
  if (is_while) {
    in.insert(in.begin() + 1, b.constant(DType::I32, 0));
    Builder more("more");
    const Values at = inputs(more);
    more.output(op::lt(more, at[1], more.constant(DType::I32, static_cast<double>(length))));
    b.output(b.emit(op::while_loop.def,
                    WhileAttrs{.cond = more.finish(),
                               .body = step.finish(),
                               .num_carries = 2,
                               .max_iterations = length + 1},
                    in)[0]);
  } else {
    const ScanAttrs attrs{.body = step.finish(), .length = length, .num_carries = 1};
    b.output(b.emit(op::scan.def, attrs, in)[0]);
  }
  Value x = in_order(unrolled)[0];
  for (int64_t k = 0; k < length; ++k)
    x = next_of(unrolled, x, append(unrolled, n.graph, {{name, x}})[0]);
  unrolled.output(x);
  Nested out{b.finish(), n.leaves};
  found.equal("a loop and its steps one after the other", values(out.graph, out.leaves),
              values(unrolled.finish(), n.leaves));
  return out;
}

Made step_cond(const Nested& n, uint64_t seed, Findings& found) {
  Builder other("else");
  for (const Node& node : n.graph.nodes)
    if (is_free(node)) other.input(name_in(node), node.type());
  for (Value v : append(other, n.graph))
    other.output(op::mul(other, op::sin(other, v), other.constant(DType::F64, 0.5)));
  const Graph then_body = body_of(n.graph, "then"), else_body = other.finish();
  Builder b(n.graph.name + "_cond");
  const std::string name = free_name(n.graph, "choice");
  Values in{b.input(name, {DType::Bool, {}})};
  for (Value v : same_leaves(b, n.graph)) in.push_back(v);
  for (Value v : b.emit(op::cond.def, CondAttrs{then_body, else_body}, in)) b.output(v);
  Nested out{b.finish(), n.leaves};
  Tensor choice(DType::Bool, {});
  choice.set_int(0, static_cast<int64_t>(seed % 2));
  out.leaves[name] = choice;
  found.equal("a branch and its body", values(out.graph, out.leaves),
              values(seed % 2 ? then_body : else_body, n.leaves));
  return out;
}

}  // namespace

std::optional<Nested> step_of(const NestedStep& s, const Nested& before, DifferenceCounts& counts) {
  Findings found(counts);
  const auto with_fault = [&](Made made) {
    if (made) made->fault = found.fault;
    return made;
  };
  switch (s.kind) {
    case NestedKind::vmap:
      return with_fault(step_vmap(before, s.seed, found));
    case NestedKind::scan_over:
      return with_fault(step_scan_over(before, s.seed, found));
    case NestedKind::checkpoint:
      return with_fault(step_checkpoint(before, s.seed, found));
    case NestedKind::scan_again:
      return with_fault(step_scan_again(before, s.seed, found));
    case NestedKind::cond:
      return with_fault(step_cond(before, s.seed, found));
    default:
      break;
  }
  const int64_t most = s.kind == NestedKind::hessian ? 6 : 60;
  const Names wrt = choose_wrt(before, s.seed, most);
  if (wrt.empty()) return std::nullopt;
  const Question a{before, wrt, random_direction(before, wrt, s.seed), s.seed, found};
  switch (s.kind) {
    case NestedKind::grad:
      return with_fault(step_grad(a));
    case NestedKind::jvp:
      return with_fault(step_jvp(a));
    case NestedKind::vjp:
      return with_fault(step_vjp(a));
    case NestedKind::hvp:
      return with_fault(step_hvp(a));
    case NestedKind::linearize:
      return with_fault(step_linearize(a));
    case NestedKind::transpose:
      return with_fault(step_transpose(a));
    case NestedKind::jacfwd:
      return with_fault(step_jacobian(a, true));
    case NestedKind::jacrev:
      return with_fault(step_jacobian(a, false));
    case NestedKind::hessian:
      return with_fault(step_hessian(a));
    case NestedKind::jet:
      return with_fault(step_jet(a));
    default:
      check(false, "no such step");
      std::abort();
  }
}

bool keep_some_outputs(Nested& n, uint64_t seed) {
  constexpr int64_t kMostElements = 80;
  constexpr size_t kMostOutputs = 3;
  Values all;
  for (Value v : n.graph.outputs)
    if (const Type& t = n.graph.type(v); t.dtype == DType::F64 && product(t.shape.sizes()) > 0 &&
                                         product(t.shape.sizes()) <= kMostElements)
      all.push_back(v);
  if (all.empty()) return false;
  std::mt19937_64 random(mix(seed, 3));
  std::shuffle(all.begin(), all.end(), random);
  if (all.size() > kMostOutputs) all.resize(kMostOutputs);
  n.graph.outputs = all;
  n.graph.updates.clear();
  n.graph = drop_dead(std::move(n.graph));
  n.leaves = named_leaves(n.graph, n.leaves);
  return true;
}

}  // namespace rlx::testing
