#include "rlx/ir/tensor.h"

#include <cmath>

#include "rlx/base/large_blocks.h"

namespace rlx {

namespace {
constexpr int64_t kMaxBytes = int64_t{1} << 48;
constexpr size_t kTextBytes = 1024;  // constants up to this size are printed in full

template <class T>
T load(const std::byte* p, int64_t i) {
  T v;
  std::memcpy(&v, p + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}

template <class T>
void store(std::byte* p, int64_t i, T v) {
  std::memcpy(p + i * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}

// An element of an integer dtype or bool.
int64_t whole_value(DType dtype, const std::byte* p) {
  switch (dtype) {
    case DType::I8:
      return load<int8_t>(p, 0);
    case DType::I16:
      return load<int16_t>(p, 0);
    case DType::I32:
      return load<int32_t>(p, 0);
    case DType::I64:
      return load<int64_t>(p, 0);
    case DType::U8:
      return load<uint8_t>(p, 0);
    case DType::U32:
      return load<uint32_t>(p, 0);
    default:
      return load<uint8_t>(p, 0) != 0;
  }
}

// Truncate toward zero, saturate, NaN to 0.
int64_t saturate(double v, DType to) {
  if (std::isnan(v)) return 0;
  const double end = std::ldexp(1.0, info(to).digits);
  const auto highest = static_cast<int64_t>((uint64_t{1} << info(to).digits) - 1);
  if (v >= end) return highest;
  if (info(to).is_signed) return v < -end ? -highest - 1 : static_cast<int64_t>(v);
  return v < 0 ? 0 : static_cast<int64_t>(v);
}
}  // namespace

Tensor::Tensor(DType dtype, Ints sizes, WithoutData)
    : dtype_(dtype), sizes_(std::move(sizes)), elements_(1) {
  for (int64_t s : sizes_) {
    user_check(s >= 0, "negative-dim", "a tensor cannot have the size {}", s);
    elements_ = mul_or_fail(elements_, s, "number of elements");
  }
  user_check(elements_ <= kMaxBytes / size_of(dtype_), "tensor-too-large",
             "a tensor of {} elements of {} is too large, the most are {} bytes", elements_, dtype_,
             kMaxBytes);
}

Tensor::Tensor(DType dtype, Ints sizes) : Tensor(dtype, std::move(sizes), WithoutData()) {
  data_ = allocate_block(bytes());
  std::memset(data_.get(), 0, bytes());
}

Tensor Tensor::uninitialised(DType dtype, Ints sizes) {
  Tensor t(dtype, std::move(sizes), WithoutData());
  t.data_ = allocate_block(t.bytes());
  return t;
}

Tensor Tensor::over(DType dtype, Ints sizes, std::shared_ptr<std::byte[]> data) {
  Tensor t(dtype, std::move(sizes), WithoutData());
  t.data_ = std::move(data);
  return t;
}

void Tensor::bad_index(int64_t i) const {
  fail(ErrorKind::user, "tensor-index", "{} has no element {}; there are {}", type(), i, elements_);
}

Tensor Tensor::from_bytes(DType dtype, Ints sizes, const void* bytes, size_t size) {
  Tensor t = uninitialised(dtype, std::move(sizes));
  user_check(size == t.bytes(), "data-size", "a tensor {} needs {} bytes, {} were given", t.type(),
             t.bytes(), size);
  if (size) std::memcpy(t.data_.get(), bytes, size);
  return t;
}

Tensor Tensor::full(DType dtype, Ints sizes, Complex value) {
  Tensor t(dtype, std::move(sizes));
  for (int64_t i = 0; i < t.elements_; ++i) {
    if (is_complex(dtype))
      t.set_complex(i, value);
    else if (is_float(dtype))
      t.set_float(i, value.real());
    else
      t.set_int(i, saturate(value.real(), is_bool(dtype) ? DType::I64 : dtype));
  }
  return t;
}

Tensor Tensor::reshaped(Ints sizes) const {
  user_check(std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n >= 0; }) &&
                 product(sizes) == elements_,
             "reshape-elements", "a tensor of {} cannot be reshaped to [{}]", type(),
             fmt::join(sizes, ", "));
  Tensor t = *this;
  t.sizes_ = std::move(sizes);
  return t;
}

double Tensor::get_float(int64_t i) const {
  check_index(i);
  user_check(!is_complex(dtype_), "tensor-dtype", "an element of {} is read as a real number",
             type());
  return element_value(dtype_, data_.get() + i * size_of(dtype_));
}

int64_t Tensor::get_int(int64_t i) const {
  check_index(i);
  const std::byte* p = data_.get() + i * size_of(dtype_);
  return is_float(dtype_) || is_complex(dtype_) ? saturate(get_float(i), DType::I64)
                                                : whole_value(dtype_, p);
}

Complex Tensor::get_complex(int64_t i) const {
  if (dtype_ != DType::C64) return get_float(i);
  check_index(i);
  return Complex(load<std::complex<float>>(data_.get(), i));
}

double element_value(DType dtype, const void* element) {
  const auto* p = static_cast<const std::byte*>(element);
  if (const NarrowFloat* narrow = info(dtype).narrow) {
    uint16_t bits = 0;
    std::memcpy(&bits, p, static_cast<size_t>(size_of(dtype)));
    return narrow->to_float(bits);
  }
  if (dtype == DType::F32) return load<float>(p, 0);
  if (dtype == DType::F64) return load<double>(p, 0);
  return static_cast<double>(whole_value(dtype, p));
}

void convert_element(DType to, double value, void* element) {
  auto* p = static_cast<std::byte*>(element);
  if (const NarrowFloat* narrow = info(to).narrow) {
    const uint16_t bits = narrow->from_double(value);
    std::memcpy(p, &bits, static_cast<size_t>(size_of(to)));  // little-endian: the low bytes
    return;
  }
  switch (to) {
    case DType::F32:
      store(p, 0, static_cast<float>(value));
      break;
    case DType::F64:
      store(p, 0, value);
      break;
    case DType::C64:
      store(p, 0, std::complex<float>(static_cast<float>(value)));
      break;
    case DType::Bool:
      store<uint8_t>(p, 0, value != 0);
      break;
    default: {
      const int64_t whole = saturate(value, to);
      std::memcpy(p, &whole, static_cast<size_t>(size_of(to)));  // little-endian: the low bytes
    }
  }
}

void Tensor::set_float(int64_t i, double value) {
  check_index(i);
  convert_element(dtype_, value, data_.get() + i * size_of(dtype_));
}

void Tensor::set_int(int64_t i, int64_t value) {
  check_index(i);
  std::byte* p = data_.get();
  switch (dtype_) {
    case DType::I8:
      store(p, i, static_cast<int8_t>(value));
      break;
    case DType::I16:
      store(p, i, static_cast<int16_t>(value));
      break;
    case DType::I32:
      store(p, i, static_cast<int32_t>(value));
      break;
    case DType::I64:
      store(p, i, value);
      break;
    case DType::U8:
      store(p, i, static_cast<uint8_t>(value));
      break;
    case DType::U32:
      store(p, i, static_cast<uint32_t>(value));
      break;
    case DType::Bool:
      store<uint8_t>(p, i, value != 0);
      break;
    case DType::F32:
      store(p, i, static_cast<float>(value));
      break;  // one rounding from int64
    case DType::F64:
      store(p, i, static_cast<double>(value));
      break;
    default:
      set_float(i, odd_beyond_doubles(value));
  }
}

void Tensor::set_complex(int64_t i, Complex value) {
  check_index(i);
  if (dtype_ == DType::C64)
    store(data_.get(), i, std::complex<float>(value));
  else if (dtype_ == DType::Bool)
    store<uint8_t>(data_.get(), i, value != Complex(0));
  else
    set_float(i, value.real());
}

bool Tensor::same_bits(const Tensor& o) const {
  return dtype_ == o.dtype_ && sizes_ == o.sizes_ &&
         (data_ == o.data_ || std::memcmp(data_.get(), o.data_.get(), bytes()) == 0);
}

uint64_t Tensor::hash() const {
  uint64_t h = mix(static_cast<uint64_t>(dtype_), sizes_.size());
  for (int64_t s : sizes_) h = mix(h, static_cast<uint64_t>(s));
  return hash_bytes(data_.get(), bytes(), h);
}

double odd_beyond_doubles(int64_t n) {
  if (n < -kExactDoubles || n > kExactDoubles) n = (n & ~kLostBits) | (n & kLostBits ? kOddBit : 0);
  return static_cast<double>(n);
}

Tensor cast_tensor(const Tensor& x, DType to) {
  if (x.dtype() == to) return x;
  Tensor y(to, x.sizes());
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (is_complex(x.dtype())) {
      if (is_bool(to))
        y.set_complex(i, x.get_complex(i));
      else
        y.set_float(i, x.get_complex(i).real());
    } else if (is_float(x.dtype())) {
      y.set_float(i, x.get_float(i));
    } else {
      y.set_int(i, x.get_int(i));
    }
  }
  return y;
}

