// Diagonals, triangles, padding by what is there, and tensors without operands.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "rlx/ops/composite_rules.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/indexing/index_rules.h"
#include "rlx/ops/movement/shaping.h"

namespace rlx {
namespace {

Value zero_like(Builder& b, Value x) { return b.constant_like(x, 0); }

// ---- triangles and diagonals --------------------------------------------------------------------

// column - row of every place of a matrix.
Expr diagonal_number(Builder& b, const Dim& rows, const Dim& columns) {
  return Expr(b, counter(b, columns, 1, 2).index) - Expr(b, counter(b, rows, 0, 2).index);
}

Types infer_matrix(const InferArgs& a) {
  if (a.in[0].rank() < 2) bad_operands(a, "axis-range", "x must have rank 2 or more");
  return {a.in[0]};
}

template <const Op<>& inside>
Values decompose_triangle(Builder& b, const Node& n, Operands in) {
  const Shape x = b.shape(in[0]);
  const Expr number = diagonal_number(b, x[x.size() - 2], x.back());
  const Value keeps = inside(number, number.like(static_cast<double>(n.get<TriangleAttrs>().k)));
  return {op::select(b, keeps, in[0], zero_like(b, in[0]))};
}

constexpr OpDef triangle(std::string_view name, std::string_view doc, DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .linear = true};
  d.infer = infer_matrix;
  d.decompose = decompose;
  return d;
}

void normalise_diagonal(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& d = *static_cast<DiagonalAttrs*>(attrs);
  d.axis1 = normalise_axis(d.axis1, in[0].rank(), op);
  d.axis2 = normalise_axis(d.axis2, in[0].rank(), op);
  user_check(d.axis1 != d.axis2, "axis-repeated", "{}: axis {} is named twice", op, d.axis1);
}

Types infer_diagonal(const InferArgs& a) {
  const auto& d = a.get<DiagonalAttrs>();
  const Dim &rows = a.in[0].shape[at(d.axis1)], &columns = a.in[0].shape[at(d.axis2)];
  if (!(rows - columns).is_static())
    bad_operands(a, "shape-symbolic",
                 fmt::format("which of the axes {} and {}, {} and {}, is longer must be known",
                             d.axis1, d.axis2, rows, columns));
  return infer_decomposed(a);
}

// x [.., rows, columns], where rows - columns is known. A diagonal that would begin behind the end is refused when
// symbols are bound.
Value symbolic_diagonal(Builder& b, Value x, int64_t offset) {
  Shape shape = b.shape(x);
  const Dim columns = shape.back(), width = columns - std::max<int64_t>(offset, 0);
  shape.pop_back();
  const Dim rows = shape.back(), height = rows + std::min<int64_t>(offset, 0);
  shape.back() = rows * columns;
  const Dim length = (height - width).value() < 0 ? height : width;
  const Expr step(b, dim_value(b, columns, DType::I64));
  const Expr first =
      offset < 0 ? step * static_cast<double>(-offset) : step.like(static_cast<double>(offset));
  const Expr number(b, op::iota(b, {}, {DType::I64, {length}, 0}));
  return op::gather(b, reshape_to(b, x, shape), number * (step + 1) + first,
                    {.axis = shape.rank() - 1});
}

// In a matrix of n columns that is read as one row, a diagonal is every (n + 1)-th element.
Value diagonal_of(Builder& b, Value x, const DiagonalAttrs& d) {
  Ints perm;
  for (int64_t i = 0; i < b.type(x).rank(); ++i)
    if (i != d.axis1 && i != d.axis2) perm.push_back(i);
  perm.insert(perm.end(), {d.axis1, d.axis2});
  const Value moved = transpose_to(b, x, perm);
  Shape shape = b.shape(moved);
  if (!shape.back().is_static() || !shape[shape.size() - 2].is_static())
    return symbolic_diagonal(b, moved, d.offset);
  const int64_t columns = shape.back().value();
  shape.pop_back();
  const int64_t rows = shape.back().value();
  const int64_t row = -std::clamp<int64_t>(d.offset, -rows, 0),
                column = std::clamp<int64_t>(d.offset, 0, columns);
  const int64_t length = std::max<int64_t>(0, std::min(rows - row, columns - column));
  shape.back() = rows * columns;
  SliceAttrs s{Shape(shape.size(), Dim(0)), shape, Ints(shape.size(), 1)};
  s.start.back() = length ? row * columns + column : 0;
  s.limit.back() = length ? row * columns + column + (length - 1) * (columns + 1) + 1 : 0;
  s.stride.back() = columns + 1;
  return op::slice(b, reshape_to(b, moved, shape), s);
}

// x [.., n] moves to row i of a square of n + |k| rows for a diagonal k >= 0, to column i for k < 0.
Values decompose_diag_embed(Builder& b, const Node& n, Operands in) {
  const int64_t k = n.get<DiagAttrs>().offset;
  const Dim more = Dim(k < 0 ? -1 : 1) * Dim(k);
  Shape shape = b.shape(in[0]);
  const Dim size = shape.back() + more;
  PadAttrs p{Shape(shape.size(), Dim(0)), Shape(shape.size(), Dim(0))};
  p.high.back() = more;
  const Value line = k ? op::pad(b, in[0], zero_like(b, in[0]), p) : in[0];
  shape.back() = size;
  shape.insert(k >= 0 ? shape.end() : shape.end() - 1, Dim(1));
  const Expr number = diagonal_number(b, size, size);
  const Value hit = op::eq(number, number.like(static_cast<double>(k)));
  return {op::select(b, hit, reshape_to(b, line, shape), zero_like(b, in[0]))};
}

// ---- padding ------------------------------------------------------------------------------------

Types infer_pad_mode(const InferArgs& a) {
  const auto& [low, high, mode] = a.get<PadModeAttrs>();
  const Shape& x = a.in[0].shape;
  Shape out = x;
  if (low.size() != x.size() || high.size() != x.size())
    bad_operands(a, "pad-amount",
                 fmt::format("low and high need one entry for each of the {} axes", x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    if (low[i] == 0 && high[i] == 0) continue;
    if (low[i] < 0 || high[i] < 0)
      bad_operands(a, "pad-amount", fmt::format("amounts of axis {} must be 0 or more", i));
    if (x[i] == Dim(0))
      bad_operands(a, "pad-amount", fmt::format("axis {} has nothing to repeat", i));
    out[i] = x[i] + low[i] + high[i];
  }
  return {{a.in[0].dtype, out}};
}

// The place in [0, n) that stands for place i outside.
int64_t source_of(PadMode mode, int64_t i, int64_t n) {
  auto modulo = [](int64_t p, int64_t q) { return (p % q + q) % q; };
  switch (mode) {
    case PadMode::edge:
      return std::clamp<int64_t>(i, 0, n - 1);
    case PadMode::reflect: {
      if (n == 1) return 0;
      const int64_t r = modulo(i, 2 * (n - 1));
      return std::min(r, 2 * (n - 1) - r);
    }
    case PadMode::symmetric: {
      const int64_t r = modulo(i, 2 * n);
      return std::min(r, 2 * n - 1 - r);
    }
    case PadMode::wrap:
      return modulo(i, n);
  }
  return 0;
}

// The same in a program, for a size that is known when it is bound; x mod 0 is 0.
Value source_of(PadMode mode, Expr i, Expr n) {
  switch (mode) {
    case PadMode::edge:
      return op::minimum(op::maximum(i, i.like(0)), n - 1);
    case PadMode::reflect: {
      const Expr period = (n - 1) * 2, r = op::mod(i, period);
      return op::minimum(r, period - r);
    }
    case PadMode::symmetric: {
      const Expr period = n * 2, r = op::mod(i, period);
      return op::minimum(r, period - 1 - r);
    }
    case PadMode::wrap:
      return op::mod(i, n);
  }
  return i;
}

Values decompose_pad_mode(Builder& b, const Node& n, Operands in) {
  const auto& [low, high, mode] = n.get<PadModeAttrs>();
  Value x = in[0];
  for (size_t axis = 0; axis < low.size(); ++axis) {
    if (low[axis] == 0 && high[axis] == 0) continue;
    const Dim& whole = b.shape(x)[axis];
    if (!whole.is_static()) {
      const Expr to(b, op::iota(b, {}, {DType::I64, {whole + low[axis] + high[axis]}, 0}));
      const Expr count(b, dim_value(b, whole, DType::I64));
      x = op::gather(b, x, source_of(mode, to - static_cast<double>(low[axis]), count),
                     {static_cast<int64_t>(axis)});
      continue;
    }
    const int64_t size = whole.value();
    std::vector<int64_t> places;
    for (int64_t i = -low[axis]; i < size + high[axis]; ++i)
      places.push_back(source_of(mode, i, size));
    const auto count = static_cast<int64_t>(places.size());
    const Value indices = b.constant(Tensor::from<int64_t>({count}, places));
    x = op::gather(b, x, indices, {static_cast<int64_t>(axis)});
  }
  return {x};
}

// ---- without operands ---------------------------------------------------------------------------

constexpr OpDef source(std::string_view name, std::string_view doc, InferRule infer,
                       DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .arity = 0};
  d.infer = infer;
  d.decompose = decompose;
  d.not_differentiable = "it has no operands";
  return d;
}

void require_sizes(const InferArgs& a, const Shape& shape) {
  user_check(std::none_of(shape.begin(), shape.end(), is_negative), "negative-dim",
             "{}: the shape {} has a negative size", a.op.name, shape);
}

int64_t arange_size(const ArangeAttrs& a) {
  return std::max<int64_t>(0, static_cast<int64_t>(std::ceil((a.stop - a.start) / a.step)));
}

Types infer_arange(const InferArgs& a) {
  const auto& r = a.get<ArangeAttrs>();
  const bool whole = std::trunc(r.start) == r.start && std::trunc(r.step) == r.step;
  user_check(kReals.has(r.dtype), "dtype", "arange: does not make {}; allowed are {}", r.dtype,
             kReals.to_string());
  user_check(
      std::isfinite(r.start) && std::isfinite(r.stop) && std::isfinite(r.step) && r.step != 0 &&
          std::fabs((r.stop - r.start) / r.step) < 0x1p53 && (is_float(r.dtype) || whole),
      "fill-range", "arange: no {} from {} to {} in steps of {}", r.dtype, r.start, r.stop, r.step);
  return {{r.dtype, {arange_size(r)}}};
}

// start + step * i, computed in i64 or f64 and rounded once.
Expr steps(Builder& b, int64_t size, double start, double step, DType wide) {
  const Expr i(b, op::iota(b, {}, {wide, {size}, 0}));
  return i * step + start;
}

Types infer_linspace(const InferArgs& a) {
  const auto& l = a.get<LinspaceAttrs>();
  user_check(kFloats.has(l.dtype), "dtype", "linspace: does not make {}; allowed are {}", l.dtype,
             kFloats.to_string());
  user_check(l.count >= 0, "fill-range", "linspace: {} elements", l.count);
  return {{l.dtype, {l.count}}};
}

}  // namespace

