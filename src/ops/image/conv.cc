#include "rlx/ops/image/conv.h"

#include <algorithm>
#include <numeric>

#include "rlx/ops/evaluate.h"
#include "rlx/ops/image/windows.h"
#include "rlx/ops/movement/movement.h"

namespace rlx {
namespace {

// ---- inference ----------------------------------------------------------------------------------

Shape spatial(const Shape& s) { return {s.begin() + 2, s.end()}; }

Window window_of(const ConvAttrs& c, const Ints& kernel) {
  return {kernel, c.stride, c.dilation, c.low, c.high};
}

size_t axes_of_rank(int64_t rank) { return at(std::max<int64_t>(rank - 2, 0)); }

template <class A>
void normalise_conv(void* attrs, std::string_view, std::span<const Type> in) {
  A& c = *static_cast<A*>(attrs);
  fill_window(c, in[0].rank());
  if constexpr (std::is_same_v<A, ConvTransposeAttrs>)
    if (c.output_padding.empty()) c.output_padding.assign(axes_of_rank(in[0].rank()), 0);
}

void require_conv_ranks(const InferArgs& a) {
  const int64_t rank = a.in[0].rank();
  if (rank < 3 || rank > 5 || a.in[1].rank() != rank)
    bad_operands(a, "conv-shape",
                 "operands must have the same rank, with 1, 2 or 3 axes besides two");
}

void require_ranks(const InferArgs& a) {
  require_same_dtype(a);
  require_conv_ranks(a);
}

Ints kernel_of(const InferArgs& a, const Shape& sizes) {
  Ints kernel;
  for (const Dim& d : sizes) {
    if (!d.is_static())
      bad_operands(a, "conv-kernel", fmt::format("the kernel size {} must be known", d));
    kernel.push_back(d.value());
  }
  return kernel;
}
Ints kernel_of(const InferArgs& a, const Type& w) { return kernel_of(a, spatial(w.shape)); }

Dim per_group(const InferArgs& a, const Dim& channels, const Dim& groups) {
  if (channels == Dim(0) && !is_negative(groups - 1)) return 0;
  const auto share = is_negative(groups - 1) ? std::nullopt : channels.divide(groups);
  if (!share)
    bad_operands(a, "conv-groups",
                 fmt::format("{} groups must divide {} channels", groups, channels));
  return *share;
}

void require_equal(const InferArgs& a, const Dim& found, const Dim& wanted, std::string_view what) {
  if (differ(found, wanted))
    bad_operands(a, "conv-shape", fmt::format("{} is {}, it must be {}", what, found, wanted));
}

Shape counts(const InferArgs& a, const Shape& size, const Window& w) {
  require_window(a.op.name, w);
  Shape out;
  for (size_t i = 0; i < size.size(); ++i) out.push_back(count_windows(a.op.name, size[i], w, i));
  return out;
}

// The spatial sizes of dy must be those that a convolution of `size` has.
void require_result(const InferArgs& a, const Type& dy, const Shape& size, const Window& w) {
  if (size.size() != w.axes())
    bad_operands(
        a, "conv-shape",
        fmt::format("the kernel has {} spatial axes and the image {}", w.axes(), size.size()));
  const Shape count = counts(a, size, w);
  for (size_t i = 0; i < count.size(); ++i)
    require_equal(a, dy.shape[i + 2], count[i], fmt::format("spatial axis {} of dy", i));
}

Type image(const Type& like, const Dim& channels, const Shape& size) {
  Type t{like.dtype, {like.shape[0], channels}};
  t.shape.insert(t.shape.end(), size.begin(), size.end());
  return t;
}

Types infer_conv(const InferArgs& a) {
  require_same_dtype(a);
  return {{a.in[0].dtype, conv_shape(a, a.get<ConvAttrs>())}};
}

Types infer_channels_last(const InferArgs& a) {
  require_ranks(a);
  const auto& c = a.get<ConvAttrs>();
  const Shape &x = a.in[0].shape, &w = a.in[1].shape;
  const int64_t in = a.in[1].rank() - 2;  // the axis of w's input channels
  require_equal(a, w[at(in)], per_group(a, x.back(), c.groups), fmt::format("axis {} of w", in));
  per_group(a, w.back(), c.groups);
  const Window window = window_of(c, kernel_of(a, Shape(w.begin(), w.end() - 2)));
  Type y{a.in[0].dtype, {x[0]}};
  const Shape count = counts(a, Shape(x.begin() + 1, x.end() - 1), window);
  y.shape.insert(y.shape.end(), count.begin(), count.end());
  y.shape.push_back(w.back());
  return {y};
}

Types infer_backward_input(const InferArgs& a) {
  require_ranks(a);
  const auto& c = a.get<ConvBackwardInputAttrs>();
  const Type &dy = a.in[0], &w = a.in[1];
  require_equal(a, dy.shape[1], w.shape[0], "axis 1 of dy");
  per_group(a, w.shape[0], c.groups);
  require_result(a, dy, c.size, window_of(c, kernel_of(a, w)));
  return {image(dy, w.shape[1] * c.groups, c.size)};
}

Types infer_backward_weight(const InferArgs& a) {
  require_ranks(a);
  const auto& c = a.get<ConvBackwardWeightAttrs>();
  const Type &x = a.in[0], &dy = a.in[1];
  require_equal(a, dy.shape[0], x.shape[0], "axis 0 of dy");
  per_group(a, dy.shape[1], c.groups);
  require_result(a, dy, spatial(x.shape), window_of(c, c.kernel));
  Type dw{x.dtype, {dy.shape[1], per_group(a, x.shape[1], c.groups)}};
  dw.shape.insert(dw.shape.end(), c.kernel.begin(), c.kernel.end());
  return {dw};
}

Types infer_conv_transpose(const InferArgs& a) {
  require_ranks(a);
  const auto& c = a.get<ConvTransposeAttrs>();
  const Type &x = a.in[0], &w = a.in[1];
  const Window window = window_of(c, kernel_of(a, w));
  require_window(a.op.name, window);
  require_equal(a, x.shape[1], w.shape[0], "axis 1 of x");
  per_group(a, x.shape[1], c.groups);
  if (c.output_padding.size() != window.axes())
    bad_operands(a, "window", "output_padding needs one entry for each spatial axis");
  Shape size;
  for (size_t i = 0; i < window.axes(); ++i) {
    size.push_back((x.shape[i + 2] - 1) * c.stride[i] + window.extent(i) + c.output_padding[i] -
                   c.low[i] - c.high[i]);
    if (c.output_padding[i] < 0 || x.shape[i + 2] == Dim(0) || is_negative(size.back()))
      bad_operands(a, "conv-shape",
                   fmt::format("spatial axis {} of size {} gives {} positions", i, x.shape[i + 2],
                               size.back()));
  }
  return {image(x, w.shape[1] * c.groups, size)};
}

// ---- reference values ---------------------------------------------------------------------------

// Calls f(xi, wi, yi), positions in x, w and y, for every product in the sums.
template <class F>
void for_each_product(const ConvAttrs& c, const Ints& x, const Ints& w, const Ints& y, F f) {
  const int64_t groups = c.groups.value(), share_in = w[1], share_out = w[0] / groups;
  const Ints xs(x.begin() + 2, x.end()), ws(w.begin() + 2, w.end()), ys(y.begin() + 2, y.end());
  for_each_index({x[0], groups, share_out, share_in}, [&](const Ints& i) {
    const int64_t o = i[1] * share_out + i[2];
    const int64_t x_plane = i[0] * x[1] + i[1] * share_in + i[3], w_plane = o * share_in + i[3],
                  y_plane = i[0] * y[1] + o;
    for_each_index(ys, [&](const Ints& p) {
      for_each_index(ws, [&](const Ints& k) {
        int64_t xi = x_plane, wi = w_plane, yi = y_plane;
        for (size_t d = 0; d < p.size(); ++d) {
          const int64_t position = p[d] * c.stride[d] + k[d] * c.dilation[d] - c.low[d];
          if (position < 0 || position >= xs[d]) return;
          xi = xi * xs[d] + position, wi = wi * ws[d] + k[d], yi = yi * ys[d] + p[d];
        }
        f(xi, wi, yi);
      });
    });
  });
}

enum class By { y, x, w };  // whose elements are summed

template <class T, By by>
Tensor sum_products(const EvalArgs& e, const ConvAttrs& c) {
  using Wide = std::conditional_t<std::is_same_v<T, uint64_t>, int64_t, T>;
  Tensor out = e.make();
  std::vector<T> sums(at(out.elements()));
  auto value = [&](size_t i, int64_t k) { return static_cast<T>(detail::fetch<Wide>(e.in[i], k)); };
  const Ints &a = e.in[0].sizes(), &b = e.in[1].sizes(), &s = out.sizes();
  if constexpr (by == By::y)
    for_each_product(c, a, b, s, [&](int64_t xi, int64_t wi, int64_t yi) {
      sums[at(yi)] += value(0, xi) * value(1, wi);
    });
  else if constexpr (by == By::x)
    for_each_product(c, s, b, a, [&](int64_t xi, int64_t wi, int64_t yi) {
      sums[at(xi)] += value(0, yi) * value(1, wi);
    });
  else
    for_each_product(c, a, s, b, [&](int64_t xi, int64_t wi, int64_t yi) {
      sums[at(wi)] += value(0, xi) * value(1, yi);
    });
  for (int64_t i = 0; i < out.elements(); ++i) detail::put(out, i, static_cast<Wide>(sums[at(i)]));
  return out;
}

template <class A, By by>
Tensors evaluate_conv(const EvalArgs& e) {
  const A& c = e.get<A>();
  const DType d = e.in[0].dtype();
  if (is_float(d)) return {sum_products<double, by>(e, c)};
  if (is_complex(d)) return {sum_products<Complex, by>(e, c)};
  return {sum_products<uint64_t, by>(e, c)};  // wraps
}

// ---- derivatives --------------------------------------------------------------------------------

Ints kernel_of(Builder& b, Value w) { return spatial(b.shape(w)).sizes(); }

Value sum_by_x(Builder& b, const ConvAttrs& c, Value dy, Value w, const Shape& x) {
  return op::conv_backward_input(b, dy, w, {c, spatial(x)});
}
Value sum_by_w(Builder& b, const ConvAttrs& c, Value x, Value dy, const Ints& kernel) {
  return op::conv_backward_weight(b, x, dy, {c, kernel});
}

Values vjp_conv(Builder& b, const VjpArgs& a) {
  const auto& c = a.node.get<ConvAttrs>();
  const Value x = a.in[0], w = a.in[1], ct = a.cotangents[0];
  Values out{kNone, kNone};
  if (a.wanted[0]) out[0] = sum_by_x(b, c, ct, conj_if_complex(b, w), Shape(b.shape(x)));
  if (a.wanted[1]) out[1] = sum_by_w(b, c, conj_if_complex(b, x), ct, kernel_of(b, w));
  return out;
}

Values vjp_backward_input(Builder& b, const VjpArgs& a) {
  const auto& c = a.node.get<ConvBackwardInputAttrs>();
  const Value dy = a.in[0], w = a.in[1], ct = a.cotangents[0];
  Values out{kNone, kNone};
  if (a.wanted[0]) out[0] = op::conv(b, ct, conj_if_complex(b, w), ConvAttrs(c));
  if (a.wanted[1]) out[1] = sum_by_w(b, c, ct, conj_if_complex(b, dy), kernel_of(b, w));
  return out;
}

Values vjp_backward_weight(Builder& b, const VjpArgs& a) {
  const auto& c = a.node.get<ConvBackwardWeightAttrs>();
  const Value x = a.in[0], dy = a.in[1], ct = a.cotangents[0];
  Values out{kNone, kNone};
  if (a.wanted[0]) out[0] = sum_by_x(b, c, conj_if_complex(b, dy), ct, Shape(b.shape(x)));
  if (a.wanted[1]) out[1] = op::conv(b, conj_if_complex(b, x), ct, ConvAttrs(c));
  return out;
}

// ---- vmap ---------------------------------------------------------------------------------------

// [.., a, c, ..] -> [.., a * c, ..] at an axis, and back with a in front.
Value merge_axes(Builder& b, Value x, size_t axis) {
  Shape shape = b.shape(x);
  shape[axis] = shape[axis] * shape[axis + 1];
  shape.erase(shape.begin() + static_cast<int64_t>(axis) + 1);
  return op::reshape(b, x, {shape});
}

// [B, N, C, ..] -> [N, B * C, ..]
Value into_channels(Builder& b, Value x) { return merge_axes(b, swap_blocks(b, x, 0, 1, 1), 1); }

Value batched(Builder& b, const VmapArgs& a, size_t i) {
  return a.batched[i] ? a.in[i] : batch_operand(b, a.in[i], a.size);
}

// An unbatched weight: the batch is more images. Else it is more groups.
template <class A, By by>
Values vmap_conv(Builder& b, const VmapArgs& a) {
  A attrs = a.node.get<A>();
  const Shape whole = prepend(a.size, a.node.type().shape);
  if (by != By::w && !a.batched[1]) {
    const Value y = b.emit(*a.node.op, attrs, Values{merge_axes(b, a.in[0], 0), a.in[1]})[0];
    return {reshape_to(b, y, whole)};
  }
  attrs.groups = attrs.groups * a.size;
  const Value first = into_channels(b, batched(b, a, 0)), second = batched(b, a, 1);
  const Values in{first, by == By::w ? into_channels(b, second) : merge_axes(b, second, 0)};
  const Value y = b.emit(*a.node.op, attrs, in)[0];
  if (by == By::w) return {reshape_to(b, y, whole)};
  Shape split = whole;
  std::swap(split[0], split[1]);
  return {swap_blocks(b, reshape_to(b, y, split), 0, 1, 1)};
}

// Every element of y meets the part of w that makes its channel.
template <By by>
double cost_of_conv(const Node& n, std::span<const Type> in) {
  const Type &y = by == By::y   ? n.type()
                  : by == By::x ? in[0]
                                : in[1],
             &w = by == By::w ? n.type() : in[1];
  const double channels = element_count({DType::F32, {w.shape[0]}});
  return 1 + element_count(y) * (channels > 0 ? element_count(w) / channels : 0);
}

// The transpose is the sum by x of the convolution that leads back: what output_padding adds at the
// end is cropped there.
Values decompose_conv_transpose(Builder& b, const Node& n, Operands in) {
  const auto& t = n.get<ConvTransposeAttrs>();
  ConvAttrs c = t;
  for (size_t i = 0; i < c.high.size(); ++i) c.high[i] -= t.output_padding[i];
  return {sum_by_x(b, c, in[0], in[1], n.type().shape)};
}

// Weights have no images: their output channels, which stand first, are last with channels last.
Values decompose_channels_last(Builder& b, const Node& n, Operands in) {
  const int64_t rank = n.type().rank();
  Ints weight{rank - 1, rank - 2};
  for (int64_t i = 0; i < rank - 2; ++i) weight.push_back(i);
  const Value x = transpose_to(b, in[0], channels_to_first(rank)),
              w = transpose_to(b, in[1], weight);
  return {transpose_to(b, op::conv(b, x, w, n.get<ConvAttrs>()), channels_to_last(rank))};
}

template <class A, By by>
constexpr OpDef convolution(std::string_view name, std::string_view doc, std::string_view reference,
                            InferRule infer, VjpRule vjp) {
  OpDef d{.name = name,
          .doc = doc,
          .reference = reference,
          .kind = Kind::contraction,
          .arity = 2,
          .dtypes = kNumbers};
  d.infer = infer;
  d.normalise = normalise_conv<A>;
  d.eval = evaluate_conv<A, by>;
  d.jvp = jvp_bilinear;
  d.vjp = vjp;
  d.vmap = vmap_conv<A, by>;
  d.cost = cost_of_conv<by>;
  return d;
}

}  // namespace

Shape conv_shape(const InferArgs& a, const ConvAttrs& c) {
  require_conv_ranks(a);
  const Type &x = a.in[0], &w = a.in[1];
  require_equal(a, w.shape[1], per_group(a, x.shape[1], c.groups), "axis 1 of w");
  per_group(a, w.shape[0], c.groups);
  return image(x, w.shape[0],
               counts(a, spatial(x.shape), window_of(c, kernel_of(a, spatial(w.shape)))))
      .shape;
}

void fill_window(ConvAttrs& c, int64_t rank) {
  fill_window(c.stride, c.dilation, c.low, c.high, axes_of_rank(rank));
}

Ints channels_to_last(int64_t rank) {
  Ints perm(at(rank));
  std::iota(perm.begin(), perm.end(), 1);
  perm.front() = 0, perm.back() = 1;
  return perm;
}

Ints channels_to_first(int64_t rank) {
  Ints perm(at(rank));
  std::iota(perm.begin(), perm.end(), -1);
  perm[0] = 0, perm[1] = rank - 1;
  return perm;
}

namespace op {

constinit const Op<ConvAttrs> conv =
    named("x, w", convolution<ConvAttrs, By::y>(
                      "conv",
                      "Cross-correlation of x [N, C_in, ..] with w [C_out, C_in / groups, k..] "
                      "over 1 to 3 spatial "
                      "axes: y[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation - "
                      "low] * w[o, c, k], "
                      "zero outside x. f16 and bf16 are summed in f32 or wider, integers wrap.",
                      "Conv", infer_conv, vjp_conv));

constinit const Op<ConvAttrs> conv_channels_last = OpDef{
    .name = "conv_channels_last",
    .doc =
        "conv of x [N, .., C_in] with w [k.., C_in / groups, C_out], channels behind the 1 to 3 "
        "spatial "
        "axes: [N, .., C_out].",
    .role = Role::product,
    .arity = 2,
    .operands = "x, w",
    .dtypes = kNumbers,
    .infer = infer_channels_last,
    .normalise = normalise_conv<ConvAttrs>,
    .decompose = decompose_channels_last,
};

constinit const Op<ConvBackwardInputAttrs> conv_backward_input = named(
    "dy, w",
    convolution<ConvBackwardInputAttrs, By::x>(
        "conv_backward_input",
        "The transpose of conv in x, for an x of the given spatial size: dx[n, c, p * stride + k * "
        "dilation - low] += dy[n, o, p] * w[o, c, k].",
        "Conv2dBackwardInput", infer_backward_input, vjp_backward_input));

constinit const Op<ConvBackwardWeightAttrs> conv_backward_weight = named(
    "x, dy",
    convolution<ConvBackwardWeightAttrs, By::w>(
        "conv_backward_weight",
        "The transpose of conv in w, for a w of the given kernel: dw[o, c, k] = sum over n, p of "
        "x[n, c, p * stride + k * dilation - low] * dy[n, o, p].",
        "Conv2dBackwardWeight", infer_backward_weight, vjp_backward_weight));

constinit const Op<ConvTransposeAttrs> conv_transpose = OpDef{
    .name = "conv_transpose",
    .doc =
        "Transposed convolution of x [N, C_in, ..] with w [C_in, C_out / groups, k..]: y[n, o, p * "
        "stride + k * dilation - low] += x[n, c, p] * w[c, o, k]; what falls outside is dropped. "
        "output_padding makes the result larger at the end.",
    .reference = "ConvTranspose2d",
    .arity = 2,
    .operands = "x, w",
    .dtypes = kNumbers,
    .infer = infer_conv_transpose,
    .normalise = normalise_conv<ConvTransposeAttrs>,
    .decompose = decompose_conv_transpose,
};

}  // namespace op

namespace {
constexpr const OpDef* kConvOps[] = {&op::conv, &op::conv_channels_last, &op::conv_transpose,
                                     &op::conv_backward_input, &op::conv_backward_weight};
}  // namespace
constinit const Family kConv{"convolution", kConvOps};

}  // namespace rlx
