// Elementwise ops and reductions on c64, which are not generated: loops in complex<double>, rounded
// once.
#include <algorithm>
#include <array>
#include <cstring>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/ops/core.h"
#include "rlx/ops/elementwise/complex.h"
#include "rlx/ops/elementwise/math.h"

namespace rlx::cpu {

namespace {

using Apply = Complex (*)(const Complex* x);
// Elements [begin, end) of dense operands (step 1) and single numbers (step 0).
using Loop = void (*)(void* const* operands, const int64_t* steps, int64_t begin, int64_t end);

using c64 = std::complex<float>;

template <auto F, class Out, class... In, size_t... I>
void run_loop(void* const* operands, const int64_t* steps, int64_t begin, int64_t end,
              std::index_sequence<I...>) {
  auto* out = static_cast<Out*>(operands[sizeof...(In)]);
  for (int64_t i = begin; i < end; ++i) {
    const Complex x[] = {Complex(static_cast<const In*>(operands[I])[i * steps[I]])...};
    const Complex y = F(x);
    if constexpr (std::is_same_v<Out, c64>)
      out[i] = c64(y);
    else
      out[i] = static_cast<Out>(y.real());
  }
}
template <auto F, class Out, class... In>
void loop(void* const* operands, const int64_t* steps, int64_t begin, int64_t end) {
  run_loop<F, Out, In...>(operands, steps, begin, end, std::index_sequence_for<In...>{});
}

// An op on complex numbers: for operands of any dtype and any strides, and a loop for the usual
// dtypes.
struct Function {
  const OpDef* op;
  Apply apply;
  Loop loop;
  DType out;
  std::array<DType, 2> in;
};

template <auto F, class Out = c64, class... In>
constexpr Function function(const OpDef* op) {
  if constexpr (sizeof...(In) == 0)
    return {op, F, nullptr, DType::C64, {}};
  else
    return {op, F, loop<F, Out, In...>, dtype_of<Out>(), {dtype_of<In>()...}};
}
template <auto F>
constexpr Function unary(const OpDef* op) {
  return function<F, c64, c64>(op);
}
template <auto F>
constexpr Function binary(const OpDef* op) {
  return function<F, c64, c64, c64>(op);
}

using X = const Complex*;

constexpr Function kFunctions[] = {
    binary<[](X x) { return x[0] + x[1]; }>(&op::add),
    binary<[](X x) { return x[0] - x[1]; }>(&op::sub),
    binary<[](X x) { return x[0] * x[1]; }>(&op::mul),
    binary<[](X x) { return x[0] / x[1]; }>(&op::div),
    unary<[](X x) { return -x[0]; }>(&op::neg),
    unary<[](X x) { return x[0] * x[0]; }>(&op::square),
    unary<[](X x) { return 1.0 / x[0]; }>(&op::reciprocal),
    unary<[](X x) { return std::exp(x[0]); }>(&op::exp),
    unary<[](X x) { return std::log(x[0]); }>(&op::log),
    unary<[](X x) { return std::sqrt(x[0]); }>(&op::sqrt),
    unary<[](X x) { return std::sin(x[0]); }>(&op::sin),
    unary<[](X x) { return std::cos(x[0]); }>(&op::cos),
    unary<[](X x) { return std::tanh(x[0]); }>(&op::tanh),
    unary<[](X x) { return std::sinh(x[0]); }>(&op::sinh),
    unary<[](X x) { return std::cosh(x[0]); }>(&op::cosh),
    unary<[](X x) { return std::asinh(x[0]); }>(&op::asinh),
    unary<[](X x) { return std::acosh(x[0]); }>(&op::acosh),
    unary<[](X x) { return std::atanh(x[0]); }>(&op::atanh),
    unary<[](X x) { return std::asin(x[0]); }>(&op::asin),
    unary<[](X x) { return std::acos(x[0]); }>(&op::acos),
    unary<[](X x) { return std::conj(x[0]); }>(&op::conj),
    unary<[](X x) { return x[0]; }>(&op::stop_gradient),
    function<[](X x) { return Complex(x[0].real()); }, float, c64>(&op::real),
    function<[](X x) { return Complex(x[0].imag()); }, float, c64>(&op::imag),
    function<[](X x) { return Complex(std::abs(x[0])); }, float, c64>(&op::complex_abs),
    function<[](X x) { return Complex(std::arg(x[0])); }, float, c64>(&op::complex_angle),
    function<[](X x) { return Complex(x[0].real(), x[1].real()); }, c64, float, float>(
        &op::complex),
    function<[](X x) { return x[0]; }, c64, float>(&op::cast),
    function<[](X x) { return Complex(x[0] == x[1]); }>(&op::eq),
    function<[](X x) { return Complex(x[0] != x[1]); }>(&op::ne),
    function<[](X x) { return x[0] != 0.0 ? x[1] : x[2]; }>(&op::select),
};

Decision complex_involved(const Node& n, const Graph& g) {
  bool any = is_complex(n.type().dtype);
  for (Value v : n.in) any = any || is_complex(g.type(v).dtype);
  return any ? Decision::yes() : Decision::no("only for complex values");
}

Decision any_view(const Node&, size_t, const View&) { return Decision::yes(); }

Complex load(DType d, const void* data, int64_t i) {
  const auto* p = static_cast<const std::byte*>(data) + i * size_of(d);
  if (!is_complex(d)) return element_value(d, p);
  std::complex<float> v;
  std::memcpy(&v, p, sizeof(v));
  return Complex(v);
}

// One element of a tensor of any dtype; the conversions of `cast` from a complex number.
void store(DType d, void* data, int64_t i, Complex v) {
  auto* p = static_cast<std::byte*>(data);
  if (d == DType::C64) {
    const std::complex<float> c(v);
    std::memcpy(p + i * 8, &c, 8);
    return;
  }
  if (d == DType::Bool) {
    p[i] = static_cast<std::byte>(v != Complex(0));
    return;
  }
  alignas(8) std::byte raw[8];
  convert_element(d, v.real(), raw);
  std::memcpy(p + i * size_of(d), raw, static_cast<size_t>(size_of(d)));
}

// Offsets of an operand along the result's axes.
Ints aligned_strides(const View& v, const Ints& dims) {
  Ints s(dims.size(), 0);
  for (size_t d = 0; d < v.dims.size(); ++d)
    if (v.dims[d] != 1) s[dims.size() - v.dims.size() + d] = v.strides[d];
  return s;
}

int64_t offset_of(int64_t flat, const Ints& dims, const Ints& strides) {
  int64_t at = 0;
  for (size_t d = dims.size(); d-- > 0; flat /= dims[d]) at += flat % dims[d] * strides[d];
  return at;
}

constexpr int64_t kComplexBlock = 1024;

class PointwiseKernel final : public BlockKernel {
 public:
  PointwiseKernel(const Function& f, std::span<const View> in, const View& out)
      : function_(f), dims_(out.dims), out_(out.dtype), elements_(out.elements()) {
    for (const View& v : in) operands_.push_back({v.dtype, aligned_strides(v, dims_)});
    has_loop_ = f.loop && f.out == out.dtype;
    for (size_t i = 0; i < in.size() && has_loop_; ++i) {
      const bool whole = in[i].is_dense() && in[i].elements() == elements_;
      steps_[i] = whole ? 1 : 0;
      has_loop_ = in[i].dtype == f.in[i] && (whole || in[i].elements() == 1);
    }
  }
  std::string name() const override { return fmt::format("complex {}", function_.op->name); }
  int64_t blocks() const override { return ceil_div(elements_, kComplexBlock); }
  int64_t work() const override { return 8 * elements_; }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    const int64_t last = std::min(end * kComplexBlock, elements_);
    if (has_loop_) return function_.loop(m.operands, steps_, begin * kComplexBlock, last);
    Complex x[3];
    for (int64_t i = begin * kComplexBlock; i < last; ++i) {
      for (size_t k = 0; k < operands_.size(); ++k)
        x[k] = load(operands_[k].first, m.operands[k], offset_of(i, dims_, operands_[k].second));
      store(out_, m.operands[operands_.size()], i, function_.apply(x));
    }
  }