namespace op {

constinit const Op<TriangleAttrs> tril =
    triangle("tril", "The last two axes of x on and below diagonal k, 0 above it.",
             decompose_triangle<op::le>);
constinit const Op<TriangleAttrs> triu =
    triangle("triu", "The last two axes of x on and above diagonal k, 0 below it.",
             decompose_triangle<op::ge>);

constinit const Op<DiagonalAttrs> diagonal = OpDef{
    .name = "diagonal",
    .doc =
        "The diagonal of two axes (above the main one for a positive offset) as the last axis, "
        "behind the others (NumPy's).",
    .linear = true,
    .infer = infer_diagonal,
    .normalise = normalise_diagonal,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      return {diagonal_of(b, in[0], n.get<DiagonalAttrs>())};
    },
};

constinit const Op<DiagAttrs> diag_embed = OpDef{
    .name = "diag_embed",
    .doc = "Square matrices whose given diagonal is the last axis of x, 0 elsewhere.",
    .linear = true,
    .infer = [](const InferArgs& a) -> Types {
      if (a.in[0].rank() < 1) bad_operands(a, "axis-range", "x must have rank 1 or more");
      return infer_decomposed(a);
    },
    .decompose = decompose_diag_embed,
};

constinit const Op<PadModeAttrs> pad_mode = OpDef{
    .name = "pad_mode",
    .doc =
        "x continued by `low` and `high` elements along every axis: with its first and last "
        "element "
        "(edge), mirrored without (reflect) or with (symmetric) repeating them, or from its other "
        "end (wrap).",
    .linear = true,
    .infer = infer_pad_mode,
    .decompose = decompose_pad_mode,
};

