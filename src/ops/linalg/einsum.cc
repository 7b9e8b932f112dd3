#include "rlx/ops/linalg/einsum.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "rlx/ops/composite_rules.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/movement/shaping.h"

namespace rlx {
namespace {

// ---- the equation -------------------------------------------------------------------------------

// A label is a letter, or for the axes of an ellipsis -1 (the last), -2, ..
using Labels = std::vector<int>;

struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

[[noreturn]] void bad_equation(const std::string& text, const std::string& why) {
  fail(ErrorKind::user, "einsum-equation", "einsum: \"{}\": {}", text, why);
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// One term; `rank` tells how many axes an ellipsis stands for (-1: given by `hidden`).
Labels read_term(const std::string& text, const std::string& term, int64_t rank, int64_t hidden) {
  const auto dots = term.find("...");
  const auto letters = static_cast<int64_t>(std::count_if(term.begin(), term.end(), is_letter));
  if (dots != std::string::npos && rank >= 0) hidden = rank - letters;
  if (rank >= 0 && (dots == std::string::npos ? rank != letters : hidden < 0))
    bad_equation(text, fmt::format("\"{}\" does not fit an operand of rank {}", term, rank));
  Labels out;
  for (size_t i = 0; i < term.size(); ++i) {
    if (i == dots) {
      for (int64_t k = hidden; k > 0; --k) out.push_back(static_cast<int>(-k));
      i += 2;
    } else if (is_letter(term[i])) {
      out.push_back(term[i]);
    } else {
      bad_equation(text, fmt::format("'{}' is no letter, ',', '->' or '...'", term[i]));
    }
  }
  return out;
}

// Without "->": the ellipsis, then the letters that occur once, in alphabetical order.
Labels implied_result(const std::vector<Labels>& operands) {
  std::map<int, int> count;
  for (const Labels& term : operands)
    for (int label : term) ++count[label];
  Labels out;
  for (auto [label, n] : count)
    if (label < 0 || n == 1) out.push_back(label);
  return out;
}

Equation read_equation(const std::string& given, std::span<const Type> in) {
  std::string text = given;
  std::erase(text, ' ');
  const auto arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  Equation e;
  int64_t hidden = 0;
  for (size_t begin = 0; begin <= left.size();) {
    const size_t comma = std::min(left.find(',', begin), left.size());
    if (e.operands.size() == in.size()) bad_equation(given, "it has more terms than operands");
    e.operands.push_back(
        read_term(given, left.substr(begin, comma - begin), in[e.operands.size()].rank(), 0));
    for (int label : e.operands.back()) hidden = std::max<int64_t>(hidden, -label);
    begin = comma + 1;
  }
  if (e.operands.size() != in.size())
    bad_equation(given,
                 fmt::format("it has {} terms for {} operands", e.operands.size(), in.size()));
  e.result = arrow == std::string::npos ? implied_result(e.operands)
                                        : read_term(given, text.substr(arrow + 2), -1, hidden);
  std::set<int> known, seen;
  for (const Labels& term : e.operands) known.insert(term.begin(), term.end());
  for (int label : e.result)
    if (!known.contains(label) || !seen.insert(label).second)
      bad_equation(given, "a result index must occur once there and in an operand");
  return e;
}

// The size of each label. Axes of an ellipsis broadcast; letters have one size.
std::map<int, Dim> label_sizes(const InferArgs& a, const Equation& e) {
  std::map<int, Dim> sizes;
  for (size_t i = 0; i < a.in.size(); ++i)
    for (size_t k = 0; k < e.operands[i].size(); ++k) {
      const int label = e.operands[i][k];
      const Dim& size = a.in[i].shape[k];
      const auto [it, fresh] = sizes.emplace(label, size);
      if (fresh) continue;
      const auto both = label < 0 ? broadcast_shapes({it->second}, {size}) : std::nullopt;
      if (label < 0 ? !both : differ(it->second, size))
        bad_operands(a, "einsum-shape",
                     label < 0 ? "the axes of the ellipsis do not broadcast"
                               : fmt::format("index {} has the sizes {} and {}",
                                             static_cast<char>(label), it->second, size));
      it->second = both ? (*both)[0] : agreed(it->second, size);
    }
  return sizes;
}

Types infer_einsum(const InferArgs& a) {
  require_same_dtype(a);
  const Equation e = read_equation(a.get<EinsumAttrs>().equation, a.in);
  const auto sizes = label_sizes(a, e);
  Shape shape;
  for (int label : e.result) shape.push_back(sizes.at(label));
  return {{a.in[0].dtype, shape}};
}

// ---- the contraction ----------------------------------------------------------------------------

// A value whose axes have distinct labels.
struct Term {
  Value value;
  Labels labels;
};

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}
int64_t axis_of(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) - labels.begin();
}

// Repeated labels become diagonals.
Term take_diagonals(Builder& b, Term t) {
  for (size_t i = 0; i < t.labels.size();) {
    const auto again =
        std::find(t.labels.begin() + static_cast<int64_t>(i) + 1, t.labels.end(), t.labels[i]);
    if (again == t.labels.end()) {
      ++i;
      continue;
    }
    const int label = t.labels[i];
    const int64_t other = again - t.labels.begin();
    t.value = op::diagonal(b, t.value, {0, static_cast<int64_t>(i), other});
    t.labels.erase(again);
    t.labels.erase(t.labels.begin() + static_cast<int64_t>(i));
    t.labels.push_back(label);
  }
  return t;
}

// Axes of size 1 that broadcast against a larger one are dropped: the product repeats the rest.
Term drop_broadcast(Builder& b, Term t, const std::map<int, Dim>& sizes) {
  Shape kept;
  Labels labels;
  const Shape shape = b.shape(t.value);
  for (size_t i = 0; i < t.labels.size(); ++i)
    if (!(shape[i] == Dim(1)) || sizes.at(t.labels[i]) == Dim(1))
      kept.push_back(shape[i]), labels.push_back(t.labels[i]);
  return {reshape_to(b, t.value, kept), labels};
}

Term sum_unneeded(Builder& b, const Term& t, const std::set<int>& needed) {
  Ints axes;
  Labels labels;
  for (size_t i = 0; i < t.labels.size(); ++i) {
    if (needed.contains(t.labels[i]))
      labels.push_back(t.labels[i]);
    else
      axes.push_back(static_cast<int64_t>(i));
  }
  return {sum_axes(b, t.value, axes), labels};
}

// t with its axes in the order of `labels`, size 1 for those it has not.
Value aligned(Builder& b, const Term& t, const Labels& labels) {
  Ints perm;
  Shape shape;
  for (int label : labels) {
    if (has(t.labels, label)) {
      perm.push_back(axis_of(t.labels, label));
      shape.push_back(b.shape(t.value)[at(perm.back())]);
    } else {
      shape.push_back(1);
    }
  }
  return reshape_to(b, transpose_to(b, t.value, perm), shape);
}

// The product of two terms, summed over what nobody needs any more. Without such labels it is an
// elementwise product that broadcasts, else a dot_general.
Term contract(Builder& b, const Term& x, const Term& y, const std::set<int>& needed) {
  DotAttrs d;
  Labels batch, left, right;
  for (int label : x.labels) {
    if (!has(y.labels, label)) {
      left.push_back(label);
      continue;
    }
    const bool kept = needed.contains(label);
    if (kept) batch.push_back(label);
    (kept ? d.lhs_batch : d.lhs_contracting).push_back(axis_of(x.labels, label));
    (kept ? d.rhs_batch : d.rhs_contracting).push_back(axis_of(y.labels, label));
  }
  for (int label : y.labels)
    if (!has(x.labels, label)) right.push_back(label);
  Labels all = batch;
  all.insert(all.end(), left.begin(), left.end());
  all.insert(all.end(), right.begin(), right.end());
  if (d.lhs_contracting.empty()) return {op::mul(b, aligned(b, x, all), aligned(b, y, all)), all};
  return {op::dot_general(b, x.value, y.value, d), all};
}

std::set<int> needed_by(const std::vector<Term>& terms, const Labels& result, size_t i, size_t k) {
  std::set<int> needed(result.begin(), result.end());
  for (size_t other = 0; other < terms.size(); ++other)
    if (other != i && other != k)
      needed.insert(terms[other].labels.begin(), terms[other].labels.end());
  return needed;
}

// Which two terms to contract next: those whose product is smallest, compared with what it replaces;
// symbolic sizes count as 64.
std::pair<size_t, size_t> cheapest(const std::vector<Term>& terms, const Labels& result,
                                   const std::map<int, Dim>& sizes) {
  auto elements = [&](const Labels& labels, const std::set<int>* only) {
    double n = 1;
    for (int label : labels)
      if (!only || only->contains(label))
        n *= static_cast<double>(sizes.at(label).static_value().value_or(64));
    return n;
  };
  std::pair<size_t, size_t> best{0, 1};
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t k = i + 1; k < terms.size(); ++k) {
      const std::set<int> needed = needed_by(terms, result, i, k);
      Labels both = terms[i].labels;
      for (int label : terms[k].labels)
        if (!has(both, label)) both.push_back(label);
      const double cost = elements(both, &needed) - elements(terms[i].labels, nullptr) -
                          elements(terms[k].labels, nullptr);
      if (cost < least) least = cost, best = {i, k};
    }
  return best;
}

