// Contractions: matmul and dot_general.
#include "rlx/ops/linalg/linalg.h"

#include <algorithm>
#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

// ---- matmul -------------------------------------------------------------------------------------

// The last two dims of an operand after its transpose flag.
struct MatrixDims {
  Dim rows, columns;
  MatrixDims(const Shape& s, bool transposed) : rows(s[s.size() - 2]), columns(s[s.size() - 1]) {
    if (transposed) std::swap(rows, columns);
  }
};

Types infer_matmul(const InferArgs& a) {
  require_same_dtype(a);
  const auto& [transpose_a, transpose_b] = a.get<MatmulAttrs>();
  const Shape &x = a.in[0].shape, &y = a.in[1].shape;
  if (x.size() < 2 || y.size() < 2)
    bad_operands(a, "matmul-rank", "operands must have rank 2 or more");
  const MatrixDims left(x, transpose_a), right(y, transpose_b);
  if (differ(left.columns, right.rows))
    bad_operands(a, "matmul-inner",
                 fmt::format("{} columns of a{} meet {} rows of b{}; they must be equal",
                             left.columns, transpose_a ? " (transposed)" : "", right.rows,
                             transpose_b ? " (transposed)" : ""));
  auto shape = broadcast_shapes(Shape(x.begin(), x.end() - 2), Shape(y.begin(), y.end() - 2));
  if (!shape) bad_operands(a, "broadcast", "the batch dims do not broadcast");
  shape->push_back(left.rows);
  shape->push_back(right.columns);
  return {{a.in[0].dtype, *shape}};
}

// An operand in a wide type, with the strides of its rows, columns and batch dims as seen from the
// result.
template <class T>
struct Matrices {
  std::vector<T> values;
  int64_t row, column;
  Ints batch;
  Matrices(const Tensor& x, bool transposed, const Ints& result_batch) : values(at(x.elements())) {
    using Wide = std::conditional_t<std::is_same_v<T, uint64_t>, int64_t, T>;
    for (int64_t i = 0; i < x.elements(); ++i)
      values[at(i)] = static_cast<T>(detail::fetch<Wide>(x, i));
    const Ints own(x.sizes().begin(), x.sizes().end() - 2);
    row = x.sizes().back(), column = 1;
    const int64_t matrix = row * x.sizes()[x.sizes().size() - 2];
    if (transposed) std::swap(row, column);
    batch = broadcast_strides(own, result_batch);
    for (int64_t& stride : batch) stride *= matrix;
  }
  const T* at_batch(const Ints& index) const {
    return values.data() +
           std::inner_product(index.begin(), index.end(), batch.begin(), int64_t{0});
  }
};

// Sums each element in T and stores with one rounding.
template <class T>
Tensor multiply(const EvalArgs& e) {
  Tensor out = e.make();
  const auto& [transpose_a, transpose_b] = e.get<MatmulAttrs>();
  const Ints& sizes = out.sizes();
  const Ints batch(sizes.begin(), sizes.end() - 2);
  const int64_t m = sizes[sizes.size() - 2], n = sizes.back();
  const int64_t k = e.in[0].sizes()[e.in[0].sizes().size() - (transpose_a ? 2 : 1)];
  const Matrices<T> a(e.in[0], transpose_a, batch), b(e.in[1], transpose_b, batch);
  std::vector<T> line(at(n));
  int64_t target = 0;
  for_each_index(batch, [&](const Ints& index) {
    const T *pa = a.at_batch(index), *pb = b.at_batch(index);
    for (int64_t i = 0; i < m; ++i) {
      std::fill(line.begin(), line.end(), T{});
      for (int64_t p = 0; p < k; ++p) {
        const T left = pa[i * a.row + p * a.column];
        for (int64_t j = 0; j < n; ++j) line[at(j)] += left * pb[p * b.row + j * b.column];
      }
      for (const T& v : line) {
        if constexpr (std::is_same_v<T, uint64_t>)
          out.set_int(target++, static_cast<int64_t>(v));
        else
          detail::put(out, target++, v);
      }
    }
  });
  return out;
}

Tensors evaluate_matmul(const EvalArgs& e) {
  const DType d = e.in[0].dtype();
  if (is_float(d)) return {multiply<double>(e)};
  if (is_complex(d)) return {multiply<Complex>(e)};
  return {multiply<uint64_t>(e)};  // wraps
}

