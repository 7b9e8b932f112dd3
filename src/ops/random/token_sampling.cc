// Choosing tokens from logits.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "rlx/base/philox.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/random/distributions.h"
#include "rlx/ops/reduce/cumulative.h"
#include "rlx/ops/reduce/reduce.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

void require_rows(const InferArgs& a) {
  if (a.in[0].rank() == 0 || a.in[0].shape.back() == Dim(0))
    bad_operands(a, "sample-row", "rows along the last axis must have an element");
}

Types infer_mask(const InferArgs& a) {
  require_rows(a);
  return {{DType::Bool, a.in[0].shape}};
}

Types infer_filter(const InferArgs& a) {
  require_rows(a);
  return {a.in[0]};
}

// ---- reference values ---------------------------------------------------------------------------

// choose(row, keep) says which of a row's elements to keep.
template <class Choose>
Tensors evaluate_mask(const EvalArgs& e, Choose choose) {
  Tensor out = e.make();
  const int64_t n = out.sizes().back();
  for (int64_t first = 0; first < out.elements(); first += n) {
    std::vector<double> row;
    for (int64_t i = 0; i < n; ++i) row.push_back(e.in[0].get_float(first + i));
    std::vector<bool> keep(row.size());
    choose(row, keep);
    for (int64_t i = 0; i < n; ++i) out.set_int(first + i, keep[at(i)]);
  }
  return {out};
}

// A row's indices, the largest first, equal ones in order; NaN counts as the largest.
Ints descending(const std::vector<double>& row) {
  Ints order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const double x = row[at(a)], y = row[at(b)];
    return std::isnan(x) ? !std::isnan(y) : x > y;
  });
  return order;
}

Tensors evaluate_top_k(const EvalArgs& e) {
  const int64_t k = e.get<TopKMaskAttrs>().k;
  return evaluate_mask(e, [&](const std::vector<double>& row, std::vector<bool>& keep) {
    const bool all = k <= 0 || at(k) >= row.size();
    const double cutoff = all ? 0 : row[at(descending(row)[at(k - 1)])];
    for (size_t i = 0; i < row.size(); ++i) keep[i] = all || !(row[i] < cutoff);
  });
}

Tensors evaluate_top_p(const EvalArgs& e) {
  const double p = e.get<TopPMaskAttrs>().p;
  return evaluate_mask(e, [&](const std::vector<double>& row, std::vector<bool>& keep) {
    const Ints order = descending(row);
    const double largest = row[at(order[0])];
    double total = 0, reached = 0;
    for (double x : row) total += std::exp(x - largest);
    for (int64_t i : order) {
      if (p < 1 && reached >= p * total) break;
      keep[at(i)] = true;
      reached += std::exp(row[at(i)] - largest);
    }
    if (keep == std::vector<bool>(row.size())) keep[at(order[0])] = true;  // p <= 0: the likeliest
  });
}

Values vmap_mask(Builder& b, const VmapArgs& a) { return b.clone(a.node, a.in); }

constexpr OpDef mask(std::string_view name, std::string_view doc, EvalRule eval) {
  OpDef d{.name = name, .doc = doc, .kind = Kind::reduction, .dtypes = kFloats};
  d.infer = infer_mask;
  d.eval = eval;
  d.vmap = vmap_mask;
  d.cost = [](const Node&, std::span<const Type> in) {  // rows are sorted
    const double n = element_count(in[0]);
    return n * (2 + std::log2(n + 1));
  };
  d.not_differentiable = "the result is bool";
  return d;
}

constexpr OpDef filter(std::string_view name, std::string_view doc, DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .dtypes = kFloats};
  d.infer = infer_filter;
  d.decompose = decompose;
  return d;
}

// ---- sample -------------------------------------------------------------------------------------

// Seeds of the process-wide counter, far from the small numbers that people choose.
int64_t fresh_seed() {
  static std::atomic<int64_t> next{int64_t{1} << 62};
  return next.fetch_add(1);
}

void normalise_sample(void* attrs, std::string_view, std::span<const Type> in) {
  auto& a = *static_cast<SampleAttrs*>(attrs);
  if (a.seed == 0 && in.size() == 1) a.seed = fresh_seed();
}

