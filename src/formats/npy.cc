#include "rlx/formats/npy.h"

#include <algorithm>

#include "rlx/base/lexer.h"
#include "rlx/ir/tensor_bytes.h"

namespace rlx {

namespace {

constexpr std::string_view kNpyMagic{"\x93NUMPY", 6};

// Bytes of a number, of which a complex has two; 1: there is no order.
int64_t number_bytes(DType d) { return is_complex(d) ? size_of(d) / 2 : size_of(d); }

std::string descr_of(DType d) {
  return fmt::format("{}{}", number_bytes(d) == 1 ? '|' : '<', info(d).npy);
}

struct Header {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran;
  std::optional<Ints> shape;
};

// The dictionary literal {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and nothing
// else.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, size_t offset, const ByteReader& r)
      : text_(text), offset_(offset), r_(r) {}

  Header parse() {
    Header h;
    expect('{');
    while (!accept('}')) {
      entry(h);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) error("something follows the dictionary");
    if (!h.descr || !h.fortran || !h.shape)
      error("descr, fortran_order and shape must all be there");
    return h;
  }

 private:
  void entry(Header& h) {
    const std::string_view key = quoted();
    expect(':');
    bool first = false;
    if (key == "descr")
      first = !h.descr, h.descr = quoted();
    else if (key == "fortran_order")
      first = !h.fortran, h.fortran = boolean();
    else if (key == "shape")
      first = !h.shape, h.shape = shape();
    else
      error("unknown key");
    if (!first) error("a key stands twice");
  }

  std::string_view quoted() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') error("expected a quoted word (records are not supported)");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) error("the quote does not end");
    const std::string_view word = text_.substr(at_ + 1, end - at_ - 1);
    if (word.find_first_of("\\\n") != std::string_view::npos) error("escapes are not allowed");
    at_ = end + 1;
    return word;
  }

  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += std::strlen(word);
        return value;
      }
    error("expected True or False");
  }

  Ints shape() {
    Ints sizes;
    expect('(');
    while (!accept(')')) {
      if (std::ssize(sizes) == kMaxRank) error(fmt::format("more than {} axes", kMaxRank));
      sizes.push_back(integer());
      const bool comma = accept(',');
      if (!comma && sizes.size() == 1) error("a shape of one axis is written (n,)");
      if (!comma) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  int64_t integer() {
    skip_space();
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const auto shifted = checked_mul(value, 10);
      const auto next = shifted ? checked_add(*shifted, text_[at_] - '0') : std::nullopt;
      if (!next) error("the size is too large");
      value = *next;
      ++at_;
    }
    if (at_ == begin) error("expected a size");
    return value;
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) error(fmt::format("expected '{}'", c));
  }
  [[noreturn]] void error(const std::string& message) const {
    r_.error_at(offset_ + at_, "npy-header", message);
  }

  std::string_view text_;
  size_t offset_, at_ = 0;
  const ByteReader& r_;
};

// The tensor whose Fortran-ordered elements are those of t (of reversed sizes) in order.
Tensor transpose_all(const Tensor& t) {
  const Ints sizes(t.sizes().rbegin(), t.sizes().rend());
  Tensor out(t.dtype(), sizes);
  const auto size = static_cast<size_t>(size_of(t.dtype()));
  Ints strides(sizes.size(), 1);  // of the elements of t, along the axes of the result
  for (size_t a = 1; a < sizes.size(); ++a) strides[a] = strides[a - 1] * sizes[a - 1];
  std::byte* to = out.mutable_raw();
  for_each_index(sizes, [&](const Ints& index) {
    int64_t from = 0;
    for (size_t a = 0; a < index.size(); ++a) from += index[a] * strides[a];
    std::memcpy(to, t.raw() + static_cast<size_t>(from) * size, size);
    to += size;
  });
  return out;
}

// What the header says a number is, and whether its bytes stand the other way round.
struct Number {
  DType dtype;
  bool swapped;
};

Number number_of(std::string_view descr, const ByteReader& r) {
  if (!descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos)
    for (const DTypeInfo& d : kDTypes) {
      const bool ordered = number_bytes(d.dtype) > 1;
      if (d.npy == descr.substr(1) && (descr[0] != '|' || !ordered || d.npy[0] == 'V'))
        return {d.dtype, descr[0] == '>' && ordered};
    }
  std::vector<std::string_view> names;
  for (const DTypeInfo& d : kDTypes) names.push_back(d.npy);
  r.error("npy-dtype", "dtype {} has no counterpart; allowed are {}, in either byte order",
          quote(descr), fmt::join(names, " "));
}

void swap_bytes(Tensor& t, int64_t number) {
  std::byte* p = t.mutable_raw();
  for (size_t at = 0; at < t.bytes(); at += static_cast<size_t>(number))
    std::reverse(p + at, p + at + number);
}

}  // namespace

Tensor parse_npy(std::string_view bytes, const std::string& what) {
  return within_memory([&] {
    ByteReader r(bytes, what);
    if (r.left() < kNpyMagic.size() || r.take(kNpyMagic.size()) != kNpyMagic)
      r.error_at(0, "npy-magic", "this is not an .npy file");
    const unsigned major = r.u8(), minor = r.u8();
    if (major < 1 || major > 3 || minor != 0)
      r.error_at(kNpyMagic.size(), "npy-version",
                 fmt::format("version {}.{} is not known", major, minor));
    const uint32_t length = major == 1 ? r.u16() : r.u32();
    const size_t start = r.offset();
    const Header h = HeaderParser(r.take(length), start, r).parse();
    const Number number = number_of(*h.descr, r);
    const Ints& shape = *h.shape;
    Tensor t =
        read_tensor_data(r, number.dtype, *h.fortran ? Ints(shape.rbegin(), shape.rend()) : shape);
    if (!r.done()) r.error("overlong", "{} bytes follow the data", r.left());
    if (number.swapped) swap_bytes(t, number_bytes(number.dtype));
    return *h.fortran && shape.size() > 1 ? transpose_all(t) : t;
  });
}

Tensor read_npy(const std::filesystem::path& path) {
  return within_memory([&] { return parse_npy(read_file(path), path.string()); });
}

std::string npy_header(const Type& type) {
  std::string shape;
  for (int64_t s : type.shape.sizes()) shape += fmt::format("{}, ", s);
  if (type.rank() > 1) shape.resize(shape.size() - 2);
  if (type.rank() == 1) shape.pop_back();
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 descr_of(type.dtype), shape);
  const size_t before = kNpyMagic.size() + 4;
  dict.resize(static_cast<size_t>(align_up(static_cast<int64_t>(before + dict.size() + 1), 64)) -
                  before - 1,
              ' ');
  dict += '\n';
  check(dict.size() < 65536, "an .npy header of {} bytes", dict.size());
  std::string out(kNpyMagic);
  out +=
      {'\x01', '\x00', static_cast<char>(dict.size() & 255), static_cast<char>(dict.size() >> 8)};
  return out + dict;
}

void write_npy(const std::filesystem::path& path, const Tensor& t) {
  within_memory([&] {
    AtomicFile file(path);
    const std::string header = npy_header(t.type());
    file.write(header.data(), header.size());
    file.write(t.raw(), t.bytes());
    file.commit();
  });
}

}  // namespace rlx