Values decompose_einsum(Builder& b, const Node& n, Operands in) {
  Types types;
  for (Value v : in) types.push_back(b.type(v));
  const Equation e = read_equation(n.get<EinsumAttrs>().equation, types);
  const auto sizes = label_sizes({*n.op, n.attrs, types}, e);
  std::vector<Term> terms;
  for (size_t i = 0; i < in.size(); ++i)
    terms.push_back(drop_broadcast(b, take_diagonals(b, {in[i], e.operands[i]}), sizes));
  for (size_t i = 0; i < terms.size(); ++i)
    terms[i] = sum_unneeded(b, terms[i], needed_by(terms, e.result, i, i));
  while (terms.size() > 1) {
    const auto [i, k] = cheapest(terms, e.result, sizes);
    const Term product = contract(b, terms[i], terms[k], needed_by(terms, e.result, i, k));
    terms.erase(terms.begin() + static_cast<int64_t>(k));
    terms[i] = product;
  }
  return {aligned(b, terms[0], e.result)};
}

// ---- special products ---------------------------------------------------------------------------

constexpr OpDef product(std::string_view name, std::string_view doc, InferRule infer,
                        DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .arity = 2, .dtypes = kNumbers};
  d.infer = infer;
  d.decompose = decompose;
  return d;
}

