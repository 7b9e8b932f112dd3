// Discrete Fourier transforms.
#include "rlx/ops/signal/fft.h"

#include <algorithm>
#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"

namespace rlx {

double fft_scale(FftNorm norm, bool inverse, int64_t n) {
  if (norm == FftNorm::ortho) return 1 / std::sqrt(static_cast<double>(n));
  return norm == (inverse ? FftNorm::backward : FftNorm::forward) ? 1 / static_cast<double>(n)
                                                                  : 1.0;
}

namespace {

// The norms of version 1, in their order.
constexpr std::pair<std::string_view, FftNorm> kFirstNorms[] = {
    {"backward", FftNorm::none}, {"forward", FftNorm::backward}, {"ortho", FftNorm::ortho}};

}  // namespace

void Codec<FftNorm>::print(Printer& p, FftNorm v) {
  p.out += enum_names(v)[static_cast<size_t>(v)];
}
void Codec<FftNorm>::read(Reader& r, FftNorm& v) {
  if (r.version < 2) {
    for (const auto& [name, norm] : kFirstNorms)
      if (r.lex.accept(name)) return void(v = norm);
    r.lex.error("expected one of backward|forward|ortho (version 1)");
  }
  const auto names = enum_names(v);
  for (size_t i = 0; i < names.size(); ++i)
    if (r.lex.accept(names[i])) return void(v = static_cast<FftNorm>(i));
  r.lex.error("expected one of " + type());
}
void Codec<FftNorm>::write(ByteWriter& w, FftNorm v) { w.varint(static_cast<uint64_t>(v)); }
void Codec<FftNorm>::load(ByteReader& r, FftNorm& v) {
  const uint64_t i = r.varint();
  const size_t count = r.version < 2 ? std::size(kFirstNorms) : enum_names(v).size();
  if (i >= count) r.error("enum", "{} is not the number of any of {}", i, type());
  v = r.version < 2 ? kFirstNorms[i].second : static_cast<FftNorm>(i);
}

namespace {

constexpr DTypeSet kTransformed{DType::C64, DType::F32, DType::F64};

// ---- inference ----------------------------------------------------------------------------------

void require_length(const InferArgs& a, int64_t axis) {
  const Type& x = a.in[0];
  const auto size = x.shape[at(axis)].static_value();
  if (!size) return;
  if (*size == 0) bad_operands(a, "fft-length", fmt::format("axis {} has no elements", axis));
  if (!is_complex(x.dtype) && *size % 2)
    bad_operands(
        a, "fft-length",
        fmt::format("axis {} holds N real and N imaginary parts, so its size must be even", axis));
}

Types infer_fft(const InferArgs& a) {
  require_length(a, a.get<FftAttrs>().axis);
  return {a.in[0]};
}

Types infer_fftn(const InferArgs& a) {
  const Ints& axes = a.get<FftnAttrs>().axes;
  if (axes.size() > 1 && !is_complex(a.in[0].dtype))
    bad_operands(a, "fft-axes", "several axes need c64");
  for (int64_t axis : axes) require_length(a, axis);
  return {a.in[0]};
}

int64_t known_length(const InferArgs& a, int64_t axis) {
  const auto n = a.in[0].shape[at(axis)].static_value();
  if (!n || *n < 1)
    bad_operands(a, "fft-length",
                 fmt::format("the size of axis {} must be known and at least 1", axis));
  return *n;
}

Types infer_rfft(const InferArgs& a) {
  const int64_t axis = a.get<RfftAttrs>().axis;
  const int64_t n = known_length(a, axis);
  Shape out = a.in[0].shape;
  out[at(axis)] = n / 2 + 1;
  return {{DType::C64, out}};
}

int64_t irfft_length(const IrfftAttrs& attrs, const Shape& x) {
  return attrs.n ? attrs.n : 2 * (x[at(attrs.axis)].value() - 1);
}

Types infer_irfft(const InferArgs& a) {
  const auto& attrs = a.get<IrfftAttrs>();
  known_length(a, attrs.axis);
  const int64_t n = irfft_length(attrs, a.in[0].shape);
  const Dim& half = a.in[0].shape[at(attrs.axis)];
  if (n < 1 || !(half == Dim(n / 2 + 1)))
    bad_operands(a, "fft-length",
                 fmt::format("{} real numbers have a half spectrum of n / 2 + 1, not {}", n, half));
  Shape out = a.in[0].shape;
  out[at(attrs.axis)] = n;
  return {{DType::F32, out}};
}

// ---- reference value ----------------------------------------------------------------------------

using Numbers = std::vector<Complex>;

// e^(sign 2 pi i k / n) for k < n; quarter turns have no error.
Numbers roots(size_t n, int sign) {
  constexpr int kCosine[] = {1, 0, -1, 0};
  Numbers out;
  for (size_t k = 0; k < n; ++k) {
    if (4 * k % n == 0) {
      const size_t quarter = 4 * k / n;
      out.emplace_back(kCosine[quarter], sign * kCosine[(quarter + 3) % 4]);
      continue;
    }
    const long double angle = 2 * 3.14159265358979323846264338327950288L *
                              static_cast<long double>(k) / static_cast<long double>(n);
    out.emplace_back(std::cos(angle), sign * std::sin(angle));
  }
  return out;
}

Numbers transform(const Numbers& x, int sign);

// By the definition, summed in long double.
Numbers direct(const Numbers& x, int sign) {
  const size_t n = x.size();
  const Numbers w = roots(n, sign);
  Numbers out;
  for (size_t k = 0; k < n; ++k) {
    long double re = 0, im = 0;
    for (size_t j = 0; j < n; ++j) {
      const long double a = x[j].real(), b = x[j].imag();
      const Complex r = w[j * k % n];
      re += a * r.real() - b * r.imag();
      im += a * r.imag() + b * r.real();
    }
    out.emplace_back(re, im);
  }
  return out;
}

// From the transforms of the even and of the odd elements.
Numbers halved(const Numbers& x, int sign) {
  const size_t half = x.size() / 2;
  const Numbers w = roots(x.size(), sign);
  Numbers even, odd, out(x.size());
  for (size_t i = 0; i < half; ++i) even.push_back(x[2 * i]), odd.push_back(x[2 * i + 1]);
  even = transform(even, sign), odd = transform(odd, sign);
  for (size_t k = 0; k < half; ++k) {
    const Complex t = w[k] * odd[k];
    out[k] = even[k] + t, out[k + half] = even[k] - t;
  }
  return out;
}

// Bluestein: with 2 j k = j^2 + k^2 - (k - j)^2 the transform is a convolution with a chirp.
Numbers convolved(const Numbers& x, int sign) {
  const size_t n = x.size();
  size_t padded = 1;
  while (padded < 2 * n) padded *= 2;
  const Numbers w = roots(2 * n, sign);
  Numbers chirp, a(padded), b(padded);
  for (size_t k = 0; k < n; ++k) chirp.push_back(w[k * k % (2 * n)]);
  for (size_t k = 0; k < n; ++k) {
    a[k] = x[k] * chirp[k];
    b[k] = b[(padded - k) % padded] = std::conj(chirp[k]);
  }
  a = transform(a, 1), b = transform(b, 1);
  for (size_t k = 0; k < padded; ++k) a[k] *= b[k] / static_cast<double>(padded);
  a = transform(a, -1);
  a.resize(n);
  for (size_t k = 0; k < n; ++k) a[k] *= chirp[k];
  return a;
}

Numbers transform(const Numbers& x, int sign) {
  if (x.size() <= 128) return direct(x, sign);
  return x.size() % 2 == 0 ? halved(x, sign) : convolved(x, sign);
}

Tensors evaluate_fft(const EvalArgs& e) {
  const auto& [inverse, norm, axis] = e.get<FftAttrs>();
  const Tensor& x = e.in[0];
  Tensor out = e.make();
  const bool blocks = !is_complex(x.dtype());
  const Ints& sizes = x.sizes();
  const int64_t size = sizes[at(axis)], n = blocks ? size / 2 : size;
  const int64_t inner = row_major_strides(sizes)[at(axis)];
  const double scale = fft_scale(norm, inverse, n);
  for (int64_t line = 0; line * size < x.elements(); ++line) {
    const int64_t first = line / inner * size * inner + line % inner;
    Numbers z;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = first + k * inner;
      z.push_back(blocks ? Complex(x.get_float(i), x.get_float(i + n * inner)) : x.get_complex(i));
    }
    z = transform(z, inverse ? 1 : -1);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = first + k * inner;
      const Complex v = z[at(k)] * scale;
      if (!blocks) {
        out.set_complex(i, v);
      } else {
        out.set_float(i, v.real());
        out.set_float(i + n * inner, v.imag());
      }
    }
  }
  return {out};
}