 private:
  const Function& function_;  // a row of kFunctions
  Ints dims_;
  DType out_;
  int64_t elements_;
  std::vector<std::pair<DType, Ints>> operands_;
  bool has_loop_ = false;
  int64_t steps_[2] = {};
};

std::shared_ptr<const StepKernel> make_pointwise(Isa, const Node& n, std::span<const View> in,
                                                 std::span<const View> out) {
  for (const Function& f : kFunctions)
    if (f.op == n.op) return std::make_shared<PointwiseKernel>(f, in, out[0]);
  return nullptr;
}

std::shared_ptr<const StepKernel> make_reduce(Isa, const Node& n, std::span<const View> in,
                                              std::span<const View> out) {
  const bool is_product = n.op == &op::reduce_prod;
  const Ints& axes = n.get<ReduceAttrs>().axes;
  struct Part {
    Ints dims, strides;
  } inner, outer;
  for (size_t d = 0; d < in[0].dims.size(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    (reduced ? inner : outer).dims.push_back(in[0].dims[d]);
    (reduced ? inner : outer).strides.push_back(in[0].strides[d]);
  }
  const int64_t count = rlx::product(inner.dims), elements = out[0].elements();
  auto run = [=](const StepMemory& m, int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const int64_t base = offset_of(o, outer.dims, outer.strides);
      Complex acc(is_product ? 1 : 0);
      for (int64_t i = 0; i < count; ++i) {
        const Complex x =
            load(DType::C64, m.operands[0], base + offset_of(i, inner.dims, inner.strides));
        acc = is_product ? acc * x : acc + x;
      }
      store(DType::C64, m.operands[1], o, acc);
    }
  };
  return function_kernel(fmt::format("complex {}", n.op->name),
                         {.blocks = elements, .work = 8 * elements * count, .run = run});
}

constexpr size_t kCount = std::size(kFunctions) + 2;

}  // namespace

std::span<const KernelRow> complex_kernels() {
  static constexpr auto rows = [] {
    std::array<KernelRow, kCount> list{};
    for (size_t i = 0; i < std::size(kFunctions); ++i)
      list[i] = {kFunctions[i].op, "complex loop", complex_involved, any_view, make_pointwise};
    list[kCount - 2] = {&op::reduce_sum, "complex reduction", complex_involved, any_view,
                        make_reduce};
    list[kCount - 1] = {&op::reduce_prod, "complex reduction", complex_involved, any_view,
                        make_reduce};
    return list;
  }();
  return rows;
}

}  // namespace rlx::cpu