Value product(Builder& b, Value x, bool transpose_x, Value y, bool transpose_y) {
  return op::matmul(b, x, y, MatmulAttrs{transpose_x, transpose_y});
}

// x [.., rows, columns] as one matrix of all rows.
Value flatten_rows(Builder& b, Value x) {
  Shape shape = b.shape(x);
  const Dim columns = shape.back();
  shape.pop_back();
  return reshape_to(b, x, {shape.elements(), columns});
}

// With A and B as they enter the product (transposed or not), dA = g B^T and dB = A^T g; the flags
// say it all, so nothing is transposed.
Values vjp_matmul(Builder& b, const VjpArgs& v) {
  const auto& [transpose_a, transpose_b] = v.node.get<MatmulAttrs>();
  const Shape a_shape = b.shape(v.in[0]), b_shape = b.shape(v.in[1]);
  Value g = v.cotangents[0];
  Values out{kNone, kNone};
  if (v.wanted[0]) {
    const Value y = conj_if_complex(b, v.in[1]);
    const Value ga =
        transpose_a ? product(b, y, transpose_b, g, true) : product(b, g, false, y, !transpose_b);
    out[0] = unbroadcast(b, ga, a_shape);
  }
  if (v.wanted[1]) {
    Value x = conj_if_complex(b, v.in[0]);
    bool swapped = transpose_a;
    // A shared weight: one product over all rows of the batch.
    if (b_shape.size() == 2 && a_shape.size() > 2) {
      x = flatten_rows(b, transpose_a ? matrix_transpose(b, x) : x);
      g = flatten_rows(b, g);
      swapped = false;
    }
    const Value gb =
        transpose_b ? product(b, g, true, x, swapped) : product(b, x, !swapped, g, false);
    out[1] = unbroadcast(b, gb, b_shape);
  }
  return out;
}

// ---- dot_general --------------------------------------------------------------------------------

void normalise_dot(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& d = *static_cast<DotAttrs*>(attrs);
  for (Ints* axes : {&d.lhs_contracting, &d.lhs_batch})
    for (int64_t& axis : *axes) axis = normalise_axis(axis, in[0].rank(), op);
  for (Ints* axes : {&d.rhs_contracting, &d.rhs_batch})
    for (int64_t& axis : *axes) axis = normalise_axis(axis, in[1].rank(), op);
}

// The axes in neither list, ascending.
Ints free_axes(int64_t rank, const Ints& batch, const Ints& contracting) {
  Ints out;
  for (int64_t i = 0; i < rank; ++i)
    if (std::count(batch.begin(), batch.end(), i) +
            std::count(contracting.begin(), contracting.end(), i) ==
        0)
      out.push_back(i);
  return out;
}

Shape dims_of(const Shape& shape, const Ints& axes) {
  Shape out;
  for (int64_t axis : axes) out.push_back(shape[at(axis)]);
  return out;
}

Ints join(Ints a, const Ints& b, const Ints& c) {
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), c.begin(), c.end());
  return a;
}

Types infer_dot(const InferArgs& a) {
  require_same_dtype(a);
  const auto& d = a.get<DotAttrs>();
  const Shape &x = a.in[0].shape, &y = a.in[1].shape;
  if (d.lhs_contracting.size() != d.rhs_contracting.size() ||
      d.lhs_batch.size() != d.rhs_batch.size())
    bad_operands(a, "dot-axes", "both sides must name equally many contracting and batch axes");
  normalise_axes(join(d.lhs_batch, d.lhs_contracting, {}), x.rank(),
                 a.op.name);  // raises when an axis is named twice
  normalise_axes(join(d.rhs_batch, d.rhs_contracting, {}), y.rank(), a.op.name);
  auto require_equal = [&](const Ints& left, const Ints& right, std::string_view what) {
    for (size_t i = 0; i < left.size(); ++i)
      if (differ(x[at(left[i])], y[at(right[i])]))
        bad_operands(
            a, "dot-sizes",
            fmt::format("{} axes {} and {} have different sizes", what, left[i], right[i]));
  };
  require_equal(d.lhs_contracting, d.rhs_contracting, "contracting");
  require_equal(d.lhs_batch, d.rhs_batch, "batch");
  Shape shape;
  for (size_t i = 0; i < d.lhs_batch.size(); ++i)
    shape.push_back(agreed(x[at(d.lhs_batch[i])], y[at(d.rhs_batch[i])]));
  for (const Shape& s : {dims_of(x, free_axes(x.rank(), d.lhs_batch, d.lhs_contracting)),
                         dims_of(y, free_axes(y.rank(), d.rhs_batch, d.rhs_contracting))})
    shape.insert(shape.end(), s.begin(), s.end());
  return {{a.in[0].dtype, shape}};
}