// ---- derivatives, vmap, decompositions ----------------------------------------------------------

// The adjoint is the transform in the other direction with the same factor.
Values vjp_fft(Builder& b, const VjpArgs& a) {
  FftAttrs attrs = a.node.get<FftAttrs>();
  const auto divides = [](bool inverse) { return inverse ? FftNorm::backward : FftNorm::forward; };
  if (attrs.norm != FftNorm::ortho)
    attrs.norm = attrs.norm == divides(attrs.inverse) ? divides(!attrs.inverse) : FftNorm::none;
  attrs.inverse = !attrs.inverse;
  return {op::fft(b, a.cotangents[0], attrs)};
}

// Before version 2 nothing was divided unless a norm said so.
template <class A>
void first_norm(void* attrs) {
  static_cast<A*>(attrs)->norm = FftNorm::none;
}

template <class A>
Values vmap_next_axis(Builder& b, const VmapArgs& a) {
  A attrs = a.node.get<A>();
  ++attrs.axis;
  return b.emit(*a.node.op, attrs, a.in);
}

Values decompose_fftn(Builder& b, const Node& n, Operands in) {
  const auto& [axes, inverse, norm] = n.get<FftnAttrs>();
  Value x = in[0];
  for (int64_t axis : axes) x = op::fft(b, x, {inverse, norm, axis});
  return {x};
}

