// Products and convolutions of 8-bit integers.
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/image/windows.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/quant/quant_rules.h"
#include "rlx/ops/quant/quantise.h"

namespace rlx {
namespace {

Value to_i32(Builder& b, Value v) { return cast_to(b, v, DType::I32); }

// ---- in i32 ---------------------------------------------------------------------------------------------

constexpr DTypeSet kBytes{DType::U8, DType::I8};

// Operands are bytes, and each zero point has the dtype of what it belongs to.
void require_bytes(const InferArgs& a) {
  for (size_t i = 1; i < a.in.size(); ++i)
    if (a.in[i].dtype != a.in[i % 2].dtype || !kBytes.has(a.in[i].dtype))
      bad_operands(a, "dtype", "operands are u8 or i8, zero points of the same");
}

Types infer_matmul_integer(const InferArgs& a) {
  const Shape &x = a.in[0].shape, &y = a.in[1].shape;
  require_bytes(a);
  if (x.rank() < 2 || y.rank() < 2) bad_operands(a, "matmul-rank", "operands have rank 2 or more");
  if (differ(x.back(), y[at(y.rank() - 2)]))
    bad_operands(a, "matmul-inner",
                 fmt::format("{} columns of a meet {} rows of b; they must be equal", x.back(),
                             y[at(y.rank() - 2)]));
  const Dim lengths[] = {x[at(x.rank() - 2)], y.back()};
  for (size_t i = 2; i < a.in.size(); ++i)
    if (a.in[i].rank() > 1 || (a.in[i].rank() == 1 && differ(a.in[i].shape[0], lengths[i - 2])))
      bad_operands(a, "quant-operands",
                   "a zero point is a scalar or has one element per row of a or column of b");
  auto shape = broadcast_shapes(Shape(x.begin(), x.end() - 2), Shape(y.begin(), y.end() - 2));
  if (!shape) bad_operands(a, "broadcast", "the batch dims do not broadcast");
  shape->push_back(lengths[0]);
  shape->push_back(lengths[1]);
  return {{DType::I32, *shape}};
}

Values decompose_matmul_integer(Builder& b, const Node&, Operands in) {
  Expr x(b, to_i32(b, in[0])), y(b, to_i32(b, in[1]));
  if (in.size() > 2) {
    const Value zero = to_i32(b, in[2]);
    x = x - Expr(b, b.shape(zero).empty() ? zero : reshape_to(b, zero, {b.shape(zero)[0], 1}));
  }
  if (in.size() > 3) y = y - Expr(b, to_i32(b, in[3]));
  return {op::matmul(b, x, y)};
}

Types infer_conv_integer(const InferArgs& a) {
  require_bytes(a);
  const Shape shape = conv_shape(a, a.get<ConvAttrs>());
  auto one_each = [&](size_t i, const Dim& count) {
    return a.in[i].rank() == 0 || (a.in[i].rank() == 1 && !differ(a.in[i].shape[0], count));
  };
  if (a.in.size() > 2 && a.in[2].rank() != 0)
    bad_operands(a, "quant-operands", "the zero point of x is a scalar");
  if (a.in.size() > 3 && !one_each(3, shape[1]))
    bad_operands(a, "quant-operands",
                 "the zero point of w is a scalar or has one element per output channel");
  return {{DType::I32, shape}};
}

// Around their zero points, so that padding with 0 is padding with x's.
Values decompose_conv_integer(Builder& b, const Node& n, Operands in) {
  Expr x(b, to_i32(b, in[0])), w(b, to_i32(b, in[1]));
  if (in.size() > 2) x = x - Expr(b, to_i32(b, in[2]));
  if (in.size() > 3) {
    const Value zero = to_i32(b, in[3]);
    w = w - Expr(b, b.shape(zero).empty() ? zero : channel_view(b, zero, w.rank(), 0));
  }
  return {op::conv(b, x, w, n.get<ConvAttrs>())};
}

// ---- requantised to i8 ----------------------------------------------------------------------------------

// clamp(rhaz(f32(acc) * mult) + zero_point) as i8.
Value requantise(Builder& b, Value acc, double mult, int64_t zero_point) {
  const Expr sum(b, cast_to(b, acc, DType::F32));
  const Expr q = round_half_away(sum * mult) + static_cast<double>(zero_point);
  return cast_to(b, op::clamp(b, q, q.like(-128), q.like(127)), DType::I8);
}

void require_dtypes(const InferArgs& a, DType x, DType w, DType bias) {
  if (a.in[0].dtype != x || a.in[1].dtype != w || a.in[2].dtype != bias)
    bad_operands(a, "dtype", fmt::format("the operands must be {}, {} and {}", x, w, bias));
}

void require_zero_points(const InferArgs& a, int64_t x, int64_t w) {
  for (int64_t z : {x, w})
    if (z < -128 || z > 127)
      bad_operands(a, "quant-operands", fmt::format("a zero point must be an i8, not {}", z));
}

// x and w, and their zero points where one is not 0: the operands of the op in i32.
Values with_zero_points(Builder& b, Operands in, int64_t x, int64_t w) {
  Values out{in[0], in[1]};
  if (!x && !w) return out;
  for (int64_t z : {x, w}) {
    Tensor t(DType::I8, {});
    t.set_int(0, z);
    out.push_back(b.constant(std::move(t)));
  }
  return out;
}

Types infer_q_matmul(const InferArgs& a) {
  require_dtypes(a, DType::I8, DType::I8, DType::I32);
  require_zero_points(a, a.get<QMatmulAttrs>().x_zp, a.get<QMatmulAttrs>().w_zp);
  const Shape &x = a.in[0].shape, &w = a.in[1].shape, &bias = a.in[2].shape;
  if (x.rank() < 2 || w.rank() != 2) bad_operands(a, "matmul-rank", "x is [.., M, K] and w [K, N]");
  if (differ(x.back(), w[0]))
    bad_operands(
        a, "matmul-inner",
        fmt::format("{} columns of x meet {} rows of w; they must be equal", x.back(), w[0]));
  if (bias.rank() != 1 || differ(bias[0], w[1]))
    bad_operands(a, "quant-operands", fmt::format("the bias must be [{}]", w[1]));
  Shape shape = x;
  shape.back() = w[1];
  return {{DType::I8, shape}};
}

Values decompose_q_matmul(Builder& b, const Node& n, Operands in) {
  const auto& q = n.get<QMatmulAttrs>();
  const Values operands = with_zero_points(b, in, q.x_zp, q.w_zp);
  const Expr acc(b, b.emit(*&op::matmul_integer, NoAttrs{}, operands)[0]);
  return {requantise(b, acc + Expr(b, in[2]), q.mult, q.out_zp)};
}

Types infer_q_conv(const InferArgs& a) {
  const auto& q = a.get<QConvAttrs>();
  require_dtypes(a, DType::I8, DType::I8, DType::I32);
  require_zero_points(a, q.x_zp, q.w_zp);
  const Shape &x = a.in[0].shape, &w = a.in[1].shape, &bias = a.in[2].shape;
  auto refuse = [&](const std::string& why) { bad_operands(a, "quant-conv", why); };
  if (x.rank() != 4 || w.rank() != 4 || bias.rank() != 1)
    refuse("x is [N, C, H, W], w [O, C / groups, kh, kw], bias [O]");
  for (size_t i = 1; i < 4; ++i)
    if (!x[i].is_static() || !w[i].is_static()) refuse("all sizes but N must be known");
  if (!w[0].is_static() || q.groups < 1 || w[0].value() % q.groups != 0 ||
      !(x[1] == w[1] * q.groups) || differ(bias[0], w[0]))
    refuse(fmt::format("{} groups of channels do not fit", q.groups));
  const Window window{.kernel = {w[2].value(), w[3].value()},
                      .stride = q.stride,
                      .dilation = q.dilation,
                      .low = q.padding,
                      .high = q.padding};
  require_window(a.op.name, window);
  for (int64_t p : q.padding)
    if (p < 0) refuse(fmt::format("padding must be 0 or more, not {}", p));
  return {{DType::I8,
           {x[0], w[0], count_windows(a.op.name, x[2], window, 0),
            count_windows(a.op.name, x[3], window, 1)}}};
}

Values decompose_q_conv(Builder& b, const Node& n, Operands in) {
  const auto& q = n.get<QConvAttrs>();
  const ConvAttrs c{q.stride, q.dilation, q.padding, q.padding, q.groups};
  const Values operands = with_zero_points(b, in, q.x_zp, q.w_zp);
  const Expr acc(b, b.emit(*&op::conv_integer, c, operands)[0]);
  const Expr bias(b, channel_view(b, in[2], acc.rank(), 1));
  return {requantise(b, acc + bias, q.mult, q.out_zp)};
}

constexpr std::string_view kIntegers = "its operands are integers";

}  // namespace

namespace op {

constinit const Op<> matmul_integer = OpDef{
    .name = "matmul_integer",
    .doc =
        "(a - zero point) @ (b - zero point) of u8 or i8 matrices in i32, which wraps. Zero points "
        "are scalars, or "
        "one per row of a and column of b; those that are not given are 0.",
    .numerics = Numerics::exact,
    .arity = 4,
    .min_arity = 2,
    .operands = "a, b, a_zero_point?, b_zero_point?",
    .dtypes = kBytes,
    .infer = infer_matmul_integer,
    .decompose = decompose_matmul_integer,
    .not_differentiable = kIntegers,
};

constinit const Op<ConvAttrs> conv_integer = OpDef{
    .name = "conv_integer",
    .doc =
        "Cross-correlation as conv's, of x - zero point with w - zero point, u8 or i8, in i32, "
        "which wraps; padded taps add nothing. The zero point of x is a scalar, that of w a scalar "
        "or one per output channel; those that are not given are 0.",
    .numerics = Numerics::exact,
    .arity = 4,
    .min_arity = 2,
    .operands = "x, w, x_zero_point?, w_zero_point?",
    .dtypes = kBytes,
    .infer = infer_conv_integer,
    .normalise =
        [](void* attrs, std::string_view, std::span<const Type> in) {
          fill_window(*static_cast<ConvAttrs*>(attrs), in[0].rank());
        },
    .decompose = decompose_conv_integer,
    .not_differentiable = kIntegers,
};

constinit const Op<QMatmulAttrs> q_matmul = OpDef{
    .name = "q_matmul",
    .doc =
        "i8 product: acc = bias + sum over k of (x - x_zp)(w - w_zp) in i32, then "
        "clamp(rhaz(f32(acc) * mult) + "
        "out_zp, -128, 127).",
    .reference = "QMatMul",
    .numerics = Numerics::exact,
    .arity = 3,
    .operands = "x, w, bias",
    .dtypes = {DType::I8},
    .infer = infer_q_matmul,
    .decompose = decompose_q_matmul,
    .not_differentiable = kIntegers,
};

constinit const Op<QConvAttrs> q_conv2d = OpDef{
    .name = "q_conv2d",
    .doc =
        "i8 convolution, NCHW: acc = bias + the sum over taps of (x - x_zp)(w - w_zp) in i32, "
        "padded taps adding "
        "nothing, then clamp(rhaz(f32(acc) * mult) + out_zp, -128, 127).",
    .reference = "QConv2d",
    .numerics = Numerics::exact,
    .arity = 3,
    .operands = "x, w, bias",
    .dtypes = {DType::I8},
    .infer = infer_q_conv,
    .decompose = decompose_q_conv,
    .not_differentiable = kIntegers,
};

}  // namespace op

}  // namespace rlx