Types infer_product(const InferArgs& a) {
  require_same_dtype(a);
  return infer_decomposed(a);
}

void normalise_tensordot(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& t = *static_cast<TensordotAttrs*>(attrs);
  for (int64_t& axis : t.axes_a) axis = normalise_axis(axis, in[0].rank(), op);
  for (int64_t& axis : t.axes_b) axis = normalise_axis(axis, in[1].rank(), op);
}

Ints last_axes(Builder& b, Value x) { return {b.type(x).rank() - 1}; }

Values decompose_inner(Builder& b, const Node&, Operands in) {
  if (b.type(in[0]).rank() == 0 || b.type(in[1]).rank() == 0) return {op::mul(b, in[0], in[1])};
  return {op::tensordot(b, in[0], in[1], {last_axes(b, in[0]), last_axes(b, in[1])})};
}

// [m0, m1], [n0, n1] -> [m0, 1, m1, 1] * [1, n0, 1, n1] -> [m0 n0, m1 n1]
Values decompose_kron(Builder& b, const Node&, Operands in) {
  Shape x = b.shape(in[0]), y = b.shape(in[1]), left, right, flat;
  const size_t rank = std::max(x.size(), y.size());
  x.insert(x.begin(), rank - x.size(), Dim(1));
  y.insert(y.begin(), rank - y.size(), Dim(1));
  for (size_t i = 0; i < rank; ++i) {
    left.insert(left.end(), {x[i], Dim(1)});
    right.insert(right.end(), {Dim(1), y[i]});
    flat.push_back(x[i] * y[i]);
  }
  const Value all = op::mul(b, reshape_to(b, in[0], left), reshape_to(b, in[1], right));
  return {reshape_to(b, all, flat)};
}

Types infer_vdot(const InferArgs& a) {
  require_same_dtype(a);
  if (differ(a.in[0].shape.elements(), a.in[1].shape.elements()))
    bad_operands(a, "dot-sizes", "both must have the same number of elements");
  return {{a.in[0].dtype, {}}};
}

