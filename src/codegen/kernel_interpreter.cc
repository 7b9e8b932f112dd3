#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "rlx/base/error.h"
#include "rlx/codegen/kernel.h"

namespace rlx::codegen {
namespace {

// Calls f with a value-initialised object of the C type of a value dtype.
template <class F>
auto with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
      return f(float{});
    case DType::F64:
      return f(double{});
    case DType::I8:
      return f(int8_t{});
    case DType::I16:
      return f(int16_t{});
    case DType::I32:
      return f(int32_t{});
    case DType::I64:
      return f(int64_t{});
    case DType::U8:
      return f(uint8_t{});
    case DType::U32:
      return f(uint32_t{});
    case DType::Bool:
      return f(bool{});
    default:
      break;
  }
  fail(ErrorKind::internal, "internal", "no values of {}", dtype);
}

template <class T>
T unpack(uint64_t bits) {
  T v;
  std::memcpy(&v, &bits, sizeof(T));
  return v;
}
template <class T>
uint64_t pack(T v) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof(T));
  return bits;
}

template <class T>
T float_op(KernelOp op, T a, T b, T c) {
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
  Wide w = a;
  switch (op) {
    case KernelOp::Add:
      return a + b;
    case KernelOp::Sub:
      return a - b;
    case KernelOp::Mul:
      return a * b;
    case KernelOp::Div:
      return a / b;
    case KernelOp::Rem:
      return std::fmod(a, b);
    case KernelOp::Pow:
      return static_cast<T>(std::pow(w, static_cast<Wide>(b)));
    case KernelOp::CopySign:
      return std::copysign(a, b);
    case KernelOp::Fma:
      return std::fma(a, b, c);
    case KernelOp::Neg:
      return -a;
    case KernelOp::Abs:
      return std::abs(a);
    case KernelOp::Sqrt:
      return std::sqrt(a);
    case KernelOp::Exp:
      return static_cast<T>(std::exp(w));
    case KernelOp::Log:
      return static_cast<T>(std::log(w));
    case KernelOp::Tanh:
      return static_cast<T>(std::tanh(w));
    case KernelOp::Erf:
      return static_cast<T>(std::erf(w));
    case KernelOp::Sin:
      return static_cast<T>(std::sin(w));
    case KernelOp::Cos:
      return static_cast<T>(std::cos(w));
    case KernelOp::Floor:
      return std::floor(a);
    case KernelOp::Ceil:
      return std::ceil(a);
    case KernelOp::Trunc:
      return std::trunc(a);
    case KernelOp::Rint:
      return std::rint(a);
    default:
      fail(ErrorKind::internal, "internal", "{} of floats", info(op).name);
  }
}

template <class T>
T shift(KernelOp op, T a, T b) {
  constexpr int width = 8 * sizeof(T);
  bool whole = b < T{0} || static_cast<uint64_t>(b) >= width;
  if (op == KernelOp::Shl)
    return whole ? T{0} : static_cast<T>(static_cast<uint64_t>(static_cast<int64_t>(a)) << b);
  return static_cast<T>(static_cast<int64_t>(a) >> (whole ? 63 : static_cast<int>(b)));
}

template <class T>
T int_op(KernelOp op, T a, T b) {
  uint64_t x = static_cast<uint64_t>(static_cast<int64_t>(a));
  uint64_t y = static_cast<uint64_t>(static_cast<int64_t>(b));
  switch (op) {
    case KernelOp::Add:
      return static_cast<T>(x + y);
    case KernelOp::Sub:
      return static_cast<T>(x - y);
    case KernelOp::Mul:
      return static_cast<T>(x * y);
    case KernelOp::Div:
      if (b == 0) return 0;
      return y == ~uint64_t{0} && std::is_signed_v<T> ? static_cast<T>(0 - x)
                                                      : static_cast<T>(a / b);
    case KernelOp::Rem:
      if (b == 0 || (y == ~uint64_t{0} && std::is_signed_v<T>)) return 0;
      return static_cast<T>(a % b);
    case KernelOp::UMulHi:
      return static_cast<T>((x & 0xffffffffu) * (y & 0xffffffffu) >> 32);
    case KernelOp::Neg:
      return static_cast<T>(0 - x);
    case KernelOp::Abs:
      return a < 0 ? static_cast<T>(0 - x) : a;
    case KernelOp::Shl:
    case KernelOp::Shr:
      return shift(op, a, b);
    default:
      fail(ErrorKind::internal, "internal", "{} of integers", info(op).name);
  }
}

