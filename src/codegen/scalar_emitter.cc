#include "rlx/codegen/scalar_emitter.h"

#include "rlx/ir/op.h"

namespace rlx::codegen {

namespace {

bool is_comparison(ScalarOp op) { return op >= ScalarOp::Eq && op <= ScalarOp::Ge; }

// Whether the rule of an op with these attributes may make constants of them.
bool has_numbers(const Attrs& attrs) {
  for (const FieldInfo& f : attrs.fields())
    if (f.is<double>() || f.is<std::optional<double>>()) return true;
  return false;
}

// Counts operations without emitting anything.
class CostCounter final : public ScalarEmitter {
 public:
  int total = 0;
  int constant(DType, double) override { return 0; }
  int constant_int(DType, int64_t) override { return 0; }
  int apply(ScalarOp op, DType, std::span<const Scalar>) override {
    total += info(kernel_op(op)).expensive ? 10 : 1;
    return 0;
  }
};

}  // namespace

int64_t integer_limit(DType dtype, bool highest) {
  const auto high = static_cast<int64_t>((uint64_t{1} << info(dtype).digits) - 1);
  return highest ? high : info(dtype).is_signed ? -high - 1 : 0;
}

int NodeEmitter::cost(const Node& n) {
  if (!n.op->scalar) return 0;
  CostCounter counter;
  std::vector<Scalar> in(n.in.size(), Scalar{&counter, 0, n.type().dtype});
  n.op->scalar(n, in);
  return counter.total;
}

ValueId NodeEmitter::node(const Node& n, const Graph& g, std::span<const ValueId> in) {
  std::vector<Scalar> operands;
  for (size_t i = 0; i < in.size(); ++i)
    operands.push_back({this, in[i].id, g.type(n.in[i]).dtype});
  depends_on_attributes_ = has_numbers(n.attrs);
  const Scalar result = n.op->scalar(n, operands);
  return finish(ValueId{result.id}, n.type().dtype);
}

ValueId NodeEmitter::constant_of(const Tensor& scalar) {
  const DType d = value_dtype(scalar.dtype());
  if (is_float(d)) return b_.free(b_.constant(d, scalar.get_float(0)));
  return b_.free(b_.integer(d, scalar.get_int(0)));
}

int NodeEmitter::constant(DType dtype, double value) {
  const DType d = value_dtype(dtype);
  if (!is_float(d)) return b_.integer(d, static_cast<int64_t>(value)).id;
  const ValueId c = b_.constant(d, value);
  return (depends_on_attributes_ ? b_.free(c) : c).id;
}

int NodeEmitter::constant_int(DType dtype, int64_t value) {
  return b_.integer(value_dtype(dtype), value).id;
}

int NodeEmitter::apply(ScalarOp op, DType result, std::span<const Scalar> operands) {
  std::vector<ValueId> in;
  for (const Scalar& s : operands) in.push_back(ValueId{s.id});
  const DType from = b_.dtype(in[0]);
  if (op == ScalarOp::Cast && from == result) return in[0].id;
  if (op == ScalarOp::Cast) return cast(in[0], result).id;
  if (op == ScalarOp::Pow && !is_float(from)) return power(in[0], in[1], from).id;
  if (op == ScalarOp::Abs && !info(from).is_signed) return in[0].id;
  if (op == ScalarOp::Neg && !info(from).is_signed) return b_.sub(b_.integer(from, 0), in[0]).id;
  if (is_comparison(op) && from == DType::Bool)
    for (ValueId& v : in) v = b_.cast(v, DType::U8);
  return b_.apply(kernel_op(op), in).id;
}

// An integer of more than 24 bits would round twice on its way through f32, one of more than 53 through f64.
ValueId NodeEmitter::cast(ValueId x, DType to) {
  const DType from = b_.dtype(x);
  if (!is_narrow(to) || !is_int(from) || size_of(from) < 4) return b_.cast(x, to);
  if (from == DType::I64) {  // as odd_beyond_doubles() does
    const auto number = [&](int64_t n) { return b_.integer(DType::I64, n); };
    const ValueId lost = b_.ne(b_.bit_and(x, number(kLostBits)), number(0));
    const ValueId odd =
        b_.bit_or(b_.bit_and(x, number(~kLostBits)), b_.select(lost, number(kOddBit), number(0)));
    x = b_.select(b_.lt(x, number(-kExactDoubles)), odd,
                  b_.select(b_.gt(x, number(kExactDoubles)), odd, x));
  }
  return b_.cast(b_.cast(x, DType::F64), to);
}

// Integer power by squaring, wrapping; a negative exponent gives 0 unless the base is 1 or -1.
ValueId NodeEmitter::power(ValueId base, ValueId exponent, DType dtype) {
  ValueId x = b_.cast(base, DType::I64), n = b_.cast(exponent, DType::I64);
  const ValueId zero = b_.integer(DType::I64, 0), one = b_.integer(DType::I64, 1);
  ValueId result = one, square = x, left = n;
  const int bits = dtype == DType::I8    ? 7
                   : dtype == DType::U8  ? 8
                   : dtype == DType::I16 ? 15
                   : dtype == DType::I64 ? 63
                                         : 32;
  for (int i = 0; i < bits; ++i) {
    result = b_.select(b_.ne(b_.bit_and(left, one), zero), b_.mul(result, square), result);
    square = b_.mul(square, square);
    left = b_.shr(left, one);
  }
  const ValueId minus = b_.integer(DType::I64, -1);
  const ValueId odd = b_.ne(b_.bit_and(n, one), zero);
  const ValueId unit =
      b_.select(b_.eq(x, one), one, b_.select(b_.eq(x, minus), b_.select(odd, minus, one), zero));
  return b_.cast(b_.select(b_.lt(n, zero), unit, result), dtype);
}

}  // namespace rlx::codegen