template struct MemberTypeOf<Tensor>;

// f32[2, 2]{1, 2, 3, 4}; the bytes in hex for complex tensors and where a float is NaN; #hash when
// large and a store is given.
void Codec<Tensor>::print(Printer& p, const Tensor& v) {
  p.out += fmt::format("{}[{}]", v.dtype(), fmt::join(v.sizes(), ", "));
  if (v.bytes() > kTextBytes && p.store) {
    p.store->constants.insert_or_assign(v.hash(), v);
    p.out += fmt::format("#{:016x}", v.hash());
    return;
  }
  bool plain = !is_complex(v.dtype());
  for (int64_t i = 0; plain && is_float(v.dtype()) && i < v.elements(); ++i)
    plain = !std::isnan(v.get_float(i));
  if (!plain) {
    p.out += "hex\"";
    for (size_t i = 0; i < v.bytes(); ++i)
      p.out += fmt::format("{:02x}", static_cast<unsigned>(v.raw()[i]));
    p.out += '"';
    return;
  }
  p.out += '{';
  for (int64_t i = 0; i < v.elements(); ++i) {
    if (i) p.out += ", ";
    if (v.dtype() == DType::F64)
      p.out += number_text(v.get_float(i));
    else if (is_float(v.dtype()))
      p.out += fmt::format("{}", static_cast<float>(v.get_float(i)));
    else
      p.out += std::to_string(v.get_int(i));
  }
  p.out += '}';
}