constinit const Op<> masked_fill = OpDef{
    .name = "masked_fill",
    .doc = "The rank-0 value where the mask (bool) is true, else x; x and mask broadcast.",
    .arity = 3,
    .operands = "x, mask, value",
    .infer = [](const InferArgs& a) -> Types {
      if (a.in[1].dtype != DType::Bool) bad_operands(a, "dtype", "the mask must be bool");
      if (a.in[2].dtype != a.in[0].dtype)
        bad_operands(a, "dtype-mixed", "the value must have x's dtype");
      const auto shape = broadcast_shapes(a.in[0].shape, a.in[1].shape);
      if (!shape || a.in[2].rank() != 0)
        bad_operands(a, "broadcast", "x and mask must broadcast, and the value must have rank 0");
      return {{a.in[0].dtype, *shape}};
    },
    .decompose = [](Builder& b, const Node&, Operands in) -> Values {
      return {op::select(b, in[1], in[2], in[0])};
    },
};

constinit const Op<FullAttrs> full =
    named("", source(
                  "full", "A tensor of one value: zeros, ones.",
                  [](const InferArgs& a) -> Types {
                    const auto& f = a.get<FullAttrs>();
                    require_sizes(a, f.shape);
                    return {{f.dtype, f.shape}};
                  },
                  [](Builder& b, const Node& n, Operands) -> Values {
                    const auto& f = n.get<FullAttrs>();
                    return {rlx::full(b, {f.dtype, f.shape}, f.value)};
                  }));