// Elements [begin, end) along an axis.
Value along(Builder& b, Value x, int64_t axis, int64_t begin, int64_t end) {
  SliceAttrs s{Shape(b.shape(x).size(), Dim(0)), b.shape(x), {}};
  s.start[at(axis)] = begin, s.limit[at(axis)] = end;
  return op::slice(b, x, s);
}

Values decompose_rfft(Builder& b, const Node& n, Operands in) {
  const auto& [norm, axis] = n.get<RfftAttrs>();
  const Value spectrum = op::fft(b, cast_to(b, in[0], DType::C64), {false, norm, axis});
  return {along(b, spectrum, axis, 0, n.type().shape[at(axis)].value())};
}

// The other half of the spectrum is the conjugate of bins (n - 1) / 2 .. 1. What the imaginary
// parts of bin 0 and of bin n / 2 would add is imaginary and is dropped.
Values decompose_irfft(Builder& b, const Node& n, Operands in) {
  const auto& attrs = n.get<IrfftAttrs>();
  const int64_t size = n.type().shape[at(attrs.axis)].value();
  Value full = in[0];
  if (size > 2) {
    const Value mirrored = op::conj(b, along(b, full, attrs.axis, 1, (size + 1) / 2));
    full = op::concat(b, full, op::reverse(b, mirrored, {{attrs.axis}}), {attrs.axis});
  }
  return {op::real(b, op::fft(b, full, {true, attrs.norm, attrs.axis}))};
}

// x[(i + (n + extra) / 2) % n] along every axis; indices, so that n may be symbolic.
Values shift_halfway(Builder& b, const Node& n, Operands in, int64_t extra) {
  Value x = in[0];
  for (int64_t axis : n.get<FftShiftAttrs>().axes) {
    const Dim& size = b.shape(x)[at(axis)];
    const Expr count(b, dim_value(b, size, DType::I64)),
        i(b, op::iota(b, {}, {DType::I64, {size}, 0}));
    x = op::gather(b, x, op::rem(i + (count + static_cast<double>(extra)) / 2.0, count), {axis});
  }
  return {x};
}