namespace {
void read_hex(Reader& r, Tensor& v) {
  const std::string text = r.lex.quoted();
  if (text.size() != 2 * v.bytes())
    r.lex.error(fmt::format("expected {} hex digits", 2 * v.bytes()));
  auto digit = [&](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
    r.lex.error("expected lower-case hex digits");
  };
  for (size_t i = 0; i < v.bytes(); ++i)
    v.mutable_raw()[i] = static_cast<std::byte>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
}

// One number in braces. What the dtype cannot hold is an error: it would wrap, or become infinite
// or NaN.
void read_element(Reader& r, Tensor& v, int64_t i) {
  const Lexer before = r.lex;
  bool fits = true;
  if (is_float(v.dtype())) {
    const double number = r.lex.number();
    v.set_float(i, number);
    const double held = v.get_float(i);
    fits = std::isinf(number) == std::isinf(held) && std::isnan(number) == std::isnan(held);
  } else {
    const int64_t number = r.lex.integer();
    v.set_int(i, number);
    fits = is_complex(v.dtype()) || v.get_int(i) == number;
  }
  if (fits) return;
  Lexer at = before;
  at.done();  // to where the number begins
  at.error(fmt::format("expected a number that fits in {}", v.dtype()));
}
}  // namespace

void Codec<Tensor>::read(Reader& r, Tensor& v) {
  DType dtype{};
  Ints sizes;
  Codec<DType>::read(r, dtype);
  Codec<Ints>::read(r, sizes);
  int64_t elements = 1;
  for (int64_t s : sizes) {
    auto n = s < 0 ? std::nullopt : checked_mul(elements, s);
    if (!n) r.lex.error("bad tensor size");
    elements = *n;
  }
  if (r.lex.accept("#")) {
    uint64_t hash = 0;
    const std::string digits(r.lex.until_space());
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      r.lex.error("expected 16 hex digits");
    hash = std::stoull(digits, nullptr, 16);
    const auto it = r.store ? r.store->constants.find(hash) : decltype(r.store->constants.end()){};
    if (!r.store || it == r.store->constants.end())
      r.lex.error("no constant with this hash was supplied");
    if (it->second.dtype() != dtype || it->second.sizes() != sizes)
      r.lex.error("the constant of this hash has another type");
    v = it->second;
    return;
  }
  // What the text merely claims is not allocated: every element takes at least one character.
  if (elements > static_cast<int64_t>(r.lex.remaining()))
    r.lex.error("more elements than the text can hold");
  v = Tensor(dtype, sizes);
  if (r.lex.accept("hex")) return read_hex(r, v);
  r.lex.expect("{");
  for (int64_t i = 0; i < elements; ++i) {
    if (i) r.lex.expect(",");
    read_element(r, v, i);
  }
  r.lex.expect("}");
}

}  // namespace rlx