constinit const Op<EyeAttrs> eye = named(
    "", source(
            "eye", "A matrix with ones on diagonal k and zeros elsewhere.",
            [](const InferArgs& a) -> Types {
              const auto& e = a.get<EyeAttrs>();
              require_sizes(a, {e.rows, e.columns});
              return {{e.dtype, {e.rows, e.columns}}};
            },
            [](Builder& b, const Node& n, Operands) -> Values {
              const auto& e = n.get<EyeAttrs>();
              const Expr number = diagonal_number(b, e.rows, e.columns);
              return {cast_to(b, op::eq(number, number.like(static_cast<double>(e.k))), e.dtype)};
            }));

constinit const Op<ArangeAttrs> arange = named(
    "",
    source("arange", "start, start + step, .. as long as stop is not reached; integers are exact.",
           infer_arange, [](Builder& b, const Node& n, Operands) -> Values {
             const auto& a = n.get<ArangeAttrs>();
             const DType wide = is_float(a.dtype) ? DType::F64 : DType::I64;
             return {cast_to(b, steps(b, arange_size(a), a.start, a.step, wide), a.dtype)};
           }));

constinit const Op<LinspaceAttrs> linspace = named(
    "", source("linspace",
               "`count` numbers in equal steps from start to stop, which is the last one "
               "(exactly), or with "
               "endpoint = false the one behind it.",
               infer_linspace, [](Builder& b, const Node& n, Operands) -> Values {
                 const auto& l = n.get<LinspaceAttrs>();
                 const int64_t parts = std::max<int64_t>(1, l.endpoint ? l.count - 1 : l.count);
                 const double step = (l.stop - l.start) / static_cast<double>(parts);
                 Expr y = steps(b, l.count, l.start, step, DType::F64);
                 if (l.endpoint && l.count > 1) {
                   const Expr i(b, op::iota(b, {}, {DType::I64, {l.count}, 0}));
                   const Value last = op::eq(i, i.like(static_cast<double>(l.count - 1)));
                   y = Expr(b, op::select(b, last, y.like(l.stop), y));
                 }
                 return {cast_to(b, y, l.dtype)};
               }));

}  // namespace op

}  // namespace rlx