Values decompose_vdot(Builder& b, const Node&, Operands in) {
  const Dim n = b.shape(in[0]).elements();
  const Value x = reshape_to(b, conj_if_complex(b, in[0]), {n}), y = reshape_to(b, in[1], {n});
  return {op::tensordot(b, x, y, {{0}, {0}})};
}

Types infer_cross(const InferArgs& a) {
  const Types t = infer_broadcast(a);
  const int64_t axis = a.get<CrossAttrs>().axis;
  for (const Type& x : a.in)
    if (x.rank() != t[0].rank() || differ(x.shape[at(axis)], Dim(3)))
      bad_operands(a, "cross-size",
                   fmt::format("both must have one rank and size 3 along axis {}", axis));
  return t;
}

// (a x b)_i = a_{i+1} b_{i+2} - a_{i+2} b_{i+1}, indices modulo 3
Values decompose_cross(Builder& b, const Node& n, Operands in) {
  const int64_t axis = n.get<CrossAttrs>().axis;
  auto rolled = [&](Value x, int64_t by) { return Expr(b, op::roll(b, x, {{-by}, {axis}})); };
  return {rolled(in[0], 1) * rolled(in[1], 2) - rolled(in[0], 2) * rolled(in[1], 1)};
}

}  // namespace

namespace op {

constinit const Op<EinsumAttrs> einsum = OpDef{
    .name = "einsum",
    .doc =
        "Sum of products by index letters, as in \"ij,jk->ik\": letters that the result has not "
        "are "
        "summed over, a letter twice in a term is a diagonal, \"...\" stands for further axes, "
        "which "
        "broadcast. Without \"->\" the result has the ellipsis and the letters that occur once, in "
        "alphabetical order. Pairs are contracted in greedy order, the smallest products first.",
    .arity = kVariadic,
    .min_arity = 1,
    .operands = "xs..",
    .dtypes = kNumbers,
    .infer = infer_einsum,
    .decompose = decompose_einsum,
};

constinit const Op<TensordotAttrs> tensordot = named("a, b", [] {
  OpDef d = product(
      "tensordot",
      "Sum of products over paired axes of a and b; the result has a's other axes, then b's.",
      infer_product, [](Builder& b, const Node& n, Operands in) -> Values {
        const auto& [axes_a, axes_b] = n.get<TensordotAttrs>();
        return {op::dot_general(b, in[0], in[1], {axes_a, axes_b, {}, {}})};
      });
  d.normalise = normalise_tensordot;
  return d;
}());

constinit const Op<> outer =
    named("a, b", product("outer", "a[i..] * b[j..] for all i and j: a's axes, then b's.",
                          infer_product, [](Builder& b, const Node&, Operands in) -> Values {
                            Shape column = b.shape(in[0]);
                            column.insert(column.end(), b.shape(in[1]).size(), Dim(1));
                            return {op::mul(b, reshape_to(b, in[0], column), in[1])};
                          }));

constinit const Op<> inner = named(
    "a, b",
    product("inner",
            "Sum of products over the last axes of a and b; a * b when one has rank 0 (NumPy's).",
            infer_product, decompose_inner));

constinit const Op<> kron = named("a, b", product("kron",
                                                  "Kronecker product: every element of a times all "
                                                  "of b, as blocks; the lower rank gets leading "
                                                  "axes of size 1.",
                                                  infer_product, decompose_kron));

constinit const Op<> vdot =
    named("a, b", product("vdot", "Sum of conj(a) * b over all elements, in row-major order.",
                          infer_vdot, decompose_vdot));

constinit const Op<CrossAttrs> cross = named("a, b", [] {
  OpDef d = product("cross", "Vector product of a and b along an axis of size 3.", infer_cross,
                    decompose_cross);
  d.normalise = normalise_axis_of<CrossAttrs>;
  return d;
}());

}  // namespace op

namespace {
constexpr const OpDef* kEinsumOps[] = {&op::einsum, &op::tensordot, &op::outer, &op::inner,
                                       &op::kron,   &op::vdot,      &op::cross};
}  // namespace
constinit const Family kEinsum{"einsum", kEinsumOps};

}  // namespace rlx