template <class T>
uint64_t arithmetic(KernelOp op, T a, T b, T c) {
  bool nan = a != a;
  switch (op) {
    case KernelOp::Max:
      return pack(a > b || nan ? a : b);
    case KernelOp::Min:
      return pack(a < b || nan ? a : b);
    case KernelOp::Eq:
      return a == b;
    case KernelOp::Ne:
      return a != b;
    case KernelOp::Lt:
      return a < b;
    case KernelOp::Le:
      return a <= b;
    case KernelOp::Gt:
      return a > b;
    case KernelOp::Ge:
      return a >= b;
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) {
    return pack(float_op(op, a, b, c));
  } else {
    if (op == KernelOp::And) return pack<T>(a & b);
    if (op == KernelOp::Or) return pack<T>(a | b);
    if (op == KernelOp::Xor) return pack<T>(a ^ b);
    if constexpr (std::is_same_v<T, bool>) {
      if (op == KernelOp::Not) return pack(!a);
      fail(ErrorKind::internal, "internal", "{} of bools", info(op).name);
    } else {
      return op == KernelOp::Not ? pack<T>(~a) : pack(int_op(op, a, b));
    }
  }
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (x != x) return 0;
    // The bounds are powers of two (or zero), so exact in From: max + 1 for the upper one.
    From low = static_cast<From>(std::numeric_limits<To>::min());
    From high = std::ldexp(From{1}, std::numeric_limits<To>::digits);
    if (x <= low) return std::numeric_limits<To>::min();
    return x >= high ? std::numeric_limits<To>::max() : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

float round_to(DType memory, double x) {
  const NarrowFloat& f = *info(memory).narrow;
  return f.to_float(f.from_double(x));
}

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, void* const* buffers, const int64_t* sizes, int64_t begin,
              int64_t end)
      : k_(kernel),
        sizes_(sizes),
        begin_(begin),
        end_(end),
        values_(kernel.body.size()),
        next_(kernel.body.size()),
        end_of_(kernel.body.size()) {
    for (size_t i = 0; i < k_.body.size(); ++i)
      if (k_.body[i].op == KernelOp::End) end_of_[k_.body[i].args[0].id] = static_cast<int>(i);
    scratch_.resize(k_.buffers.size());
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      const BufferDecl& b = k_.buffers[i];
      if (b.access == Access::Scratch) scratch_[i].resize(b.length * size_of(b.dtype));
      base_.push_back(b.access == Access::Scratch ? scratch_[i].data()
                                                  : static_cast<uint8_t*>(buffers[b.slot]));
    }
  }

  void run(int from, int to) {
    for (int i = from; i < to; ++i) {
      if (k_.body[i].op == KernelOp::Loop) {
        loop(i);
        i = end_of_[i];
      } else {
        step(i);
      }
    }
  }

 private:
  int64_t size(Size s) const { return s.is_constant() ? s.scale : s.scale * sizes_[s.argument]; }
  int64_t index(ValueId v) const { return unpack<int64_t>(values_[v.id]); }

  int64_t extent(const Extent& e) const {
    const int64_t n = size(e.total), tile = size(e.tile);
    return e.is_tile() ? std::min(tile, n - tile * index(e.outer)) : n;
  }

  int64_t offset(const Instr& in) const {
    int64_t at = 0;
    for (const Term& t : in.address) at += size(t.stride) * (t.index ? index(t.index) : 1);
    return at;
  }

  void loop(int at) {
    const Instr& in = k_.body[at];
    bool block = in.kind == LoopKind::Block;
    int body = at + 1;
    for (; k_.body[body].op == KernelOp::Carry; ++body)
      values_[body] = values_[k_.body[body].args[0].id];
    int64_t last = block ? end_ : extent(in.extent);
    for (int64_t i = block ? begin_ : 0; i < last; ++i) {
      if (block)
        for (auto& s : scratch_) std::fill(s.begin(), s.end(), 0xa5);
      values_[at] = pack(i);
      for (int c = at + 1; c < body; ++c) next_[c] = values_[c];
      run(body, end_of_[at]);
      for (int c = at + 1; c < body; ++c) values_[c] = next_[c];
    }
  }

  void update(const Instr& in) {
    const Instr& carry = k_[in.args[0]];
    uint64_t old = values_[in.args[0].id], x = values_[in.args[1].id];
    static constexpr KernelOp kOps[] = {KernelOp::Const, KernelOp::Add, KernelOp::Mul,
                                        KernelOp::Max,   KernelOp::Min, KernelOp::And,
                                        KernelOp::Or};
    if (carry.combine != Combine::None) {
      x = with_type(carry.dtype, [&](auto t) {
        using T = decltype(t);
        KernelOp op = kOps[static_cast<int>(carry.combine)];
        return arithmetic<T>(op, unpack<T>(old), unpack<T>(x), T{});
      });
    }
    next_[in.args[0].id] = x;
  }

  uint64_t load(const Instr& in) const {
    DType memory = k_[in.buffer].dtype;
    int bytes = memory == DType::C64 ? 4 : size_of(memory);
    uint64_t bits = 0;
    std::memcpy(&bits, base_[in.buffer.id] + offset(in) * bytes, bytes);
    if (const NarrowFloat* f = info(memory).narrow)
      return pack(f->to_float(static_cast<uint16_t>(bits)));
    return memory == DType::Bool ? bits != 0 : bits;
  }

  void store(const Instr& in) {
    DType memory = k_[in.buffer].dtype;
    int bytes = memory == DType::C64 ? 4 : size_of(memory);
    uint64_t bits = values_[in.args[0].id];
    if (const NarrowFloat* f = info(memory).narrow) bits = f->from_float(unpack<float>(bits));
    std::memcpy(base_[in.buffer.id] + offset(in) * bytes, &bits, bytes);
  }

  void step(int at) {
    const Instr& in = k_.body[at];
    auto arg = [&](int i) { return in.args[i] ? values_[in.args[i].id] : 0; };
    uint64_t& out = values_[at];
    switch (in.op) {
      case KernelOp::Const:
        out = in.bits;
        break;
      case KernelOp::SizeValue:
        out = pack(size(in.extent.total));
        break;
      case KernelOp::Argument:
        out = static_cast<uint64_t>(sizes_[in.extent.total.argument]);
        break;
      case KernelOp::Update:
        update(in);
        break;
      case KernelOp::Result:
        out = values_[in.args[0].id];
        break;
      case KernelOp::Load:
        out = load(in);
        break;
      case KernelOp::Store:
        store(in);
        break;
      case KernelOp::Select:
        out = arg(0) ? arg(1) : arg(2);
        break;
      case KernelOp::Cast:
        out = with_type(k_[in.args[0]].dtype, [&](auto from) {
          return with_type(in.dtype, [&](auto to) {
            return pack(convert<decltype(to)>(unpack<decltype(from)>(arg(0))));
          });
        });
        break;
      case KernelOp::Round:
        out = pack(round_to(in.memory, k_[in.args[0]].dtype == DType::F64 ? unpack<double>(arg(0))
                                                                          : unpack<float>(arg(0))));
        break;
      default:
        out = with_type(k_[in.args[0]].dtype, [&](auto t) {
          using T = decltype(t);
          return arithmetic<T>(in.op, unpack<T>(arg(0)), unpack<T>(arg(1)), unpack<T>(arg(2)));
        });
    }
  }

  const Kernel& k_;
  const int64_t* sizes_;
  int64_t begin_, end_;
  std::vector<uint64_t> values_, next_;
  std::vector<int> end_of_;
  std::vector<std::vector<uint8_t>> scratch_;
  std::vector<uint8_t*> base_;
};

}  // namespace

void interpret(const Kernel& kernel, void* const* buffers, const int64_t* sizes, int64_t begin,
               int64_t end) {
  Interpreter(kernel, buffers, sizes, begin, end).run(0, static_cast<int>(kernel.body.size()));
}

}  // namespace rlx::codegen