constexpr OpDef shift(std::string_view name, std::string_view doc, DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .infer = infer_same};
  d.normalise = normalise_axes_of<FftShiftAttrs>;
  d.decompose = decompose;
  return d;
}

}  // namespace

namespace op {

constinit const Op<FftAttrs> fft = OpDef{
    .name = "fft",
    .doc =
        "Fourier transform along an axis: c sum_n x[n] e^(-2 pi i n k / N), + when inverse. x is "
        "c64, or f32/f64 with the N real parts before the N imaginary ones along the axis. norm "
        "says "
        "which direction has the factor c = 1/N, as in NumPy: backward the inverse one, forward "
        "the "
        "other, none neither; ortho has 1/sqrt(N) in both.",
    .reference = "Fft",
    .kind = Kind::contraction,
    .dtypes = kTransformed,
    .linear = true,
    .infer = infer_fft,
    .normalise = normalise_axis_of<FftAttrs>,
    .eval = evaluate_fft,
    .jvp = jvp_through_itself,
    .vjp = vjp_fft,
    .vmap = vmap_next_axis<FftAttrs>,
    .cost =
        [](const Node& n, std::span<const Type> in) {  // at most 128 products, then halving
          const double length =
              element_count({DType::F32, {in[0].shape[at(n.get<FftAttrs>().axis)]}});
          return element_count(in[0]) * (std::min(length, 512.0) + 8 * std::log2(length + 1));
        },
    .since = 2,
    .defaults_before = first_norm<FftAttrs>,
};

constinit const Op<FftnAttrs> fftn = OpDef{
    .name = "fftn",
    .doc = "fft along each of the axes; x itself for none. Blocks of real numbers have one axis.",
    .dtypes = kTransformed,
    .infer = infer_fftn,
    .normalise = normalise_axes_of<FftnAttrs>,
    .decompose = decompose_fftn,
    .since = 2,
    .defaults_before = first_norm<FftnAttrs>,
};

constinit const Op<RfftAttrs> rfft = OpDef{
    .name = "rfft",
    .doc =
        "Fourier transform of n real numbers along an axis: bins 0 .. n / 2, the others being "
        "their conjugates.",
    .dtypes = {DType::F32},
    .infer = infer_rfft,
    .normalise = normalise_axis_of<RfftAttrs>,
    .decompose = decompose_rfft,
    .since = 2,
    .defaults_before = first_norm<RfftAttrs>,
};

constinit const Op<IrfftAttrs> irfft = OpDef{
    .name = "irfft",
    .doc =
        "Inverse transform of the bins 0 .. n / 2 of n real numbers (n = 0 means the even "
        "2 (bins - 1)). The imaginary parts of bin 0 and, for even n, of the last are ignored.",
    .dtypes = kComplex,
    .infer = infer_irfft,
    .normalise = normalise_axis_of<IrfftAttrs>,
    .decompose = decompose_irfft,
    .since = 2,
    .defaults_before = first_norm<IrfftAttrs>,
};

constinit const Op<FftShiftAttrs> fftshift =
    shift("fftshift", "Moves frequency 0 to the middle, index n / 2, of every given axis.",
          [](Builder& b, const Node& n, Operands in) { return shift_halfway(b, n, in, 1); });

constinit const Op<FftShiftAttrs> ifftshift =
    shift("ifftshift", "The inverse of fftshift: moves index n / 2 of every given axis to 0.",
          [](Builder& b, const Node& n, Operands in) { return shift_halfway(b, n, in, 0); });

}  // namespace op

namespace {
constexpr const OpDef* kFftOps[] = {
    &op::fft,   &op::fftn,     &op::rfft,
    &op::irfft, &op::fftshift, &op::ifftshift,
    &op::stft,  &op::istft,    &op::general_cosine_window,
};
}  // namespace
constinit const Family kFft{"fft", kFftOps};

}  // namespace rlx