// An operand as matrices [batch.., rows, columns], or transposed when it lies so already.
struct Arranged {
  Value value;
  bool transposed;
};
Arranged arrange(Builder& b, Value x, const Ints& batch, const Ints& rows, const Ints& columns) {
  const Shape shape = b.shape(x);
  const Ints plain = join(batch, rows, columns), swapped = join(batch, columns, rows);
  const bool transposed =
      !std::is_sorted(plain.begin(), plain.end()) && std::is_sorted(swapped.begin(), swapped.end());
  Shape matrices = dims_of(shape, batch);
  matrices.push_back(count_of(shape, transposed ? columns : rows));
  matrices.push_back(count_of(shape, transposed ? rows : columns));
  return {reshape_to(b, transpose_to(b, x, transposed ? swapped : plain), matrices), transposed};
}

Values decompose_dot(Builder& b, const Node& n, Operands in) {
  const auto& d = n.get<DotAttrs>();
  // The order of the contracting pairs is free: ascending on the left spares it a transpose.
  std::vector<size_t> order(d.lhs_contracting.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t i, size_t j) { return d.lhs_contracting[i] < d.lhs_contracting[j]; });
  Ints left, right;
  for (size_t i : order)
    left.push_back(d.lhs_contracting[i]), right.push_back(d.rhs_contracting[i]);
  const Ints left_free = free_axes(b.type(in[0]).rank(), d.lhs_batch, left);
  const Ints right_free = free_axes(b.type(in[1]).rank(), d.rhs_batch, right);
  const Arranged left_side = arrange(b, in[0], d.lhs_batch, left_free, left);
  const Arranged right_side = arrange(b, in[1], d.rhs_batch, right, right_free);
  const Value y =
      product(b, left_side.value, left_side.transposed, right_side.value, right_side.transposed);
  return {reshape_to(b, y, n.type().shape)};
}

}  // namespace

namespace op {

constinit const Op<MatmulAttrs> matmul = OpDef{
    .name = "matmul",
    .doc =
        "Matrix product of the last two dims; leading dims broadcast like NumPy's. The flags swap "
        "an operand's last "
        "two dims first. f16 and bf16 are summed in f32 or wider, integers wrap.",
    .reference = "MatMul",
    .role = Role::product,
    .kind = Kind::contraction,
    .arity = 2,
    .operands = "a, b",
    .dtypes = kNumbers,
    .infer = infer_matmul,
    .eval = evaluate_matmul,
    .jvp = jvp_bilinear,
    .vjp = vjp_matmul,
    .vmap = vmap_elementwise,  // batch dims broadcast, so a shared operand stays as it is
    .cost =
        [](const Node& n, std::span<const Type> in) {
          const bool rows = n.get<MatmulAttrs>().transpose_a;
          const Dim& k = in[0].shape[in[0].shape.size() - (rows ? 2 : 1)];
          return element_count(n.type()) * element_count({DType::F32, {k}});
        },
};

constinit const Op<DotAttrs> dot_general = OpDef{
    .name = "dot_general",
    .doc =
        "Sum of products over paired contracting axes, for each position of the paired batch axes "
        "(XLA's): the result "
        "has the batch dims, a's other dims, b's other dims, in this order.",
    .reference = "DotGeneral",
    .role = Role::product,
    .arity = 2,
    .operands = "a, b",
    .dtypes = kNumbers,
    .infer = infer_dot,
    .normalise = normalise_dot,
    .decompose = decompose_dot,
};

}  // namespace op

namespace {
constexpr const OpDef* kLinalgOps[] = {&op::matmul, &op::dot_general};
}  // namespace
constinit const Family kLinalg{"linalg", kLinalgOps};

}  // namespace rlx