Types infer_sample(const InferArgs& a) {
  require_rows(a);
  const auto& attrs = a.get<SampleAttrs>();
  if (!kReals.has(attrs.dtype))
    bad_operands(a, "dtype",
                 fmt::format("does not make {}; allowed are {}", attrs.dtype, kReals.to_string()));
  if (a.in.size() > 1 && !(a.in[1] == Type{DType::U32, {2}}))
    bad_operands(a, "random-key", "a key is u32 [2]");
  const Shape& x = a.in[0].shape;
  return {{attrs.dtype, Shape(x.begin(), x.end() - 1)}};
}

// The specification's steps. r is scaled by the sum of the probabilities, and r = 0 is taken as
// 2^-25: so rounding never falls through to a token that was excluded.
Values decompose_sample(Builder& b, const Node& n, Operands in) {
  const auto& a = n.get<SampleAttrs>();
  const DType wide = b.type(in[0]).dtype == DType::F64 ? DType::F64 : DType::F32;
  Expr logits = Expr(b, cast_to(b, in[0], wide)) / std::max(a.temperature, 1e-6);
  if (a.top_k > 0) logits = op::top_k_filter(logits, {.k = a.top_k});
  if (a.top_p < 1) logits = op::top_p_filter(logits, {.p = a.top_p});
  const Expr cumulative = op::cumsum(op::softmax(logits, {.axis = -1}), {.axis = -1});

  const PhiloxKey seed = philox_key(static_cast<uint64_t>(a.seed));
  const Value key =
      in.size() > 1 ? in[1] : b.constant(Tensor::from<uint32_t>({2}, {seed[0], seed[1]}));
  Shape row = n.type().shape;
  const Value uniform = op::random_uniform(b, key, {DType::F32, {row.elements()}});
  row.push_back(1);
  const Expr r(b, cast_to(b, reshape_to(b, uniform, row), wide));

  const int64_t last = logits.rank() - 1;
  const Expr total(b, op::reduce_max(b, cumulative, {{last}, true}));
  const Value below = op::lt(b, cumulative, op::maximum(r, r.like(0x1p-25)) * total);
  return {cast_to(b, sum_axes(b, cast_to(b, below, DType::I64), {last}), a.dtype)};
}

}  // namespace

namespace op {

constinit const Op<TopKMaskAttrs> top_k_mask = named(
    "logits",
    mask("top_k_mask",
         "Which elements of every row (last axis) are not below its k-th largest; all for k = 0. "
         "NaN counts as the largest.",
         evaluate_top_k));

constinit const Op<TopPMaskAttrs> top_p_mask = named(
    "logits",
    mask("top_p_mask",
         "Which elements of every row (last axis) belong to its likeliest ones: those of largest "
         "softmax, equal ones in order, until their sum reaches p; at least one, all for p = 1.",
         evaluate_top_p));

constinit const Op<TopKFilterAttrs> top_k_filter = filter(
    "top_k_filter", "x where top_k_mask of x is true, else `fill`.",
    [](Builder& b, const Node& n, Operands in) -> Values {
      const auto& [k, fill] = n.get<TopKFilterAttrs>();
      return {op::select(b, op::top_k_mask(b, in[0], {k}), in[0], b.constant_like(in[0], fill))};
    });

constinit const Op<TopPFilterAttrs> top_p_filter = filter(
    "top_p_filter", "x where top_p_mask of x is true, else `fill`.",
    [](Builder& b, const Node& n, Operands in) -> Values {
      const auto& [p, fill] = n.get<TopPFilterAttrs>();
      return {op::select(b, op::top_p_mask(b, in[0], {p}), in[0], b.constant_like(in[0], fill))};
    });

constinit const Op<SampleAttrs> sample = OpDef{
    .name = "sample",
    .doc =
        "A token for every row of logits [.., V]: softmax of logits / max(temperature, 1e-6) among "
        "the top_k largest and then the likeliest that reach top_p; the first index whose "
        "cumulative probability is at least r. Row i has r = element i of random_uniform of the "
        "key: the operand u32 [2] when there is one, else the seed (0: the next of a process-wide "
        "counter, taken when the node is built).",
    .reference = "Sample",
    .role = Role::token,
    .arity = 2,
    .min_arity = 1,
    .operands = "logits, key?",
    .dtypes = kFloats,
    .infer = infer_sample,
    .normalise = normalise_sample,
    .decompose = decompose_sample,
    .not_differentiable = "the result is an index",
};

}  // namespace op

}  // namespace rlx
